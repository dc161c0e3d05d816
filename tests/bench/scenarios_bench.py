#!/usr/bin/env python3
"""How long does `stepsim compare`, or another command, take on every shipped scenario?

usage: scenarios_bench.py STEPSIM [OTHER_STEPSIM] [--command tune] [--repeat N]

Runs the programs by turns and prints the median of the processor time of each, and of the wall time of the first.
"""

import argparse
import os
import pathlib
import statistics
import subprocess
import time

SCENARIOS = pathlib.Path(__file__).resolve().parent.parent.parent / "scenarios"


def measured(stepsim, command, scenario):
    """Returns processor and wall seconds."""
    begin, before = time.monotonic(), os.times()
    subprocess.run([stepsim, command, scenario, "--quiet", "--json", "/dev/null"], check=False)
    after = os.times()
    processor = after.children_user + after.children_system - before.children_user - before.children_system
    return processor, time.monotonic() - begin


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("stepsim", nargs="+")
    parser.add_argument("--command", default="compare")
    parser.add_argument("--repeat", type=int, default=5)
    arguments = parser.parse_args()
    sums = [0.0] * len(arguments.stepsim)
    print("| scenario | " + " | ".join(arguments.stepsim) + " | wall of the first |")
    print("|---" * (len(arguments.stepsim) + 2) + "|")
    for scenario in sorted(SCENARIOS.glob("*.toml")):
        seconds = [[] for _ in arguments.stepsim]
        walls = []
        for _ in range(arguments.repeat):
            for i, stepsim in enumerate(arguments.stepsim):
                processor, wall = measured(stepsim, arguments.command, str(scenario))
                seconds[i].append(processor)
                walls += [wall] if i == 0 else []
        medians = [statistics.median(one) for one in seconds]
        sums = [total + median for total, median in zip(sums, medians)]
        print(f"| {scenario.stem} | " + " | ".join(f"{one:.2f}" for one in medians)
              + f" | {statistics.median(walls):.2f} |", flush=True)
    print("| all | " + " | ".join(f"{one:.2f}" for one in sums) + " | |")


if __name__ == "__main__":
    main()
