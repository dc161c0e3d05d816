"""Runs sweep, blame, solve, tune and ladder as a user would, and the commands they print.

usage: studies_test.py PATH_OF_STEPSIM
"""

import contextlib
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

from stepsim_program import Blocks, PACKING, PAIR, ROOT, SHARD_1B, SKEW, VALLEY, run

import small_runner  # from a folder that stepsim_program names


def test_ways_of_sharding_are_one_table_the_fastest_that_fits_first():
    done = run("sweep", str(ROOT / "scenarios" / "shard_1b.toml"), "--over", "parallel=ddp,zero1,fsdp2,hsdp",
               "--set", "cluster.placement=8", "--set", "scenario.steps=2", "--set", "scenario.warmup_steps=1")  # fmt: skip
    table = done.stdout.split("\n\n")[1].splitlines()
    assert [line.split()[0] for line in table] == ["parallel", "fsdp2", "ddp", "zero1", "hsdp"], table
    assert "warning: parallel = hsdp: refused: " in done.stdout and "there is one node" in done.stdout
    command = re.search(r"next: stepsim (blame .*?)   \(", done.stdout)[1]
    assert "--set parallel=fsdp2" in command


def test_a_tuned_space_whose_points_have_unequal_numbers_of_draws():
    # More micro-batches cost more to draw, so that such points have fewer draws than others.
    text = f"""
[scenario]
name = "draws"
steps = 4
warmup_steps = 1
[cluster]
placement = "2x8"
profile = "{ROOT}/scenarios/profiles/h100_2x8_published.json"
[model]
kind = "llama"
layers = 28
hidden = 3072
heads = 24
kv_heads = 8
ffn = 8192
vocab = 128256
max_length = 8192
dtype = "bf16"
attention = "flash"
[parallel]
kind = "fsdp2"
units = "ends"
param_dtype = "bf16"
reduce_dtype = "f32"
[data]
samples = 4096
lengths = {{ constant = 4096 }}
[[policy]]
name = "fixed"
kind = "fixed"
batch_size = 2
"""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "draws.toml")
        pathlib.Path(path).write_text(text, encoding="utf-8")
        over = ["--over", "ddp.accumulation_steps=1,2", "--over", "policy.fixed.batch_size=1,2"]
        result = json.loads(run("tune", path, *over, "--json", "-").stdout)
    assert 0 <= result["regret95"] < 1, result["regret95"]
    for one in result["finalists"]:
        low, high = one.get("best_gain_interval90", [0, 0])
        assert -1 < low <= high < 10, one


def test_points_that_need_unequal_memory_are_not_told_by_the_first():
    text = run("sweep", VALLEY, "--over", "policy.fixed.batch_size=7,8", status=1).stdout
    line = next(line for line in text.splitlines() if "GiB of" in line and "do not fit" in line)
    least, most = map(float, re.search(r"need ([\d.]+) to ([\d.]+) GiB", line).groups())
    assert least < most, line


def test_a_kind_without_buckets_says_which_keys_mean_nothing():
    shards = str(ROOT / "scenarios" / "shard_1b.toml")
    text = run("run", shards, "--set", "ddp.bucket_cap=100 MiB", "--set", "ddp.static_graph=true").stdout
    said = " ".join(text.split())
    assert 'parallel.kind = "fsdp2" has no buckets: ddp.bucket_cap, ddp.static_graph mean nothing to it' in said, text


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
    step = result["points"][0]["step_ms"]
    line = f"Nothing to gain here: ddp.bucket_cap makes no difference, and a step takes {step:.1f} ms."
    assert line in text and result["headline"] == line, text
    assert result["is_better"] is False
    assert {point["remark"] for point in result["points"]} == {"fastest", "too close to tell"}
    # Two ranks' worth of buckets, the fastest of which gains less than anyone could measure.
    nodes = str(ROOT / "scenarios" / "two_nodes.toml")
    text, result = swept(nodes, "--over", "ddp.bucket_cap=1MiB..2GiB:x2")
    assert "Nothing to gain here: keep DDP's default of 25 MiB (" in text, text
    assert "The fastest value is ddp.bucket_cap = 1 MiB." in text, text
    far = result["points"][-1]
    assert far["remark"] != "too close to tell" and far["gain_of_best"] > 0.01, far
    low, high = far["gain_of_best_interval90"]
    assert low <= far["gain_of_best"] <= high, far


