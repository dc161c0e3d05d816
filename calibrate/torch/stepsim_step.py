"""One training step, whole and op by op: what stepsim_measure.py times. It needs only torch and, beside
it, stepsim_clocks.py, stepsim_job.py, stepsim_models.py, stepsim_ranks.py and stepsim_recorder.py.
"""

import os
import statistics
import sys
import time

if __package__:  # A module of the package stepsim …
    from . import stepsim_ranks  # First: it says so where there is no PyTorch.
    from . import stepsim_clocks, stepsim_job, stepsim_models
else:  # … or a file by itself, with the others beside it.
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    import stepsim_ranks  # First: it says so where there is no PyTorch.
    import stepsim_clocks
    import stepsim_job
    import stepsim_models

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

BadInput = stepsim_ranks.BadInput

COPY_REPETITIONS = 50
SENTINEL_REPETITIONS = 3
GLOO_WORKERS = 2  # ProcessGroupGloo's threads.


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


class TimedSteps:
    """Times whole steps of a model of stepsim_models.py, and of its optimizer.

    Attributes:
        model: What a step calls: the module, or it under DDP.
    """

    def __init__(self, config, module, optimizer, set_to_none, device):
        self.config, self.device = config, device
        self.module = self.model = module
        self.optimizer, self.set_to_none = optimizer, set_to_none
        self.clock = stepsim_clocks.CudaClock() if device.type == "cuda" else stepsim_clocks.HostClock()

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
        loss.backward()
        at.append(clock.cut())
        self.optimizer.step()
        at.append(clock.mark())
        is_sound = clock.finish()
        self.module.mark = stepsim_models.unmarked
        if not is_whole:
            marks.ends = at
        if not is_sound:
            return None
        parts = [clock.seconds(*pair) for pair in zip(at, at[1:])]
        return dict(zip(("zero", "forward", "backward", "optimizer"), parts), collate=collate)

    def sentinel_seconds(self):
        """Times the step that calibrations and live runs repeat to see the machine drift: a median of
        few, or None where all hold launches. It runs without DDP, whose hooks wait for no backward
        then, and on the same tokens in all ranks, so that their parameters stay equal.
        """
        shape = stepsim_models.sentinel_shape(self.config)
        model, self.model = self.model, self.module
        try:
            with torch.random.fork_rng([self.device] if self.device.type == "cuda" else []):
                torch.manual_seed(0)
                steps = [self.whole(*shape) for _ in range(1 + SENTINEL_REPETITIONS)][1:]
        finally:
            self.model = model
        times = [sum(parts.values()) for parts in steps if parts is not None]
        return statistics.median(times) if times else None

    def whole(self, lengths, width):
        """A step(), tried some times where the times hold launches."""
        for _ in range(self.clock.TRIES):
            parts = self.step(lengths, width)
            if parts is not None:
                return parts
        return None


class Trainer(TimedSteps):
    """The model under DDP with one rank, and its optimizer."""

    def __init__(self, request, ranks):
        config, self.ranks = request["plan"]["model"], ranks
        module = stepsim_models.make_model(config, ranks.device).train()
        shapes = [list(one.shape) for one in module.parameters()]
        if shapes != [shape for _, shape in request["parameters"]]:
            raise BadInput("stepsim_models.py has other parameters than stepcal grid lists")
        optimizer = stepsim_models.make_optimizer(request["optimizer"], module.parameters())
        super().__init__(config, module, optimizer, request["set_to_none"], ranks.device)
        if ranks.distributed:
            self.alone = [dist.new_group([rank]) for rank in range(ranks.count)][ranks.rank]
            limits = {"bucket_limits": request["bucket_limits"]} if "bucket_limits" in request else {}
            self.arguments = stepsim_job.ddp_arguments(limits)
            if self.device.type == "cuda":
                self.arguments["device_ids"] = [self.device.index]
            self.wrap()

    def wrap(self, reduced=None):
        """Trains under DDP alone, or with all ranks, whose all-reduces are then appended to the last list of
        `reduced`: [bytes, launch, end] of each."""
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
            reduced[-1].append(times)

            def ended(future):
                times[2] = time.perf_counter()
                return future.value()[0]

            return dist.all_reduce(gradients, async_op=True).get_future().then(ended)

        self.model.register_comm_hook(None, reduce)

    def release(self):
        """Gives memory back after a step that ran out of it, perhaps in the middle of a backward, after
        which DDP takes no other."""
        if self.ranks.distributed:
            self.wrap()
        self.optimizer.zero_grad(set_to_none=True)
        if self.device.type == "cuda":
            torch.cuda.empty_cache()


def shared_times(flights):
    """Seconds that count for each all-reduce of a step, where gloo's two workers take them in order and
    share the links: their sum is the time in which any is on its way.

    Args:
        flights: (launch, end) of each, by launch.
    """
    moments = sorted({moment for flight in flights for moment in flight})
    times = [0.0] * len(flights)
    for since, until in zip(moments, moments[1:]):
        on_way = [i for i, (launch, end) in enumerate(flights) if launch <= since < end][:GLOO_WORKERS]
        for one in on_way:
            times[one] += (until - since) / len(on_way)
    return times


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
