#!/usr/bin/env python3
"""Measures what training steps of your own model cost, in your own PyTorch, for Stepsim.

    stepcal grid plans/*.jsonl --out shapes.json
    python3 stepsim_calibrate.py my_model.py --shapes shapes.json --out mine
    python3 -m stepsim.torch.calibrate my_model.py --shapes shapes.json --out mine   # the package's

It starts the plans' ranks on this machine, unless torchrun or another launcher has done so. Beside this
file: stepsim_job.py, stepsim_models.py, stepsim_ranks.py, stepsim_recorder.py, stepsim_transformers.py,
stepsim_units.py and all_reduce.py; they need only torch and NumPy.

my_model.py defines `make_model()` and `make_batch(samples, length, device)`, and may define
`loss(model, batch)`, `make_optimizer(parameters)`, `ddp` (a dict of DistributedDataParallel's
arguments, or None to train without it), `comm_hook` (state, hook) and `precision` ("none", "bf16",
"fp16"). Without it the model is the one that the plans describe, of transformers where their scenario
has [model] config (which needs transformers). The same from Python:
calibrate(make_model, make_batch, shapes=…, out=…).
"""

import argparse
import collections
import contextlib
import gc
import json
import os
import random
import shlex
import signal
import statistics
import sys
import time
import traceback
import types

if __package__:  # A module of the package stepsim …
    from . import stepsim_ranks  # First: it says so where there is no PyTorch.
    from . import stepsim_job, stepsim_recorder, stepsim_units
else:  # … or a file by itself, with the others beside it.
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    import stepsim_ranks  # First: it says so where there is no PyTorch.
    import stepsim_job
    import stepsim_recorder
    import stepsim_units

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

BadInput, UserError = stepsim_ranks.BadInput, stepsim_job.UserError

SHAPES_FORMAT = "stepsim-shapes/1"
BLOCK = 8  # The most steps in a row; then the ranks agree on whether to go on.
BLOCK_S = 2.0
WARMUP_STEPS = 3  # DDP rebuilds its buckets after the first step.
FEWEST_PLAIN_ROUNDS = 4  # The first one meets the shapes.
WATCHED_ROUNDS = (2, 3)  # Of every ROUNDS: those with bucket times, which cost some time.
ROUNDS = 6
SWEEP_SHARE = 0.15  # Of the time, for all-reduces by size.

Shape = stepsim_job.Shape


def read_shapes(path):
    """Reads what `stepcal grid` writes, largest shape first."""
    try:
        with open(path, encoding="utf-8") as file:
            content = json.load(file)
        if content.get("format", SHAPES_FORMAT) != SHAPES_FORMAT:
            raise BadInput(f"{path}: format {content['format']!r}, expected {SHAPES_FORMAT!r}")
        return check_shapes(content["shapes"], path)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadInput(f"{path}: not what stepcal grid writes: {error!r}") from error


def check_shapes(shapes, place="shapes"):
    """Takes dicts with samples, length and perhaps lengths, or pairs of samples and length."""
    checked = []
    for number, shape in enumerate(shapes):
        if not isinstance(shape, dict):
            shape = dict(zip(("samples", "length"), shape))
        samples, length = shape["samples"], shape["length"]
        lengths = shape.get("lengths") or [length] * samples
        runs = shape.get("runs", 1)  # In each round.
        sizes = [samples, length, runs, *lengths]
        if any(not isinstance(size, int) or size < 1 for size in sizes):
            raise BadInput(f"{place}: shape {number}: expected sizes of 1 or more")
        if len(lengths) != samples or max(lengths) > length:
            raise BadInput(f"{place}: shape {number}: expected {samples} lengths up to {length}")
        checked.append(Shape(samples, length, lengths, runs))
    if not checked:
        raise BadInput(f"{place}: no shapes")
    return sorted(checked, key=lambda s: (s.samples * s.length**2, s.length), reverse=True)


