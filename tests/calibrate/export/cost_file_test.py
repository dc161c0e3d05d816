#!/usr/bin/env python3
"""The file of costs for PyTorch's compiler, and what its own reader makes of it.

usage: cost_file_test.py STEPCAL STEPSIM
The prices are worked out here, from the profile's tables. What needs the reader
(torch._inductor.fx_passes.profile_guided_estimation) is skipped where this PyTorch has none.
"""

import gzip
import json
import math
import os
import pathlib
import random
import sys

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "tests")]
import small_runner  # noqa: E402  (needs the path above)

STEPCAL, STEPSIM = map(os.path.abspath, sys.argv[1:3])
PROFILES = ROOT / "scenarios" / "profiles"
H100 = PROFILES / "h100_8x_published.json"
BYTES = {"Float": 4, "BFloat16": 2, "Half": 2, "Float8_e4m3fn": 1, "Double": 8}


def costs(*arguments, profile=H100, out="costs.json"):
    """Writes a file of costs; returns what was printed and the file's events."""
    printed = small_runner.output(STEPCAL, "costs", str(profile), "--out", out, *arguments)
    return printed, json.loads(pathlib.Path(out).read_text(encoding="utf-8"))


def table_of(profile, kind, ranks):
    tables = json.loads(pathlib.Path(profile).read_text(encoding="utf-8"))["collectives"]
    found = [t for t in tables if t["kind"] == kind and t["ranks"] == ranks]
    assert len(found) == 1, (kind, ranks)
    return found[0]["knots_s"]


def seconds(knots, size):
    """Linear between the sizes of a table."""
    for (low, fast), (high, slow) in zip(knots, knots[1:]):
        if low <= size <= high:
            return fast + (slow - fast) * (size - low) / (high - low)
    raise AssertionError(size)


def refused(*arguments):
    return small_runner.run(STEPCAL, "costs", *arguments, status=2).stderr


@small_runner.in_new_folder
def test_events_state_what_the_reader_asks_for():
    printed, file = costs()
    assert f"{len(file['traceEvents'])} costs of 2 groups" in printed, printed
    groups = {g["pg_name"]: g["ranks"] for g in file["distributedInfo"]["pg_config"]}
    assert groups == {"0": [0, 1, 2, 3], "1": list(range(8))}
    seen = set()
    for event in file["traceEvents"]:
        args = event["args"]
        assert event["cat"] == "kernel" and event["dur"] > 0
        assert json.loads(args["Process Group Ranks"]) == groups[args["Process Group Name"]]
        ranks = len(groups[args["Process Group Name"]])
        if args["Collective name"] == "_reduce_scatter_base":
            assert args["In msg nelems"] == ranks * args["Out msg nelems"]
        key = (args["Collective name"], args["dtype"], ranks, args["Out msg nelems"])
        assert key not in seen, key  # Of two the reader takes the first.
        seen.add(key)
    assert {key[:2] for key in seen} == {
        (name, dtype)
        for name in ("allreduce", "_allgather_base", "_reduce_scatter_base")
        for dtype in ("Float", "BFloat16")
    }


@small_runner.in_new_folder
def test_measured_sizes_have_their_measured_times():
    _, file = costs("--type", "Float")
    found = 0
    for event in file["traceEvents"]:
        args = event["args"]
        if args["Collective name"] != "allreduce":
            continue
        knots = table_of(H100, "all_reduce", args["Group size"])
        size = 4 * args["Out msg nelems"]
        if knots[0][0] <= size <= knots[-1][0]:
            assert abs(event["dur"] - 1e6 * seconds(knots, size)) <= 0.00051, event
            found += size in [knot[0] for knot in knots]
    measured = [size for n in (4, 8) for size, _ in table_of(H100, "all_reduce", n)]
    assert found == sum(size <= 2**32 for size in measured), (found, measured)


@small_runner.in_new_folder
def test_four_sizes_an_octave():
    _, file = costs("--type", "BFloat16", "--up-to", "1 GiB")
    sizes = [e["args"]["Out msg nelems"] for e in file["traceEvents"] if e["args"]["Group size"] == 8]
    sizes = sorted(set(sizes))
    assert sizes[0] == 1 and 2 * sizes[-1] == 2**30, (sizes[0], sizes[-1])
    # Whole numbers of elements: the first octaves have fewer.
    assert all(b / a <= 2**0.25 * 1.01 for a, b in zip(sizes, sizes[1:]) if a >= 64)


