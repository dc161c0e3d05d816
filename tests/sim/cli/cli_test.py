"""Runs the stepsim program as a user would: exit statuses, messages, files.

usage: cli_test.py PATH_OF_STEPSIM
"""

import csv
import io
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

from stepsim_program import Blocks, PACKING, ROOT, SKEW, STEPSIM, VALLEY, run

import small_runner  # from a folder that stepsim_program names


def test_help_names_every_command_and_each_has_its_own_help():
    text = run("--help").stdout
    for command in (
        "advise run compare sweep blame solve ladder plan buckets "
        "replay validate trace policies models profiles"
    ).split():
        assert f"\n  {command} " in text, command
        assert "usage: stepsim " + command in run(command, "--help").stdout


def test_an_unknown_command_or_option_names_the_nearest():
    assert "did you mean 'compare'" in run("comparee", status=2).stderr
    assert "did you mean '--policy'" in run("run", SKEW, "--polcy", "x", status=2).stderr


def test_a_missing_scenario_is_bad_input():
    assert "nowhere.toml" in run("run", "nowhere.toml", status=2).stderr
    assert "no scenario file given" in run("compare", status=2).stderr


def test_an_unknown_policy_names_the_known_ones():
    message = run("run", SKEW, "--policy", "bucketin", status=2).stderr
    assert "did you mean 'bucketing'" in message


def test_a_wrong_unit_in_an_override_is_refused():
    message = run("run", SKEW, "--set", "ddp.bucket_cap=25 MB", status=2).stderr
    assert "unknown unit 'MB'" in message and "--set ddp.bucket_cap=25 MB" in message


def test_a_size_without_its_unit_is_refused_wherever_it_stands():
    def refused(*arguments):
        message = run(*arguments, status=2).stderr
        assert "without a unit counts" in message and 'did you mean "' in message, message
        return message

    for command in (["run"], ["compare"], ["buckets"], ["plan", "--out", "-"], ["trace", "--out", "-"]):
        message = refused(*command, SKEW, "--set", "ddp.bucket_cap=25")
        assert "--set ddp.bucket_cap=25: error: 25 without" in message
    refused("run", SKEW, "--set", "ddp.first_bucket_cap=1")
    refused("sweep", SKEW, "--over", "ddp.bucket_cap=1,25")
    refused("sweep", SKEW, "--over", "ddp.bucket_cap=1..25:+8")
    refused("solve", SKEW, "--key", "ddp.bucket_cap=1..25", "--step-time", "1 ms")
    table = 'cluster.all_reduce={ sizes = ["1", "64 MiB"], times = ["1 ms", "2 ms"] }'
    refused("run", SKEW, "--set", table)
    run("sweep", SKEW, "--steps", "4", "--over", "ddp.bucket_cap=512B..1KiB:x2")


def test_plan_equals_the_published_plan_in_every_row():
    data = pathlib.Path(os.environ.get("STEPSIM_DATA", ROOT / ".." / "shared" / "data"))
    published = data / "seed_lab" / "plan.csv"
    if not published.exists():
        raise small_runner.Skip(f"no reference data at {published}")
    table = run("plan", SKEW, "--csv", "-").stdout
    ours = list(csv.reader(io.StringIO(table)))
    theirs = list(csv.reader(published.open(encoding="utf-8")))
    assert len(theirs) == 1 + 192
    assert sorted(ours) == sorted(theirs)


def test_a_policy_that_cuts_samples_keeps_every_token_on_its_way_through_the_files():
    with tempfile.TemporaryDirectory() as folder:
        lengths = [5, 3, 4, 9, 1]
        file = os.path.join(folder, "lengths.txt")
        pathlib.Path(file).write_text("\n".join(map(str, lengths)), encoding="utf-8")
        cut = [PACKING, "--steps", "6", "--set", "scenario.warmup_steps=0"]
        cut += ["--set", "cluster.ranks=1", "--set", "data.samples=5"]
        cut += ["--set", "data.sampler={shuffle=false}", "--set", "policy.TRL wrapped.rows=1"]
        cut += ["--set", "policy.TRL wrapped.capacity=4"]
        data = ["--set", f'data.lengths={{file="{file}"}}']
        plan = os.path.join(folder, "plan.jsonl")
        table = run("plan", *cut, *data, "--policy", "TRL wrapped", "--out", plan, "--csv", "-")
        rows = list(csv.DictReader(io.StringIO(table.stdout)))
        assert [row["sample_ids"] for row in rows] == ["0", "0 1", "2", "3", "3", "3 4"], rows
        assert [row["lengths"] for row in rows] == ["4", "1 3", "4", "4", "4", "1 1"], rows
        assert [row["offsets"] for row in rows] == ["0", "4 0", "", "0", "4", "8 0"], rows
        # The plan's own lengths make the same plan again.
        again = ["--set", f'data.lengths={{plan="{plan}"}}']
        second = os.path.join(folder, "second.jsonl")
        run("plan", *cut, *again, "--policy", "TRL wrapped", "--out", second)
        assert pathlib.Path(plan).read_bytes() == pathlib.Path(second).read_bytes()