def test_a_sweep_says_what_its_figures_say():
    over = ["--over", "ddp.bucket_cap=1MiB..2GiB:x2"]
    text = run("sweep", VALLEY, *over).stdout
    result = json.loads(run("sweep", VALLEY, *over, "--json", "-").stdout)
    points, best, reference = result["points"], result["points"][result["best"]], result["reference"]
    found = re.search(r"Best: ddp.bucket_cap = 128 MiB, (\d+) ms a step; DDP's default of 25 MiB takes (\d+) ms, "
                      r"([0-9.]+) % slower .*\. Too close to the best to tell: 64 MiB, 256 MiB to 1 GiB\.", text)
    assert found, text
    assert abs(float(found[1]) - best["step_ms"]) <= 0.5 and abs(float(found[2]) - reference["step_ms"]) <= 0.5, text
    slower = 100 * (reference["step_ms"] / best["step_ms"] - 1)
    assert abs(float(found[3]) - slower) < 0.06 and abs(100 * reference["gap"] - slower) < 1e-6, (found[3], reference)
    assert reference["bucket_cap"] == 25 << 20 and result["memory_capacity_mib"] > 80_000, reference
    remarks = [point["remark"] for point in points]
    assert remarks[:6] == ["latency-bound"] * 6 and remarks[-1] == "less overlap", remarks
    assert [i for i, one in enumerate(remarks) if one == "too close to tell"] == [6, 8, 9, 10], remarks


def test_bucket_caps_are_told_against_what_the_scenario_has():
    over = ["--over", "ddp.bucket_cap=64MiB..2GiB:x2"]
    text = run("sweep", VALLEY, *over, "--set", "ddp.bucket_cap=2 GiB").stdout
    result = json.loads(run("sweep", VALLEY, *over, "--set", "ddp.bucket_cap=2 GiB", "--json", "-").stdout)
    assert "; the scenario's 2 GiB takes " in text and "25 MiB" not in text, text
    assert result["reference"]["step_ms"] == result["points"][-1]["step_ms"], result["reference"]
    assert result["reference"]["bucket_cap"] == 2 << 30, result["reference"]
    # A gain that is too small to be sure of has its sign and its interval.
    own = [*over, "--set", "ddp.bucket_cap=64 MiB"]
    text = run("sweep", VALLEY, *own).stdout
    gap = json.loads(run("sweep", VALLEY, *own, "--json", "-").stdout)["reference"]["gap"]
    most = re.search(r"Nothing certain to gain here, at most ([0-9.]+) %: keep the scenario's 64 MiB \(", text)
    assert most and float(most[1]) > 100 * gap > 1, text
    assert f"The fastest value is ddp.bucket_cap = 128 MiB (+{gap * 100:.1f} %, 90 % interval -" in text, text
    text = run("buckets", VALLEY, "--best", "--set", "ddp.bucket_cap=1 GiB").stdout
    assert "over the scenario's\n" in text and re.search(r"\nthe scenario's .* \+0\.0 %\n", text), text
    assert re.search(r"\nDDP's default .* -[0-9.]+ %\n", text) and "over 25 MiB" not in text, text


def test_a_job_s_scaling_is_that_of_its_points():
    over = ["--over", "cluster.placement=8,4x8", "--set", "cluster.network_speed=0.1"]
    nodes = str(ROOT / "scenarios" / "two_nodes.toml")
    few, many = (one["samples_per_s_per_rank"] for one in json.loads(
        run("sweep", nodes, *over, "--json", "-").stdout)["training"]["points"])
    assert many / few < 0.8
    text = run("sweep", nodes, *over).stdout
    assert f"From 8 to 32 ranks this job keeps {100 * many / few:.0f} % of its samples/s a rank" in text, text
    assert ": less than others reach, though its interval holds that, too." in text, text


