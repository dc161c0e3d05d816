#!/usr/bin/env python3
"""One rank of a training by Lightning with stepsim.integrations.lightning.

    RANK=0 WORLD_SIZE=2 … lightning_rank.py SPECS.json OUT.json

A spec of SPECS: folder, batching, and what is left out by default: accumulation, epochs, workers, trainer
(arguments), callback (arguments), save_at (steps), resume (a checkpoint).
"""

import logging
import pathlib
import sys
import warnings

import lightning
import torch
from lightning.pytorch.plugins.environments import TorchElasticEnvironment

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import cases  # noqa: E402

from stepsim.integrations.lightning import Batches  # noqa: E402


class Module(lightning.LightningModule):
    def __init__(self, spec, batches):
        super().__init__()
        self.spec, self.batches = spec, batches
        self.model = cases.make_model("bert")
        self.told, self.gradient, self.done, self.planned = cases.Told(), None, 0, None

    def train_dataloader(self):
        return self.batches.loader(range(len(cases.LENGTHS)), cases.LENGTHS, **self.spec["batching"],
                                   collate_fn=collate, num_workers=self.spec.get("workers", 0), sampler={"seed": 7})

    def on_train_start(self):
        self.done = self.trainer.global_step

    def on_train_epoch_start(self):
        self.told.begin_epoch()

    def training_step(self, batch, batch_idx):
        if not self.told.epochs:
            self.told.begin_epoch()  # Lightning does not call the hook where it resumes inside an epoch.
        self.told.batch(cases.numbers_in(batch))
        assert self.told.last() == self.batches.step.samples
        return self.model(**batch).loss * self.batches.loss_scale

    def on_before_optimizer_step(self, optimizer):
        if self.gradient is None:
            self.gradient = cases.gradients(self.model)

    def on_train_batch_end(self, outputs, batch, batch_idx):
        if self.trainer.global_step > self.done:
            self.done = self.trainer.global_step
            self.told.end_step()
            if self.done in self.spec.get("save_at", []):
                self.trainer.save_checkpoint(pathlib.Path(self.spec["folder"]) / f"{self.done}.ckpt")

    def configure_optimizers(self):
        self.planned = self.batches.total_steps()
        return torch.optim.AdamW(self.model.parameters(), lr=1e-3)


def collate(numbers):
    return cases.collated(numbers, True)


def train(spec):
    """Trains once; rank 0 returns what came of it."""
    batches = Batches(**spec.get("callback", {}))
    module = Module(spec, batches)
    trainer = lightning.Trainer(**{
        "accelerator": "cpu", "strategy": "ddp", "devices": 2, "max_epochs": spec.get("epochs", 3),
        "accumulate_grad_batches": spec.get("accumulation", 1), "default_root_dir": spec["folder"],
        "callbacks": [batches], "use_distributed_sampler": False, "reload_dataloaders_every_n_epochs": 1,
        "logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False,
        "plugins": [TorchElasticEnvironment()], **spec.get("trainer", {}),
    })  # fmt: skip
    trainer.fit(module, ckpt_path=spec.get("resume"), **({"weights_only": False} if "resume" in spec else {}))
    error = None
    if "resume" not in spec:
        step = cases.of_step(module.told.epochs)
        error = cases.relative(module.gradient, cases.gradient_of(cases.make_model("bert"), step, True))
    return module.told.result(
        gradient_error=error, weights=cases.weights(module.model).tolist(), planned=module.planned,
        steps=trainer.global_step, idle=cases.idle_batches(batches.sampler, len(module.told.epochs)),
        **cases.advised(batches.watcher),
    )  # fmt: skip


if __name__ == "__main__":
    warnings.filterwarnings("ignore", category=UserWarning, module="lightning")
    logging.getLogger("lightning").setLevel(logging.ERROR)
    cases.main(train)