class Trainer:
    """The model, in DistributedDataParallel or alone, and its optimizer."""

    def __init__(self, job, ranks):
        self.job, self.ranks = job, ranks
        torch.manual_seed(0)
        self.module = job.call("make_model").to(ranks.device).train()
        trained = [one for one in self.module.parameters() if one.requires_grad]
        self.optimizer = job.call("make_optimizer", trained)
        self.gradient_bytes = sum(one.numel() * one.element_size() for one in trained)
        self.uses_ddp = ranks.distributed and job.ddp is not None
        self.model = self.module
        self.scaler = stepsim_job.make_scaler(job.precision, ranks.device)
        torch.manual_seed(1 + ranks.rank)

    def wrap(self, recorder=None):
        """Puts the model into a new DistributedDataParallel; with a recorder, which then sees the
        buckets. Hooks cannot be removed from an old one."""
        if not self.uses_ddp:
            return
        self.optimizer.zero_grad(set_to_none=True)
        self.model = self.module
        gc.collect()
        device = self.ranks.device
        more = {"device_ids": [device.index or 0]} if device.type == "cuda" else {}
        self.model = torch.nn.parallel.DistributedDataParallel(
            self.module, **{**more, **self.job.ddp}
        )
        state, hook = self.job.comm_hook or (None, None)
        if recorder is not None:
            recorder.watch(self.model, hook=hook, state=state)
        elif hook is not None:
            self.model.register_comm_hook(state, hook)

    def step(self, shape, batch, recorder):
        with recorder.step(lengths=shape.lengths, max_length=shape.length):
            self.optimizer.zero_grad(set_to_none=True)
            with stepsim_job.autocast(self.job.precision, self.ranks.device):
                loss = self.job.loss(self.model, batch)
            if self.scaler is None:
                recorder.backward(loss)
                self.optimizer.step()
            else:
                recorder.backward(self.scaler.scale(loss))
                self.scaler.step(self.optimizer)
                self.scaler.update()

    def release(self):
        self.optimizer.zero_grad(set_to_none=True)
        gc.collect()
        if self.ranks.device.type == "cuda":
            torch.cuda.empty_cache()


class Silent:
    """Stands in for a recorder where a step is not recorded."""

    @contextlib.contextmanager
    def step(self, **_):
        yield self

    @staticmethod
    def backward(loss):
        loss.backward()


class Times:
    """This rank's times of each shape, as the recorder gives them."""

    def __init__(self):
        self.first = {}  # By (samples, length).
        self.later = collections.defaultdict(list)

    def add(self, row):
        size = row["samples"], row["max_length"]
        if size in self.first:
            self.later[size].append(row)
        else:
            self.first[size] = row

    def error(self, shapes):
        """Returns the relative standard error of the median compute time that nine tenths of the
        shapes keep; 1 where one has no two repeats."""
        errors = []
        for shape in shapes:
            times = [self.compute_ms(row) for row in self.later[shape[:2]]]
            if len(times) < 2:
                return 1.0
            middle = statistics.median(times)
            spread = 1.4826 * statistics.median(abs(one - middle) for one in times)
            errors.append(1.2533 * spread / len(times) ** 0.5 / middle)
        return sorted(errors)[int(0.9 * (len(errors) - 1))]

    @staticmethod
    def compute_ms(row):
        """On a CPU without the wait for other ranks."""
        passes = ("forward_cpu_ms", "backward_cpu_ms")
        if passes[0] not in row:
            passes = ("forward_ms", "backward_ms")
        return max(sum(row[one] for one in passes), 1e-6)

    def table(self, shapes, probed):
        """Medians of the repeats; what a first meeting took longer, but for shapes of the probe."""
        lines = ["samples  length  steps  forward  backward  optimizer  first meeting  peak MiB"]
        for shape in shapes:
            later = self.later[shape[:2]]
            if not later:
                continue
            middle = {
                name: statistics.median(row[name] for row in later)
                for name in ("forward_ms", "backward_ms", "optimizer_ms")
            }
            more = self.compute_ms(self.first[shape[:2]])
            more -= statistics.median(self.compute_ms(row) for row in later)
            peak = max(row.get("peak_memory_bytes", 0) for row in later) / 2**20
            lines.append(
                f"{shape.samples:7} {shape.length:7} {1 + len(later):6} "
                f"{middle['forward_ms']:8.2f} {middle['backward_ms']:9.2f} "
                f"{middle['optimizer_ms']:10.2f} "
                + ("             -" if shape in probed else f"{more:+14.2f}")
                + (f"{peak:10.0f}" if peak else "         -")
            )
        return "\n".join([*lines, "times in ms"])


