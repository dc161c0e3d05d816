"""Imports a log or a run record as a user would and predicts with it: stepcal import, fit, stepsim.

usage: import_test.py PATH_OF_STEPCAL PATH_OF_STEPSIM
"""

import csv
import json
import os
import pathlib
import re
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests"))
import small_runner  # noqa: E402  (needs the path above)
from small_runner import run  # noqa: E402

DATA = pathlib.Path(os.environ.get("STEPSIM_DATA", ROOT / ".." / "shared" / "data"))
STEPCAL = os.path.abspath(sys.argv[1])
STEPSIM = os.path.abspath(sys.argv[2])
BASE = str(ROOT / "scenarios" / "profiles" / "h100_8x_published.json")
SIZES = [2**i for i in range(10, 28)]
BUCKET = 28_311_552  # Bytes: 1.6875 times 16 MiB.
BUCKETS = 12


def time_us(size):
    """A made-up all-reduce: 20 us and 100 GB/s, twice as slow above 16 MiB."""
    return round(20 + size / 100e3 * (2 if size > 2**24 else 1), 2)


def log_text(ranks=8):
    """The log of one run of all_reduce_perf on one node; in place takes 1 % longer."""
    lines = [
        "# nccl-tests version 2.17.8 nccl-headers=22902 nccl-library=22902",
        "# Collective test starting: all_reduce_perf",
        "# nThread 1 nGpus 1 minBytes 1024 maxBytes 134217728 step: 2(factor) warmup iters: 5",
    ]
    lines += [
        f"#  Rank {rank:2} Group  0 Pid  {100 + rank} on node0 device {rank:2} [0000:{rank:02x}:00] NVIDIA X"
        for rank in range(ranks)
    ]
    lines.append(
        "# size count type redop root time algbw busbw #wrong time algbw busbw #wrong"
    )
    mean = 0
    for size in SIZES:
        blocks = ""
        for us in (time_us(size), round(time_us(size) * 1.01, 2)):
            algbw = size / us / 1e3
            busbw = algbw * 2 * (ranks - 1) / ranks
            mean += round(busbw, 2) / len(SIZES) / 2
            blocks += f"  {us:7.2f}  {algbw:6.2f}  {busbw:6.2f}       0"
        lines.append(f"{size:12}  {size // 4:12}     float     sum      -1{blocks}")
    lines += ["# Out of bounds values : 0 OK", f"# Avg bus bandwidth    : {mean:g}"]
    return "\n".join(lines) + "\n"


class Folder:
    """A folder with the log in it."""

    def __init__(self):
        self.kept = tempfile.TemporaryDirectory()
        self.path = pathlib.Path(self.kept.name)
        self.log = self.file("all_reduce.log", log_text())

    def file(self, name, text=None):
        if text is not None:
            (self.path / name).write_text(text, encoding="utf-8")
        return str(self.path / name)


def scenario(folder, ranks=8, ranks_per_node=8):
    """12 buckets of BUCKET bytes after a backward of 1 ns: the step is the all-reduces."""
    return folder.file(
        "scenario.toml",
        f"""
[scenario]
name = "imported"
question = "What do the all-reduces take?"
steps = 2

[cluster]
ranks = {ranks}
ranks_per_node = {ranks_per_node}

[times]
forward = "12 ns"
backward = "12 ns"
optimizer = "1 ns"

[model]
kind = "blocks"
layers = {BUCKETS}
block_elements = {BUCKET // 4}

[ddp]
bucket_rule = "per_parameter"
gradient_as_bucket_view = true

[data]
samples = 64
lengths = {{ constant = 128 }}

[[policy]]
name = "fixed"
kind = "fixed"
batch_size = 1
""",
    )


def communication_ms(profile, toml):
    text = run(STEPSIM, "run", toml, "--profile", profile, "--json", "-").stdout
    prediction = json.loads(text)["predictions"][0]
    assert prediction["collective_sources"] == ["all_reduce: measured table, 8 ranks"]
    return prediction["summary"]["communication_ms"]


def expected_ms():
    """Linear between 16 and 32 MiB."""
    below, above = time_us(2**24), time_us(2**25)
    return BUCKETS * (below + (above - below) * (BUCKET - 2**24) / 2**24) / 1e3


