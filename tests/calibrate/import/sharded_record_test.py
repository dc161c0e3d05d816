#!/usr/bin/env python3
"""Records of trainings under fully_shard whose every time is known: what stepcal and stepsim make of them.

usage: sharded_record_test.py PATH_OF_STEPCAL PATH_OF_STEPSIM
"""

import json
import os
import pathlib
import random
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests"))
import small_runner  # noqa: E402  (needs the path above)

STEPCAL, STEPSIM = map(os.path.abspath, sys.argv[1:3])
RANKS, STEPS, BATCH = 2, 60, 4
WIDTH, BLOCKS = 256, 3
PARAMETERS = [("embed.weight", [1000, WIDTH])]
PARAMETERS += [(f"layers.{i}.{name}", shape) for i in range(BLOCKS)
               for name, shape in (("weight", [2 * WIDTH + 1, WIDTH]), ("bias", [2 * WIDTH + 1]))]  # fmt: skip
UNITS = [[""]] + [[f"layers.{i}"] for i in range(BLOCKS)]
# Rows that do not divide are padded to 514.
BYTES = [4 * 1000 * WIDTH] + BLOCKS * [4 * (514 * WIDTH + 514)]
GATHER_MS = {BYTES[0]: 3.0, BYTES[1]: 2.0}
REDUCE_MS = {BYTES[0]: 5.0, BYTES[1]: 4.0}
HOOK_MS = [1.1] + BLOCKS * [1.3]  # Of processor time, in a forward.
FORWARD_MS = (2.0, 0.05)  # And for each padded token.
BACKWARD_MS = (3.0, 0.1)
OPTIMIZER_MS = 10.0


def hooks_of_backward():
    """As many times the usual ones as in the forward."""
    tensors = [1] + BLOCKS * [2]
    usual = sum(0.87 + 0.025 * count for count in tensors)
    return sum(HOOK_MS) / usual * sum(1.0 + 0.045 * count for count in tensors)


def header(policy, **more):
    return {
        "format": "stepsim-run-record/1", "policy": policy, "world_size": RANKS, "backend": "gloo", "device": "cpu",
        "warmup_steps": 0, "versions": {"torch": "2.15.0+cpu"},
        "model": {"name": "Planted", "buffers": {},
                  "parameters": [{"name": name, "shape": shape, "dtype": "f32"} for name, shape in PARAMETERS]},
        "parallel": {"kind": "fsdp2", "units": "layers.0; layers.1; layers.2", "unit_modules": UNITS, "replicas": 1,
                     "shards": RANKS, "reshard_after_forward": "default", "param_dtype": "own", "reduce_dtype": "own",
                     "reshard_by_unit": [None] * len(UNITS), "offload": False} | more,
        "optimizer": {"kind": "AdamW", "settings": {}},
    }  # fmt: skip


def planted(path, policy="fixed", gathers=True, processor=True, **more):
    """Writes a record in which ranks meet at every gather and every reduction."""
    drawn = random.Random(3)
    clock = 1000.0
    rows = []
    for step in range(STEPS):
        lengths = [[drawn.randint(8, 64) for _ in range(BATCH)] for _ in range(RANKS)]
        tokens = [BATCH * max(of_rank) for of_rank in lengths]
        at, marks, own = [0.0] * RANKS, [[] for _ in range(RANKS)], []

        def meet(seconds, ranks=at):
            ranks[:] = [max(ranks) + seconds] * RANKS

        for unit, size in enumerate(BYTES):
            launch = list(at)
            at[:] = [one + HOOK_MS[unit] for one in at]
            meet(GATHER_MS[size])
            for rank in range(RANKS):
                marks[rank].append({"unit": unit, "launch_ms": launch[rank], "end_ms": at[rank], "cpu_ms": HOOK_MS[unit]})
            at[:] = [one + (FORWARD_MS[0] + FORWARD_MS[1] * count) / len(BYTES) for one, count in zip(at, tokens)]
        forward = list(at)
        for size in BYTES[1:]:  # Blocks are gathered again; the root is kept.
            meet(GATHER_MS[size])
            at[:] = [one + (BACKWARD_MS[0] + BACKWARD_MS[1] * count) / BLOCKS for one, count in zip(at, tokens)]
            at[:] = [one + hooks_of_backward() / BLOCKS for one in at]
            meet(REDUCE_MS[size])
        meet(REDUCE_MS[BYTES[0]])
        for rank in range(RANKS):
            count = tokens[rank]
            own = {"forward_cpu_ms": sum(HOOK_MS) + FORWARD_MS[0] + FORWARD_MS[1] * count,
                   "backward_cpu_ms": hooks_of_backward() + BACKWARD_MS[0] + BACKWARD_MS[1] * count,
                   "thread_cpu_ms": 1.0}  # fmt: skip
            rows.append({
                "repeat": 0, "step": step, "rank": rank, "samples": BATCH, "max_length": max(lengths[rank]),
                "useful_tokens": sum(lengths[rank]), "padded_tokens": count, "start_ms": clock, "data_ms": 0.0,
                "forward_ms": forward[rank], "backward_ms": at[rank] - forward[rank], "optimizer_ms": OPTIMIZER_MS,
                "step_ms": at[rank] + OPTIMIZER_MS, "lengths": lengths[rank], "buckets": [],
                **(own if processor else {}), **({"gathers": marks[rank]} if gathers else {}),
            })  # fmt: skip
        clock += max(at) + OPTIMIZER_MS
    lines = [header(policy, **more), *rows]
    pathlib.Path(path).write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return statistics.fmean(row["step_ms"] for row in rows)


