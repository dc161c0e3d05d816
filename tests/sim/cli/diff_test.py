"""Runs stepsim diff as a user would, on the records of a made training.

usage: diff_test.py PATH_OF_STEPSIM
"""

import copy
import csv
import io
import json
import os
import pathlib
import random
import re
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
import stepsim_program  # noqa: E402  (it takes the same argument)
import small_runner  # noqa: E402  (needs the path above)

PARAMETERS = [{"name": "weight", "shape": [100, 100], "dtype": "f32"}]
NOISE = 0.003  # Of every time, by itself.
STEPS = 80
PARTS = ("data", "forward", "backward", "optimizer")


def header(**members):
    return {
        "format": "stepsim-run-record/1", "policy": "fixed", "world_size": 2, "backend": "gloo",
        "device": "test", "host": "one", "started_at": "2026-11-27T10:00:00Z",
        "versions": {"torch": "2.10"}, "warmup_steps": 2,
        "model": {"name": "Own", "parameters": PARAMETERS}, **members,
    }  # fmt: skip


def training(seed, factors=None, extra=None, batches=1, lengths=(16, 128), network=1.0, steps=STEPS):
    """Rows of two ranks by a law of their batches, with noise.

    factors: {(part, rank): factor}; extra: {(part, rank): ms}; batches: seed of the lengths.
    """
    factors, extra = factors or {}, extra or {}
    noise, draw = random.Random(seed), random.Random(batches)
    rows, clock = [], 1000.0
    for step in range(steps):
        tokens = [8 * draw.randint(*lengths) for _ in range(2)]

        def took(part, rank, ms):
            ms = ms * factors.get((part, rank), 1) * (1 + NOISE * noise.gauss(0, 1))
            return ms + extra.get((part, rank), 0)

        own = [{"data": took("data", rank, 1.0), "forward": took("forward", rank, 1 + 0.02 * tokens[rank]),
                "backward": took("backward", rank, 1 + 0.04 * tokens[rank])} for rank in range(2)]
        launch = [sum(one.values()) for one in own]
        end = max(launch) + 3 * network * (1 + NOISE * noise.gauss(0, 1))
        for rank in range(2):
            last = took("optimizer", rank, 4.0)
            rows.append({
                "repeat": 0, "step": step, "rank": rank, "samples": 8, "max_length": tokens[rank] // 8,
                "useful_tokens": tokens[rank], "padded_tokens": tokens[rank], "start_ms": clock,
                **{f"{part}_ms": ms for part, ms in own[rank].items()},
                "wait_ms": end - launch[rank], "optimizer_ms": last, "step_ms": end + last,
                "buckets": [{"bytes": 40000, "launch_ms": launch[rank], "end_ms": end}],
            })  # fmt: skip
        clock += end + 5
    return rows


def write(path, rows, **members):
    lines = [header(**members), *rows]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


def in_folder(test):
    def wrapped():
        with tempfile.TemporaryDirectory() as name:
            before = os.getcwd()
            os.chdir(name)
            try:
                test(pathlib.Path(name))
            finally:
                os.chdir(before)

    return wrapped


LATER = {"started_at": "2026-11-27T11:00:00Z"}


def diff(before, after, *more):
    return json.loads(stepsim_program.run("diff", before, after, "--json", "-", *more).stdout)


@in_folder
def test_the_same_training_twice_is_no_difference_in_20_of_20(folder):
    quiet = causes = 0
    for pair in range(20):
        before = write(folder / "a.jsonl", training(2 * pair))
        after = write(folder / "b.jsonl", training(2 * pair + 1), **LATER)
        found = diff(before, after)
        quiet += found["verdict"] == "no difference"
        causes += bool(found["causes"])
    assert (quiet, causes) == (20, 0), (quiet, causes)


@in_folder
def test_planted_parts_are_found_and_named_with_their_rank(folder):
    before = write(folder / "a.jsonl", training(1))
    named = {}
    for share in (0.01, 0.03, 0.10):
        for part in PARTS:
            for rank in range(2):
                rows = training(100 + rank, {(part, rank): 1 + share})
                found = diff(before, write(folder / "b.jsonl", rows, **LATER))
                first = found["causes"][:1]
                hit = bool(first) and (first[0]["part"], first[0]["ranks"]) == (part, [rank])
                named[share] = named.get(share, 0) + hit
                assert len(found["causes"]) <= 1, (share, part, rank, found["reasons"])
                if hit:
                    low, high = first[0]["interval_ms"]
                    assert low < first[0]["change_ms"] < high and low > 0, first
    # Noise of 0.3 % of each time, with drift and as many parts and ranks, hides some of 1 %.
    assert named[0.03] == named[0.10] == 8 and named[0.01] >= 4, named