def test_a_log_becomes_the_price_of_the_all_reduces_of_a_step():
    folder = Folder()
    samples, profile = folder.file("samples.jsonl"), folder.file("profile.json")
    text = run(STEPCAL, "import", "nccl-tests", folder.log, "--out", samples).stdout
    assert "all_reduce" in text and "accept" in text and "next: stepcal fit" in text, text
    report = run(STEPCAL, "fit", samples, "--out", profile).stdout
    assert "all-reduce over 8 ranks, 18 sizes" in report, report
    got = communication_ms(profile, scenario(folder))
    assert abs(got / expected_ms() - 1) < 1e-3, (got, expected_ms())
    provenance = json.loads(pathlib.Path(profile).read_text())["provenance"]["imports"][0]
    assert provenance["file"] == "all_reduce.log" and provenance["nccl_version"] == "2.29.2"
    assert provenance["device"] == "NVIDIA X" and provenance["ranks"] == 8


def test_a_log_goes_into_a_profile_that_is_there_in_one_command():
    folder = Folder()
    mine = folder.file("mine.json")
    run(STEPCAL, "import", "nccl-tests", folder.log, "--base", BASE, "--profile", mine)
    base = json.loads(pathlib.Path(BASE).read_text())
    profile = json.loads(pathlib.Path(mine).read_text())
    assert len(profile["ops"]) == len(base["ops"])
    assert profile["provenance"]["base"]["name"] == "h100_8x_published"
    tables = {table["ranks"]: table for table in profile["collectives"]}
    assert [knot[0] for knot in tables[8]["knots_s"]] == SIZES
    assert tables[4]["knots_s"] == [t for t in base["collectives"] if t["ranks"] == 4][0]["knots_s"]
    assert abs(communication_ms(mine, scenario(folder)) / expected_ms() - 1) < 1e-3


def test_a_log_of_another_collective_is_no_all_reduce():
    folder = Folder()
    gather = log_text().replace("all_reduce", "all_gather").replace("     sum ", "    none ")
    log, mine = folder.file("all_gather.log", gather), folder.file("mine.json")
    refused = run(STEPCAL, "import", "nccl-tests", log, "--op", "all_reduce", status=2)
    assert "the log is of all_gather, but --op says all_reduce" in refused.stderr, refused.stderr
    # The busbw that the made-up log prints is that of an all-reduce.
    taken = run(STEPCAL, "import", "nccl-tests", log, "--ranks", "8", "--base", BASE, "--profile", mine)
    assert f"note: none of this is an all-reduce, which DDP's gradients take: theirs stay those of {BASE}" in taken.stdout
    kinds = [table["kind"] for table in json.loads(pathlib.Path(mine).read_text())["collectives"]]
    assert kinds.count("all_gather") == 1 and kinds.count("all_reduce") == 2, kinds


def test_a_base_can_be_a_shipped_profile_by_its_name():
    folder = Folder()
    mine = folder.file("mine.json")
    named = ["--base", "h100_8x_published", "--profile", mine]
    run(STEPCAL, "import", "nccl-tests", folder.log, *named)
    provenance = json.loads(pathlib.Path(mine).read_text())["provenance"]
    assert provenance["base"]["name"] == "h100_8x_published"


def test_a_sweep_of_gloo_is_no_gpu_and_a_profile_of_it_cannot_be_checked():
    folder = Folder()
    mine = folder.file("mine.json")
    log = folder.file("gloo.log", log_text().replace("NVIDIA X", "CPU"))
    run(STEPCAL, "import", "nccl-tests", log, "--profile", mine)
    assert json.loads(pathlib.Path(mine).read_text())["backend"] == "cpu"
    refused = run(STEPCAL, "check", "--profile", mine, status=2).stderr
    assert "was not made by stepcal measure" in refused and "CUDA" not in refused, refused


def test_json_holds_ranks_rows_and_warnings():
    folder = Folder()
    data = json.loads(run(STEPCAL, "import", "nccl-tests", folder.log, "--json", "-").stdout)
    assert data["ranks"] == 8 and data["nodes"] == 1 and data["warnings"] == []
    first = data["rows"][0]
    assert first == {
        "bytes": 1024,
        "out_of_place_us": time_us(1024),
        "in_place_us": round(time_us(1024) * 1.01, 2),
    }
    two = run(STEPCAL, "import", "nccl-tests", folder.log, folder.log, "--json", "-").stdout
    assert [log["ranks"] for log in json.loads(two)["logs"]] == [8, 8]


