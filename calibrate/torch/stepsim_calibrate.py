#!/usr/bin/env python3
"""Measures what training steps of your own model cost, in your own PyTorch, for Stepsim. Copy this
file, stepsim_recorder.py and all_reduce.py; they need only torch.

    torchrun --nproc_per_node 2 stepsim_calibrate.py my_model.py --shapes shapes.json --out mine
    torchrun --nproc_per_node 2 -m stepsim.torch.calibrate my_model.py …     # the installed package's

my_model.py defines `make_model()` and `make_batch(samples, length, device)`, and may define
`loss(model, batch)`, `make_optimizer(parameters)`, `ddp` (a dict of DistributedDataParallel's
arguments, or None to train without it), `comm_hook` (state, hook) and `precision` ("none", "bf16",
"fp16"). The same from Python: calibrate(make_model, make_batch, shapes=…, out=…).
"""

import argparse
import collections
import contextlib
import gc
import importlib.util
import inspect
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

import torch
import torch.distributed as dist

if __package__:  # A module of the package stepsim …
    from . import stepsim_recorder
else:  # … or a file by itself, with the others beside it.
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    import stepsim_recorder

SHAPES_FORMAT = "stepsim-shapes/1"
BLOCK = 8  # The most steps in a row; then the ranks agree on whether to go on.
BLOCK_S = 2.0
WARMUP_STEPS = 3  # DDP rebuilds its buckets after the first step.
FEWEST_PLAIN_ROUNDS = 4  # The first one meets the shapes.
WATCHED_ROUNDS = (2, 3)  # Of every ROUNDS: those with bucket times, which cost some time.
ROUNDS = 6
SWEEP_SHARE = 0.15  # Of the time, for all-reduces by size.
INTERRUPTED = 130

Shape = collections.namedtuple("Shape", "samples length lengths runs", defaults=(1,))


class BadInput(Exception):
    """The message says what is wrong with a file or an argument."""


class UserError(Exception):
    """A function of the user failed; its traceback is in __cause__."""


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


def is_out_of_memory(error):
    text = str(error)
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError)
        and ("out of memory" in text or "can't allocate memory" in text)
    )


class Ranks:
    """This process among all ranks, and what they agree on."""

    def __init__(self, device, backend=None):
        self.device = device
        self.started = False
        if "WORLD_SIZE" in os.environ and not dist.is_initialized():
            stepsim_recorder.start_ranks(
                backend or ("nccl" if device.type == "cuda" else "gloo")
            )
            self.started = True
        self.distributed = dist.is_available() and dist.is_initialized()
        self.count = dist.get_world_size() if self.distributed else 1
        self.rank = dist.get_rank() if self.distributed else 0

    def largest(self, value):
        """Returns the largest of the ranks' numbers."""
        if self.count == 1:
            return value
        device = "cpu" if dist.get_backend() == "gloo" else self.device
        number = torch.tensor([float(value)], device=device)
        dist.all_reduce(number, dist.ReduceOp.MAX)
        return float(number)

    def any(self, claim):
        return self.largest(bool(claim)) > 0

    def say(self, text):
        if self.rank == 0:
            print(text, flush=True)


class Job:
    """What the user gave: functions and settings."""

    def __init__(
        self,
        make_model,
        make_batch,
        loss=None,
        make_optimizer=None,
        ddp=types.MappingProxyType({}),
        comm_hook=None,
        precision="none",
        where="",
    ):
        if precision not in ("none", "bf16", "fp16"):
            raise BadInput(f"precision: expected none, bf16 or fp16, got {precision!r}")
        self.functions = {
            "make_model": make_model,
            "make_batch": make_batch,
            "loss": loss or default_loss,
            "make_optimizer": make_optimizer or default_optimizer,
        }
        self.ddp, self.comm_hook, self.precision, self.where = ddp, comm_hook, precision, where
        try:
            self.takes_lengths = "lengths" in inspect.signature(make_batch).parameters
        except ValueError:
            self.takes_lengths = False

    def call(self, name, *arguments, **named):
        """Calls a function of the user. Raises UserError, but running out of memory passes."""
        try:
            return self.functions[name](*arguments, **named)
        except Exception as error:
            if is_out_of_memory(error):
                raise
            given = [repr(one) for one in arguments if isinstance(one, (int, torch.device))]
            text = f"{name}({', '.join(given)}){self.where} failed"
            raise UserError(f"{text}: {type(error).__name__}: {error}") from error

    def batch(self, shape, device):
        more = {"lengths": list(shape.lengths)} if self.takes_lengths else {}
        return self.call("make_batch", shape.samples, shape.length, device, **more)

    def loss(self, model, batch):
        value = self.call("loss", model, batch)
        if not (torch.is_tensor(value) and value.dim() == 0 and value.requires_grad):
            raise UserError(f"loss(){self.where}: expected one number with a gradient; got {value}")
        return value


def default_loss(model, batch):
    """Takes the model's output, its .loss or its "loss"."""
    if isinstance(batch, dict) or hasattr(batch, "keys"):
        output = model(**batch)
    else:
        output = model(*batch) if isinstance(batch, (tuple, list)) else model(batch)
    if not torch.is_tensor(output):
        output = output["loss"] if isinstance(output, dict) else output.loss
    return output