@small_runner.in_new_folder
def test_sizes_that_nobody_measured_are_left_out():
    few = json.loads(H100.read_text(encoding="utf-8"))
    for table in few["collectives"]:
        table["knots_s"] = [knot for knot in table["knots_s"] if knot[0] >= 2**24]
    pathlib.Path("few.json").write_text(json.dumps(few), encoding="utf-8")
    printed, file = costs(profile="few.json")
    smallest = min(
        e["args"]["Out msg nelems"] * BYTES[e["args"]["dtype"]]
        for e in file["traceEvents"]
        if e["args"]["Collective name"] == "allreduce"
    )
    assert smallest >= 2**22, smallest
    assert "too cheap; measure down to 1 KiB" in printed, printed


def test_bad_input():
    out = ["--out", os.devnull]
    assert "no file to write (--out) given" in refused(str(H100))
    text = refused(str(H100), *out, "--type", "float32")
    assert "unknown type 'float32'" in text and "BFloat16" in text, text
    assert "a group has two ranks or more" in refused(str(H100), *out, "--group", "3")
    assert "is given twice" in refused(str(H100), *out, "--group", "0..7", "--group", "0..7")
    assert "goes with --group" in refused(str(H100), *out, "--per-node", "4")
    assert "at least 1" in refused(str(H100), *out, "--group", "0..7", "--per-node", "0")
    assert "--up-to" in refused(str(H100), *out, "--up-to", "4")
    text = refused(str(H100), *out, "--group", "0..63")
    assert "64 ranks" in text and "h100_8x_published" in text, text
    compute_only = json.loads(H100.read_text(encoding="utf-8"))
    compute_only["collectives"] = []
    text = small_runner.run(
        STEPCAL, "costs", "-", *out, status=2, input=json.dumps(compute_only)
    ).stderr
    assert "no measured collectives" in text and "stepcal import nccl-tests" in text, text


@small_runner.in_new_folder
def test_two_groups_of_one_shape_are_told():
    printed, _ = costs("--group", "0..3", "--group", "4..7", "--group", "0,2,4,6")
    assert printed.count("have the same size and stride") == 1, printed
    assert "groups 0..3 and 4..7" in printed, printed


@small_runner.in_new_folder
def test_transfers_of_a_simulated_trace_come_back_exactly():
    scenario = ROOT / "scenarios" / "token_skew.toml"
    skewed = ["--policy", "variable_fixed", "--steps", "4", "--out-dir", "traces"]
    small_runner.run(STEPSIM, "trace", str(scenario), *skewed)
    traces = sorted(map(str, pathlib.Path("traces").iterdir()))
    small_runner.run(STEPCAL, "import", "kineto", *traces, "--profile", "mine.json")
    _, file = costs("--type", "Float", profile="mine.json")
    price = {
        e["args"]["Out msg nelems"]: e["dur"]
        for e in file["traceEvents"]
        if e["args"]["Collective name"] == "allreduce"
    }
    # What the last rank to arrive shows is the transfer.
    transfers = {}
    for trace in traces:
        with gzip.open(trace, "rt", encoding="utf-8") as text:
            for event in json.load(text)["traceEvents"]:
                if "Collective name" in event.get("args", {}):
                    args = event["args"]
                    transfers.setdefault((args["Out msg nelems"], args["Seq"]), []).append(event["dur"])
    assert all(len(durations) == len(traces) for durations in transfers.values())
    waiting = 0
    for (size, _), durations in transfers.items():
        assert abs(price[size] - min(durations)) < 0.0011, (size, price[size], durations)
        waiting = max(waiting, max(durations) / min(durations))
    assert waiting > 1.5, waiting  # A raw trace holds the waiting, too.


# -- PyTorch's own reader --------------------------------------------------------------------------


def profile_data(path):
    try:
        from torch._inductor.fx_passes.profile_guided_estimation import ProfileData
    except ImportError as error:
        raise small_runner.Skip(f"this PyTorch reads no costs ({error})") from error
    data = ProfileData()
    data.load(str(path))
    return data