def test_a_refused_log_exits_with_2_says_why_and_writes_no_samples():
    folder = Folder()
    cut = folder.file("cut.log", log_text().split("    1024 ")[0])
    samples = folder.file("samples.jsonl")
    done = run(STEPCAL, "import", "nccl-tests", cut, "--out", samples, status=2)
    assert f"{cut}: error: refused: no_rows" in done.stderr, done.stderr
    assert not os.path.exists(samples)


def test_a_log_behind_a_prefix_keeps_its_footer():
    folder = Folder()
    prefixed = folder.file("pods.log", "".join(f"node01: {line}\n" for line in log_text().splitlines()))
    wanted = json.loads(run(STEPCAL, "import", "nccl-tests", folder.log, "--json", "-").stdout)
    found = json.loads(run(STEPCAL, "import", "nccl-tests", prefixed, "--json", "-").stdout)
    assert found["warnings"] == wanted["warnings"], found["warnings"]


def test_the_same_collective_twice_is_refused_another_is_added():
    folder = Folder()
    second = folder.file("second.log", log_text())
    done = run(STEPCAL, "import", "nccl-tests", folder.log, second, "--profile", folder.file("p.json", ""), status=2)
    assert f"{second}:" in done.stderr and f"as in {folder.log}:" in done.stderr, done.stderr
    samples = folder.file("samples.jsonl")
    run(STEPCAL, "import", "nccl-tests", folder.log, "--out", samples)
    again = run(STEPCAL, "import", "nccl-tests", folder.log, "--out", samples, status=2)
    assert "a second all_reduce of 8 ranks" in again.stderr, again.stderr
    other = folder.file("four.log", log_text(ranks=4))
    run(STEPCAL, "import", "nccl-tests", other, "--out", samples)
    profile = folder.file("both.json")
    run(STEPCAL, "fit", samples, "--out", profile)
    tables = json.loads(pathlib.Path(profile).read_text())["collectives"]
    assert sorted(table["ranks"] for table in tables) == [4, 8]


def test_wrong_options_say_what_would_be_right():
    folder = Folder()
    for arguments, message in (
        ((), "no log given"),
        (("--op", "all_reduse", folder.log), "did you mean 'all_reduce'"),
        (("--accept", "no_rows", folder.log), "unknown reason 'no_rows'"),
        (("--base", BASE, folder.log), "--base goes with --profile"),
        (("--run", "2", folder.log), "it has 1 runs"),
        (("nowhere.log",), "cannot read nowhere.log"),
    ):
        done = run(STEPCAL, "import", "nccl-tests", *arguments, status=2)
        assert message in done.stderr, done.stderr
    assert "did you mean 'nccl-tests'" in run(STEPCAL, "import", "nccl-test", "x", status=2).stderr
    assert "usage: stepcal import" in run(STEPCAL, "import", "--help").stdout


TRAINING = """
[scenario]
name = "recorded"
question = "What would the other policy take?"
steps = 42
warmup_steps = 2

[cluster]
ranks = 2
profile = "not_there.json"

[model]
preset = "tiny-classifier"

[optimizer]
kind = "adamw"

[data]
samples = 2048
lengths = { log_uniform = [32, 256], outlier_probability = 0.05, seed = 3 }
sampler = { kind = "distributed", shuffle = true, seed = 3 }

[[policy]]
name = "fixed"
kind = "fixed"
batch_size = 8

[[policy]]
name = "bucketed"
kind = "bucketed"
batch_size = 8

[[policy]]
name = "token_budget"
kind = "token_budget"
max_tokens = 1200
"""
DATA_MS, REDUCE_MS, OPTIMIZER_MS = 0.1, 0.7, 0.5


def forward_ms(row):
    """The made-up cost of a forward; a backward takes twice as long."""
    tokens = len(row["lengths"]) * row["max_length"]
    return 1 + 0.002 * tokens + 5e-6 * tokens * row["max_length"]


def planned(folder, toml, policy):
    """The plan's file, and its rows by step."""
    path = folder.file(policy + ".plan.jsonl")
    run(STEPSIM, "plan", toml, "--policy", policy, "--out", path)
    steps = {}
    for line in pathlib.Path(path).read_text().splitlines()[1:]:
        row = json.loads(line)
        row["max_length"] = row.get("max_length", max(row["lengths"]))
        steps.setdefault(row["step"], []).append(row)
    return path, steps


