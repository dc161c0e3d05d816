#!/usr/bin/env python3
"""Predicts FSDP2's steps of one batching policy from the DDP steps of the others.

usage: fsdp2_records.py STEPCAL STEPSIM [DATA]

DATA/fsdp2 (else that of STEPSIM_DATA) holds steps of a small transformer under PyTorch 2.15, two ranks
over gloo on a busy machine: DDP and three ways of fully_shard by turns in one process group, four
policies of 52 steps. Each policy in turn is left out: the DDP steps of the other three make a profile,
with the table of gloo's collectives as its base, and the batches of the fourth are predicted.
FSDP2.md has the results, and the rules by which busy ranks meet.
"""

import collections
import csv
import gzip
import json
import math
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

KINDS = {"all_reduce": "ar_avg", "all_gather": "ag", "reduce_scatter": "rs_avg"}
EMBEDDINGS = ("emb", "pos")  # Tensors of which a forward only looks rows up.
SHARDED = "parallel.kind=fsdp2"
VARIANTS = {
    "ddp": (),
    "fsdp": (SHARDED,),
    "fsdp_keep": (SHARDED, "parallel.reshard_after_forward=false"),
    "fsdp_async": (SHARDED, "parallel.async_unshard=true"),
}
SCENARIO = """[scenario]
name = "fsdp2_records"
steps = 52
warmup_steps = 0
[cluster]
ranks = 2
communicator = "gloo"
profile = "{profile}"
[model]
kind = "recorded"
[ddp]
bucket_cap = "1 MiB"
torch = "newest"
[noise]
op_jitter = {op_jitter}
[data]
lengths = {{ plan = "{record}" }}
[[policy]]
name = "recorded"
kind = "plan"
file = "{record}"
"""


def run(*words):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, words))}: {done.stderr}")


def read_steps(folder):
    """Returns {(policy, variant): {(block, step): {rank: row}}}."""
    steps = collections.defaultdict(dict)
    for rank in (0, 1):
        with gzip.open(folder / f"transformer_rank{rank}.jsonl.gz", "rt") as lines:
            for row in map(json.loads, lines):
                key = (row["block"], row["step_in_block"])
                steps[row["policy"], row["variant"]].setdefault(key, {})[rank] = row
    return steps


def parameters(info):
    """The tensors in order of registration: embeddings, blocks, the last norm and the head."""
    units = {group["unit"]: group["params"] for group in info["fsdp_groups"]}
    first = [one for one in units["root"] if one[0].startswith(EMBEDDINGS)]
    last = [one for one in units["root"] if one not in first]
    blocks = [one for unit in sorted(units) if unit != "root" for one in units[unit]]
    return [{"name": name, "shape": shape, "dtype": "f32"} for name, shape in first + blocks + last]


def op_jitter(held, tensors):
    """How much single ops scatter, by forwards under DDP, in which no rank waits for another.

    A forward's wall over its processor time says how much a rank was held up; those of a step's ranks differ by
    what each met alone. That is taken to be the sum of independent ops, which weigh as their tensors do.

    Args:
        held: [step][rank] that ratio.
        tensors: Dicts with name and shape.
    """
    usual = [statistics.fmean(ranks) for ranks in zip(*held)]
    variances = [statistics.variance([a / b for a, b in zip(ranks, usual)]) for ranks in held]
    sizes = [math.prod(one["shape"]) for one in tensors if not one["name"].startswith(EMBEDDINGS)]
    return (statistics.fmean(variances) / sum((size / sum(sizes)) ** 2 for size in sizes)) ** 0.5


def held_up(steps):
    """[step][rank] wall over processor time of the forwards of DDP's steps."""
    return [[ranks[rank]["fwd_ms"] / ranks[rank]["cpu_fwd_ms"] for rank in (0, 1)] for ranks in steps.values()]


def write_record(path, policy, steps, tensors):
    header = {
        "format": "stepsim-run-record/1", "scenario": "", "policy": policy, "warmup_steps": 0, "world_size": 2,
        "backend": "gloo", "device": "AMD EPYC", "started_at": "2026-11-25T00:00:00Z",
        "versions": {"torch": "2.15.0"}, "cores": 2, "model": {"name": "Transformer", "parameters": tensors},
        "ddp": {"bucket_cap_mb": 1.0}, "repeats": 1,
    }  # fmt: skip
    with open(path, "w", encoding="utf-8") as file:
        print(json.dumps(header), file=file)
        for number, (_, ranks) in enumerate(sorted(steps.items())):
            for rank, row in sorted(ranks.items()):
                timed = row["fwd_ms"] + row["bwd_ms"] + row["opt_ms"]
                line = {
                    "repeat": 0, "step": number, "rank": rank, "samples": row["batch"],
                    "max_length": row["padded"][1], "useful_tokens": sum(row["lengths"]),
                    "padded_tokens": row["padded"][0] * row["padded"][1], "start_ms": row["start_ms"],
                    "data_ms": max(0, row["step_ms"] - timed), "forward_ms": row["fwd_ms"],
                    "backward_ms": row["bwd_ms"], "optimizer_ms": row["opt_ms"], "step_ms": row["step_ms"],
                    "data_cpu_ms": 0, "forward_cpu_ms": row["cpu_fwd_ms"], "backward_cpu_ms": row["cpu_bwd_ms"],
                    "optimizer_cpu_ms": row["cpu_opt_ms"], "lengths": row["lengths"], "buckets": [],
                    "thread_cpu_ms": row["cpu_fwd_ms"] + row["cpu_bwd_ms"] + row["cpu_opt_ms"],
                }  # fmt: skip
                print(json.dumps(line), file=file)