@in_folder
def test_the_verdict_stands_first_in_80_columns(folder):
    before = write(folder / "a.jsonl", training(1))
    rows = training(2, {("forward", 0): 1.1, ("forward", 1): 1.1})
    after = write(folder / "b.jsonl", rows, versions={"torch": "2.15"}, **LATER)
    text = stepsim_program.run("diff", before, after).stdout
    lines = text.splitlines()
    assert lines[0].startswith("verdict:  slower: a step takes "), text
    heads = [line[:10].strip() for line in lines if line[:10].strip().endswith(":")]
    assert heads[:4] == ["verdict:", "why:", "changed:", "next:"], heads
    assert all(len(line) <= 80 for line in lines), [line for line in lines if len(line) > 80]
    assert "forward on all 2 ranks takes " in text and "long batches most" in text, text
    assert "versions.torch 2.10 -> 2.15" in text, text
    found = diff(before, after)
    assert found["format"] == "stepsim-diff/1" and found["verdict"] == "slower"
    low, high = found["step"]["interval_ms"]
    assert 0 < low < found["step"]["change_ms"] < high
    table = list(csv.DictReader(io.StringIO(stepsim_program.run("diff", before, after, "--csv", "-").stdout)))
    assert {row["part"] for row in table} >= set(PARTS) and len(table) == len(found["parts"])
    other = diff(after, before)
    assert other["verdict"] == "faster" and other["causes"][0]["change_ms"] < 0, other["headline"]


@in_folder
def test_ranks_that_wait_for_a_slow_one_and_a_slow_network_are_told_apart(folder):
    before = write(folder / "a.jsonl", training(1))
    found = diff(before, write(folder / "b.jsonl", training(2, extra={("backward", 1): 8}), **LATER))
    first = found["causes"][0]
    assert (first["part"], first["ranks"], first["waiting_ranks"]) == ("backward", [1], [0]), first
    found = diff(before, write(folder / "b.jsonl", training(3, network=2), **LATER))
    first = found["causes"][0]
    assert (first["part"], first["ranks"]) == ("exposed_communication", []), found["reasons"]
    assert "stepsim.torch.all_reduce" in found["next"][0], found["next"]


@in_folder
def test_other_batches_are_no_change_of_the_machine(folder):
    before = write(folder / "a.jsonl", training(1))
    after = write(folder / "b.jsonl", training(2, batches=7, lengths=(48, 160)), **LATER)
    found = diff(before, after)
    assert found["verdict"] == "no difference" and not found["causes"], found["headline"]
    assert not found["batches"]["same"] and found["batches"]["change_ms"] > 5, found["batches"]
    assert any(reason.startswith("the batches changed") for reason in found["reasons"]), found


@in_folder
def test_a_fixed_cost_of_a_step_is_one_at_all_lengths(folder):
    before = write(folder / "a.jsonl", training(1))
    slow = training(2, extra={("optimizer", 0): 2, ("optimizer", 1): 2})
    found = diff(before, write(folder / "b.jsonl", slow, **LATER))
    assert any("as a fixed cost of a step" in reason for reason in found["reasons"]), found["reasons"]


@in_folder
def test_steps_that_are_held_up_are_counted_apart(folder):
    before = write(folder / "a.jsonl", training(1))
    rows = training(2)
    for row in rows:
        if row["step"] % 11 == 5:
            row["optimizer_ms"] += 300
            row["step_ms"] += 300
    found = diff(before, write(folder / "b.jsonl", rows, **LATER))
    assert found["verdict"] == "no difference" and not found["causes"], found["headline"]
    assert found["after"]["held_up"]["held_up"] == 7 and found["held_up_chance"] < 0.02, found["after"]
    # A step that is held up for 2 s in the beginning does not come again.
    rows = training(2)
    for row in rows[4:6]:
        row["forward_ms"] += 2000
        row["step_ms"] += 2000
    text = stepsim_program.run("diff", before, write(folder / "b.jsonl", rows, **LATER)).stdout
    assert "one step at the beginning of the runs took much longer" in " ".join(text.split()), text


