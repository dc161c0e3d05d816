#!/usr/bin/env python3
"""Times the ops of a model family in your own PyTorch, where they run in training steps, and writes the
samples of which `stepcal fit` makes a profile.

    stepsim plan SCENARIO.toml --out-dir plans
    stepcal grid plans/*.jsonl --out shapes.json
    python3 stepsim_measure.py shapes.json --out samples.jsonl
    python3 -m stepsim.torch.measure shapes.json --out samples.jsonl     # the installed package's
    stepcal fit samples.jsonl --out profile.json

It starts the plans' ranks on this machine, unless torchrun or another launcher has done so. Beside this
file: stepsim_job.py, stepsim_models.py, stepsim_ranks.py and stepsim_recorder.py; they need only torch
and NumPy.

Each shape is trained for a few steps under DistributedDataParallel with one rank, which adds DDP's own
work and copies but no waiting. No two steps in a row have one shape, as in training: the second would find
its memory at hand. Each round times every shape once as a whole, and once op by op: by marks behind each
op in the forward, and by hooks on the op's output, which run just before its backward. The op times are
scaled so that they sum to the step without marks. PyTorch computes a linear layer's two gradients in one
piece, so each gets half. Times on a GPU are between CUDA events in a stream that is held
until the host has put in so many ops: launches are not in them. On a CPU each round then trains steps
under DDP with all ranks, in which the job's own all-reduces are timed; on GPUs the ranks reduce those
behind each step. All-reduces of other sizes follow.
"""

import argparse
import contextlib
import datetime
import json
import os
import platform
import random
import signal
import statistics
import sys
import time

if __package__:  # A module of the package stepsim …
    from . import stepsim_ranks  # First: it says so where there is no PyTorch.
    from . import stepsim_job, stepsim_models
else:  # … or a file by itself, with the others beside it.
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    import stepsim_ranks  # First: it says so where there is no PyTorch.
    import stepsim_job
    import stepsim_models

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

BadInput = stepsim_ranks.BadInput

