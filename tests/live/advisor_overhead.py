#!/usr/bin/env python3
"""Measures what stepsim.torch.Advisor costs a training: two ranks over gloo, in one process a rank,
by turns in blocks of 4 steps.

    PYTHONPATH=build/sim/python /usr/bin/python3 tests/live/advisor_overhead.py [OPTIONS]

Each arm has a DistributedDataParallel of its own around the same model: without anything (twice, so
that the second shows what chance does), while steps are recorded, and after the recording has
ended; the latter two with and without the communication hook that records bucket times.
"""

import argparse
import json
import os
import pathlib
import random
import statistics
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "live")]

import network  # noqa: E402
import plain  # noqa: E402
import ranks  # noqa: E402

BLOCK = 4
LENGTHS = [128] * 32
ARMS = {
    "without, again": None,
    "recording": {"steps": 10**9},
    "after the recording": {"steps": 8},
    "recording, no bucket times": {"steps": 10**9, "bucket_times": False},
    "after it, no bucket times": {"steps": 8, "bucket_times": False},
}


# ---- one rank -------------------------------------------------------------------------------


class Arm:
    def __init__(self, options, folder, width, layers):
        import torch
        from stepsim.torch import Advisor

        torch.manual_seed(1)
        model = torch.nn.Sequential(*[torch.nn.Linear(width, width) for _ in range(layers)])
        self.ddp = torch.nn.parallel.DistributedDataParallel(model)
        self.optimizer = torch.optim.SGD(self.ddp.parameters(), lr=1e-9)
        self.advisor = plain.Plain()
        if options is not None:
            self.advisor = Advisor(
                self.ddp, self.optimizer, out_dir=folder, report=False, all_reduce_seconds=0.1,
                **options,
            )

    def steps(self, batch, count):
        """Returns the seconds of each step, from the end of the one before, and the processor
        seconds of this rank in all of them."""
        marks, start = [time.perf_counter()], time.process_time()
        for _ in range(count):
            with self.advisor.step(lengths=LENGTHS):
                self.optimizer.zero_grad()
                loss = self.ddp(batch).square().mean()
                self.advisor.backward(loss)
                self.optimizer.step()
            marks.append(time.perf_counter())
        return [end - begin for begin, end in zip(marks, marks[1:])], time.process_time() - start


def rank_main(options):
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    arms = {"without": Arm(None, None, options.width, options.layers)}
    for name, given in ARMS.items():
        folder = f"{options.train}/{name.replace(' ', '_')}"
        arms[name] = Arm(given, folder, options.width, options.layers)

    def batch_of(rows):
        return torch.randn(rows, options.width)

    def step_s(count):
        return statistics.median(arms["without"].steps(batch_of(count), 12)[0])

    few = step_s(64)
    row_s = (step_s(512) - few) / (512 - 64)
    rows = torch.tensor([max(1, 64 + int((options.step_ms / 1e3 - few) / row_s))])
    dist.broadcast(rows, 0)
    batch = batch_of(int(rows))
    for arm in arms.values():
        arm.steps(batch, 10)
    for name, given in ARMS.items():  # No advice is being made while steps are timed.
        if given and given["steps"] == 8:
            arms[name].advisor.result(timeout=100)
            assert dist.get_rank() != 0 or arms[name].advisor.error is None
    dist.barrier()
    taken = {name: [] for name in arms}
    names = list(arms)
    for cycle in range(options.cycles):
        shift = cycle % len(names)
        for name in names[shift:] + names[:shift]:
            taken[name].append(arms[name].steps(batch, BLOCK))
    assert arms["recording"].advisor._recorder.recording
    if dist.get_rank() == 0:
        gradients = sum(4 * one.numel() for one in arms["without"].ddp.parameters())
        told = {"taken": taken, "gradient_bytes": gradients, "rows": int(rows)}
        pathlib.Path(options.train, "taken.json").write_text(json.dumps(told), encoding="utf-8")
    dist.barrier()
    os._exit(0)  # Two of the arms still record; nothing is to be made of that.


# ---- all ranks ------------------------------------------------------------------------------


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--step-ms", type=float, default=50.0)
    parser.add_argument("--cycles", type=int, default=200, help="blocks of 4 steps for each arm")
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--train", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.train:
        rank_main(options)
        return
    with tempfile.TemporaryDirectory() as folder:
        arguments = [*sys.argv[1:], "--train", folder]
        ranks.run(network.Loopback(2), pathlib.Path(__file__), arguments, f"{folder}/log", 560)
        told = json.loads(pathlib.Path(folder, "taken.json").read_text(encoding="utf-8"))
    taken = told["taken"]
    plain = taken.pop("without")
    print(f"{told['gradient_bytes'] / 1e6:.1f} MB of gradients, {options.cycles} blocks of {BLOCK} "
          f"steps for each arm; without: median {1e3 * median_step(plain):.2f} ms a step")
    print("| arm | median step, to `without` | 90 % of resampled blocks | quartiles of blocks | "
          "processor time |")
    print("| --- | --- | --- | --- | --- |")
    for name, blocks in taken.items():
        low, high = resampled(blocks, plain)
        ratios = [100 * (sum(a[0]) / sum(b[0]) - 1) for a, b in zip(blocks, plain)]
        first, _, third = statistics.quantiles(ratios, n=4)
        middle = 100 * (median_step(blocks) / median_step(plain) - 1)
        cpu = 100 * (sum(one[1] for one in blocks) / sum(one[1] for one in plain) - 1)
        print(f"| {name} | {middle:+.2f} % | {low:+.2f} to {high:+.2f} % | "
              f"{first:+.2f} to {third:+.2f} % | {cpu:+.2f} % |")


def median_step(blocks):
    return statistics.median(step for steps, _ in blocks for step in steps)


def resampled(blocks, plain, draws=400):
    """Returns the 5 % and 95 % quantiles of the ratio of the medians, less 1, in percent."""
    draw = random.Random(1)
    pairs = list(zip(blocks, plain))
    ratios = []
    for _ in range(draws):
        some = draw.choices(pairs, k=len(pairs))
        ratio = median_step([a for a, _ in some]) / median_step([b for _, b in some])
        ratios.append(100 * (ratio - 1))
    ratios.sort()
    return ratios[draws // 20], ratios[-draws // 20]


if __name__ == "__main__":
    main()
