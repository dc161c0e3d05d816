"""Checks that a result says so when it used a cost outside its measured range, or a profile that was
made with other settings: in the text, the JSON, the page and the Python package.

Usage: flags_test.py STEPSIM (with PYTHONPATH = build/sim/python for the package)
Prints `N passed, N failed, N skipped`.
"""

import copy
import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests"))
import small_runner  # noqa: E402

STEPSIM = str(pathlib.Path(sys.argv[1]).resolve())
SCENARIO = ROOT / "scenarios" / "token_skew_2ranks.toml"
PROFILE = json.loads((ROOT / "scenarios" / "profiles" / "cpu_epyc_2core_2ranks.json").read_text())
# The policy's batches: 8 samples of 128 tokens on each rank.
POLICY, TOKENS, LENGTH = "uniform", 1024, 128
BEYOND, BELOW = "times the largest size", "of the smallest size"
RATIO_WEIGHTS = 135


def stepsim(*words):
    made = subprocess.run([STEPSIM, *map(str, words)], capture_output=True, text=True, cwd=ROOT)
    return made.returncode, made.stdout, made.stderr


def places(folder, profile, *settings):
    """What `run` says with this profile in its four forms: {place: text}."""
    path = pathlib.Path(folder) / "profile.json"
    path.write_text(json.dumps(profile))
    page, answer = pathlib.Path(folder) / "page.html", pathlib.Path(folder) / "answer.json"
    words = ["--profile", path, "--policy", POLICY, *settings]
    status, text, errors = stepsim("run", SCENARIO, *words, "--html", page)
    assert status in (0, 1), errors
    status, _, errors = stepsim("run", SCENARIO, *words, "--json", answer)
    assert status in (0, 1), errors
    (prediction,) = json.loads(answer.read_text())["predictions"]
    found = {"text": text, "JSON": "\n".join(prediction["warnings"]), "page": page.read_text()}
    try:
        import stepsim as package
    except ImportError:
        return found
    scenario = package.Scenario(SCENARIO).set("cluster.profile", str(path))
    for setting in settings:
        if setting != "--set":
            scenario = scenario.set(*setting.split("=", 1))
    run = scenario.run(POLICY, progress=False)
    found["Python, printed"] = str(run)
    found["Python, data"] = "\n".join(run.data["predictions"][0]["warnings"])
    return found


def with_entries(op, change):
    """The profile with all entries of an op's forward changed."""
    profile = copy.deepcopy(PROFILE)
    profile["format"] = "stepsim-profile/2"
    for entry in profile["ops"]:
        if entry["op"] == op and entry["pass"] == "forward" and (entry.get("n") or op != "gemm"):
            for key in ("form", "knots_s", "variable", "features", "coefficients_s", "processors"):
                entry.pop(key, None)
            change(entry)
    return profile


FORMS = {
    "table": ("gemm", TOKENS, lambda low, high: {"knots_s": [[low, 1e-4], [high, 2e-4]]}),
    "per_sample_table": ("attention_context", LENGTH, lambda low, high: {"knots_s": [[low, 1e-5], [high, 2e-5]]}),
    "features": ("gemm", TOKENS, lambda *_: {"features": ["1", "tokens"], "coefficients_s": [1e-5, 1e-7]}),
    "roofline": ("gemm", TOKENS, lambda *_: {"features": ["1", "flops"], "coefficients_s": [1e-5, 1e-11]}),
    "features_ratio": ("gemm", TOKENS, lambda low, high: {
        "features": ["1", "tokens"], "coefficients_s": [1e-5, 1e-7], "ratio_knots": [[low, 1.1], [high, 0.9]]}),
    "roofline_ratio": ("gemm", TOKENS, lambda low, high: {
        "features": ["1", "flops"], "coefficients_s": [1e-5, 1e-11],
        "gemm_ratio": {"processors": 108, "m_range": [low, high], "n_range": [1, 4096], "k_range": [1, 4096],
                       "weights": [0.0] * RATIO_WEIGHTS}}),
}


def check(profile, wanted, *settings):
    with tempfile.TemporaryDirectory() as folder:
        for place, text in places(folder, profile, *settings).items():
            flat = " ".join(text.split())
            assert all(one in flat for one in wanted), f"{place} does not say {wanted}: {flat[-1500:]}"


def check_form(form, low, high, wanted):
    op, size, members = FORMS[form]
    low, high = low * size, high * size
    check(with_entries(op, lambda entry: entry.update(form=form, range=[low, high], **members(low, high))),
          [f"{op} forward", wanted])


def form_test(form):
    def test():
        check_form(form, 0.1, 0.5, BEYOND)
        check_form(form, 2, 4, BELOW)
        try:
            check_form(form, 0.1, 4, f"up to 2 {BEYOND}")
        except AssertionError:
            return
        raise AssertionError("a size inside the range was flagged")
    return test


for name in FORMS:
    globals()[f"test_{name}"] = form_test(name)


