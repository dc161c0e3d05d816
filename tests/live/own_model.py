#!/usr/bin/env python3
"""Calibrates four models with stepsim_calibrate.py and predicts their policies before they run.

    nohup /usr/bin/python3 tests/live/own_model.py --build build > own_model.log 2>&1 &

For each model of tests/live/own: profiles by stepsim_measure.py (where the family is known), of one
recorded policy, and by stepsim_calibrate.py; then the predictions of all policies with each; then
the policies trained live, by turns in blocks of 4 steps of one process, on 2 ranks over gloo. A
model that is done is not run again: remove its folder to do so. Writes tests/live/OWN_MODEL.md.
"""

import argparse
import datetime
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
LIVE = ROOT / "tests" / "live"
TORCH = ROOT / "calibrate" / "torch"
sys.path[:0] = [str(LIVE), str(TORCH)]

import campaign  # noqa: E402
import network  # noqa: E402
import ranks  # noqa: E402
import results  # noqa: E402

CALIBRATE = TORCH / "stepsim_calibrate.py"
RECORDED = "bucketed"  # Its batches differ most.
BLOCK = 4
LIMIT_S = 900
# Memory stays with the process: else some batches take half as long again, always the same ones.
ALLOCATOR = {"MALLOC_TRIM_THRESHOLD_": "4000000000", "MALLOC_MMAP_THRESHOLD_": "4000000000"}
MODELS = {
    "distilbert": "own_model.toml",
    "gpt2": "own_model.toml",
    "images": "own_images.toml",
    "encoder_decoder": "own_model.toml",
}
# The same two models as Stepsim knows them.
PRESETS = {
    "distilbert": (
        'kind = "distilbert"\nlayers = 4\nhidden = 128\nheads = 4\nffn = 512\nvocab = 8192\n'
        "max_length = 256\nclasses = 16"
    ),
    "gpt2": (
        'kind = "gpt2"\nlayers = 2\nhidden = 128\nheads = 4\nffn = 512\nvocab = 4096\n'
        "max_length = 256"
    ),
}
SOURCES = {
    "own": "stepsim_calibrate.py",
    "recorded": f"one recorded policy ({RECORDED})",
    "measured": "stepsim_measure.py",
}


# ---- one rank -----------------------------------------------------------------------------------


def train(spec_path):
    """Trains the plans of the file by turns in blocks, each with a record of its own."""
    import stepsim_calibrate as own
    import stepsim_recorder

    spec = json.loads(pathlib.Path(spec_path).read_text(encoding="utf-8"))
    module = own.load_module(spec["model"])
    job = own.Job(module.make_model, module.make_batch)
    all_ranks = own.Ranks(own.pick_device("cpu"))
    trainer = own.Trainer(job, all_ranks)
    trainer.wrap()
    plans, recorders = [], []
    for plan in spec["plans"]:
        with open(plan, encoding="utf-8") as lines:
            header = json.loads(next(lines))
            rows = [row for row in map(json.loads, lines) if row["rank"] == all_ranks.rank]
        plans.append(
            [own.Shape(len(row["lengths"]), row["max_length"], row["lengths"]) for row in rows]
        )
        described = {"model": trainer.model, "optimizer": trainer.optimizer}
        recorders.append(
            stepsim_recorder.Recorder(
                pathlib.Path(spec["out"]) / pathlib.Path(plan).stem,
                policy=header["policy"],
                scenario=header["scenario"],
                warmup_steps=header["warmup_steps"],
                bucket_times=False,
                **(described if spec["describe"] else {}),
            )
        )
    steps = len(plans[0])

    def run(shapes, recorder):
        """Batches are made before the steps, as those of a calibration are."""
        batches = [job.batch(shape, all_ranks.device) for shape in shapes]
        if recorder is not None:
            recorder.resume()
        for shape, batch in zip(shapes, batches):
            trainer.step(shape, batch, recorder or own.Silent())

    # DDP rebuilds its buckets after the first step, and in a live run all shapes are known.
    for shapes in plans if spec["warm_up"] else [plans[0][:3]]:
        run(shapes, None)
    deadline = time.monotonic() + spec["seconds"]
    for number in range(spec["passes"]):
        if number >= 2 and all_ranks.any(time.monotonic() > deadline):
            break
        for turn, first in enumerate(range(0, steps, BLOCK)):
            shift = (turn + number) % len(plans)
            for place in [*range(shift, len(plans)), *range(shift)]:
                run(plans[place][first : first + BLOCK], recorders[place])
        for recorder in recorders:
            recorder.next_repeat()
    for recorder in recorders:
        recorder.close()
    own.dist.barrier()  # gloo aborts a rank that ends while another one still talks to it.


