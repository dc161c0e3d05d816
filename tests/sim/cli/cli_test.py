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

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests"))
import small_runner  # noqa: E402  (needs the path above)

STEPSIM = os.path.abspath(sys.argv[1])
SKEW = str(ROOT / "scenarios" / "token_skew.toml")
PAIR = str(ROOT / "scenarios" / "token_skew_2ranks.toml")
PACKING = str(ROOT / "scenarios" / "packing.toml")
VALLEY = str(ROOT / "scenarios" / "bucket_valley.toml")


def run(*arguments, status=0, **keywords):
    """Runs stepsim, checks its exit status and returns the finished process."""
    done = subprocess.run(
        [STEPSIM, *arguments], capture_output=True, text=True, check=False, timeout=120, **keywords
    )
    assert done.returncode == status, (
        f"stepsim {' '.join(arguments)}: status {done.returncode}, not {status}\n"
        f"{done.stdout}{done.stderr}"
    )
    return done


def test_help_names_every_command_and_each_has_its_own_help():
    text = run("--help").stdout
    for command in (
        "advise run compare sweep blame solve ladder plan buckets "
        "figures replay validate trace policies models profiles"
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


def test_buckets_reproduces_every_reference_case():
    data = pathlib.Path(os.environ.get("STEPSIM_DATA", ROOT / ".." / "shared" / "data"))
    path = data / "ddp_buckets.json"
    if not path.exists():
        raise small_runner.Skip(f"no reference data at {path}")
    cases = json.loads(path.read_text(encoding="utf-8"))["cases"]
    ours = json.loads(run("buckets", "--params", str(path), "--json", "-").stdout)
    assert len(ours) == len(cases) and len(cases) >= 59
    for case in cases:
        mine = ours[case["name"]]
        assert mine["initial"] == case["expected_initial"], case["name"]
        assert mine["initial_find_unused"] == case["expected_initial_find_unused"], case["name"]
        assert mine["rebuilt"] == case["expected_rebuilt"], case["name"]


def test_resnet18_buckets_are_those_logged_on_real_gpus():
    data = pathlib.Path(os.environ.get("STEPSIM_DATA", ROOT / ".." / "shared" / "data"))
    path = data / "ddp_buckets.json"
    if not path.exists():
        raise small_runner.Skip(f"no reference data at {path}")
    ours = json.loads(run("buckets", "--params", str(path), "--json", "-").stdout)
    assert ours["resnet18_cap35"]["rebuilt_bytes"] == [2052000, 38297600, 6408448]
    names = [n for n in ours if n.startswith("resnet18") and n != "resnet18_cap35"]
    assert [ours[n]["rebuilt_bytes"] for n in names] == [[2052000, 28852224, 15853824]]


def test_buckets_say_from_which_iteration_on_they_are_rebuilt():
    def said(*settings):
        words = [word for setting in settings for word in ("--set", setting)]
        with Blocks() as path:
            numbers = json.loads(run("buckets", path, *words, "--json", "-").stdout)
            return run("buckets", path, *words).stdout, numbers["rebuilt_from_iteration"]

    text, number = said()
    assert "\nfirst iteration\n" in text and "rebuilt, from the second iteration on" in text, text
    assert number == 2
    text, number = said("ddp.static_graph=true")
    assert "\nfirst two iterations\n" in text and "from the third iteration on" in text, text
    assert number == 3
    text, number = said("ddp.find_unused_parameters=true")
    assert "every iteration: with find_unused_parameters nothing is rebuilt" in text, text
    assert "rebuilt, from" not in text and number is None
    text, number = said("ddp.find_unused_parameters=true", "ddp.static_graph=true")
    assert "from the third iteration on" in text and number == 3, text
    text, number = said("ddp.bucket_rule=per_parameter")
    assert "a bucket for each tensor\n\nevery iteration\n" in text and number is None, text


def test_a_model_of_unused_parameters_alone_is_bad_input():
    names = ", ".join(f'"block{i}.weight"' for i in range(12))
    with Blocks() as path:
        every = ["--set", "ddp.find_unused_parameters=true", "--set", f"ddp.unused_parameters=[{names}]"]
        message = run("run", path, *every, status=2).stderr
        assert "lists every parameter of the model" in message, message
        assert message.startswith("--set ddp.unused_parameters="), message
        run("run", path, *every[:-1], every[-1].replace('"block0.weight", ', ""))


def test_the_best_buckets_are_what_the_commands_predict_for_them():
    valley = str(ROOT / "scenarios" / "bucket_valley.toml")
    best = json.loads(run("buckets", valley, "--best", "--json", "-").stdout)
    assert best["format"] == "stepsim-best-buckets/1" and best["by_recurrence"] is True
    assert best["default"]["python"] == "bucket_cap_mb=25"
    for name, options in (("default", []), ("best_cap", None), ("best_list", None)):
        choice = best[name]
        if options is None:
            keys = [line.split(" = ", 1) for line in choice["toml"].splitlines()]
            options = [word for key, value in keys for word in ("--set", f"ddp.{key}={value}")]
        assert choice["limits_bytes"][0] > 0, choice
        one = json.loads(run("run", valley, *options, "--json", "-").stdout)["predictions"][0]
        assert one["summary"]["step_time_ms"]["mean"] == choice["step_ms"], (name, options)
        lists = json.loads(run("buckets", valley, *options, "--json", "-").stdout)
        assert len(lists["rebuilt"]) == choice["buckets"], name
    steps = [best[name]["step_ms"] for name in ("default", "best_cap", "best_list")]
    assert steps == sorted(steps, reverse=True), steps
    rows = list(csv.DictReader(io.StringIO(run("buckets", valley, "--best", "--csv", "-").stdout)))
    assert [row["bucket_size"] for row in rows] == ["default", "best_cap", "best_list"]
    assert "needs a scenario" in run("buckets", "--params", "-", "--best", status=2).stderr
    one_rank = run("buckets", valley, "--best", "--set", "cluster.ranks=1", "--set", "cluster.ranks_per_node=1", status=2)
    assert "bucket sizes have no effect: there is one rank" in one_rank.stderr


def test_bad_parameter_lists_are_refused_with_their_place():
    for text, message in (
        ('{"cases": [{"name": "x", "params": []}]}', "cases[0].params"),
        ('{"cases": [{"name": "x", "params": [{"bytes": 0}]}]}', "cases[0].params[0].bytes"),
        ('{"cases": [{"name": "x", "params": [{"bytes": 4}], "ready_order": [1]}]}', "ready_order"),
        ('{"cases": 3}', "cases"),
        ('{"cases": [', "error"),
        ("", "error"),
    ):
        done = run("buckets", "--params", "-", "--json", "-", status=2, input=text)
        assert message in done.stderr, (text, done.stderr)


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


def test_figures_have_json_and_csv_and_a_wrong_one_needs_a_note():
    table = ROOT / "scenarios" / "figures" / "all_reduce_volume.toml"
    result = json.loads(run("figures", str(table), "--json", "-").stdout)
    assert result["format"] == "stepsim-figures/1"
    assert [f["agrees"] for f in result["figures"]] == [True, True, True, False]
    rows = list(csv.DictReader(io.StringIO(run("figures", str(table), "--csv", "-").stdout)))
    assert [float(row["computed"]) for row in rows] == [280e9, 420e9, 490e9, 551.25e9]
    with tempfile.TemporaryDirectory() as folder:
        bare = pathlib.Path(folder) / "bare.toml"
        lines = table.read_text(encoding="utf-8").splitlines()
        bare.write_text("\n".join(x for x in lines if not x.startswith("note")), encoding="utf-8")
        assert "1 differ without an explanation" in run("figures", str(bare), status=1).stdout
    assert "add a [[published]] table" in run("figures", SKEW, status=2).stderr


def test_compare_prints_the_published_padding_and_spread():
    text = run("compare", SKEW).stdout
    for policy, padding, spread in (
        ("uniform", "0.0 %", " 0.0 "),
        ("variable_fixed", "39.5 %", " 382.0 "),
        ("bucketing", "0.6 %", " 51.7 "),
        ("token_budget", "0.6 %", " 83.3 "),
    ):
        line = next(line for line in text.splitlines() if line.startswith(policy))
        assert padding in line and spread in line, line


def test_one_policy_out_of_memory_is_named_and_ends_with_1():
    scenario = str(ROOT / "scenarios" / "sst2_distilbert.toml")
    done = run("compare", scenario, "--set", "policy.fixed.batch_size=1000",
               "--set", "optimizer.state_bytes_per_parameter=1080", status=1)
    assert "warning: fixed: out of memory: step 0, rank 0: needs " in done.stdout
    assert done.stdout.count("out of memory") == 1 and "Use " in done.stdout
    result = json.loads(run("run", scenario, "--json", "-").stdout)["predictions"][0]
    assert result["largest_token_budget"]["tokens"] > 0


def test_the_valley_has_two_walls_and_names_its_best_point():
    done = run("sweep", VALLEY, "--over", "ddp.bucket_cap=1MiB..2GiB:x2", "--json", "-")
    result = json.loads(done.stdout)
    steps = [point["step_ms"] for point in result["points"]]
    best = result["best"]
    assert len(steps) == 12 and 0 < best < 11
    assert steps[0] > steps[best] * 1.01 and steps[-1] > steps[best] * 1.01
    assert result["points"][-1]["overlap_fraction"] < result["points"][best]["overlap_fraction"]
    text = run("sweep", VALLEY, "--over", "ddp.bucket_cap=1MiB..2GiB:x2").stdout
    assert "Best: ddp.bucket_cap = " in text and "DDP's default of 25 MiB takes" in text


def test_a_flat_sweep_keeps_the_default_and_names_no_best():
    def swept(*arguments):
        text = run("sweep", *arguments).stdout
        return text, json.loads(run("sweep", *arguments, "--json", "-").stdout)

    # All gradients of this model fit into the smallest bucket.
    text, result = swept(SKEW, "--over", "ddp.bucket_cap=1MiB..64MiB:x2")
    line = "Flat: keep DDP's default of 25 MiB (24.059 ms a step): no value is faster."
    assert line in text and result["headline"] == line, text
    assert result["is_better"] is False
    assert {point["remark"] for point in result["points"]} == {"fastest", "too close to tell"}
    # Two ranks' worth of buckets, the fastest of which gains less than anyone could measure.
    nodes = str(ROOT / "scenarios" / "two_nodes.toml")
    text, result = swept(nodes, "--over", "ddp.bucket_cap=1MiB..2GiB:x2")
    assert "Keep DDP's default of 25 MiB (" in text and "gains less than 1 %." in text, text
    far = result["points"][-1]
    assert far["remark"] != "too close to tell" and far["gain_of_best"] > 0.01, far
    low, high = far["gain_of_best_interval90"]
    assert low <= far["gain_of_best"] <= high, far


def test_a_sweep_of_one_policy_s_key_predicts_that_policy():
    over = ["--over", "policy.token_budget.max_tokens=512,1024", "--json", "-"]
    result = json.loads(run("sweep", SKEW, *over).stdout)
    tokens = [point["useful_tokens_per_s"] for point in result["points"]]
    assert tokens[0] < tokens[1], result
    assert result == json.loads(run("sweep", SKEW, "--policy", "token_budget", *over).stdout)
    message = run("sweep", SKEW, "--policy", "uniform", *over, status=2).stderr
    assert "has no effect on policy 'uniform', which is predicted" in message, message
    key = ["--key", "policy.token_budget.max_tokens=500..2000", "--step-time", "25 ms"]
    message = run("solve", SKEW, "--policy", "uniform", *key, status=2).stderr
    assert "--key policy.token_budget.max_tokens: error: it has no effect" in message, message


def test_each_row_of_a_sweep_says_where_its_costs_come_from():
    llama = str(ROOT / "scenarios" / "a100_llama2_7b.toml")
    over = ["--over", "cluster.ranks=4,6,8,12,16", "--set", "ddp.bucket_cap=50MiB"]
    text = run("sweep", llama, *over).stdout
    result = json.loads(run("sweep", llama, *over, "--json", "-").stdout)
    sources = [point["collective_source"] for point in result["points"]]
    assert sources[3:] == ["extrapolated"] * 2 and "extrapolated" in text, sources
    for place, words in (("6", "interpolated between 4 and 8 ranks"),
                         ("12, 16", "extrapolated by log2(ranks) from 4 to 8 ranks")):
        assert text.count(f"warning: cluster.ranks = {place}: not measured: all_reduce: {words}") == 1
    ranks = str(ROOT / "scenarios" / "two_nodes.toml")
    text = run("sweep", ranks, "--over", "cluster.ranks=4,8,16,32", "--json", "-").stdout
    sources = [point["collective_source"] for point in json.loads(text)["points"]]
    assert sources == ["published", "published", "links", "links"], sources
    text = run("sweep", SKEW, "--policy", "token_budget", "--json", "-", "--over",
               "policy.token_budget.max_tokens=512,1280,2048").stdout
    sources = [point["op_source"] for point in json.loads(text)["points"]]
    assert sources == ["extrapolated", "measured", "extrapolated"], sources  # Below, inside, beyond.


def test_blame_has_json_and_csv_and_ends_with_a_command():
    done = run("blame", SKEW, "--policy", "variable_fixed")
    assert "they do not add up" in done.stdout
    assert "Next: stepsim " in done.stdout.splitlines()[-1]
    result = json.loads(run("blame", SKEW, "--policy", "variable_fixed", "--json", "-").stdout)
    assert result["format"] == "stepsim-blame/1" and len(result["last_share"]) == 4
    saved = [change["saves_ms"] for change in result["changes"]]
    assert saved == sorted(saved, reverse=True) and len(saved) == 6 + 4
    rows = list(csv.DictReader(io.StringIO(run("blame", SKEW, "--csv", "-").stdout)))
    assert len(rows) == 10
    assert run("blame", SKEW, "--quiet").stdout == ""
    assert "did you mean 'bucketing'" in run("blame", SKEW, "--policy", "bucketin", status=2).stderr


BLOCKS = '''[scenario]
name = "blocks"
steps = 6
warmup_steps = 3
[cluster]
ranks = 4
topology = { algorithm = "ring", intra_latency = "10 us", intra_bandwidth = "1 GB/s" }
[times]
forward = "12 ms"
backward = "24 ms"
optimizer = "1.5 ms"
tokens = 128
[model]
kind = "blocks"
layers = 12
block_elements = 250_000
[ddp]
gradient_as_bucket_view = true
[data]
samples = 1024
lengths = { constant = 128 }
[[policy]]
name = "fixed"
kind = "fixed"
batch_size = 1
'''


class Blocks:
    """A scenario file of equal blocks by measured times; needs no profile."""

    def __init__(self, *changes, name="blocks.toml"):
        self.changes, self.name = changes, name

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory()
        text = BLOCKS
        for old, new in self.changes:
            assert old in text, old
            text = text.replace(old, new, 1)
        path = pathlib.Path(self.folder.name) / self.name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return str(path)

    def __exit__(self, *error):
        self.folder.cleanup()


def test_next_commands_run_as_printed_with_all_that_was_set():
    lengths = "lengths = { uniform = [1, 128] }"
    change = [('name = "fixed"', 'name = "a $HOME b"'), ("lengths = { constant = 128 }", lengths)]
    given = ["--seed", "7", "--set", "times.error=0.04", "--steps", "8"]
    asked = [["blame"], ["blame", "--set", "cluster.skew=2"], ["buckets", "--best"],
             ["ladder", "--shape-cost", "5 ms"], ["tune"], ["blame", "--set", "ddp.torch=newest",
             "--set", 'ddp.bucket_caps=["1 MiB"]', "--set", "cluster.topology.intra_bandwidth=1 MB/s"]]
    with Blocks(*change, name="my folder/a b.toml") as path:
        for command in asked:
            text = run(command[0], path, *given, *command[1:]).stdout
            found = re.search(r"(?:[Nn]ext: |in detail:\n  )stepsim (.*)", text)
            assert found, text
            words = subprocess.run(["sh", "-c", "printf '%s\\n' " + found.group(1)],
                                   capture_output=True, text=True, check=True).stdout.splitlines()
            assert words[1:2] == [path] or words == ["policies"], words
            if words[0] != "policies":
                for setting in ("scenario.seed=7", "scenario.steps=8", "times.error=0.04"):
                    assert setting in words, (setting, words)
                if words[0] != "compare":
                    assert words[words.index("--policy") + 1] == "a $HOME b", words
                if words[0] == "trace":
                    words[words.index("--out") + 1] = os.devnull
                run(*words)


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


def test_what_fits_into_no_memory_is_an_answer_of_no():
    large = [VALLEY, "--set", "policy.fixed.batch_size=8"]
    over = ["--over", "policy.fixed.batch_size=7,8"]
    run("run", *large, status=1)
    run("compare", *large, status=1)
    assert "out of memory" in run("blame", *large, status=1).stdout
    assert "out of memory" in run("buckets", *large, "--best", status=1).stdout
    # 8 has the longer step, and more tokens in it.
    assert ("No value fits into memory; policy.fixed.batch_size = 8 would be the fastest for its "
            "tokens: 441.773 ms for 49152 useful tokens.") in run("sweep", VALLEY, *over, status=1).stdout
    caps = ["--over", "ddp.bucket_cap=25MiB,50MiB"]
    assert re.search(r"No value fits into memory; ddp.bucket_cap = \d+MiB needs least time: \d",
                     run("sweep", *large, *caps, status=1).stdout)
    text = run("tune", VALLEY, *over, "--samples", "0..99", status=1).stdout
    assert "2 (100.0 %) out of memory" in text and "No setting of this space fits" in text, text
    result = json.loads(run("tune", VALLEY, *over, "--samples", "0..99", "--json", "-", status=1).stdout)
    assert result["finalists"] == [] and not result["is_better"], result
    assert "are outside the limits" in run("tune", VALLEY, *over, "--samples", "1..2", status=2).stderr
    run("sweep", VALLEY, "--over", "policy.fixed.batch_size=1,8")


def test_a_comparison_of_references_alone_does_not_speak_of_memory():
    with Blocks(("batch_size = 1", "batch_size = 1\nreference = true")) as path:
        text = run("compare", path).stdout
        assert "All policies of this scenario are reference cases" in text, text
        assert "memory on its own data" not in text, text
        assert "all are reference cases" in run("tune", path, status=2).stderr


def test_a_swept_key_that_changes_nothing_is_named():
    prefetch = ["--over", "data.prefetch=1,2,4"]
    caps = ["--over", "ddp.bucket_cap=1MiB,64MiB"]
    said = "data.prefetch makes no difference here: all its values come to the same"
    with Blocks() as path:
        assert "warning: " + said in run("sweep", path, *prefetch).stdout
        for axes in ([*prefetch, *caps], [*caps, *prefetch]):
            warnings = json.loads(run("sweep", path, *axes, "--json", "-").stdout)["warnings"]
            assert said in warnings and not any("bucket_cap makes" in one for one in warnings), warnings
        assert "makes no difference" not in run("sweep", path, *caps).stdout
        # One value says nothing.
        assert "makes no difference" not in run("sweep", path, "--over", "data.prefetch=4").stdout
        for command in ("sweep", "tune"):
            message = run(command, path, *caps, "--over", "ddp.bucket_cap=2MiB", status=2).stderr
            assert message.startswith("--over ddp.bucket_cap: error: the key is given twice"), message
        single = ["--set", "ddp.bucket_rule=single", *caps]
        message = run("sweep", path, *single, status=2).stderr
        assert "ddp.bucket_cap" in message and "one bucket holds all tensors" in message, message


def test_an_error_in_a_value_names_the_option_that_gave_it():
    with Blocks() as path:
        for arguments, place in (
            (["sweep", "--over", "cluster.rankss=1,2"], "--over cluster.rankss: error: unknown key"),
            (["sweep", "--over", "ddp.zero_stage=0,7"], "--over ddp.zero_stage=7: error: 7 is too large"),
            (["sweep", "--over", "policy.nobody.x=1,2"], "--over policy.nobody.x=1: error: unknown policy"),
            (["sweep", "--over", "ddp.zero_stage=0,1", "--set", "ddp.zero_stag=1"], "--set ddp.zero_stag: error"),
            (["solve", "--key", "cluster.rankss=1..2", "--step-time", "9 ms"], "--key cluster.rankss: error"),
        ):
            message = run(arguments[0], path, *arguments[1:], status=2).stderr
            assert message.startswith(place), (message, place)
        message = run("tune", path, "--over", "ddp.zero_stage=7,8", status=2).stderr
        assert "(--over ddp.zero_stage=7: error: 7 is too large" in message, message


def test_a_step_that_takes_no_time_has_no_speed_to_compare():
    still = [('forward = "12 ms"', 'forward = "0 ms"'), ('backward = "24 ms"', 'backward = "0 ms"'),
             ('optimizer = "1.5 ms"\n', ""), ("ranks = 4", "ranks = 1")]
    still.append(("batch_size = 1\n", 'batch_size = 1\n[[policy]]\nname = "two"\nkind = "fixed"\nbatch_size = 2\n'))
    with Blocks(*still) as path:
        for command in (["compare"], ["tune"], ["sweep", "--over", "policy.fixed.batch_size=1,2"],
                        ["sweep", "--over", "times.forward=0ms,10ms"], ["blame"]):
            for form in ([], ["--json", "-"], ["--csv", "-"]):
                text = run(command[0], path, *command[1:], *form).stdout
                assert not re.search(r"\b(nan|inf)\b|null", text, re.IGNORECASE), text
        # One rank reduces nothing, so that there is nothing to measure.
        text = run("run", path).stdout
        assert "all_reduce: one rank" in text and "not measured" not in text, text


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


def test_solve_prints_the_line_to_write_or_says_no():
    wanted = ["--step-time", "60 ms", "--policy", "variable_fixed"]
    done = run("solve", SKEW, "--key", "cluster.skew=0..2", *wanted)
    assert done.stdout.endswith("\n") and "\n[cluster]\nskew = " in done.stdout
    done = run("solve", SKEW, "--key", "cluster.skew=0..2", *wanted, "--json", "-")
    result = json.loads(done.stdout)
    assert result["found"] and abs(result["step_ms"] - 60) < 0.01, result
    done = run("solve", SKEW, "--key", "cluster.skew=0..0.001", *wanted, status=1)
    assert "is not between the predicted mean steps" in done.stdout
    assert "is empty" in run("solve", SKEW, "--key", "cluster.skew=2..1", *wanted, status=2).stderr
    assert "did you mean 'skew'" in run(
        "solve", SKEW, "--key", "cluster.skw=0..1", *wanted, status=2
    ).stderr
    assert "--step-time 20 m" in run(
        "solve", SKEW, "--key", "cluster.skew=0..1", "--step-time", "20 m", status=2
    ).stderr


def test_tune_writes_scenarios_plans_and_predictions_that_stand_alone():
    with tempfile.TemporaryDirectory() as folder:
        over = ["policy.token_budget.max_tokens=768,1024", "ddp.gradient_as_bucket_view=false,true"]
        over = [word for axis in over for word in ("--over", axis)]
        done = run("tune", PAIR, *over, "--verify", "2", "--out-dir", folder, "--json", "-")
        found = json.loads(done.stdout)
        for name in ("1", "2", "own"):
            scenario = f"{folder}/{name}.toml"
            predicted = json.loads(pathlib.Path(f"{folder}/{name}.prediction.json").read_text(encoding="utf-8"))
            policy = predicted["predictions"][0]["policy"]
            assert policy.startswith(name + " "), policy
            again = json.loads(run("run", scenario, "--policy", policy, "--json", "-").stdout)
            assert again["predictions"][0]["summary"] == predicted["predictions"][0]["summary"], name
            run("plan", scenario, "--policy", policy, "--out", f"{folder}/again.jsonl")
            again = pathlib.Path(f"{folder}/again.jsonl").read_text(encoding="utf-8")
            assert again == pathlib.Path(f"{folder}/{name}.plan.jsonl").read_text(encoding="utf-8"), name
            if name != "own":
                best = found["finalists"][int(name) - 1]["with_noise"]["step_ms"]
                assert predicted["predictions"][0]["summary"]["step_time_ms"]["mean"] == best, name
    assert "--out-dir" in run("tune", PAIR, "--verify", "1", status=2).stderr


def test_ladder_prints_a_line_that_makes_the_plan_pad_so():
    wanted = ["--policy", "bucketing", "--shape-cost", "20 ms"]
    text = run("ladder", SKEW, *wanted).stdout
    assert "\npad_to_lengths = [" in text and "Next: stepsim run " in text, text
    study = json.loads(run("ladder", SKEW, *wanted, "--json", "-").stdout)
    assert study["format"] == "stepsim-ladder/1" and study["shape_cost_ms"] == 20, study
    policy = study["policies"][0]
    rows = policy["rows"]
    assert [row["padding"] for row in rows] == ["longest"] + ["multiple"] * 3 + ["rungs"] * 2 + [
        "optimum"
    ]
    best = rows[policy["best"]]
    assert best["step_ms"] == min(row["step_ms"] for row in rows if "refused" not in row)
    command = re.search(r"Next: stepsim (.*)", text).group(1)
    run(*shlex.split(command), "--steps", "4")
    rungs = [int(rung) for rung in re.findall(r"\d+", best["toml"])]
    padded = ["--set", "policy.bucketing." + best["toml"].replace(" = ", "=")]
    table = run("plan", SKEW, "--policy", "bucketing", *padded, "--csv", "-").stdout
    lengths = {int(row["max_length"]) for row in csv.DictReader(io.StringIO(table))}
    assert lengths <= set(rungs) and len(lengths) > 1, (lengths, rungs)
    listed = list(csv.DictReader(io.StringIO(run("ladder", SKEW, *wanted, "--csv", "-").stdout)))
    assert len(listed) == len(rows) and listed[policy["best"]]["best"] == "1"


def test_ladder_leaves_out_what_is_not_padded_and_says_why():
    text = run("ladder", PACKING, "--shape-cost", "50 ms").stdout
    assert 'TRL bfd: left out: attention = "varlen" pads nothing' in text, text
    wide = ["--multiples", "8,1000", "--policy", "variable_fixed"]
    text = run("ladder", SKEW, "--shape-cost", "50 ms", *wide).stdout
    assert "warning: multiple of 1000: policy 'variable_fixed': a sample is 1000 tokens" in text


def test_pad_to_lengths_is_refused_where_a_sample_is_longer():
    short = ["--set", "policy.variable_fixed.pad_to_lengths=[64, 100]"]
    for command in (["plan", "--out", "-"], ["run"]):
        message = run(*command, SKEW, "--policy", "variable_fixed", *short, status=2).stderr
        assert "policy 'variable_fixed': a sample is 256 tokens long" in message, message
        assert "the longest of pad_to_lengths is 100" in message, message


def test_results_do_not_depend_on_the_number_of_threads():
    over = ["--over", "ddp.bucket_cap=1MiB..64MiB:x2", "--json", "-"]
    one = run("sweep", VALLEY, *over, "--threads", "1").stdout
    assert one == run("sweep", VALLEY, *over, "--threads", "4").stdout


def test_a_full_disk_is_a_fault_of_the_machine_and_the_old_file_stays():
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "prediction.json"
        path.write_text("old", encoding="utf-8")
        # A file size limit of one block stands for the full disk.
        done = subprocess.run(
            ["bash", "-c", 'trap "" XFSZ; ulimit -f 1; exec "$@"', "-", STEPSIM, "compare", SKEW,
             "--json", str(path)],
            capture_output=True, text=True, check=False, timeout=120,
        )
        assert done.returncode == 3, (done.returncode, done.stderr)
        assert "cannot write" in done.stderr
        assert path.read_text(encoding="utf-8") == "old"
        assert [p.name for p in pathlib.Path(folder).iterdir()] == ["prediction.json"]


def test_a_full_standard_output_is_a_fault_of_the_machine():
    with open("/dev/full", "w", encoding="utf-8") as full:
        done = subprocess.run(
            [STEPSIM, "compare", SKEW], stdout=full, stderr=subprocess.PIPE, text=True,
            check=False, timeout=120,
        )
    assert done.returncode == 3, done.stderr


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