def record(folder, policy, steps, buckets):
    """A training of these batches by the made-up costs, with bucket times or without."""
    header = {"format": "stepsim-run-record/1", "policy": policy, "world_size": 2}
    # A GPU's: a processor's largest batches are expected to find new memory, which this law has not.
    header |= {"backend": "nccl", "device": "made", "warmup_steps": 2}
    lines, start = [header], 0.0
    for step, rows in steps.items():
        launch = DATA_MS + 3 * max(forward_ms(row) for row in rows)
        for row in rows:
            forward = forward_ms(row)
            line = {
                "step": step,
                "rank": row["rank"],
                "samples": len(row["lengths"]),
                "max_length": row["max_length"],
                "useful_tokens": sum(row["lengths"]),
                "padded_tokens": len(row["lengths"]) * row["max_length"],
                "start_ms": start,
                "data_ms": DATA_MS,
                "forward_ms": forward,
                "backward_ms": launch + REDUCE_MS - DATA_MS - forward,
                "optimizer_ms": OPTIMIZER_MS,
                "step_ms": launch + REDUCE_MS + OPTIMIZER_MS,
            }
            if buckets:
                line["backward_ms"] = 2 * forward
                line["wait_ms"] = launch + REDUCE_MS - DATA_MS - 3 * forward
                own = DATA_MS + 3 * forward
                end = launch + REDUCE_MS
                line["buckets"] = [{"bytes": 1651840, "launch_ms": own, "end_ms": end}]
            lines.append(line)
        start += launch + REDUCE_MS + OPTIMIZER_MS
    text = "".join(json.dumps(line) + "\n" for line in lines)
    return folder.file(policy + ".record.jsonl", text)


def law_ms(steps):
    """The mean step of the steady steps by the made-up costs."""
    times = [
        DATA_MS + 3 * max(forward_ms(row) for row in rows) + REDUCE_MS + OPTIMIZER_MS
        for step, rows in steps.items()
        if step >= 2
    ]
    return sum(times) / len(times)


RECORDED = "token_budget"  # Its batches tell what a sample costs from what a batch does.


def test_one_policys_recorded_steps_predict_the_others():
    for buckets in (True, False):
        folder = Folder()
        toml = folder.file("training.toml", TRAINING)
        plan, steps = planned(folder, toml, RECORDED)
        recorded, profile = record(folder, RECORDED, steps, buckets), folder.file("mine.json")
        report = run(
            STEPCAL, "import", "run-record", recorded, "--plan", plan, "--profile", profile
        ).stdout
        assert "40 steps of 2 ranks" in report and "next: stepsim compare" in report, report
        assert ("whole steps are fitted" in report) is not buckets, report
        assert ("all-reduce of 1651840 bytes: 700.0 us" in report) is buckets, report
        text = run(STEPSIM, "compare", toml, "--profile", profile, "--json", "-").stdout
        predictions = json.loads(text)["predictions"]
        assert [one["policy"] for one in predictions] == ["fixed", "bucketed", "token_budget"]
        for one in predictions:
            expected = law_ms(planned(folder, toml, one["policy"])[1])
            got = one["summary"]["step_time_ms"]["mean"]
            assert abs(got / expected - 1) < 0.01, (buckets, one["policy"], got, expected)
            inside = "bucket caps and networks make no difference" in " ".join(one["warnings"])
            assert inside is not buckets, one["warnings"]
        provenance = json.loads(pathlib.Path(profile).read_text())["provenance"]
        # Nothing of the base stands for what was recorded.
        assert set(provenance) <= {"recorded", "base"}, provenance
        provenance = provenance["recorded"]
        assert provenance["records"][0]["policy"] == RECORDED