def test_a_sweep_of_one_policy_s_key_predicts_that_policy():
    over = ["--over", "policy.token_budget.max_tokens=512,1024", "--json", "-"]
    result = json.loads(run("sweep", SKEW, *over).stdout)
    tokens = [point["useful_tokens_per_s"] for point in result["points"]]
    assert tokens[0] < tokens[1], result
    # Only a sweep of bucket caps is set against DDP's default cap.
    assert result["headline"].startswith("Nothing to gain here: keep the scenario as it stands ("), result["headline"]
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
    (warning,) = (line for line in text.splitlines() if line.startswith("warning: not measured: "))
    for place, words in (("6", "interpolated between 4 and 8 ranks"),
                         ("12, 16", "extrapolated by log2(ranks) from 4 to 8 ranks")):
        assert warning.count(f"cluster.ranks = {place}: all_reduce: {words}") == 1, warning
    shards = run("sweep", str(ROOT / "scenarios" / "shard_8b.toml"), "--over", "parallel=ddp,fsdp2,hsdp").stdout
    (warning,) = (line for line in shards.splitlines() if "not measured: " in line)
    assert "parallel = ddp: all_reduce: " in warning and "parallel = hsdp: all_gather: " in warning, warning
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


@contextlib.contextmanager
def two_batches(size):
    """The valley with a policy `large` of this batch size before its own."""
    text = pathlib.Path(VALLEY).read_text(encoding="utf-8")
    own = f'[[policy]]\nkind = "fixed"\nname = "large"\nbatch_size = {size}\n\n[[policy]]'
    folder = os.path.dirname(VALLEY)
    text = text.replace("[[policy]]", own, 1).replace('profile = "', f'profile = "{folder}/', 1)
    with tempfile.TemporaryDirectory() as place:
        file = os.path.join(place, "two.toml")
        pathlib.Path(file).write_text(text, encoding="utf-8")
        yield file


def test_what_fits_into_no_memory_is_an_answer_of_no():
    large = [VALLEY, "--set", "policy.fixed.batch_size=8"]
    over = ["--over", "policy.fixed.batch_size=7,8"]
    run("run", *large, status=1)
    run("compare", *large, status=1)
    assert "out of memory" in run("blame", *large, status=1).stdout
    assert "out of memory" in run("buckets", *large, "--best", status=1).stdout
    # 8 would be the faster one, and 7 is nearer to what there is.
    swept = run("sweep", VALLEY, *over, "--samples", "1e6", "--json", "-", status=1)
    sweep = json.loads(swept.stdout)
    most = re.search(r"needs (\S+) GiB of (\S+) GiB", sweep["points"][0]["out_of_memory"])
    missing = float(most[1]) - float(most[2])
    text = run("sweep", VALLEY, *over, "--samples", "1e6", status=1).stdout
    said = re.search(r"No value fits into memory. policy.fixed.batch_size = 7 lacks least: (\S+) GiB beside "
                     r"the (\S+) GiB of a rank.", text)
    assert abs(float(said[1]) - missing) < 0.11 and said[2] == most[2], (said, most)
    assert sweep["points"][0]["remark"] == f"out of memory by {said[1]} GiB", sweep["points"][0]
    assert "GPU-hours" not in text and "0.0 to 0.0" not in text and "+0.0 to" not in text, text
    assert all("gain_of_best" not in point for point in sweep["points"]), sweep
    text = run("tune", VALLEY, *over, "--samples", "0..99", status=1).stdout
    assert "2 (100.0 %) out of memory" in text and "No setting of this space fits" in text, text
    result = json.loads(run("tune", VALLEY, *over, "--samples", "0..99", "--json", "-", status=1).stdout)
    assert result["finalists"] == [] and not result["is_better"], result
    assert "are outside the limits" in run("tune", VALLEY, *over, "--samples", "1..2", status=2).stderr
    run("sweep", VALLEY, "--over", "policy.fixed.batch_size=1,8")


def test_training_costs_are_those_of_clusters_that_fit():
    over = ["--over", "parallel=zero1,zero2", "--samples", "1e6", "--gpu-hour", "2"]
    text = run("sweep", str(ROOT / "scenarios" / "shard_8b.toml"), *over).stdout
    table = text[text.index("GPU-hours"):].split("\n\n")[0].splitlines()
    assert len(table) == 2 and table[1].startswith("zero2 "), text


