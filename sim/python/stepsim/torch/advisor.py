"""Says what would make a training faster, from some of its own steps and while it goes on."""

import atexit
import base64
import contextlib
import functools
import json
import os
import pathlib
import sys
import tempfile
import threading
import time
import zlib

import torch
import torch.distributed as dist

from .. import _core
from ..advise import advise
from ..errors import InputError, MachineError
from . import all_reduce
from .meeting import Meeting
from .stepsim_recorder import Recorder, merge

_FEWEST_STEPS = 8
_PATIENCE_S = 30.0  # How long ranks wait for each other.
_POLL_S = 0.05
_MOST_SWEPT_BYTES = 256 << 20

_advisors = 0  # Made so far in this process, the same number on all ranks.


def _say(message):
    with contextlib.suppress(Exception):
        print(f"stepsim advisor: {message}", file=sys.stderr, flush=True)


def _harmless(method):
    """Wraps a method: its first error is printed and no error leaves it; it then returns None."""

    @functools.wraps(method)
    def guarded(self, *args, **kwargs):
        try:
            return method(self, *args, **kwargs)
        except Exception as error:  # pylint: disable=broad-except
            self._fail(f"{type(error).__name__}: {error}")
            return None

    return guarded


class _Stopped(Exception):
    """The training has ended, or waits no longer."""


def _shared_store(number):
    """Returns the key-value store of the process group, with keys of this advisor's own."""
    return dist.PrefixStore(f"stepsim/advisor{number}", dist.distributed_c10d._get_default_store())


