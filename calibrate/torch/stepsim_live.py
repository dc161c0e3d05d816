#!/usr/bin/env python3
"""Trains the batches of plans in your own PyTorch under DistributedDataParallel and records every step,
for `stepsim validate`.

    python3 stepsim_live.py plans/*.jsonl --out-dir live
    python3 stepsim_live.py plans/*.jsonl --out-dir live --model my_model.py
    python3 -m stepsim.torch.live plans/*.jsonl --out-dir live     # the installed package's

It starts the plans' ranks on this machine, unless torchrun or another launcher has done so. Beside this
file: stepsim_clocks.py, stepsim_job.py, stepsim_models.py, stepsim_ranks.py, stepsim_recorder.py,
stepsim_step.py and stepsim_transformers.py; they need only torch and NumPy.

The model is the one that the plans describe, on random tokens (of transformers where their scenario has
[model] config, which needs transformers), or that of your file as stepsim_calibrate.py takes it. All plans
train in one process group and take turns of --block steps, so that they see the machine in the same state; on
a GPU each turn begins with the step before it, unrecorded, so that the host is as far ahead as in training
without turns. For each plan PLAN.jsonl it writes the run record OUT-DIR/PLAN.jsonl; a run that is stopped
leaves OUT-DIR/PLAN.rankN.jsonl, which are read as well. The step that stepsim_measure.py repeats to see the
machine drift, the sentinel, is timed before and behind each pass over the plans, and stands in the records, so
that `stepsim validate` tells a machine that has changed since its calibration from a wrong prediction.
"""

import argparse
import contextlib
import glob
import json
import math
import os
import signal
import statistics
import sys
import time

if __package__:  # A module of the package stepsim …
    from . import stepsim_ranks  # First: it says so where there is no PyTorch.
    from . import stepsim_job, stepsim_recorder, stepsim_step
else:  # … or a file by itself, with the others beside it.
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    import stepsim_ranks  # First: it says so where there is no PyTorch.
    import stepsim_job
    import stepsim_recorder
    import stepsim_step

import torch  # noqa: E402

BadInput = stepsim_ranks.BadInput

FORMAT = "stepsim-plan/1"
HOOKS = {"all_reduce": "allreduce_hook", "fp16": "fp16_compress_hook", "bf16": "bf16_compress_hook"}


class Plan:
    """The batches of one policy: `rows` of this rank, [step] the micro-batches."""

    def __init__(self, path):
        self.path, self.name = path, os.path.basename(path).rsplit(".", 1)[0]
        try:
            with open(path, encoding="utf-8") as lines:
                self.header = json.loads(next(lines))
                if self.header["format"] != FORMAT:
                    raise ValueError(f"format {self.header['format']!r}, expected {FORMAT!r}")
                rows = [json.loads(line) for line in lines]
            self.steps = {}
            for row in rows:
                self.steps.setdefault((row["rank"], row["step"]), []).append(row)
            count, ranks = self.header["steps"], self.header["ranks"]
            if len(self.steps) != count * ranks:
                raise ValueError(f"it ends early: {count} steps of {ranks} ranks are declared")
        except (OSError, ValueError, KeyError, TypeError, StopIteration) as error:
            raise BadInput(f"{path}: not what stepsim plan writes: {error}") from error

    def check(self):
        """Raises BadInput: what cannot be trained here."""
        ddp = self.header.get("ddp", {})
        asked = list(ddp.get("other_keys", []))
        hook = ddp.get("communication_hook", "none")
        if hook != "none" and hook not in HOOKS:
            asked.append(f"communication_hook = {hook!r}")
        if any(not row["lengths"] for rows in self.steps.values() for row in rows):
            asked.append("ranks without a batch")
        if asked:
            raise BadInput(
                f"{self.path}: its scenario asks for what this program does not train "
                f"({', '.join(asked)}). Train it in your own loop, with the recorder in it"
            )

    def rows(self, rank, step):
        return self.steps[rank, step]


def read_plans(paths):
    """Raises BadInput: no plans, two of one name, or plans of different trainings."""
    plans = [Plan(path) for path in paths]
    first = plans[0]
    for plan in plans:
        plan.check()
        # Attention belongs to the policy; who trains both kinds has two models.
        apart = [
            key
            for key in ("ranks", "model", "optimizer", "ddp")
            if plan.header.get(key) != first.header.get(key)
        ]
        if apart:
            raise BadInput(
                f"{plan.path} is of another {' and '.join(apart)} than {first.path}: plans that take "
                "turns train one model"
            )
    names = [plan.name for plan in plans]
    if len(set(names)) < len(names):
        raise BadInput("two plans have one file name, and so would their records")
    return plans


