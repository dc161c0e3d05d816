"""Measures what a study's points and the messages about them cost, and what many nodes would reach.

usage: measure_points.py PATH_OF_STEPSIM [--nodes NUMBER] [--cores NUMBER]

Prints each figure with the command that it comes from. Each time is the shortest of three runs. The
load of the machine is printed, too: above 0.5 somebody else is computing, and the figures are worse
than they would be.
"""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

STEPSIM = os.path.abspath(sys.argv[1])
NODES = int(sys.argv[sys.argv.index("--nodes") + 1]) if "--nodes" in sys.argv else 64
CORES = int(sys.argv[sys.argv.index("--cores") + 1]) if "--cores" in sys.argv else 64
SCENARIOS = pathlib.Path(__file__).resolve().parents[3] / "scenarios"
RUNS = 3


def study(last):
    """Points of about the same size; `last` says how many."""
    return ["sweep", str(SCENARIOS / "token_skew.toml"), "--policy", "token_budget", "--steps", "60",
            "--over", f"policy.token_budget.max_tokens=1024..{last}:+1", "--quiet"]


# Points that cost little, so that messages count.
SMALL = [*study(1423), "--set", "scenario.warmup_steps=1", "--set", "scenario.steps=2"]


def seconds(command):
    best = None
    for _ in range(RUNS):
        for path in pathlib.Path().glob("*.jsonl"):
            path.unlink()
        begin = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        took = time.perf_counter() - begin
        best = took if best is None else min(best, took)
    return best


def mpirun(processes):
    root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    return ["mpirun", "-n", str(processes), "--oversubscribe", *root, STEPSIM]


def main():
    print(f"load before: {os.getloadavg()[0]:.2f}; {os.cpu_count()} cores")
    few, many = study(1024), study(1039)
    begin = seconds([STEPSIM, *few, "--threads", "1"])
    alone = seconds([STEPSIM, *many, "--threads", "1"])
    point = (alone - begin) / 15
    print(f"a point: {point * 1e3:.1f} ms (16 points and the reference {alone:.2f} s, "
          f"1 point and the reference {begin:.2f} s, one thread)")
    threads = seconds([STEPSIM, *many, "--threads", "2"])
    print(f"2 threads: {threads:.2f} s, {alone / threads:.2f} times as fast")
    kept = seconds([STEPSIM, *many, "--threads", "1", "--resume", "points.jsonl"])
    size = os.path.getsize("points.jsonl") / 17
    print(f"--resume: {(kept - alone) / 17 * 1e3:+.2f} ms a point, {size / 1024:.1f} KiB a point")
    if shutil.which("mpirun") is None:
        print("no mpirun here")
        return
    launch = seconds([*mpirun(2), *few])
    both = seconds([*mpirun(2), *many])
    print(f"mpirun -n 2: {both:.2f} s, {alone / both:.2f} times as fast; "
          f"without the launch {alone / (both - launch + begin):.2f} times")
    # One process computes all small points; then another does, too, and hands its results over.
    small = seconds([STEPSIM, *SMALL, "--threads", "1"])
    handed = seconds([STEPSIM, *SMALL, "--threads", "1", "--resume", "points.jsonl"])
    small_both = seconds([*mpirun(2), *SMALL])
    half = small / 2
    message = max(0.0, small_both - launch - half) / 200
    print(f"a message and its answer: at most {message * 1e3:.2f} ms (400 points of "
          f"{small / 401 * 1e3:.2f} ms: {small_both:.2f} s with 2 processes, launch "
          f"{launch:.2f} s); a result as text, to a file: {(handed - small) / 401 * 1e3:.2f} ms")
    reading = max((handed - small) / 401, 1e-5)
    processes = NODES * CORES
    limit = point / reading
    print(f"on paper, {NODES} nodes of {CORES} cores, P points of t = {point * 1e3:.1f} ms, m = "
          f"{reading * 1e3:.2f} ms of process 0 for each result:")
    print("  T(n) = launch + max(ceil(P / n) t, P m); speed-up P t / T(n), at most t / m = "
          f"{limit:.0f}")
    for points in (1_000, 10_000):
        rounds = -(-points // processes)
        took = launch + max(rounds * point, points * reading)
        print(f"  P = {points}: {took:.2f} s instead of {points * point:.0f} s: "
              f"{points * point / took:.0f} times as fast on {processes} cores "
              f"(points of 10 s: "
              f"{points * 10 / (launch + max(rounds * 10, points * reading)):.0f} times)")
    print(f"load after: {os.getloadavg()[0]:.2f}")


with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    main()
    os.chdir("/")
