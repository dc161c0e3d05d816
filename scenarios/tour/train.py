#!/usr/bin/env python3
"""Trains a small text classifier with DDP on two ranks, and records its steps for the tour.

    export MALLOC_TRIM_THRESHOLD_=4000000000 MALLOC_MMAP_THRESHOLD_=4000000000
    export USE_LIBUV=0  # where PyTorch was built without libuv, as Debian 13's; no harm elsewhere
    for rank in 0 1; do
      RANK=$rank WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 python3 train.py &
    done; wait

The batches are those of the policies in tour.toml. The policies take turns of four steps, so that
all of them meet the machine in the same state; each is recorded to POLICY.jsonl in this folder. The MALLOC variables keep memory with the process; else
some batches take longer than others, always the same ones.
"""

import pathlib

import stepsim
import torch
import torch.distributed as dist
from stepsim.torch import Recorder

HERE = pathlib.Path(__file__).resolve().parent
POLICIES = ["random", "group_by_length", "bucketed", "token_budget"]
VOCABULARY, CLASSES, WIDTH = 8000, 4, 128
TURN = 4
PASSES = 2


class Classifier(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(VOCABULARY, WIDTH, padding_idx=0)
        layer = torch.nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, batch_first=True)
        self.layers = torch.nn.TransformerEncoder(layer, 2)
        self.head = torch.nn.Linear(WIDTH, CLASSES)

    def forward(self, tokens):
        hidden = self.layers(self.embed(tokens), src_key_padding_mask=tokens == 0)
        return self.head(hidden.mean(1))


class Run:
    """One policy: its model, its batches and its record."""

    def __init__(self, scenario, policy, rank):
        torch.manual_seed(0)
        self.ddp = torch.nn.parallel.DistributedDataParallel(Classifier())
        self.optimizer = torch.optim.AdamW(self.ddp.parameters(), lr=1e-4)
        plan = scenario.plan(policy)
        own = [row for row in range(len(plan)) if plan["rank"][row] == rank]
        self.lengths = [plan.lengths[row] for row in own]
        self.random = torch.Generator().manual_seed(rank)
        self.recorder = Recorder(
            HERE / policy, policy=policy, scenario="tour", warmup_steps=2,
            model=self.ddp, optimizer=self.optimizer,
        )

    def batch(self, lengths):
        shape = (len(lengths), max(lengths))
        tokens = torch.randint(1, VOCABULARY, shape, generator=self.random)
        is_padding = torch.arange(shape[1])[None, :] >= torch.tensor(lengths)[:, None]
        labels = torch.randint(0, CLASSES, shape[:1], generator=self.random)
        return tokens.masked_fill(is_padding, 0), labels

    def train(self, steps):
        self.recorder.resume()
        for lengths in steps:
            tokens, labels = self.batch(lengths)
            with self.recorder.step(lengths=lengths):
                self.optimizer.zero_grad()
                loss = torch.nn.functional.cross_entropy(self.ddp(tokens), labels)
                self.recorder.backward(loss)
                self.optimizer.step()


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    scenario = stepsim.Scenario(HERE / "tour.toml")
    runs = [Run(scenario, policy, dist.get_rank()) for policy in POLICIES]
    steps = max(len(run.lengths) for run in runs)
    for number in range(PASSES):
        for turn, first in enumerate(range(0, steps, TURN)):
            shift = (turn + number) % len(runs)
            for run in runs[shift:] + runs[:shift]:
                run.train(run.lengths[first : first + TURN])
        for run in runs:
            run.recorder.next_repeat()
    for run in runs:
        run.recorder.close()
    dist.barrier()  # gloo aborts a rank that ends while another one still talks to it.


if __name__ == "__main__":
    main()
