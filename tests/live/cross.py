#!/usr/bin/env python3
"""Each recorded policy predicts the others: how far off, and how often inside of the interval?

usage: cross.py STEPCAL STEPSIM [--group NAME]… [--json FILE]

The records are those of tests/live/records: real PyTorch DDP, all policies of a group by turns in
one process. Each policy's record is imported, with the group's all-reduce table as its base, and the
other policies' records are held against what that profile says. CROSS.md has the results.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tarfile
import tempfile

import naive

LIVE = pathlib.Path(__file__).resolve().parent
GROUPS = {  # The scenario of each, in scenarios/.
    "distilbert_small_net20": "distilbert_small",
    "distilbert_tiny": "distilbert_tiny",
    "distilbert_tiny_net60": "distilbert_tiny",
    "gpt2_small": "gpt2_small",
    "gpt2_small_net60": "gpt2_small",
    "token_skew_2ranks": "token_skew_2ranks",
    "distilbert_tiny_4ranks_net60": "distilbert_tiny_4ranks",
    "token_skew_4ranks": "token_skew_4ranks",
}
MISSED = 2 / 0.1  # What an interval score adds for each unit outside of a 90 % interval.


def run(*words, status=(0,)):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True)
    if done.returncode not in status:
        raise RuntimeError(f"{' '.join(map(str, words))}: {done.stderr}")
    return done.stdout


def read(record):
    """Its header, and a row for each rank and step."""
    with open(record, encoding="utf-8") as file:
        header, *rows = [json.loads(line) for line in file]
    return header, rows


def steps_of(record):
    return 1 + max(row["step"] for row in read(record)[1])


def three_terms(record, other):
    """The mean step of `other` by a fit of a + b tokens + c tokens x length to the record, in ms."""
    header, rows = read(record)
    warmup = header["warmup_steps"]
    return naive.predict_ms(naive.fit(rows, warmup), read(other)[1], warmup)


def predicted(stepcal, stepsim, group, source, folder):
    """Rows of the policies that the record of `source` predicts."""
    records = sorted(folder.glob("live_all_*.jsonl"))
    record = folder / f"live_all_{source}.jsonl"
    scenario = LIVE / "scenarios" / (GROUPS[group] + ".toml")
    plan, profile, report = (folder / f"{source}.{end}" for end in ("plan", "profile", "report"))
    steps = steps_of(record)
    run(stepsim, "plan", scenario, "--steps", steps, "--policy", source, "--out", plan, "--quiet",
        "--profile", folder / "profile.json")
    run(stepcal, "import", "run-record", record, "--plan", plan, "--profile", profile, "--base",
        folder / "all_reduce.json")
    run(stepsim, "validate", scenario, "--steps", steps, "--profile", profile, "--live",
        *(one for one in records if one != record), "--json", report, status=(0, 1))
    rows = []
    for row in json.loads(report.read_text(encoding="utf-8"))["policies"]:
        low, high = row["predicted_ms"]["interval90"]
        rows.append({"group": group, "source": source, "policy": row["policy"],
                     "predicted_ms": row["predicted_ms"]["mean"], "measured_ms": row["measured_ms"]["mean"],
                     "interval90": [low, high],
                     "intervals": {level: row["predicted_ms"][f"interval{level}"] for level in (50, 80, 90, 95)},
                     "three_terms_ms": three_terms(record, folder / f"live_all_{row['policy']}.jsonl"),
                     "error": row["error"]["mean"], "inside": row["in_interval"],
                     "half_width": (high - low) / 2 / row["predicted_ms"]["mean"],
                     "score": score(low, high, row["measured_ms"]["mean"])})
    return rows


def score(low, high, measured):
    """The interval score over the measurement: its width, and what lies outside many times."""
    missed = max(0, low - measured) + max(0, measured - high)
    return (high - low + MISSED * missed) / measured


def all_rows(stepcal, stepsim, groups=tuple(GROUPS)):
    rows = []
    with tempfile.TemporaryDirectory() as root:
        jobs = []
        for group in groups:
            with tarfile.open(LIVE / "records" / f"{group}.tar.xz") as archive:
                archive.extractall(root)
            folder = pathlib.Path(root) / group
            jobs += [(group, record.stem.removeprefix("live_all_"), folder)
                     for record in sorted(folder.glob("live_all_*.jsonl"))]
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            for found in pool.map(lambda job: predicted(stepcal, stepsim, *job), jobs):
                rows += found
    return rows


def summary(rows):
    sizes = [abs(row["error"]) for row in rows]
    return {"n": len(rows), "mean": statistics.mean(sizes), "median": statistics.median(sizes),
            "worst": max(sizes), "bias": statistics.mean(row["error"] for row in rows),
            "covered": statistics.mean(row["inside"] for row in rows),
            "half_width": statistics.median(row["half_width"] for row in rows),
            "score": statistics.mean(row["score"] for row in rows)}


def ranks_of(row):
    return 4 if "4ranks" in row["group"] else 2


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("stepcal")
    parser.add_argument("stepsim")
    parser.add_argument("--group", action="append", choices=GROUPS)
    parser.add_argument("--json", help="the rows, to this file")
    given = parser.parse_args()
    rows = all_rows(os.path.abspath(given.stepcal), os.path.abspath(given.stepsim),
                    given.group or tuple(GROUPS))
    if given.json:
        pathlib.Path(given.json).write_text(json.dumps(rows), encoding="utf-8")
    kinds = [(group, [row for row in rows if row["group"] == group]) for group in GROUPS]
    kinds += [(f"{ranks} ranks", [row for row in rows if ranks_of(row) == ranks]) for ranks in (2, 4)]
    for end in ("source", "policy"):
        word = "from" if end == "source" else "to"
        kinds += [(f"{word} {name}", [row for row in rows if row[end] == name])
                  for name in sorted({row[end] for row in rows})]
    print("| | predictions | mean error | median | worst | bias | in their interval | half width, median | interval score |")
    print("|---|---|---|---|---|---|---|---|---|")
    for name, found in kinds:
        if found:
            one = summary(found)
            print(f"| {name} | {one['n']} | {one['mean']:.1%} | {one['median']:.1%} | {one['worst']:.1%} | "
                  f"{one['bias']:+.1%} | {one['covered']:.1%} | {one['half_width']:.1%} | {one['score']:.1%} |"
                  .replace("%", " %"))


if __name__ == "__main__":
    sys.exit(main())
