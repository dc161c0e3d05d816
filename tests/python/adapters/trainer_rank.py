#!/usr/bin/env python3
"""One rank of a training by Hugging Face's Trainer or trl's SFTTrainer with BatchingMixin.

    RANK=0 WORLD_SIZE=2 … trainer_rank.py SPECS.json OUT.json

A spec of SPECS: trainer ("trainer" or "sft"), model ("llama" or "bert"), folder, batching, and what is left out
by default: accumulation, epochs, workers, sft (arguments), mixin (arguments), save_at, resume (a
checkpoint), lora, late (seconds that rank 1 sleeps behind every optimizer step).
"""

import copy
import pathlib
import sys
import time
import warnings

import torch
import transformers

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import cases  # noqa: E402

from stepsim.integrations.transformers import BatchingMixin  # noqa: E402


class Samples(torch.utils.data.Dataset):
    def __len__(self):
        return len(cases.LENGTHS)

    def __getitem__(self, number):
        return {"input_ids": cases.tokens_of(number).tolist(), "label": cases.label_of(number), "text": "unused"}


class Collate:
    def __init__(self, classifies):
        self.classifies = classifies

    def __call__(self, samples):
        return cases.collated(cases.numbers_of([one["input_ids"] for one in samples]), self.classifies)


class Teller(transformers.TrainerCallback):
    """Tells what is trained, and the first step's gradient."""

    def __init__(self, model, late):
        self._model, self._late = model, late
        self.told, self.gradient, self.rates = cases.Told(), None, []
        model.register_forward_pre_hook(self._forward, with_kwargs=True)

    def _forward(self, model, _, inputs):
        if model.training:
            self.told.batch(cases.numbers_in(inputs))

    def on_epoch_begin(self, args, state, control, **others):
        self.told.begin_epoch()

    def on_pre_optimizer_step(self, args, state, control, **others):
        if self.gradient is None:
            self.gradient = cases.gradients(self._model)

    def on_optimizer_step(self, args, state, control, **others):
        if torch.distributed.get_rank() == 1:
            time.sleep(self._late)

    def on_step_end(self, args, state, control, lr_scheduler=None, **others):
        self.told.end_step()
        self.rates.append(lr_scheduler.get_last_lr()[0])


def settings(spec, kind, **more):
    return kind(
        output_dir=spec["folder"], num_train_epochs=spec.get("epochs", 3), max_steps=spec.get("max_steps", -1),
        gradient_accumulation_steps=spec.get("accumulation", 1), per_device_train_batch_size=spec.get("batch_size", 8),
        learning_rate=1e-3, max_grad_norm=0.0, seed=7, use_cpu=True, report_to="none", logging_strategy="steps",
        logging_steps=5, save_strategy="steps" if "save_at" in spec else "no", save_steps=spec.get("save_at", 500),
        disable_tqdm=True, dataloader_num_workers=spec.get("workers", 0), **more,
    )  # fmt: skip


def make_trainer(spec, model, **options):
    if spec["trainer"] == "sft":
        import datasets
        import trl

        class SFT(BatchingMixin, trl.SFTTrainer):
            pass

        rows = [cases.tokens_of(number).tolist() for number in range(len(cases.LENGTHS))]
        tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=word_tokenizer(), pad_token="0", eos_token="1")
        return SFT(model, settings(spec, trl.SFTConfig, bf16=False, **spec.get("sft", {})), processing_class=tokenizer,
                   train_dataset=datasets.Dataset.from_dict({"input_ids": rows}), **options)

    class Trainer(BatchingMixin, transformers.Trainer):
        pass

    return Trainer(model, settings(spec, transformers.TrainingArguments), train_dataset=Samples(),
                   data_collator=Collate(spec["model"] == "bert"), **options)


def word_tokenizer():
    import tokenizers

    words = {str(number): number for number in range(cases.VOCABULARY)}
    return tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="0"))


def train(spec):
    """Trains once; rank 0 returns what came of it."""
    model = cases.make_model(spec["model"])
    if spec.get("lora"):
        import peft

        model = peft.get_peft_model(model, peft.LoraConfig(target_modules=["q_proj", "v_proj"], r=4))
    untrained = copy.deepcopy(model)
    teller = Teller(model, spec.get("late", 0))
    trainer = make_trainer(spec, model, callbacks=[teller], batching=spec.get("batching"), **spec.get("mixin", {}))
    trainer.train(resume_from_checkpoint=spec.get("resume"))
    error = None
    if "resume" not in spec:
        step = cases.of_step(teller.told.epochs)
        reference = cases.gradient_of(untrained, step, spec["model"] == "bert")
        error = cases.relative(teller.gradient, reference)
    batches = trainer.batches
    return teller.told.result(
        idle=None if batches is None else cases.idle_batches(batches, len(teller.told.epochs)),
        gradient_error=error, weights=cases.weights(model).tolist(), max_steps=trainer.state.max_steps,
        steps=trainer.state.global_step, rates=teller.rates, **cases.advised(trainer.stepsim_watch.own),
    )  # fmt: skip


if __name__ == "__main__":
    warnings.filterwarnings("ignore", category=FutureWarning)
    transformers.logging.set_verbosity_error()
    cases.main(train)
