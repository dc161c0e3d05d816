"""A batch sampler for loaders that go through Accelerator.prepare()."""

import sys

import accelerate.data_loader

from ..errors import InputError
from ..torch import BatchSampler as _BatchSampler
from ._versions import Parts

TESTED = ["1.15"]
_PARTS = Parts("accelerate", TESTED, [
    (accelerate.data_loader, "BatchSamplerShard", ["batch_sampler", "num_processes", "process_index", "split_batches"]),
    (accelerate.data_loader, "DataLoaderShard", []),
])
_CURE = ("; prepare() the loader without split_batches and dispatch_batches, once, or take "
         "stepsim.torch.BatchSampler and leave the loader out of it")


class BatchSampler(_BatchSampler):
    """stepsim.torch.BatchSampler for a loader that Accelerator.prepare() deals out over the ranks: it
    hands out each batch of this rank once for every rank, one of which is this rank's.

        sampler = BatchSampler(lengths, "token_budget", max_tokens=4096, weighting="sample")
        loader = DataLoader(dataset, batch_sampler=sampler, collate_fn=pad)
        model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
        for epoch in range(sampler.epoch, epochs):
            sampler.set_epoch(epoch)
            for batch, step in sampler.steps(loader):
                accelerator.backward(mean_loss(model(batch)) * step.loss_scale)
                ...

    accelerator.register_for_checkpointing(sampler) makes save_state() and load_state() keep the place
    in the epoch. len() counts what it hands out; len(loader) is the batches of a rank.

    With Accelerator(gradient_accumulation_steps=…) give the same as accumulation=: loss_scale then is of
    all batches of an optimizer step.

    Raises InputError: Accelerator lacks a part that this takes hold of, or deals batches out in a way
    that this is not made for.
    """

    drop_last = False
    accumulation = 1

    @property
    def batch_size(self):
        """None: prepare() asks, and learns that batches are of any size."""
        if sys._getframe(1).f_locals.get("split_batches"):
            raise InputError("split_batches=True cuts every batch into one for each rank" + _CURE)
        return None

    def __init__(self, lengths, policy, *, accumulation=1, **others):
        self.accumulation = accumulation
        super().__init__(lengths, policy, **others)

    def _begin(self, source, rank, world_size):
        _PARTS.check()
        super()._begin(source, rank, world_size)

    def __len__(self):
        return super().__len__() * self.world_size

    def __iter__(self):
        for batch in super().__iter__():
            for _ in range(self.world_size):
                yield batch

    def steps(self, loader):
        """Iterates over the prepared loader: yields (batch, Step), as stepsim.torch.BatchSampler does."""
        self._check_loader(loader)
        if hasattr(loader, "set_epoch"):
            loader.set_epoch(self._epoch)  # It counts epochs itself, from 0, and sets them.
        for index, (batch, step) in enumerate(super().steps(loader)):
            if index == 0 and self.accumulation != 1:  # Accelerator.backward() divides by the number.
                scales = self.accumulation * self.accumulated_scales(self.accumulation)
            if self.accumulation != 1:
                step = step._replace(loss_scale=float(scales[index]))
            yield batch, step

    def _check_loader(self, loader):
        if isinstance(loader, accelerate.data_loader.DataLoaderDispatcher):
            raise InputError("dispatch_batches=True has rank 0 load all batches and cut them up" + _CURE)
        shard = getattr(loader, "batch_sampler", None)
        ranks = 1
        if isinstance(shard, accelerate.data_loader.BatchSamplerShard):
            ranks, shard = shard.num_processes, shard.batch_sampler
        if shard is not self:
            raise InputError(f"this loader draws from another batch sampler ({type(shard).__name__})" + _CURE)
        if ranks != self.world_size:
            raise InputError(f"this loader deals its batches out over {ranks} ranks, but the sampler is for "
                             f"{self.world_size}: " + (
                                 "give the loader to prepare()" if ranks == 1 else "make it after Accelerator()"))
