"""Runs every shipped scenario and compares its report with the last accepted one.

usage: golden_test.py PATH_OF_STEPSIM
A mismatch writes NAME.txt.new beside the golden file and prints both paths. STEPSIM_ACCEPT=1
rewrites the goldens; that counts as skipped, so that it never looks like a pass.
"""

import os
import pathlib
import re
import subprocess
import sys

import small_runner

ROOT = pathlib.Path(__file__).resolve().parent.parent
GOLDEN = ROOT / "tests" / "golden"
STEPSIM = os.path.abspath(sys.argv[1])

SWEEP = ["--over", "ddp.bucket_cap=1MiB..2GiB:x2"]


def check(name, *arguments):
    """Runs stepsim and compares its output with tests/golden/NAME.txt."""
    text = subprocess.run(
        [STEPSIM, *arguments], capture_output=True, text=True, check=True, timeout=300, cwd=ROOT
    ).stdout
    text = re.sub(r"(?m)^(planning on this host): .*$", r"\1: …", text)  # a measured time
    path = GOLDEN / f"{name}.txt"
    if os.environ.get("STEPSIM_ACCEPT") == "1":
        path.write_text(text, encoding="utf-8")
        raise small_runner.Skip(f"accepted {path.relative_to(ROOT)}")
    accepted = path.read_text(encoding="utf-8") if path.exists() else ""
    if text != accepted:
        new = path.with_suffix(".txt.new")
        new.write_text(text, encoding="utf-8")
        raise AssertionError(f"differs: {path} and {new}")


def scenario_test(path):
    return lambda: check(path.stem, "compare", str(path.relative_to(ROOT)))


for scenario in sorted((ROOT / "scenarios").glob("*.toml")):
    globals()[f"test_compare_{scenario.stem}"] = scenario_test(scenario)


def batching_test(path):
    arguments = ("compare", str(path.relative_to(ROOT)), "--steps", "24")
    return lambda: check(f"batching_{path.stem}", *arguments)


for scenario in sorted((ROOT / "scenarios" / "batching").glob("*.toml")):
    globals()[f"test_batching_{scenario.stem}"] = batching_test(scenario)


def published_test(path):
    return lambda: check(f"published_{path.stem}", "compare", str(path.relative_to(ROOT)))


for scenario in sorted((ROOT / "scenarios" / "published").glob("*.toml")):
    globals()[f"test_published_{scenario.stem}"] = published_test(scenario)


def figures_test(path):
    return lambda: check(f"figures_{path.stem}", "figures", str(path.relative_to(ROOT)))


for scenario in sorted((ROOT / "scenarios" / "figures").glob("*.toml")):
    globals()[f"test_figures_{scenario.stem}"] = figures_test(scenario)


def test_the_valley():
    check("bucket_valley_sweep", "sweep", "scenarios/bucket_valley.toml", *SWEEP)


def test_the_buckets_of_the_valley_model():
    check("bucket_valley_buckets", "buckets", "scenarios/bucket_valley.toml")


def test_one_policy_in_detail():
    check("sst2_distilbert_run", "run", "scenarios/sst2_distilbert.toml", "--policy", "fixed")


def test_the_blame():
    check(
        "token_skew_2ranks_blame",
        "blame",
        "scenarios/token_skew_2ranks.toml",
        "--policy",
        "variable_fixed",
    )


def test_the_ladders():
    for cost in ("5 ms", "500 ms"):
        name = "ladders_" + cost.replace(" ", "")
        check(name, "ladder", "scenarios/ladders.toml", "--shape-cost", cost)


def test_the_lengths():
    check("lengths_gsm8k", "lengths", "--file", "scenarios/lengths/gsm8k_train_qa.json")


def test_the_models():
    check("models", "models")


def test_the_policies():
    check("policies", "policies", "--all")
    check("policies_to_try", "policies")


if __name__ == "__main__":
    sys.exit(small_runner.main(dict(globals())))
