#!/usr/bin/env python3
"""Runs one rank of a real DDP training that batches by stepsim.torch.BatchSampler.

    RANK=0 WORLD_SIZE=2 … sampler_ranks.py PART SPEC.json

PART: `kinds`, an epoch by every kind of policy; `waits`, epochs of a million lengths; `record`,
some steps of one policy for a profile; `live`, several policies by turns. Rank 0 writes SPEC's
`out`.
"""

import itertools
import json
import pathlib
import sys
import time
import warnings

import numpy as np
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / part) for part in ("live", "python")]
sys.path.insert(0, str(ROOT / "calibrate" / "torch"))

import models  # noqa: E402
import policy_examples  # noqa: E402
import stepsim_recorder  # noqa: E402

from stepsim.torch import BatchSampler, Piece  # noqa: E402


def from_all(item):
    """[rank] the item of every rank."""
    items = [None] * dist.get_world_size()
    dist.all_gather_object(items, item)
    return items


def write(spec, result):
    if dist.get_rank() == 0:
        pathlib.Path(spec["out"]).write_text(json.dumps(result), encoding="utf-8")


# ---- an epoch by every kind ---------------------------------------------------------------------


class Ones:
    """Samples of that many ones."""

    def __init__(self, lengths):
        self.lengths = lengths

    def __len__(self):
        return len(self.lengths)

    def __getitem__(self, item):
        if isinstance(item, Piece):
            return torch.ones(item.length)
        return torch.ones(int(self.lengths[item]))


def padded(rows):
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)


def kinds(spec):
    lengths = np.random.default_rng(5).integers(1, policy_examples.LONGEST + 1, spec["samples"])
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1, 1))
    rows = []
    for kind, parameters in policy_examples.EXAMPLES:
        sampler = BatchSampler(lengths, kind, weighting="sample", **parameters)
        sampler.verify()
        loader = DataLoader(Ones(lengths), batch_sampler=sampler, collate_fn=padded)
        steps = tokens = 0
        for batch, step in sampler.steps(loader):
            model.zero_grad()
            (model(batch.sum(dim=1, keepdim=True)).mean() * step.loss_scale).backward()
            assert int(batch.sum()) == sum(step.lengths) and batch.shape[0] == len(step.samples)
            steps += 1
            tokens += step.useful_tokens
        found = from_all((steps, len(sampler), tokens))
        rows.append({"kind": kind, "parameters": parameters, "steps": [one[0] for one in found],
                     "planned": [one[1] for one in found], "tokens": [one[2] for one in found]})
    write(spec, rows)


# ---- waiting for plans --------------------------------------------------------------------------


def waits(spec):
    lengths = np.random.default_rng(5).integers(1, 513, spec["samples"])
    sampler = BatchSampler(lengths, spec["kind"], **spec["parameters"])
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(256, 256))
    loader = DataLoader(range(len(lengths)), batch_sampler=sampler, collate_fn=len)
    rows = []
    before = 0.0
    for epoch in range(spec["epochs"]):
        sampler.set_epoch(epoch)
        begun = time.perf_counter()
        steps = 0
        for _, step in sampler.steps(loader):
            model.zero_grad()
            until = time.perf_counter() + spec["step_s"]
            loss = model(torch.ones(8, 256)).mean()
            while time.perf_counter() < until:  # A step's compute.
                model.module(torch.ones(64, 256))
            (loss * step.loss_scale).backward()
            steps += 1
        rows.append({"epoch": epoch, "steps": steps, "seconds": time.perf_counter() - begun,
                     "waited_s": max(from_all(sampler.wait_seconds - before))})
        before = sampler.wait_seconds
    write(spec, rows)


# ---- throughput ---------------------------------------------------------------------------------


class Dialogues:
    """Samples of random tokens with a label."""

    def __init__(self, lengths, vocab, classes):
        draw = torch.Generator().manual_seed(3)
        self.tokens = [torch.randint(1, vocab, (length,), generator=draw) for length in lengths]
        self.labels = torch.randint(0, classes, (len(lengths),), generator=draw).tolist()

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, sample):
        return self.tokens[sample], self.labels[sample]