def default_optimizer(parameters):
    return torch.optim.AdamW(parameters, lr=1e-6)


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
        self.scaler = None
        if job.precision == "fp16" and ranks.device.type == "cuda":
            new = hasattr(torch, "amp") and hasattr(torch.amp, "GradScaler")
            self.scaler = torch.amp.GradScaler("cuda") if new else torch.cuda.amp.GradScaler()
        torch.manual_seed(1 + ranks.rank)

    def autocast(self):
        if self.job.precision == "none":
            return contextlib.nullcontext()
        dtype = torch.bfloat16 if self.job.precision == "bf16" else torch.float16
        return torch.autocast(self.ranks.device.type, dtype=dtype)

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
            with self.autocast():
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

    def __init__(self, job, ranks, shapes, out, seconds, target, seed):
        self.job, self.ranks, self.out = job, ranks, os.fspath(out)
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
        self.swept = False

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
            if is_out_of_memory(error):
                print("this fitted in the probe: leave the largest shape out", file=sys.stderr)
            self.report()
            return INTERRUPTED if self.stop else 3
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
        recorders = [one for one in (self.plain, self.watched) if one is not None]
        lost = self.ranks.any(not all(one.recording for one in recorders))
        for recorder in recorders:
            recorder.close()
        self.report()
        return INTERRUPTED if self.stop else 3 if lost else 0

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
        for shape in self.shapes:
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
            if not is_out_of_memory(error):
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
        """Measures all-reduces up to twice the bytes of all gradients."""
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
        options = types.SimpleNamespace(
            backend=dist.get_backend(),
            min_bytes=4096,
            max_bytes=most,
            seconds=min(0.4, SWEEP_SHARE * self.seconds / sizes),
            max_iterations=1000,
        )
        text = all_reduce.sweep(options)
        if self.ranks.rank == 0:
            with open(f"{self.out}.all_reduce.log", "w", encoding="utf-8") as file:
                file.write(text)
        self.swept = True

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
        log, network = (shlex.quote(self.out + one) for one in (".all_reduce.log", ".network.json"))
        before = f"stepcal import nccl-tests {log} --profile {network} && " if self.swept else ""
        files = " ".join(map(shlex.quote, self.records()))
        base = f" --base {network}" if self.swept else ""
        profile = shlex.quote(f"{self.out}.json")
        print(f"next: {before}stepcal import run-record {files}{base} --profile {profile}")
        sys.stdout.flush()


def pick_device(name=None):
    if name is None:
        name = "cuda" if torch.cuda.is_available() else "cpu"
    device = torch.device(name)
    if device.type == "cuda":
        if device.index is None:
            device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)))
        torch.cuda.set_device(device)
    return device


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
    job = Job(make_model, make_batch, **job)
    shapes = read_shapes(shapes) if isinstance(shapes, (str, os.PathLike)) else check_shapes(shapes)
    if not job.takes_lengths:
        shapes = [one._replace(lengths=[one.length] * one.samples) for one in shapes]
    folder = os.path.dirname(os.fspath(out)) or "."
    if not os.path.isdir(folder):
        raise BadInput(f"--out: no folder {folder}")
    ranks = Ranks(pick_device(device), backend)
    try:
        return Calibration(job, ranks, shapes, out, seconds, target, seed).run()
    finally:
        if ranks.started and sys.exc_info()[0] is None:
            dist.destroy_process_group()


def load_module(path):
    """Runs the user's file. Raises UserError, and BadInput where a function is missing."""
    if not os.path.isfile(path):
        raise BadInput(f"{path}: no such file")
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    spec = importlib.util.spec_from_file_location("user_model", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["user_model"] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise UserError(f"{path}: {type(error).__name__}: {error}") from error
    for name in ("make_model()", "make_batch(samples, length, device)"):
        if not callable(getattr(module, name.split("(", maxsplit=1)[0], None)):
            raise BadInput(f"{path}: defines no {name}")
    return module


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", help="your file: my_model.py")
    parser.add_argument("--shapes", required=True, help="file of stepcal grid")
    parser.add_argument("--out", required=True, help="the records' path without suffix")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long to measure at most")
    parser.add_argument(
        "--target", type=float, default=0.01, help="relative error of the times to stop at"
    )
    parser.add_argument("--precision", choices=("none", "bf16", "fp16"), help="autocast")
    parser.add_argument("--device", help="cpu, cuda or cuda:1; default: cuda where there is one")
    parser.add_argument("--backend", help="of torch.distributed; default: nccl or gloo")
    parser.add_argument("--no-ddp", action="store_true", help="without DistributedDataParallel")
    parser.add_argument("--seed", type=int, default=0, help="of the order of the shapes")
    return parser.parse_args()


def main():
    options = parse_arguments()
    try:
        module = load_module(options.model)
        job = {
            name: getattr(module, name)
            for name in ("loss", "make_optimizer", "ddp", "comm_hook", "precision")
            if hasattr(module, name)
        }
        if options.no_ddp:
            job["ddp"] = None
        if options.precision:
            job["precision"] = options.precision
        return calibrate(
            module.make_model,
            module.make_batch,
            options.shapes,
            options.out,
            device=options.device,
            backend=options.backend,
            seconds=options.seconds,
            target=options.target,
            seed=options.seed,
            where=f" of {options.model}",
            **job,
        )
    except UserError as error:
        if error.__cause__ is not None:
            traceback.print_exception(
                type(error.__cause__), error.__cause__, error.__cause__.__traceback__
            )
        print(f"error: {error}", file=sys.stderr, flush=True)
    except BadInput as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
    return 2


if __name__ == "__main__":
    sys.exit(main())
