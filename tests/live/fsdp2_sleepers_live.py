#!/usr/bin/env python3
"""Runs the experiments of sleeping layers again on this machine, and predicts them before.

    VENV/bin/python tests/live/fsdp2_sleepers_live.py SLEEPERS DATA OUT

DATA/fsdp2/records says what each layer sleeps in each step; SLEEPERS is the program of sleepers.cpp. First
come gloo's collectives by size, each after a rest as a sleeping layer makes one, what the host takes for units of
fully_shard (as stepsim_units.py times it), and DDP's steps of the first experiment; then the predictions, to
OUT/predictions.json; then the live steps of all cells by turns. Two ranks, PyTorch 2.8 or newer, some
four minutes. Prints the table of FSDP2_SLEEPERS.md.
"""

import csv
import gzip
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "live"), str(ROOT / "calibrate" / "torch")]

import fsdp2_sleepers  # noqa: E402
import network  # noqa: E402
import ranks  # noqa: E402

HIDDEN, LAYERS = 512, 4
SIZES = (262144, 524288, 1048576, 2097152, 4194304)
SAMPLES = 40  # Of each collective and size.
REST_MS = 8
PASSES = 2  # Over the recorded steps, eight of each cell.
LIMIT_S = 1200


# ---- one rank -----------------------------------------------------------------------------------


