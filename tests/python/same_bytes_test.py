"""Asks the same questions in Python and of the program, and compares the bytes of the answers.

usage: same_bytes_test.py PATH_OF_STEPSIM PATH_OF_STEPCAL [--whole]

--whole: every scenario with all its steps, which takes minutes; else a few steps of each, and of
those that take long one policy.
"""

import json
import os
import pathlib
import re
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "sim" / "cli")]
import stepsim_program  # noqa: E402  (it takes the same argument)
import small_runner  # noqa: E402  (needs the path above)

import stepsim  # noqa: E402  (PYTHONPATH has it)

WHOLE = "--whole" in sys.argv
SCENARIOS = sorted((ROOT / "scenarios").glob("*.toml"))
FEW_STEPS = 6
LARGE = "engines_step"  # 8192 ranks: one prediction takes a minute.
HEAVY = ("accumulation", "busy_cluster", "ddp_or_shard", "planned_shapes", "varlen_nanochat")


def scenario_of(path):
    """The scenario, and the options that make the program's the same."""
    scenario, options = stepsim.Scenario(path), []
    if not WHOLE:
        changed = {"scenario.steps": FEW_STEPS, "scenario.warmup_steps": 1}
        for key, value in changed.items():
            scenario = scenario.set(key, value)
            options += ["--set", f"{key}={value}"]
    return scenario, options


def same(result, *command, compared=str):
    """Checks that the program writes the same JSON and CSV, and ends with the same status."""
    with tempfile.TemporaryDirectory() as folder:
        file, table = os.path.join(folder, "json"), os.path.join(folder, "csv")
        arguments = [os.fspath(word) for word in command] + ["--quiet", "--json", file]
        status = 0 if result.ok else 1
        has_csv = result._answer.has("csv")
        stepsim_program.run(*arguments, *(["--csv", table] if has_csv else []), status=status)
        text = pathlib.Path(file).read_text(encoding="utf-8")
        assert compared(text) == compared(result.to_json()), command
        if has_csv:
            assert pathlib.Path(table).read_text(encoding="utf-8") == result.to_csv(), command


def test_every_scenario_compared_run_and_described():
    for path in SCENARIOS:
        if path.stem == LARGE and not WHOLE:
            continue
        scenario, options = scenario_of(path)
        same(scenario.run(), "run", path, *options)
        if WHOLE or path.stem not in HEAVY:
            same(scenario.compare(), "compare", path, *options)
            same(scenario.blame(), "blame", path, *options)


def test_every_scenario_s_buckets_lengths_and_plans():
    for path in SCENARIOS:
        scenario, options = scenario_of(path)
        same(scenario.buckets(), "buckets", path, *options)
        same(scenario.lengths(), "lengths", path, *options)
        if path.stem != LARGE:
            plan = stepsim_program.run("plan", path, "--out", "-", *options).stdout
            assert scenario.plan().to_jsonl() == plan, path


def test_the_best_buckets():
    path = next(path for path in SCENARIOS if path.stem == "bucket_valley")
    scenario, options = scenario_of(path)
    same(scenario.best_buckets(), "buckets", path, "--best", *options)


def test_every_scenario_swept():
    for path in SCENARIOS:
        if path.stem == LARGE or (path.stem in HEAVY and not WHOLE):
            continue
        scenario, options = scenario_of(path)
        over = {"ddp.bucket_cap": ["1 MiB", "25 MiB"]}
        same(scenario.sweep(over), "sweep", path, "--over", "ddp.bucket_cap=1 MiB,25 MiB", *options)


def test_a_tuning():
    over = {"policy": ["bucketing", "token_budget"], "ddp.zero_stage": [0, 1]}
    result = stepsim.Scenario("token_skew").tune(over, samples=(16, 64), within=0.5)
    same(result, "tune", "token_skew", "--over", "policy=bucketing,token_budget", "--over",
         "ddp.zero_stage=0,1", "--samples", "16..64", "--within", "0.5")
    assert result.best.policy == result.data["finalists"][0]["policy"]
    assert result.certificate <= 0.005 and result.headline in str(result)


def test_a_sweep_that_says_what_training_costs():
    path = ROOT / "scenarios" / "two_nodes.toml"
    result = stepsim.Scenario(path).sweep(
        {"cluster.placement": ["8", "2x8"]}, samples=1e9, gpu_hour=2.5
    )
    same(result, "sweep", path, "--over", "cluster.placement=8,2x8", "--samples", "1e9",
         "--gpu-hour", "2.5")


def test_solved_and_laddered():
    skew = ROOT / "scenarios" / "token_skew.toml"
    solution = stepsim.Scenario(skew).solve("interference.compute=0..1", 24.24)
    same(solution, "solve", skew, "--key", "interference.compute=0..1", "--step-time", "24.24 ms")
    path = ROOT / "scenarios" / "sst2_distilbert.toml"
    ladder = stepsim.Scenario(path).ladder("500 ms", policy="fixed", rungs=[4, 8], step=8)
    same(ladder, "ladder", path, "--shape-cost", "500 ms", "--policy", "fixed", "--rungs", "4,8",
         "--step", "8")