def run(*command, status=0):
    done = subprocess.run([str(one) for one in command], capture_output=True, text=True, check=False)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout + done.stderr


def imported(*arguments):
    text = run(STEPCAL, "import", "run-record", *arguments, "--profile", "profile.json")
    return json.loads(pathlib.Path("profile.json").read_text(encoding="utf-8")), text


def table(profile, kind):
    return next(one for one in profile["collectives"] if one["kind"] == kind)


def near(value, expected, within=0.02):
    assert abs(value - expected) <= within * expected, (value, expected)


@small_runner.in_new_folder
def test_a_record_alone_tells_compute_from_gathers_and_reductions():
    planted("run.jsonl")
    profile, text = imported("run.jsonl")
    for size, seconds in table(profile, "all_gather")["knots_s"]:
        near(1e3 * seconds, GATHER_MS[size])
    reduced = dict(map(tuple, table(profile, "reduce_scatter")["knots_s"]))
    near(sum(1e3 * reduced[size] for size in BYTES), sum(REDUCE_MS[size] for size in BYTES))
    units = profile["host"]["units"]
    near(units["forward_s"] * 4 + units["forward_tensor_s"] * 7, sum(HOOK_MS) / 1e3)
    near(units["backward_s"] * 4 + units["backward_tensor_s"] * 7, hooks_of_backward() / 1e3)
    assert "processor time in a forward" in text and "the usual ones" in text, text
    assert "no all-reduce times" in text and "watch(ddp)" not in text, text


@small_runner.in_new_folder
def test_the_recorded_steps_are_predicted_and_shardings_stand_side_by_side():
    measured = planted("run.jsonl")
    text = run(STEPSIM, "advise", "run.jsonl", "--json", "advice.json")
    advice = json.loads(pathlib.Path("advice.json").read_text(encoding="utf-8"))
    predictions = json.loads(pathlib.Path("advice/prediction.json").read_text(encoding="utf-8"))["predictions"]
    near(predictions[0]["summary"]["step_time_ms"]["mean"], measured, 0.03)
    # Hooks, copies and the optimizer of sharded tensors are of the pass that they are in.
    summary = predictions[0]["summary"]
    lines = [json.loads(line) for line in pathlib.Path("run.jsonl").read_text(encoding="utf-8").splitlines()]
    near(summary["forward_ms"], statistics.fmean(row["forward_cpu_ms"] for row in lines[1:]), 0.03)
    near(summary["backward_ms"], statistics.fmean(row["backward_cpu_ms"] for row in lines[1:]), 0.03)
    near(summary["optimizer_ms"], OPTIMIZER_MS, 0.03)
    ways = {one["name"]: one for one in advice["shardings"]}
    assert set(ways) == {"as recorded", "parameters kept", "root freed, too", "ddp"}, ways
    assert ways["parameters kept"]["step_time_ms"] < ways["as recorded"]["step_time_ms"], ways
    assert ways["root freed, too"]["step_time_ms"] > ways["as recorded"]["step_time_ms"], ways
    assert ways["ddp"]["peak_memory_mib"] > ways["as recorded"]["peak_memory_mib"] > 0, ways
    assert "all units stay gathered (reshard_after_forward=False): " in text, text
    assert "waiting for gathers, reductions and slower ranks" in text, text
    # A policy that the answer names as a rival has a row of its own.
    if " likely to be the fastest, so benchmark " in text:
        rival = text.split(" likely to be the fastest, so benchmark ")[1].split(" as well")[0]
        assert rival in [one["policy"] for one in advice["options"]], advice["options"]
    for one in advice["options"]:
        assert one["verdict"] != "faster" or one["gain_interval90"][0] > 0, one
    assert "bucket_cap" not in advice and "bucket cap" not in text and "sharding:" in text, text
    scenario = pathlib.Path("advice/scenario.toml").read_text(encoding="utf-8")
    assert 'kind = "fsdp2"\nunits = "layers.0; layers.1; layers.2"' in scenario, scenario
    assert 'reshard_after_forward = "default"' in scenario, scenario


