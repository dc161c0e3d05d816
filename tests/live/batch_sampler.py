#!/usr/bin/env python3
"""Proves stepsim.torch.BatchSampler in real PyTorch DDP trainings on 2 ranks over gloo.

    PYTHONPATH=build/sim/python /usr/bin/python3 tests/live/batch_sampler.py --build build

Parts, each of which can be named to run it alone: `kinds`, an epoch by every kind of policy;
`kills`, 200 trainings killed at random steps; `planning`, a million lengths through Python and in
C++ alone, and what a loop waits for plans; `throughput`, useful tokens/s of four ways to batch,
predicted before they are measured, one more round each time. Results are kept in --work; `report`
writes tests/live/BATCH_SAMPLER.md.
"""

import argparse
import datetime
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIVE = ROOT / "tests" / "live"
sys.path.insert(0, str(LIVE))

import campaign  # noqa: E402
import network  # noqa: E402
import ranks  # noqa: E402
import results  # noqa: E402

import stepsim  # noqa: E402
from stepsim import _core  # noqa: E402
from stepsim.torch import BatchSampler  # noqa: E402

LIMIT_S = 480
# Memory stays with the process: else some batches take half as long again, always the same ones.
ALLOCATOR = {"MALLOC_TRIM_THRESHOLD_": "4000000000", "MALLOC_MMAP_THRESHOLD_": "4000000000"}
PARTS = ("kinds", "kills", "planning", "throughput", "report")

PLANNED = [
    ("fixed", {"batch_size": 64}),
    ("token_budget", {"max_tokens": 16384}),
    ("hf_group_by_length", {"batch_size": 64}),
    ("planner", {"batch_size": 64}),
    ("batch_rebalance", {"batch_size": 64}),
]
MILLION = 1_000_000
PLANNING_ROUNDS = 11
WAIT_EPOCHS = 6

MODEL = {"family": "token_classifier", "layers": 2, "hidden": 64, "heads": 4, "ffn": 128,
         "vocab": 8192, "max_length": 512, "classes": 16}
RUNS = [
    {"name": "DataLoader's default", "kind": "default", "parameters": {"batch_size": 16}},
    {"name": "group by length", "kind": "hf_group_by_length", "parameters": {"batch_size": 16}},
    {"name": "token budget", "kind": "token_budget", "parameters": {"max_tokens": 2688}},
    {"name": "planner", "kind": "planner", "parameters": {"batch_size": 16},
     "weighting": "sample"},
]
RECORDED = {"name": "bucketed", "kind": "bucketed", "parameters": {"batch_size": 16}}
RECORDED_STEPS = 50
PASSES = 7
BLOCK = 4


def launch(part, spec, work):
    path = work / f"{part}_spec.json"
    path.write_text(json.dumps(spec), encoding="utf-8")
    ranks.run(network.Loopback(2), LIVE / "sampler_ranks.py", [part, path], work / f"{part}.log",
              LIMIT_S)


def now():
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def save(work, name, result):
    (work / f"{name}.json").write_text(json.dumps(result, indent=1), encoding="utf-8")


def load(work, name):
    path = work / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


# ---- the parts ----------------------------------------------------------------------------------


def kinds(work, _options):
    out = work / "kinds_rows.json"
    launch("kinds", {"out": str(out), "samples": 400}, work)
    save(work, "kinds", {"at": now(), "rows": json.loads(out.read_text(encoding="utf-8"))})


def kills(work, options):
    command = [sys.executable, str(LIVE / "sampler_kills.py"), "--trials", str(options.trials),
               "--seed", str(options.seed)]
    # Loader workers of killed ranks complain.
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                          env={**os.environ, **ranks.ONE_THREAD}, check=False)
    save(work, "kills", {"at": now(), "seed": options.seed, **json.loads(done.stdout)})


def document(kind, parameters):
    """A scenario as BatchSampler makes it for such a policy."""
    return {
        "scenario": {"name": "planning", "steps": 1},
        "cluster": {"ranks": 2},
        "model": {"kind": "blocks", "layers": 1, "block_elements": 1},
        "data": {"samples": 2, "lengths": {"constant": 1},
                 "sampler": {"kind": "distributed", "shuffle": True, "seed": 0}},
        "policy": [{"name": kind, "kind": kind, **parameters}],
    }


