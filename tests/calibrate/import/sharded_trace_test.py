#!/usr/bin/env python3
"""Traces of trainings under fully_shard: gathers and scatters become samples by kind, bytes and ranks.

usage: sharded_trace_test.py PATH_OF_STEPCAL

traces/fsdp2_gloo_rank*.json.gz are of PyTorch 2.15 on a CPU (two ranks of gloo, two linear layers of 64 x 64 as
units and a head of 8 rows in the root, three steps), without the rows that stepcal does not read. The trace of
NCCL is made here of the names that PyTorch documents for it.
"""

import gzip
import json
import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))
import small_runner  # noqa: E402  (needs the path above)

STEPCAL = os.path.abspath(sys.argv[1])
LAYER, ROOT = 4 * (64 * 64 + 64), 4 * (8 * 64 + 8)  # Bytes.


def recorded(rank):
    with gzip.open(HERE / "traces" / f"fsdp2_gloo_rank{rank}.json.gz") as file:
        return json.load(file)


def imported(*traces):
    """Returns {(collective, ranks, bytes): how often} of the samples made."""
    paths = []
    for rank, trace in enumerate(traces):
        paths.append(f"rank{rank}.json")
        pathlib.Path(paths[-1]).write_text(json.dumps(trace), encoding="utf-8")
    samples = pathlib.Path("samples.jsonl")
    samples.unlink(missing_ok=True)
    done = subprocess.run([STEPCAL, "import", "kineto", *paths, "--out", samples], capture_output=True, text=True,
                          check=False)  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    found = {}
    for line in samples.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        if row.get("kind") == "collective":
            key = (row["op"], row["ranks"], row["bytes"])
            found[key] = found.get(key, 0) + 1
    return found, done.stdout


@small_runner.in_new_folder
def test_a_recorded_run_of_gloo():
    found, text = imported(recorded(0), recorded(1))
    # A step gathers the root and each layer in the forward, each layer again in the backward, and reduces all.
    expected = {("all_gather", 2, LAYER): 12, ("all_gather", 2, ROOT): 3,
                ("reduce_scatter", 2, LAYER): 6, ("reduce_scatter", 2, ROOT): 3}  # fmt: skip
    assert found == expected, (found, text)


@small_runner.in_new_folder
def test_an_all_reduce_of_the_same_size_stays_one():
    traces = [recorded(0), recorded(1)]
    calls = [row for trace in traces for row in trace["traceEvents"] if row["name"].startswith(("c10d::", "gloo:"))]
    behind = max(row["ts"] + row["dur"] for row in calls) + 1000.0
    for trace in traces:
        rows = trace["traceEvents"]
        last = max((row for row in rows if row["name"] == "gloo:all_reduce"), key=lambda row: row["ts"])
        rows.append({**last, "ts": behind, "dur": 50.0})
        for step in rows:
            if step["name"] == "ProfilerStep#4":
                step["dur"] = behind + 1000.0 - step["ts"]
    size = {520: ROOT, 4160: LAYER}[last["args"]["Input Dims"][0][0]]
    found, text = imported(*traces)
    assert found["all_reduce", 2, size] == 1, (found, text)
    assert found["reduce_scatter", 2, LAYER] == 6 and found["reduce_scatter", 2, ROOT] == 3, (found, text)


def kernel(name, correlation, start, call, **args):
    """A kernel of NCCL and its launch."""
    launch = {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernelExC", "pid": 1, "tid": 1, "ts": start - 10.0,
              "dur": 5.0, "args": {"correlation": correlation}}  # fmt: skip
    row = {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 20, "ts": start, "dur": 100.0,
           "args": {"stream": 20, "correlation": correlation, "Collective name": call, **args}}  # fmt: skip
    return [launch, row]


@small_runner.in_new_folder
def test_kernels_of_nccl():
    ranks, shard = 2, 1024

    def trace(rank):
        known = {"dtype": "BFloat16", "Group size": ranks, "Process Group Name": "0", "Process Group Ranks": "[0, 1]"}
        rows = [{"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#1", "pid": 1, "tid": 1, "ts": 0.0,
                 "dur": 5000.0, "args": {}}]  # fmt: skip
        rows.append({"ph": "X", "cat": "user_annotation", "name": "FSDP::all_gather (layers.0)", "pid": 1, "tid": 1,
                     "ts": 900.0, "dur": 50.0, "args": {}})  # fmt: skip
        for number, call in enumerate(("_allgather_base", "all_gather_into_tensor", "all_gather_into_tensor_coalesced")):
            rows += kernel("ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)", 10 + number,
                           1000.0 + 200 * number, call,
                           **known, **{"In msg nelems": shard, "Out msg nelems": shard * ranks})  # fmt: skip
        for number, call in enumerate(("_reduce_scatter_base", "reduce_scatter_tensor")):
            rows += kernel("ncclDevKernel_ReduceScatter_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", 20 + number,
                           2000.0 + 200 * number, call, **{**known, "dtype": "Float"},
                           **{"In msg nelems": shard * ranks, "Out msg nelems": shard})  # fmt: skip
        # Kernels that state no name of a collective have their own.
        rows += kernel("ncclDevKernel_ReduceScatter_Sum_f32_RING_LL(x)", 30, 3000.0, "", **{**known, "dtype": "Float"},
                       **{"In msg nelems": shard * ranks, "Out msg nelems": shard})  # fmt: skip
        info = {"backend": "nccl", "rank": rank, "world_size": ranks}
        devices = [{"id": one, "name": "NVIDIA H100"} for one in range(ranks)]
        return {"schemaVersion": 1, "deviceProperties": devices, "distributedInfo": info, "traceEvents": rows}

    found, text = imported(*(trace(rank) for rank in range(ranks)))
    expected = {("all_gather", 2, 2 * shard * ranks): 3, ("reduce_scatter", 2, 4 * shard * ranks): 3}
    assert found == expected, (found, text)


if __name__ == "__main__":
    sys.exit(small_runner.main(dict(globals())))
