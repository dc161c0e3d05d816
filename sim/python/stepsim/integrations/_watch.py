"""The recorder or the advisor of a training whose loop belongs to a library."""

import contextlib
import os

import torch.distributed as dist

from ..errors import InputError
from ..torch import Advisor, Recorder


class _Abandoned(Exception):
    """A step that did not end."""


def unwrapped(model):
    """Returns the module under torch.compile's wrapper, as DistributedDataParallel."""
    return getattr(model, "_orig_mod", model)


def options_of(name, value, first=None):
    """Returns the keyword arguments that an option stands for, or None where it is off.

    Args:
        value: None or False: off. True: no arguments. A dict: the arguments. With `first` also a
            text or a path: the argument of that name.
    """
    if value is None or value is False:
        return None
    if isinstance(value, dict):
        return dict(value)
    if first is None and value is True:
        return {}
    if first is not None and isinstance(value, (str, os.PathLike)):
        return {first: value}
    what = "True or a dict of arguments" if first is None else f"a {first} or a dict of arguments"
    raise InputError(f"{name}: expected {what}, not {value!r}")


def padded_size(shape, lengths):
    """Returns (the length that a batch is padded to, the tokens that are computed).

    Args:
        shape: Of its tokens, or None where it has none: (samples, length), or (1, all tokens) where
            samples are packed without padding.
        lengths: The tokens of each sample.
    """
    if shape is None or len(shape) < 2 or not lengths:
        return None, None
    rows, length = int(shape[0]), int(shape[1])
    if rows == len(lengths):
        return length, rows * length
    return max(lengths), rows * length


class Watch:
    """Either a Recorder or an Advisor, called from hooks in place of a `with` block.

    Args:
        recorder: A path without suffix, or a dict of Recorder's arguments; None: no recorder.
        advisor: True, or a dict of Advisor's arguments; None: no advisor.
    Raises InputError: both are wanted, since each takes DDP's one communication hook.
    """

    def __init__(self, recorder=None, advisor=None):
        self._recorder = options_of("recorder", recorder, "path")
        self._advisor = options_of("advisor", advisor)
        if self._recorder is not None and self._advisor is not None:
            raise InputError("recorder and advisor: give one of them; the advisor's folder has a record, too")
        self.advises = self._advisor is not None
        self.own = self._step = None

    def start(self, model, optimizer, loader, policy, lengths):
        """Begins to watch, on all ranks.

        Args:
            model: What runs forward: DistributedDataParallel, torch.compile of it, or a module.
            policy: The name of the batching policy.
            lengths: [sample] The tokens of each sample of the data set, or None.
        """
        known = {"model": unwrapped(model), "optimizer": optimizer, "loader": loader, "policy": policy}
        if self._recorder is not None:
            self.own = Recorder(**{**known, **self._recorder})
        if self._advisor is not None:
            options = {**known, **self._advisor}
            if lengths is not None and "lengths" not in options:
                options["lengths"] = _written(lengths, options.get("out_dir", "advice"))
            self.own = Advisor(**options)

    def begin(self, batches):
        """A step begins: all of its batches are there.

        Args:
            batches: [micro-batch] (lengths of the samples, length padded to, tokens computed).
        """
        self.abandon()
        if self.own is not None:
            self._step = self.own.step()
            self._step.__enter__()
            for batch in batches:
                self.own.batch(*batch)

    def add(self, batch):
        """A batch begins, of the step that runs, else of a new one."""
        if self._step is None:
            self.begin([batch])
        elif self.own is not None:
            self.own.batch(*batch)

    def end(self):
        """The step has ended."""
        step, self._step = self._step, None
        if step is not None:
            step.__exit__(None, None, None)

    def abandon(self):
        """A step that has begun does not count."""
        step, self._step = self._step, None
        if step is not None:
            with contextlib.suppress(_Abandoned):
                step.__exit__(_Abandoned, _Abandoned(), None)

    def forward_done(self):
        if self.own is not None:
            self.own.forward_done()

    def backward_done(self):
        if self.own is not None:
            self.own.backward_done()

    def resume(self):
        """What went before, an evaluation or a checkpoint, is no loading of data."""
        if self.own is not None:
            self.own.resume()

    def close(self):
        """Ends it, on all ranks, and waits for them."""
        self.abandon()
        if self.own is not None:
            self.own.close()
            if dist.is_available() and dist.is_initialized():
                dist.barrier()  # gloo aborts a rank that ends while another one still talks to it.


def _written(lengths, folder):
    """Writes the lengths on rank 0 where the advice goes; returns the file's path, None elsewhere."""
    if dist.is_available() and dist.is_initialized() and dist.get_rank() != 0:
        return None
    with contextlib.suppress(OSError):  # The advisor says what is wrong with the folder.
        os.makedirs(folder, exist_ok=True)
        path = os.path.join(folder, "lengths.txt")
        with open(path, "w", encoding="utf-8") as file:
            file.writelines(f"{int(length)}\n" for length in lengths)
        return path
    return None