def alone(work, options, kind, parameters, lengths):
    """A process that plans in C++ alone: ask it with a number of an epoch."""
    scenario = work / f"planning_{kind}.toml"
    scenario.write_text(stepsim.Scenario(document(kind, parameters)).text, encoding="utf-8")
    program = pathlib.Path(options.build) / "tests" / "live" / "plan_epochs"
    return subprocess.Popen([program, scenario, kind, lengths, "2"], stdin=subprocess.PIPE,
                            stdout=subprocess.PIPE, text=True, bufsize=1)


def planning(work, options):
    lengths = np.random.default_rng(5).integers(1, 513, MILLION)
    file = work / "lengths.int64"
    lengths.tofile(file)
    rows = []
    for kind, parameters in PLANNED:
        sampler = BatchSampler(lengths, kind, rank=0, world_size=2, **parameters)
        steps = len(sampler)
        process = alone(work, options, kind, parameters, file)
        python, cpp = [], []
        for epoch in range(1, PLANNING_ROUNDS + 1):
            begun = time.perf_counter()
            sampler.set_epoch(epoch)
            steps = len(sampler)
            python.append(time.perf_counter() - begun)
            process.stdin.write(f"{epoch}\n")
            seconds, own_steps = process.stdout.readline().split()
            assert int(own_steps) == steps, (own_steps, steps)
            cpp.append(float(seconds))
        process.stdin.close()
        process.wait()
        rows.append({"kind": kind, "steps": steps, "python_s": python, "cpp_s": cpp})
    waits = []
    for kind, parameters in (("token_budget", {"max_tokens": 1 << 20}),
                             ("planner", {"batch_size": 4096})):
        out = work / "waits_rows.json"
        launch("waits", {"out": str(out), "samples": MILLION, "kind": kind, "step_s": 0.015,
                         "parameters": parameters, "epochs": WAIT_EPOCHS}, work)
        waits.append({"kind": kind, "epochs": json.loads(out.read_text(encoding="utf-8"))})
    save(work, "planning", {"at": now(), "rows": rows, "waits": waits})


def throughput(work, options):
    """One round: record, profile, predict, measure."""
    number = len(list(work.glob("throughput_*.json")))
    folder = work / f"throughput{number}"
    folder.mkdir(exist_ok=True)
    begun = campaign.processor_s()
    scenario = _core.Scenario(_core.scenario_path("planner_2ranks"), None, [])
    lengths = _core.data_lengths(scenario, "fixed")
    file = folder / "lengths.txt"
    file.write_text("\n".join(map(str, lengths.tolist())) + "\n", encoding="ascii")
    spec = {"model": MODEL, "lengths": str(file)}
    launch("record", {**spec, "run": RECORDED, "steps": RECORDED_STEPS,
                      "record": str(folder / "recorded")}, folder)
    profile = stepsim.Profile.from_run_record(folder / "recorded.jsonl", folder / "profile.json")
    runs = [dict(run, profile=profile.file) if run["kind"] == "planner" else dict(run)
            for run in RUNS]
    predictions = [predict(run, profile, lengths, file) for run in runs]
    predicted_at = now()
    save(folder, "predictions", {"at": predicted_at, "rows": predictions})
    time.sleep(1)
    live_at = now()
    middle = campaign.processor_s()
    out = folder / "passes.json"
    launch("live", {**spec, "runs": runs, "passes": PASSES, "block": BLOCK, "out": str(out)},
           folder)
    save(work, f"throughput_{number}", {
        "predicted_at": predicted_at, "live_at": live_at, "predictions": predictions,
        "passes": json.loads(out.read_text(encoding="utf-8")),
        "other_load": [campaign.other_load(begun, middle),
                       campaign.other_load(middle, campaign.processor_s())],
    })


def predict(run, profile, lengths, file):
    """Predicts an epoch of a run. Returns useful tokens/s with its interval, and what planned."""
    kind = "fixed" if run["kind"] == "default" else run["kind"]
    table = {"name": run["name"], "kind": kind, **run["parameters"]}
    if run.get("weighting"):
        table["weighting"] = run["weighting"]
    sampler = BatchSampler(lengths, kind, profile=profile, rank=0, world_size=2, seed=1,
                           weighting=run.get("weighting"), **run["parameters"])
    scenario = stepsim.Scenario({
        "scenario": {"name": "batch_sampler", "seed": 1, "steps": len(sampler)},
        "cluster": {"ranks": 2, "profile": profile.file, "communicator": "gloo"},
        "model": {"kind": "recorded"},
        "ddp": {"bucket_cap": "25 MiB"},
        "data": {"lengths": {"file": os.fspath(file)},
                 "sampler": {"kind": "distributed", "seed": 1}},
        "policy": [table],
    })
    summary = json.loads(scenario.compare(progress=False).to_json())["predictions"][0]["summary"]
    step = summary["step_time_ms"]
    tokens = summary["useful_tokens_per_s"]
    return {"name": run["name"], "steps": len(sampler), "plans_by": sampler.plans_by,
            "step_ms": step["mean"], "tokens_per_s": tokens,
            "interval90": [tokens * step["mean"] / step["interval90"][1],
                           tokens * step["mean"] / step["interval90"][0]]}


