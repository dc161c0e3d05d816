#!/usr/bin/env python3
"""Trains with DDP's default of 25 MiB, the best cap and the best list of limits, predicted before.

    sudo /usr/bin/python3 tests/live/bucket_list.py --build build [--work FOLDER] [--out REPORT.md]

Two ranks in network namespaces whose links are limited, so root is needed. The reducer is written by
hand after DDP's: hooks copy each gradient into its bucket, a bucket closes when its size reaches its
limit, and full buckets are all-reduced one after another by a thread, as NCCL's stream does. The device
is a sleep of each layer's backward, so that it takes no processor from the all-reduces, and a sleep before
each all-reduce is the latency of a large cluster; gradients, copies, transfers (gloo) and the optimizer are
real.

First the times of the passes (without communication) and of single all-reduces are measured, then
`stepsim buckets --best` predicts and chooses, and then the three settings train by turns in blocks of
4 steps, of which the first is left out.
"""

import argparse
import datetime
import json
import os
import pathlib
import queue
import random
import statistics
import subprocess
import threading
import time

import network
import ranks

KIB = 1024
# Bytes of each tensor in order of registration, and seconds of its backward: few bytes and much work
# early in the model, the other way round late, as in convolutional networks.
TENSORS = (
    [(256 * KIB, 0.016)] * 6 + [(1024 * KIB, 0.010)] * 6 + [(3072 * KIB, 0.005)] * 6 + [(6144 * KIB, 0.002)] * 3
)
FORWARD_S = 0.040
BITS_PER_SECOND = 3.2e9
LATENCY_S = 0.006  # Slept before each all-reduce: two ranks have none of a large cluster's latency.
SIZES = [KIB << shift for shift in (6, 8, 10, 11, 12, 13, 14, 15, 16)]
REPEATS = 9
STEPS = 12  # Of the measurement of the passes.
BLOCK = 4
LIMIT_S = 400


def buckets_of(limits):
    """Returns the lists of tensors that DDP's rule makes in ready order, the last one first."""
    made, filling, filled, used = [], [], 0, 0
    for index in reversed(range(len(TENSORS))):
        filling.append(index)
        filled += TENSORS[index][0]
        if filled >= limits[min(used, len(limits) - 1)]:
            made.append(filling)
            filling, filled, used = [], 0, used + 1
    return made + [filling] if filling else made


def all_reduce(dist, data):
    time.sleep(LATENCY_S)
    dist.all_reduce(data)


class Reducer:
    """Gradients in flat buckets; a thread reduces the buckets in the order in which they fill."""

    def __init__(self, parameters, limits, dist):
        import torch

        self.dist = dist  # None: nothing is sent.
        self.ready_at = []
        self.views, self.bucket_of = {}, {}
        self.flat, self.sizes = [], []
        for number, tensors in enumerate(buckets_of(limits)):
            flat = torch.zeros(sum(parameters[index].numel() for index in tensors))
            begin = 0
            for index in tensors:
                count = parameters[index].numel()
                self.views[index] = flat[begin : begin + count]
                self.bucket_of[index] = number
                begin += count
            self.flat.append(flat)
            self.sizes.append(len(tensors))
        self.queue = queue.Queue()
        threading.Thread(target=self.reduce, daemon=True).start()

    def reduce(self):
        while True:
            all_reduce(self.dist, self.flat[self.queue.get()])
            self.queue.task_done()

    def begin(self):
        self.missing = list(self.sizes)
        self.ready_at = []

    def ready(self, index, gradient):
        self.views[index].copy_(gradient)
        bucket = self.bucket_of[index]
        self.missing[bucket] -= 1
        self.ready_at.append(time.perf_counter())
        if self.dist is not None and self.missing[bucket] == 0:
            self.queue.put(bucket)

    def wait(self):
        if self.dist is not None:
            self.queue.join()


