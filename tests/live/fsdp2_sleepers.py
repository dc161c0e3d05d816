#!/usr/bin/env python3
"""Predicts recorded steps of sleeping layers under DDP and seven ways of fully_shard.

usage: fsdp2_sleepers.py SLEEPERS [DATA]

SLEEPERS is the program of sleepers.cpp, which plays a step whose layers take stated times on each rank.
DATA/fsdp2 (else that of STEPSIM_DATA) holds what PyTorch 2.15 took: two ranks over gloo on a busy machine,
four layers that sleep 8 ms forward and 16 ms backward, in experiments that slow a layer or a rank. Each cell
is predicted from what its experiment states, from gloo's collectives and hooks that were timed in other
runs, and from DDP's steps of the first experiment, which tell what layers take beside their sleep.
FSDP2_SLEEPERS.md has the results.
"""

import collections
import csv
import gzip
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

from fsdp2_records import mean_of_quantiles

ELEMENTS = [131072] + 4 * [262144]  # The root's tensor, and a layer's 512 x 512.
CALIBRATION = ("uniform", "ddp", "plain")
OWN = ("uniform", "default", "plain")  # Tells what was off, and does not predict.
# Of gloo/host.json, as usual_unit_times() has them; plain SGD with foreach.
HOST_MS = {
    "unit_forward_ms": 0.87,
    "unit_forward_tensor_ms": 0.025,
    "unit_backward_ms": 1.0,
    "unit_backward_tensor_ms": 0.045,
    "sharded_tensor_ms": 0.002,
}
PLAIN = {
    "kind": "fsdp2", "root_freed": False, "layers_kept": False, "async": False,
    "forward_prefetch": 0, "backward_prefetch": 0, "accumulate": "reduce",
}  # fmt: skip
VARIANTS = {
    "ddp": {"kind": "ddp"},
    "default": {},
    "roottrue": {"root_freed": True},
    "false": {"layers_kept": True},
    "async": {"async": True},
    "async_fp1": {"async": True, "forward_prefetch": 1},
    "async_fp2": {"async": True, "forward_prefetch": 2},
    "async_fp1_bp2": {"async": True, "forward_prefetch": 1, "backward_prefetch": 2},
}
MODES = {"plain": "reduce", "reduce": "reduce", "no_sync": "no_sync", "keep": "keep_no_sync"}
KINDS = {"all_reduce": "ar_avg", "all_gather": "ag", "reduce_scatter": "rs_avg", "copy": "memcpy"}


def read_tables(path):
    """Returns {kind: [[bytes, ms]]}: means, no size faster than a smaller one."""
    times = collections.defaultdict(dict)
    with open(path, encoding="utf-8") as lines:
        for row in csv.DictReader(lines):
            quantiles = (float(row[name]) for name in ("p10_ms", "median_ms", "p90_ms"))
            times[row["collective"]][int(row["bytes"])] = mean_of_quantiles(*quantiles)
    tables = {}
    for kind, name in KINDS.items():
        longest, tables[kind] = 0, []
        for size, time in sorted(times[name].items()):
            longest = max(longest, time)
            tables[kind].append([size, longest])
    return tables


def read_steps(folder):
    """Returns {(experiment, variant, mode): [(row of rank 0, row of rank 1)]}, without the warm-up."""
    files = []
    for rank in (0, 1):
        with gzip.open(folder / f"sleepy_rank{rank}.jsonl.gz", "rt") as lines:
            files.append([json.loads(line) for line in lines])
    steps = collections.defaultdict(list)
    for ranks in zip(*files):
        row = ranks[0]
        if row["exp"] != "warmup":
            steps[row["exp"], row["variant"], row["mode"]].append(ranks)
    return steps


def measured_ms(ranks):
    """A step is from the last rank's start to the last rank's end; `end_ms` counts from the own start."""
    return max(row["start_ms"] + row["end_ms"] for row in ranks) - max(row["start_ms"] for row in ranks)


def beside_sleep(steps):
    """What DDP's steps show beside the sleep: means of milliseconds that a sleep is late, that a layer takes
    between two sleeps in forward and in backward, and of the optimizer."""
    found = collections.defaultdict(list)
    for row in (row for ranks in steps for row in ranks):
        for layer, which, begin, end in row["sleeps"]:
            found["late"].append(end - begin - row["planned"][0][layer][which == "B"])
        for (_, which, _, end), (_, after, begin, _) in zip(row["sleeps"], row["sleeps"][1:]):
            if which == after:
                found[which].append(begin - end)
        found["optimizer"].append(row["opt_ms"])
    return {name: statistics.fmean(times) for name, times in found.items()}


