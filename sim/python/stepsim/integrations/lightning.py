"""Batches by any policy, the recorder and the advisor inside Lightning's Trainer."""

import inspect
import math
import warnings

import lightning
import torch
from lightning.pytorch.loops import fit_loop
from torch.utils.data import DataLoader

from ..errors import InputError
from ..torch import BatchSampler
from ._versions import Parts
from ._watch import Watch, padded_size

TESTED = ["2.6"]
_PARTS = Parts("lightning", TESTED, [
    (lightning.Trainer, "estimated_stepping_batches", []),
    (fit_loop, "_FitLoop", []),
    (fit_loop._FitLoop, "setup_data", []),
])


class _Batches:
    """What the loader draws from. Lightning sets the epoch of a batch sampler's `sampler`, also behind
    the beginning of one that was resumed inside: there is none."""

    def __init__(self, sampler):
        self._sampler = sampler

    def __len__(self):
        return len(self._sampler)

    def __iter__(self):
        with warnings.catch_warnings():  # Lightning begins an epoch twice.
            warnings.filterwarnings("ignore", message="epoch .* begins a second time")
            return iter(self._sampler)


class _Loader(DataLoader):
    """A loader of a whole epoch's length, since Lightning goes on counting where it resumes. The
    callback keeps the place: Lightning loads a loader's state after it has read the length."""

    def __init__(self, dataset, sampler, **others):
        self._stepsim = sampler  # Before the first call of __len__.
        super().__init__(dataset, batch_sampler=_Batches(sampler), **others)

    def __len__(self):
        return self._stepsim.steps_of(self._stepsim.epoch)

    def state_dict(self):
        return {}

    def load_state_dict(self, state):
        """Does nothing."""