class Training:
    def __init__(self):
        import torch

        class Layer(torch.autograd.Function):
            """Passes its input on; its backward takes as long as it is told."""

            @staticmethod
            def forward(context, value, parameter, index):
                context.index = index
                return value + parameter[0]

            @staticmethod
            def backward(context, gradient):
                time.sleep(TENSORS[context.index][1])
                self.gradients[context.index].fill_(float(gradient))
                return gradient, self.gradients[context.index], None

        torch.manual_seed(1)
        self.layer = Layer.apply
        self.parameters = [torch.zeros(size // 4, requires_grad=True) for size, _ in TENSORS]
        self.gradients = [torch.zeros(size // 4) for size, _ in TENSORS]
        self.reducer = None
        for index, parameter in enumerate(self.parameters):
            parameter.register_hook(lambda gradient, index=index: self.reducer.ready(index, gradient))
        self.value = torch.ones(())

    def step(self):
        """Returns the times when the step began, its backward, each gradient, its optimizer, its end."""
        import torch

        began = time.perf_counter()
        self.reducer.begin()
        time.sleep(FORWARD_S)
        value = self.value
        for index, parameter in enumerate(self.parameters):
            value = self.layer(value, parameter, index)
        backward = time.perf_counter()
        value.backward()
        self.reducer.wait()
        reduced = time.perf_counter()
        with torch.no_grad():
            for index, parameter in enumerate(self.parameters):
                parameter.add_(self.reducer.views[index], alpha=-1e-9)
                parameter.grad = None
        return began, backward, self.reducer.ready_at, reduced, time.perf_counter()


def measure_parts(dist):
    """Returns seconds of the forward, of each tensor's backward, of the optimizer, and of all-reduces."""
    import torch

    training = Training()
    training.reducer = Reducer(training.parameters, [1], None)
    forward, optimizer, backward = [], [], []
    for _ in range(STEPS):
        began, passed, ready, reduced, ended = training.step()
        forward.append(passed - began)
        optimizer.append(ended - reduced)
        backward.append([after - before for before, after in zip([passed, *ready], ready)])
    reduce = {}
    for size in SIZES:
        data = torch.zeros(size // 4)
        times = []
        for _ in range(REPEATS):
            dist.barrier()
            began = time.perf_counter()
            all_reduce(dist, data)
            times.append(time.perf_counter() - began)
        reduce[size] = statistics.median(times[1:])
    each = [statistics.median(times) for times in zip(*backward[1:])]
    return {"forward": statistics.median(forward[1:]), "optimizer": statistics.median(optimizer[1:]),
            "backward": list(reversed(each)), "all_reduce": reduce}  # fmt: skip


def rank_main(out, settings, blocks):
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=120))
    if settings is None:
        result = measure_parts(dist)
    else:
        training = Training()
        reducers = {name: Reducer(training.parameters, limits, dist) for name, limits in settings.items()}
        turns = [name for _ in range(blocks) for name in settings]
        random.Random(7).shuffle(turns)
        result = {name: [] for name in settings}
        for turn, name in enumerate([*settings, *turns]):
            training.reducer = reducers[name]
            for step in range(BLOCK):
                times = training.step()
                if step > 0 and turn >= len(settings):
                    result[name].append(times[-1] - times[0])
    if dist.get_rank() == 0:
        pathlib.Path(out).write_text(json.dumps(result))
    dist.barrier()
    os._exit(0)  # The threads of the reducers wait for buckets.


def run_ranks(work, name, arguments):
    out = work / f"{name}.json"
    with network.Network(2, BITS_PER_SECOND) as net:
        ranks.run(net, __file__, ["--rank", out, *arguments], out.with_suffix(".log"), LIMIT_S)
    return json.loads(out.read_text())


def write_scenario(work, parts):
    rows = [f"t{i},{TENSORS[i][0] // 4},1,{round(1e9 * seconds)}" for i, seconds in enumerate(parts["backward"])]
    (work / "tensors.csv").write_text("\n".join(["name,shape,forward,backward", *rows]) + "\n")
    sizes = ", ".join(f'"{size} B"' for size in SIZES)
    times = ", ".join(f'"{1e3 * parts["all_reduce"][str(size)]:.4f} ms"' for size in SIZES)
    (work / "scenario.toml").write_text(f"""[scenario]
name = "bucket_list"
steps = 6
warmup_steps = 2
[cluster]
ranks = 2
all_reduce = {{ sizes = [{sizes}], times = [{times}] }}
[times]
forward = "{1e3 * parts['forward']:.4f} ms"
backward = "{1e3 * sum(parts['backward']):.4f} ms"
optimizer = "{1e3 * parts['optimizer']:.4f} ms"
[model]
kind = "blocks"
tensors = "tensors.csv"
[ddp]
torch = "newest"
gradient_as_bucket_view = true
[data]
samples = 256
lengths = {{ constant = 1 }}
[[policy]]
name = "fixed"
kind = "fixed"
batch_size = 4
""")


def utc():
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")


def report(best, live, times):
    lines = [
        "# A list of limits, predicted and trained",
        "",
        f"Written by `tests/live/bucket_list.py`, {times['measured_from'][:10]}: two ranks, links of "
        f"{BITS_PER_SECOND / 1e6:.0f} Mbit/s and {1e3 * LATENCY_S:.0f} ms of latency added, {sum(size for size, _ in TENSORS) / 2**20:.1f} MiB of gradients in "
        f"{len(TENSORS)} tensors, a device that sleeps, hand-written reducer over gloo. Predicted at "
        f"{times['predicted_at']}, trained from {times['measured_from']} to {times['measured_to']}, by turns in blocks of "
        f"{BLOCK} steps. Load of the machine (1 minute) before and after: {times['load_before']:.2f}, {times['load_after']:.2f}.",
        "",
        "| setting | buckets | predicted ms | measured ms | error | standard error ms | steps |",
        "|---|---|---|---|---|---|---|",
    ]  # fmt: skip
    mean = {name: 1e3 * statistics.fmean(live[name]) for name in live}
    for name in live:
        choice, steps = best[name], live[name]
        error = 1e3 * statistics.stdev(steps) / len(steps) ** 0.5
        lines.append(
            f"| `{choice['python']}` | {choice['buckets']} | {choice['step_ms']:.2f} | {mean[name]:.2f} | "
            f"{100 * (choice['step_ms'] / mean[name] - 1):+.1f} % | {error:.2f} | {len(steps)} |"
        )
    lines.append("")
    for name, over in (("best_cap", "default"), ("best_list", "default"), ("best_list", "best_cap")):
        predicted = best[over]["step_ms"] / best[name]["step_ms"] - 1
        lines.append(
            f"- {name} over {over}: predicted {100 * predicted:+.1f} %, measured "
            f"{100 * (mean[over] / mean[name] - 1):+.1f} %".replace("_", " ")
        )
    return "\n".join(lines) + "\n"


def trial(build, work, blocks):
    times = {"load_before": os.getloadavg()[0]}
    write_scenario(work, run_ranks(work, "parts", []))
    command = [build / "sim" / "stepsim", "buckets", work / "scenario.toml", "--best", "--json", work / "predicted.json"]
    subprocess.run([*map(str, command), "--quiet"], check=True)
    times["predicted_at"] = utc()
    best = json.loads((work / "predicted.json").read_text())
    settings = {name: best[name]["limits_bytes"] for name in ("default", "best_cap", "best_list")}
    for name, limits in settings.items():
        if len(buckets_of(limits)) != best[name]["buckets"]:
            raise RuntimeError(f"{name}: {len(buckets_of(limits))} buckets, not {best[name]['buckets']}")
    times["measured_from"] = utc()
    live = run_ranks(work, "live", ["--settings", json.dumps(settings), "--blocks", blocks])
    times.update(measured_to=utc(), load_after=os.getloadavg()[0])
    return report(best, live, times)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--build", type=pathlib.Path, help="folder of the build")
    parser.add_argument("--work", type=pathlib.Path, default=pathlib.Path("bucket_list"))
    parser.add_argument("--out", type=pathlib.Path, help="where the report goes; the terminal")
    parser.add_argument("--blocks", type=int, default=12, help="of each setting")
    parser.add_argument("--rank", help=argparse.SUPPRESS)
    parser.add_argument("--settings", type=json.loads, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank:
        rank_main(options.rank, options.settings, options.blocks)
        return
    reason = network.missing()
    if reason or options.build is None:
        parser.error(reason or "give --build")
    options.work.mkdir(parents=True, exist_ok=True)
    text = trial(options.build.resolve(), options.work.resolve(), options.blocks)
    if options.out:
        options.out.write_text(text)
    else:
        print(text, end="")


if __name__ == "__main__":
    main()
