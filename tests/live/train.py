#!/usr/bin/env python3
"""Runs one rank of a real DDP training that alternates between several plans and records each.

    RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 train.py RUNS.json

RUNS.json: {"threads", "block", "passes", "runs": [{"name", "plan", "bucket_cap_mb", "record",
"watch", "planted"}]}, where planted is what PlantedCosts takes, or absent. The runs take turns of `block` steps, so that all of them see the machine in the same
state; a pass ends when the plans do. Runs of one bucket cap share a model.
"""

import json
import pathlib
import sys

import torch
import torch.distributed as dist

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT / "tests" / "live"), str(ROOT / "calibrate" / "torch")]

import models  # noqa: E402
import planted_costs  # noqa: E402
import stepsim_recorder  # noqa: E402


class Trainer:
    """A model under DDP and its optimizer."""

    def __init__(self, model, bucket_cap_mb):
        self.model = model
        self.ddp = torch.nn.parallel.DistributedDataParallel(
            models.make_model(model), bucket_cap_mb=bucket_cap_mb
        )
        self.optimizer = torch.optim.AdamW(self.ddp.parameters(), lr=1e-4)
        self.generator = torch.Generator().manual_seed(dist.get_rank())

    def batch(self, row):
        """Returns (tokens, mask, labels) with random tokens, padded as planned."""
        shape = (len(row["lengths"]), row["max_length"])
        tokens = torch.randint(1, self.model["vocab"], shape, generator=self.generator)
        lengths = torch.tensor(row["lengths"])
        mask = (torch.arange(shape[1])[None, :] < lengths[:, None]).float()
        labels = torch.randint(0, max(2, self.model["classes"]), shape[:1], generator=self.generator)
        return tokens * mask.long(), mask, labels

    def step(self, row, recorder, planted=planted_costs.NOTHING):
        tokens, mask, labels = self.batch(row)
        scale = row["loss_scale"]
        with recorder.step(lengths=row["lengths"], max_length=row["max_length"]):
            self.optimizer.zero_grad(set_to_none=False)
            planted.before_forward(len(row["lengths"]), row["max_length"])
            loss = self.ddp(tokens, mask, labels)
            planted.before_backward(loss)
            recorder.backward(loss if scale == 1 else loss * scale)
            self.optimizer.step()


class Run:
    """One plan, the trainer it runs on, and its record."""

    def __init__(self, spec, trainers):
        with open(spec["plan"], encoding="utf-8") as lines:
            self.header = json.loads(next(lines))
            rows = [json.loads(line) for line in lines]
        self.rows = [row for row in rows if row["rank"] == dist.get_rank()]
        key = (spec["bucket_cap_mb"], spec.get("watch", False))
        if key not in trainers:
            trainers[key] = Trainer(self.header["model"], spec["bucket_cap_mb"])
        self.trainer = trainers[key]
        self.recorder = stepsim_recorder.Recorder(
            spec["record"],
            policy=spec["name"],
            scenario=self.header["scenario"],
            warmup_steps=self.header["warmup_steps"],
        )
        self.planted = planted_costs.of(spec.get("planted"))
        if spec.get("watch"):
            self.recorder.watch(self.trainer.ddp)

    def play(self, first, last):
        self.recorder.resume()
        for row in self.rows[first:last]:
            self.trainer.step(row, self.recorder, self.planted)


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        spec = json.load(file)
    torch.set_num_threads(spec.get("threads", 1))
    dist.init_process_group("gloo")
    trainers = {}
    runs = [Run(run, trainers) for run in spec["runs"]]
    silent = stepsim_recorder.Recorder("unused")
    silent.recording = False
    for trainer, run in {run.trainer: run for run in runs}.items():
        for row in run.rows[:3]:  # DDP rebuilds its buckets after the first step.
            trainer.step(row, silent)
    steps = max(len(run.rows) for run in runs)
    for number in range(spec["passes"]):
        for turn, first in enumerate(range(0, steps, spec["block"])):
            shift = (turn + number) % len(runs)
            for run in runs[shift:] + runs[:shift]:
                run.play(first, first + spec["block"])
        for run in runs:
            run.recorder.next_repeat()
        if dist.get_rank() == 0:
            print(f"pass {number + 1} of {spec['passes']}", flush=True)
    for run in runs:
        run.recorder.close()
        run.planted.close(dist.get_rank())
    dist.barrier()  # gloo aborts a rank that ends while another one still talks to it.
    dist.destroy_process_group()  # PyTorch 2.15 may abort where its threads outlive the interpreter.


if __name__ == "__main__":
    main()