class Trainer:
    """The model under DDP and its optimizer."""

    def __init__(self, job, header, ranks):
        self.job, self.ranks = job, ranks
        told = header.get("ddp", {})
        self.set_to_none = told.get("set_to_none", True)
        self.module = job.call("make_model").to(ranks.device).train()
        trained = [one for one in self.module.parameters() if one.requires_grad]
        self.optimizer = job.call("make_optimizer", trained)
        self.model = self.module
        self.scaler = stepsim_job.make_scaler(job.precision, ranks.device)
        if ranks.distributed and job.ddp is not None:
            device = ranks.device
            more = {"device_ids": [device.index or 0]} if device.type == "cuda" else {}
            self.model = torch.nn.parallel.DistributedDataParallel(
                self.module, **{**more, **stepsim_job.ddp_arguments(told), **job.ddp}
            )
            self.hook(told.get("communication_hook", "none"))
        torch.manual_seed(1 + ranks.rank)

    def hook(self, name):
        if self.job.comm_hook is not None:
            self.model.register_comm_hook(*self.job.comm_hook)
        elif name != "none":
            # pylint: disable=import-outside-toplevel
            from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

            self.model.register_comm_hook(None, getattr(default_hooks, HOOKS[name]))

    def step(self, rows, recorder, batches=None):
        """Trains one step: the micro-batches of this rank, which are made in it unless they are given."""
        more = {}
        if len(rows) == 1:
            more = self.told(rows[0])
        with recorder.step(**more):
            self.optimizer.zero_grad(set_to_none=self.set_to_none)
            for number, row in enumerate(rows):
                if len(rows) > 1:
                    recorder.batch(**self.told(row))
                batch = self.batch(row) if batches is None else batches[number]
                last = number + 1 == len(rows)
                waits = contextlib.nullcontext() if last else self.without_reducing()
                with waits:
                    with stepsim_job.autocast(self.job.precision, self.ranks.device):
                        loss = self.job.loss(self.model, batch)
                    if row["loss_scale"] != 1:
                        loss = loss * row["loss_scale"]
                    recorder.backward(loss if self.scaler is None else self.scaler.scale(loss))
            if self.scaler is None:
                self.optimizer.step()
            else:
                self.scaler.step(self.optimizer)
                self.scaler.update()

    def without_reducing(self):
        return self.model.no_sync() if hasattr(self.model, "no_sync") else contextlib.nullcontext()

    @staticmethod
    def told(row):
        """What the recorder is told of a batch. Packed rows hold several samples each."""
        lengths = row.get("sequences", row["lengths"])
        return {
            "lengths": lengths,
            "max_length": max(row["max_length"], *lengths),
            "padded_tokens": row["padded_tokens"],
        }

    def batch(self, row):
        lengths = row.get("sequences", row["lengths"])
        shape = stepsim_job.Shape(len(lengths), max(row["max_length"], *lengths), lengths)
        return self.job.batch(shape, self.ranks.device)


class Sentinel:
    """The calibration's sentinel, timed again: of a family of models that stepsim_measure.py measures.

    Attributes:
        ms: The mean of the ranks, at each time that it was taken.
    """

    def __init__(self, trainer, config):
        self.ranks, self.config, self.ms, self.timed = trainer.ranks, config, [], None
        is_measured = not trainer.job.where and config["family"] != "transformers"
        # A scaler would leave steps out behind gradients that were not scaled.
        if is_measured and trainer.scaler is None:
            self.timed = stepsim_step.TimedSteps(
                config, trainer.module, trainer.optimizer, trainer.set_to_none, trainer.ranks.device
            )

    def notes(self):
        """What records say of it."""
        return {"sentinel_ms": self.ms, "sentinel_model": self.config} if self.ms else {}

    def take(self):
        """All ranks call it at the same time."""
        times = self.ranks.gathered(None if self.timed is None else self.seconds())
        if all(times):
            self.ms.append(1e3 * statistics.fmean(times))

    def seconds(self):
        """Of this rank, or None: none was sound, or the memory did not reach for it, as for no other."""
        on_gpu = self.ranks.device.type == "cuda"
        try:
            return self.timed.sentinel_seconds()
        except Exception as error:  # pylint: disable=broad-except
            if not stepsim_ranks.is_out_of_memory(error):
                raise
            self.timed.optimizer.zero_grad(set_to_none=True)
            self.timed = None
            return None
        finally:
            if on_gpu:
                torch.cuda.reset_peak_memory_stats()  # What is recorded is that of the plans' steps.


