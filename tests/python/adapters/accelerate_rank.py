#!/usr/bin/env python3
"""One rank of a training by Accelerate with stepsim.integrations.accelerate.

    RANK=0 WORLD_SIZE=2 … accelerate_rank.py SPECS.json OUT.json

A spec of SPECS: batching, and what is left out by default: accumulation, epochs, workers, sampler ("plain" for
stepsim.torch.BatchSampler), accelerator (arguments), save_at, resume (a folder), advisor.
"""

import pathlib
import sys

import accelerate
import torch
from torch.utils.data import DataLoader

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import cases  # noqa: E402

import stepsim.integrations.accelerate  # noqa: E402
import stepsim.torch  # noqa: E402
from stepsim.integrations.accelerate import BatchSampler  # noqa: E402


def train(spec):
    """Trains once; rank 0 returns what came of it."""
    accumulation = spec.get("accumulation", 1)
    accelerator = accelerate.Accelerator(
        cpu=True, gradient_accumulation_steps=accumulation,
        dataloader_config=accelerate.DataLoaderConfiguration(**spec.get("loader", {})),
    )  # fmt: skip
    if spec.get("sampler") == "plain":
        sampler = stepsim.torch.BatchSampler(cases.LENGTHS, weighting="sample", **spec["batching"])
    else:
        sampler = BatchSampler(cases.LENGTHS, weighting="sample", uneven="idle", seed=7, accumulation=accumulation,
                               **spec["batching"])
    model = cases.make_model("bert")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    loader = DataLoader(range(len(cases.LENGTHS)), batch_sampler=sampler, num_workers=spec.get("workers", 0),
                        collate_fn=lambda numbers: cases.collated(numbers, True))
    ddp, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    if spec.get("twice"):
        loader = accelerator.prepare(loader)
    accelerator.register_for_checkpointing(sampler)
    if "resume" in spec:
        accelerator.load_state(spec["resume"])
    advisor = stepsim.torch.Advisor(ddp, optimizer, loader, **spec["advisor"]) if "advisor" in spec else None
    sampler.verify()
    told, gradient, done = cases.Told(), None, 0
    for epoch in range(sampler.epoch, spec.get("epochs", 3)):
        sampler.set_epoch(epoch)
        told.begin_epoch()
        for batch, step in sampler.steps(loader):
            told.batch(cases.numbers_in(batch))
            assert told.last() == step.samples
            with accelerator.accumulate(ddp):
                if advisor is not None:
                    with advisor.step(lengths=step.lengths):
                        loss = ddp(**batch).loss * step.loss_scale
                        advisor.forward_done()
                        accelerator.backward(loss)
                        advisor.backward_done()
                        optimizer.step()
                else:
                    accelerator.backward(ddp(**batch).loss * step.loss_scale)
                    if accelerator.sync_gradients and gradient is None:
                        gradient = cases.gradients(model)
                    optimizer.step()
                optimizer.zero_grad()
            if accelerator.sync_gradients:
                told.end_step()
                done += 1
                if spec.get("save_at") == done:
                    accelerator.save_state(spec["folder"])
    error = None
    if gradient is not None and "resume" not in spec:
        error = cases.relative(gradient, cases.gradient_of(cases.make_model("bert"), cases.of_step(told.epochs), True))
    if advisor is not None:
        advisor.close()
        accelerator.wait_for_everyone()
    accelerator.free_memory()
    return told.result(gradient_error=error, weights=cases.weights(model).tolist(),
                       idle=cases.idle_batches(sampler, len(told.epochs)), **cases.advised(advisor))


if __name__ == "__main__":
    cases.main(train)
