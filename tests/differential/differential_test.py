"""Compares the recurrence, the engine and an independent oracle on random plain scenarios.

Usage: differential_test.py ANSWERS STEPSIM [--scenarios N] [--seed S]

ANSWERS is the program of answers.cpp; a few answers of STEPSIM are compared as well. Scenario number
i has the seed S + i. On a disagreement the
scenario is made smaller while it still disagrees, then printed with all three answers, and the
exit status is 1. Ends with `N passed, N failed, 0 skipped`.
"""

import argparse
import collections
import copy
import json
import math
import pathlib
import subprocess
import sys
import tempfile
import time
import traceback

import oracle
import oracle_fsdp2
import scenarios

ROW = ["samples", "max_length", "useful_tokens", "padded_tokens", "start", "data", "forward", "backward",
       "exposed", "waiting", "optimizer", "step"]
COMMAND_LINE_EVERY = 500
FIRST_TIME = 4  # What comes before is counted.
MEANS = ["step_ms", "exposed_ms", "waiting_ms", "communication_ms", "overlap", "padding"]
RELATIVE = 1e-9
ROUNDING_MS = 1e-9  # Of sums of milliseconds; a thousandth of a nanosecond.
# Where a time lies halfway between two nanoseconds, each of its uses may be a nanosecond off.
HALFWAY_RELATIVE = 1e-3
HALFWAY_MS = 1e-3


def near(a, b):
    if oracle.halfway:
        return math.isclose(a, b, rel_tol=HALFWAY_RELATIVE, abs_tol=HALFWAY_MS)
    return math.isclose(a, b, rel_tol=RELATIVE, abs_tol=ROUNDING_MS)


class Product:
    """The program under test, which answers one scenario after another."""

    def __init__(self, program, folder):
        self.folder = folder
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def answer(self, scenario):
        path = scenarios.write(scenario, self.folder)
        print(path, file=self.process.stdin, flush=True)
        return json.loads(self.process.stdout.readline())


def is_sharded(scenario):
    return "parallel" in scenario["tables"]


def oracle_answer(scenario):
    answer = oracle.predict(scenario["tables"], scenario["files"], scenario["profile"],
                            oracle_fsdp2.Fsdp2Oracle if is_sharded(scenario) else None)
    if is_sharded(scenario):  # What of it hides is a matter of definition.
        answer["overlap"] = None
    answer["rows"] = [[row[name] if i < FIRST_TIME else row[name] / 1e6 for i, name in enumerate(ROW)]
                      for row in answer["rows"]]
    return answer


def differences(product, expected):
    """What is not the same, as texts."""
    if "error" in product:
        return ["refused: " + product["error"]]
    found = [f"{name} buckets: {product[name]}, oracle {expected[name]}"
             for name in ("initial", "rebuilt")
             if sorted(map(sorted, product[name])) != sorted(map(sorted, expected[name]))
             or [set(one) for one in product[name]] != [set(one) for one in expected[name]]]
    ranks = len(expected["rows"])
    for way in ("closed form", "engine"):
        answer = product[way]
        if len(answer["rows"]) != ranks:
            found.append(f"{way}: {len(answer['rows'])} rows, oracle {ranks}")
            continue
        for number, (row, wanted) in enumerate(zip(answer["rows"], expected["rows"])):
            found += [f"{way}: row {number}, {name} {a!r}, oracle {b!r}"
                      for name, a, b in zip(ROW, row, wanted) if not near(a, b)]
        found += [f"{way}: {name} {answer[name]!r}, oracle {expected[name]!r}"
                  for name in MEANS if expected[name] is not None and not near(answer[name], expected[name])]
    return found


def both_ways(answer):
    """Where the recurrence and the engine differ, without an oracle."""
    if "error" in answer:
        return ["refused: " + answer["error"]]
    recurrence, engine = answer["closed form"], answer["engine"]
    return [f"{name}: recurrence {recurrence[name]!r}, engine {engine[name]!r}"
            for name in recurrence if recurrence[name] != engine[name]]


def disagreement(product, scenario):
    if scenario["tables"].get("parallel", {}).get("async_unshard"):  # Transfers that share links.
        oracle.halfway = False
        answer = product.answer(scenario)
        return both_ways(answer), answer, answer.get("engine")
    try:
        expected = oracle_answer(scenario)
    except Exception:  # The oracle's own fault is a finding, too.
        return ["oracle: " + traceback.format_exc()], product.answer(scenario), None
    answer = product.answer(scenario)
    return differences(answer, expected), answer, expected


