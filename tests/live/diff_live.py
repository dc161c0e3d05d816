#!/usr/bin/env python3
"""Records the same real DDP training many times, with and without something planted in one part of
one rank, and asks `stepsim diff` about pairs of runs.

    /usr/bin/python3 tests/live/diff_live.py --stepsim build/sim/stepsim --work FOLDER [--same 20] [--repeats 2]

Two ranks of gloo on this machine. First the same training many times by turns in one job, each run
against the next one. Then one without and one with each planted time, by turns in one job. Then the
same training in jobs of their own, one behind the other. Sizes are shares of the part's own median
time, measured in the first job. The steps keep the processor busy for that time, or sleep.
"""

import argparse
import collections
import json
import os
import pathlib
import statistics
import subprocess

import network
import ranks
import results

HERE = pathlib.Path(__file__).resolve().parent
PARTS = ("data", "forward", "backward", "optimizer")
SHARES = (0.01, 0.03, 0.10)
PLANTED_RANK = 1
NOTHING = (None, 0.0, False)
LIMIT_S = 900
COLUMN = {part: f"{part}_ms" for part in PARTS}
ALLOCATOR = {"MALLOC_TRIM_THRESHOLD_": "4000000000", "MALLOC_MMAP_THRESHOLD_": "4000000000"}


class Runs:
    """Trains, and compares records."""

    def __init__(self, options):
        self.stepsim = options.stepsim
        self.folder = pathlib.Path(options.work)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.steps = options.steps

    def train(self, job, plants):
        """Trains one job of runs by turns: {name: (part, ms, sleep)}, unless its records are there.
        Returns {name: record}."""
        records = {name: self.folder / f"{job}_{name}.jsonl" for name in plants}
        if all(record.exists() for record in records.values()):
            return records
        spec = {"steps": self.steps,
                "runs": [{"record": str(records[name].with_suffix("")), "part": part,
                          "rank": PLANTED_RANK, "ms": ms, "sleep": sleep}
                         for name, (part, ms, sleep) in plants.items()]}
        path = self.folder / f"{job}.json"
        path.write_text(json.dumps(spec), "utf-8")
        ranks.run(network.Loopback(2), HERE / "diff_rank.py", [path], self.folder / f"{job}.log",
                  LIMIT_S)
        return records

    def diff(self, before, after):
        command = [self.stepsim, "diff", str(before), str(after), "--json", "-"]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        return json.loads(done.stdout)


def median_ms(record, part):
    """What a part of the planted rank takes without anything planted."""
    with open(record, encoding="utf-8") as lines:
        header = json.loads(next(lines))
        rows = [json.loads(line) for line in lines]
    return statistics.median(row[COLUMN[part]] for row in rows
                             if row["rank"] == PLANTED_RANK and row["step"] >= header["warmup_steps"])


def half_width(diff):
    low, high = diff["step"]["interval"]
    return 100 * (high - low) / 2


def is_found(diff, part):
    return any(cause["part"] == part and cause["change_ms"] > 0 and cause["ranks"] == [PLANTED_RANK]
               for cause in diff["causes"])


def others(diff, part):
    """Causes that nobody planted."""
    return [cause for cause in diff["causes"]
            if cause["part"] != part or cause["ranks"] != [PLANTED_RANK]]


def same_line(words, found):
    quiet = sum(one["verdict"] == "no difference" for one in found)
    causes = sum(bool(one["causes"]) for one in found)
    changes = [100 * one["step"]["change"] for one in found]
    widths = sorted(map(half_width, found))
    return (f"{words}: no difference in {quiet} of {len(found)}; parts named, all of them false alarms, "
            f"in {causes}. Changes {min(changes):+.1f} to {max(changes):+.1f} %, half widths of the "
            f"interval {widths[0]:.1f} to {widths[-1]:.1f} %, median {statistics.median(widths):.1f} %.")


def same_by_turns(runs, pairs):
    records = list(runs.train("same", {f"{i}": NOTHING for i in range(pairs + 1)}).values())
    found = [runs.diff(a, b) for a, b in zip(records, records[1:])]
    return same_line("The same training by turns, each run against the next", found), records[0]


def same_one_by_one(runs, pairs):
    records = [runs.train(f"alone{i}", {"0": NOTHING})["0"] for i in range(pairs + 1)]
    found = [runs.diff(a, b) for a, b in zip(records, records[1:])]
    return same_line("Jobs of their own, one behind the other, each against the next", found)


def planted_text(runs, first, repeats):
    kinds = [(part, share, False) for part in PARTS for share in SHARES]
    kinds += [(part, 0.10, True) for part in ("forward", "backward")]
    lines = ["| planted in rank 1 | ms | slower | part and rank named | other parts named | asleep, it "
             "says |", "|---|---|---|---|---|---|"]
    found = collections.defaultdict(list)
    sizes = {kind: kind[1] * median_ms(first, kind[0]) for kind in kinds}
    for repeat in range(repeats):
        plants = {"none": NOTHING}
        plants.update({name_of(kind): (kind[0], sizes[kind], kind[2]) for kind in kinds})
        records = runs.train(f"planted{repeat}", plants)
        for kind in kinds:
            found[kind].append(runs.diff(records["none"], records[name_of(kind)]))
    named = collections.Counter()
    for kind in kinds:
        part, share, sleep = kind
        several = found[kind]
        hits = sum(is_found(one, part) for one in several)
        wrong = [f"{other['part']} of {other['ranks'] or 'all'}" for one in several
                 for other in others(one, part)]
        asleep = sum(any(cause["processor_idle"] for cause in one["causes"]) for one in several)
        slower = sum(one["verdict"] == "slower" for one in several)
        named[share] += hits
        lines.append(f"| {part} {100 * share:+.0f} %{', asleep' if sleep else ''} | {sizes[kind]:.3f} | "
                     f"{slower} of {len(several)} | {hits} of {len(several)} | "
                     f"{', '.join(wrong) or 'none'} | {asleep} |")
    total = ", ".join(f"{100 * share:+.0f} %: {named[share]} of "
                      f"{repeats * sum(kind[1] == share for kind in kinds)}" for share in SHARES)
    return "\n".join([*lines, "", f"Part and rank named: {total}."])


def name_of(kind):
    part, share, sleep = kind
    return f"{part}_{100 * share:.0f}{'_asleep' if sleep else ''}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--stepsim", default="build/sim/stepsim")
    parser.add_argument("--work", default="build/diff_live", help="folder for records")
    parser.add_argument("--same", type=int, default=20, help="pairs of the same training")
    parser.add_argument("--repeats", type=int, default=2, help="jobs with planted runs")
    parser.add_argument("--alone", type=int, default=6, help="pairs of jobs of their own")
    parser.add_argument("--steps", type=int, default=210, help="of each run")
    options = parser.parse_args()
    runs = Runs(options)
    print(f"{results.machine()}, load {os.getloadavg()[0]:.1f}", flush=True)
    text, first = same_by_turns(runs, options.same)
    print(text, flush=True)
    print(planted_text(runs, first, options.repeats), flush=True)
    print(same_one_by_one(runs, options.alone), flush=True)
    print(f"load at the end {os.getloadavg()[0]:.1f}", flush=True)


if __name__ == "__main__":
    os.environ.update(ALLOCATOR)
    main()
