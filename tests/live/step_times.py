#!/usr/bin/env python3
"""Times five steps of real PyTorch DDP, predicts seven others from them, and then times those.

    sudo /usr/bin/python3 tests/live/step_times.py --build build [--work FOLDER] [--out REPORT.md]

One rank, two ranks on a fast network (a node) and two on a slow one (two nodes), batches of 4 to 32:
twelve rows. Both networks are namespaces with a limit on what they send, so root is needed. Batches
take turns in blocks of 4 steps. The five rows are timed again with the others, which shows how far the
machine drifted between the prediction and its measurement.
"""

import argparse
import datetime
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import time

import network
import ranks

MODEL = {"hidden": 256, "heads": 4, "ffn": 1024, "layers": 4, "vocab": 2000, "classes": 4}
LENGTH = 48
BUCKET_MIB = 4
NETWORKS = {"1": (1, None), "2": (2, 1600e6), "1+1": (2, 400e6)}  # Ranks, bits a second.
BATCHES = (4, 8, 16, 32)
TIMED = (("1", 4), ("1", 32), ("2", 4), ("2", 32), ("1+1", 16))
BLOCK = 4
LIMIT_S = 600


def train(out, batches, blocks, seed):
    """One rank: trains in blocks of steps, the batches by turns, and writes rank 0's step times."""
    import torch
    import torch.distributed as dist
    from models import TokenClassifier

    torch.set_num_threads(1)
    torch.manual_seed(1)
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    model = TokenClassifier(MODEL)
    if rank == 0:
        lines = ["name,shape"]
        lines += [f"{name},{'x'.join(map(str, p.shape))}" for name, p in model.named_parameters()]
        pathlib.Path(out).with_suffix(".tensors.csv").write_text("\n".join(lines) + "\n")
    if world > 1:
        dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=120))
        model = torch.nn.parallel.DistributedDataParallel(model, bucket_cap_mb=BUCKET_MIB)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6)
    inputs = {
        batch: (
            torch.randint(0, MODEL["vocab"], (batch, LENGTH)),
            torch.ones(batch, LENGTH),
            torch.zeros(batch, dtype=torch.long),
        )
        for batch in batches
    }
    turns = [batch for _ in range(blocks) for batch in batches]
    random.Random(seed).shuffle(turns)
    times = {batch: [] for batch in batches}
    for turn, batch in enumerate([*batches, *turns]):
        for step in range(BLOCK):
            started = time.perf_counter()
            loss = model(*inputs[batch])
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            if step > 0 and turn >= len(batches):  # Neither warm-up nor the change of batches.
                times[batch].append(time.perf_counter() - started)
    if rank == 0:
        pathlib.Path(out).write_text(json.dumps(times))
    if world > 1:
        dist.barrier()
        dist.destroy_process_group()


def measured(work, name, rows, blocks):
    """Returns {(placement, batch): seconds of every step}, each placement in processes of its own."""
    result = {}
    for placement, (count, rate) in NETWORKS.items():
        batches = [batch for own, batch in rows if own == placement]
        if not batches:
            continue
        out = work / f"{name}_{placement}.json"
        arguments = ["--train", out, "--batches", ",".join(map(str, batches)), "--blocks", blocks]
        with network.Network(count, rate) as net:
            ranks.run(net, pathlib.Path(__file__), arguments, out.with_suffix(".log"), LIMIT_S)
        for batch, times in json.loads(out.read_text()).items():
            result[placement, int(batch)] = times
    return result


def table(path, times):
    lines = ["placement,batch,length,step_s,sd_s,repeats"]
    for (placement, batch), steps in sorted(times.items()):
        mean, spread = statistics.fmean(steps), statistics.stdev(steps)
        lines.append(f"{placement},{batch},{LENGTH},{mean:.6f},{spread:.6f},{len(steps)}")
    path.write_text("\n".join(lines) + "\n")