@in_folder
def test_fail_if_slower_decides_the_exit_status(folder):
    before = write(folder / "a.jsonl", training(1))
    after = write(folder / "b.jsonl", training(2, {("forward", 0): 1.1, ("forward", 1): 1.1}), **LATER)
    stepsim_program.run("diff", before, after)
    stepsim_program.run("diff", before, after, "--fail-if-slower", "1", status=1)
    stepsim_program.run("diff", before, after, "--fail-if-slower", "20")
    stepsim_program.run("diff", after, before, "--fail-if-slower", "0")


@in_folder
def test_fail_if_slower_says_where_the_steps_cannot_tell(folder):
    before = write(folder / "a.jsonl", training(1, steps=16))
    after = write(folder / "b.jsonl", training(2, steps=16), **LATER)
    text = " ".join(stepsim_program.run("diff", before, after, "--fail-if-slower", "0.1").stdout.split())
    assert "--fail-if-slower 0.1: the exit status is 0, which proves nothing" in text, text
    found = diff(before, after)
    assert not any("fail-if-slower" in note for note in found["notes"]), found["notes"]
    text = stepsim_program.run("diff", before, after, "--fail-if-slower", "80").stdout
    assert "proves nothing" not in text, text


@in_folder
def test_the_same_batches_are_not_said_to_have_changed(folder):
    # One more step is left out of AFTER, and means of steps differ by more than their batches.
    before = write(folder / "a.jsonl", training(1))
    slow = training(2)
    for row in slow[::6]:
        row["optimizer_ms"] += 1.5
        row["step_ms"] += 1.5
    after = write(folder / "b.jsonl", slow, **{**LATER, "warmup_steps": 3})
    found = diff(before, after)
    assert found["batches"]["same"], found["batches"]
    tokens = [round(found["batches"][f"tokens_{side}"]) for side in ("before", "after")]
    said = any("the batches changed" in reason for reason in found["reasons"])
    assert not said or tokens[0] != tokens[1], (tokens, found["reasons"])


@in_folder
def test_what_changed_fits_into_80_columns_and_names_the_parallelism(folder):
    units = [[""]] + [[f"model.layers.{i}"] for i in range(12)]
    parallel = {"kind": "fsdp2", "units": "; ".join(names[0] for names in units[1:]), "unit_modules": units,
                "replicas": 1, "shards": 2, "reshard_after_forward": "default"}  # fmt: skip
    before = write(folder / "a.jsonl", training(1), parallel=parallel)
    after = write(folder / "b.jsonl", training(2), ddp={"bucket_cap_mb": 25, "static_graph": False}, **LATER)
    found = diff(before, after)
    assert "fully_shard (13 units, 2 shards) -> DDP" in found["settings"], found["settings"]
    assert not any("{" in one for one in found["settings"]), found["settings"]
    text = stepsim_program.run("diff", before, after).stdout
    assert all(len(line) <= 80 for line in text.splitlines()), text
    other = {**parallel, "reshard_after_forward": "false", "unit_modules": units[:7]}
    found = diff(before, write(folder / "c.jsonl", training(2), parallel=other, **LATER))
    assert "parallel.reshard_after_forward default -> false" in found["settings"], found["settings"]


@in_folder
def test_no_interval_says_that_more_than_all_went(folder):
    before = write(folder / "a.jsonl", training(1, steps=16))
    rows = training(2, steps=16)
    noise = random.Random(7)
    for row in rows:
        row["data_ms"] *= noise.uniform(0, 9)
    text = stepsim_program.run("diff", before, write(folder / "b.jsonl", rows, **LATER)).stdout
    shares = [float(one) for one in re.findall(r"-\d+\.\d(?= (?:to|%))", text)]
    assert shares and min(shares) >= -100, text


@in_folder
def test_ranks_files_and_several_runs_of_a_side(folder):
    sides = {"a": training(1), "b": training(2)}
    files = []
    for name, rows in sides.items():
        members = {} if name == "a" else LATER
        for rank in range(2):
            own = [row for row in rows if row["rank"] == rank]
            files.append(write(folder / f"{name}.rank{rank}.jsonl", own, **members).name)
    text = stepsim_program.run("diff", *files).stdout
    assert text.startswith("verdict:  no difference beyond noise"), text
    write(folder / "a2.jsonl", training(3), started_at="2026-11-27T12:00:00Z")
    write(folder / "b2.jsonl", training(4), started_at="2026-11-27T13:00:00Z")
    done = stepsim_program.run("diff", "--before", *files[:2], "a2.jsonl", "--after", *files[2:],
                               "b2.jsonl", "--json", "-")
    found = json.loads(done.stdout)
    assert found["before"]["records"] == ["a.rank0.jsonl", "a2.jsonl"], found["before"]
    assert found["before"]["steps"] == 2 * (STEPS - 2), found["before"]
    assert "several runs" not in " ".join(found["notes"]), found["notes"]


