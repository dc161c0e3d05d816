#!/usr/bin/env python3
"""Lets stepsim.torch.Advisor recommend a bucket size to a real training over a slowed link, and
then measures what that gains.

    sudo PYTHONPATH=build/sim/python /usr/bin/python3 tests/live/advisor.py [OPTIONS]

Two ranks over gloo, each in a network namespace that sends at most so much that all-reduces would
take 60 % of a step without overlap. In one process a rank: a training with bucket_cap_mb=25 and the
Advisor goes on until the advice is there, which is written down; then fresh models of the same
start train with 25 MiB and with the recommended size by turns in blocks of 4 steps, without an
Advisor. Prints a report.
"""

import argparse
import datetime
import json
import os
import pathlib
import platform
import random
import shutil
import statistics
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "live")]

import campaign  # noqa: E402
import network  # noqa: E402
import plain  # noqa: E402
import ranks  # noqa: E402

# 45 MB of gradients, most of them in blocks that compute equally long.
MODEL = {"hidden": 512, "heads": 8, "ffn": 2048, "layers": 3, "vocab": 3500, "classes": 8}
BATCH = 3
LENGTHS = (16, 64)
SHARE = 0.6  # Of all-reduces in a step without overlap.
OWN_CAP_MIB = 25
BLOCK = 4
LIMIT_S = 570


# ---- one rank -------------------------------------------------------------------------------


class Training:
    """A model with an optimizer; in DDP where a bucket size is given."""

    def __init__(self, cap_mib=None):
        import models
        import torch

        torch.manual_seed(1)
        self.model = models.TokenClassifier(MODEL)
        self.gradient_bytes = sum(4 * one.numel() for one in self.model.parameters())
        if cap_mib is not None:
            self.model = torch.nn.parallel.DistributedDataParallel(
                self.model, bucket_cap_mb=cap_mib
            )
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-5)
        self.advisor = plain.Plain()

    def step(self, draw):
        import torch

        lengths = [draw.randint(*LENGTHS) for _ in range(BATCH)]
        tokens = torch.randint(0, MODEL["vocab"], (BATCH, max(lengths)))
        mask = (torch.arange(max(lengths))[None] < torch.tensor(lengths)[:, None]).float()
        labels = torch.randint(0, MODEL["classes"], (BATCH,))
        with self.advisor.step(lengths=lengths):
            self.optimizer.zero_grad(set_to_none=True)
            self.advisor.backward(self.model(tokens, mask, labels))
            self.optimizer.step()

    def block(self, seed, steps=BLOCK):
        """Returns the seconds of a step, over so many. The seed makes the batches."""
        draw = random.Random(1000 * seed + int(os.environ["RANK"]))
        start = time.perf_counter()
        for _ in range(steps):
            self.step(draw)
        return (time.perf_counter() - start) / steps


def utc():
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")


def compute(folder):
    """Times steps without communication, on both ranks at once."""
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    training = Training()
    training.block(0, 8)
    dist.barrier()
    seconds = torch.tensor([training.block(1, 24)], dtype=torch.float64)
    dist.all_reduce(seconds)
    if dist.get_rank() == 0:
        told = {"step_s": float(seconds) / 2, "gradient_bytes": training.gradient_bytes}
        (folder / "compute.json").write_text(json.dumps(told), encoding="utf-8")
    dist.barrier()


def advised(folder, steps):
    """Trains until there is an advice. Returns that training and the recommended size in MiB, the
    same on all ranks."""
    import torch
    import torch.distributed as dist
    from stepsim.torch import Advisor

    training = Training(OWN_CAP_MIB)
    training.advisor = advisor = Advisor(
        training.model, training.optimizer, steps=steps, out_dir=folder / "advice"
    )
    start, count = time.perf_counter(), 0
    ready = torch.zeros(1)
    while not ready and count < 400:
        training.block(count, 1)
        count += 1
        ready.fill_(advisor.advice is not None or advisor.error is not None)
        dist.broadcast(ready, 0)
    cap = torch.tensor([OWN_CAP_MIB << 20])
    if dist.get_rank() == 0:
        if advisor.advice is None:
            raise RuntimeError(advisor.error or "no advice after 400 steps")
        options = [vars(one) for one in advisor.advice.options]
        for one in options:
            if one["change"] == "other bucket cap":
                cap.fill_(one["bucket_cap"])
        told = {"at": utc(), "steps": count, "seconds": time.perf_counter() - start,
                "options": options, "policy": advisor.advice.policy,
                "caps": advisor.advice.bucket_cap["caps"]}
        (folder / "predicted.json").write_text(json.dumps(told, indent=1), encoding="utf-8")
    advisor.close()
    dist.broadcast(cap, 0)
    return training, int(cap) / (1 << 20)


def train(folder, steps, blocks):
    import torch.distributed as dist

    dist.init_process_group("gloo")
    with_hook, cap = advised(folder, steps)
    arms = {"own": Training(OWN_CAP_MIB), "recommended": Training(cap), "after": with_hook}
    dist.barrier()
    time.sleep(1.5)  # File times are compared in whole seconds.
    began = utc()
    for arm in arms.values():
        arm.block(0, 4)  # DDP rebuilds its buckets after the first step.
    taken = {name: [] for name in arms}
    names = list(arms)
    for number in range(blocks):
        shift = number % len(names)
        for name in names[shift:] + names[:shift]:
            taken[name].append(arms[name].block(1 + number))
    if dist.get_rank() == 0:
        told = {"began": began, "cap_mib": cap, "taken": taken}
        (folder / "measured.json").write_text(json.dumps(told), encoding="utf-8")
    dist.barrier()


# ---- all ranks ------------------------------------------------------------------------------


def read(path):
    return json.loads(path.read_text(encoding="utf-8"))