def tool(program, *arguments):
    done = subprocess.run(
        [str(program), *map(str, arguments)], check=False, capture_output=True, text=True
    )
    if done.returncode not in (0, 1):
        raise RuntimeError(f"{program}: {done.stderr}")
    return done.stdout


def utc():
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")


def trial(build, work, blocks):
    rows = [(placement, batch) for placement in NETWORKS for batch in BATCHES]
    first = measured(work, "timed", TIMED, blocks)
    table(work / "timed.csv", first)
    imported = tool(
        build / "calibrate" / "stepcal", "import", "step-times", work / "timed.csv",
        "--tensors", work / "timed_1.tensors.csv", "--bucket-cap", f"{BUCKET_MIB} MiB",
        "--out", work / "job.json", "--scenario", work / "job.toml",
    )  # fmt: skip
    asked = {row: [1.0, 1.0] for row in rows if row not in TIMED}
    table(work / "asked.csv", asked)
    predicted_at = utc()
    tool(
        build / "sim" / "stepsim", "validate", work / "job.toml", "--step-times",
        work / "asked.csv", "--json", work / "predicted.json",
    )  # fmt: skip
    predicted = json.loads((work / "predicted.json").read_text())["rows"]
    measured_from = utc()
    second = measured(work, "all", rows, blocks)
    return imported, first, predicted, second, predicted_at, measured_from


def report(imported, first, predicted, second, predicted_at, measured_from):
    drift = {row: statistics.fmean(second[row]) / statistics.fmean(first[row]) for row in TIMED}
    lines = [
        "# Five timed steps, seven predicted",
        "",
        f"Real PyTorch DDP (gloo) by `tests/live/step_times.py`; predicted {predicted_at}, measured "
        f"from {measured_from} on.",
        "2 is two ranks on a network of 1.6 Gbit/s, 1+1 on one of 0.4 Gbit/s.",
        "",
        "| row | measured ms | predicted ms | 90 % interval | error | in interval |",
        "|---|---|---|---|---|---|",
    ]
    errors, inside = [], 0
    for row in predicted:
        real = statistics.fmean(second[row["placement"].replace("2x1", "1+1"), row["batch"]])
        error = row["predicted_s"] / real - 1
        low, high = row["interval90_s"]
        covered = low <= real <= high
        errors.append(abs(error))
        inside += covered
        lines.append(
            f"| {row['placement'].replace('2x1', '1+1')}, batch {row['batch']} | {1e3 * real:.1f} | "
            f"{1e3 * row['predicted_s']:.1f} | {1e3 * low:.1f} to {1e3 * high:.1f} | "
            f"{100 * error:+.1f} % | {'yes' if covered else 'no'} |"
        )
    lines += [
        "",
        f"Mean |error| {100 * statistics.fmean(errors):.1f} %, {inside} of {len(errors)} in the "
        "interval. The five rows, timed again with the others, took",
        ", ".join(f"{place}, {batch}: {100 * (x - 1):+.1f} %" for (place, batch), x in drift.items())
        + " of their first time: the machine's drift.",
        "",
        "```",
        imported.strip(),
        "```",
    ]
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--build", type=pathlib.Path, default="build")
    parser.add_argument("--work", type=pathlib.Path, default="step_times_work")
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--blocks", type=int, default=12, help="blocks of 4 steps for each batch")
    parser.add_argument("--train", type=pathlib.Path, help=argparse.SUPPRESS)
    parser.add_argument("--batches", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.train:
        batches = [int(batch) for batch in options.batches.split(",")]
        train(options.train, batches, options.blocks, seed=1)
        return
    missing = network.missing()
    if missing:
        sys.exit(f"network namespaces: {missing}")
    options.work.mkdir(parents=True, exist_ok=True)
    work = options.work.resolve()
    text = report(*trial(options.build.resolve(), work, options.blocks))
    print(text)
    if options.out:
        options.out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