class Calibration:
    """Runs the steps and writes the records PATH.jsonl and, with bucket times, PATH.buckets.jsonl.

    The first step of each shape in PATH.jsonl is its first meeting, but for those of the warm-up.
    """

    def __init__(self, job, ranks, shapes, out, seconds, target, seed, unit_host=None):
        self.job, self.ranks, self.out = job, ranks, os.fspath(out)
        self.unit_host = unit_host  # As stepsim_units.measured().
        self.shapes, self.seed, self.target = list(shapes), seed, target
        self.seconds = seconds
        self.deadline = None  # Of the measuring, which begins when the model is made.
        self.skipped = []  # (shape, why)
        self.probed = []
        self.times = Times()
        self.stop = self.stopped_at = None  # A signal's name, and when it came.
        self.plain = self.watched = None
        self.block = BLOCK
        self.error = 1.0
        self.swept = []  # The collectives that were measured by size.
        self.progress = stepsim_ranks.Progress(seconds, ranks.rank == 0)

    def run(self):
        """Returns the exit status."""
        before = {
            number: signal.signal(number, self.interrupted)
            for number in (signal.SIGINT, signal.SIGTERM)
        }
        try:
            self.measure()
        except (UserError, BadInput):
            raise
        except (Exception, KeyboardInterrupt) as error:  # pylint: disable=broad-except
            self.finish()
            traceback.print_exc()
            if stepsim_ranks.is_out_of_memory(error):
                print("this fitted in the probe: leave the largest shape out", file=sys.stderr)
            self.report()
            return stepsim_ranks.INTERRUPTED if self.stop else 3
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
        recorders = [one for one in (self.plain, self.watched) if one is not None]
        lost = self.ranks.any(not all(one.recording for one in recorders))
        for recorder in recorders:
            recorder.close()
        self.report()
        return stepsim_ranks.INTERRUPTED if self.stop else 3 if lost else 0

    def interrupted(self, number, _frame):
        """The first signal ends the run after a few steps. Launchers send several at once."""
        if self.stop is not None and time.monotonic() > self.stopped_at + 2:
            raise KeyboardInterrupt
        self.stop, self.stopped_at = signal.Signals(number).name, time.monotonic()

    def finish(self):
        """Ends the records without talking to other ranks, which may be gone."""
        for recorder in (self.plain, self.watched):
            if recorder is not None:
                recorder._finish()  # pylint: disable=protected-access

    def measure(self):
        for name in (self.out, f"{self.out}.buckets"):  # Of an earlier run.
            for ending in ["jsonl"] * (self.ranks.rank == 0) + [f"rank{self.ranks.rank}.jsonl"]:
                with contextlib.suppress(FileNotFoundError):
                    os.remove(f"{name}.{ending}")
        trainer = self.make_trainer()  # PyTorch 2 takes seconds for the first optimizer of a process.
        self.deadline = time.monotonic() + self.seconds
        self.progress = stepsim_ranks.Progress(self.seconds, self.ranks.rank == 0)
        self.probe(trainer)
        if not self.shapes:
            raise BadInput("no shape fits into the memory")
        if trainer.uses_ddp and self.ranks.count > 1:
            self.sweep(trainer.gradient_bytes)
        self.start(trainer)
        number = plain = 0
        watching = False
        while not self.is_done(plain):
            watch = self.watched is not None and number % ROUNDS in WATCHED_ROUNDS
            if watch != watching:
                self.rewrap(trainer, watch)
                watching = watch
            self.round(trainer, number, self.watched if watch else self.plain)
            number += 1
            plain += not watch
        if watching:  # The plain record spans the other one, which shows that they share a process.
            self.rewrap(trainer, watch=False)
            self.steps(trainer, self.shapes[-BLOCK:], self.plain)

    def make_trainer(self):
        failed = None
        try:
            trainer = Trainer(self.job, self.ranks)
        except UserError as error:
            failed = error
        self.agree(failed)
        return trainer

    def agree(self, failed):
        """Raises the user's error on the rank that has one, and the others leave, too."""
        if self.ranks.any(failed is not None):
            raise failed or UserError("another rank failed")

    # ---- what fits ------------------------------------------------------------------------------

    def probe(self, trainer):
        """Trains a step of each shape that none which fits is larger than, largest first, without
        DDP, whose ranks would wait for one that runs out of memory. Its buckets are held apart."""
        views = dict(self.job.ddp or {}).get("gradient_as_bucket_view", False)
        held = trainer.gradient_bytes if trainer.uses_ddp and not views else 0
        fitting = []
        for number, shape in enumerate(self.shapes):
            self.progress.at(f"does shape {number + 1} of {len(self.shapes)} fit")
            size = (shape.samples * shape.length, shape.samples * shape.length**2)
            if any(size[0] <= one[0] and size[1] <= one[1] for one in fitting):
                continue
            error = self.try_step(trainer, shape, held)
            if self.ranks.any(error is not None):
                why = str(error or "out of memory on another rank").splitlines()[0]
                self.ranks.say(f"skipped {shape.samples} x {shape.length}: {why}")
                self.skipped.append((shape, why))
            else:
                fitting.append(size)
                self.probed.append(shape)
        gone = [shape for shape, _ in self.skipped]
        self.shapes = [shape for shape in self.shapes if shape not in gone]

    def try_step(self, trainer, shape, held):
        """Returns the error of running out of memory, or None. Raises UserError."""
        failed = memory = None
        try:
            buckets = torch.empty(held, dtype=torch.uint8, device=self.ranks.device)
            trainer.step(shape, self.job.batch(shape, self.ranks.device), Silent())
            self.synchronize()
            del buckets
        except UserError as error:
            failed = error
        except Exception as error:
            if not stepsim_ranks.is_out_of_memory(error):
                raise
            memory = RuntimeError(str(error))  # Without the frames, which hold tensors.
        self.agree(failed)
        if memory is not None:
            trainer.release()
        return memory

    def synchronize(self):
        if self.ranks.device.type == "cuda":
            torch.cuda.synchronize()

    # ---- the steps ------------------------------------------------------------------------------

    def start(self, trainer):
        """Opens the records and runs the warm-up: the shapes that are known already."""
        trainer.wrap()
        warmup = (self.probed * WARMUP_STEPS)[: max(WARMUP_STEPS, len(self.probed))]
        notes = {
            "calibration": {
                "shapes": [shape[:2] for shape in self.shapes],
                "skipped": [
                    {"samples": shape.samples, "length": shape.length, "why": why}
                    for shape, why in self.skipped
                ],
            }
        }
        if self.unit_host is not None:
            notes["unit_host"] = self.unit_host
        common = {
            "policy": "calibration",
            "model": trainer.model,
            "optimizer": trainer.optimizer,
            "bucket_times": False,
            "reset_peak_memory": True,
            "notes": notes,
        }
        self.plain = stepsim_recorder.Recorder(
            self.out, warmup_steps=len(warmup), on_row=self.times.add, **common
        )
        if trainer.uses_ddp:
            self.watched = stepsim_recorder.Recorder(f"{self.out}.buckets", **common)
        self.steps(trainer, warmup, self.plain)

    def rewrap(self, trainer, watch):
        trainer.wrap(self.watched if watch else None)
        self.steps(trainer, self.probed[:1] * 2, Silent())

    def round(self, trainer, number, recorder):
        """Runs every shape, frequent ones more often: on all ranks the same in every second round,
        else the ranks are at different places of the same order."""
        order = [shape for shape in self.shapes for _ in range(shape.runs)]
        random.Random(1000 * self.seed + number).shuffle(order)
        if number % 2 == 0:
            shift = self.ranks.rank * len(order) // self.ranks.count
            order = order[shift:] + order[:shift]
        first = 0
        while first < len(order):
            begun = time.monotonic()
            block = order[first : first + self.block]
            self.steps(trainer, block, recorder)
            first += len(block)
            self.progress.at(f"round {number + 1}, step {first} of {len(order)}")
            each = self.ranks.largest((time.monotonic() - begun) / len(block))
            self.block = max(1, min(BLOCK, int(BLOCK_S / max(each, 1e-6))))
            if self.must_stop():
                return

    def steps(self, trainer, shapes, recorder):
        """Runs steps in a row. Their batches are made before, so that the host can run ahead."""
        batches = [self.job.batch(shape, self.ranks.device) for shape in shapes]
        if hasattr(recorder, "resume"):
            recorder.resume()
        for place, shape in enumerate(shapes):
            batch, batches[place] = batches[place], None
            trainer.step(shape, batch, recorder)
        self.synchronize()

    def must_stop(self):
        """Whether any rank was interrupted or finds the time over."""
        own = 2 if self.stop is not None else int(time.monotonic() > self.deadline)
        agreed = self.ranks.largest(own)
        if agreed == 2 and self.stop is None:
            self.stop = "another rank"
        return agreed > 0

    def is_done(self, plain_rounds):
        """Whether the time is over, or enough rounds ran and their times are as sure as asked."""
        self.error = self.ranks.largest(self.times.error(self.shapes))
        enough = plain_rounds >= FEWEST_PLAIN_ROUNDS and self.error <= self.target
        return self.must_stop() or enough

    def sweep(self, gradient_bytes):
        """Measures all-reduces up to twice the bytes of all gradients and, where fully_shard is there to
        use them, gathers and scatters."""
        try:
            # pylint: disable=import-outside-toplevel
            if __package__:
                from . import all_reduce
            else:
                import all_reduce
        except ImportError:
            self.ranks.say("all_reduce.py is not beside this file: no all-reduces by size")
            return
        most = max(2**20, 2 ** (2 * gradient_bytes - 1).bit_length())
        sizes = most.bit_length() - 12
        kinds = ["all_reduce"]
        if not self.ranks.any(self.unit_host is None):
            kinds += ["all_gather", "reduce_scatter"]
        for kind in kinds:
            self.progress.at(f"{kind} by size")
            options = types.SimpleNamespace(
                collective=kind,
                backend=dist.get_backend(),
                min_bytes=4096,
                max_bytes=most,
                seconds=min(0.4, SWEEP_SHARE * self.seconds / sizes / len(kinds)),
                max_iterations=1000,
            )
            try:
                text = all_reduce.sweep(options)
            except all_reduce.NotThere as error:
                self.ranks.say(f"not measured: {error}")
                continue
            if self.ranks.rank == 0:
                with open(f"{self.out}.{kind}.log", "w", encoding="utf-8") as file:
                    file.write(text)
            self.swept.append(kind)

    # ---- the end --------------------------------------------------------------------------------

    def records(self):
        """The merged records, or after a fault those of the ranks that hold steps."""
        names = (self.out, f"{self.out}.buckets")
        merged = [f"{name}.jsonl" for name in names if os.path.exists(f"{name}.jsonl")]
        parts = [f"{name}.rank{rank}.jsonl" for name in names for rank in range(self.ranks.count)]
        found = []
        for path in merged or parts:
            with contextlib.suppress(FileNotFoundError), open(path, "rb") as file:
                found += [path] * (file.read().count(b"\n") > 1)
        return found

    def report(self):
        self.progress.done()
        if self.ranks.rank != 0:
            return
        if not self.records():
            print("nothing was measured")
            return
        print(self.times.table(self.shapes, self.probed))
        for shape, why in self.skipped:
            print(f"skipped: {shape.samples} x {shape.length}: {why}")
        if self.stop:
            print(f"interrupted ({self.stop}): what was measured is kept")
        late = "the time is over: " if self.error > self.target else ""
        sure = f"the shapes' times are sure to {100 * self.error:.1f} %"
        few = "not all shapes ran three times; give more --seconds"
        print(late + (sure if self.error < 1 else few))
        network = shlex.quote(f"{self.out}.network.json")
        logs = " ".join(shlex.quote(f"{self.out}.{kind}.log") for kind in self.swept)
        before = f"stepcal import nccl-tests {logs} --profile {network} && " if self.swept else ""
        files = " ".join(map(shlex.quote, self.records()))
        base = f" --base {network}" if self.swept else ""
        profile = shlex.quote(f"{self.out}.json")
        print(f"next: {before}stepcal import run-record {files}{base} --profile {profile}")
        sys.stdout.flush()