class Silent(stepsim_recorder.Recorder):
    """Stands in for a recorder where a step is not recorded."""

    def __init__(self):
        super().__init__(None)
        self.recording = False


class Run:
    """One plan and its record."""

    def __init__(self, plan, trainer, out_dir):
        self.plan, self.trainer = plan, trainer
        self.silent = Silent()
        self.recorder = stepsim_recorder.Recorder(
            os.path.join(out_dir, plan.name),
            policy=plan.header["policy"],
            scenario=plan.header["scenario"],
            warmup_steps=plan.header["warmup_steps"],
            model=trainer.model,
            optimizer=trainer.optimizer,
            bucket_times=False,
            notes={"versions": {"trained_by": "stepsim_live.py"}},
        )

    def play(self, first, last):
        """Trains some steps in a row. A GPU works behind the host: what another plan left for it is done
        before, and the step before these runs once more, unrecorded, so that the device is as far
        behind as in training without turns."""
        rank, trainer = self.trainer.ranks.rank, self.trainer
        on_gpu = trainer.ranks.device.type == "cuda"
        begin = max(0, first - 1) if on_gpu else first
        steps = [self.plan.rows(rank, one) for one in range(begin, min(last, self.plan.header["steps"]))]
        batches = [None] * len(steps)
        if trainer.job.where:  # What your loader takes is not known: stepsim_calibrate.py leaves it out.
            batches = [[trainer.batch(row) for row in rows] for rows in steps]
        if on_gpu:
            torch.cuda.synchronize()
        for number, (rows, made) in enumerate(zip(steps, batches), begin):
            if number == first:
                self.recorder.resume()
            trainer.step(rows, self.recorder if number >= first else self.silent, made)