# ---- the report ---------------------------------------------------------------------------------


def kinds_text(found):
    rows = found["rows"]
    wrong = [row for row in rows if len({*row["steps"], *row["planned"]}) > 1]
    kinds_seen = {row["kind"] for row in rows}
    return [
        "## An epoch by every kind of policy",
        "",
        f"{found['at']}. `batch_sampler.py kinds`: {len(rows)} policies of {len(kinds_seen)} "
        "kinds, 400 samples, DDP with a backward in every step. Every rank did the number of steps "
        f"that len() said, and no rank ended before the other, in {len(rows) - len(wrong)} of "
        f"{len(rows)}; every batch held the tokens that its Step says.",
        *[f"Unequal: {row['kind']} {row['parameters']}: {row['steps']}" for row in wrong],
        "",
    ]


def kills_text(found):
    lines = ["## Kills", ""]
    if "failed" in found:
        return [*lines, f"FAILED in trial {found['trial']}: {found['failed']}", ""]
    return [
        *lines,
        f"{found['at']}. `batch_sampler.py kills --trials {found['trials']} --seed "
        f"{found['seed']}`: {found['trials']} trainings of one epoch of 240 samples were killed "
        f"{found['kills']} times with SIGKILL at random steps and went on from the last saved "
        f"state, {found['on_other_ranks']} of them on other numbers of ranks (1 to 4), "
        "a third with loader workers; "
        f"{found['seconds'] / found['trials']:.2f} s each. In the end all had visited the samples "
        "as the rule says: on the same ranks exactly the batches of an epoch without a kill; on "
        "other ranks every sample, none again that a run on other ranks had visited, `fixed` "
        "each exactly once, and of policies that cut whole samples of which parts were left.",
        "",
    ]


def spread(values):
    """Half of what lies between the quartiles, as a share of the median."""
    low, _, high = statistics.quantiles(values, n=4)
    return (high - low) / 2 / statistics.median(values)


def planning_text(found):
    rows = []
    for row in found["rows"]:
        python, cpp = map(statistics.median, (row["python_s"], row["cpp_s"]))
        rows.append([row["kind"], f"{row['steps']}", f"{cpp * 1e3:.0f} ms",
                     f"{python * 1e3:.0f} ms", f"{python / cpp:.3f}",
                     f"{100 * spread(row['cpp_s']):.1f} %",
                     f"{100 * spread(row['python_s']):.1f} %"])
    lines = [
        "## Planning a million lengths",
        "",
        f"{found['at']}. `batch_sampler.py planning`: lengths of 1 to 512 tokens, 2 ranks; medians "
        f"of {PLANNING_ROUNDS} epochs, by turns. C++ alone: `plan_epochs`, the planner and the "
        "list of rank 0's batches, made and freed. Through Python: `set_epoch()` and `len()`, with "
        "thread and arrays, and the epoch before freed. Spread: half of what lies between the "
        "quartiles.",
        "",
        *results.table(["policy", "steps", "C++ alone", "through Python", "ratio", "spread, C++",
                        "spread, Python"], rows),
        "",
        "What the loop of two ranks waited for plans, the longer of the ranks:",
        "",
    ]
    rows = []
    for wait in found["waits"]:
        epochs = wait["epochs"]
        later = [one["waited_s"] for one in epochs[1:]]
        rows.append([wait["kind"], f"{epochs[0]['steps']} steps, "
                     f"{statistics.median(one['seconds'] for one in epochs):.1f} s",
                     f"{epochs[0]['waited_s'] * 1e3:.0f} ms",
                     ", ".join(f"{one * 1e3:.1f}" for one in later) + " ms",
                     f"{statistics.fmean(later) * 1e3:.2f} ms"])
    head = ["policy", "an epoch", "first epoch waited", "the others", "their mean"]
    return [*lines, *results.table(head, rows), ""]


