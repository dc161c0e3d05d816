"""Traces that stepsim writes, and the scenarios whose traces are read; of trace_files_test.py and
profiler_files_test.py. The programs are the arguments: STEPSIM STEPCAL."""

import collections
import functools
import gzip
import json
import os
import pathlib
import re
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests"))
from small_runner import run  # noqa: E402  (needs the path above)

STEPSIM = os.path.abspath(sys.argv[1])
STEPCAL = os.path.abspath(sys.argv[2])
SCENARIOS = ROOT / "scenarios"
FOLDER = tempfile.TemporaryDirectory()

SKEW = [str(SCENARIOS / "token_skew.toml"), "--policy", "variable_fixed"]
VALLEY = [str(SCENARIOS / "bucket_valley.toml"), "--steps", "3", "--set", "cluster.ranks=4"]
SMALL = ["--set", "model.preset=gpt2-small", "--set", "model.layers=4", "--steps", "3"]
TWO_NODES = [str(SCENARIOS / "two_nodes.toml"), *SMALL]
ACCUMULATION = [str(SCENARIOS / "accumulation.toml"), *SMALL, "--set", "scenario.warmup_steps=1"]
EVERY = {"skew": SKEW, "valley": VALLEY, "two nodes": TWO_NODES, "accumulation": ACCUMULATION}


def path_of(name):
    return str(pathlib.Path(FOLDER.name) / name)


def read(path):
    opened = gzip.open if str(path).endswith(".gz") else open
    with opened(path, "rt", encoding="utf-8") as file:
        return json.load(file)


@functools.cache
def predicted(*arguments):
    """Rows of `stepsim run --json`, by (step, rank)."""
    (result,) = json.loads(run(STEPSIM, "run", *arguments, "--json", "-").stdout)["predictions"]
    return {(row["step"], row["rank"]): row for row in result["steps"]}


@functools.cache
def chrome(*arguments):
    path = path_of(f"{abs(hash(arguments))}.json")
    run(STEPSIM, "trace", *arguments, "--out", path)
    return read(path)["traceEvents"]


@functools.cache
def profiler_files(*arguments):
    folder = path_of(f"{abs(hash(arguments))}")
    run(STEPSIM, "trace", *arguments, "--out-dir", folder)
    files = pathlib.Path(folder).iterdir()
    return sorted(files, key=lambda path: int(re.sub(r"\D", "", path.name)))


@functools.cache
def profiler(*arguments):
    """[rank]: rows of its trace."""
    return [read(path)["traceEvents"] for path in profiler_files(*arguments)]


def slices_by_thread(events):
    threads = collections.defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            threads[event["pid"], event["tid"]].append(event)
    return threads


def check_nesting(events):
    """Slices of one thread nest or are apart: a viewer moves others to a thread of their own."""
    for thread, slices in slices_by_thread(events).items():
        # To the nanosecond; of one begin the longest first, and of one length in the file's order.
        spans = [(round(e["ts"] * 1e3), round((e["ts"] + e["dur"]) * 1e3)) for e in slices]
        spans.sort(key=lambda span: (span[0], -span[1]))
        open_ends = []
        for begin, end in spans:
            while open_ends and open_ends[-1] <= begin:
                open_ends.pop()
            assert not open_ends or end <= open_ends[-1], (thread, begin, end, open_ends[-1])
            open_ends.append(end)


# -- Perfetto --------------------------------------------------------------------------------------