def calibrate(
    make_model,
    make_batch,
    shapes,
    out,
    *,
    device=None,
    backend=None,
    seconds=60.0,
    target=0.01,
    seed=0,
    **job,
):
    """Measures training steps of a model and writes run records; all ranks call it.

    Args:
        make_model: Returns the module; it is moved to the device.
        make_batch: make_batch(samples, length, device) returns what `loss` takes. If it also has a
            parameter `lengths`, that is the length of each sample, at most `length`.
        shapes: A file of `stepcal grid`, or pairs of samples and length.
        out: The records' path without suffix; its folder must exist.
        device: By default CUDA where there is one.
        seconds: How long to measure at most.
        target: The relative standard error of the shapes' times at which to stop earlier.
        job: loss(model, batch), make_optimizer(parameters), ddp, comm_hook, precision, as above.

    Returns the exit status: 0 done, 3 a fault on the way, 130 interrupted; in all cases what was
    measured is in the files. Raises BadInput and UserError.
    """
    job = stepsim_job.Job(make_model, make_batch, **job)
    shapes = read_shapes(shapes) if isinstance(shapes, (str, os.PathLike)) else check_shapes(shapes)
    if not job.takes_lengths:
        shapes = [one._replace(lengths=[one.length] * one.samples) for one in shapes]
    folder = os.path.dirname(os.fspath(out)) or "."
    if not os.path.isdir(folder):
        raise BadInput(f"--out: no folder {folder}")
    device = stepsim_ranks.pick_device(device)
    unit_host = stepsim_units.measured(lambda parameters: job.call("make_optimizer", parameters), device)
    ranks = stepsim_ranks.Ranks(device, backend)
    status = Calibration(job, ranks, shapes, out, seconds, target, seed, unit_host).run()
    return ranks.end(status)