def test_records_and_plans_that_do_not_fit_are_refused():
    folder = Folder()
    toml = folder.file("training.toml", TRAINING)
    plan, steps = planned(folder, toml, "fixed")
    other, _ = planned(folder, toml, "bucketed")
    recorded, profile = record(folder, "fixed", steps, True), folder.file("mine.json")
    text = pathlib.Path(recorded).read_text()
    fewer = re.sub(r'"useful_tokens": \d+', '"useful_tokens": 1', text, count=1)
    wrong = folder.file("wrong.jsonl", fewer)
    more = folder.file("more.jsonl", text.replace('"useful_tokens": ', '"useful_tokens": 1', 1))
    damaged = folder.file("damaged.jsonl", text.replace('"rank": 0', '"rank": 7', 1))
    few = folder.file("few.jsonl", "".join(text.splitlines(keepends=True)[:10]))
    for arguments, message in (
        ((), "no run record given"),
        ((recorded, "--profile", profile), "does not describe its model; record with Recorder("),
        ((recorded, "--plan", plan), "give --profile OUT"),
        ((recorded, "--plan", other, "--profile", profile), "'fixed', and no --plan is of it"),
        ((recorded, "--plan", plan, "--plan", plan, "--profile", profile), "a second plan of"),
        ((wrong, "--plan", plan, "--profile", profile), "step 0, rank 0: the record ran 1 useful"),
        ((more, "--plan", plan, "--profile", profile), "more.jsonl:2: error: padded_tokens: "),
        ((damaged, "--plan", plan, "--profile", profile), "damaged.jsonl:2: error: rank"),
        ((few, "--plan", plan, "--profile", profile), "5 steps of ranks are left for a fit"),
        ((recorded, "--plan", "nowhere.jsonl", "--profile", profile), "cannot read nowhere.jsonl"),
        ((recorded, "--plan", plan, "--profile", profile, "--bass", "x"), "--bass"),
    ):
        done = run(STEPCAL, "import", "run-record", *arguments, status=2)
        assert message in done.stderr, (arguments, done.stderr)
    assert not pathlib.Path(profile).exists()
    run(STEPCAL, "import", "run-record", recorded, "--plan", plan, "--profile", profile)
    bert = folder.file("bert.toml", TRAINING.replace("tiny-classifier", "bert-base"))
    done = run(STEPSIM, "run", bert, "--profile", profile, status=2)
    assert "was recorded from another model (tiny-classifier)" in done.stderr, done.stderr
    usage = run(STEPCAL, "import", "run-record", "--help").stdout
    assert "usage: stepcal import run-record" in usage


def lab_record(folder, case, rows, steps):
    """A case of the token-skew lab as a record of whole steps: compute is a third forward."""
    header = {"format": "stepsim-run-record/1", "policy": case, "world_size": 4}
    header |= {"backend": "gloo", "device": "token-skew lab", "warmup_steps": 2}
    lines, start = [header], [0.0] * 4
    for row in rows:
        rank, compute = int(row["rank"]), float(row["compute_ms"])
        batch = steps[int(row["step"])][rank]
        line = {
            "step": int(row["step"]),
            "rank": rank,
            "samples": len(batch["lengths"]),
            "max_length": batch["max_length"],
            "useful_tokens": sum(batch["lengths"]),
            "padded_tokens": len(batch["lengths"]) * batch["max_length"],
            "start_ms": start[rank],
            "data_ms": float(row["data_ms"]),
            "forward_ms": compute / 3,
            "backward_ms": compute * 2 / 3,
            "optimizer_ms": 0,
            "step_ms": float(row["step_ms"]),
        }
        start[rank] += line["step_ms"]
        lines.append(line)
    text = "".join(json.dumps(line) + "\n" for line in lines)
    return folder.file(case + ".record.jsonl", text)


def test_the_token_skew_labs_steps_become_a_profile():
    measured = DATA / "seed_lab" / "measured.csv"
    if not measured.exists():
        raise small_runner.Skip(f"no {measured}")
    with open(measured, encoding="utf-8") as table:
        rows = list(csv.DictReader(table))
    folder = Folder()
    toml = str(ROOT / "scenarios" / "token_skew.toml")
    arguments, live = [], []
    for case in ("uniform", "variable_fixed"):
        plan, steps = planned(folder, toml, case)
        own = [row for row in rows if row["case"] == case]
        live.append(lab_record(folder, case, own, steps))
        arguments += [live[-1], "--plan", plan]
    profile = folder.file("lab.json")
    report = run(STEPCAL, "import", "run-record", *arguments, "--profile", profile).stdout
    assert "20 steps of 4 ranks" in report and "whole steps are fitted" in report, report
    text = run(STEPSIM, "compare", toml, "--profile", profile).stdout
    for policy in ("uniform", "variable_fixed", "bucketing", "token_budget"):
        assert policy in text, text
    text = run(STEPSIM, "validate", toml, "--profile", profile, "--live", *live).stdout
    assert "variable_fixed" in text, text


if __name__ == "__main__":
    sys.exit(small_runner.main(globals()))
