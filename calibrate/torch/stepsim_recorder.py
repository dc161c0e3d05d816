#!/usr/bin/env python3
"""Records the steps of a PyTorch training loop for Stepsim. Copy this file; it needs only torch.

    recorder = Recorder("run", model=ddp, optimizer=optimizer)   # writes run.rank0.jsonl, …
    for batch in loader:
        with recorder.step(lengths=batch["lengths"]):      # around the whole step
            loss = model(batch)
            recorder.backward(loss)                        # in place of loss.backward()
            optimizer.step()
    recorder.close()                                       # on all ranks: rank 0 writes run.jsonl

    python3 stepsim_recorder.py merge run.rank*.jsonl --out run.jsonl     # the same by hand

No error in here reaches the training: the recorder prints the first error and stops recording.
"""

import argparse
import atexit
import collections
import contextlib
import functools
import io
import json
import math
import os
import platform
import sys
import threading
import time

try:
    import torch
    import torch.distributed as dist
except ImportError:  # Merging needs no torch.
    torch = dist = None

FORMAT = "stepsim-run-record/1"


def start_ranks(backend):
    """init_process_group() with the ranks of the environment. A PyTorch that was built without libuv,
    as Debian 13's, asks its store for libuv all the same, unless USE_LIBUV is 0."""
    try:
        dist.init_process_group(backend)
    except RuntimeError as error:
        if "libuv" not in str(error):
            raise
        os.environ["USE_LIBUV"] = "0"
        dist.init_process_group(backend)


def end_ranks():
    """destroy_process_group(), some time behind the last collective. A thread of gloo lets go of that one's tensor,
    for which it wants Python's lock, and PyTorch 2.6 holds the lock while it waits for the thread."""
    time.sleep(0.2)
    dist.destroy_process_group()


def _say(message):
    with contextlib.suppress(Exception):
        print(f"stepsim_recorder: {message}", file=sys.stderr, flush=True)


def _harmless(method):
    """Wraps a method: its first error is printed and ends the recording; it then returns None."""

    @functools.wraps(method)
    def guarded(self, *args, **kwargs):
        if not self.recording:
            return None
        try:
            return method(self, *args, **kwargs)
        except Exception as error:  # pylint: disable=broad-except
            self.recording = False
            self.error = f"{type(error).__name__}: {error}"
            _say(f"no further steps are recorded: {self.error}")
            return None

    return guarded


class _Thread(threading.local):
    """Which thread runs: an object of its own for each, since numbers of threads are used again."""

    def __init__(self):
        super().__init__()
        self.own = object()


class _HostClock:
    """A mark is CLOCK_MONOTONIC in seconds, which all processes of a host share, the thread's
    processor time in seconds, and which thread that is."""

    done = wait = staticmethod(lambda _mark: True)

    def __init__(self):
        self._thread = _Thread()

    def now(self):
        return time.perf_counter(), time.thread_time(), self._thread.own

    def milliseconds(self, begin, end):
        return 1e3 * (end[0] - begin[0])

    def cpu_milliseconds(self, begin, end):
        return round(1e3 * (end[1] - begin[1]), 5)

    def of_one_thread(self, marks):
        """Whether all marks are of one thread: the processor times of two have no difference."""
        return len({id(mark[2]) for mark in marks}) == 1

    def start_ms(self, mark):
        return 1e3 * mark[0]


class _CudaClock:
    """A mark is a CUDA event in the current stream and the host's time when it was recorded."""

    def __init__(self):
        torch.cuda.synchronize()  # Once, before the first step, to tie the two clocks.
        self._anchor = self.now()
        self._anchor_ms = 1e3 * self._anchor[1]

    def now(self):
        event = torch.cuda.Event(enable_timing=True)
        host = time.perf_counter()
        event.record()
        return event, host

    def done(self, mark):
        return mark[0].query()

    def wait(self, mark):
        mark[0].synchronize()

    def milliseconds(self, begin, end):
        return begin[0].elapsed_time(end[0])

    def host_milliseconds(self, begin, end):
        return round(1e3 * (end[1] - begin[1]), 5)

    def lag_milliseconds(self, device_ms, mark):
        """Returns how far the device is behind the host at a mark, which it reached at that time."""
        return round(max(0.0, device_ms - 1e3 * mark[1]), 5)

    def start_ms(self, mark):
        """Returns the host's time of a mark, later than all before. It is summed from step to step,
        since elapsed_time() is a float, and is never earlier than when the event was recorded."""
        self._anchor_ms += self.milliseconds(self._anchor, mark)
        self._anchor_ms = max(self._anchor_ms, 1e3 * mark[1])
        self._anchor = mark
        return self._anchor_ms


def _line(value):
    return json.dumps(value, separators=(",", ":"), allow_nan=False) + "\n"


def _on_host(value):
    if getattr(value, "is_cuda", False):
        raise ValueError("a value is on the GPU, and recording it would wait for it")
    return value


def _numbers(values):
    """Returns the values of a list or a tensor as integers."""
    values = _on_host(values)
    values = values.tolist() if hasattr(values, "tolist") else values
    return [int(value) for value in values]