def test_a_host_that_bounds_the_step_is_blamed():
    ddp = [SHARD_1B, "--set", "parallel=ddp", "--set", "host.launch=300 us"]
    result = json.loads(run("blame", *ddp, "--json", "-").stdout)
    first = result["changes"][0]
    unbound = json.loads(run("blame", SHARD_1B, "--set", "parallel=ddp", "--set", "host.launch=0 s", "--json",
                             "-").stdout)
    assert first["change"] == "no_launches" and abs(first["step_ms"] - unbound["step_ms"]) < 1e-9, first
    assert all(change["change"] != "no_launches" for change in unbound["changes"]), unbound["changes"]
    text = run("blame", *ddp).stdout
    assert "Most would be saved if the host launched kernels in no time: " in text, text
    (command,) = (line for line in text.splitlines() if line.startswith("Next: "))
    assert command.count("host.launch=") == 1, command


def test_what_is_exposed_and_what_hides_add_up():
    for late in ("0 s", "300 us"):
        shard = [SHARD_1B, "--set", "host.launch=" + late]
        text = run("run", *shard).stdout
        line = re.search(r"communication +(\S+) ms of collectives: (\S+) ms hidden .*, (\S+) ms exposed", text)
        every, hidden, exposed = map(float, line.groups())
        assert abs(hidden + exposed - every) < 0.002, text
        summary = json.loads(run("run", *shard, "--json", "-").stdout)["predictions"][0]["summary"]
        more = re.search(r"(\S+) ms more exposed: copies around .*; (\S+) ms exposed in all", text)
        assert (more is None) == (late == "0 s"), text
        if more:
            assert abs(exposed + float(more[1]) - summary["exposed_transfer_ms"]) < 0.002, text


def test_the_best_buckets_are_those_of_a_policy_that_fits():
    with two_batches(8) as scenario:
        said = run("buckets", scenario, "--best").stdout
        assert said.startswith("bucket_valley: policy fixed, ") and "large does not\n" in said, said
        found = json.loads(run("buckets", scenario, "--best", "--json", "-").stdout)
        assert found["policy"] == "fixed" and found["policies_that_do_not_fit"] == ["large"], found
        own = json.loads(run("buckets", VALLEY, "--best", "--json", "-").stdout)
        assert found["best_list"] == own["best_list"]
        # Who names a policy gets that one.
        text = run("buckets", scenario, "--best", "--policy", "large", status=1).stdout
        assert text.startswith("bucket_valley: policy large, ") and "does not" not in text.split("\n\n")[0], text
    with two_batches(7) as scenario:  # Of which none fits.
        all_large = ["--set", "policy.fixed.batch_size=7"]
        assert run("buckets", scenario, "--best", *all_large, status=1).stdout.startswith("bucket_valley: policy large, ")


def test_policies_that_do_not_fit_are_marked_and_come_last():
    with two_batches(8) as scenario:
        text = run("compare", scenario).stdout  # One fits: there is an answer, as of a sweep.
        rows = [line.split("  ")[0] for line in text.splitlines()[2:5]]
        assert rows == ["policy", "fixed", "large !"], text
        assert "! does not fit into memory: not a choice" in text and "Use fixed:" in text, text
        both = json.loads(run("compare", scenario, "--json", "-").stdout)["predictions"]
        assert "out_of_memory" not in both[1], both[1]
        misfit = both[0]["out_of_memory"]
        assert misfit["needed_bytes"] > misfit["capacity_bytes"] and misfit["step"] == 0, misfit
    with two_batches(7) as scenario:
        assert "No policy of this scenario fits" in run(
            "compare", scenario, "--set", "policy.fixed.batch_size=7", status=1).stdout


def test_memory_without_activations_says_so_wherever_it_stands():
    words = "warning: peak memory is without activations"
    over = ["--over", "ddp.bucket_cap=1MiB,2MiB"]
    with Blocks() as blocks:
        for arguments in (["run"], ["compare"], ["sweep", *over], ["tune", *over]):
            said = run(arguments[0], blocks, *arguments[1:]).stdout
            assert words in said, (arguments, said)
    assert words not in run("compare", SKEW).stdout


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
            (["sweep", "--over", "ddp.zero_stage=7"], "--over ddp.zero_stage=7: error: 7 is too large"),
            (["sweep", "--over", "policy.nobody.x=1"], "--over policy.nobody.x=1: error: unknown policy"),
            (["sweep", "--over", "ddp.zero_stage=0,1", "--set", "ddp.zero_stag=1"], "--set ddp.zero_stag: error"),
            (["solve", "--key", "cluster.rankss=1..2", "--step-time", "9 ms"], "--key cluster.rankss: error"),
        ):
            message = run(arguments[0], path, *arguments[1:], status=2).stderr
            assert message.startswith(place), (message, place)
        message = run("tune", path, "--over", "ddp.zero_stage=7,8", status=2).stderr
        assert "(--over ddp.zero_stage=7: error: 7 is too large" in message, message