class Live:
    """All runs by turns."""

    def __init__(self, plans, job, ranks, options):
        self.plans, self.ranks, self.options = plans, ranks, options
        self.trainer = Trainer(job, plans[0].header, ranks)
        self.sentinel = Sentinel(self.trainer, plans[0].header["model"])
        self.stop = None
        self.deadline = math.inf
        self.steps = options.steps or max(plan.header["steps"] for plan in plans)
        self.runs = []

    def run(self):
        """Returns the exit status."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self.interrupted)
        each = self.warm_up()
        self.check_buckets()
        if self.ranks.rank == 0:
            self.say_plan(each)
        self.deadline = time.monotonic() + self.options.seconds
        self.runs = [Run(plan, self.trainer, self.options.out_dir) for plan in self.plans]
        self.train()
        lost = self.ranks.any(not all(run.recorder.recording for run in self.runs))
        for run in self.runs:
            run.recorder.close(self.sentinel.notes())
        if self.ranks.rank == 0:
            self.report()
        return stepsim_ranks.INTERRUPTED if self.stop else 3 if lost else 0

    def interrupted(self, number, _frame):
        """The first signal ends the run after a block."""
        if self.stop is not None:
            raise KeyboardInterrupt
        self.stop = signal.Signals(number).name

    def warm_up(self):
        """Trains some steps of each plan: DDP rebuilds its buckets after the first one. Returns the
        seconds of a step."""
        silent, times = Silent(), []
        for plan in self.plans:
            for step in range(min(self.options.warm_up, plan.header["steps"])):
                begun = time.monotonic()
                self.trainer.step(plan.rows(self.ranks.rank, step), silent)
                if self.ranks.device.type == "cuda":
                    torch.cuda.synchronize()
                times.append(time.monotonic() - begun)
        return self.ranks.largest(statistics.median(times))

    def check_buckets(self):
        """Says so where DDP has made other buckets than the plans were predicted with."""
        model = self.plans[0].header["model"]
        if self.options.model or not hasattr(self.trainer.model, "_get_ddp_logging_data"):
            return
        # pylint: disable=protected-access
        made = self.trainer.model._get_ddp_logging_data().get("rebuilt_bucket_sizes", "")
        sizes = [one.numel() * one.element_size() for one in self.trainer.module.parameters()]
        planned = [sum(sizes[one] for one in bucket) for bucket in self.plans[0].header["buckets"]]
        made = [int(one) for one in made.replace(",", " ").split()]
        if made and made != planned:
            self.ranks.say(
                f"warning: DDP made other buckets of {model['name']} than planned ({made} bytes; "
                f"planned: {planned})"
            )

    def say_plan(self, each):
        steps = self.steps * len(self.plans) * self.options.repeats
        print(
            f"training {len(self.plans)} plans by turns in PyTorch {torch.__version__} on "
            f"{self.ranks.count} rank{'s' * (self.ranks.count > 1)} ({self.ranks.device.type}): "
            f"{steps} steps of about {1e3 * each:.1f} ms",
            flush=True,
        )

    def train(self):
        """The plans take turns, in an order that rotates."""
        runs, block = self.runs, self.options.block
        self.sentinel.take()
        for repeat in range(self.options.repeats):
            for turn, first in enumerate(range(0, self.steps, block)):
                shift = (turn + repeat) % len(runs)
                for run in runs[shift:] + runs[:shift]:
                    run.play(first, min(first + block, self.steps))
                if self.must_stop():
                    return
            self.sentinel.take()
            for run in runs:
                run.recorder.next_repeat()

    def must_stop(self):
        own = 2 if self.stop is not None else int(time.monotonic() > self.deadline)
        agreed = self.ranks.largest(own)
        if agreed == 2 and self.stop is None:
            self.stop = "another rank"
        return agreed > 0

    def report(self):
        folder = self.options.out_dir
        for run in self.runs:
            merged = os.path.join(folder, run.plan.name)
            if os.path.exists(f"{merged}.jsonl"):
                for part in glob.glob(f"{glob.escape(merged)}.rank*.jsonl"):
                    os.remove(part)
            print(f"{run.plan.header['policy']:24} {os.path.join(folder, run.plan.name)}.jsonl")
        if self.stop:
            print(f"interrupted ({self.stop}): the steps up to then are recorded")
        print(f"next: stepsim validate SCENARIO.toml --live {folder}/*.jsonl", flush=True)


def parse_arguments(arguments=None):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("plans", nargs="+", help="of stepsim plan, all of one model")
    parser.add_argument("--out-dir", required=True, help="folder of the records; made if it is not there")
    parser.add_argument("--model", help="your file: my_model.py; default: the plans' model")
    parser.add_argument("--device", help="cpu, cuda or cuda:1; default: cuda where there is one")
    parser.add_argument("--block", type=int, default=4, help="steps of a plan before the next")
    parser.add_argument(
        "--warm-up", type=int, default=3, help="unrecorded steps of each plan before; default: 3"
    )
    parser.add_argument("--repeats", type=int, default=1, help="passes over all plans")
    parser.add_argument("--steps", type=int, help="of each plan, at most")
    parser.add_argument("--seconds", type=float, default=math.inf, help="ends after so long")
    return parser.parse_args(arguments)


def run(options):
    """Trains, or starts the ranks that do. Returns the exit status."""
    for name in ("block", "warm_up", "repeats", "steps"):
        if getattr(options, name) is not None and getattr(options, name) < 1:
            raise BadInput(f"--{name.replace('_', '-')}: at least 1")
    plans = read_plans(options.plans)
    header = plans[0].header
    device = stepsim_ranks.pick_device(options.device)
    if not stepsim_ranks.is_launched():
        stepsim_ranks.check_torch(header["ranks"], device)
        if device.type == "cuda" and header["ranks"] > torch.cuda.device_count():
            raise BadInput(
                f"the plans are of {header['ranks']} ranks; there are {torch.cuda.device_count()} GPUs "
                "here. Set cluster.ranks in the scenario and plan anew"
            )
    job = (
        stepsim_job.job_of_file(options.model)
        if options.model
        else stepsim_job.job_of_family(header["model"], header["optimizer"], device)
    )
    folder_of_records(options.out_dir)
    if not stepsim_ranks.is_launched():
        if header["ranks"] > 1:
            return stepsim_ranks.launch(header["ranks"])
        stepsim_ranks.start_alone(device)
    ranks = stepsim_ranks.Ranks(device)
    if ranks.count != header["ranks"]:
        raise BadInput(f"the plans are of {header['ranks']} ranks; this runs on {ranks.count}")
    status = Live(plans, stepsim_job.Job(**job), ranks, options).run()
    return ranks.end(status)


def folder_of_records(path):
    """Makes the folder. Records of an earlier run there would be taken for this one's."""
    os.makedirs(path, exist_ok=True)
    if stepsim_ranks.is_launched():
        return
    old = glob.glob(os.path.join(glob.escape(path), "*.jsonl"))
    if old:
        raise BadInput(f"{path} holds {len(old)} records already: choose another --out-dir, or empty it")


if __name__ == "__main__":
    stepsim_job.main(run, parse_arguments())
