#!/usr/bin/env python3
"""Runs one rank of small DDP trainings that `stepsim diff` compares with one another.

    RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 diff_rank.py RUNS.json

RUNS.json: {"steps", "runs": [{"record", "part", "rank", "ms", "sleep"}]}: in each step of that rank,
in that part (data, forward, backward, optimizer; null: none), the thread keeps the processor busy
for so long, or sleeps. Each run has a model of its own; runs take turns of BLOCK steps, so that all
see the machine in the same state. Batches are the same in every run.
"""

import json
import pathlib
import random
import sys
import time

import torch
import torch.distributed as dist

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "calibrate" / "torch"))

import stepsim_recorder  # noqa: E402

WARMUP = 10
SAMPLES = 8
WIDTH = 48
BLOCK = 5


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(2000, WIDTH)
        self.layer = torch.nn.TransformerEncoderLayer(
            WIDTH, 4, 4 * WIDTH, dropout=0.0, batch_first=True
        )
        self.head = torch.nn.Linear(WIDTH, 2)

    def forward(self, tokens, labels):
        rows = self.layer(self.embedding(tokens))
        return torch.nn.functional.cross_entropy(self.head(rows[:, 0]), labels)


class Plant:
    """What is planted into one part of one rank's steps."""

    def __init__(self, spec, rank):
        self.part = spec["part"] if spec["rank"] == rank else None
        self.seconds = spec["ms"] / 1e3
        self.sleeps = spec["sleep"]

    def at(self, part):
        if part != self.part:
            return
        if self.sleeps:
            time.sleep(self.seconds)
            return
        end = time.perf_counter() + self.seconds
        while time.perf_counter() < end:
            pass


class Run:
    """One training of the job: a model, its recorder, and what is planted."""

    def __init__(self, spec):
        rank = dist.get_rank()
        torch.manual_seed(1)
        self.ddp = torch.nn.parallel.DistributedDataParallel(Model())
        self.optimizer = torch.optim.AdamW(self.ddp.parameters(), lr=1e-4)
        self.draw = random.Random(rank)
        self.recorder = stepsim_recorder.Recorder(
            spec["record"], policy="fixed", model=self.ddp, optimizer=self.optimizer,
            warmup_steps=WARMUP,
        )
        self.plant = Plant(spec, rank)

    def play(self, steps):
        self.recorder.resume()
        for _ in range(steps):
            self.step()

    def step(self):
        plant = self.plant
        length = 8 * self.draw.randint(2, 12)
        tokens = torch.randint(0, 2000, (SAMPLES, length))
        labels = torch.randint(0, 2, (SAMPLES,))
        plant.at("data")
        with self.recorder.step(lengths=[length] * SAMPLES):
            self.optimizer.zero_grad(set_to_none=False)
            plant.at("forward")
            loss = self.ddp(tokens, labels)
            loss.register_hook(lambda _gradient: plant.at("backward"))
            self.recorder.backward(loss)
            plant.at("optimizer")
            self.optimizer.step()


def main():
    spec = json.loads(pathlib.Path(sys.argv[1]).read_text("utf-8"))
    torch.set_num_threads(1)
    stepsim_recorder.start_ranks("gloo")
    runs = [Run(one) for one in spec["runs"]]
    for turn in range(spec["steps"] // BLOCK):
        first = turn % len(runs)
        for run in runs[first:] + runs[:first]:
            run.play(BLOCK)
    for run in runs:
        run.recorder.close()
    dist.barrier()
    dist.destroy_process_group()  # PyTorch 2.15 may abort where its threads outlive the interpreter.


if __name__ == "__main__":
    main()