def test_a_sweep_over_ranks_can_keep_the_global_batch():
    nodes = str(ROOT / "scenarios" / "two_nodes.toml")
    same = ["--set", "data.lengths={constant=128}", "--json", "-"]

    def samples(result):
        return [point["useful_tokens_per_step"] / 128 for point in result["points"]]

    over = ["--over", "cluster.placement=8,2x8,4x8", *same]
    result = json.loads(run("sweep", nodes, *over, "--global-batch", "256").stdout)
    assert samples(result) == [256] * 3, result
    grown = json.loads(run("sweep", nodes, *over).stdout)
    assert samples(grown) == [64, 128, 256], grown
    # The last point is the same either way, and the key does what the option does.
    assert result["points"][-1]["step_ms"] == grown["points"][-1]["step_ms"]
    by_key = json.loads(run("sweep", nodes, *over, "--set", "policy.fixed.global_batch=256").stdout)
    assert by_key["points"] == result["points"]
    # Micro-batches divide, too.
    over = ["--over", "ddp.accumulation_steps=1,2", *same, "--global-batch", "256"]
    steps = json.loads(run("sweep", nodes, *over).stdout)
    assert samples(steps) == [256, 256], steps
    # What does not divide is refused alone, and says what would.
    text = run("sweep", nodes, "--over", "cluster.placement=4x8,3x8", "--global-batch", "256").stdout
    said = " ".join(text.split())
    assert "256 samples do not divide over 24 ranks; 240 and 264 do" in said, text
    message = run("sweep", nodes, "--over", "cluster.placement=8,2x8", "--policy", "token_budget", "--global-batch", "256",
                  status=2).stderr
    assert "global_batch=256: error: does not apply to policy kind 'token_budget'" in message, message
    message = run("sweep", nodes, "--over", "policy.fixed.batch_size=4,8", "--global-batch", "256", status=2).stderr
    assert "--global-batch says what each rank's batch holds" in message, message


def test_a_sweep_goes_on_past_a_value_that_is_refused():
    """The profile has all-reduces of 4 ranks alone, and there are 3,072 samples."""
    over = ["--over", "cluster.ranks=2,4,4000"]
    text = run("sweep", SKEW, *over).stdout
    assert "warning: cluster.ranks = 2: refused: profile cpu_epyc_2core_4ranks has no all_reduce" in text, text
    assert "every rank needs at least one" in text and text.count("  refused\n") == 2, text
    assert "Nothing to gain here: keep the scenario as it stands" in text, text
    result = json.loads(run("sweep", SKEW, *over, "--json", "-").stdout)
    refused, priced, _ = result["points"]
    assert result["best"] == 1 and priced["refused"] == "" and priced["step_ms"] > 0
    assert "no all_reduce of 2 ranks" in refused["refused"] and "step_ms" not in refused, refused
    assert "training" not in result
    rows = list(csv.DictReader(io.StringIO(run("sweep", SKEW, *over, "--csv", "-", "-q").stdout)))
    assert [row["remark"] for row in rows] == ["refused", "fastest", "refused"]
    assert rows[0]["step_ms"] == "" and "no all_reduce" in rows[0]["refused"], rows[0]
    with tempfile.TemporaryDirectory() as folder:
        parts = [os.path.join(folder, f"{i}.jsonl") for i in (1, 2)]
        for i, part in enumerate(parts):
            run("sweep", SKEW, *over, "--shard", f"{i + 1}/2", "--resume", part)
        assert run("merge", *parts).stdout == text
    said = run("sweep", SKEW, "--over", "cluster.ranks=2,4000", status=2).stderr
    assert "all 2 points are refused:\ncluster.ranks = 2: profile" in said and "cluster.ranks = 4000: " in said, said