@small_runner.in_new_folder
def test_pytorch_finds_our_prices():
    costs("--group", "0..3", "--group", "0..7", "--group", "0,2,4,6")
    data = profile_data("costs.json")
    knots = {n: table_of(H100, "all_reduce", n) for n in (4, 8)}
    random.seed(1)
    sizes = [int(2 ** random.uniform(10, 30)) // 4 for _ in range(20)]
    worst = 0
    # The second of each pair is another group of the same shape.
    for group in ((0, 1, 2, 3), tuple(range(8)), (0, 2, 4, 6), tuple(range(8, 16)), (1, 3, 5, 7)):
        for size in sizes:
            milliseconds, source = data.lookup_collective("all_reduce", group, size, "Float")
            assert source.startswith("profile"), source
            expected = 1e3 * seconds(knots[len(group)], 4 * size)
            worst = max(worst, abs(milliseconds / expected - 1))
    print(f"20 sizes, 5 groups: at worst {100 * worst:.2f} % from the profile")
    assert worst < 0.005, worst


@small_runner.in_new_folder
def test_pytorch_reads_our_traces():
    scenario = ROOT / "scenarios" / "token_skew.toml"
    small_runner.run(STEPSIM, "trace", str(scenario), "--steps", "3", "--out-dir", "traces")
    for trace in pathlib.Path("traces").iterdir():
        with gzip.open(trace, "rb") as packed:
            pathlib.Path("trace.json").write_bytes(packed.read())
        data = profile_data("trace.json")
        assert data.pg_configs == {"0": (0, 1, 2, 3)}, data.pg_configs
        assert data.get_collective_keys() == [("all_reduce", (0, 1, 2, 3), "Float")]


COMPILED = r"""
import re, sys
import torch
import torch.distributed as dist
from torch._inductor.utils import run_and_get_code
from torch.testing._internal.distributed.fake_pg import FakeStore

dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
torch._inductor.config.force_disable_caches = True
o = torch._inductor.config.aten_distributed_optimizations
o.enable_overlap_scheduling = True
o.compute_estimator = "analytical"


def f(a, b):
    m = b @ b @ b
    c = torch.ops._c10d_functional.all_reduce(a, "sum", dist.group.WORLD.group_name)
    c = torch.ops._c10d_functional.wait_tensor(c)
    return c, m @ b @ b @ b @ b


a, b = torch.randn(1024, 1024), torch.randn(256, 256)
for path in sys.argv[1:]:
    o.profile_guided_estimations_profile_path = path
    torch._dynamo.reset()
    with torch.no_grad():
        _, (code,) = run_and_get_code(torch.compile(f, fullgraph=True), a, b)
    called = r"all_reduce_\.default\(|wait_tensor\.default\(|extern_kernels\.mm\("
    calls = re.findall(called, code[code.index("def call"):])
    print(*({"a": "launch", "w": "wait", "e": "mm"}[call[0]] for call in calls))
"""

# What a matmul of the program takes: 100 us. It is an operation, of which our files have none.
MATMUL = [
    {
        "cat": "cpu_op",
        "name": "aten::mm",
        "ts": 0,
        "dur": 5,
        "args": {
            "External id": 1,
            "Input Dims": [[256, 256], [256, 256]],
            "Input Strides": [[256, 1], [256, 1]],
            "Input type": ["float", "float"],
        },
    },
    {"cat": "kernel", "name": "gemm", "ts": 0, "dur": 100, "args": {"External id": 1}},
]


@small_runner.in_new_folder
def test_the_compiler_schedules_by_our_costs():
    factors = (1, 4, 100)
    for factor in factors:
        profile = json.loads(H100.read_text(encoding="utf-8"))
        profile["collectives"] = [t for t in profile["collectives"] if t["ranks"] == 4]
        for table in profile["collectives"]:
            table["ranks"] = 2
            table["knots_s"] = [[size, time * factor] for size, time in table["knots_s"]]
        pathlib.Path("network.json").write_text(json.dumps(profile), encoding="utf-8")
        _, file = costs(profile="network.json", out=f"costs{factor}.json")
        file["traceEvents"] += MATMUL
        pathlib.Path(f"costs{factor}.json").write_text(json.dumps(file), encoding="utf-8")
    profile_data("costs1.json")
    pathlib.Path("compiled.py").write_text(COMPILED, encoding="utf-8")
    paths = [f"costs{factor}.json" for factor in factors]
    done = small_runner.run(sys.executable, "compiled.py", *paths, timeout=1200, status=(0, 1))
    if "active drivers" in done.stderr:
        raise small_runner.Skip("this PyTorch's scheduler asks a GPU for its bandwidth (2.13 does)")
    assert done.returncode == 0, done.stderr
    printed = done.stdout
    orders = [line.split() for line in printed.splitlines()]
    print("\n".join(map(str, orders)))
    # A matmul takes 100 us, so of these factors one hides 4 MiB, two do, and all six do not.
    hidden = [order.index("wait") - order.index("launch") - 1 for order in orders]
    microseconds = [1e6 * f * seconds(table_of(H100, "all_reduce", 4), 2**22) for f in factors]
    assert hidden == [min(6, math.ceil(us / 100)) for us in microseconds], (hidden, microseconds)


if __name__ == "__main__":
    sys.exit(small_runner.main(globals()))
