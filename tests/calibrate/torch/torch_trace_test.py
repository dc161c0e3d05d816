#!/usr/bin/env python3
"""Traces of a real DDP training (gloo, 2 ranks) become a profile that predicts another policy.

usage: torch_trace_test.py PATH_OF_STEPCAL PATH_OF_STEPSIM
"""

import functools
import gzip
import importlib.util
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests"))
import small_runner  # noqa: E402  (needs the path above)
import torch_store  # noqa: E402

STEPCAL = os.path.abspath(sys.argv[1])
STEPSIM = os.path.abspath(sys.argv[2])
STEPS = 12  # Of each policy.
FOLDER = tempfile.TemporaryDirectory()

SCENARIO = """
[scenario]
name = "traced"
steps = 14
warmup_steps = 0
[cluster]
ranks = 2
profile = "mine.json"
communicator = "gloo"
[model]
kind = "recorded"
[ddp]
bucket_cap = "1 MiB"
[data]
samples = 400
lengths = { uniform = [8, 64] }
"""
POLICIES = ("bucketed", "fixed")


def shell(*command):
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=FOLDER.name, timeout=120
    )
    return done.returncode, done.stdout + done.stderr


def run(*command):
    status, text = shell(*command)
    assert status == 0, f"{' '.join(command)}: status {status}\n{text}"
    return text


def write_scenario(name, policy):
    """A scenario with both policies; `policy` makes the text of each."""
    with open(os.path.join(FOLDER.name, name), "w", encoding="utf-8") as file:
        file.write(SCENARIO)
        for one in POLICIES:
            file.write(f'[[policy]]\nname = "{one}"\n{policy(one)}\n')


@functools.cache
def traces():
    """Trains both policies by turns; the traces of each policy's ranks."""
    if importlib.util.find_spec("torch") is None:
        raise small_runner.Skip("no torch in this Python")
    write_scenario("plan.toml", lambda one: f'kind = "{one}"\nbatch_size = 8')
    run(STEPSIM, "plan", "plan.toml", "--out-dir", ".")
    script = str(pathlib.Path(__file__).with_name("traced_training.py"))
    plans = [f"{one}.jsonl" for one in POLICIES]
    # A second thread of OpenBLAS would take the other rank's core.
    # The C library keeps its memory: else page faults make some steps twice as long.
    kept = dict.fromkeys(("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_"), "4000000000")
    statuses, texts = torch_store.run_ranks([sys.executable, script, *plans, str(STEPS)],
                                            folder=FOLDER.name, **torch_store.settings(), **kept)
    assert statuses == [0, 0], texts
    return {one: [f"{one}.rank{rank}.pt.trace.json.gz" for rank in (0, 1)] for one in POLICIES}


