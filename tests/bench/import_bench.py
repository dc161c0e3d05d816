#!/usr/bin/env python3
"""How fast are large measurements read and fitted?

usage: import_bench.py STEPCAL [STEPCAL…] [--rows 1e6] [--trace FILE] [--trace-mb 200] [--step-times 20000] [--repeat 3]

Gives each STEPCAL by turns a run record of many rows (those of the tour repeated), a trace of PyTorch's profiler
(--trace: its rows repeated) and a table of step times (drawn from a seed), and prints the median processor time,
MB and rows a second and the most memory of each. Beside them, once each, stands what it takes only to parse the same
text: Python's json.loads, row by row or the trace as a whole, and pysimdjson, where it is installed. Files lie in a
folder that is removed at the end.
"""

import argparse
import gzip
import importlib.util
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


# [name] What parses one text by it.
PARSERS = {
    "json.loads alone": "import json; parse = json.loads",
    "pysimdjson alone": "import simdjson; parse = lambda text: simdjson.Parser().parse(text.encode()).as_dict()",
}


def parsers():
    """The commands that only parse a file, line by line or whole."""
    for name, start in PARSERS.items():
        if "simdjson" in start and importlib.util.find_spec("simdjson") is None:
            continue
        code = (f"import sys; {start}\nwith open(sys.argv[1], encoding='utf-8') as file:\n"
                "    for text in (file if sys.argv[1].endswith('l') else [file.read()]):\n        parse(text)")  # fmt: skip
        yield name, [sys.executable, "-c", code]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("stepcal", nargs="+")
    parser.add_argument("--rows", type=lambda text: int(float(text)), default=1_000_000)
    parser.add_argument("--trace", type=pathlib.Path)
    parser.add_argument("--trace-mb", type=float, default=200)
    parser.add_argument("--step-times", type=int, default=20_000)
    parser.add_argument("--repeat", type=int, default=3)
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
            results = {program: [] for program in arguments.stepcal}
            for _ in range(arguments.repeat):
                for program in arguments.stepcal:
                    results[program].append(run([program, *words]))
            if not file.endswith(".csv"):
                results.update({name: [run([*command, str(folder / file)])] for name, command in parsers()})
            for program, runs in results.items():
                seconds = [one[0] for one in runs]
                middle = statistics.median(seconds)
                print(f"| {what} | {program} | {middle:.2f} | {min(seconds):.2f} to {max(seconds):.2f} | "
                      f"{size / middle:.0f} | {rows / middle:,.0f} | {max(one[1] for one in runs):.0f} |", flush=True)


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    main()