def recorded(**changes):
    """A profile of recorded passes of the scenario's model."""
    profile = copy.deepcopy(PROFILE)
    profile |= {"format": "stepsim-profile/3", "ops": []}
    status, text, errors = stepsim("plan", SCENARIO, "--policy", POLICY, "--out", "-")
    assert status == 0, errors
    one = {"features": ["1", "tokens"], "coefficients_s": [1e-4, 1e-6], "draws_s": [], "tokens_range": [900, 1100],
           "length_range": [100, 150], "samples": 10, "errors": {}}
    profile["recorded"] = {"model": json.loads(text.split("\n")[0])["model"], "data": copy.deepcopy(one),
                           "forward": copy.deepcopy(one), "backward": copy.deepcopy(one), "optimizer_s": 1e-4,
                           "operations_per_byte": 8.0, "whole_steps": False}
    for part in ("forward", "backward", "data"):
        profile["recorded"][part].update(changes)
    return profile


def test_recorded_passes():
    check(recorded(tokens_range=[300, 600]), ["forward pass", BEYOND])
    check(recorded(tokens_range=[2000, 4000]), ["forward pass", BELOW])
    check(recorded(length_range=[32, 64]), ["backward pass", BEYOND])


def test_all_reduces():
    profile = copy.deepcopy(PROFILE)
    for table in profile["collectives"]:
        table["knots_s"] = [knot for knot in table["knots_s"] if knot[0] <= 600_000]
    check(profile, ["all_reduce", BEYOND])
    for table in profile["collectives"]:
        table["knots_s"] = [[4e6, 0.003], [8e6, 0.006]]
    check(profile, ["all_reduce", BELOW])
    check(PROFILE, ["all_reduce", BEYOND], "--set", 'cluster.all_reduce={sizes=["1 KiB","512 KiB"],times=["1 ms","2 ms"]}')


def test_stated_times():
    times = 'times={forward="1 ms",backward="2 ms",tokens=%d}'
    check(PROFILE, ["forward pass", "up to 2 " + BEYOND], "--set", times % 512)
    check(PROFILE, ["forward pass", "down to 1/2 " + BELOW], "--set", times % 2048)
    with tempfile.TemporaryDirectory() as folder:
        found = places(folder, PROFILE, "--set", times % TOKENS)
        assert not any("that was measured" in text for text in found.values()), found["text"]


def test_times_that_hold_for_any_batch():
    """Without times.tokens larger batches are free: said wherever batches of several sizes meet."""
    free = "[times] are taken for every batch, and batches hold"
    with tempfile.TemporaryDirectory() as folder:
        one = pathlib.Path(folder) / "one.toml"
        text = "\n".join([
            "[scenario]", 'name = "one"', "steps = 4", "warmup_steps = 1", "[cluster]", "ranks = 1",
            "[times]", 'forward = "1 ms"', 'backward = "2 ms"', "[model]", 'kind = "blocks"', "layers = 2",
            "block_elements = 9", "[data]", "samples = 40", "lengths = { constant = 16 }",
        ])
        policies = "".join(f'\n[[policy]]\nname = "{name}"\nkind = "fixed"\nbatch_size = {size}\n'
                           for name, size in (("a", 1), ("b", 2)))
        one.write_text(text + policies)
        for words in (["compare"], ["sweep", "--over", "policy.a.batch_size=1,2"],
                      ["tune", "--over", "policy.a.batch_size=1,2"]):
            status, printed, errors = stepsim(words[0], one, *words[1:])
            assert status in (0, 1) and free in " ".join(printed.split()), (words, printed, errors)
        status, printed, errors = stepsim("run", one, "--policy", "a")
        assert status == 0 and free not in printed, printed
        for words in (["compare"], ["sweep", "--over", "policy.a.batch_size=1,2"]):
            status, printed, errors = stepsim(words[0], one, *words[1:], "--set", "times.tokens=16")
            assert status == 0 and free not in printed, (printed, errors)
        # Planners go by tokens then, and refuse to go by time.
        planned = policies.replace('"fixed"', '"planned_shapes"')
        one.write_text(text + planned)
        status, printed, errors = stepsim("run", one, "--policy", "a")
        assert status == 0 and "5333 useful tokens/s" in printed, (printed, errors)
        one.write_text(text + planned.replace("batch_size", 'cost = "step_time"\nbatch_size'))
        status, printed, errors = stepsim("run", one, "--policy", "a")
        assert status == 2 and "plans by predicted time" in errors and "times.tokens" in errors, errors


def test_profile_of_other_kernels():
    profile = copy.deepcopy(PROFILE)
    profile["provenance"]["versions"]["kernels"] = "fused"
    check(profile, ["other settings: kernels fused, and the scenario has torch_eager"])
    profile["provenance"] = {"base": {"name": "other", "provenance": profile["provenance"]}}
    check(profile, ["kernels fused, and the scenario has torch_eager"])
    with tempfile.TemporaryDirectory() as folder:
        found = places(folder, profile, "--set", "model.kernels=fused")
        assert not any("other settings" in text for text in found.values())
        assert not any("other settings" in text for text in places(folder, PROFILE).values())


