"""Runs stepsim buckets as a user would: lists of parameters, reference cases, the best buckets.

usage: buckets_test.py PATH_OF_STEPSIM
"""

import csv
import io
import json
import os
import pathlib
import sys

from stepsim_program import Blocks, ROOT, run

import small_runner  # from a folder that stepsim_program names


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


def test_limits_and_unused_parameters_of_a_list():
    one = {"name": "x", "params": [{"bytes": size} for size in (10, 20, 30, 40, 50, 60)]}

    def lists(**more):
        text = json.dumps({"cases": [{**one, **more}]})
        return json.loads(run("buckets", "--params", "-", "--json", "-", input=text).stdout)["x"]

    # Limits hold from the first iteration on, in which buckets go by the order of registration.
    capped = lists(limits=[50, 25, 100])
    assert capped["rebuilt"] == [[5], [4], [3, 2, 1, 0]], capped
    assert capped["initial"] == [[4, 5], [3], [0, 1, 2]], capped
    # Static graph: the unused ones come last, in the order of registration.
    unused = lists(unused=[4, 1], ready_order=[5, 3, 2, 0], cap_bytes=1, first_bucket_bytes=1)
    assert unused["rebuilt"] == [[5], [3], [2], [0], [1], [4]], unused
    assert lists(unused=[4, 1], cap_bytes=1, first_bucket_bytes=1)["rebuilt"] == unused["rebuilt"]


def test_bad_parameter_lists_are_refused_with_their_place():
    for text, message in (
        ('{"cases": [{"name": "x", "params": []}]}', "cases[0].params"),
        ('{"cases": [{"name": "x", "params": [{"bytes": 0}]}]}', "cases[0].params[0].bytes"),
        ('{"cases": [{"name": "x", "params": [{"bytes": 4}], "ready_order": [1]}]}', "ready_order"),
        ('{"cases": [{"name": "x", "params": [{"bytes": 4}], "unused": [0], "ready_order": [0]}]}', "0 stands twice"),
        ('{"cases": [{"name": "x", "params": [{"bytes": 4}], "cap": 4}]}', "unknown key 'cap'; known: name, params,"),
        ('{"cases": [{"name": "x", "params": [{"bytes": 4, "shape": [1]}]}]}', "unknown key 'shape'; known: bytes"),
        ('{"cases": [{"name": "x", "params": [{"bytes": 4}], "limits": []}]}', "limits"),
        ('{"cases": [{"name": "x", "params": [{"bytes": 4}], "limits": [1, 2], "cap_bytes": 3}]}', "give one of both"),
        ('{"cases": [], "ddp": {}}', "unknown key 'ddp'"),
        ('{"cases": 3}', "cases"),
        ('{"cases": [', "error"),
        ("", "error"),
    ):
        done = run("buckets", "--params", "-", "--json", "-", status=2, input=text)
        assert message in done.stderr, (text, done.stderr)


if __name__ == "__main__":
    sys.exit(small_runner.main(globals()))