def collate(samples):
    rows = [row for row, _ in samples]
    lengths = torch.tensor([len(row) for row in rows])
    tokens = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
    mask = (torch.arange(tokens.shape[1])[None, :] < lengths[:, None]).float()
    return tokens, mask, torch.tensor([label for _, label in samples]), lengths.tolist()


class Default:
    """PyTorch's own loader: equal batches in random order. It has steps() as a BatchSampler."""

    def __init__(self, data, batch_size):
        self.sampler = DistributedSampler(data, shuffle=True, seed=1)
        self.loader = DataLoader(data, batch_size, sampler=self.sampler, collate_fn=collate)

    def steps(self, loader):
        for batch in loader:
            yield batch, None


class Job:
    """The model, its optimizer and the data of a spec."""

    def __init__(self, spec):
        self.spec = spec
        model = spec["model"]
        self.lengths = [int(line) for line in open(spec["lengths"], encoding="ascii")]
        self.data = Dialogues(self.lengths, model["vocab"], model["classes"])
        self.ddp = torch.nn.parallel.DistributedDataParallel(models.make_model(model))
        self.optimizer = torch.optim.AdamW(self.ddp.parameters(), lr=1e-4)

    def loader(self, run):
        """Returns (what has steps(), the loader)."""
        if run["kind"] == "default":
            default = Default(self.data, run["parameters"]["batch_size"])
            return default, default.loader
        sampler = BatchSampler(self.lengths, run["kind"], profile=run.get("profile"), seed=1,
                               weighting=run.get("weighting"), **run["parameters"])
        sampler.verify()
        loader = DataLoader(self.data, batch_sampler=sampler, collate_fn=collate)
        return sampler, loader

    def step(self, batch, step, recorder):
        tokens, mask, labels, lengths = batch
        with recorder.step(lengths=lengths):
            self.optimizer.zero_grad(set_to_none=False)
            loss = self.ddp(tokens, mask, labels)
            recorder.backward(loss if step is None else loss * step.loss_scale)
            self.optimizer.step()
        return sum(lengths)


def silent():
    recorder = stepsim_recorder.Recorder("unused")
    recorder.recording = False
    return recorder


def record(spec):
    job = Job(spec)
    steps, loader = job.loader(spec["run"])
    recorder = stepsim_recorder.Recorder(
        spec["record"], policy=spec["run"]["name"], warmup_steps=2, model=job.ddp,
        optimizer=job.optimizer, bucket_times=False,
    )
    for batch, step in itertools.islice(steps.steps(loader), spec["steps"]):
        job.step(batch, step, recorder)
    recorder.close()
    dist.barrier()


def live(spec):
    job = Job(spec)
    names = [run["name"] for run in spec["runs"]]
    loaders = {run["name"]: job.loader(run) for run in spec["runs"]}
    passes = []
    recorder = silent()
    for number in range(-1, spec["passes"]):  # The first one is not counted: it meets all shapes.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # An epoch that begins again, which is the point here.
            turns = {name: iter(steps.steps(loader)) for name, (steps, loader) in loaders.items()}
        took = {name: [0.0, 0, 0] for name in names}  # Seconds, useful tokens, steps.
        turn = 0
        while turns:
            shift = (turn + number) % len(names)
            for name in names[shift:] + names[:shift]:
                if name not in turns:
                    continue
                dist.barrier()
                begun = time.perf_counter()
                tokens = steps = 0
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    for batch, step in itertools.islice(turns[name], spec["block"]):
                        tokens += job.step(batch, step, recorder)
                        steps += 1
                took[name][0] += time.perf_counter() - begun
                took[name][1] += tokens
                took[name][2] += steps
                if steps < spec["block"]:
                    del turns[name]
            turn += 1
        ranks = from_all(took)
        if number >= 0:
            passes.append({
                name: {
                    "seconds": max(rank[name][0] for rank in ranks),
                    "useful_tokens": sum(rank[name][1] for rank in ranks),
                    "steps": ranks[0][name][2],
                }
                for name in names
            })
    write(spec, passes)


PARTS = {"kinds": kinds, "waits": waits, "record": record, "live": live}


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    PARTS[sys.argv[1]](json.loads(pathlib.Path(sys.argv[2]).read_text(encoding="utf-8")))
    dist.barrier()  # gloo aborts a rank that ends while another one still talks to it.


if __name__ == "__main__":
    main()