def lines_of(name):
    with open(os.path.join(FOLDER.name, name), encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def write_record(policy):
    """Makes a run record of the policy's traces, named as its policy."""
    name = f"{policy}.record.jsonl"
    text = run(STEPCAL, "import", "kineto", *traces()[policy], "--run-record", name)
    kept = kept_steps(text, policy)
    assert f"wrote {name}: {len(kept)} steps of 2 ranks" in text, text
    header, *rows = lines_of(name)
    header["policy"] = policy
    with open(os.path.join(FOLDER.name, name), "w", encoding="utf-8") as file:
        file.writelines(json.dumps(value) + "\n" for value in (header, *rows))
    return header, rows, kept


@functools.cache
def step_numbers(policy):
    """The profiler's numbers of the policy's steps; PyTorch 1.13 begins by one lower than 2.6."""
    with gzip.open(os.path.join(FOLDER.name, traces()[policy][0]), "rt", encoding="utf-8") as file:
        names = [row["name"] for row in json.load(file)["traceEvents"]]
    return sorted(int(name.split("#")[1]) for name in names if name.startswith("ProfilerStep#"))


def kept_steps(text, policy):
    """Which of the policy's steps, from 0 on, an import took. It names those that it left out.

    On a busy machine the threads of gloo may begin the two all-reduces of a step in the other order,
    and the first steps may take longer than the others.
    """
    left_out = [int(number) for number in re.findall(r"step (\d+): other buckets.*; left out", text)]
    numbers = step_numbers(policy)
    kept = [step for step, number in enumerate(numbers) if number not in left_out]
    slow = re.search(r"the first (?:(\d+) steps|step) took .*: left out", text)
    first = int(slow[1] or 1) if slow else 0
    assert len(numbers) == STEPS and len(kept) == STEPS - len(left_out) >= STEPS - 3 + first, text
    return kept[first:]


def test_batches_and_tensors_are_those_that_were_trained():
    for turn, policy in enumerate(POLICIES):
        header, rows, kept = write_record(policy)
        # The first step of each policy is one of the two before the trace.
        planned = {(row["step"] - 1, row["rank"]): row["lengths"] for row in lines_of(f"{policy}.jsonl")[1:]}
        for row in rows:
            lengths = planned[kept[row["step"]], row["rank"]]
            assert (row["samples"], row["max_length"]) == (len(lengths), max(lengths)), (turn, row)
            parts = ("data_ms", "forward_ms", "backward_ms", "wait_ms", "optimizer_ms")
            assert all(row[part] >= 0 for part in parts), row
            assert row["forward_ms"] > 0 and row["backward_ms"] > 0, row
            assert abs(sum(row[part] for part in parts) - row["step_ms"]) < 1e-6, row
        shapes = [tuple(tensor["shape"]) for tensor in header["model"]["parameters"]]
        # Gradients come in the reverse order of the forward pass: so the embedding stands first.
        assert len(shapes) == 1 + 2 * 12 + 2 and shapes[0] == (1000, 128), shapes
        elements = 1000 * 128 + 2 * (4 * 128 * 129 + 128 * 512 * 2 + 512 + 128 + 4 * 128) + 129 * 2
        found = sum(tensor["shape"][0] * (tensor["shape"] + [1])[1] for tensor in header["model"]["parameters"])
        assert found == elements, (found, elements)
        assert sum(bucket["bytes"] for bucket in rows[0]["buckets"]) == 4 * elements, rows[0]


def test_the_trace_of_one_policy_predicts_the_other():
    steps = min(len(write_record(policy)[2]) for policy in POLICIES)
    text = run(STEPCAL, "import", "kineto", *traces()["bucketed"], "--profile", "mine.json")
    count = len(kept_steps(text, "bucketed"))
    assert f"{count} steps of 2 ranks" in text and "[samples, length], as attention tells" in text, text
    assert f"only {count} of {count} steps are without a new shape" not in text, text
    assert "all_reduce of 2 ranks on 1 node" in text and "compute goes into no profile" not in text, text
    write_scenario("records.toml", lambda one: f'kind = "plan"\nfile = "{one}.record.jsonl"')
    records = [f"{one}.record.jsonl" for one in POLICIES]
    status, text = shell(
        STEPSIM, "validate", "records.toml", "--steps", str(steps), "--live", *records, "--json", "v.json"
    )
    assert status in (0, 1), text  # 1: an error beyond its bound, which is for a machine with no other work.
    policies = json.loads(pathlib.Path(FOLDER.name, "v.json").read_text(encoding="utf-8"))["policies"]
    errors = {one["policy"]: one["error"]["mean"] for one in policies}
    print("error of the mean step:", {name: f"{100 * error:+.1f} %" for name, error in errors.items()})
    # A machine with other work slows both. The batches of `fixed` are longer, at one sample count.
    assert all(abs(error) < 0.5 for error in errors.values()), errors
    assert abs((1 + errors["fixed"]) / (1 + errors["bucketed"]) - 1) < 0.3, errors
    predicted = {one["policy"]: one["predicted_ms"]["mean"] for one in policies}
    assert predicted["fixed"] > 1.05 * predicted["bucketed"], predicted


def rewritten(policy, change):
    """The policy's traces after `change` of their rows."""
    paths = []
    for path in traces()[policy]:
        with gzip.open(os.path.join(FOLDER.name, path), "rt", encoding="utf-8") as file:
            trace = json.load(file)
        trace["traceEvents"] = change(trace["traceEvents"])
        paths.append(f"changed.{path}")
        with gzip.open(os.path.join(FOLDER.name, paths[-1]), "wt", encoding="utf-8") as file:
            json.dump(trace, file)
    return paths


def test_without_shapes_the_collectives_enter_and_it_is_said_what_to_switch_on():
    def without_shapes(rows):
        return [row if row["name"].startswith("gloo:") else {**row, "args": {}} for row in rows]

    changed = rewritten("fixed", without_shapes)
    text = run(STEPCAL, "import", "kineto", *changed, "--profile", "collectives.json")
    assert "compute goes into no profile: the trace has no shapes" in text, text
    assert "record_shapes=True" in text, text
    profile = json.loads(pathlib.Path(FOLDER.name, "collectives.json").read_text(encoding="utf-8"))
    assert "recorded" not in profile and len(profile["collectives"]) == 1, profile
    status, text = shell(STEPCAL, "import", "kineto", *changed, "--run-record", "none.jsonl")
    assert status == 2 and "no run record can be made: the trace has no shapes" in text, text


def test_the_trace_of_one_rank_of_two_tells_its_compute():
    rank0 = traces()["bucketed"][0]
    text = run(STEPCAL, "import", "kineto", rank0, "--profile", "rank0.json")
    assert "only rank 0 of 2 has a trace here" in text, text
    assert f"{len(kept_steps(text, 'bucketed'))} steps of 2 ranks" in text, text
    profile = json.loads(pathlib.Path(FOLDER.name, "rank0.json").read_text(encoding="utf-8"))
    assert "recorded" in profile and not profile.get("collectives"), profile
    base = ("--base", "collectives.json")  # Made by the test above.
    run(STEPCAL, "import", "kineto", rank0, *base, "--profile", "rank0.json")
    profile = json.loads(pathlib.Path(FOLDER.name, "rank0.json").read_text(encoding="utf-8"))
    assert "recorded" in profile and len(profile["collectives"]) == 1, profile


def test_a_step_whose_buckets_began_in_the_other_order_is_left_out():
    def swapped(rows):
        """The two all-reduces of the last step, each with the shape of the other."""
        first, second = [row for row in rows if row["name"] == "gloo:all_reduce"][-2:]
        first["args"], second["args"] = second["args"], first["args"]
        return rows

    whole = run(STEPCAL, "import", "kineto", *traces()["fixed"], "--run-record", "whole.jsonl")
    text = run(STEPCAL, "import", "kineto", *rewritten("fixed", swapped), "--run-record", "swapped.jsonl")
    last = step_numbers("fixed")[-1]
    assert f"step {last}: other buckets, or in another order, than in most steps; left out" in text, text
    assert kept_steps(text, "fixed") == kept_steps(whole, "fixed")[:-1], text


def test_too_few_steps_say_how_many_it_takes():
    def first_steps(rows):
        ends = sorted(row["ts"] + row["dur"] for row in rows if row["name"].startswith("ProfilerStep#"))
        return [row for row in rows if row["ts"] < ends[3]]

    text = run(
        STEPCAL, "import", "kineto", *rewritten("fixed", first_steps), "--profile", "collectives.json"
    )
    assert "8 steps of ranks are too few for a fit, which takes 10" in text, text


def test_an_unknown_order_of_dimensions_is_refused():
    status, text = shell(STEPCAL, "import", "kineto", *traces()["fixed"], "--dims", "x")
    assert status == 2 and "--dims: expected samples,length or length,samples" in text, text


if __name__ == "__main__":
    sys.exit(small_runner.main(globals()))