FORMAT = "stepsim-samples/1"
SHAPES_FORMAT = "stepsim-shapes/1"
FEWEST_ROUNDS = 3
BLOCK = 8  # The most steps in a row; then the ranks agree on whether to go on.
SENTINEL_REPETITIONS = 3
TOGETHER, UNTIMED = 12, 2  # Steps of a round with all ranks' all-reduces in them, and before those.
HOST_STEPS = 6  # Of a round, for what the host of a GPU takes …
MEETINGS = 4  # … and shapes that it has not met.
TELLING = (  # Variables that change what steps take.
    *("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "LD_PRELOAD"),
    *("TORCH_CUDNN_SDPA_DEPRIORITIZED", "PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"),
    *("CUBLAS_WORKSPACE_CONFIG", "CUBLASLT_WORKSPACE_SIZE", "NVIDIA_TF32_OVERRIDE"),
    *("CUDA_LAUNCH_BLOCKING", "CUDA_MODULE_LOADING"),
)
COPY_REPETITIONS = 50
COLLECTIVE_S = 0.15  # Of a round's time, for all-reduces of other sizes than the buckets'.


# ---- the request ------------------------------------------------------------------------------------


def read_request(path):
    """Reads what `stepcal grid` writes for plans that say what they train."""
    request = stepsim_ranks.read_json(path)
    if request.get("format") != SHAPES_FORMAT:
        raise BadInput(f"{path}: format {request.get('format')!r}, expected {SHAPES_FORMAT!r}")
    missing = [key for key in ("plan", "pass", "ops", "shapes", "bucket_bytes") if key not in request]
    if missing:
        raise BadInput(
            f"{path}: does not say what is trained ({', '.join(missing)}): the plans' scenario has no "
            "preset or family of models, or an older stepcal made it. Calibrate your own model by "
            "whole steps: stepsim_calibrate.py, or python3 -m stepsim.torch.calibrate"
        )
    return request


class Step:
    """The ops of a step as the samples file lists them.

    Attributes:
        ops: (name, pass, kind) in execution order.
        kinds: The distinct ops, as dicts; `count` is how often a step runs each.
    """

    def __init__(self, request):
        self.ops = [tuple(one) for one in request["ops"]]
        self.kinds = request["pass"]["ops"]
        self.forward = [
            name
            for name, which, kind in self.ops
            if which == "forward" and self.kinds[kind]["rows"] != "elements" and name != "collate"
        ]
        self.copied = {}  # [op] elements of the gradients that are copied when it is done.
        last = None
        for name, which, kind in self.ops:
            if name == "gradient_copy_in":
                self.copied.setdefault(last, []).append(self.kinds[kind]["n"])
            elif which in ("backward", "wgrad"):
                last = name
        self.copied_out = self.elements("gradient_copy_out")

    def elements(self, op):
        return [self.kinds[kind]["n"] for name, _, kind in self.ops if name == op]

    def check(self, marked):
        """Raises BadInput: the model's marks are not the ops of the request."""
        if list(marked) != self.forward:
            apart = [one for one in zip(self.forward, marked) if one[0] != one[1]]
            raise BadInput(
                "stepsim_models.py runs other ops than stepcal grid lists: they are of different "
                f"versions ({len(marked)} and {len(self.forward)} ops; first difference: {apart[:1]})"
            )

    def by_kind(self, times):
        """Means over the occurrences of each kind. `times`: of (name, pass), and of (name, n) for
        the copies."""
        sums = [0.0] * len(self.kinds)
        for name, which, kind in self.ops:
            if name in ("gradient_copy_in", "gradient_copy_out"):
                which = self.kinds[kind]["n"]
            sums[kind] += times[name, which]
        return [total / kind["count"] for total, kind in zip(sums, self.kinds)]


# ---- clocks -----------------------------------------------------------------------------------------


class HostClock:
    """Marks are seconds."""

    PIECE = 0  # There are none.
    host = 0.0
    TRIES = 1

    @staticmethod
    def start():
        """There is nothing to hold, and a cut is a mark."""

    mark = cut = staticmethod(time.perf_counter)

    @staticmethod
    def seconds(begin, end):
        return end - begin

    @staticmethod
    def finish():
        """Whether the times are of the device alone."""
        return True


class CudaClock:
    """Marks are events of the current stream. A step is put in piece by piece: the stream is held until
    the host has put a piece in, so that its times hold no launches. A piece is short, since the host
    must wait where about a thousand launches are pending.

    Attributes:
        holds: False: nothing is held, so that the host meets a shape as it does in training.
        host: Seconds in which the host put in all pieces since start().
    """

    PIECE = 32  # Ops.
    TRIES = 3  # Of a step whose stream went on too early.
    CYCLES_PER_S = 2.0e9
    FIRST_HOLD_S, LONGEST_HOLD_S = 0.01, 0.05
    MORE_THAN_LAST = 2.5  # A hold over the host's time of the same piece.

    def __init__(self):
        self.holds = True
        self.hold_s = {}  # [number of the piece]
        self.pieces, self.host, self.is_sound = [], 0.0, True

    def start(self):
        self.pieces, self.host, self.is_sound = [], 0.0, True
        self.open()

    def open(self):
        torch.cuda.synchronize()
        if self.holds:
            hold = self.hold_s.get(len(self.pieces), self.FIRST_HOLD_S)
            torch.cuda._sleep(int(hold * self.CYCLES_PER_S))  # pylint: disable=protected-access
        self.begun = time.perf_counter()
        self.pieces.append([self.event(), None])

    def close(self):
        number = len(self.pieces) - 1
        begin, _ = self.pieces[-1]
        self.pieces[-1][1] = self.event()
        host = time.perf_counter() - self.begun
        was_held = not begin.query()
        hold = self.hold_s.get(number, self.FIRST_HOLD_S)
        # A piece that outlasts the longest hold is taken as it ran: so it does in training.
        self.is_sound &= was_held or hold >= self.LONGEST_HOLD_S
        wanted = host * self.MORE_THAN_LAST * (1 if was_held else 2)
        self.hold_s[number] = min(max(wanted, 0.8 * hold), self.LONGEST_HOLD_S)
        self.host += host

    def cut(self):
        """Ends a piece and begins the next: a mark between two ops."""
        self.close()
        end = len(self.pieces) - 1, self.pieces[-1][1]
        self.open()
        return end, (len(self.pieces) - 1, self.pieces[-1][0])

    def mark(self):
        """Of a mark, the event that ends what is before it, and the one that begins what is behind."""
        at = len(self.pieces) - 1, self.event()
        return at, at

    @staticmethod
    def event():
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def seconds(self, begin, end):
        """Without what lies between pieces. Only behind finish()."""
        (first, since), (last, until) = begin[1], end[0]
        if first == last:
            return since.elapsed_time(until) / 1e3
        pieces = [(since, self.pieces[first][1]), *self.pieces[first + 1 : last]]
        pieces.append((self.pieces[last][0], until))
        return sum(one.elapsed_time(other) for one, other in pieces) / 1e3

    def finish(self):
        """False where the stream went on before the host had put a piece in."""
        self.close()
        torch.cuda.synchronize()
        return self.is_sound


# ---- one step ---------------------------------------------------------------------------------------


class Marks:
    """Takes the ends of ops in the forward and the beginnings of their backward."""

    def __init__(self, clock):
        self.clock = clock
        self.forward, self.backward = [], []  # (name, mark)
        self.begun = set()

    def __call__(self, name, *tensors):
        cuts = is_cut(self.clock, len(self.forward))

        def begins(_gradient):
            if name not in self.begun:  # An op with two outputs begins with the first gradient.
                self.begun.add(name)
                self.backward.append((name, self.clock.cut() if cuts else self.clock.mark()))

        for tensor in tensors:
            tensor.register_hook(begins)
        self.forward.append((name, self.clock.cut() if cuts else self.clock.mark()))


class Cuts:
    """Cuts a step into the pieces that Marks cuts it into, and takes no times."""

    def __init__(self, clock):
        self.clock, self.ops = clock, 0

    def __call__(self, _name, *tensors):
        if is_cut(self.clock, self.ops):
            tensors[0].register_hook(self.cut)
            self.clock.cut()
        self.ops += 1

    def cut(self, _gradient):
        self.clock.cut()


def is_cut(clock, ops):
    """Whether a piece ends behind so many ops."""
    return clock.PIECE > 0 and ops % clock.PIECE == clock.PIECE - 1


class Trainer:
    """The model under DDP with one rank, and its optimizer."""

    def __init__(self, request, ranks):
        self.config, self.ranks = request["plan"]["model"], ranks
        self.device = ranks.device
        self.clock = CudaClock() if self.device.type == "cuda" else HostClock()
        self.module = stepsim_models.make_model(self.config, self.device).train()
        shapes = [list(one.shape) for one in self.module.parameters()]
        if shapes != [shape for _, shape in request["parameters"]]:
            raise BadInput("stepsim_models.py has other parameters than stepcal grid lists")
        self.optimizer = stepsim_models.make_optimizer(
            request["optimizer"], self.module.parameters()
        )
        self.set_to_none = request["set_to_none"]
        self.model = self.module
        self.host = None  # Seconds in which a GPU's host put in forward, backward and optimizer.
        if ranks.distributed:
            self.alone = [dist.new_group([rank]) for rank in range(ranks.count)][ranks.rank]
            limits = {"bucket_limits": request["bucket_limits"]} if "bucket_limits" in request else {}
            self.arguments = stepsim_job.ddp_arguments(limits)
            if self.device.type == "cuda":
                self.arguments["device_ids"] = [self.device.index]
            self.wrap()

    def wrap(self, reduced=None):
        """Trains under DDP alone, or with all ranks, whose all-reduces are then appended to `reduced`:
        [bytes, launch, end] of each."""
        self.model = self.module  # The old reducer goes, and its hooks with it.
        if reduced is None:
            self.model = torch.nn.parallel.DistributedDataParallel(
                self.module, process_group=self.alone, **self.arguments
            )
            return
        self.model = torch.nn.parallel.DistributedDataParallel(self.module, **self.arguments)

        def reduce(_state, bucket):
            gradients = bucket.buffer()
            gradients.mul_(1.0 / self.ranks.count)  # As DDP does.
            times = [gradients.numel() * gradients.element_size(), time.perf_counter(), None]
            reduced.append(times)

            def ended(future):
                times[2] = time.perf_counter()
                return future.value()[0]

            return dist.all_reduce(gradients, async_op=True).get_future().then(ended)

        self.model.register_comm_hook(None, reduce)

    def step(self, lengths, width, marks=None, clock=None):
        """Trains one step. Returns its parts in seconds by `clock` (this trainer's), or None where the
        times hold launches, and fills in `marks`."""
        clock = clock or self.clock
        begun = time.perf_counter()
        batch = stepsim_models.make_batch(self.config, lengths, width, self.device)
        collate = time.perf_counter() - begun
        is_whole = marks is None
        if is_whole and clock.PIECE > 0:
            marks = Cuts(clock)
        self.module.mark = marks or stepsim_models.unmarked
        clock.start()
        at = [clock.mark()]
        self.optimizer.zero_grad(set_to_none=self.set_to_none)
        at.append(clock.mark())
        with stepsim_models.autocast(self.config, self.device):
            loss = self.model(*batch)
        at.append(clock.cut())
        host = [clock.host]
        loss.backward()
        at.append(clock.cut())
        host.append(clock.host)
        self.optimizer.step()
        at.append(clock.mark())
        is_sound = clock.finish()
        self.module.mark = stepsim_models.unmarked
        self.host = host[0], host[1] - host[0], clock.host - host[1]
        if not is_whole:
            marks.ends = at
        if not is_sound:
            return None
        parts = [clock.seconds(*pair) for pair in zip(at, at[1:])]
        return dict(zip(("zero", "forward", "backward", "optimizer"), parts), collate=collate)

    def release(self):
        self.optimizer.zero_grad(set_to_none=True)
        if self.device.type == "cuda":
            torch.cuda.empty_cache()


def copy_times(step, dtype, device, clock):
    """Seconds of each gradient's copy, by op and elements: into the bucket with DDP's division, and
    back."""
    times = {}

    def timed(run):
        clock.start()
        marks = [clock.mark()]
        for _ in range(COPY_REPETITIONS):
            run()
            marks.append(clock.mark())
        clock.finish()
        return statistics.median(clock.seconds(*pair) for pair in zip(marks, marks[1:]))

    for op in ("gradient_copy_in", "gradient_copy_out"):
        for count in set(step.elements(op)):
            source, target = (torch.ones(count, dtype=dtype, device=device) for _ in range(2))
            if op == "gradient_copy_in":
                times[op, count] = timed(lambda: torch.mul(source, 0.5, out=target))
            else:
                times[op, count] = timed(lambda: target.copy_(source))
    if step.elements("zero_gradient"):
        (count,) = step.elements("zero_gradient")
        target = torch.ones(count, dtype=dtype, device=device)
        times["zero_gradient"] = timed(target.zero_)
    return times


def op_times(step, whole, marks, copies, clock, set_to_none):
    """Splits a step by the marks of the step beside it. Returns seconds by (name, pass), and by
    (name, elements) of the copies.

    Args:
        whole: The parts of the step without marks, to which the ops sum.
        marks: Of the step beside it.
        copies: copy_times(); they are parts of the backward.
    """
    seconds = clock.seconds
    begin, end = marks.ends[1], marks.ends[2]
    forward, last = {}, begin
    for name, mark in marks.forward:
        forward[name] = seconds(last, mark)
        last = mark
    forward[name] += seconds(last, end)  # What DDP does behind the model.
    backward = {}
    begins = [*marks.backward, (None, marks.ends[3])]
    for (name, mark), (_, after) in zip(begins, begins[1:]):
        backward[name] = seconds(mark, after)
    backward[begins[0][0]] += seconds(end, begins[0][1])
    last = begins[-2][0]
    for times, part in ((forward, "forward"), (backward, "backward")):
        scale = whole[part] / sum(times.values())
        for name in times:
            times[name] *= scale
    found = {
        ("collate", "forward"): whole["collate"],
        ("zero_gradient", "forward"): copies["zero_gradient"] if set_to_none else whole["zero"],
        ("optimizer", "forward"): whole["optimizer"],
    }
    inside = {name: [("gradient_copy_in", one) for one in step.copied.get(name, [])] for name in backward}
    inside[last] = inside[last] + [("gradient_copy_out", one) for one in step.copied_out]
    sums = {}
    for name, total in backward.items():
        moved = sum(copies[one] for one in inside[name])
        share = min(1.0, 0.5 * total / moved) if moved > 0 else 1.0  # An op is no less than half.
        for one in inside[name]:
            sums.setdefault(one, []).append(share * copies[one])
        backward[name] = total - share * moved
    found.update({one: statistics.fmean(times) for one, times in sums.items()})
    for name, which, _ in step.ops:
        if which == "forward" and name in forward:
            found[name, which] = forward[name]
        elif which == "backward":
            found[name, which] = backward[name]
        elif which in ("dgrad", "wgrad"):
            found[name, which] = backward[name] / 2
    return found


# ---- the samples file -------------------------------------------------------------------------------


class Samples:
    """The samples file on rank 0: a line a measurement, appended and flushed. A file that is there
    goes on, if it is of the same request on the same machine."""

    def __init__(self, path, header):
        self.path, self.rounds, self.totals = path, 0, {}
        kept = b""
        with contextlib.suppress(FileNotFoundError), open(path, "rb") as file:
            kept = file.read()
        whole = kept[: kept.rfind(b"\n") + 1]
        if whole:
            self.resume(whole, header)
        self.file = open(path, "r+b" if whole else "wb")
        self.file.truncate(len(whole))
        self.file.seek(len(whole))
        if not whole:
            self.write([header])

    def resume(self, whole, header):
        """Takes in what is there. Raises BadInput."""
        try:
            lines = [json.loads(line) for line in whole.decode().splitlines()]
            kept = lines[0]
            if kept.get("format") != FORMAT or "plan" not in kept:
                raise ValueError(f"no samples file (format {kept.get('format')!r})")
        except (ValueError, AttributeError) as error:
            raise BadInput(f"{self.path}: {error}; choose another --out, or remove it") from error
        told = {"plan": "shapes, model or ranks", "versions": "PyTorch, device or threads"}
        apart = [text for key, text in told.items() if kept.get(key) != header[key]]
        if apart:
            old, new = kept.get("versions", {}).get("torch"), header["versions"]["torch"]
            more = f": PyTorch {old} there, {new} here" if old != new else ""
            raise BadInput(
                f"{self.path} holds measurements of another request ({'; '.join(apart)}{more}); choose "
                "another --out, or remove it"
            )
        counts = [1]
        for line in lines[1:]:
            if line["kind"] == "pass":
                counts = [op["count"] for op in line["ops"]]
            elif line["kind"] == "step":
                self.add(line, counts)
            elif line["kind"] == "pass_end":
                self.rounds = line["pass"] + 1

    def add(self, line, counts):
        for times in line["op_us"]:
            total = sum(count * one for count, one in zip(counts, times))
            self.totals.setdefault((line["samples"], line["max_length"]), []).append(total)

    def write(self, lines):
        text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
        self.file.write(text.encode())
        self.file.flush()

    def error(self, shapes):
        """The relative standard error of the median step that nine tenths of the shapes keep; 1 where
        one has no three repeats."""
        errors = []
        for lengths, width in shapes:
            times = self.totals.get((len(lengths), width), [])
            if len(times) < 3:
                return 1.0
            middle = statistics.median(times)
            spread = 1.4826 * statistics.median(abs(one - middle) for one in times)
            errors.append(1.2533 * spread / len(times) ** 0.5 / middle)
        return sorted(errors)[int(0.9 * (len(errors) - 1))]

    @property
    def measurements(self):
        return sum(map(len, self.totals.values()))


def processor_name():
    with contextlib.suppress(OSError), open("/proc/cpuinfo", encoding="utf-8") as file:
        for line in file:
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def describe(request, ranks):
    """The samples file's header."""
    is_cuda = ranks.device.type == "cuda"
    name = torch.cuda.get_device_name(ranks.device) if is_cuda else processor_name()
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // ranks.count
    more = {}
    if is_cuda:
        properties = torch.cuda.get_device_properties(ranks.device)
        memory = properties.total_memory
        more["multiprocessors"] = properties.multi_processor_count
    versions = {
        **{"measured_by": "pytorch", "torch": torch.__version__, "device": name},
        **{"backend": ranks.device.type, "threads_per_rank": torch.get_num_threads()},
        "collectives": dist.get_backend() if ranks.distributed else "none",
        **{name: os.environ[name] for name in TELLING if name in os.environ},
    }
    now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    plan = {**request["plan"], "ranks": ranks.count, "device": ranks.device.type}
    lengths, _ = sentinel(request["plan"]["model"])
    return {
        **{"format": FORMAT, "device": name, "backend": ranks.device.type, "versions": versions},
        **{"memory_bytes_per_rank": memory, "started_at": now},
        "command": " ".join([os.path.basename(sys.argv[0]), *sys.argv[1:]]),
        **{"sentinel_lengths": lengths, "not_measured": [], "plan": plan},
        **more,
    }


def sentinel(model):
    """The step that is repeated again and again, to see the machine drift: (lengths, width)."""
    width = min(128, model["max_length"] or 128)
    return [width] * 8, width


# ---- the measurement --------------------------------------------------------------------------------


class Measurement:
    """Runs the rounds: each shape on each rank, then all-reduces."""

    def __init__(self, request, ranks, options):
        self.request, self.ranks, self.options = request, ranks, options
        self.step = Step(request)
        self.trainer = Trainer(request, ranks)
        self.shapes = [(shape["lengths"], shape["length"]) for shape in request["shapes"]]
        self.met = {(len(lengths), width) for lengths, width in self.shapes}
        self.clock = self.trainer.clock
        self.deadline = None
        self.stop = None
        self.samples = None
        self.rounds = 0
        self.started = time.monotonic()
        self.dtype = stepsim_models.DTYPES[request["plan"]["model"]["parameter_dtype"]]
        self.buckets = {}

    def run(self):
        """Returns the exit status."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self.interrupted)
        refused = self.warm_up()
        self.copies = copy_times(self.step, self.dtype, self.trainer.device, self.clock)
        self.open(refused)
        self.deadline = time.monotonic() + self.options.seconds
        while not self.is_done():
            self.round(self.rounds)
            self.rounds += 1
        self.report()
        return stepsim_ranks.INTERRUPTED if self.stop else 0

    def interrupted(self, number, _frame):
        """The first signal ends the run after a block."""
        if self.stop is not None:
            raise KeyboardInterrupt
        self.stop = signal.Signals(number).name

    def warm_up(self):
        """Meets each shape, the largest first, and returns those without the memory."""
        order = sorted(self.shapes, key=lambda one: (len(one[0]) * one[1] ** 2, one[1]), reverse=True)
        marks, refused = Marks(self.clock), []
        for lengths, width in order:
            error = None
            try:
                self.trainer.step(lengths, width)
            except Exception as caught:  # pylint: disable=broad-except
                if not stepsim_ranks.is_out_of_memory(caught):
                    raise
                error = str(caught).splitlines()[0]
            if self.ranks.any(error is not None):
                self.trainer.release()
                self.shapes.remove((lengths, width))
                why = error or "out of memory on another rank"
                refused.append({"samples": len(lengths), "max_length": width, "why": why})
                self.ranks.say(f"skipped {len(lengths)} x {width}: {why}")
        if not self.shapes:
            raise BadInput("no shape fits into the memory")
        self.trainer.step(*self.shapes[0], marks)
        self.step.check([name for name, _ in marks.forward])
        return refused

    def open(self, refused):
        """Opens the file on rank 0; all ranks hear what is there, or why it cannot be."""
        header = describe(self.request, self.ranks)
        problem = ""
        if self.ranks.rank == 0:
            try:
                self.samples = Samples(self.options.out, header)
                self.rounds = self.samples.rounds
            except (BadInput, OSError) as error:
                problem = str(error)
        problem, self.rounds = self.ranks.gathered((problem, self.rounds))[0]
        if problem:
            raise BadInput(problem)
        if self.ranks.rank == 0:
            self.samples.write({"kind": "refused", "pass": self.rounds, **one} for one in refused)

    def is_done(self):
        """Whether the time is over, or enough rounds ran and their times are as sure as asked."""
        sure = False
        if self.ranks.rank == 0 and self.rounds >= FEWEST_ROUNDS:
            sure = self.samples.error(self.shapes) <= self.options.target
        over = self.rounds >= FEWEST_ROUNDS and time.monotonic() > self.deadline
        agreed = self.ranks.largest(2 if self.stop else int(sure or over))
        if agreed == 2 and self.stop is None:
            self.stop = "another rank"
        return agreed > 0

    def at_seconds(self):
        return round(time.monotonic() - self.started, 3)

    def round(self, number):
        """Every shape on every rank once as a whole and once by ops. Then the sentinel, and
        all-reduces."""
        if self.ranks.rank == 0:
            self.samples.write([{**self.request["pass"], "pass": number}])
        reduced, lines = {}, []
        ways = (self.whole, self.by_ops) if number % 2 == 0 else (self.by_ops, self.whole)
        found = [self.all_shapes(2 * number + turn, way, reduced) for turn, way in enumerate(ways)]
        if not self.stop:
            found = found if number % 2 == 0 else found[::-1]
            lines = [self.line(number, place, *pair) for place, pair in enumerate(zip(*found))]
        lines.append(self.sentinel_line(number))
        self.keep(lines + self.host_lines() + self.meetings())
        if self.ranks.count > 1 and self.clock.PIECE == 0:
            reduced = self.together()
        self.reduce_sizes(reduced)
        self.keep_reduced(number, reduced)
        if self.ranks.rank == 0 and not self.stop:
            self.samples.write([{"kind": "pass_end", "pass": number, "at_seconds": self.at_seconds()}])

    def all_shapes(self, number, way, reduced):
        """Calls way(lengths, width) for each shape in a drawn order: all ranks at the same place of it
        in every second pass, else at different ones. Returns [shape] what it returned."""
        order = list(range(len(self.shapes)))
        random.Random(1000 * self.options.seed + number).shuffle(order)
        if number // 2 % 2 == 0:
            shift = self.ranks.rank * len(order) // self.ranks.count
            order = order[shift:] + order[:shift]
        found = [None] * len(order)
        for place, shape in enumerate(order):
            found[shape] = way(*self.shapes[shape])
            self.reduce_buckets(reduced)
            if place % BLOCK == BLOCK - 1 and self.ranks.any(self.stop):
                self.stop = self.stop or "another rank"
                break
        return found

    def whole(self, lengths, width):
        for _ in range(self.clock.TRIES):
            parts = self.trainer.step(lengths, width)
            if parts is not None:
                return parts
        return None

    def by_ops(self, lengths, width):
        for _ in range(self.clock.TRIES):
            marks = Marks(self.clock)
            if self.trainer.step(lengths, width, marks) is not None:
                return marks
        return None

    def meetings(self):
        """Lines of what it takes the host of a GPU more to meet a shape than to meet it again: some
        libraries compile kernels for each. The shapes are a little shorter than known ones, since the
        first shapes of a process also load kernels that all later ones find."""
        if self.clock.PIECE == 0:
            return []
        lines = []
        for turn in range(MEETINGS):
            place = (self.rounds * MEETINGS + turn) * len(self.shapes) // (MEETINGS + 1)
            lengths, width = self.shapes[place % len(self.shapes)]
            while (len(lengths), width) in self.met:
                width -= 1
            if width < 1:
                continue
            self.met.add((len(lengths), width))
            lengths, hosts = [min(one, width) for one in lengths], []
            self.clock.holds = False
            try:
                for _ in range(2):
                    self.trainer.step(lengths, width)
                    hosts.append(self.trainer.host)
            finally:
                self.clock.holds = True
            times = [first - second for first, second in zip(*hosts)]
            lines.append(self.host_line("meeting", lengths, width, times))
        return lines

    def host_lines(self):
        """Steps of the smallest shape as in training, with nothing between them: a line for each with
        what the host of a GPU took."""
        if self.clock.PIECE == 0:
            return []
        lengths, width = min(self.shapes, key=lambda one: len(one[0]) * one[1])
        torch.cuda.synchronize()
        steps = [self.trainer.step(lengths, width, clock=HostClock()) for _ in range(1 + HOST_STEPS)]
        torch.cuda.synchronize()
        parts = [[one[name] for name in ("forward", "backward", "optimizer")] for one in steps[1:]]
        return [self.host_line("host", lengths, width, one) for one in parts]

    def host_line(self, kind, lengths, width, times):
        names = ("forward_us", "backward_us", "optimizer_us")
        return {
            **{"kind": kind, "pass": self.rounds, "rank": self.ranks.rank},
            **{"samples": len(lengths), "max_length": width, "ops": len(self.step.ops)},
            **{name: round(1e6 * seconds, 2) for name, seconds in zip(names, times)},
        }

    def line(self, number, place, whole, marks):
        """The line of the samples file for a step as a whole and a step by ops of one shape."""
        lengths, width = self.shapes[place]
        common = {"pass": number, "rank": self.ranks.rank}
        if whole is None or marks is None:
            return {"kind": "disturbed", **common, "dropped": 1, "throttled": 0, "cooled_seconds": 0}
        times = op_times(
            self.step, whole, marks, self.copies, self.clock, self.trainer.set_to_none
        )
        return {
            **{"kind": "step", **common, "at_seconds": self.at_seconds()},
            **{"samples": len(lengths), "max_length": width, "useful_tokens": sum(lengths)},
            "sum_squares": sum(length * length for length in lengths),
            "op_us": [[round(1e6 * one, 2) for one in self.step.by_kind(times)]],
        }

    def sentinel_line(self, number):
        lengths, width = sentinel(self.trainer.config)
        steps = [self.trainer.step(lengths, width) for _ in range(1 + SENTINEL_REPETITIONS)][1:]
        totals = [sum(one.values()) for one in steps if one is not None]
        return {
            **{"kind": "sentinel", "pass": number, "rank": self.ranks.rank},
            "at_seconds": self.at_seconds(),
            "step_us": round(1e6 * statistics.median(totals or [0]), 2),
        }

    def keep(self, lines):
        """Hands the ranks' lines to rank 0, which writes them."""
        counts = [kind["count"] for kind in self.step.kinds]
        for own in self.ranks.gathered(lines):
            if self.ranks.rank == 0:
                self.samples.write(own)
                for line in own:
                    if line["kind"] == "step":
                        self.samples.add(line, counts)

    # ---- all-reduces --------------------------------------------------------------------------------

    def reduce(self, size, times):
        """Times one all-reduce: the rank that comes last waits for no other, so that its own time is
        the transfer's."""
        width = torch.empty(0, dtype=self.dtype).element_size()
        if size not in self.buckets:
            self.buckets[size] = torch.zeros(max(1, size // width), dtype=self.dtype).to(
                self.trainer.device
            )
        self.clock.start()
        begin = self.clock.mark()
        dist.all_reduce(self.buckets[size])
        end = self.clock.mark()
        self.clock.finish()
        times.setdefault(size, []).append(self.clock.seconds(begin, end))

    def together(self):
        """Times the job's own all-reduces inside steps of real DDP, in which all ranks have the same shape:
        on a CPU the ranks' threads take each other's cores there. Returns [bytes] seconds, from the last
        rank's launch to the last rank's end; between hosts, whose clocks differ, the shortest of the
        ranks' own times."""
        found, times = [], {}
        self.trainer.wrap(found)
        for turn in range(-UNTIMED, TOGETHER):  # DDP makes its buckets anew behind the first step.
            place = (self.rounds * TOGETHER + turn) % len(self.shapes)
            self.trainer.step(*self.shapes[place])
            if turn < 0:
                found.clear()
        self.trainer.wrap()
        hosts, ranks = zip(*self.ranks.gathered((platform.node(), found)))
        for reduces in zip(*ranks):
            sizes, launched, ended = zip(*reduces)
            seconds = max(ended) - max(launched)
            if len(set(hosts)) > 1:
                seconds = min(end - launch for launch, end in zip(launched, ended))
            times.setdefault(sizes[0], []).append(seconds)
        return times

    def reduce_buckets(self, times):
        if self.ranks.count > 1:
            for size in self.request["bucket_bytes"]:
                self.reduce(size, times)

    def reduce_sizes(self, times):
        """The other sizes, each behind a step, as in use: between busy ranks a transfer waits for a
        core now and then."""
        if self.ranks.count < 2:
            return
        begun = time.monotonic()
        for size in self.request["plan"]["collective_bytes"]:
            if size not in self.request["bucket_bytes"]:
                self.trainer.step(*self.shapes[len(self.shapes) // 2])
                for _ in range(4 if size <= 2**20 else 2):
                    self.reduce(size, times)
            self.buckets.pop(size, None)
            spent = time.monotonic() - begun
            if self.ranks.any(spent > COLLECTIVE_S * self.options.seconds):
                break  # The largest sizes come in later rounds, or not at all.

    def keep_reduced(self, number, times):
        """Of each all-reduce the shortest of the ranks' times."""
        lines = []
        by_rank = self.ranks.gathered(times)
        for size in times:
            shortest = [min(ranks) for ranks in zip(*(one[size] for one in by_rank))]
            lines.append(
                {
                    **{"kind": "collective", "pass": number, "op": "all_reduce"},
                    **{"ranks": self.ranks.count, "nodes": 1, "bytes": size, "pipelined": False},
                    "us": [round(1e6 * one, 2) for one in shortest],
                }
            )
        if self.ranks.rank == 0:
            self.samples.write(lines)

    # ---- the end ------------------------------------------------------------------------------------

    def report(self):
        if self.ranks.rank != 0:
            return
        error = self.samples.error(self.shapes)
        sure = f"the steps' times are sure to {100 * error:.1f} %" if error < 1 else "too few rounds"
        print(
            f"{self.samples.measurements} steps of {len(self.shapes)} shapes, op by op, in {self.rounds} "
            f"rounds on {self.ranks.count} rank{'s' * (self.ranks.count > 1)}; {sure}"
        )
        if self.ranks.count == 1:
            print("not measured on one rank: all-reduces (import a log: stepcal import nccl-tests)")
        if self.stop:
            print(f"interrupted ({self.stop}): what was measured is kept; the same command goes on")
        profile = os.path.join(os.path.dirname(self.options.out) or ".", "profile.json")
        print(f"next: stepcal fit {self.options.out} --out {os.path.relpath(profile)}", flush=True)


def parse_arguments(arguments=None):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("shapes", help="file of stepcal grid")
    parser.add_argument("--out", required=True, help="samples file, continued when it exists")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long to measure at most")
    parser.add_argument(
        "--target", type=float, default=0.01, help="relative error of the times to stop at"
    )
    parser.add_argument("--device", help="cpu, cuda or cuda:1; default: cuda where there is one")
    parser.add_argument("--ranks", type=int, help="processes; default: as planned, or the GPUs")
    parser.add_argument("--seed", type=int, default=0, help="of the order of the shapes")
    return parser.parse_args(arguments)


def measure(options):
    request = read_request(options.shapes)
    device = stepsim_ranks.pick_device(options.device)
    folder = os.path.dirname(options.out) or "."
    if not os.path.isdir(folder):
        raise BadInput(f"--out: no folder {folder}")
    if not stepsim_ranks.is_launched():
        count = stepsim_ranks.ranks_wanted(options.ranks, request["ranks"], device)
        stepsim_ranks.check_torch(count, device)
        stepsim_models.check(request["plan"]["model"], device)
        if count > 1:
            name = request["plan"]["model"]["name"]
            print(f"measuring {name} in PyTorch {torch.__version__} on {count} ranks ({device.type})")
            sys.stdout.flush()
            return stepsim_ranks.launch(count)
        stepsim_ranks.start_alone(device)
    ranks = stepsim_ranks.Ranks(device)
    if device.type == "cpu" and ranks.count > 1 and "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(1)
    status = Measurement(request, ranks, options).run()
    return ranks.end(status)


if __name__ == "__main__":
    stepsim_job.main(measure, parse_arguments())