def test_steps_of_other_ranks_and_torch():
    profile = recorded()
    profile["provenance"]["recorded"] = {"records": [{"ranks": 4, "versions": {"torch": "2.4.1+cu121"}}]}
    check(profile, ["steps of 4 ranks, and the scenario has 2"])
    check(profile, ["steps of torch 2.4.1+cu121, and the scenario has ddp.torch"], "--set", "ddp.torch=newest")
    profile["provenance"]["recorded"]["records"][0]["ranks"] = 2
    with tempfile.TemporaryDirectory() as folder:
        assert not any("other settings" in text for text in places(folder, profile).values())


def test_steps_of_another_model():
    profile = recorded()
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "profile.json"
        path.write_text(json.dumps(profile))
        status, _, errors = stepsim("run", SCENARIO, "--profile", path, "--set", "model.layers=7")
        assert status == 2 and "recorded from another model" in errors, errors
    profile["ops"] = PROFILE["ops"]
    check(profile, ["other settings: steps of the model"], "--set", "model.layers=7")


def test_ranks_without_all_reduces():
    check(PROFILE, ["not measured: all_reduce"], "--set", "cluster.ranks=4", "--set",
          'cluster.topology={algorithm="ring",intra_latency="5 us",intra_bandwidth="2 GB/s"}')
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "profile.json"
        path.write_text(json.dumps(PROFILE))
        status, _, errors = stepsim("run", SCENARIO, "--profile", path, "--set", "cluster.ranks=64")
        assert status == 2 and "has no all_reduce of 64 ranks" in errors, errors


def test_hooks_that_have_not_begun():
    wanted = "power_sgd is a plain all-reduce before step 1000 (start_iteration)"
    check(PROFILE, [wanted, "this shows nothing of it"], "--set", "ddp.communication_hook=power_sgd")
    over = ["--over", "ddp.communication_hook=none,power_sgd"]
    for command in ("sweep", "tune"):
        text = stepsim(command, SCENARIO, *over, "--steps", "12", "--set", "scenario.warmup_steps=2")[1]
        assert wanted in " ".join(text.split()), text


def test_every_command_says_so():
    with tempfile.TemporaryDirectory() as folder:
        path, answer = pathlib.Path(folder) / "profile.json", pathlib.Path(folder) / "answer.json"
        op, _, members = FORMS["table"]
        profile = with_entries(op, lambda entry: entry.update(
            form="table", range=[100, 600], **members(100, 600)))
        path.write_text(json.dumps(profile))
        for words in (["run", "--policy", POLICY], ["compare"], ["blame", "--policy", POLICY],
                      ["sweep", "--policy", POLICY, "--over", "ddp.bucket_cap=1MiB,4MiB"],
                      ["solve", "--policy", POLICY, "--key", "ddp.bucket_cap=1..2 MiB", "--step-time", "5 ms"],
                      ["solve", "--policy", POLICY, "--key", "interference.strength=0..1", "--step-time", "5 ms"],
                      ["ladder", "--policy", POLICY, "--shape-cost", "5 ms"],
                      ["buckets", "--best", "--policy", POLICY],
                      ["tune", "--over", "ddp.bucket_cap=1MiB,4MiB"]):
            command = [words[0], SCENARIO, "--profile", path, *words[1:]]
            status, text, errors = stepsim(*command)
            assert status in (0, 1), f"{words}: {errors}"
            assert BEYOND in " ".join(text.split()), f"{words}: the text says nothing: {text}"
            answer.unlink(missing_ok=True)
            if words[0] in ("compare", "sweep", "tune"):
                page = pathlib.Path(folder) / "page.html"
                stepsim(*command, "--html", page)
                assert BEYOND in page.read_text(), f"{words}: the page says nothing"
            stepsim(*command, "--json", answer)
            assert BEYOND in answer.read_text(), f"{words}: the JSON says nothing"


def test_advice_from_records():
    """A policy whose batches are smaller than any that was recorded. (`replay` has no costs: its
    programs carry the times of every op.)"""
    record = ROOT / "scenarios" / "tour" / "random.jsonl"
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        command = ["advise", record, "--out-dir", folder / "advice"]
        status, text, errors = stepsim(*command, "--html", folder / "page.html")
        assert status == 0, errors
        assert stepsim(*command, "--json", folder / "answer.json")[0] == 0
        said = {"text": text, "JSON": (folder / "answer.json").read_text(),
                "page": (folder / "page.html").read_text()}
        for place, words in said.items():
            flat = " ".join(words.split())
            assert "forward pass: down to 1/" in flat and BELOW in flat, f"{place} does not say it: {flat[-1500:]}"


if __name__ == "__main__":
    sys.exit(small_runner.main(globals()))