def pass_rates(found, name):
    """[pass] Useful tokens/s."""
    return [one[name]["useful_tokens"] / one[name]["seconds"] for one in found["passes"]]


def throughput_text(found):
    lines = [
        "## Useful tokens/s, predicted and measured",
        "",
        f"`batch_sampler.py throughput`, {len(found)} rounds. Dialogues of 14 to 512 tokens "
        "(hh-rlhf, 2304 samples), a classifier of 2 layers x 64, real loaders. Each round records "
        f"{RECORDED_STEPS} steps of `bucketed`, makes a profile of them, predicts, and then trains "
        f"all four by turns in blocks of {BLOCK} steps of one process, an epoch a pass, {PASSES} "
        "passes after one that is not counted. `planner` plans by the recorded profile. Passes "
        "differ by: standard deviation of a pass. Over the default: the ratio to DataLoader's "
        "default of the same pass, which other work slows as much, with its standard deviation.",
        "",
    ]
    for number, one in enumerate(found):
        load = one["other_load"]
        lines += [
            f"Round {number + 1}: predictions on disk {one['predicted_at']}, live from "
            f"{one['live_at']}. Other work kept {load[0]:.2f} processors busy while it was "
            f"recorded and {load[1]:.2f} in the live run.",
            "",
        ]
        rows = []
        measured = {}
        default = pass_rates(one, one["predictions"][0]["name"])
        for row in one["predictions"]:
            rates = pass_rates(one, row["name"])
            rate = statistics.fmean(rates)
            ratios = [own / other for own, other in zip(rates, default)]
            predicted_ratio = row["tokens_per_s"] / one["predictions"][0]["tokens_per_s"]
            measured[row["name"]] = rate
            low, high = row["interval90"]
            rows.append([
                row["name"], str(row["plans_by"] or ""), f"{row['steps']}",
                f"{row['tokens_per_s']:.0f}", f"{low:.0f} to {high:.0f}", f"{rate:.0f}",
                results.signed(row["tokens_per_s"] / rate - 1),
                "yes" if low <= rate <= high else "no",
                f"{100 * statistics.stdev(rates) / rate:.1f} %",
                f"{predicted_ratio:.2f}",
                f"{statistics.fmean(ratios):.2f} ± {statistics.stdev(ratios):.2f}",
            ])
        head = ["batches by", "plans by", "steps", "predicted", "90 % interval", "measured",
                "error", "in it", "passes differ by", "over the default, predicted", "measured"]
        lines += results.table(head, rows)
        by_prediction = sorted(one["predictions"], key=lambda row: -row["tokens_per_s"])
        lines += [
            "",
            "Fastest first, predicted: " + ", ".join(row["name"] for row in by_prediction)
            + "; measured: " + ", ".join(sorted(measured, key=lambda name: -measured[name])) + ".",
            "",
        ]
    return lines


def report(work, _options):
    lines = ["# BatchSampler in real trainings", "",
             "Written by `tests/live/batch_sampler.py`, 2 ranks over gloo on one machine, which "
             "other work shared.", "", f"Machine: {results.machine()}.", ""]
    for name, text in (("kinds", kinds_text), ("kills", kills_text), ("planning", planning_text)):
        found = load(work, name)
        lines += text(found) if found else []
    rounds = [json.loads(path.read_text(encoding="utf-8"))
              for path in sorted(work.glob("throughput_*.json"))]
    if rounds:
        lines += throughput_text(rounds)
    (LIVE / "BATCH_SAMPLER.md").write_text("\n".join(lines), encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("parts", nargs="*", default=PARTS, help=", ".join(PARTS))
    parser.add_argument("--build", default="build", help="folder of a build")
    parser.add_argument("--work", default="build/batch_sampler", help="folder for results")
    parser.add_argument("--trials", type=int, default=200, help="of kills")
    parser.add_argument("--seed", type=int, default=0, help="of kills")
    options = parser.parse_args()
    work = pathlib.Path(options.work).resolve()
    work.mkdir(parents=True, exist_ok=True)
    own = {"kinds": kinds, "kills": kills, "planning": planning, "throughput": throughput,
           "report": report}
    for part in options.parts:
        print(f"[{time.strftime('%H:%M:%S')}] {part}", flush=True)
        own[part](work, options)


if __name__ == "__main__":
    os.environ.update(ALLOCATOR)
    main()
