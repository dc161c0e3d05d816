"""Batches, recorder and advisor inside the loops of other libraries: a module for each of them.

    stepsim.integrations.transformers   Trainer and SFTTrainer
    stepsim.integrations.accelerate     a batch sampler for loaders that go through prepare()
    stepsim.integrations.lightning      a loader with state, and a callback

A library is imported only by the module of its name.
"""