class _Step:
    """A step that is running. Its marks come from the clock."""

    def __init__(self, repeat, number, start, entered):
        self.repeat, self.number = repeat, number
        self.start, self.entered, self.end = start, entered, None  # start: end of the step before
        self.passes = []  # [begin, end] of each backward
        self.buckets = []  # [bytes, launch, end, its pass], in the order of the launches
        self.gathers = []  # [unit, begin, end, its pass], in the order of the forward
        self.lengths = []
        self.batches = []  # (samples, max_length) of each micro-batch
        self.max_length = self.padded_tokens = 0
        self.peak_memory = self.loss = None
        self.graphs = _compiled_graphs()  # At its begin, later those that it compiled.

    def add_batch(self, lengths, max_length, padded_tokens):
        lengths = _numbers(lengths)
        if max_length is None:
            max_length = max(lengths, default=0)
        if padded_tokens is None:
            padded_tokens = len(lengths) * max_length
        self.batches.append((len(lengths), int(max_length)))
        self.lengths += lengths
        self.max_length = max(self.max_length, int(max_length))
        self.padded_tokens += int(padded_tokens)

    def _own_times(self, clock, ends):
        """Returns the columns of the training thread's processor times on a CPU, none where the
        marks are of several threads, or of the host's times beside a device."""
        start, passes, row = self.start, self.passes, {}
        if isinstance(clock, _HostClock):
            if not clock.of_one_thread([start, self.entered, *sum(passes, []), self.end]):
                return row
            row["thread_cpu_ms"] = clock.cpu_milliseconds(start, self.end)
            name, own = "cpu", clock.cpu_milliseconds
        else:
            name, own = "host", clock.host_milliseconds
        row[f"data_{name}_ms"] = own(start, self.entered)
        row[f"forward_{name}_ms"] = sum(own(at, begin) for at, (begin, _) in zip(ends, passes))
        row[f"backward_{name}_ms"] = sum(own(begin, end) for begin, end in passes)
        row[f"optimizer_{name}_ms"] = own(ends[-1], self.end)
        return row

    def row(self, clock, rank):
        """Returns the line for the file; the clock must be done with the mark `end`."""

        def between(begin, end):
            return round(max(0.0, clock.milliseconds(begin, end)), 5)

        start, on_host = self.start, isinstance(clock, _HostClock)
        row = {
            **{"repeat": self.repeat, "step": self.number, "rank": rank},
            **{"samples": len(self.lengths), "max_length": self.max_length},
            **{"useful_tokens": sum(self.lengths), "padded_tokens": self.padded_tokens},
            "start_ms": round(clock.start_ms(start), 5),
            "data_ms": between(start, self.entered),
        }
        ends = [self.entered] + [end for _, end in self.passes]
        backward = sum(between(begin, end) for begin, end in self.passes)
        # The last bucket of a backward is launched when its last gradient is there.
        last_launches = {number: launch for _, launch, _, number in self.buckets}
        wait = sum(between(launch, ends[1 + number]) for number, launch in last_launches.items())
        row["forward_ms"] = sum(between(at, begin) for at, (begin, _) in zip(ends, self.passes))
        row["backward_ms"] = max(0.0, backward - wait)
        if self.buckets:
            row["wait_ms"] = wait
        row["optimizer_ms"] = between(ends[-1], self.end)
        row["step_ms"] = between(start, self.end)
        row.update(self._own_times(clock, ends))
        if not on_host:
            row["lag_ms"] = clock.lag_milliseconds(row["start_ms"] + row["step_ms"], self.end)
        if self.peak_memory is not None:
            row["peak_memory_bytes"] = self.peak_memory
        if self.graphs > 0:
            row["compiled_graphs"] = self.graphs
        if self.loss is not None:
            row["loss"] = self.loss if math.isfinite(self.loss) else None
        if len(self.batches) > 1:
            row["micro_batches"] = len(self.batches)
            row["micro_batch_samples"] = [samples for samples, _ in self.batches]
            row["micro_batch_max_lengths"] = [length for _, length in self.batches]
        row["lengths"] = self.lengths
        row["buckets"] = [
            {"bytes": size, "launch_ms": between(start, launch), "end_ms": between(start, end)}
            for size, launch, end, _ in self.buckets
            if end is not None
        ]
        gathers = [one for one in self.gathers if one[2] is not None]
        if gathers:
            row["gathers"] = [
                {"unit": unit, "launch_ms": between(start, begin), "end_ms": between(start, end)}
                | ({"cpu_ms": clock.cpu_milliseconds(begin, end)} if on_host else {})
                for unit, begin, end, _ in gathers
            ]
        return row