def refusal(*arguments):
    done = stepsim_program.run("diff", *arguments, status=2)
    assert "Traceback" not in done.stderr and "internal" not in done.stderr, done.stderr
    return done.stderr


@in_folder
def test_batches_without_their_like_are_compared_by_useful_tokens_a_second(folder):
    """As after a change of the policy: every step is longer, and does more."""

    def speed(rows):
        steps = {}
        for row in rows:
            if row["step"] >= 2:  # Warm-up.
                steps.setdefault(row["step"], []).append(row)
        tokens = sum(row["useful_tokens"] for pair in steps.values() for row in pair)
        return 1e3 * tokens / sum(max(row["step_ms"] for row in pair) for pair in steps.values())

    small, large = training(1, extra={("forward", 0): 20.0}), training(2, lengths=(1000, 1200), extra={("forward", 0): 20.0})
    a, b = write(folder / "a.jsonl", small), write(folder / "b.jsonl", large, **LATER)
    done = stepsim_program.run("diff", a, b, "--json", "diff.json")
    result = json.loads((folder / "diff.json").read_text(encoding="utf-8"))
    told = result["useful_tokens_per_s"]
    assert result["verdict"] == "faster" and result["step"] is None and result["parts"] == [], result
    assert abs(told["before"] / speed(small) - 1) < 0.02 and abs(told["after"] / speed(large) - 1) < 0.02, told
    assert told["interval"][0] < told["change"] < told["interval"][1] and told["interval"][0] > 0, told
    said = " ".join(done.stdout.split())
    assert said.startswith(f"verdict: faster: {told['before']:.0f} -> {told['after']:.0f} useful tokens/s"), done.stdout
    assert all(len(line) <= 80 for line in done.stdout.splitlines()), done.stdout
    stepsim_program.run("diff", a, b, "--fail-if-slower", "2")
    stepsim_program.run("diff", b, a, "--fail-if-slower", "2", status=1)


@in_folder
def test_mistakes_are_named(folder):
    rows = training(1)
    a = write(folder / "a.jsonl", rows)
    assert "give two run records: BEFORE and AFTER" in refusal(a)
    assert "is the same run as" in refusal(a, a)
    assert "--before RECORD" in refusal(a, a, a)
    assert "give BEFORE and AFTER, or --before" in refusal("--before", a)
    three = copy.deepcopy(rows) + [{**row, "rank": 2} for row in rows if row["rank"] == 0]
    error = refusal(a, write(folder / "b.jsonl", three, world_size=3, **LATER))
    assert "was recorded on 3 ranks" in error and "cluster.ranks" in error, error
    other = [{"name": "weight", "shape": [200, 100], "dtype": "f32"}]
    model = {"name": "Own", "parameters": other}
    error = refusal(a, write(folder / "b.jsonl", training(2), model=model, **LATER))
    assert "is of another model than" in error, error
    nothing = [{**row, "useful_tokens": 0, "lengths": []} for row in training(2, lengths=(1000, 1200))]
    error = refusal(a, write(folder / "b.jsonl", nothing, **LATER))
    assert "no batches in common" in error and "recorder.step(lengths=" in error, error
    error = refusal(a, write(folder / "b.jsonl", training(2, steps=10), **LATER))
    assert "has 8 steps behind its warm-up" in error, error
    (folder / "rank0.pt.trace.json.gz").write_bytes(b"")
    error = refusal(a, folder / "rank0.pt.trace.json.gz")
    assert "stepcal import kineto" in error and "--run-record" in error, error
    assert "cannot" in refusal(a, folder / "missing.jsonl")
    device = write(folder / "b.jsonl", training(2), device="other", **LATER)
    assert "device test -> other" in stepsim_program.run("diff", a, device).stdout


if __name__ == "__main__":
    sys.exit(small_runner.main(globals()))