class Advisor:
    """Records some dozens of steps, predicts other batching policies and bucket sizes from them,
    and prints which of them would make this training faster. It changes nothing by itself.

        advisor = Advisor(ddp, optimizer, loader)                   # on all ranks
        for batch in loader:
            with advisor.step(lengths=batch["lengths"]):            # around the whole step
                loss = ddp(batch)
                advisor.backward(loss)                              # in place of loss.backward()
                optimizer.step()
        advisor.close()                                             # on all ranks

    After `steps` steps the ranks stop recording, all-reduces of several sizes are measured once,
    and rank 0 makes the advice in a background thread of low priority, outside of Python's lock.
    From then on step() and backward() do nothing of their own.

    No error in here reaches the training: the first one is printed. Errors of the training pass
    through unchanged.

    Args:
        model: The module that trains, in DistributedDataParallel when there are several ranks.
        optimizer, loader: Described in the record; the loader tells the size of the data set.
        steps: How many steps are recorded, at least 8.
        warmup_steps: How many of them, at the beginning, do not count.
        policy: The name of the batching policy that runs, for the report.
        out_dir: A folder on rank 0's host, which is made: run.jsonl, profile.json, scenario.toml,
            advice.txt, advice.json, advice.html.
        lengths: A file with the tokens of each sample of the data set, one a line, or None.
        base: A profile with all-reduce times; they are then not measured.
        price_per_hour: Of all ranks together.
        all_reduce_seconds: How long the training pauses, once, to measure all-reduces; 0: bucket
            sizes that the training does not have cannot be compared then.
        bucket_times: Record each bucket's all-reduce by a communication hook, which DDP cannot give
            up again: one more pass over the gradients stays in each step. False: no hook.
        hook, state: The training's own communication hook, which must then not be registered by
            the caller.
        report: Print the report to standard error when it is ready.
        on_advice: Called with the results.Advice on rank 0, in the training's own thread, by the
            first step() or close() after it is ready.
        on_row: Called with each recorded step, as Recorder's: a StepLog of stepsim_log.

    Attributes:
        advice: On rank 0 a results.Advice when it is ready, else None.
        error: Why there is no advice, or None.
    """

    def __init__(
        self,
        model,
        optimizer=None,
        loader=None,
        steps=48,
        warmup_steps=2,
        policy="",
        out_dir="advice",
        lengths=None,
        base=None,
        price_per_hour=None,
        all_reduce_seconds=5.0,
        bucket_times=True,
        hook=None,
        state=None,
        report=True,
        on_advice=None,
        on_row=None,
    ):
        global _advisors
        _advisors += 1
        self.advice = self.error = None
        self._number = _advisors
        self._is_ddp = isinstance(model, torch.nn.parallel.DistributedDataParallel)
        self._steps_left = max(_FEWEST_STEPS, int(steps))
        self._out_dir = os.path.abspath(out_dir)
        self._request = {
            "out_dir": self._out_dir,
            "lengths": lengths and os.path.abspath(lengths),
            "base": base and os.path.abspath(base),
            "price_per_hour": price_per_hour,
        }
        self._sweep_seconds = 0.0 if base else all_reduce_seconds
        self._report, self._on_advice = report, on_advice
        self._idle = contextlib.nullcontext(self)
        self._model = model
        self._rank, self._world_size, self._store = 0, 1, None
        self._thread = None
        self._undelivered = self._stopped = False
        self._recorder = Recorder(
            None,
            policy=policy,
            warmup_steps=warmup_steps,
            model=model,
            optimizer=optimizer,
            loader=loader,
            bucket_times=bucket_times and hook is None,
            on_row=on_row,
        )
        if hook is not None:
            self._recorder.watch(model, hook=hook, state=state)
        self._meet()

    @_harmless
    def _meet(self):
        if dist.is_available() and dist.is_initialized():
            self._rank, self._world_size = dist.get_rank(), dist.get_world_size()
            if self._world_size > 1:
                self._store = _shared_store(self._number)
        if self._rank == 0:
            os.makedirs(self._out_dir, exist_ok=True)
            if not os.access(self._out_dir, os.W_OK):
                raise PermissionError(f"cannot write to {self._out_dir}")

    def _fail(self, reason):
        if self.error is None and not self._stopped:
            self.error = reason
            _say(f"no advice: {reason}")

    # ---- the training's calls ---------------------------------------------------------------

    def step(self, lengths=None, max_length=None, padded_tokens=None):
        """Wraps one optimizer step; arguments as Recorder.step() takes them. A step that ends with
        an exception is not recorded."""
        if self._recorder is None:
            if self._undelivered:
                self._deliver()
            return self._idle
        return self._recorded_step(lengths, max_length, padded_tokens)

    @contextlib.contextmanager
    def _recorded_step(self, lengths, max_length, padded_tokens):
        self._steps_left -= 1
        with self._recorder.step(lengths, max_length, padded_tokens):
            yield self
        if self._steps_left <= 0:
            self._end_recording(measures=True)

    def backward(self, loss, *args, **kwargs):
        """Calls loss.backward(…)."""
        if self._recorder is None:
            loss.backward(*args, **kwargs)
        else:
            self._recorder.backward(loss, *args, **kwargs)

    def forward_done(self):
        """Loops that cannot use backward() call this just before the gradients are computed …"""
        if self._recorder is not None:
            self._recorder.forward_done()

    def backward_done(self):
        """… and this just after."""
        if self._recorder is not None:
            self._recorder.backward_done()

    def batch(self, lengths, max_length=None, padded_tokens=None):
        """Adds a micro-batch to the step."""
        if self._recorder is not None:
            self._recorder.batch(lengths, max_length, padded_tokens)

    def resume(self):
        """Call this after an evaluation or a checkpoint, so that it does not count as data time."""
        if self._recorder is not None:
            self._recorder.resume()

    def result(self, timeout=0.0):
        """Returns the results.Advice, after waiting for up to `timeout` seconds; None where it is
        not ready, on other ranks than 0 and where there is none."""
        if self._thread is not None and timeout > 0:
            self._thread.join(timeout)
        return self.advice

    def close(self, timeout=60.0):
        """Ends the recording and, on rank 0, waits up to `timeout` seconds for the advice. Called
        before all steps were recorded it makes do with those, without measuring all-reduces."""
        if self._recorder is not None:
            self._end_recording(measures=False)
        self._wait(timeout)
        if self._undelivered:
            self._deliver()

    # ---- from the recording to the advice ---------------------------------------------------

    @_harmless
    def _end_recording(self, measures):
        recorder, self._recorder = self._recorder, None
        lines = recorder.end() or b""
        table = self._all_reduces() if measures else None
        self._model = None
        if self._store is not None:
            told = {"error": recorder.error,
                    "lines": base64.b64encode(zlib.compress(lines)).decode("ascii")}
            self._store.set(f"rank{self._rank}", json.dumps(told))
            self._store.add("told", 1)
        if self._rank == 0 and self.error is None:
            self._thread = threading.Thread(
                target=self._make, args=(lines, recorder.error, table), daemon=True
            )
            self._thread.start()

    def _all_reduces(self):
        """Measures all-reduces by size, on all ranks or on none. Returns the table, or None."""
        if self._store is None or not self._is_ddp or self._sweep_seconds <= 0:
            return None
        data = backend = None
        try:
            backend = dist.get_backend()
            gradients = [one for one in self._model.parameters() if one.requires_grad]
            size = sum(one.numel() * one.element_size() for one in gradients)
            size = max(1 << 20, min(size, _MOST_SWEPT_BYTES))
            data = torch.zeros(size // all_reduce.BYTES, device=gradients[0].device)
        except Exception as error:  # pylint: disable=broad-except
            _say(f"all-reduces are not measured: {type(error).__name__}: {error}")
        try:
            meeting = Meeting(self._store, self._rank, self._world_size, _PATIENCE_S)
            if not meeting.come(willing=data is not None):
                raise RuntimeError("not all ranks take part")
            index = data.device.index if data.is_cuda else None
            return all_reduce.quick_sweep(backend, data, self._sweep_seconds, index)
        except Exception as error:  # pylint: disable=broad-except
            _say(f"all-reduces are not measured: {error}")
            return None

    @_harmless
    def _make(self, lines, error, table):
        """In a thread of rank 0: gathers the ranks' lines and makes the advice."""
        atexit.register(self._stop)
        try:
            with contextlib.suppress(OSError):  # Of this thread and those it starts.
                os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 19)
            self._merge(self._gathered(lines, error))
            self._advise(table)
        finally:
            atexit.unregister(self._stop)

    def _gathered(self, lines, error):
        """Returns [rank] (lines, why they end too early or None)."""
        if self._store is None:
            return [(lines, error)]
        deadline = time.monotonic() + _PATIENCE_S
        while self._store.add("told", 0) < self._world_size and time.monotonic() < deadline:
            if self._stopped:
                break
            time.sleep(_POLL_S)
        if self._store.add("told", 0) < self._world_size:
            raise TimeoutError(f"not all {self._world_size} ranks have told what they recorded")
        told = []
        for rank in range(self._world_size):
            one = json.loads(self._store.get(f"rank{rank}"))
            told.append((zlib.decompress(base64.b64decode(one["lines"])), one["error"]))
            with contextlib.suppress(Exception):  # Not every store can.
                self._store.delete_key(f"rank{rank}")
        return told

    def _merge(self, told):
        """Makes one record of what the ranks told."""
        with tempfile.TemporaryDirectory(prefix="stepsim-advice-") as folder:
            files = []
            for rank, (lines, error) in enumerate(told):
                if lines.count(b"\n") < 2:
                    raise ValueError(f"rank {rank} recorded no step: {error or 'it ran none'}")
                if error is not None:
                    _say(f"rank {rank} stopped recording too early: {error}")
                files.append(os.path.join(folder, f"rank{rank}.jsonl"))
                pathlib.Path(files[-1]).write_bytes(lines)
            merge(files, os.path.join(self._out_dir, "run.jsonl"))

    def _go_on(self, *_):
        """Progress is reported here, so that the advice ends where nobody waits for it."""
        if self._stopped:
            raise _Stopped

    def _advise(self, table):
        """Writes the files of the advice; `table` is the log of the all-reduces, or None."""
        out = pathlib.Path(self._out_dir)
        for name in ("advice.html", "advice.json", "advice.txt"):  # Of a run before.
            (out / name).unlink(missing_ok=True)
        request = dict(self._request)
        if table is not None:
            (out / "all_reduce.log").write_text(table, encoding="utf-8")
            base = os.fspath(out / "all_reduce.json")
            try:
                _core.import_nccl_tests([os.fspath(out / "all_reduce.log")], "", base)
                request["base"] = base
            except InputError as error:  # On a busy machine the pause ended before the large sizes.
                _say(f"other bucket sizes are not compared: {error}")
        self._go_on()
        advice = advise(out / "run.jsonl", progress=self._go_on, **request)
        also = said = ""
        try:
            advice.page(out / "advice.html")
            also = f"; the same as a page: {out / 'advice.html'}"
        except MachineError as error:
            said = f"\nno page: {error}"
        self._go_on()
        _core.write_text(os.fspath(out / "advice.json"), advice.to_json())
        _core.write_text(os.fspath(out / "advice.txt"), advice.report())
        self.advice = advice
        self._undelivered = self._on_advice is not None
        if self._report:
            _say(f"the advice is ready{also}\n\n{advice}{said}")

    def _stop(self):
        """Ends the thread at its next report of progress, and waits for that."""
        self._stopped = True
        self._thread.join(_PATIENCE_S)

    @_harmless
    def _wait(self, timeout):
        if self._thread is None:
            return
        self._thread.join(timeout)
        if self._thread.is_alive():
            self._fail(f"it took more than {timeout:g} s; {self._out_dir} keeps what was recorded")
            self._stop()
        self._thread = None

    @_harmless
    def _deliver(self):
        self._undelivered = False
        self._on_advice(self.advice)
