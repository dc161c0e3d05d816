"""What a batch sampler of this package hands out, and how a loop keeps its place in it."""

import collections
import sys
import warnings
from typing import Any, Iterator, List, Tuple

import numpy

from ..errors import InputError

try:
    from torch.utils.data import Sampler
except ImportError:  # Without PyTorch the batches can still be looked at.
    Sampler = object

Piece = collections.namedtuple("Piece", "sample start length")
Piece.__doc__ = """A part of a sample, which a policy that cuts samples hands to the dataset in
place of an id: the tokens start to start + length of the sample.

The dataset's __getitem__ takes it (and __getitems__, where there is one, a list of them):

    def __getitem__(self, piece):
        return self.tokens[piece.sample][piece.start : piece.start + piece.length]
"""

Step = collections.namedtuple(
    "Step", "number epoch loss_scale padded_length useful_tokens samples lengths"
)
Step.__doc__ = """What a sampler knows of one batch of this rank.

number: Of the step in its epoch, from 0. epoch: From 0.
loss_scale: The factor on this rank's mean loss with which the average over the ranks, that DDP
    makes, is the mean over all samples or tokens of the step: see BatchSampler.
padded_length: The tokens that the policy pads every sample of the batch to.
useful_tokens: Of the batch, without padding; 0 where the policy has no batch for this rank in
    the step and one sample is repeated so that the rank takes part.
samples: Ids, or Piece objects, in batch order. lengths: The tokens of each, in the same order.
"""


class RankSteps:
    """The batches of one rank from the first step of a plan to its last.

    Args:
        offsets: [step + 1] Where a batch begins in `samples`.
        samples: [of all batches] Ids.
        starts, lengths: [of all batches] Where each part begins in its sample, and its tokens;
            None: samples are whole.
        whole: [sample] The tokens of each sample of the data set.
        padded_lengths, useful_tokens, loss_scales: [step]
        all_units: [step] What loss scales are shares of: the samples or tokens of all ranks; 0 where
            they are not weighted. None: unknown.
    """

    def __init__(self, offsets, samples, starts, lengths, whole, padded_lengths, useful_tokens,
                 loss_scales, all_units=None):
        self._offsets, self._samples = offsets, samples
        self._starts, self._lengths, self._whole = starts, lengths, whole
        self._padded_lengths, self._useful_tokens = padded_lengths, useful_tokens
        self.loss_scales, self.all_units = loss_scales, all_units
        self._filler = None

    def __len__(self):
        return len(self._offsets) - 1

    def _lengths_of(self, begin, end):
        if self._lengths is None:
            return self._whole[self._samples[begin:end]]
        return self._lengths[begin:end]

    def _range(self, step):
        """Returns (begin, end) of a batch. A rank without a batch in a step repeats its shortest
        sample: collate functions fail on empty lists, and a rank that left a step out would hang
        the others."""
        begin, end = int(self._offsets[step]), int(self._offsets[step + 1])
        if begin < end:
            return begin, end
        if self._filler is None:
            self._filler = int(self._lengths_of(0, len(self._samples)).argmin())
        return self._filler, self._filler + 1

    def batch(self, step):
        """Returns a list of ids, or of Piece objects."""
        begin, end = self._range(step)
        samples = self._samples[begin:end].tolist()
        if self._starts is None:
            return samples
        return list(map(Piece, samples, self._starts[begin:end].tolist(),
                        self._lengths[begin:end].tolist()))

    def visits(self):
        """Returns [visit][1] samples, or [visit][3] sample, start and length, as batch() hands
        them out; without the sample that is repeated where a rank has no batch in a step."""
        rows = []
        for step in range(len(self)):
            if self._offsets[step] < self._offsets[step + 1]:
                rows += self.batch(step)
        return numpy.array(rows, dtype=numpy.int64).reshape(-1, 1 if self._starts is None else 3)

    def step(self, step, number, epoch):
        """Returns the Step; `number` is what it is called."""
        lengths = self._lengths_of(*self._range(step)).tolist()
        is_planned = self._offsets[step] < self._offsets[step + 1]
        padded = int(self._padded_lengths[step]) if is_planned else lengths[0]
        return Step(number, epoch, float(self.loss_scales[step]), padded,
                    int(self._useful_tokens[step]), self.batch(step), lengths)


class _Run:
    """One pass of a loop over the batches."""

    def __init__(self, steps, first, number, epoch):
        self.steps, self.first, self.number, self.epoch = steps, first, number, epoch
        self.handed_out = 0
        self.used = None  # Unknown until a loop goes through steps().

    def __iter__(self):
        for step in range(self.first, len(self.steps)):
            self.handed_out += 1
            yield self.steps.batch(step)

    def step(self, index):
        """Returns the Step of the batch that the loop gets as number `index`."""
        return self.steps.step(self.first + index, self.number + index, self.epoch)


def checked_epoch(epoch):
    """Returns an epoch as a number. Raises InputError: it is none from 0 up to 2^31."""
    if isinstance(epoch, bool) or not hasattr(epoch, "__index__") or not 0 <= epoch < 1 << 31:
        raise InputError(f"epoch: expected a whole number from 0 up to 2^31, not {epoch!r}")
    return epoch.__index__()