def test_a_policy_that_cuts_samples_takes_longer_ones_than_the_model():
    options = [PACKING, "--set", "data.samples=2000", "--out", "-", "--quiet"]
    longer = ["--set", "data.lengths={uniform=[1,4000]}"]
    run("plan", *options, *longer, "--policy", "TRL wrapped")
    wide = ["--policy", "TRL wrapped", "--set", "policy.TRL wrapped.capacity=2049"]
    message = run("plan", *options, *longer, *wide, status=2).stderr
    assert "policy 'TRL wrapped': a sample is 2049 tokens long, but model" in message, message
    whole = ["--set", "policy.TRL wrapped.kind=packed_knapsack"]
    message = run("plan", *options, *longer, *whole, status=2).stderr
    assert "rows" in message and "does not apply" in message, message


def test_padding_to_a_multiple_is_in_the_plan_and_in_every_figure():
    fixed = ["--policy", "variable_fixed", "--csv", "-"]
    multiple = ["--set", "policy.variable_fixed.pad_to_multiple_of=64"]
    plain = list(csv.DictReader(io.StringIO(run("plan", SKEW, *fixed).stdout)))
    padded = list(csv.DictReader(io.StringIO(run("plan", SKEW, *fixed, *multiple).stdout)))
    for before, after in zip(plain, padded):
        expected = -(-int(before["max_length"]) // 64) * 64
        assert int(after["max_length"]) == expected, (before, after)
        assert int(after["padded_tokens"]) == expected * int(after["samples"])
        assert after["lengths"] == before["lengths"]
    results = []
    for options in [[], multiple]:
        done = json.loads(run("compare", SKEW, *options, "--json", "-").stdout)
        results.append(done["predictions"][1])
    before, after = results
    assert after["summary"]["padding_ratio"] > before["summary"]["padding_ratio"]
    assert after["summary"]["step_time_ms"]["mean"] > before["summary"]["step_time_ms"]["mean"]
    assert after["training"]["distinct_shapes"] < before["training"]["distinct_shapes"]
    wide = ["--set", "policy.variable_fixed.pad_to_multiple_of=1000"]
    message = run("plan", SKEW, *fixed, *wide, status=2).stderr
    assert "a sample is 1000 tokens long, but model" in message, message


def test_compare_counts_what_packing_crops_and_splits():
    data = ["--set", "data.samples=2000", "--steps", "6"]
    done = json.loads(run("compare", PACKING, *data, "--json", "-").stdout)
    training = {p["policy"]: p["training"] for p in done["predictions"]}
    assert training["TRL wrapped"]["cropped_tokens"] == 0
    assert training["TRL wrapped"]["split_samples"] > 0
    assert training["TRL bfd_split"]["lost_tokens"] == 0
    assert training["TRL bfd"]["cropped_samples"] > 0
    assert training["TRL bfd"]["split_samples"] == 0
    # As in nanochat's log of other documents: a choice of documents crops less than none.
    assert training["nanochat"]["cropped_tokens"] < training["greedy crop"]["cropped_tokens"]
    text = run("compare", PACKING, *data).stdout
    assert "cropped tokens  split samples" in text and "lost tokens" in text
    assert "cropped tokens" not in run("compare", SKEW).stdout


def test_varlen_reports_merged_documents_in_run_plan_and_compare():
    scenario = str(ROOT / "scenarios" / "varlen_nanochat.toml")
    policy = ("--policy", "varlen, 96 slots")
    merge = ("--steps", "3", "--set", "policy.varlen, 96 slots.varlen={max_num_docs=40}")
    head = "cross-document tokens"
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "plan.jsonl"
        assert head in run("plan", scenario, *policy, *merge, "--out", str(out)).stdout
        rows = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    merged = [row for row in rows[1:] if "sequences" in row]
    assert merged
    for row in merged:
        assert len(row["sequences"]) == 40 and max(row["sequences"]) <= 2048
        assert sum(row["sequences"]) == sum(row["lengths"]) == row["useful_tokens"]
    lines = run("plan", scenario, *policy, *merge, "--out", "-").stdout.splitlines()
    assert all(line.startswith("{") for line in lines)
    text = run("run", scenario, *policy, *merge, "--json", "-").stdout
    use = json.loads(text)["predictions"][0]["varlen"]
    assert use["most_documents"] == 74 and use["merged_batches"] > 0
    assert use["merged_documents"] > 0 and use["cross_document_tokens"] > 0
    assert head in run("run", scenario, *policy, *merge).stdout
    overflow = ("--set", "model.varlen.max_num_docs=40", "--set", "model.varlen.overflow=error")
    assert "documents for max_num_docs = 40" in run("compare", scenario, *overflow, status=2).stderr


def test_every_text_report_has_its_json_and_csv():
    result = json.loads(run("compare", SKEW, "--json", "-").stdout)
    assert result["format"] == "stepsim-prediction/2"
    assert [p["policy"] for p in result["predictions"]] == [
        "uniform",
        "variable_fixed",
        "bucketing",
        "token_budget",
    ]
    for prediction in result["predictions"]:
        step = prediction["summary"]["step_time_ms"]
        assert step["interval90"][0] <= step["mean"] <= step["interval90"][1]
        assert len(prediction["steps"]) == 48
    table = list(csv.DictReader(io.StringIO(run("compare", SKEW, "--csv", "-").stdout)))
    assert float(table[1]["padding_ratio"]) == result["predictions"][1]["summary"]["padding_ratio"]


def test_compare_prints_the_published_padding_and_spread():
    text = run("compare", SKEW, "--wide").stdout
    for policy, padding, spread in (
        ("uniform", "0.0 %", " 0.0 "),
        ("variable_fixed", "39.5 %", " 382.0 "),
        ("bucketing", "0.6 %", " 51.7 "),
        ("token_budget", "0.6 %", " 83.3 "),
    ):
        line = next(line for line in text.splitlines() if line.startswith(policy))
        assert padding in line and spread in line, line


def test_a_collective_of_the_first_step_alone_refuses_nothing():
    """DDP reduces all gradients of its first iteration at once, and this profile ends at 64 MiB."""
    scenario = [str(ROOT / "scenarios" / "a100_llama2_7b.toml"), "--set", "model.layers=8", "--set", "ddp.torch=newest"]
    warmed = [*scenario, "--set", "scenario.warmup_steps=2", "--set", "scenario.steps=6"]
    engine = ["--set", "noise.rank_speed=0.01"]  # Steps that the recurrence leaves to the engine.
    for more in ([], engine):
        text = run("run", *warmed, *more).stdout
        assert float(re.search(r"all_reduce: up to ([\d.]+) times", text).group(1)) < 4, text
        # Where the first step counts, so does what is not known of its all-reduce.
        text = run("run", *scenario, "--set", "scenario.warmup_steps=0", *more).stdout
        assert "all_reduce: up to 56 times the largest size that was measured" in text, text
        # What all steps hold is refused as ever.
        said = run("run", *warmed, *more, "--set", "ddp.bucket_cap=2GiB", status=2).stderr
        assert "times beyond, and more than 4 times is refused" in said, said
    run("tune", *warmed, "--over", "ddp.bucket_cap=25MiB,50MiB")
    run("blame", *warmed)
    run("buckets", *warmed, "--best")


def test_one_policy_out_of_memory_is_named_and_marked():
    scenario = str(ROOT / "scenarios" / "sst2_distilbert.toml")
    done = run("compare", scenario, "--set", "policy.fixed.batch_size=1000",
               "--set", "optimizer.state_bytes_per_parameter=1155")
    assert re.search(r"warning: fixed: out of memory: step \d+, rank \d: needs ", done.stdout), done.stdout
    assert done.stdout.count("out of memory") == 1 and "Use " in done.stdout
    assert done.stdout.count("fixed !") == 1, done.stdout
    result = json.loads(run("run", scenario, "--json", "-").stdout)["predictions"][0]
    assert result["largest_token_budget"]["tokens"] > 0


def test_plans_of_policies_with_alike_names_have_files_of_their_own():
    twice = ('[[policy]]\nname = "fixed"\nkind = "fixed"\nbatch_size = 1\n', "".join(
        f'[[policy]]\nname = "{name}"\nkind = "fixed"\nbatch_size = {size}\n'
        for name, size in (("a/b", 1), ("a_b", 2), ("a b", 3))))
    with Blocks(twice) as path:
        folder = os.path.join(os.path.dirname(path), "my plans")
        text = run("plan", path, "--out-dir", folder).stdout
        policies = {}
        for file in pathlib.Path(folder).iterdir():
            with file.open(encoding="utf-8") as lines:
                policies[file.name] = json.loads(lines.readline())["policy"]
        assert policies == {"a_b.jsonl": "a/b", "a_b_2.jsonl": "a_b", "a_b_3.jsonl": "a b"}
        files = shlex.split(text.splitlines()[0].removeprefix("wrote "))
        assert files == [os.path.join(folder, name) for name in sorted(policies)], files


def test_a_comparison_of_references_alone_does_not_speak_of_memory():
    with Blocks(("batch_size = 1", "batch_size = 1\nreference = true")) as path:
        text = run("compare", path).stdout
        assert "All policies of this scenario are reference cases" in text, text
        assert "memory on its own data" not in text, text
        assert "all are reference cases" in run("tune", path, status=2).stderr


def test_a_trace_asked_for_in_another_form_is_one_error():
    message = run("trace", SKEW, "--out", "-", "--json", "-", status=2).stderr
    assert message.startswith("stepsim trace: error: a trace has a form of its own"), message
    assert message.count("error:") == 1, message


def test_tables_and_lengths_of_spreadsheets_are_read():
    mark = "\ufeff"
    tensors = ('layers = 12\nblock_elements = 250_000', 'tensors = "tensors.csv"')
    lengths = ("samples = 1024\nlengths = { constant = 128 }", 'lengths = { file = "lengths.txt" }')
    with Blocks(tensors, lengths) as path:
        folder = pathlib.Path(path).parent
        rows = ["name,shape,forward,backward", "a,512x256,1,2", "b,300,2,4"]
        (folder / "tensors.csv").write_text("\n".join(rows), encoding="utf-8")
        (folder / "lengths.txt").write_text("5\n7\n" * 8, encoding="utf-8")
        plain = run("run", path).stdout
        quoted = [", ".join(f'"{cell}"' for cell in row.split(",")) for row in rows]
        (folder / "tensors.csv").write_text(mark + "\r\n".join(quoted), encoding="utf-8")
        text = mark + "5\r\n7\r\n" + "5\n7\n" * 7
        (folder / "lengths.txt").write_text(text, encoding="utf-8")
        assert run("run", path).stdout == plain


def test_lengths_are_read_from_every_kind_of_file():
    with tempfile.TemporaryDirectory() as folder:
        plan = os.path.join(folder, "plan.jsonl")
        run("plan", SKEW, "--policy", "uniform", "--out", plan)
        rows = pathlib.Path(plan).read_text(encoding="utf-8").splitlines()[1:]
        lengths = [length for row in rows for length in json.loads(row)["lengths"]]
        texts = {
            "lengths.txt": "".join(f"{length}\n" for length in lengths),
            "lengths.jsonl": "".join(f'{{"n": {length}}}\n' for length in lengths),
            "tokens.jsonl": "".join(json.dumps({"ids": [1] * length}) + "\n" for length in lengths),
        }
        fields = {"lengths.jsonl": ["--field", "n"], "tokens.jsonl": ["--field", "ids"]}
        found = [run("lengths", "--file", plan, "--json", "-").stdout]
        for name, text in texts.items():
            path = os.path.join(folder, name)
            pathlib.Path(path).write_text(text, encoding="utf-8")
            found.append(run("lengths", "--file", path, *fields.get(name, []), "--json", "-").stdout)
        figures = [json.loads(one) for one in found]
        assert figures[0]["samples"] == len(lengths) and all(one == figures[0] for one in figures), figures


def test_results_do_not_depend_on_the_number_of_threads():
    over = ["--over", "ddp.bucket_cap=1MiB..64MiB:x2", "--json", "-"]
    one = run("sweep", VALLEY, *over, "--threads", "1").stdout
    assert one == run("sweep", VALLEY, *over, "--threads", "4").stdout


def test_a_full_disk_is_a_fault_of_the_machine_and_the_old_file_stays():
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "prediction.json"
        path.write_text("old", encoding="utf-8")
        # A file size limit of one block stands for the full disk.
        done = small_runner.run("bash", "-c", 'trap "" XFSZ; ulimit -f 1; exec "$@"', "-",
                                STEPSIM, "compare", SKEW, "--json", path, status=3)
        assert "cannot write" in done.stderr
        assert path.read_text(encoding="utf-8") == "old"
        assert [p.name for p in pathlib.Path(folder).iterdir()] == ["prediction.json"]


def test_a_full_standard_output_is_a_fault_of_the_machine():
    with open("/dev/full", "w", encoding="utf-8") as full:
        run("compare", SKEW, stdout=full, stderr=subprocess.PIPE, capture_output=False, status=3)


def test_corrupt_records_are_refused_with_file_and_line():
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "live.jsonl"
        header = {"format": "stepsim-run-record/1", "policy": "bucketing", "world_size": 4}
        for text in ("", "not json\n", '{"format": "stepsim-run-record/9"}\n',
                     json.dumps(header) + '\n{"step": NaN}\n{}\n'):
            path.write_text(text, encoding="utf-8")
            done = run("validate", SKEW, "--live", str(path), status=2)
            assert str(path) in done.stderr, (text, done.stderr)


def test_the_trace_opens_as_json():
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "trace.json"
        run("trace", SKEW, "--policy", "bucketing", "--out", str(path))
        events = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
        threads = {e["args"]["name"] for e in events if e["name"] == "thread_name"}
        assert threads == {"steps", "compute", "communicator"}


if __name__ == "__main__":
    sys.exit(small_runner.main(globals()))