@small_runner.in_new_folder
def test_a_base_keeps_its_tables_scaled_and_its_all_reduces():
    planted("run.jsonl")
    base = {
        "format": "stepsim-profile/1", "name": "base", "device": "cpu", "backend": "cpu", "provenance": {},
        "memory_capacity_bytes": 0, "host": {"launch_s": 0, "host_is_device": True}, "ops": [],
        "collectives": [
            {"kind": kind, "ranks": RANKS, "nodes": 1, "dtype": "f32", "variable": "bytes",
             "knots_s": [[4096, 1e-4], [1 << 20, 1e-3], [1 << 22, 4e-3]], "range": [4096, 1 << 22]}
            for kind in ("all_gather", "reduce_scatter", "all_reduce")
        ],
    }  # fmt: skip
    pathlib.Path("base.json").write_text(json.dumps(base), encoding="utf-8")
    profile, text = imported("run.jsonl", "--base", "base.json")
    assert table(profile, "all_reduce")["knots_s"] == base["collectives"][2]["knots_s"], profile["collectives"]
    gathers = table(profile, "all_gather")["knots_s"]
    assert [size for size, _ in gathers] == [4096, 1 << 20, 1 << 22], gathers
    alone = 0.0
    for size in BYTES:
        (from_size, start), (to_size, end) = next(
            pair for pair in zip(base["collectives"][0]["knots_s"], base["collectives"][0]["knots_s"][1:])
            if size <= pair[1][0]
        )  # fmt: skip
        alone += start + (end - start) * (size - from_size) / (to_size - from_size)
    near(gathers[1][1] / 1e-3, sum(GATHER_MS[size] for size in BYTES) / 1e3 / alone)
    assert "no all-reduce times" not in text, text


@small_runner.in_new_folder
def test_a_record_without_waits_is_fitted_whole():
    planted("run.jsonl", gathers=False, processor=False)
    profile, text = imported("run.jsonl")
    assert "gathers, reductions and hooks are inside of the passes" in text, text
    assert all(seconds == 0 for _, seconds in table(profile, "all_gather")["knots_s"]), profile["collectives"]
    assert all(value == 0 for value in profile["host"]["units"].values()), profile["host"]
    text = run(STEPSIM, "advise", "run.jsonl")
    assert "no other can be told from this record" in text, text


@small_runner.in_new_folder
def test_what_cannot_be_is_refused_and_what_is_not_told_is_said():
    planted("run.jsonl", notes=["parameters are offloaded to the host, which is not simulated"])
    assert "offloaded to the host, which is not simulated" in imported("run.jsonl")[1]
    run(STEPSIM, "advise", "run.jsonl")
    assert "# parameters are offloaded" in pathlib.Path("advice/scenario.toml").read_text(encoding="utf-8")
    planted("other.jsonl", policy="other", reshard_after_forward="false", reshard_by_unit=[False] * 4)
    text = run(STEPCAL, "import", "run-record", "run.jsonl", "other.jsonl", "--profile", "p.json", status=2)
    assert "its fully_shard has other units or settings than that of run.jsonl" in text, text
    planted("mesh.jsonl", replicas=3)
    text = run(STEPCAL, "import", "run-record", "mesh.jsonl", "--profile", "p.json", status=2)
    assert "2 shards x 3 replicas are not the 2 ranks of the record" in text, text
    lines = pathlib.Path("run.jsonl").read_text(encoding="utf-8").splitlines()
    plain = json.loads(lines[0])
    del plain["parallel"]
    pathlib.Path("ddp.jsonl").write_text("\n".join([json.dumps(plain), *lines[1:]]) + "\n", encoding="utf-8")
    text = run(STEPCAL, "import", "run-record", "run.jsonl", "ddp.jsonl", "--profile", "p.json", status=2)
    assert "is not of a training under fully_shard, run.jsonl is: give records of one kind" in text, text


if __name__ == "__main__":
    sys.exit(small_runner.main(dict(globals())))
