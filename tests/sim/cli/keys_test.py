"""Checks stepsim keys, and its JSON schema on every shipped scenario.

usage: keys_test.py PATH_OF_STEPSIM
"""

import copy
import json
import sys
import tomllib

from stepsim_program import ROOT, run

import small_runner  # from a folder that stepsim_program names

SCENARIOS = sorted(path for path in (ROOT / "scenarios").rglob("*.toml") if path.parent.name != "figures")


def schema():
    return json.loads(run("keys", "--schema").stdout)


def wrong(value, rule, whole, place="file"):
    """What a value has that the schema refuses, or "": the words of it that scenario_schema() uses."""
    if "$ref" in rule:
        return wrong(value, whole["$defs"][rule["$ref"].rsplit("/", 1)[1]], whole, place)
    if "anyOf" in rule:
        found = [wrong(value, one, whole, place) for one in rule["anyOf"]]
        return "" if "" in found else f"{place}: {found}"
    if "enum" in rule and value not in rule["enum"]:
        return f"{place}: {value} is none of {rule['enum']}"
    types = {"object": dict, "array": list, "string": str, "boolean": bool, "number": (int, float)}
    names = rule.get("type", [])
    names = [names] if isinstance(names, str) else names
    if names and not any(isinstance(value, types[name]) for name in names):
        return f"{place}: {value!r} is no {names}"
    if isinstance(value, dict) and "properties" in rule:
        for key in rule.get("required", []):
            if key not in value:
                return f"{place}: lacks {key}"
        for key, one in value.items():
            if key not in rule["properties"]:
                return f"{place}: unknown {key}"
            if found := wrong(one, rule["properties"][key], whole, f"{place}.{key}"):
                return found
    if isinstance(value, list) and "items" in rule:
        return next(filter(None, (wrong(one, rule["items"], whole, place) for one in value)), "")
    return ""


def test_every_shipped_scenario_is_one_of_the_schema():
    rules = schema()
    assert len(SCENARIOS) > 20, SCENARIOS
    for path in SCENARIOS:
        assert wrong(tomllib.loads(path.read_text(encoding="utf-8")), rules, rules) == "", path


def test_a_default_that_a_preset_has_another_of_says_so():
    for key in ("dtype", "parameter_dtype", "attention"):
        said = run("keys", f"model.{key}").stdout.splitlines()[0]
        assert said.startswith(f"model.{key}   (default: ") and said.endswith("; a preset has its own)"), said


def test_another_reader_of_schemas_says_the_same():
    try:
        import jsonschema  # pylint: disable=import-outside-toplevel
    except ImportError as error:
        raise small_runner.Skip(f"python3-jsonschema is not installed: {error}") from error
    rules = schema()
    jsonschema.Draft202012Validator.check_schema(rules)
    validator = jsonschema.Draft202012Validator(rules)
    for path in SCENARIOS:
        validator.validate(tomllib.loads(path.read_text(encoding="utf-8")))


def test_the_schema_refuses_what_the_program_refuses():
    rules = schema()
    good = tomllib.loads((ROOT / "scenarios" / "token_skew.toml").read_text(encoding="utf-8"))
    for change, words in (
        (lambda s: s["cluster"].update(rnks=4), "unknown rnks"),
        (lambda s: s.update(polcy=[]), "unknown polcy"),
        (lambda s: s["policy"][0].pop("kind"), "lacks kind"),
        (lambda s: s["policy"][0].update(kind="fixd"), "fixd is none of"),
        (lambda s: s["optimizer"].update(kind="adam"), "adam is none of"),
        (lambda s: s["scenario"].update(question=3), "is no"),
    ):
        bad = copy.deepcopy(good)
        bad.setdefault("optimizer", {})
        change(bad)
        assert words in wrong(bad, rules, rules), (words, wrong(bad, rules, rules))


def test_keys_are_found_by_name_table_and_meaning():
    every = json.loads(run("keys", "--json", "-").stdout)
    names = [row["key"] for row in every]
    assert len(names) > 150 and len(set(names)) == len(names), len(names)
    (cap,) = json.loads(run("keys", "ddp.bucket_cap", "--json", "-").stdout)
    assert cap["key"] == "ddp.bucket_cap" and cap["default"] == '"25 MiB"', cap
    host = [row["key"] for row in json.loads(run("keys", "host", "--json", "-").stdout)]
    assert "host.launch" in host and all(name.startswith("host.") for name in host), host
    text = run("keys", "bucket_cap").stdout
    assert "ddp.bucket_cap" in text and "`" not in run("keys").stdout, text
    meanings = [line for line in run("keys", "host").stdout.splitlines() if line.startswith("    ")]
    assert len(meanings) > 10 and all(len(line) <= 80 for line in meanings), meanings
    message = run("keys", "bucket_cp", status=2).stderr
    assert "did you mean" in message and "bucket_cap" in message, message
    message = run("keys", "ddp.fsdp", status=2).stderr
    assert "parallel.kind" in message, message


def test_names_that_are_misspelt_are_answered_with_the_nearest():
    skew = str(ROOT / "scenarios" / "token_skew.toml")
    for words, meant in ((("run", skew, "--polcy", "uniform"), "--policy"),
                         (("run", skew, "--policy", "unifrm"), "uniform"),
                         (("run", skew, "--profile", "h100_8x_publishd"), "h100_8x_published"),
                         (("run", skew, "--set", "ddp.bucket_cp=1 MiB"), "bucket_cap"),
                         (("policies", "token_budgt"), "token_budget"),
                         (("comparre", skew), "compare")):
        message = run(*words, status=2).stderr
        assert "did you mean" in message and meant in message, (words, message)


if __name__ == "__main__":
    sys.exit(small_runner.main(globals()))