def test_validated():
    import validate_test

    path = ROOT / "scenarios" / "token_skew_2ranks.toml"
    scenario = stepsim.Scenario(path)
    comparison = scenario.compare()
    with tempfile.TemporaryDirectory() as folder:
        made = pathlib.Path(folder) / "prediction.json"
        made.write_text(comparison.to_json(), encoding="utf-8")
        files = []
        for one in comparison.data["predictions"]:
            files.append(pathlib.Path(folder) / f"{one['policy']}.jsonl")
            validate_test.live_record(files[-1], one, [0.8, 1.0])
        result = scenario.validate(files, predictions=made, bound=5)
        assert not result.ok and "more than 5.0 %" in result.verdict, result.verdict
        same(result, "validate", path, "--predictions", made, "--bound", "5", "--live", *files)
        record = stepsim.RunRecord.read(files[0])
        assert scenario.validate([record]).data["policies"][0]["policy"] == record.policy


def test_step_times_validated_and_imported():
    table = "placement,batch,step_ms\n1,8,703\n4,8,741\n1+1,8,1399\n1+1+1+1,8,1308\n1,4,455\n"
    with tempfile.TemporaryDirectory() as folder:
        here = pathlib.Path(folder)
        (here / "steps.csv").write_text(table, encoding="utf-8")
        job = here / "job.toml"
        profile = stepsim.Profile.from_step_times(here / "steps.csv", here / "job.json",
                                                  preset="bert-base")
        assert profile.has_recorded_model and "ms" in profile.report, profile.report
        small_runner.run(
            sys.argv[2], "import", "step-times", here / "steps.csv",
            "--preset", "bert-base", "--out", here / "job.json", "--scenario", job)
        result = stepsim.Scenario(job).validate(step_times=here / "steps.csv")
        same(result, "validate", job, "--step-times", here / "steps.csv")


def without_ids(text):
    """The profile of each advice is made anew, and its id counts the second in which it was."""
    return re.sub(r'"profile_id": "\w+"', "", text)


def test_advised():
    import advise_test

    with tempfile.TemporaryDirectory() as folder:
        record = pathlib.Path(folder) / "run.jsonl"
        lines = [advise_test.header(), *advise_test.training()]
        record.write_text("\n".join(map(json.dumps, lines)) + "\n", encoding="utf-8")
        result = stepsim.advise(record, out_dir=pathlib.Path(folder) / "a")
        assert result.lines and result.bucket_cap["own"] == 25 << 20
        same(result, "advise", record, "--out-dir", pathlib.Path(folder) / "b",
             compared=without_ids)


def test_a_diff():
    import diff_test

    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        before = diff_test.write(folder / "a.jsonl", diff_test.training(1))
        slow = diff_test.training(2, {("forward", 1): 1.1})
        after = diff_test.write(folder / "b.jsonl", slow, **diff_test.LATER)
        result = stepsim.diff(before, stepsim.RunRecord.read(after))
        same(result, "diff", "--before", before, "--after", after)
        low, high = result.interval
        assert result.verdict == "slower" and 0 < low < result.change < high, result
        assert [(one.part, one.ranks) for one in result.causes] == [("forward", [1])], result.causes
        assert repr(result).startswith("<stepsim.Diff: slower: "), repr(result)
        assert set(result["part"]) >= {"forward", "backward"}, result.columns
        assert not stepsim.diff(before, after, fail_if_slower=1).ok


def test_catalogs_and_a_replay():
    same_list = [(stepsim.policies(), "policies"), (stepsim.models(), "models")]
    for result, command in same_list:
        text = stepsim_program.run(command, "--json", "-").stdout
        assert text == result.to_json() and len(result) == len(json.loads(text)), command
    folder = ROOT / "scenarios" / "profiles"
    text = stepsim_program.run("profiles", "--dir", folder, "--json", "-").stdout
    assert text == stepsim.profiles(folder).to_json()
    program = ROOT / "scenarios" / "replay"
    same(stepsim.replay(program, no_barrier=True), "replay", program, "--no-barrier")
    lengths = ROOT / "scenarios" / "lengths" / "gsm8k_train_qa.json"
    same(stepsim.lengths_of(lengths), "lengths", "--file", lengths)


def test_a_scenario_from_a_dict_answers_as_its_file_does():
    scenario = stepsim.Scenario(
        {
            "scenario": {"name": "own", "seed": 7, "steps": 12, "warmup_steps": 2},
            "cluster": {"ranks": 4, "profile": "h100_8x_published"},
            "model": {"preset": "gpt2-small", "dtype": "bf16", "attention": "flash"},
            "data": {"samples": 512, "lengths": {"uniform": [16, 512]}},
            "policy": [
                {"name": "plain", "kind": "fixed", "batch_size": 8},
                {"name": "by tokens", "kind": "token_budget", "max_tokens": 4096},
            ],
        }
    )
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "own.toml"
        path.write_text(scenario.text, encoding="utf-8")
        same(scenario.compare(), "compare", path)
        scenario = scenario.set("policy.by tokens.max_tokens", 2048).set("ddp.bucket_cap", "1 MiB")
        changed = ["--set", "policy.by tokens.max_tokens=2048", "--set", "ddp.bucket_cap=1 MiB"]
        same(scenario.compare(), "compare", path, *changed)
        same(scenario.sweep({"cluster.ranks": [4, 8]}, policy="plain"), "sweep", path, *changed,
             "--policy", "plain", "--over", "cluster.ranks=4,8")
        same(scenario.solve("interference.compute=0..1", "1 ms"), "solve", path, *changed,
             "--key", "interference.compute=0..1", "--step-time", "1 ms")


if __name__ == "__main__":
    sys.exit(small_runner.main(globals()))
