#!/usr/bin/env python3
"""Times the ops of a model family in your own PyTorch, where they run in training steps, and writes the
samples of which `stepcal fit` makes a profile.

    stepsim plan SCENARIO.toml --out-dir plans
    stepcal grid plans/*.jsonl --out shapes.json
    python3 stepsim_measure.py shapes.json --out samples.jsonl
    python3 -m stepsim.torch.measure shapes.json --out samples.jsonl     # the installed package's
    stepcal fit samples.jsonl --out profile.json

It starts the plans' ranks on this machine, unless torchrun or another launcher has done so. Beside this
file: all other stepsim_*.py; they need only torch and NumPy.

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
import math
import os
import random
import signal
import statistics
import sys
import time

if __package__:  # A module of the package stepsim …
    from . import stepsim_ranks  # First: it says so where there is no PyTorch.
    from . import stepsim_clocks, stepsim_job, stepsim_models, stepsim_samples, stepsim_step, stepsim_units
else:  # … or a file by itself, with the others beside it.
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    import stepsim_ranks  # First: it says so where there is no PyTorch.
    import stepsim_clocks
    import stepsim_job
    import stepsim_models
    import stepsim_samples
    import stepsim_step
    import stepsim_units

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

BadInput = stepsim_ranks.BadInput

SHAPES_FORMAT = "stepsim-shapes/1"
FEWEST_ROUNDS = 3
BLOCK = 8  # The most steps in a row; then the ranks agree on whether to go on.
TOGETHER, UNTIMED = 12, 2  # Steps of a round with all ranks' all-reduces in them, and before those.
TINY = 8  # Tokens of a step that shows what the host of a GPU takes.
MEETINGS, FEWEST_SMALL = 8, 3  # Of a round: shapes that it has not met, from so many small ones at least.
COLLECTIVE_S = 0.15  # Of a round's time, for all-reduces of other sizes than the buckets'.


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


class Measurement:
    """Runs the rounds: each shape on each rank, then all-reduces."""

    def __init__(self, request, ranks, options, unit_host=None):
        self.request, self.ranks, self.options = request, ranks, options
        self.unit_host = unit_host  # As stepsim_units.measured().
        self.step = stepsim_step.Step(request)
        self.trainer = stepsim_step.Trainer(request, ranks)
        self.shapes = [(shape["lengths"], shape["length"]) for shape in request["shapes"]]
        self.met = {(len(lengths), width) for lengths, width in self.shapes}
        self.clock = self.trainer.clock
        self.nodes = len(set(ranks.gathered(stepsim_ranks.host())))
        self.reducing = type(self.clock)()  # Its pieces are not those of steps.
        self.deadline = None
        self.stop = None
        self.samples = None
        self.rounds = 0
        self.started = time.monotonic()
        self.dtype = stepsim_models.DTYPES[request["plan"]["model"]["parameter_dtype"]]
        self.buckets = {}
        self.hosts = []  # Of this round: lengths, width and times of steps that are the host's alone.
        self.host_s = 0.0  # Of the middle one.
        self.progress = stepsim_ranks.Progress(options.seconds, ranks.rank == 0)

    def run(self):
        """Returns the exit status."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self.interrupted)
        refused = self.warm_up()
        self.copies = stepsim_step.copy_times(self.step, self.dtype, self.trainer.device, self.clock)
        self.open(refused)
        self.deadline = time.monotonic() + self.options.seconds
        self.progress = stepsim_ranks.Progress(self.options.seconds, self.ranks.rank == 0)
        while not self.is_done():
            self.round(self.rounds)
            self.rounds += 1
        self.progress.done()
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
        marks, refused = stepsim_step.Marks(self.clock), []
        for number, (lengths, width) in enumerate(order):
            self.progress.at(f"first step of shape {number + 1} of {len(order)}")
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
        if self.clock.PIECE > 0:
            self.host_step()  # Meets its shape.
        return refused

    def open(self, refused):
        """Opens the file on rank 0; all ranks hear what is there, or why it cannot be."""
        header = stepsim_samples.describe(self.request, self.ranks)
        problem = ""
        if self.ranks.rank == 0:
            try:
                self.samples = stepsim_samples.Samples(self.options.out, header)
                self.rounds = self.samples.rounds
            except (BadInput, OSError) as error:
                problem = str(error)
        problem, self.rounds = self.ranks.gathered((problem, self.rounds))[0]
        if problem:
            raise BadInput(problem)
        hosts = self.ranks.gathered(self.unit_host)
        if self.ranks.rank == 0 and self.rounds == 0:
            lines = [{"kind": "unit_host", "rank": rank, **one} for rank, one in enumerate(hosts) if one]
            self.samples.write(lines)
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
        """Every shape on every rank once as a whole and once by ops. Then the sentinel, what the host of a
        GPU takes, and all-reduces."""
        if self.ranks.rank == 0:
            self.samples.write([{**self.request["pass"], "pass": number}])
        behind, inside, others = {}, {}, {}
        whole = self.trainer.whole
        ways = (whole, self.by_ops) if number % 2 == 0 else (self.by_ops, whole)
        found = [self.all_shapes(2 * number + turn, way, behind) for turn, way in enumerate(ways)]
        if self.ranks.any(self.stop):
            self.stop = self.stop or "another rank"
            return
        found = found if number % 2 == 0 else found[::-1]
        lines = [self.line(number, place, *pair) for place, pair in enumerate(zip(*found))]
        lines += self.sentinel_lines(number)
        self.keep(lines + self.host_lines() + self.meetings(found[0]))
        if self.ranks.count > 1:
            if self.clock.PIECE == 0:
                inside = self.together()
            self.reduce_sizes({*behind, *inside}, others)
            self.keep_reduced(number, self.shortest(behind), inside, self.shortest(others))
        if self.ranks.rank == 0:
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
            self.progress.at(f"round {self.rounds + 1}, shape {place + 1} of {len(order)}")
            found[shape] = way(*self.shapes[shape])
            if self.clock.PIECE > 0:
                self.hosts.append(self.host_step())
            self.reduce_buckets(reduced)
            if place % BLOCK == BLOCK - 1 and self.ranks.any(self.stop):
                self.stop = self.stop or "another rank"
                break
        return found

    def by_ops(self, lengths, width):
        for _ in range(self.clock.TRIES):
            marks = stepsim_step.Marks(self.clock)
            if self.trainer.step(lengths, width, marks) is not None:
                return marks
        return None

    def meetings(self, whole):
        """Lines of what it takes the host of a GPU more to meet a shape than to meet it again: memory for
        it, libraries that choose or compile kernels. The shapes are between those whose kernels take
        less than the host, which is held up by nothing else there."""
        if self.clock.PIECE == 0:
            return []
        seconds = [math.inf if parts is None else sum(parts.values()) for parts in whole]
        order = sorted(range(len(self.shapes)), key=seconds.__getitem__)
        small = [self.shapes[one] for one in order if seconds[one] < self.host_s]
        small = small or [self.shapes[one] for one in order[:FEWEST_SMALL]]
        drawn = random.Random(1000 * self.options.seed + self.rounds)
        drawn.shuffle(small)  # Not the smallest alone: a training meets others.
        lines = []
        for turn in range(MEETINGS):
            lengths, width = small[turn % len(small)]
            widths = [one for one in range((width + 1) // 2, width) if (len(lengths), one) not in self.met]
            if not widths:
                continue
            width = drawn.choice(widths)
            self.met.add((len(lengths), width))
            lengths = [min(one, width) for one in lengths]
            first, second = self.host_times(lengths, width), self.host_times(lengths, width)
            times = [one - other for one, other in zip(first, second)]
            lines.append(self.host_line("meeting", lengths, width, times))
        return lines

    def host_step(self):
        """A step of one short sample, whose kernels never hold the host of a GPU up. They stand between
        those of the shapes, since a host's speed drifts."""
        width = min(TINY, self.trainer.config["max_length"] or TINY)
        return [width], width, self.host_times([width], width)

    def host_lines(self):
        """Lines of what the host of a GPU took in those steps of the round."""
        if self.clock.PIECE == 0:
            return []
        steps, self.hosts = self.hosts, []
        self.host_s = statistics.median(sum(times) for _, _, times in steps)
        return [self.host_line("host", *one) for one in steps]

    def host_times(self, lengths, width):
        """Seconds that the host takes to put in a step: forward, backward, optimizer."""
        torch.cuda.synchronize()
        parts = self.trainer.step(lengths, width, clock=stepsim_clocks.HostClock())
        return [parts[name] for name in ("forward", "backward", "optimizer")]

    def host_line(self, kind, lengths, width, times):
        names = ("forward_us", "backward_us", "optimizer_us")
        return {
            **{"kind": kind, "pass": self.rounds, "rank": self.ranks.rank},
            **{"samples": len(lengths), "max_length": width, "ops": len(self.step.ops)},
            "copies": len(self.step.copied_out) + sum(map(len, self.step.copied.values())),
            **{name: round(1e6 * seconds, 2) for name, seconds in zip(names, times)},
        }

    def line(self, number, place, whole, marks):
        """The line of the samples file for a step as a whole and a step by ops of one shape."""
        lengths, width = self.shapes[place]
        common = {"pass": number, "rank": self.ranks.rank}
        if whole is None or marks is None:
            return {"kind": "disturbed", **common, "dropped": 1, "throttled": 0, "cooled_seconds": 0}
        times = stepsim_step.op_times(
            self.step, whole, marks, self.copies, self.clock, self.trainer.set_to_none
        )
        return {
            **{"kind": "step", **common, "at_seconds": self.at_seconds()},
            **{"samples": len(lengths), "max_length": width, "useful_tokens": sum(lengths)},
            "sum_squares": sum(length * length for length in lengths),
            "op_us": [[round(1e6 * one, 2) for one in self.step.by_kind(times)]],
        }

    def sentinel_lines(self, number):
        seconds = self.trainer.sentinel_seconds()
        if seconds is None:
            return []
        common = {"kind": "sentinel", "pass": number, "rank": self.ranks.rank}
        return [{**common, "at_seconds": self.at_seconds(), "step_us": round(1e6 * seconds, 2)}]

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
        clock = self.reducing
        clock.start()
        begin = clock.mark()
        dist.all_reduce(self.buckets[size])
        end = clock.mark()
        clock.finish()
        times.setdefault(size, []).append(clock.seconds(begin, end))

    def together(self):
        """Times the job's own all-reduces inside steps of real DDP, in which all ranks have the same shape:
        on a CPU the ranks' threads take each other's cores there. Returns [bytes] seconds, from the last
        rank's launch to the last rank's end; between hosts, whose clocks differ, the shortest of the
        ranks' own times."""
        steps, times = [], {}
        self.trainer.wrap(steps)
        for turn in range(-UNTIMED, TOGETHER):  # DDP makes its buckets anew behind the first step.
            place = (self.rounds * TOGETHER + turn) % len(self.shapes)
            steps.append([])
            self.trainer.step(*self.shapes[place])
        self.trainer.wrap()
        for ranks in zip(*(one[UNTIMED:] for one in self.ranks.gathered(steps))):
            sizes = [size for size, _, _ in ranks[0]]
            flights = [[(launch, end) for _, launch, end in own] for own in ranks]
            if self.nodes == 1:
                flights = [[tuple(map(max, zip(*one))) for one in zip(*flights)]]
            shared = [stepsim_step.shared_times(one) for one in flights]
            for size, *seconds in zip(sizes, *shared):
                times.setdefault(size, []).append(min(seconds))
        if set(times) != set(self.request["bucket_bytes"]) and self.rounds == 0:
            self.ranks.say(
                f"warning: DDP makes other buckets here ({', '.join(map(str, sorted(times)))} bytes) than "
                "planned; those are timed in steps, the planned ones behind them"
            )
        return times

    def reduce_buckets(self, times):
        if self.ranks.count > 1:
            for size in self.request["bucket_bytes"]:
                self.reduce(size, times)

    def reduce_sizes(self, done, times):
        """The other sizes, each behind a step, as in use: between busy ranks a transfer waits for a
        core now and then."""
        begun = time.monotonic()
        for size in self.request["plan"]["collective_bytes"]:
            self.progress.at(f"round {self.rounds + 1}, all-reduce of {size} bytes")
            if size not in done:
                self.trainer.step(*self.shapes[len(self.shapes) // 2])
                for _ in range(4 if size <= 2**20 else 2):
                    self.reduce(size, times)
            self.buckets.pop(size, None)
            spent = time.monotonic() - begun
            if self.ranks.any(spent > COLLECTIVE_S * self.options.seconds):
                break  # The largest sizes come in later rounds, or not at all.

    def shortest(self, times):
        """[bytes] of each all-reduce the shortest of the ranks' times."""
        by_rank = self.ranks.gathered(times)
        return {size: list(map(min, zip(*(one[size] for one in by_rank)))) for size in times}

    def keep_reduced(self, number, behind, inside, others):
        """Writes the times in steps, where there are some; those behind steps of other sizes then as much
        longer as the same sizes were in steps."""
        both = [size for size in behind if size in inside]
        longer = 1.0
        if both:
            means = [sum(statistics.fmean(of[size]) for size in both) for of in (inside, behind)]
            longer = means[0] / means[1]
        outside = {**behind, **others}
        times = {size: [longer * one for one in outside[size]] for size in outside}
        lines = [
            {
                **{"kind": "collective", "pass": number, "op": "all_reduce", "ranks": self.ranks.count},
                **{"nodes": self.nodes, "bytes": size, "pipelined": False},
                "us": [round(1e6 * one, 2) for one in seconds],
            }
            for size, seconds in {**times, **inside}.items()
        ]
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
    unit_host = stepsim_units.measured(
        lambda parameters: stepsim_models.make_optimizer(request["optimizer"], parameters), device
    )
    ranks = stepsim_ranks.Ranks(device)
    if device.type == "cpu" and ranks.count > 1 and "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(1)
    status = Measurement(request, ranks, options, unit_host).run()
    return ranks.end(status)


if __name__ == "__main__":
    stepsim_job.main(measure, parse_arguments())
