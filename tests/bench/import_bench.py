#!/usr/bin/env python3
"""How fast are large measurements read and fitted?

usage: import_bench.py STEPCAL [STEPCAL…] [--rows 1e6] [--trace FILE] [--trace-mb 200] [--step-times 20000] [--repeat 3]

Gives each STEPCAL by turns a run record of many rows (those of the tour repeated), a trace of PyTorch's profiler
(--trace: its rows repeated) and a table of step times (drawn from a seed), and prints the median processor time and
the most memory of each, beside what Python's json.loads takes to read the same rows. Files lie in a folder that
is removed at the end.
"""

import argparse
import gzip
import json
import pathlib
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
RECORD = ROOT / "scenarios" / "tour" / "bucketed.jsonl"
STEP_MS = {"1": 0, "2": 20, "4": 35, "8": 50, "1+1": 600, "2x2": 500, "4x2": 650, "1+1+1+1": 610}


def write_record(path, rows):
    header, *lines = RECORD.read_text(encoding="utf-8").splitlines()
    header, lines = json.loads(header), list(map(json.loads, lines))
    repeats = 1 + max(row["repeat"] for row in lines)
    span = max(row["start_ms"] + row["step_ms"] for row in lines) - min(row["start_ms"] for row in lines) + 5
    header["repeats"] = -(-rows // len(lines)) * repeats
    with path.open("w", encoding="utf-8") as file:
        file.write(json.dumps(header) + "\n")
        for number in range(rows):
            copy, place = divmod(number, len(lines))
            row = dict(lines[place])
            row["repeat"] += copy * repeats
            row["start_ms"] = round(row["start_ms"] + copy * span, 5)
            file.write(json.dumps(row, separators=(",", ":")) + "\n")


def write_trace(path, source, megabytes):
    """The rows of a trace again and again, each time later."""
    opened = gzip.open if source.suffix == ".gz" else open
    with opened(source, "rt", encoding="utf-8") as file:
        trace = json.load(file)
    events = trace["traceEvents"] if isinstance(trace, dict) else trace
    times = [event["ts"] for event in events if isinstance(event.get("ts"), (int, float))]
    ends = [event["ts"] + event.get("dur", 0) for event in events if isinstance(event.get("ts"), (int, float))]
    span, size, copy = max(ends) - min(times), 0, 0
    largest = max((event["args"].get("correlation") or 0 for event in events if isinstance(event.get("args"), dict)),
                  default=0)
    with path.open("w", encoding="utf-8") as file:
        head = {key: value for key, value in trace.items() if key != "traceEvents"} if isinstance(trace, dict) else {}
        file.write(json.dumps(head)[:-1] + (", " if head else "") + '"traceEvents": [\n')
        while size < megabytes * 1e6:
            for number, event in enumerate(events):
                event = dict(event)
                if isinstance(event.get("ts"), (int, float)):
                    event["ts"] = round(event["ts"] + copy * span, 3)
                if isinstance(event.get("args"), dict) and event["args"].get("correlation"):
                    event["args"] = {**event["args"], "correlation": event["args"]["correlation"] + copy * largest}
                text = json.dumps(event)
                size += len(text) + 2
                file.write((",\n" if copy or number else "") + text)
            copy += 1
        file.write("]}\n")


def write_step_times(path, rows):
    draw = random.Random(1)
    with path.open("w", encoding="utf-8") as file:
        file.write("placement,batch,step_ms\n")
        for _ in range(rows):
            placement, batch = draw.choice(list(STEP_MS)), draw.choice([4, 8, 16, 32])
            step = (60 + 88 * batch + STEP_MS[placement]) * draw.lognormvariate(0, 0.03)
            file.write(f"{placement},{batch},{step:.3f}\n")


def run(command):
    """Returns (processor seconds, MiB at most) of a command."""
    # The child of a child: ru_maxrss is the largest of all children that were waited for.
    code = ("import resource, subprocess, sys; done = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, "
            "stderr=subprocess.PIPE); used = resource.getrusage(resource.RUSAGE_CHILDREN); "
            "print(used.ru_utime + used.ru_stime, used.ru_maxrss / 1024); sys.stderr.buffer.write(done.stderr); "
            "sys.exit(done.returncode)")  # fmt: skip
    done = subprocess.run([sys.executable, "-c", code, *command], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: {done.stderr}")
    return tuple(map(float, done.stdout.split()))


def python_reads(path, by_line):
    before = time.process_time()
    with path.open(encoding="utf-8") as file:
        if by_line:
            for line in file:
                json.loads(line)
        else:
            json.load(file)
    return time.process_time() - before


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("stepcal", nargs="+")
    parser.add_argument("--rows", type=lambda text: int(float(text)), default=1_000_000)
    parser.add_argument("--trace", type=pathlib.Path)
    parser.add_argument("--trace-mb", type=float, default=200)
    parser.add_argument("--step-times", type=int, default=20_000)
    parser.add_argument("--repeat", type=int, default=3)
    arguments = parser.parse_args()
    print("| what | program | seconds | spread | rate | memory, MiB | json.loads alone, s |")
    print("|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        cases = []
        if arguments.rows:
            write_record(folder / "record.jsonl", arguments.rows)
            cases.append((f"run record, {arguments.rows:,} rows", "record.jsonl", arguments.rows, "rows/s",
                          ["import", "run-record", "record.jsonl", "--profile", "record.json"]))
        if arguments.trace:
            write_trace(folder / "trace.json", arguments.trace, arguments.trace_mb)
            size = (folder / "trace.json").stat().st_size / 1e6
            cases.append((f"trace, {size:.0f} MB", "trace.json", size, "MB/s", ["import", "kineto", "trace.json"]))
        if arguments.step_times:
            write_step_times(folder / "steps.csv", arguments.step_times)
            cases.append((f"step times, {arguments.step_times:,} rows", "steps.csv", arguments.step_times, "rows/s",
                          ["import", "step-times", "steps.csv", "--preset", "bert-base", "--out", "job.json"]))
        for what, file, amount, unit, words in cases:
            words = [str(folder / word) if "." in word else word for word in words]
            results = {program: [] for program in arguments.stepcal}
            for _ in range(arguments.repeat):
                for program in arguments.stepcal:
                    results[program].append(run([program, *words]))
            python = "" if file.endswith(".csv") else f"{python_reads(folder / file, file.endswith('l')):.1f}"
            for program, runs in results.items():
                seconds = [one[0] for one in runs]
                middle = statistics.median(seconds)
                print(f"| {what} | {program} | {middle:.2f} | {min(seconds):.2f} to {max(seconds):.2f} | "
                      f"{amount / middle:,.0f} {unit} | {max(one[1] for one in runs):.0f} | {python} |", flush=True)


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    main()