class StepSampler(Sampler):
    """A batch sampler whose loop can ask what it is at, and be resumed there.

    A subclass has _steps(), the RankSteps of the epoch, and _before(), the steps of the epoch that
    were done before those began.
    """

    def __init__(self):
        self._epoch = 0
        self._first = 0  # The step of _steps() where the next iteration begins.
        self._run = None  # The last iteration since the epoch was set.

    @property
    def epoch(self) -> int:
        """The epoch that the next iteration goes through."""
        return self._epoch

    @property
    def sampler(self):
        """The sampler itself: Lightning calls set_epoch() of a batch sampler's sampler."""
        return self

    def set_epoch(self, epoch: int) -> None:
        """Says which epoch the next iteration goes through, from 0, as DistributedSampler's does.

        Called with the epoch of a state that was just loaded it keeps the place in it.
        """
        epoch = checked_epoch(epoch)
        if epoch == self._epoch and self._run is None:
            return
        if self._run is None and self._place() > 0:
            warnings.warn(
                f"the loaded state stands at step {self._place()} of epoch {self._epoch}, but the "
                f"loop begins with epoch {epoch}; begin it with sampler.epoch",
                stacklevel=2,
            )
        self._epoch, self._first, self._run = epoch, 0, None
        self._enter()

    def _enter(self):
        """Called when another epoch was set."""

    def _check_process(self):
        """Raises InputError where the sampler was not made for this process."""

    def _place(self):
        return self._before() + self._first

    def __len__(self) -> int:
        """The batches that the next iteration hands out, the same on every rank: those of the
        epoch, or what a loaded state left of them."""
        return len(self._steps()) - self._first

    def __iter__(self) -> Iterator[List[Any]]:
        self._check_process()
        steps = self._steps()
        if self._run is not None and self._run.handed_out > 0:
            warnings.warn(
                f"epoch {self._epoch} begins a second time, with the same batches; call "
                "sampler.set_epoch(epoch) before each epoch",
                stacklevel=2,
            )
        self._run = _Run(steps, self._first, self._place(), self._epoch)
        return iter(self._run)

    @property
    def batch_size(self):
        """There is none, since batches differ in size. accelerate's prepare() asks for it when it is about
        to deal the batches of this rank out over all ranks once more, and gets an InputError that
        says what to do instead: each rank would lose every batch but its own of that deal."""
        asking = sys._getframe(1)
        if asking.f_globals.get("__name__") == "accelerate.data_loader" and (
                (asking.f_locals.get("num_processes") or 1) > 1):
            raise InputError(
                f"a loader with a {type(self).__name__} was given to Accelerator.prepare(), which would deal "
                "the batches of this rank out over the ranks a second time, so that samples are lost: take "
                "stepsim.integrations.accelerate.BatchSampler, which is made for prepare(), or leave "
                "the loader out of it"
            )
        raise AttributeError(f"{type(self).__name__!r} object has no attribute 'batch_size'")

    def step_at(self, index: int) -> Step:
        """Returns the Step of a batch of the iteration that runs, else of the next one.

        Args:
            index: Of the batch, from 0, as a loop that enumerates the loader counts.

        Raises InputError: there are fewer batches.
        """
        run = self._run or _Run(self._steps(), self._first, self._place(), self._epoch)
        count = len(run.steps) - run.first
        if isinstance(index, bool) or not hasattr(index, "__index__") or not 0 <= index < count:
            raise InputError(f"index: expected a whole number below {count}, the batches, not {index!r}")
        return run.step(index.__index__())

    @property
    def loss_scales(self) -> numpy.ndarray:
        """[step] The factor on this rank's mean loss in each batch of len(self)."""
        return self._steps().loss_scales[self._first :]

    def steps(self, loader) -> Iterator[Tuple[Any, Step]]:
        """Iterates over a DataLoader that has this batch sampler: yields (batch, Step).

        The sampler then knows how far the loop is, which it does not by itself: a loader with
        workers draws batches ahead. A step counts as done once its batch is in the loop's hands,
        so call state_dict() behind optimizer.step().
        """
        self._check_loader(loader)
        before, run = self._run, None
        for batch in loader:
            if run is None:
                run = self._run
                if run is before:
                    raise InputError("this loader does not draw from this batch sampler")
                run.used = 0
            if run.used >= run.handed_out:
                raise InputError(
                    f"the loader gave batch {run.used + 1}, but only {run.handed_out} were drawn"
                )
            run.used += 1
            yield batch, run.step(run.used - 1)

    def _check_loader(self, loader):
        """Raises InputError where a loader's batches are not those that this sampler hands out."""
        if getattr(loader, "batch_sampler", self) is not self:
            raise InputError(
                "this loader draws from another batch sampler "
                f"({type(loader.batch_sampler).__name__}); a library that wraps loaders may have "
                "dealt the batches out a second time, see stepsim/integrations/README.md"
            )

    def _done(self, steps):
        """The steps of _steps() that are done. `steps`: as state_dict() takes it."""
        run = self._run
        if steps is not None:
            if isinstance(steps, bool) or not hasattr(steps, "__index__"):
                raise InputError(f"steps: expected a whole number, not {steps!r}")
            left = len(self._steps()) - self._first
            if not 0 <= steps <= left:
                raise InputError(f"steps: {steps}, but the epoch had {left} left when it began")
            return self._first + steps.__index__()
        if run is None:
            return self._first
        if run.used is not None:
            return run.first + run.used
        if run.handed_out == 0:
            return run.first
        raise InputError(
            f"{run.handed_out} batches were drawn, but a DataLoader with workers draws ahead, so "
            "nobody knows how many the loop has used: write `for batch, step in "
            "sampler.steps(loader)`, or say it with state_dict(steps=k)"
        )