def test_a_set_key_may_hold_only_beside_a_swept_one():
    """A tenth rank can be slow where there are ten; the scenario as it stands has 8."""
    links = 'cluster.topology={algorithm="ring", intra_latency="3 us", intra_bandwidth="300 GB/s"}'
    text = run("sweep", VALLEY, "--set", links, "--set", "cluster.slow_ranks=[{rank=9, factor=1.5}]",
               "--over", "cluster.placement=8,10").stdout
    assert "cluster.placement = 8: refused: " in text and "rank 9 is out of range" in text, text
    assert "Best: cluster.placement = 10" in text and "the scenario as it stands cannot be predicted" in text, text
    said = run("sweep", VALLEY, "--set", "cluster.slow_ranks=[{rank=90, factor=1.5}]",
               "--over", "cluster.placement=8,2x8", status=2).stderr
    assert said.count("rank 90 is out of range") == 1, said


def test_a_faster_network_and_faster_kernels_work_with_measured_costs():
    def swept(scenario, key, figure):
        points = json.loads(run("sweep", scenario, "--over", key + "=1,2", "--json", "-").stdout)["points"]
        return points[1][figure] / points[0][figure]

    # Measured tables, and links; every transfer takes half as long.
    for scenario in (SKEW, VALLEY, str(ROOT / "scenarios" / "two_nodes.toml")):
        assert abs(swept(scenario, "cluster.network_speed", "communication_ms") - 0.5) < 1e-4, scenario
        assert swept(scenario, "cluster.network_speed", "step_ms") < 1
    with Blocks(("ranks = 4", "ranks = 1")) as blocks:  # It has nothing but kernels.
        assert abs(swept(blocks, "cluster.compute_speed", "step_ms") - 0.5) < 1e-3
    links = 'cluster.topology={algorithm="ring", intra_latency="3 us"}'
    text = run("sweep", VALLEY, "--set", links, "--over", "cluster.topology.intra_bandwidth=100 GB/s,200 GB/s").stdout
    assert ("cluster.topology.intra_bandwidth makes no difference here: what was measured or fitted has precedence "
            "over links (all_reduce: measured table, 8 ranks); sweep cluster.network_speed") in text, text


def test_samples_are_those_of_the_epoch_whatever_the_first_steps_hold():
    """Of an epoch of 3,072 samples in batches of 8 on 4 ranks, 4 steps and all 96."""
    found = []
    for steps in ("4", "96"):
        answer = json.loads(run("run", SKEW, "--policy", "bucketing", "--steps", steps, "--json", "-",
                                "--set", "scenario.warmup_steps=0").stdout)
        summary = answer["predictions"][0]["summary"]
        rate = summary["useful_tokens_per_s"] / summary["samples_per_s"]
        assert abs(rate / summary["tokens_per_sample"] - 1) < 1e-9, summary
        found.append(rate)
        rows = answer["predictions"][0]["steps"]
        found.append(sum(row["useful_tokens"] for row in rows) / sum(row["samples"] for row in rows))
    few, of_few, all_steps, of_all = found
    assert few == all_steps and abs(of_all / all_steps - 1) < 1e-9, found
    assert abs(of_few / all_steps - 1) > 0.005, found


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