def mean_of_quantiles(low, middle, high):
    """The mean of a skewed distribution by its 10, 50 and 90 % quantiles (Swanson's rule)."""
    return 0.3 * low + 0.4 * middle + 0.3 * high


def write_base(path, table):
    """A profile of nothing but gloo's collectives: means, no size faster than a smaller one."""
    times = collections.defaultdict(dict)
    with open(table, encoding="utf-8") as lines:
        for row in csv.DictReader(lines):
            quantiles = (float(row[name]) * 1e-3 for name in ("p10_ms", "median_ms", "p90_ms"))
            times[row["collective"]][int(row["bytes"])] = mean_of_quantiles(*quantiles)
    collectives = []
    for kind, name in KINDS.items():
        knots, longest = [], 0
        for size, seconds in sorted(times[name].items()):
            longest = max(longest, seconds)
            knots.append([size, longest])
        collectives.append({"kind": kind, "ranks": 2, "nodes": 1, "dtype": "f32", "variable": "bytes",
                            "knots_s": knots, "range": [knots[0][0], knots[-1][0]], "samples": 20})  # fmt: skip
    profile = {
        "format": "stepsim-profile/1", "name": "gloo", "device": "AMD EPYC", "backend": "cpu", "provenance": {},
        "memory_capacity_bytes": 0, "host": {"launch_s": 0, "host_is_device": True}, "ops": [],
        "collectives": collectives,
    }  # fmt: skip
    path.write_text(json.dumps(profile), encoding="utf-8")


def measured(steps):
    """A step is from the last rank's start to the last rank's end."""
    return [
        max(row["end_ms"] for row in ranks.values()) - max(row["start_ms"] for row in ranks.values())
        for _, ranks in sorted(steps.items())
    ]


def rows(stepcal, stepsim, data):
    """Yields (policy, variant, predicted summary, measured steps)."""
    steps = read_steps(data / "records")
    tensors = parameters(json.loads((data / "records/transformer_info.json").read_text(encoding="utf-8")))
    policies = sorted({policy for policy, _ in steps})
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        write_base(folder / "base.json", data / "gloo/coll_gloo_2.csv")
        for policy in policies:
            write_record(folder / f"{policy}.jsonl", policy, steps[policy, "ddp"], tensors)
        for policy in policies:
            profile, scenario = folder / f"without_{policy}.json", folder / f"{policy}.toml"
            others = [folder / f"{one}.jsonl" for one in policies if one != policy]
            held = [one for other in policies if other != policy for one in held_up(steps[other, "ddp"])]
            jitter = op_jitter(held, tensors)
            run(stepcal, "import", "run-record", *others, "--profile", profile, "--base", folder / "base.json")
            text = SCENARIO.format(profile=profile, record=folder / f"{policy}.jsonl", op_jitter=round(jitter, 3))
            scenario.write_text(text, encoding="utf-8")
            for variant, settings in VARIANTS.items():
                report = folder / "report.json"
                sets = [word for setting in settings for word in ("--set", setting)]
                run(stepsim, "run", scenario, *sets, "--json", report)
                summary = json.loads(report.read_text(encoding="utf-8"))["predictions"][0]["summary"]
                yield policy, variant, summary["step_time_ms"], measured(steps[policy, variant])


def main():
    data = pathlib.Path(sys.argv[3] if len(sys.argv) > 3 else os.environ["STEPSIM_DATA"]) / "fsdp2"
    errors = collections.defaultdict(list)
    print("| policy | | predicted, ms | interval of the same hour | measured, ms | median | error |")
    print("|---|---|---|---|---|---|---|")
    for policy, variant, step, times in rows(sys.argv[1], sys.argv[2], data):
        mean = statistics.fmean(times)
        low, high = step.get("interval90_same_hour", step["interval90"])
        error = step["mean"] / mean - 1
        errors[variant].append(error)
        print(f"| {policy} | {variant} | {step['mean']:.0f} | {low:.0f} to {high:.0f} | {mean:.0f} "
              f"| {statistics.median(times):.0f} | {error:+.1%} |")  # fmt: skip
    print()
    for variant, of_variant in errors.items():
        print(f"{variant}: mean error {statistics.fmean(map(abs, of_variant)):.1%}")


if __name__ == "__main__":
    main()
