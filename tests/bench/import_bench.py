#!/usr/bin/env python3
"""How fast are large measurements read and fitted?

usage: import_bench.py STEPCAL [STEPCAL…] [--rows 1e6] [--trace FILE] [--trace-mb 200] [--step-times 20000] [--repeat 5]
                       [--dom build/tests/bench/simdjson_dom]

Gives each STEPCAL by turns a run record of many rows (those of the tour repeated), a trace of PyTorch's profiler
(--trace: its rows repeated) and a table of step times (drawn from a seed), and prints the median processor time,
MB and rows a second and the most memory of each. Beside them, by turns with them, stands what it takes only to parse
the same text, row by row or the trace as a whole: Python's json.loads and simdjson's DOM (--dom, simdjson_dom.cpp).
Files lie in a folder that is removed at the end.
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


def write_differing(path, rows):
    """The tour's record with a batch of its own in each row, times in proportion to its tokens, and no buckets."""
    header, *lines = RECORD.read_text(encoding="utf-8").splitlines()
    lines = list(map(json.loads, lines))
    draw = random.Random(1)
    with path.open("w", encoding="utf-8") as file:
        file.write(json.dumps({**json.loads(header), "repeats": 1}) + "\n")
        for number in range(rows):
            row = dict(lines[number % len(lines)])
            lengths = [draw.randint(5, 900) for _ in range(draw.randint(4, 60))]
            tokens = len(lengths) * max(lengths)
            row.update(repeat=0, step=number // 2, rank=number % 2, samples=len(lengths), max_length=max(lengths),
                       useful_tokens=sum(lengths), padded_tokens=tokens, lengths=lengths, buckets=[])
            row["start_ms"] += 1e4 * (number // 2)
            for time in ("forward_ms", "backward_ms", "forward_cpu_ms", "backward_cpu_ms"):
                row[time] *= tokens / 2048 * draw.uniform(0.9, 1.1)
            parts = ("data_ms", "forward_ms", "backward_ms", "wait_ms", "optimizer_ms")
            row["step_ms"] = sum(row[part] for part in parts)
            file.write(json.dumps(row, separators=(",", ":")) + "\n")


def write_trace(path, source, megabytes):
    """The rows of a trace again and again, each time later. Returns their number."""
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
    return copy * len(events)


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


JSON_LOADS = """import json, sys
with open(sys.argv[1], encoding="utf-8") as file:
    for text in file if sys.argv[1].endswith("l") else [file.read()]:
        json.loads(text)
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("stepcal", nargs="+")
    parser.add_argument("--rows", type=lambda text: int(float(text)), default=1_000_000)
    parser.add_argument("--trace", type=pathlib.Path)
    parser.add_argument("--trace-mb", type=float, default=200)
    parser.add_argument("--step-times", type=int, default=20_000)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--dom")
    arguments = parser.parse_args()
    print("| what | program | seconds | spread | MB/s | rows/s | memory, MiB |")
    print("|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        cases = []
        if arguments.rows:
            write_record(folder / "record.jsonl", arguments.rows)
            cases.append((f"run record, {arguments.rows:,} rows", "record.jsonl", arguments.rows,
                          ["import", "run-record", "record.jsonl", "--profile", "record.json"]))
            rows = arguments.rows // 10
            write_differing(folder / "differing.jsonl", rows)
            cases.append((f"run record, {rows:,} rows, batches differ", "differing.jsonl", rows,
                          ["import", "run-record", "differing.jsonl", "--profile", "differing.json"]))
        if arguments.trace:
            rows = write_trace(folder / "trace.json", arguments.trace, arguments.trace_mb)
            cases.append((f"trace, {rows:,} rows", "trace.json", rows, ["import", "kineto", "trace.json"]))
        if arguments.step_times:
            write_step_times(folder / "steps.csv", arguments.step_times)
            cases.append((f"step times, {arguments.step_times:,} rows", "steps.csv", arguments.step_times,
                          ["import", "step-times", "steps.csv", "--preset", "bert-base", "--out", "job.json"]))
        for what, file, rows, words in cases:
            size = (folder / file).stat().st_size / 1e6
            words = [str(folder / word) if "." in word else word for word in words]
            commands = {program: [program, *words] for program in arguments.stepcal}
            if not file.endswith(".csv"):
                commands["json.loads alone"] = [sys.executable, "-c", JSON_LOADS, str(folder / file)]
                if arguments.dom:
                    commands["simdjson's DOM alone"] = [arguments.dom, str(folder / file)]
            results = {program: [] for program in commands}
            for _ in range(arguments.repeat):
                for program, command in commands.items():
                    results[program].append(run(command))
            for program, runs in results.items():
                seconds = [one[0] for one in runs]
                middle = statistics.median(seconds)
                print(f"| {what} | {program} | {middle:.2f} | {min(seconds):.2f} to {max(seconds):.2f} | "
                      f"{size / middle:.0f} | {rows / middle:,.0f} | {max(one[1] for one in runs):.0f} |", flush=True)


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    main()