def test_solve_says_where_a_key_makes_no_difference_that_a_run_could_show():
    wanted = ["--step-time", "22.81 ms", "--key", "host.enqueue=0..40 us"]
    done = run("solve", SKEW, "--policy", "uniform", *wanted)
    result = json.loads(run("solve", SKEW, "--policy", "uniform", *wanted, "--json", "-").stdout)
    assert 0 < result["change_over_range"] < 0.01, result
    change = f"{100 * result['change_over_range']:.1f}"
    assert f"note: nothing to learn here: the whole range changes the step by {change} %," in done.stdout, done.stdout
    # 2.8 times as long at the end of the range: there is something to learn, and the measured time is told.
    text = run("solve", SKEW, "--policy", "variable_fixed", "--step-time", "60.5 ms", "--key", "cluster.skew=0..2").stdout
    assert "nothing to learn" not in text, text
    assert re.search(r"predicted mean step 60\.(499|500|501) ms, measured 60\.500 ms\n", text), text
    # 6 % over the range can be told from noise.
    key = ["--key", "cluster.skew=0..0.05", "--policy", "variable_fixed"]
    ends = json.loads(run("solve", SKEW, *key, "--step-time", "1 ms", "--json", "-", status=1).stdout)
    middle = (ends["low"]["step_ms"] + ends["high"]["step_ms"]) / 2
    result = json.loads(run("solve", SKEW, *key, "--step-time", f"{middle} ms", "--json", "-").stdout)
    assert 0.01 < result["change_over_range"] < 0.1, result
    assert "nothing to learn" not in run("solve", SKEW, *key, "--step-time", f"{middle} ms").stdout
    # And so can a key whose larger values make the step shorter.
    key = ["--key", "cluster.compute_speed=1..1.1", "--policy", "variable_fixed"]
    ends = json.loads(run("solve", SKEW, *key, "--step-time", "1 ms", "--json", "-", status=1).stdout)
    middle = (ends["low"]["step_ms"] + ends["high"]["step_ms"]) / 2
    assert ends["high"]["step_ms"] < middle, ends
    result = json.loads(run("solve", SKEW, *key, "--step-time", f"{middle} ms", "--json", "-").stdout)
    assert 0.01 < result["change_over_range"] < 0.2, result
    assert "nothing to learn" not in run("solve", SKEW, *key, "--step-time", f"{middle} ms").stdout


def test_best_buckets_that_are_chosen_are_the_ones_to_paste():
    text = run("buckets", VALLEY, "--best").stdout
    assert "Use bucket_cap_mb=173" in text and '\nbucket_cap = "173 MiB"' in text, text
    assert "bucket_cap_mb_list" not in text, text
    text = run("buckets", VALLEY, "--best", "--set", "ddp.bucket_cap=128 MiB").stdout
    assert "Nothing to gain here, at most" in text and "keep the scenario's own buckets" in text, text
    assert "In PyTorch" not in text and "next: stepsim blame" in text, text


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


def test_run_and_tune_say_what_a_plain_loop_breaks_on():
    hangs = "batches an epoch, and a plain DDP loop hangs when the first rank is through"
    text = run("run", PAIR, "--policy", "token_budget").stdout
    assert text.count(hangs) == 1 and "note: with token_budget, ranks have" in text, text
    assert "multiply each rank's loss by ranks x own / all samples of the step" in text, text
    weighted = run("run", PAIR, "--policy", "token_budget", "--set",
                   'policy.token_budget.weighting="sample"').stdout
    assert hangs in weighted and "loss_scale" not in weighted, weighted
    assert "note: with" not in run("run", PAIR, "--policy", "uniform").stdout
    over = ["--over", "ddp.bucket_cap=25MiB,50MiB"]
    text = run("tune", str(ROOT / "scenarios" / "two_nodes.toml"), *over).stdout
    answer = text.index("\nNothing to gain here: keep token_budget as the scenario has it")
    assert answer < text.index("note: with that setting, ranks have") < text.index(hangs), text
    text = run("tune", VALLEY, *over).stdout
    assert "note: with that setting" not in text, text


def test_tune_predicts_the_more_settings_the_less_its_search_may_miss():
    priced = [json.loads(run("tune", SKEW, "--within", within, "--json", "-").stdout)["priced"]
              for within in ("0.01", "1", "20")]
    assert priced[0] > priced[1] > priced[2], priced


def test_tune_recommends_no_change_that_gains_nothing_by_itself():
    result = json.loads(run("tune", str(ROOT / "scenarios" / "two_nodes.toml"), "--json", "-").stdout)
    assert result["changes_less"] is True, result["headline"]
    assert result["headline"].startswith("Use token_budget: "), result["headline"]
    assert "bucket_cap" not in result["headline"].split(":")[1], result["headline"]
    first, fastest = result["finalists"][:2]
    assert len(first["set"]) < len(fastest["set"]) and fastest["remark"] == "fastest", result["finalists"]
    speeds = [one["with_noise"]["useful_tokens_per_s"] for one in (first, fastest)]
    assert 1 < speeds[1] / speeds[0] < 1.01, speeds


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


if __name__ == "__main__":
    sys.exit(small_runner.main(globals()))