def smaller(scenario):
    """Scenarios that are a little simpler, simplest first."""
    tables = scenario["tables"]

    def changed(change):
        other = copy.deepcopy(scenario)
        change(other)
        return other

    def assign(table, key, value):
        return lambda other: other["tables"][table].__setitem__(key, value)

    steps = tables["scenario"]["steps"]
    for fewer in {1, steps - 1} - {steps, 0}:
        yield changed(lambda other: other["tables"]["scenario"].update(steps=fewer, warmup_steps=0))
    ranks = tables["cluster"]["ranks"]
    for fewer in sorted({1, 2, ranks // 2, ranks - 1}):
        if 0 < fewer < ranks and "ranks_per_node" not in tables["cluster"]:
            def shrink(other, fewer=fewer):
                cluster = other["tables"]["cluster"]
                cluster["ranks"] = fewer
                cluster["slow_ranks"] = [one for one in cluster.get("slow_ranks", []) if one["rank"] < fewer]
                for table in (other["profile"] or {}).get("collectives", []):
                    table["ranks"] = fewer
            yield changed(shrink)
    for table in ("ddp", "cluster", "times", "host", "parallel"):
        for key in list(tables.get(table, {})):
            if key not in ("ranks", "profile", "all_reduce", "topology", "forward", "backward", "kind") and not key.startswith(
                    ("unit_", "sharded_")):
                yield changed(lambda other, table=table, key=key: other["tables"][table].pop(key))
    for key in ("pad_to_multiple_of", "pad_to_lengths", "sort"):
        if key in tables["policy"][0]:
            yield changed(lambda other, key=key: other["tables"]["policy"][0].pop(key))
    if tables["policy"][0]["kind"] != "fixed":
        yield changed(lambda other: other["tables"].__setitem__(
            "policy", [{"name": "fixed", "kind": "fixed", "batch_size": 1}]))
    if "tensors.csv" in scenario["files"]:
        head, *rows = scenario["files"]["tensors.csv"].split()
        for part in (rows[:len(rows) // 2], rows[len(rows) // 2:], rows[1:], rows[:-1]):
            if part and len(part) < len(rows):
                yield changed(lambda other, part=part: other["files"].__setitem__(
                    "tensors.csv", "\n".join([head] + part) + "\n"))
    elif tables["model"]["layers"] > 1:
        yield changed(assign("model", "layers", tables["model"]["layers"] - 1))
    yield changed(lambda other: (other["tables"].__setitem__(
        "data", {"samples": 2 * ranks, "lengths": {"constant": 8}, "sampler": {"shuffle": False}}),
        other["files"].pop("lengths.txt", None))) if tables["data"]["lengths"] != {"constant": 8} else scenario


def command_line(program, path, expected):
    """What `stepsim run` says of the scenario that was written last, where it is not as expected."""
    made = subprocess.run([program, "run", path, "--json", "-", "--quiet"], capture_output=True, text=True)
    try:
        rows = json.loads(made.stdout)["predictions"][0]["steps"]
    except (json.JSONDecodeError, KeyError, IndexError):
        return ["command line: " + made.stderr + made.stdout[:200]]
    return [f"command line: row {i}, step_ms {row['step_ms']}, oracle {wanted[-1]}"
            for i, (row, wanted) in enumerate(zip(rows, expected["rows"]))
            if not near(row["step_ms"], wanted[-1])]


def kind_of(differences_):
    """What a disagreement is about, without its figures: refusals stay refusals while it shrinks."""
    return differences_[0].split(":")[0]


def shrunk(product, scenario):
    kind = kind_of(disagreement(product, scenario)[0])
    again = True
    while again:
        again = False
        for candidate in smaller(scenario):
            if candidate == scenario:
                continue
            found = disagreement(product, candidate)[0]
            if found and kind_of(found) == kind:
                scenario, again = candidate, True
                break
    return scenario


def report(product, seed, scenario):
    scenario = shrunk(product, scenario)
    found, answer, expected = disagreement(product, scenario)
    print(f"---- seed {seed}, made smaller:")
    print(scenarios.toml_text(scenario["tables"]))
    for name, text in scenario["files"].items():
        print(f"---- {name}\n{text}")
    if scenario["profile"]:
        print("---- profile.json\n" + json.dumps(scenario["profile"]))
    print("---- oracle\n" + json.dumps(expected))
    for name, part in answer.items():
        print(f"---- {name}\n{json.dumps(part)}")
    print("---- " + "\n     ".join(found[:20]), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("answers")
    parser.add_argument("stepsim")
    parser.add_argument("--scenarios", type=int, default=1500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--fsdp2", action="store_true", help="scenarios of FSDP2 in place of DDP's")
    parser.add_argument("--most-failures", type=int, default=1, help="disagreements to report before the end")
    options = parser.parse_args()
    failed, done, halfway, seen, began = 0, 0, 0, collections.Counter(), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="differential-") as folder:
        product = Product(options.answers, pathlib.Path(folder))
        for seed in range(options.seed, options.seed + options.scenarios):
            scenario = (scenarios.random_sharded if options.fsdp2 else scenarios.random_scenario)(seed)
            done += 1
            tables = scenario["tables"]
            seen["times" if "times" in tables else "profile"] += 1
            seen[tables["policy"][0]["kind"]] += 1
            seen["accumulation"] += "accumulation_steps" in tables["ddp"]
            found, _, expected = disagreement(product, scenario)
            halfway += oracle.halfway
            if not found and seed % COMMAND_LINE_EVERY == 0:
                for line in command_line(options.stepsim, product.folder / "scenario.toml", expected):
                    print(f"seed {seed}: {line}")
                    found = True
                failed += bool(found)
                found = []
            if found:
                failed += 1
                report(product, seed, scenario)
                if failed >= options.most_failures:
                    break
        product.process.stdin.close()
        product.process.wait()
    print(f"{time.monotonic() - began:.0f} s; {dict(seen)}")
    print(f"{halfway} have a time halfway between two nanoseconds: compared to a microsecond")
    failed += halfway > 5 + done // 10  # Such times are rare; many would hide a fault.
    print(f"{done - failed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