def own_costs(steps, tables):
    """What the steps of fully_shard themselves show: factors on the tables of gathers and reductions, by their
    times from the last rank's begin to the last one's end, and on the hooks, by their times without those."""
    taken, priced, hooks, usual = collections.Counter(), collections.Counter(), 0.0, 0.0
    for ranks in steps:
        starts = [row["start_ms"] for row in ranks]
        for calls in zip(*(row["rec"] for row in ranks)):
            kind = {"AG": "all_gather", "RS": "reduce_scatter"}.get(calls[0][0])
            if kind:
                begin = max(start + call[3] for start, call in zip(starts, calls))
                taken[kind] += max(start + call[4] for start, call in zip(starts, calls)) - begin
                priced[kind] += dict(map(tuple, tables[kind]))[4 * calls[0][2]]
        for row in ranks:
            sums = row["sums"]
            hooks += sum(time for name, time in sums.items() if name.startswith("hook_"))
            hooks -= sums["AG"] + sums["RS"]
            usual += len(ELEMENTS) * sum(time for name, time in HOST_MS.items() if name.startswith("unit_"))
    return {"unit": hooks / usual, **{kind: taken[kind] / priced[kind] for kind in taken}}


def with_costs(job, costs):
    """The job with its gathers, reductions and hooks times those factors."""
    scaled = dict(job)
    for name, value in job.items():
        if name in costs:
            scaled[name] = [[size, costs[name] * time] for size, time in value]
        elif name.startswith("unit_"):
            scaled[name] = costs["unit"] * value
    return scaled


def job_of(key, ranks, tables, beside, host):
    """The job of a step, as sleepers.cpp takes it."""
    _, variant, mode = key

    def work(layer):
        return [layer[0] + beside["late"] + beside["F"], layer[1] + beside["late"] + beside["B"]]

    batches = zip(*(row["planned"] for row in ranks))
    return {
        **{**PLAIN, **VARIANTS[variant], "accumulate": MODES[mode]}, **host, **tables,
        "elements": ELEMENTS, "optimizer_ms": beside["optimizer"],
        "work_ms": [[[work(layer) for layer in planned] for planned in batch] for batch in batches],
    }  # fmt: skip


def played(sleepers, jobs):
    """Milliseconds of each job."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "jobs.json"
        path.write_text(json.dumps(jobs), encoding="utf-8")
        done = subprocess.run([sleepers, path], check=True, capture_output=True, text=True)
    return list(map(float, done.stdout.split()))


def rows(sleepers, data):
    """Yields (key, predicted ms, ms with the costs of OWN, [measured ms])."""
    steps = read_steps(data / "records")
    tables, beside = read_tables(data / "gloo/coll_gloo_2.csv"), beside_sleep(steps[CALIBRATION])
    jobs = [job_of(key, ranks, tables, beside, HOST_MS) for key, many in steps.items() for ranks in many]
    costs = own_costs(steps[OWN], tables)
    jobs += [with_costs(job, costs) for job in jobs]
    times = played(sleepers, jobs)
    predictions, with_own = iter(times), iter(times[len(times) // 2 :])
    for key, many in steps.items():
        predicted, own = (statistics.fmean(next(one) for _ in many) for one in (predictions, with_own))
        yield key, predicted, own, [measured_ms(ranks) for ranks in many]


def report(cells):
    """Prints the table of (key, predicted ms, ms with the costs of OWN or None, [measured ms])."""
    errors, owned = collections.defaultdict(list), []
    near = inside = 0
    more = "" if cells[0][2] is None else " with costs of uniform, default |"
    print(f"| experiment | | predicted, ms | measured, ms | its standard error | error |{more}")
    print("|---|---|---|---|---|---|" + "---|" * bool(more))
    for key, predicted, own, times in cells:
        experiment, variant, mode = key
        mean = statistics.fmean(times)
        unsure = statistics.stdev(times) / len(times) ** 0.5 / mean
        error = predicted / mean - 1
        if key != CALIBRATION:
            errors["ddp" if variant == "ddp" else "fully_shard"].append(error)
            near += abs(error) <= 0.05
            inside += abs(error) <= 2 * unsure
            if own is not None and variant != "ddp" and key != OWN:
                owned.append(own / mean - 1)
        name = variant if mode == "plain" else f"{variant}, {mode}"
        last = "" if own is None else f" {own / mean - 1:+.1%} |"
        print(f"| {experiment} | {name} | {predicted:.0f} | {mean:.0f} | {unsure:.1%} | {error:+.1%} |{last}")
    print()
    for name, of_kind in errors.items():
        print(f"- {name}: mean error {statistics.fmean(map(abs, of_kind)):.1%}, bias "
              f"{statistics.fmean(of_kind):+.1%} of {len(of_kind)} cells")  # fmt: skip
    if owned:
        print(f"- fully_shard with the costs of {', '.join(OWN[:2])}: mean error "
              f"{statistics.fmean(map(abs, owned)):.1%}, bias {statistics.fmean(owned):+.1%}")  # fmt: skip
    count = sum(map(len, errors.values()))
    print(f"- within 5 %: {near} of {count}; within two standard errors of the measurement: {inside}")


def main():
    data = pathlib.Path(sys.argv[2] if len(sys.argv) > 2 else os.environ["STEPSIM_DATA"]) / "fsdp2"
    report(list(rows(sys.argv[1], data)))


if __name__ == "__main__":
    main()