def rank_main(spec_path):
    import torch
    import torch.distributed as dist
    from torch.distributed.fsdp import fully_shard
    from torch.nn.parallel import DistributedDataParallel

    spec = json.loads(pathlib.Path(spec_path).read_text(encoding="utf-8"))
    rank = int(os.environ["RANK"])
    torch.set_num_threads(1)
    dist.init_process_group("gloo")

    class Sleep(torch.autograd.Function):
        """Sleeps in forward, and in backward before the gradient of what came before it."""

        @staticmethod
        def forward(ctx, rows, layer):
            ctx.layer = layer
            layer.sleep("F")
            return rows.clone()

        @staticmethod
        def backward(ctx, gradient):
            ctx.layer.sleep("B")
            return gradient, None

    class Layer(torch.nn.Linear):
        def __init__(self, number, owner):
            super().__init__(HIDDEN, HIDDEN, bias=False)
            self.number, self.owner = number, [owner]

        def sleep(self, which):
            owner = self.owner[0]
            begin = owner.clock()
            time.sleep(owner.times[self.number][which == "B"] / 1e3)
            owner.sleeps.append([self.number, which, begin, owner.clock()])

        def forward(self, rows):
            return Sleep.apply(super().forward(rows), self)

    class Sleepy(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.randn(HIDDEN, HIDDEN // 2) / HIDDEN)
            self.layers = torch.nn.ModuleList(Layer(number, self) for number in range(LAYERS))
            self.times, self.sleeps, self.begun = None, [], 0.0

        def clock(self):
            return 1e3 * (time.monotonic() - self.begun)

        def forward(self, rows):
            rows = torch.nn.functional.linear(rows, self.weight)
            for layer in self.layers:
                rows = layer(rows)
            return rows

    def trained(variant):
        """(the model, what is trained, its optimizer)"""
        torch.manual_seed(1)
        model = Sleepy()
        options = {**fsdp2_sleepers.PLAIN, **fsdp2_sleepers.VARIANTS[variant]}
        if options["kind"] == "ddp":
            wrapped = DistributedDataParallel(model)
        else:
            for layer in model.layers:
                fully_shard(layer, reshard_after_forward=not options["layers_kept"])
            wrapped = fully_shard(model, reshard_after_forward=options["root_freed"])
            units = [model, *model.layers]
            ahead, behind = options["forward_prefetch"], options["backward_prefetch"]
            for place, unit in enumerate(units):
                if ahead and place + 1 < len(units):
                    unit.set_modules_to_forward_prefetch(units[place + 1 : place + 1 + ahead])
                before = units[max(1, place - behind) : place][::-1] if behind and place else []
                if before:
                    unit.set_modules_to_backward_prefetch(before)
            if options["async"]:
                model._set_unshard_async_op(True)  # pylint: disable=protected-access
        return model, wrapped, torch.optim.SGD(wrapped.parameters(), lr=1e-4)

    models = {}

    def micro(wrapped, variant, mode, last):
        rows = torch.ones(4, HIDDEN // 2, requires_grad=True)
        if mode in ("no_sync", "keep"):
            if variant == "ddp":
                wrapped.require_backward_grad_sync = last
            else:
                wrapped.set_requires_gradient_sync(last)
                if mode == "keep":
                    wrapped.set_reshard_after_backward(last)
        wrapped(rows).sum().backward()

    def step(cell):
        variant, mode = cell["variant"], cell["mode"]
        if variant not in models:
            models[variant] = trained(variant)
        model, wrapped, optimizer = models[variant]
        dist.barrier()
        model.sleeps, model.begun = [], time.monotonic()
        planned = cell["planned"][rank]
        for number, times in enumerate(planned):
            model.times = times
            micro(wrapped, variant, mode, number + 1 == len(planned))
        before = model.clock()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        end = model.clock()
        return {
            **{name: cell[name] for name in ("exp", "step", "variant", "mode")}, "rank": rank,
            "start_ms": 1e3 * (model.begun - spec["base"]), "end_ms": end, "opt_ms": end - before,
            "planned": planned, "sleeps": model.sleeps,
        }  # fmt: skip

    def collectives():
        """[name, bytes, milliseconds on this rank after a meeting] of each call."""
        jobs = [(name, size) for name in ("ar_avg", "ag", "rs_avg", "memcpy") for size in SIZES] * SAMPLES
        random.Random(1).shuffle(jobs)
        times = []
        for name, size in jobs:
            whole, part = torch.ones(size // 4), torch.ones(size // 8)
            time.sleep(REST_MS / 1e3)
            if name != "memcpy":
                dist.barrier()
            begin = time.monotonic()
            if name == "ar_avg":
                dist.all_reduce(whole)
                whole /= 2  # DDP's division.
            elif name == "ag":
                dist.all_gather_into_tensor(whole, part)
            elif name == "rs_avg":
                dist.reduce_scatter_tensor(part, whole)
                part /= 2
            else:
                whole.clone()
            times.append([name, size, 1e3 * (time.monotonic() - begin)])
        return times

    out = pathlib.Path(spec["out"])
    rows = [step(cell) for cell in spec["warm_up"]]
    if spec["collectives"]:
        (out / f"collectives{rank}.json").write_text(json.dumps(collectives()), encoding="utf-8")
    rows = [step(cell) for cell in spec["cells"]]
    with open(out / f"{spec['name']}{rank}.jsonl", "w", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
    dist.barrier()
    dist.destroy_process_group()


# ---- the experiment -----------------------------------------------------------------------------


def cells_of(data):
    """The recorded steps' cells in their order, with both ranks' sleeps."""
    files = []
    for rank in (0, 1):
        with gzip.open(data / f"fsdp2/records/sleepy_rank{rank}.jsonl.gz", "rt") as lines:
            files.append([json.loads(line) for line in lines])
    members = ("exp", "step", "variant", "mode")
    return [
        {**{name: pair[0][name] for name in members}, "planned": [row["planned"] for row in pair]}
        for pair in zip(*files)
    ]


def run(name, cells, out, warm_up=(), collectives=False):
    """Runs cells on two ranks. Returns [rank][cell] rows."""
    spec = {
        "name": name, "cells": cells, "warm_up": list(warm_up), "collectives": collectives,
        "out": str(out), "base": time.monotonic(),
    }  # fmt: skip
    path = out / f"{name}_spec.json"
    path.write_text(json.dumps(spec), encoding="utf-8")
    ranks.run(network.Loopback(2), pathlib.Path(__file__), ["--rank", path], out / f"{name}.log", LIMIT_S)
    texts = [(out / f"{name}{rank}.jsonl").read_text(encoding="utf-8") for rank in (0, 1)]
    return [[json.loads(line) for line in text.splitlines()] for text in texts]


def write_tables(out):
    """The slower rank's times by size, as fsdp2_sleepers.py reads them."""
    pairs = zip(*(json.loads((out / f"collectives{rank}.json").read_text("utf-8")) for rank in (0, 1)))
    times = {}
    for (name, size, first), (_, _, second) in pairs:
        times.setdefault((name, size), []).append(max(first, second))
    with open(out / "collectives.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["bytes", "collective", "median_ms", "p10_ms", "p90_ms", "min_ms", "samples"])
        for (name, size), some in sorted(times.items()):
            tenths = statistics.quantiles(some, n=10)
            figures = [statistics.median(some), tenths[0], tenths[-1], min(some)]
            writer.writerow([size, name, *(f"{one:.4f}" for one in figures), len(some)])


def measured_host_ms():
    """What the host takes for units, as stepsim_units.py measures it, but with a rest in each unit as sleeping
    layers have it: behind a rest of 8 ms hooks take twice as long as in a row. Call it in a process of its own."""
    import stepsim_units
    import torch

    class Rest(torch.autograd.Function):
        @staticmethod
        def forward(_, rows):
            time.sleep(REST_MS / 1e3)
            return rows.clone()

        @staticmethod
        def backward(_, gradient):
            time.sleep(REST_MS / 1e3)
            return gradient

    class Unit(stepsim_units.Unit):
        def forward(self, rows):
            return super().forward(Rest.apply(rows))

    stepsim_units.Unit = Unit
    stepsim_units.WORK = 1  # Sleeping layers multiply next to nothing.
    seconds = stepsim_units.measure(lambda some: torch.optim.SGD(some, lr=1e-4), torch.device("cpu"))
    names = {
        "unit_forward_ms": "forward_s", "unit_forward_tensor_ms": "forward_tensor_s",
        "unit_backward_ms": "backward_s", "unit_backward_tensor_ms": "backward_tensor_s",
        "sharded_tensor_ms": "optimizer_tensor_s",
    }  # fmt: skip
    return {name: 1e3 * seconds[own] for name, own in names.items()}


def key_of(cell):
    return cell["exp"], cell["variant"], cell["mode"]


def main():
    if sys.argv[1] == "--rank":
        rank_main(sys.argv[2])
        return
    if sys.argv[1] == "--host":
        print(json.dumps(measured_host_ms()))
        return
    sleepers, data, out = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3]).resolve()
    out.mkdir(parents=True)
    cells = cells_of(data)
    warm_up = [cell for cell in cells if cell["exp"] == "warmup"]
    live = PASSES * [cell for cell in cells if cell["exp"] != "warmup"]
    first = [cell for cell in cells if key_of(cell) == fsdp2_sleepers.CALIBRATION]
    before = run("calibration", first, out, warm_up, collectives=True)
    write_tables(out)
    told = subprocess.run([sys.executable, __file__, "--host"], check=True, capture_output=True, text=True).stdout
    host = json.loads(told.splitlines()[-1])
    tables = fsdp2_sleepers.read_tables(out / "collectives.csv")
    beside = fsdp2_sleepers.beside_sleep(list(zip(*before)))
    jobs = []
    for cell in live:
        rows = [{"planned": planned} for planned in cell["planned"]]
        jobs.append(fsdp2_sleepers.job_of(key_of(cell), rows, tables, beside, host))
    times = fsdp2_sleepers.played(sleepers, jobs)
    told = {"host": host, "beside": beside, "tables": tables, "predicted_ms": times}
    (out / "predictions.json").write_text(json.dumps(told, indent=1), encoding="utf-8")
    print(f"predicted at {time.strftime('%H:%M:%S')}; live", flush=True)
    cells = {}
    for cell, predicted, *rows in zip(live, times, *run("live", live, out, warm_up)):
        both = cells.setdefault(key_of(cell), ([], []))
        both[0].append(predicted)
        both[1].append(fsdp2_sleepers.measured_ms(rows))
    fsdp2_sleepers.report([(key, statistics.fmean(p), None, m) for key, (p, m) in cells.items()])


if __name__ == "__main__":
    main()