def parse_arguments(arguments=None):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "model", nargs="?", help="your file: my_model.py; default: the model that the plans describe"
    )
    parser.add_argument("--shapes", required=True, help="file of stepcal grid")
    parser.add_argument("--out", required=True, help="the records' path without suffix")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long to measure at most")
    parser.add_argument(
        "--target", type=float, default=0.01, help="relative error of the times to stop at"
    )
    parser.add_argument("--precision", choices=("none", "bf16", "fp16"), help="autocast")
    parser.add_argument("--device", help="cpu, cuda or cuda:1; default: cuda where there is one")
    parser.add_argument("--ranks", type=int, help="processes; default: as planned, or the GPUs")
    parser.add_argument("--backend", help="of torch.distributed; default: nccl or gloo")
    parser.add_argument("--no-ddp", action="store_true", help="without DistributedDataParallel")
    parser.add_argument("--seed", type=int, default=0, help="of the order of the shapes")
    return parser.parse_args(arguments)


def job_of(options, device):
    """The job to measure, as Job takes it. Raises UserError, BadInput, CannotTrain."""
    if options.model is not None:
        job = stepsim_job.job_of_file(options.model)
    else:
        request = stepsim_ranks.read_json(options.shapes)
        if "plan" not in request:
            raise BadInput(f"{options.shapes} does not say what is trained: give your my_model.py")
        job = stepsim_job.job_of_family(request["plan"]["model"], request["optimizer"], device)
    if options.no_ddp:
        job["ddp"] = None
    if options.precision:
        job["precision"] = options.precision
    return job


def run(options):
    """Measures, or starts the ranks that do. Returns the exit status."""
    device = stepsim_ranks.pick_device(options.device)
    if not stepsim_ranks.is_launched():
        read_shapes(options.shapes)
        planned = stepsim_ranks.read_json(options.shapes).get("ranks", 1)
        count = stepsim_ranks.ranks_wanted(options.ranks, planned, device)
        stepsim_ranks.check_torch(count, device)
        if count > 1:
            return stepsim_ranks.launch(count)
    job = job_of(options, device)
    return calibrate(
        job.pop("make_model"),
        job.pop("make_batch"),
        options.shapes,
        options.out,
        device=options.device,
        backend=options.backend,
        seconds=options.seconds,
        target=options.target,
        seed=options.seed,
        **job,
    )


if __name__ == "__main__":
    stepsim_job.main(run, parse_arguments())