class Batches(lightning.Callback):
    """Batches a training by a policy; a callback that makes the loader, keeps its place in checkpoints,
    and records or advises.

        batches = Batches(advisor=True)

        class Module(lightning.LightningModule):
            def train_dataloader(self):
                return batches.loader(dataset, lengths, "token_budget", max_tokens=4096, collate_fn=pad)

            def training_step(self, batch, batch_idx):
                return mean_loss(self.model(batch)) * batches.loss_scale

        trainer = lightning.Trainer(strategy="ddp", devices=2, callbacks=[batches],
                                    use_distributed_sampler=False, reload_dataloaders_every_n_epochs=1)

    Args:
        recorder: The path of a run record without suffix, or a dict of Recorder's arguments.
        advisor: True, or a dict of Advisor's arguments.

    Attributes:
        sampler: The stepsim.torch.BatchSampler, once the loader was made.
        step: The Step of the batch that trains.
        loss_scale: What the mean loss of that batch is multiplied by, so that the gradient is that of the
            mean over all samples (or tokens) of a step, of all ranks and accumulated batches.
        advice: The results.Advice when it is ready, on rank 0.

    Raises InputError: lightning lacks a part that this takes hold of, or the Trainer is told to deal the
    batches out again, or to read the length of the first epoch only.
    """

    def __init__(self, recorder=None, advisor=None):
        _PARTS.check()
        self.sampler = self.step = None
        self.loss_scale = 1.0
        self._watch = Watch(recorder, advisor)
        self._trainer = self._loader = self._loaded = self._scales = None
        self._lengths = None
        self._used = self._stepped = 0

    @property
    def advice(self):
        return getattr(self._watch.own, "advice", None)

    @property
    def watcher(self):
        """The Recorder or the Advisor, once the training has begun."""
        return self._watch.own

    def loader(self, dataset, lengths, policy, *, sampler=None, weighting="sample", uneven="idle", **others):
        """Returns the loader of the epoch that comes, for train_dataloader() of a module or data module.

        Args:
            lengths, policy, weighting, uneven: As BatchSampler's.
            sampler: A dict of BatchSampler's further arguments as seed, drop_last and profile.
            others: The policy's parameters; and DataLoader's arguments (collate_fn, num_workers, …).
        """
        if self._trainer is None:
            raise InputError("the loader was asked for before the training: give the callback to the Trainer, and "
                             "return the loader in train_dataloader()")
        if self.sampler is None:
            known = _loader_arguments()
            parameters = {name: value for name, value in others.items() if name not in known}
            self._lengths = lengths
            self.sampler = BatchSampler(
                lengths, policy, rank=self._trainer.global_rank, world_size=self._trainer.world_size,
                weighting=weighting, uneven=uneven, **(sampler or {}), **parameters,
            )  # fmt: skip
            self._loader = _Loader(
                dataset, self.sampler, **{name: value for name, value in others.items() if name in known}
            )
        if self._loaded is not None:
            self.sampler.load_state_dict(self._loaded)
        with warnings.catch_warnings():  # A state of the end of the epoch before.
            warnings.filterwarnings("ignore", message="the loaded state stands at")
            self.sampler.set_epoch(self._trainer.current_epoch)
        self._used = 0
        accumulated = self._trainer.accumulate_grad_batches
        # Lightning divides each loss by their number.
        self._scales = accumulated * self.sampler.accumulated_scales(accumulated)
        return self._loader

    def total_steps(self):
        """Returns the optimizer steps of all epochs, for a schedule in configure_optimizers()."""
        trainer = self._trainer
        if trainer.max_steps > 0 or not trainer.max_epochs or trainer.max_epochs < 0:
            return trainer.max_steps
        _ = trainer.estimated_stepping_batches  # Makes the loader.
        per_step = trainer.accumulate_grad_batches
        return sum(math.ceil(self.sampler.steps_of(epoch) / per_step) for epoch in range(trainer.max_epochs))

    # ---- Lightning's calls ------------------------------------------------------------------

    def setup(self, trainer, pl_module, stage):
        self._trainer = trainer
        if stage != "fit":
            return
        if trainer.reload_dataloaders_every_n_epochs != 1:
            raise InputError("Trainer: epochs have different numbers of batches, of which Lightning reads the first "
                             "one's only; say reload_dataloaders_every_n_epochs=1")
        connector = getattr(trainer, "_accelerator_connector", None)
        if getattr(connector, "use_distributed_sampler", False):
            raise InputError("Trainer: the batches are those of each rank, and Lightning would deal them out again; "
                             "say use_distributed_sampler=False")

    def on_train_start(self, trainer, pl_module):
        if self.sampler is None:
            raise InputError("train_dataloader() does not return the loader of this callback: return "
                             "batches.loader(dataset, lengths, policy, …)")
        if trainer.world_size > 1:
            self.sampler.verify()
        self._stepped = trainer.global_step
        optimizer = trainer.optimizers[0] if trainer.optimizers else None
        self._watch.start(trainer.strategy.model, optimizer, self._loader, self.sampler.policy, self._lengths)

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        self._loaded = None  # Until here Lightning may ask for the loader again, for another epoch.
        self.step = self.sampler.step_at(self._used)
        self.loss_scale = float(self._scales[self._used])
        self._watch.add((self.step.lengths, *padded_size(_shape_of(batch), self.step.lengths)))

    def on_before_backward(self, trainer, pl_module, loss):
        self._watch.forward_done()

    def on_after_backward(self, trainer, pl_module):
        self._watch.backward_done()

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        self._used += 1
        if trainer.global_step != self._stepped:
            self._stepped = trainer.global_step
            self._watch.end()

    def on_train_epoch_start(self, trainer, pl_module):
        self._watch.resume()

    def on_validation_end(self, trainer, pl_module):
        self._watch.resume()

    def on_train_epoch_end(self, trainer, pl_module):
        left = len(self.sampler) - self._used
        if left and trainer.limit_train_batches == 1.0 and not trainer.should_stop and (
                trainer.global_step < trainer.max_steps or trainer.max_steps < 0):
            raise InputError(f"epoch {self.sampler.epoch} has {left} more batches than were trained: something between "
                             "the sampler and the loop takes batches away")

    def on_train_end(self, trainer, pl_module):
        self._watch.close()

    def state_dict(self):
        return {} if self.sampler is None else {"batches": self.sampler.state_dict(steps=self._used)}

    def load_state_dict(self, state_dict):
        self._loaded = state_dict.get("batches")


def _loader_arguments():
    """Returns the names of DataLoader's arguments that the callback does not give itself."""
    return set(inspect.signature(DataLoader).parameters) - {"dataset", "batch_sampler", "sampler", "shuffle", "batch_size", "drop_last"}


def _shape_of(batch):
    """Returns the shape of a batch's tokens: of its input_ids, else of its first tensor."""
    if hasattr(batch, "get") and batch.get("input_ids") is not None:
        return batch.get("input_ids").shape
    values = batch.values() if hasattr(batch, "values") else batch
    first = batch if torch.is_tensor(batch) else next((one for one in values if torch.is_tensor(one)), None)
    return None if first is None else first.shape
