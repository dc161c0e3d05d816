"""Runs every shipped scenario and compares its report with the last accepted one.

usage: golden_test.py PATH_OF_STEPSIM [TEST…]
A mismatch writes NAME.txt.new beside the golden file and prints both paths. STEPSIM_ACCEPT=1
rewrites the goldens; that counts as skipped, so that it never looks like a pass.
"""

import csv
import io
import os
import pathlib
import sys

import small_runner

ROOT = pathlib.Path(__file__).resolve().parent.parent
GOLDEN = ROOT / "tests" / "golden"
STEPSIM = os.path.abspath(sys.argv[1])

SWEEP = ["--over", "ddp.bucket_cap=1MiB..2GiB:x2"]


def check(name, *arguments):
    """Runs stepsim and compares its output with tests/golden/NAME.txt."""
    text = small_runner.run(STEPSIM, *arguments, cwd=ROOT).stdout
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


def test_the_best_setting():
    check("token_skew_tune", "tune", "scenarios/token_skew.toml")


def test_the_valley():
    check("bucket_valley_sweep", "sweep", "scenarios/bucket_valley.toml", *SWEEP)


def test_the_buckets_of_the_valley_model():
    check("bucket_valley_buckets", "buckets", "scenarios/bucket_valley.toml")


def test_the_best_buckets_of_the_valley_model():
    check("bucket_valley_best", "buckets", "scenarios/bucket_valley.toml", "--best")


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


def test_the_ladders_where_shapes_are_cheap():
    check("ladders_5ms", "ladder", "scenarios/ladders.toml", "--shape-cost", "5 ms")


def test_the_ladders_where_shapes_are_dear():
    check("ladders_500ms", "ladder", "scenarios/ladders.toml", "--shape-cost", "500 ms")


def ladder_row(rows):
    """One row of the table of ladders in scenarios/README.md: padding, shapes a rank, step."""
    cells = []
    for row in rows:
        padded, shapes, step = (float(row[key]) for key in ("padding_ratio", "shapes_per_rank", "step_ms"))
        cell = f"{100 * padded:.0f} %, {shapes:.0f}, {step:.1f}"
        cells.append(f"**{cell}**" if row["best"] == "1" else cell)
    return f"| {rows[0]['policy']} | {' | '.join(cells)} |"


def test_the_readme_has_the_figures_of_the_ladders():
    readme = (ROOT / "scenarios" / "README.md").read_text(encoding="utf-8")
    for cost in ("5 ms", "500 ms"):
        command = [STEPSIM, "ladder", "scenarios/ladders.toml", "--shape-cost", cost, "--csv", "-"]
        table = small_runner.run(*command, cwd=ROOT).stdout
        rows = list(csv.DictReader(io.StringIO(table)))
        policies = list(dict.fromkeys(row["policy"] for row in rows))
        assert len(policies) == 8
        expected = [ladder_row([row for row in rows if row["policy"] == one]) for one in policies]
        assert "\n".join(expected) in readme, "\n".join(expected)


def test_the_lengths():
    check("lengths_gsm8k", "lengths", "--file", "scenarios/lengths/gsm8k_train_qa.json")


def test_the_models():
    check("models", "models")


def test_the_policies():
    check("policies", "policies", "--all")


def test_the_policies_to_try():
    check("policies_to_try", "policies")


if __name__ == "__main__":
    wanted = sys.argv[2:]
    tests = {name: test for name, test in globals().items() if not wanted or name in wanted}
    sys.exit(small_runner.main(tests))