# ---- the experiment -----------------------------------------------------------------------------


def stamp(path):
    moment = datetime.datetime.fromtimestamp(path.stat().st_mtime, datetime.timezone.utc)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


class Trial:
    """One model."""

    def __init__(self, name, options):
        self.name, self.options = name, options
        self.folder = pathlib.Path(options.work).resolve() / name
        self.scenario_path = LIVE / "scenarios" / MODELS[name]
        self.source = LIVE / "own" / f"{name}.py"
        self.tools = pathlib.Path(options.build).resolve()

    def tool(self, program, *arguments, statuses=(0,)):
        command = [str(self.tools / program), *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        self.log(" ".join(command), done)
        if done.returncode not in statuses:
            raise RuntimeError(f"{' '.join(command)}: {done.stderr or done.stdout}")

    def scenario(self, source):
        """Writes the scenario with the profile of a source, and returns its path."""
        text = self.scenario_path.read_text(encoding="utf-8")
        text = text.replace("ranks = 2\n", f'ranks = 2\nprofile = "{self.folder}/{source}.json"\n')
        text = text.replace("../../../scenarios", str(ROOT / "scenarios"))
        text = text.replace("own_images.txt", str(LIVE / "scenarios" / "own_images.txt"))
        if source == "measured":
            text = text.replace('kind = "recorded"', PRESETS[self.name])
        path = self.folder / f"scenario_{source}.toml"
        path.write_text(text, encoding="utf-8")
        return path

    def plans(self, source):
        folder = self.folder / f"plans_{source}"
        self.tool("sim/stepsim", "plan", self.scenario(source), "--out-dir", folder, "--quiet")
        return sorted(folder.glob("*.jsonl"))

    def launch(self, program, arguments, log):
        begun = time.monotonic()
        ranks.run(network.Loopback(2), program, arguments, self.folder / log, LIMIT_S)
        return time.monotonic() - begun

    def train(self, out, plans, seconds, describe):
        """Returns the records, in the order of the plans. `describe`: a run to calibrate by; else
        the shapes are met before, by a pass that is not recorded."""
        folder = self.folder / out
        folder.mkdir()
        spec = {
            "model": str(self.source),
            "plans": [str(plan) for plan in plans],
            "out": str(folder),
            "describe": describe,
            "warm_up": not describe,
            "passes": 60 if describe else 12,  # At most.
            "seconds": seconds,
        }
        path = self.folder / f"{out}_spec.json"
        path.write_text(json.dumps(spec), encoding="utf-8")
        self.launch(pathlib.Path(__file__), ["--train", path], f"{out}.log")
        return [folder / plan.name for plan in plans]

    def printed_command(self, log):
        """Runs the command that a log ends with."""
        last = (self.folder / log).read_text(encoding="utf-8").strip().splitlines()[-1]
        if not last.startswith("next: "):
            raise RuntimeError(f"{log} ends with: {last}")
        folders = [str(self.tools / name) for name in ("calibrate", "sim")]
        path = os.pathsep.join([*folders, os.environ["PATH"]])
        command = last[len("next: ") :]
        done = subprocess.run(
            command,
            shell=True,
            check=False,
            capture_output=True,
            text=True,
            env={**os.environ, "PATH": path},
        )
        self.log(command, done)
        if done.returncode != 0:
            raise RuntimeError(f"{command}: {done.stderr}")

    def log(self, command, done):
        with open(self.folder / "tools.log", "a", encoding="utf-8") as log:
            log.write(f"$ {command}\n{done.stdout}{done.stderr}")

    def calibrate_own(self, plans):
        """Returns the seconds that stepsim_calibrate.py took, its start included."""
        shapes, out = self.folder / "shapes.json", self.folder / "own"
        self.tool("calibrate/stepcal", "grid", *plans, "--out", shapes)
        seconds = self.options.seconds
        options = ["--shapes", shapes, "--out", out, "--seconds", seconds, "--device", "cpu"]
        took = self.launch(CALIBRATE, [self.source, *options], "own.log")
        self.printed_command("own.log")
        return took

    def record_one_policy(self, plans):
        (plan,) = [plan for plan in plans if plan.stem == RECORDED]
        begun = time.monotonic()
        records = self.train("recorded", [plan], self.options.seconds, describe=True)
        took = time.monotonic() - begun
        self.tool(
            *("calibrate/stepcal", "import", "run-record", *records),
            *("--profile", self.folder / "recorded.json"),
        )
        return took

    def measure_ops(self):
        """Returns the seconds that stepsim_measure.py took, its start included."""
        shapes, samples = self.folder / "measured_shapes.json", self.folder / "samples.jsonl"
        self.tool("calibrate/stepcal", "grid", *self.plans("measured"), "--out", shapes)
        options = ["--out", samples, "--seconds", self.options.seconds, "--device", "cpu"]
        took = self.launch(TORCH / "stepsim_measure.py", [shapes, *options], "measured.log")
        self.tool("calibrate/stepcal", "fit", samples, "--out", self.folder / "measured.json")
        return took

    def predict(self, source):
        path = self.folder / f"predictions_{source}.json"
        self.tool("sim/stepsim", "compare", self.scenario(source), "--json", path, "--quiet")

    def validate(self, source, records):
        path = self.folder / f"validation_{source}.json"
        self.tool(
            *("sim/stepsim", "validate", self.scenario(source), "--live", *records),
            *("--predictions", self.folder / f"predictions_{source}.json"),
            *("--json", path, "--quiet"),
            statuses=(0, 1),
        )
        return json.loads(path.read_text(encoding="utf-8"))

    def run(self):
        """Runs the experiment and writes result.json."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        took = {}
        begun = campaign.processor_s()
        if self.name in PRESETS:
            self.say("stepsim_measure.py")
            took["measured"] = self.measure_ops()
        plans = self.plans("own")
        self.say(f"recording {RECORDED}")
        took["recorded"] = self.record_one_policy(plans)
        self.say("stepsim_calibrate.py")
        took["own"] = self.calibrate_own(plans)
        refused = {}
        for source in list(took):
            try:
                self.predict(source)
            except RuntimeError as error:
                if source == "own":
                    raise
                refused[source] = str(error).rsplit("error: ", maxsplit=1)[-1].strip()
                del took[source]
        predicted = max(stamp(self.folder / f"predictions_{source}.json") for source in took)
        time.sleep(1)  # Records state their start in whole seconds, which must be later.
        self.say(f"predicted at {predicted}; live")
        calibrated = campaign.processor_s()
        records = self.train("live", plans, self.options.live_seconds, describe=False)
        with open(records[0], encoding="utf-8") as lines:
            live = json.loads(next(lines))
        if predicted >= live["started_at"]:
            raise RuntimeError("the predictions were not on disk before the live run")
        result = {
            "took": took,
            "predicted_at": predicted,
            "live_at": live["started_at"],
            "passes": live["repeats"],
            "refused": refused,
            "other_load": [
                campaign.other_load(begun, calibrated),
                campaign.other_load(calibrated, campaign.processor_s()),
            ],
            "validations": {source: self.validate(source, records) for source in took},
        }
        (self.folder / "result.json").write_text(json.dumps(result, indent=1), encoding="utf-8")

    def say(self, text):
        print(f"[{self.name} {time.strftime('%H:%M:%S')}] {text}", flush=True)

    def result(self):
        """The result of a run that is done, or None."""
        path = self.folder / "result.json"
        return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


# ---- the report ---------------------------------------------------------------------------------


def errors_of(result):
    """Returns {source: {policy: row of the validation}}."""
    return {
        source: {row["policy"]: row for row in validation["policies"]}
        for source, validation in result["validations"].items()
    }


def model_text(name, result):
    errors = errors_of(result)
    policies = list(errors["own"])
    lines = [
        f"## {name}",
        "",
        f"Predictions on disk {result['predicted_at']}, live run began {result['live_at']}; "
        f"{result['passes']} passes. Other work kept {result['other_load'][0]:.2f} processors busy "
        f"while it was calibrated and {result['other_load'][1]:.2f} in the live run.",
        "",
    ]
    head = ["profile by", "took", *policies, "mean error", "in interval", "regret"]
    rows = []
    for source in SOURCES:
        if source not in errors:
            continue
        found = errors[source]
        sizes = [abs(row["error"]["mean"]) for row in found.values()]
        inside = sum(row["in_interval"] for row in found.values())
        rows.append(
            [SOURCES[source], f"{result['took'][source]:.0f} s"]
            + [results.signed(found[policy]["error"]["mean"]) for policy in policies]
            + [f"{100 * sum(sizes) / len(sizes):.1f} %", f"{inside} of {len(sizes)}"]
            + [f"{100 * result['validations'][source]['regret']:.1f} %"]
        )
    own = errors["own"]
    measured = [f"{own[policy]['measured_ms']['mean']:.2f} ms" for policy in policies]
    repeats = [f"{100 * own[policy]['repeatability']:.1f} %" for policy in policies]
    rows.append(["measured", "", *measured, "", "", ""])
    rows.append(["passes differ by", "", *repeats, "", "", ""])
    refused = [f"{SOURCES[source]}: {why}" for source, why in result["refused"].items()]
    return [*lines, *results.table(head, rows), "", *refused, *[""] * len(refused)]


def report(found):
    days = sorted({result["live_at"][:10] for result in found.values()})
    own = [
        abs(row["error"]["mean"])
        for result in found.values()
        for row in errors_of(result)["own"].values()
    ]
    lines = [
        "# Models calibrated in the user's own PyTorch",
        "",
        "Written by `tests/live/own_model.py`. Errors of predicted mean steps, predicted before",
        "the policies ran: with a profile by `stepsim_calibrate.py`, by `import run-record`",
        "from one recorded policy, and by `stepsim_measure.py` where the family is known. The last row",
        "of these was measured first; then, with all shapes met, all policies trained live, by",
        "turns in blocks of 4 steps of one process, 2 ranks over gloo. Models: `tests/live/own`.",
        "",
        f"Machine: {results.machine()}. {' and '.join(days)} (UTC).",
        "",
        f"Mean error of {len(own)} predictions by stepsim_calibrate.py: "
        f"{100 * sum(own) / len(own):.1f} %, worst {100 * max(own):.1f} %.",
        "",
    ]
    for name, result in found.items():
        lines += model_text(name, result)
    return "\n".join(lines).rstrip() + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--build", default="build", help="folder of a build")
    parser.add_argument("--work", help="folder for records; default: own_model in the build")
    parser.add_argument("--out", default=str(LIVE / "OWN_MODEL.md"), help="report to write")
    parser.add_argument("--models", default=",".join(MODELS), help="which, by commas")
    parser.add_argument("--seconds", type=int, default=60, help="of each calibration")
    parser.add_argument("--live-seconds", type=int, default=60, help="of each live run")
    parser.add_argument("--train", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.train:
        train(options.train)
        return
    options.work = options.work or os.path.join(options.build, "own_model")
    found, failed = {}, []
    for name in options.models.split(","):
        trial = Trial(name, options)
        try:
            if trial.result() is None:
                trial.run()
        except RuntimeError as error:
            trial.say(f"failed: {error}")
            failed.append(name)
            continue
        found[name] = trial.result()
        pathlib.Path(options.out).write_text(report(found), encoding="utf-8")
    if found:
        print(pathlib.Path(options.out).read_text(encoding="utf-8"))
    if failed:
        sys.exit(f"failed: {', '.join(failed)}; run it again for these")


if __name__ == "__main__":
    os.environ.update(ALLOCATOR)
    main()
