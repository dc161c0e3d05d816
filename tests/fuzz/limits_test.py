"""Checks that inputs of absurd size or depth end with a clear error, in little time and memory.

usage: limits_test.py PATH_OF_STEPSIM PATH_OF_STEPCAL

Each program may take 1 GiB of addresses beside its libraries. tests/fuzz/README.md states the limits.
"""

import gzip
import json
import os
import pathlib
import resource
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))
import small_runner  # noqa: E402  (needs the path above)

STEPSIM = os.path.abspath(sys.argv[1])
STEPCAL = os.path.abspath(sys.argv[2])
SCENARIO = str(ROOT / "scenarios/accumulation.toml")
GIB = 2**30
SECONDS = 100


def bytes_of_libraries(program):
    """Of the files that are mapped when it starts, which with CUDA are most of a GiB."""
    said = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    paths = [word for word in said.split() if word.startswith("/") and os.path.exists(word)]
    return sum(os.stat(path).st_size for path in paths)


LIMIT = GIB + max(bytes_of_libraries(program) for program in (STEPSIM, STEPCAL))


def limit_memory():
    resource.setrlimit(resource.RLIMIT_AS, (LIMIT, LIMIT))


def refused(command, *said):
    """Asks for what cannot be; the program must say why and exit with 2."""
    done = subprocess.run(
        command, capture_output=True, text=True, errors="replace", timeout=SECONDS,
        preexec_fn=limit_memory, check=False,
    )  # fmt: skip
    text = done.stderr[:2000]
    command = " ".join(command)[:200]
    assert done.returncode == 2, f"{command}: {done.returncode}\n{text}"
    assert len(done.stderr) < 20_000, f"{command}: {len(done.stderr)} bytes of message"
    for words in said:
        assert words in text, f"{command}: no '{words}' in\n{text}"


def readers(path):
    """The commands that read a file, one for each kind."""
    out = os.path.join(os.path.dirname(path), "out")
    return {
        "scenario": [STEPSIM, "run", path],
        "profile": [STEPSIM, "run", SCENARIO, "--profile", path],
        "lengths": [STEPSIM, "lengths", "--file", path],
        "predictions": [STEPSIM, "validate", SCENARIO, "--predictions", path, "--live", path],
        "live run": [STEPSIM, "validate", SCENARIO, "--live", path],
        "tensors": [STEPSIM, "buckets", "--params", path],
        "program": [STEPSIM, "replay", path],
        "points": [STEPSIM, "merge", path],
        "plan": [STEPCAL, "grid", path, "--out", out],
        "samples": [STEPCAL, "fit", path, "--out", out],
        "run record": [STEPCAL, "import", "run-record", path, "--profile", out],
        "nccl-tests": [STEPCAL, "import", "nccl-tests", path],
        "kineto": [STEPCAL, "import", "kineto", path],
        "step times": [
            STEPCAL, "import", "step-times", path, "--preset", "bert-base", "--out", out,
        ],
    }  # fmt: skip


def test_a_line_of_one_gibibyte_is_refused():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "line")
        with open(path, "wb") as file:
            file.truncate(GIB)  # Sparse: it takes no place on the disk.
        for kind, command in readers(path).items():
            refused(command, *(["larger than"] if kind != "kineto" else []))


def test_a_line_of_one_gibibyte_inside_a_trace_is_refused():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "trace.json")
        with open(path, "wb") as file:
            file.write(b'{"traceEvents":[{"name":"')
            file.truncate(GIB)
        refused(readers(path)["kineto"], "a string of more than 16 MiB")


def test_gzip_that_unpacks_to_gibibytes_is_refused():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "bomb.gz")
        start = gzip.compress(b'{"traceEvents":[')
        member = gzip.compress(b" " * 2**26)
        pathlib.Path(path).write_bytes(start + 64 * member)  # 4 GiB of blanks.
        refused(readers(path)["kineto"], "unpacks to more than 250 times its size")
        for kind in ("program", "step times"):
            refused(readers(path)[kind], "unpacks to more than")


def test_json_nested_a_hundred_thousand_levels_deep_is_refused():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "deep.json")
        for level, end in (("[", "]"), ('{"a":', "}")):
            for prefix in ("", '{"traceEvents":['):
                text = prefix + level * 100_000 + "1" + end * 100_000
                pathlib.Path(path).write_text(text + ("]}" if prefix else "") + "\n")
                for kind in readers(path):
                    refused(readers(path)[kind])
        refused(readers(path)["profile"], "nested deeper than 100 levels")


def test_toml_nested_deep_is_refused():
    scenario = pathlib.Path(SCENARIO).read_text()
    nested = {
        "lists": "a = " + "[" * 100_000 + "]" * 100_000 + "\n" + scenario,
        "tables": "a = " + "{a=" * 100_000 + "1" + "}" * 100_000 + "\n" + scenario,
        "dots": "a" + ".a" * 100_000 + " = 1\n" + scenario,
        "header": scenario + "\n[a" + ".a" * 100_000 + "]\n",
        "lines": "a = "
        + "".join("[\n{" + "a." * 900 + "a=" for _ in range(250))
        + "1"
        + "}\n]" * 250
        + "\n"
        + scenario,
    }
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "deep.toml")
        for text in nested.values():
            pathlib.Path(path).write_text(text)
            refused([STEPSIM, "run", path])
    for value in ("[" * 60_000, "{a=" * 30_000, "{" + "a." * 30_000 + "a=1}"):
        refused([STEPSIM, "run", SCENARIO, "--set", "ddp.bucket_cap=" + value])
    refused([STEPSIM, "run", SCENARIO, "--set", "ddp." + "a." * 60_000 + "a=1"])


def test_ten_to_the_eighteenth_samples_are_refused():
    many = 10**18
    refused([STEPSIM, "run", SCENARIO, "--set", f"data.samples={many}"], "too large")
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "many")
        pathlib.Path(path).write_text(
            json.dumps({"format": "stepsim-lengths/1", "counts": {"3": many, "4": many}})
        )
        refused(readers(path)["lengths"])
        refused([STEPSIM, "run", SCENARIO, "--set", "data.lengths={histogram=\"" + path + "\"}"])
        header = {"format": "stepsim-run-record/1", "world_size": 1, "policy": "p"}
        row = {"step": 0, "rank": 0, "samples": many, "max_length": many, "useful_tokens": many,
               "padded_tokens": many, "start_ms": 0, "data_ms": 0, "forward_ms": 1,
               "backward_ms": 1, "optimizer_ms": 1, "step_ms": 3}  # fmt: skip
        pathlib.Path(path).write_text(json.dumps(header) + "\n" + json.dumps(row) + "\n")
        for kind in ("run record", "live run", "lengths"):
            refused(readers(path)[kind])
        pathlib.Path(path).write_text(f"placement,batch,step_ms\n1,{many},700\n4,{many},800\n")
        refused(readers(path)["step times"])


if __name__ == "__main__":
    sys.exit(small_runner.main(globals()))