class Recorder:
    """Writes PATH.rankN.jsonl on rank N: one line a step, as soon as its times are known.

    Args:
        path: The file's path without suffix; its folder must exist. None: the lines stay in
            memory until end() returns them, and close() merges nothing.
        policy: The name of the batching policy, as in the scenario.
        scenario: The name of the scenario, if there is one.
        warmup_steps: How many steps at the beginning readers should leave out of means.
        reset_peak_memory: With CUDA, call reset_peak_memory_stats() before each step, so that
            peak_memory_bytes is the step's own peak; otherwise it is the highest so far.
        model: The module that trains, in DistributedDataParallel or under fully_shard when there are
            several ranks, as it is called: around or inside of that may be torch.compile, Fabric's or
            PEFT's wrappers, which are looked through. Its parameters and DDP's or fully_shard's settings are written, so that the
            record describes the model, and bucket times are recorded as by watch(); of fully_shard's
            units the time from the call of each in a forward to its parameters' being there.
        optimizer: Its kind and settings are written.
        loader: The DataLoader; its batch size, workers and sampler settings are written.
        bucket_times: Calls watch(model), unless DDP keeps gradients as views of the buckets. It
            costs one more pass over each bucket. Give False to call watch() with your own hook.
        notes: More members for the header of the record.
        on_row: Called with each row as it is written.

    Attributes:
        recording: False after end(), close() or an error.
        error: What ended the recording too early, or None.
    """

    def __init__(
        self,
        path,
        policy="",
        scenario="",
        warmup_steps=0,
        reset_peak_memory=False,
        model=None,
        optimizer=None,
        loader=None,
        bucket_times=True,
        notes=None,
        on_row=None,
    ):
        self.recording = True
        self.error = None
        self._path = None if path is None else os.fspath(path)
        self._header = {"scenario": scenario, "policy": policy, "warmup_steps": warmup_steps}
        self._header.update(notes or {})
        self._on_row = on_row or (lambda row: None)
        self._described = (model, optimizer, loader)
        self._sharding = None  # What the header says of fully_shard.
        self._autocast = None  # The dtype of the first forward's autocast.
        self._wrappers = []  # Of the model, from the outermost on, and torch.compile's setting.
        self._reset_peak_memory = reset_peak_memory
        self._file = self._clock = None
        self._rank, self._world_size = 0, 1
        self._repeat = self._next_step = 0
        self._step = self._previous_end = None  # The running step, and when the last one ended.
        self._pending = collections.deque()  # Steps whose times are not known yet.
        self._warned = self._closed = False
        atexit.register(self._finish)
        self._observe(model, bucket_times)

    @_harmless
    def _observe(self, model, bucket_times):
        if model is None:
            return

        def first_forward(_module, _inputs):
            handle.remove()
            self._autocast = _autocast_dtype()

        if not _compiles_hooks(model):
            handle = model.register_forward_pre_hook(first_forward)
        called = model
        model, self._wrappers = _unwrapped(model)
        _, optimizer, loader = self._described
        self._described = (model, optimizer, loader)
        # Told now, while the parameters are sharded: between the passes those of the root are not.
        units = _fsdp_units(model)
        if units:
            self._sharding = _described_sharding(model, units)
            self._watch_units(units)
        # The hook rounds differently from DDP when gradients are views of the buckets.
        if bucket_times and _is_ddp(model) and not model.gradient_as_bucket_view:
            self.watch(called)

    def _watch_units(self, units):
        """Marks the begin and the end of what fully_shard does before a unit's forward: its hooks,
        the gather, the copies around it. The first hook is put before its own, the last one behind."""
        for number, (modules, _) in enumerate(units):
            for _, module in modules:

                def begins(_module, _inputs, number=number):
                    self._unit_begins(number)

                def ends(_module, _inputs, number=number):
                    self._unit_ends(number)

                module.register_forward_pre_hook(begins, prepend=True)
                module.register_forward_pre_hook(ends)

    @_harmless
    def _unit_begins(self, unit):
        _refuse_comm_debug_mode()
        step = self._step
        if step is None or (step.passes and step.passes[-1][1] is None):
            return  # An evaluation, or a recomputation in the backward.
        # A list's other modules find their parameters there.
        if all(one[0] != unit or one[3] != len(step.passes) for one in step.gathers):
            step.gathers.append([unit, self._clock.now(), None, len(step.passes)])

    @_harmless
    def _unit_ends(self, unit):
        if self._step is not None and self._step.gathers:
            last = self._step.gathers[-1]
            if last[0] == unit and last[2] is None:
                last[2] = self._clock.now()

    @contextlib.contextmanager
    def step(self, lengths=None, max_length=None, padded_tokens=None):
        """Wraps one optimizer step. A step that ends with an exception is not recorded.

        Args:
            lengths: Tokens of each sample, without padding. With several micro-batches a step leave
                it out and call batch() for each.
            max_length: The length the batch is padded to; by default that of the longest sample.
            padded_tokens: Tokens computed; by default samples x max_length. If packed, the sum.
        """
        self._begin(lengths, max_length, padded_tokens)
        try:
            yield self
        except BaseException:
            self._step = None
            self._previous_end = None
            raise
        self._end()

    @_harmless
    def batch(self, lengths, max_length=None, padded_tokens=None):
        """Adds a micro-batch to the step; its counts and the times of its passes are summed."""
        if self._step is not None:
            self._step.add_batch(lengths, max_length, padded_tokens)

    def backward(self, loss, *args, **kwargs):
        """Calls loss.backward(…) and records its begin and end. A step in which that fails is not
        recorded, also when the caller goes on with it."""
        self.forward_done()
        try:
            loss.backward(*args, **kwargs)
        except BaseException:
            self._step = None
            raise
        self.backward_done()

    @_harmless
    def forward_done(self):
        """Loops that cannot use backward() call this just before the gradients are computed …"""
        if self._step is not None:
            self._step.passes.append([self._clock.now(), None])

    @_harmless
    def backward_done(self):
        """… and this just after."""
        if self._step is not None:
            self._step.passes[-1][1] = self._clock.now()

    @_harmless
    def loss(self, value):
        """Records the step's loss, a number or tensor; a device tensor is copied to the host."""
        if self._step is not None:
            self._step.loss = float(_on_host(value))

    @_harmless
    def resume(self):
        """Call this after an evaluation or a checkpoint, so that it does not count as data time."""
        if self._clock is not None:
            self._previous_end = self._clock.now()

    def next_repeat(self):
        """Call this before running the same batches once more; steps count from 0 again."""
        self._repeat += 1
        self._next_step = 0

    def watch(self, ddp_model, hook=None, state=None):
        """Records when each gradient bucket is launched and when its all-reduce ends.

        Registers a communication hook around DDP's own averaging, or around `hook(state, bucket)`,
        which must then not be registered by the caller. Gradients stay the same bit for bit.
        """
        if hook is None and not self.recording:
            return
        outer, ddp_model = ddp_model, _unwrapped(ddp_model)[0]
        reduce = hook or _average(ddp_model, outer)

        def timed_hook(_, bucket):
            entry = self._launched(bucket)
            future = reduce(state, bucket)

            def ended(done):
                self._ended(entry)
                value = done.value()
                return value[0] if isinstance(value, list) else value

            return future.then(ended)

        try:
            ddp_model.register_comm_hook(None, timed_hook)
        except Exception as error:  # pylint: disable=broad-except
            if hook is not None:
                raise  # Without the caller's hook the training would change.
            _say(f"buckets are not recorded: {error}")

    def end(self):
        """Writes what is pending and ends the recording. Unlike close() it merges nothing and needs
        no other rank. Returns the lines of a recorder without path, as bytes."""
        atexit.unregister(self._finish)
        self._finish()
        return self._file.getvalue() if isinstance(self._file, io.BytesIO) else None

    def close(self, notes=None):
        """Writes what is pending. All ranks must call it: rank 0 then merges their files, with `notes` as
        more members of the header."""
        if self._closed:
            return
        self._closed = True
        complete = self.recording and self._file is not None
        self._finish()
        if self._path is None:
            return
        try:
            states = [complete]
            if _distributed() and dist.get_world_size() > 1:
                states = [None] * dist.get_world_size()
                dist.all_gather_object(states, complete)
            if self._rank == 0 and complete:
                if not all(states):
                    raise ValueError(f"rank {states.index(False)} has no complete file")
                paths = [f"{self._path}.rank{rank}.jsonl" for rank in range(len(states))]
                merge(paths, f"{self._path}.jsonl", notes)
        except Exception as error:  # pylint: disable=broad-except
            _say(f"not merged: {error}")

    @_harmless
    def _begin(self, lengths, max_length, padded_tokens):
        if self._file is None:
            self._open()
        if self._reset_peak_memory and isinstance(self._clock, _CudaClock):
            torch.cuda.reset_peak_memory_stats()
        entered = self._clock.now()
        if self._previous_end is None:
            self._previous_end = entered
        self._step = _Step(self._repeat, self._next_step, self._previous_end, entered)
        self._next_step += 1
        if lengths is not None:
            self._step.add_batch(lengths, max_length, padded_tokens)

    @_harmless
    def _end(self):
        step, self._step = self._step, None
        self._previous_end = self._clock.now()
        if step is None:
            return  # Its backward failed.
        step.end = self._previous_end
        step.graphs = _compiled_graphs() - step.graphs
        if self._header is not None:
            self._write_header()
        if isinstance(self._clock, _CudaClock):
            step.peak_memory = torch.cuda.max_memory_allocated()
        if step.passes and all(end is not None for _, end in step.passes):
            self._pending.append(step)
        elif not self._warned:
            self._warned = True
            lacks = "forward_done() without backward_done()" if step.passes else "no backward()"
            _say(f"step {step.number} called {lacks}: such steps are not recorded")
        while self._pending and self._clock.done(self._pending[0].end):
            self._write_oldest()

    def _open(self):
        on_gpu = torch.cuda.is_available() and torch.cuda.is_initialized()
        self._clock = _CudaClock() if on_gpu else _HostClock()
        if _distributed():
            self._rank, self._world_size = dist.get_rank(), dist.get_world_size()
        else:
            self._rank = int(os.environ.get("RANK", 0))
            self._world_size = int(os.environ.get("WORLD_SIZE", 1))
        header = {"format": FORMAT, **self._header, "world_size": self._world_size}
        header["backend"] = dist.get_backend() if _distributed() else "none"
        header["device"] = torch.cuda.get_device_name() if on_gpu else _processor()
        header["started_at"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        header["versions"] = {
            **{"torch": torch.__version__, "python": platform.python_version()},
            **header.get("versions", {}),
        }
        if on_gpu:
            header["versions"]["cuda"] = torch.version.cuda
        header["cores"] = 0 if on_gpu else _shared_cores(self._world_size)
        header["host"] = platform.node()
        self._header = header
        if self._path is None:
            self._file = io.BytesIO()
        else:
            self._file = open(f"{self._path}.rank{self._rank}.jsonl", "wb", buffering=0)

    def _write_header(self):
        """Writes the first line when the first step has ended, since its forward tells autocast."""
        model, optimizer, loader = self._described
        self._header.update(_description(model, optimizer, loader, self._autocast))
        if self._wrappers:
            self._header["wrappers"] = self._wrappers
            _say("the model was found inside of " + " > ".join(self._wrappers))
        if model is not None and self._world_size > 1 and not (_is_ddp(model) or self._sharding):
            _say(f"model= is a {type(model).__name__} without DistributedDataParallel or fully_shard: "
                 "no gradient buckets are recorded; give what the loop calls")
        if self._sharding is not None:
            self._header["parallel"] = self._sharding
        self._write(self._header)
        self._header = self._described = None

    def _write_oldest(self):
        row = self._pending.popleft().row(self._clock, self._rank)
        self._write(row)
        self._on_row(row)

    def _write(self, value):
        line = _line(value).encode()
        if self._file.write(line) < len(line):
            raise OSError(f"{self._file.name}: the disk is full")

    @_harmless
    def _finish(self):
        """Waits for the steps that still run on the device, and ends the recording."""
        if self._file is not None:
            while self._pending:
                self._clock.wait(self._pending[0].end)
                self._write_oldest()
            if self._path is not None:
                self._file.close()
        self.recording = False

    @_harmless
    def _launched(self, bucket):
        if self._step is None or not self._step.passes or self._step.passes[-1][1] is not None:
            return None  # A rank that has joined, or a backward that is not recorded.
        tensor = bucket.buffer()
        size = tensor.numel() * tensor.element_size()
        entry = [size, self._clock.now(), None, len(self._step.passes) - 1]
        self._step.buckets.append(entry)
        return entry

    @_harmless
    def _ended(self, entry):
        if entry is not None:
            entry[2] = self._clock.now()


def _unwrapped(model):
    """Returns the module that trains, DDP where there is one, and the names of all wrappers of the
    model, the outermost first; none where DDP is the only one."""
    wrappers = []
    parallel = [one for one in model.modules() if _is_ddp(one)]
    if len(parallel) == 1:
        ddp = parallel[0]
        while model is not ddp:  # From wrapper to wrapper.
            wrappers.append(_wrapper_name(model))
            model = next(one for one in model.children() if any(part is ddp for part in one.modules()))
        inner = _within(ddp.module)[1]
        return ddp, wrappers + [type(ddp).__name__] + inner if wrappers or inner else []
    return _within(model)


def _wrapper_name(module):
    """Returns "OptimizedModule", and what torch.compile was told of sizes, where it was."""
    kind = type(module).__name__
    dynamic = getattr(module.__dict__.get("dynamo_ctx"), "_dynamic", None)
    return kind if dynamic is None else f"{kind}(dynamic={dynamic})"


def _within(module):
    """Returns the module without torch.compile's wrapper, and the name of that if there is one."""
    wrappers = []
    # An OptimizedModule has all attributes of what it wraps, but not its submodules.
    while "_orig_mod" in module._modules:
        wrappers.append(_wrapper_name(module))
        module = module._modules["_orig_mod"]
    return module, wrappers


def _plain_name(name):
    """Returns a module's or a parameter's name as it is without torch.compile's wrappers."""
    return name.replace("_orig_mod.", "").removesuffix("._orig_mod")


def _compiles_hooks(model):
    """Whether hooks of the module are compiled with it, as after module.compile()."""
    return getattr(model, "_compiled_call_impl", None) is not None


def _compiled_graphs():
    """Returns how many graphs torch.compile has made of this process's code."""
    counters = getattr(sys.modules.get("torch._dynamo.utils"), "counters", {})
    return counters.get("stats", {}).get("unique_graphs", 0)


def _is_ddp(model):
    return dist is not None and isinstance(model, torch.nn.parallel.DistributedDataParallel)


def _fsdp_units(model):
    """Returns fully_shard's units, the model's own first where it has one: [([(name, module), ...],
    the unit's state)], modules of one call together. The state is None where PyTorch hides it; each
    module then counts as a unit. Empty where fully_shard was not applied or is not known."""
    fsdp = sys.modules.get("torch.distributed.fsdp")  # Loaded by whoever has called fully_shard.
    kind = getattr(fsdp, "FSDPModule", None)  # Public since 2.6.
    if kind is None:
        kind = getattr(sys.modules.get("torch.distributed._composable.fsdp"), "FSDPModule", None)
    if kind is None:
        return []
    units = {}
    for name, module in model.named_modules():
        if isinstance(module, kind):
            state = None
            with contextlib.suppress(Exception):
                state = module._get_fsdp_state()  # pylint: disable=protected-access
            unit, _ = units.setdefault(id(module if state is None else state), ([], state))
            unit.append((_plain_name(name), module))
    return list(units.values())


def _units_text(units):
    """Returns the units below the model as a scenario's parallel.units takes them."""
    calls = [" + ".join(name for name, _ in modules) for modules, _ in units if modules[0][0]]
    # These words have a meaning of their own there.
    calls = [one[:-1] + f"[{one[-1]}]" if one in ("blocks", "ends", "model") else one for one in calls]
    return "; ".join(calls) if calls else "model"


def _unit_settings(state):
    """Returns what a unit's private state says: what it does after its forward (None: as fully_shard
    chooses, True, False, or the ranks of a slice), the types that it was given, whether its
    parameters lie on the host, and its mesh as (replicas, shards). Raises whatever comes of
    another PyTorch."""
    groups = getattr(state, "_fsdp_param_groups", None)
    groups = [state._fsdp_param_group] if groups is None else groups  # Up to 2.11 there is one.
    group = next((one for one in groups if one is not None), None)
    if group is None:
        return None  # A unit without parameters of its own.
    after, mesh = group.post_forward_mesh_info, group.mesh_info
    reshards = after is not None
    if reshards and after is not mesh and after.shard_mesh_size < mesh.shard_mesh_size:
        reshards = after.shard_mesh_size
    elif reshards and getattr(state, "_auto_reshard_after_forward", False):
        reshards = None
    policy = state._mp_policy
    return {
        "reshard_after_forward": reshards,
        "param_dtype": _dtype_name(policy.param_dtype) if policy.param_dtype else "own",
        "reduce_dtype": _dtype_name(policy.reduce_dtype) if policy.reduce_dtype else "own",
        "offload": "CPU" in type(group.offload_policy).__name__,
        "mesh": (getattr(mesh, "replicate_mesh_size", 1), getattr(mesh, "shard_mesh_size", 1)),
    }


def _mesh_of(model):
    """Returns (replicas, shards) of the first sharded parameter, from its public mesh."""
    for parameter in model.parameters():
        mesh, placements = getattr(parameter, "device_mesh", None), getattr(parameter, "placements", ())
        if mesh is not None and placements:
            sizes = [mesh.size(place) for place in range(len(placements))]
            sharded = [one.is_shard() for one in placements]
            return tuple(math.prod(n for n, own in zip(sizes, sharded) if own is wanted)
                         for wanted in (False, True))
    return None


def _reshard_keys(units, settings):
    """Returns the keys of a scenario that say what units do after their forward, or None where no
    keys say it."""
    told = [(modules, own["reshard_after_forward"]) for (modules, _), own in zip(units, settings) if own]
    below = [(modules, kind) for modules, kind in told if modules[0][0]]
    root = next((kind for modules, kind in told if not modules[0][0]), None)
    freed = {kind for _, kind in below if kind is not False}
    kinds = [kind for _, kind in told]
    if any(type(kind) is int for kind in kinds):  # pylint: disable=unidiomatic-typecheck
        return {"reshard_after_forward": kinds[0]} if len(set(kinds)) == 1 else None
    if root is False and below and not freed:
        return {"reshard_after_forward": "false"}
    if not below:
        return {"reshard_after_forward": {None: "default", True: "true", False: "false"}[root]}
    if root in (None, False) and not any(kind is False for _, kind in below):
        return {"reshard_after_forward": "default"}  # After its first step PyTorch's root is a kept one.
    kept = [" + ".join(name for name, _ in modules) for modules, kind in below if kind is False]
    kept += ["root"] if root is False else []
    keys = {"reshard_after_forward": "true" if root in (True, False) else "default"}
    return keys | ({"kept_units": "; ".join(kept)} if kept else {})


def _described_sharding(model, units):
    """Returns the header's "parallel": keys of a scenario's [parallel] table, the modules of each
    unit as "gathers" number them, and what is not told or not simulated."""
    described = {"kind": "fsdp2", "units": _units_text(units)}
    notes, settings = [], []
    if all(modules[0][0] for modules, _ in units):
        notes.append("the model itself was not given to fully_shard: parameters outside of units are "
                     "whole on every rank")
    try:
        settings = [_unit_settings(state) for _, state in units]
        known = [one for one in settings if one]
    except Exception as error:  # pylint: disable=broad-except
        known = []
        notes.append("this PyTorch does not tell reshard_after_forward, the types and the lists of units "
                     f"({type(error).__name__}): its defaults and a unit for each module are assumed")
    mesh = known[0]["mesh"] if known else _mesh_of(model)
    if mesh is not None:
        described["replicas"], described["shards"] = mesh
    if known:
        keys = _reshard_keys(units, settings)
        if keys is None:
            notes.append("units are cut to slices among different numbers of ranks: the default is assumed")
        described.update(keys or {})
        for name in ("param_dtype", "reduce_dtype"):
            described[name] = known[0][name]
            if any(one[name] != known[0][name] for one in known):
                notes.append(f"units differ in {name}: that of the first is assumed for all")
        if any(one["mesh"] != mesh for one in known):
            notes.append("units have different meshes: that of the first is assumed for all")
        described["reshard_by_unit"] = [one and one["reshard_after_forward"] for one in settings]
        described["offload"] = any(one["offload"] for one in known)
        if described["offload"]:
            notes.append("parameters are offloaded to the host, which is not simulated")
    described["unit_modules"] = [[name for name, _ in modules] for modules, _ in units]
    return described | ({"notes": notes} if notes else {})


def _refuse_comm_debug_mode():
    """Raises ValueError under CommDebugMode, which changes the order of fully_shard's hooks."""
    if "torch.distributed.tensor.debug" not in sys.modules:
        return
    modes = sys.modules.get("torch.utils._python_dispatch")
    stack = getattr(modes, "_get_current_dispatch_mode_stack", lambda: ())()
    if any(type(mode).__name__ == "CommDebugMode" for mode in stack):
        raise ValueError("CommDebugMode is on, under which fully_shard's hooks run in another order and "
                         "longer: record the steps without it")


def _autocast_dtype():
    """Returns the short name of the dtype that autocast computes in now, or None."""
    if hasattr(torch, "get_autocast_dtype"):  # From 2.4 on, where the others are deprecated.
        kinds = [kind for kind in ("cuda", "cpu") if torch.is_autocast_enabled(kind)]
        return _dtype_name(torch.get_autocast_dtype(kinds[0])) if kinds else None
    if torch.is_autocast_enabled():
        return _dtype_name(torch.get_autocast_gpu_dtype())
    if getattr(torch, "is_autocast_cpu_enabled", lambda: False)():
        return _dtype_name(torch.get_autocast_cpu_dtype())
    return None


def _dtype_name(dtype):
    """Returns "f32" for torch.float32, "bf16", "i64" and so on."""
    name = str(dtype).replace("torch.", "")
    for long, short in [("bfloat", "bf"), ("float", "f"), ("uint", "u"), ("int", "i")]:
        if name.startswith(long):
            return short + name[len(long) :]
    return name


def _plain(value):
    """Returns a value of settings as JSON can hold it."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    return _plain(value.item()) if getattr(value, "numel", lambda: 0)() == 1 else str(value)


def _described_model(module):
    """Returns names, shapes and dtypes of the parameters in order of registration, which is the
    order that DDP's buckets go by, and the elements of the buffers by dtype; for FLOPs, which
    parameters are only looked up, and what the model's config says."""
    buffers, lookups = collections.Counter(), _looked_up(module)
    for buffer in module.buffers():
        buffers[_dtype_name(buffer.dtype)] += buffer.numel()
    parameters = [
        {"name": _plain_name(name), "shape": list(one.shape), "dtype": _dtype_name(one.dtype)}
        | ({} if one.requires_grad else {"frozen": True})
        | ({"lookup": True} if id(one) in lookups else {})
        for name, one in module.named_parameters()
    ]
    prefix = "base_model.model."
    if hasattr(module, "peft_config") and all(one["name"].startswith(prefix) for one in parameters):
        module = module.get_base_model()
        for one in parameters:
            one["name"] = one["name"].removeprefix(prefix)
    kind = type(module).__name__
    if hasattr(module, "unshard") and hasattr(module, "set_requires_gradient_sync"):
        kind = kind.removeprefix("FSDP")  # fully_shard makes a class of its own.
    return {"name": kind, "parameters": parameters, "buffers": dict(buffers)} | _model_config(module)


def _looked_up(module):
    """Returns the ids of the parameters that embeddings alone have: no product takes them."""
    tables, others = set(), set()
    for one in module.modules():
        is_table = isinstance(one, (torch.nn.Embedding, torch.nn.EmbeddingBag))
        (tables if is_table else others).update(id(own) for own in one.parameters(recurse=False))
    return tables - others


def _model_config(module):
    """Returns the text of a config.json, where the model has a config as those of transformers do, and
    the layers and the width of its attention, where that says so."""
    told, config = {}, getattr(module, "config", None)
    with contextlib.suppress(Exception):  # Any object may be called config.
        text = json.loads(config.to_json_string())
        told["config"] = {name: value for name, value in text.items() if not name.startswith("_")}
    with contextlib.suppress(Exception):
        width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        attention = {"layers": int(config.num_hidden_layers), "width": int(config.num_attention_heads * width)}
        if not getattr(config, "is_encoder_decoder", False):
            told["attention"] = attention
    return told


def _bucket_limits(ddp):
    """Returns the limit of the first bucket in bytes, and the list of all limits where there is one
    (bucket_cap_mb_list). Since PyTorch 2.11 a cap that the caller states limits the first bucket,
    too."""
    limits = list(getattr(ddp, "bucket_bytes_cap_list", None) or []) or None
    config = getattr(ddp, "_bucket_config", None)  # Since 2.12.
    if config is not None:
        return config.first_bucket_bytes_cap, limits
    stated = not getattr(ddp, "bucket_bytes_cap_default", True)
    default = getattr(dist, "_DEFAULT_FIRST_BUCKET_BYTES", 1 << 20)
    return ddp.bucket_bytes_cap if stated else default, limits


def _described_ddp(ddp):
    first, limits = _bucket_limits(ddp)
    return {
        "bucket_cap_bytes": ddp.bucket_bytes_cap,
        "first_bucket_bytes": first,
        "bucket_cap_list_bytes": limits,
        **{
            name: bool(getattr(ddp, name, False))
            for name in (
                "gradient_as_bucket_view",
                "static_graph",
                "find_unused_parameters",
                "broadcast_buffers",
                "forward_sync_buffers",
                "batched_grad_copy",
                "lazy_bucket_allocation",
                "skip_all_reduce_unused_params",
            )
        },
    }


def _described_loader(loader):
    batches, sampler = loader.batch_sampler, loader.sampler
    described = {
        "samples": len(loader.dataset) if hasattr(loader.dataset, "__len__") else None,
        "batch_size": loader.batch_size,
        "drop_last": loader.drop_last,
        "workers": loader.num_workers,
        "prefetch_factor": loader.prefetch_factor if loader.num_workers > 0 else None,
        "batch_sampler": type(batches).__name__ if batches is not None else None,
        "sampler": type(sampler).__name__ if sampler is not None else None,
        "shuffle": getattr(sampler, "shuffle", None),
        "seed": getattr(sampler, "seed", None),
    }
    return {name: _plain(value) for name, value in described.items() if value is not None}


def _description(model, optimizer, loader, autocast):
    """Returns the members of the header that describe what trains."""
    described = {}
    if model is not None:
        described["model"] = _described_model(_within(model.module)[0] if _is_ddp(model) else model)
        if _is_ddp(model):
            described["ddp"] = _described_ddp(model)
        if autocast is not None:
            described["autocast"] = autocast
    if optimizer is not None:
        optimizer = _inner_optimizer(optimizer)
        settings = {name: _plain(value) for name, value in optimizer.defaults.items()}
        described["optimizer"] = {"kind": type(optimizer).__name__, "settings": settings}
    if loader is not None:
        described["loader"] = _described_loader(loader)
    return described


def _inner_optimizer(optimizer):
    """Returns the optimizer of PyTorch that Accelerate's or Lightning's holds."""
    inner = optimizer
    while inner is not None:
        optimizer = inner
        parts = (vars(optimizer).get(name) for name in ("optimizer", "_optimizer"))
        inner = next((one for one in parts if isinstance(one, torch.optim.Optimizer)), None)
    return optimizer


def _distributed():
    return dist is not None and dist.is_available() and dist.is_initialized()


def _average(ddp, called):
    """Returns a hook that does what DDP does without one: gradients times 1 / ranks, then a sum.
    `called` is the module that the loop calls, which may be a wrapper of it.
    Under join(divide_by_initial_world_size=False) it divides by the ranks that still have inputs."""
    group = ddp.process_group
    active = [False]  # Whether this rank has run a forward since its last backward.
    ranks = [dist.get_world_size(group)]

    def forward(_module, _inputs):
        active[0] = True

    def shrinks():
        joins = getattr(getattr(ddp, "_join_config", None), "enable", False)
        return joins and not getattr(ddp, "_divide_by_initial_world_size", True)

    def hook(_, bucket):
        tensor = bucket.buffer()
        if shrinks() and bucket.index() == 0:
            count = torch.full((1,), float(active[0]), device=tensor.device)
            dist.all_reduce(count, group=group)
            ranks[0] = count.item()
        if bucket.is_last():
            active[0] = False
        tensor.mul_(1.0 / ranks[0])
        return dist.all_reduce(tensor, group=group, async_op=True).get_future()

    if not _compiles_hooks(called):  # Which does not go with join().
        called.register_forward_pre_hook(forward)
    return hook


def _shared_cores(world_size):
    """Returns the processor cores that all ranks share; 0 where they are on several hosts, or where
    this one is bound to some of its host's cores. Without LOCAL_WORLD_SIZE only merging tells hosts
    apart."""
    cores = os.cpu_count() or 0
    if int(os.environ.get("LOCAL_WORLD_SIZE", world_size)) != world_size:
        return 0
    is_bound = hasattr(os, "sched_getaffinity") and len(os.sched_getaffinity(0)) < cores
    return 0 if is_bound else cores


def _processor():
    with contextlib.suppress(OSError):
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            for line in lines:
                if line.startswith("model name"):
                    return line.split(":", 1)[1].strip()
    return platform.machine()


def _read(path):
    """Reads the header and rows of one rank's file; a last line that was cut off is dropped."""
    with open(path, encoding="utf-8", errors="replace") as file:
        lines = file.read().split("\n")
    if lines.pop():
        _say(f"{path}:{len(lines) + 1}: the last line is cut off and was left out")
    values = []
    for number, line in enumerate(lines, 1):
        try:
            values.append(json.loads(line))
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{path}:{number}: {error}") from None
    if not values or not isinstance(values[0], dict) or values[0].get("format") != FORMAT:
        raise ValueError(f"{path}:1: expected a header with \"format\": \"{FORMAT}\"")
    return values[0], values[1:]


def _check_output(paths, out):
    if not os.path.exists(out):
        return
    if any(os.path.exists(path) and os.path.samefile(path, out) for path in paths):
        raise ValueError(f"{out}: would overwrite an input; give it a name of its own")
    if not os.stat(out).st_mode & 0o222:
        raise PermissionError(f"{out}: is read-only; give another name, or chmod u+w")


def merge(paths, out, notes=None):
    """Merges the ranks' files: the steps that all ranks finished, by repeat, step and rank, with `notes` as
    more members of the header.

    Raises ValueError: a file is no record, a rank is missing or given twice, no step is complete,
    or `out` is one of the files. Raises PermissionError: `out` is there and read-only.
    """
    _check_output(paths, out)
    files = [_read(path) for path in paths]
    header = files[0][0]
    world_size = header["world_size"]
    rows = {}
    for path, (other, of_rank) in zip(paths, files):
        for member in ("world_size", "policy", "model"):
            if other.get(member) != header.get(member):
                raise ValueError(f"{path}: another run than {paths[0]}: its {member} differs")
        starts = [one["started_at"] for one in (other, header) if "started_at" in one]
        seconds = [time.mktime(time.strptime(start, "%Y-%m-%dT%H:%M:%SZ")) for start in starts]
        if max(seconds, default=0) - min(seconds, default=0) > 3600:
            raise ValueError(f"{path}: another run than {paths[0]}: started at {starts[0]}, that "
                             f"at {starts[1]}")
        for row in of_rank:
            if rows.setdefault((row["repeat"], row["step"], row["rank"]), row) is not row:
                raise ValueError(f"{path}: step {row['step']} of rank {row['rank']} is there twice")
    ranks = collections.Counter(key[:2] for key in rows)
    complete = [key for key in sorted(rows) if ranks[key[:2]] == world_size]
    if not complete:
        raise ValueError(f"no step has all {world_size} ranks; found {len(paths)} files")
    if len(complete) < len(rows):
        _say(f"left out {len(rows) - len(complete)} lines of steps that not all ranks finished")
    if len({other.get("host") for other, _ in files}) > 1:
        header["cores"] = 0  # Those of one host; readers lay the hosts' clocks over each other.
    header.update(notes or {}, repeats=1 + complete[-1][0])
    lines = [_line(value) for value in [header] + [rows[key] for key in complete]]
    temporary = f"{out}.{os.getpid()}.tmp"
    file = open(temporary, "x", encoding="utf-8")  # Never one that is there, nor through a link.
    try:
        with file:
            file.writelines(lines)
        os.replace(temporary, out)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def main():
    parser = argparse.ArgumentParser(description="Makes one run record of the files of all ranks.")
    parser.add_argument("command", choices=["merge"])
    parser.add_argument("files", nargs="+", metavar="FILE")
    parser.add_argument("--out", required=True, metavar="FILE")
    options = parser.parse_args()
    try:
        merge(options.files, options.out)
    except (OSError, ValueError, KeyError, TypeError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