def interval_of_gain(first, second, draws=2000):
    """Returns what the second gains over the first in steps/s, as (gain, low, high): 90 % of
    resampled pairs of blocks."""
    draw = random.Random(1)
    gain = sum(first) / sum(second) - 1
    pairs = list(zip(first, second))
    gains = []
    for _ in range(draws):
        some = draw.choices(pairs, k=len(pairs))
        gains.append(sum(a for a, _ in some) / sum(b for _, b in some) - 1)
    gains.sort()
    return gain, gains[draws // 20], gains[-draws // 20]


def stamp(path):
    time_ = datetime.datetime.fromtimestamp(path.stat().st_mtime, datetime.timezone.utc)
    return time_.isoformat(timespec="seconds")


def report(folder, load):
    calm, predicted, measured = (
        read(folder / f"{name}.json") for name in ("compute", "predicted", "measured")
    )
    rate = calm["rate"] / 1e6
    taken = measured["taken"]
    now, *others = predicted["options"]
    cap = next((one for one in others if one["change"] == "other bucket cap"), now)
    gain, low, high = interval_of_gain(taken["own"], taken["recommended"])
    hook, hook_low, hook_high = interval_of_gain(taken["own"], taken["after"])
    ms = {name: 1e3 * statistics.fmean(values) for name, values in taken.items()}
    inside = cap["gain_interval90"][0] <= gain <= cap["gain_interval90"][1]
    model = ", ".join(f"{name} {value}" for name, value in MODEL.items())
    lines = [
        f"Machine: {platform.platform()}, {os.cpu_count()} cores; {utc()[:10]}. Model: "
        f"TokenClassifier of tests/live/models.py ({model}), batches of {BATCH} samples of {LENGTHS[0]} to "
        f"{LENGTHS[1]} tokens,",
        f"{calm['gradient_bytes'] / 1e6:.1f} MB of gradients; {1e3 * calm['step_s']:.0f} ms a step "
        f"without communication, links of {rate:.0f} Mbit/s, by which all-reduces would take "
        f"{100 * SHARE:.0f} % of a step without overlap.",
        f"The advice was there after {predicted['steps']} steps and {predicted['seconds']:.0f} s. "
        f"Prediction written {stamp(folder / 'predicted.json')} (the advice "
        f"{stamp(folder / 'advice' / 'advice.json')}), timed run from {measured['began']}.",
        f"{len(taken['own'])} blocks of {BLOCK} steps for each; other work kept {load:.2f} "
        "processors busy in all.",
        "",
        "| | predicted | 90 % interval | measured | 90 % of resampled blocks |",
        "| --- | --- | --- | --- | --- |",
        f"| step with {OWN_CAP_MIB} MiB, ms | {now['step_ms']:.1f} | "
        f"{now['interval90_ms'][0]:.1f} to {now['interval90_ms'][1]:.1f} | {ms['own']:.1f} | |",
        f"| step with {measured['cap_mib']:g} MiB (recommended), ms | {cap['step_ms']:.1f} | "
        f"{cap['interval90_ms'][0]:.1f} to {cap['interval90_ms'][1]:.1f} | "
        f"{ms['recommended']:.1f} | |",
        f"| gain of it in tokens/s | {100 * cap['gain']:+.1f} % | "
        f"{100 * cap['gain_interval90'][0]:+.1f} to {100 * cap['gain_interval90'][1]:+.1f} % | "
        f"{100 * gain:+.1f} % | {100 * low:+.1f} to {100 * high:+.1f} % |",
        "",
        f"Verdict of the advice: {cap['verdict']}. The measured gain is "
        f"{'inside' if inside else 'outside'} the predicted interval. With the hook that the "
        f"Advisor leaves behind, a step with {OWN_CAP_MIB} MiB took {ms['after']:.1f} ms, so that it loses "
        f"{-100 * hook:+.1f} % ({-100 * hook_high:+.1f} to {-100 * hook_low:+.1f} %).",
        "",
        f"Predicted steps of {predicted['policy']} by bucket size, ms: "
        + ", ".join(
            f"{one['bucket_cap'] / 2**20:g} MiB {one['step_time_ms']:.1f}"
            for one in predicted["caps"]
            if "step_time_ms" in one
        )
        + ".",
    ]
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--work", type=pathlib.Path, default="advisor_work")
    parser.add_argument("--steps", type=int, default=48, help="steps that the Advisor records")
    parser.add_argument("--blocks", type=int, default=60, help="blocks of 4 steps for each size")
    parser.add_argument("--rank", choices=["compute", "train"], help=argparse.SUPPRESS)
    options = parser.parse_args()
    folder = options.work.resolve()
    if options.rank:
        import torch

        torch.set_num_threads(1)
        if options.rank == "compute":
            compute(folder)
        else:
            train(folder, options.steps, options.blocks)
        return
    missing = network.missing()
    if missing:
        sys.exit(f"network namespaces: {missing}")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    before = campaign.processor_s()
    same = [f"--{name}={getattr(options, name)}" for name in ("work", "steps", "blocks")]

    def run(net, what):
        log = folder / f"{what}.log"
        ranks.run(net, pathlib.Path(__file__).resolve(), ["--rank", what, *same], log, LIMIT_S)

    run(network.Loopback(2), "compute")
    calm = read(folder / "compute.json")
    calm["rate"] = campaign.link_rate(SHARE, calm["gradient_bytes"], calm["step_s"], 2)
    (folder / "compute.json").write_text(json.dumps(calm), encoding="utf-8")
    with network.Network(2, calm["rate"]) as net:
        run(net, "train")
    print(report(folder, campaign.other_load(before, campaign.processor_s())))


if __name__ == "__main__":
    main()
