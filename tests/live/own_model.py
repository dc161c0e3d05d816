#!/usr/bin/env python3
"""Calibrates models with stepsim_calibrate.py and predicts their policies before they run.

    nohup /usr/bin/python3 tests/live/own_model.py --build build > own_model.log 2>&1 &
    nohup VENV/bin/python tests/live/own_model.py --set today --build build > today.log 2>&1 &

The set `own` has four models with four policies, for any PyTorch; `today` has six models of
transformers with six policies on two data sets each. For each: profiles by stepsim_measure.py (where the family is known), of one
recorded policy, and by stepsim_calibrate.py; then the predictions of all policies with each; then
the policies trained live, by turns in blocks of 4 steps of one process, on 2 ranks over gloo. A
model that is done is not run again: remove its folder to do so. Writes tests/live/OWN_MODEL.md or
TODAYS_MODELS.md.
"""

import argparse
import dataclasses
import datetime
import json
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
LIVE = ROOT / "tests" / "live"
TORCH = ROOT / "calibrate" / "torch"
sys.path[:0] = [str(LIVE), str(TORCH)]

import campaign  # noqa: E402
import naive  # noqa: E402
import network  # noqa: E402
import ranks  # noqa: E402
import results  # noqa: E402

CALIBRATE = TORCH / "stepsim_calibrate.py"
RECORDED = "bucketed"  # Its batches differ most.
BLOCK = 4
STEPS = 24  # Of each scenario.
LIMIT_S = 900
# Memory stays with the process: else some batches take half as long again, always the same ones.
ALLOCATOR = {"MALLOC_TRIM_THRESHOLD_": "4000000000", "MALLOC_MMAP_THRESHOLD_": "4000000000"}


@dataclasses.dataclass(frozen=True)
class Job:
    """A model of tests/live/own, a scenario and, in place of its lengths, others.

    preset: keys with which Stepsim itself knows the model.
    """

    source: str
    scenario: str
    lengths: str | None = None
    preset: str | None = None


def preset(kind, layers, vocab, **more):
    keys = {"kind": f'"{kind}"', "layers": layers, "hidden": 128, "heads": 4, "vocab": vocab}
    keys |= {"max_length": 256, "ffn": 512, **more}
    return "\n".join(f"{key} = {value}" for key, value in keys.items())


TEXTS = {
    "chat": f'{{ histogram = "{ROOT}/scenarios/lengths/hh_rlhf_harmless_test_chosen.json", seed = 1, cap = 160 }}',
    "maths": f'{{ histogram = "{ROOT}/scenarios/lengths/gsm8k_train_qa.json", seed = 1, cap = 160 }}',
}
IMAGES = {
    "thumbnails": f'{{ file = "{LIVE}/scenarios/own_images.txt" }}',
    "photos": f'{{ file = "{LIVE}/scenarios/today_photos.txt" }}',
}
TODAYS = {
    "hf_bert": (TEXTS, None),  # No kind of Stepsim's own has a head for masked words.
    "hf_gpt2": (TEXTS, preset("gpt2", 3, 4096)),
    "hf_llama": (TEXTS, preset("llama", 3, 4096, ffn=384, kv_heads=2)),
    "hf_t5": (TEXTS, None),
    "hf_resnet": (IMAGES, None),
    "hf_wav2vec2": (TEXTS, None),
}
SETS = {
    "own": {
        "distilbert": Job("distilbert", "own_model.toml", preset=preset("distilbert", 4, 8192, classes=16)),
        "gpt2": Job("gpt2", "own_model.toml", preset=preset("gpt2", 2, 4096)),
        "images": Job("images", "own_images.toml"),
        "encoder_decoder": Job("encoder_decoder", "own_model.toml"),
    },
    "today": {
        f"{source}_{data}": Job(source, "today.toml", lengths, keys)
        for source, (sets, keys) in TODAYS.items()
        for data, lengths in sets.items()
    },
}
REPORTS = {"own": "OWN_MODEL.md", "today": "TODAYS_MODELS.md"}
SOURCES = {
    "own": "stepsim_calibrate.py",
    "recorded": f"one recorded policy ({RECORDED})",
    "measured": "stepsim_measure.py",
}


def stamp(path):
    moment = datetime.datetime.fromtimestamp(path.stat().st_mtime, datetime.timezone.utc)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def torch_version():
    """What scenarios call the version of PyTorch that runs: the first bucket changed in 2.11."""
    import torch

    version = tuple(int(part) for part in torch.__version__.split(".")[:2])
    return "1.13" if version < (2, 0) else "2.4" if version < (2, 11) else "newest"


class Trial:
    """One job of a set."""

    def __init__(self, name, options):
        self.name, self.options = name, options
        self.job = SETS[options.set][name]
        self.folder = pathlib.Path(options.work).resolve() / name
        self.source = LIVE / "own" / f"{self.job.source}.py"
        self.tools = pathlib.Path(options.build).resolve()
        self.naive_ms = {}  # By policy, from the three-term fit to the recorded one.

    def tool(self, program, *arguments, statuses=(0,)):
        command = [str(self.tools / program), *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        self.log(" ".join(command), done)
        if done.returncode not in statuses:
            raise RuntimeError(f"{' '.join(command)}: {done.stderr or done.stdout}")

    def scenario(self, source):
        """Writes the scenario with the profile of a source, and returns its path."""
        text = (LIVE / "scenarios" / self.job.scenario).read_text(encoding="utf-8")
        profile = self.folder / f"{source}.json"
        if source != "measured" or profile.exists():  # What is measured is planned before.
            text = text.replace("ranks = 2\n", f'ranks = 2\nprofile = "{profile}"\n')
        text = text.replace("../../../scenarios", str(ROOT / "scenarios"))
        text = text.replace("own_images.txt", str(LIVE / "scenarios" / "own_images.txt"))
        text = re.sub('^torch = .*', f'torch = "{torch_version()}"', text, flags=re.MULTILINE)
        if self.job.lengths is not None:
            text = re.sub("^lengths = .*", f"lengths = {self.job.lengths}", text, flags=re.MULTILINE)
        if source == "measured":
            text = text.replace('kind = "recorded"', self.job.preset)
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

    def train(self, out, plans, seconds, *, warm_up, passes):
        """Trains the plans by turns. Returns the records, in the order of the plans. `warm_up`: steps
        of each plan that come before and are not recorded; `passes`: at most so many."""
        folder = self.folder / out
        options = ["--out-dir", folder, "--model", self.source, "--device", "cpu", "--block", BLOCK]
        options += ["--warm-up", warm_up, "--repeats", passes, "--seconds", seconds]
        self.launch(TORCH / "stepsim_live.py", [*plans, *options], f"{out}.log")
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
        records = self.train("recorded", [plan], self.options.seconds, warm_up=3, passes=60)
        took = time.monotonic() - begun
        header, rows = campaign.read_lines(records[0])
        fitted = naive.fit(rows, header["warmup_steps"])
        for one in plans:
            plan_header, plan_rows = campaign.read_lines(one)
            self.naive_ms[plan_header["policy"]] = naive.predict_ms(
                fitted, plan_rows, plan_header["warmup_steps"]
            )
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
        if self.job.preset is not None:
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
        # All shapes are met before: the first meeting is not what is predicted.
        records = self.train("live", plans, self.options.live_seconds, warm_up=STEPS, passes=12)
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
            "naive_ms": self.naive_ms,
            "drift": self.drift(),
            "other_load": [
                campaign.other_load(begun, calibrated),
                campaign.other_load(calibrated, campaign.processor_s()),
            ],
            "validations": {source: self.validate(source, records) for source in took},
        }
        (self.folder / "result.json").write_text(json.dumps(result, indent=1), encoding="utf-8")

    def drift(self):
        """Returns how much longer the recorded policy's steps took in the live run, as a fraction."""
        header, before = campaign.read_lines(self.folder / "recorded" / f"{RECORDED}.jsonl")
        after = campaign.read_lines(self.folder / "live" / f"{RECORDED}.jsonl")[1]
        return naive.drift(before, after, header["warmup_steps"])

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


def naive_errors(result):
    """[policy] The error of the three-term fit."""
    measured = {policy: row["measured_ms"]["mean"] for policy, row in errors_of(result)["own"].items()}
    return {policy: ms / measured[policy] - 1 for policy, ms in result["naive_ms"].items()}


def model_text(name, result):
    errors = errors_of(result)
    policies = list(errors["own"])
    lines = [
        f"## {name}",
        "",
        f"Predictions on disk {result['predicted_at']}, live run began {result['live_at']}; "
        f"{result['passes']} passes. Other work kept {result['other_load'][0]:.2f} processors busy "
        f"while it was calibrated and {result['other_load'][1]:.2f} in the live run. The recorded "
        f"policy's steps took {1 + result['drift']:.3f} times as long in the live run.",
        "",
    ]
    head = ["profile by", "took", *policies, "mean error", "in interval", "tau", "regret"]
    rows = []
    for source in SOURCES:
        if source not in errors:
            continue
        found, validation = errors[source], result["validations"][source]
        sizes = [abs(row["error"]["mean"]) for row in found.values()]
        inside = sum(row["in_interval"] for row in found.values())
        rows.append(
            [SOURCES[source], f"{result['took'][source]:.0f} s"]
            + [results.signed(found[policy]["error"]["mean"]) for policy in policies]
            + [f"{100 * statistics.fmean(sizes):.1f} %", f"{inside} of {len(sizes)}"]
            + [f"{validation['kendall_tau']:.2f}", f"{100 * validation['regret']:.1f} %"]
        )
    fitted = naive_errors(result)
    mean = 100 * statistics.fmean(map(abs, fitted.values()))
    cells = [results.signed(fitted[policy]) for policy in policies]
    rows.append(["three-term fit", "", *cells, f"{mean:.1f} %", "", "", ""])
    own = errors["own"]
    measured = [f"{own[policy]['measured_ms']['mean']:.2f} ms" for policy in policies]
    repeats = [f"{100 * own[policy]['repeatability']:.1f} %" for policy in policies]
    rows.append(["measured", "", *measured, "", "", "", ""])
    rows.append(["passes differ by", "", *repeats, "", "", "", ""])
    refused = [f"{SOURCES[source]}: {why}" for source, why in result["refused"].items()]
    return [*lines, *results.table(head, rows), "", *refused, *[""] * len(refused)]


def summary(found):
    """The lines of a table with a row for each way to calibrate."""
    head = ["profile by", "predictions", "mean error", "median", "worst", "without drift", "in interval", "tau"]
    head += ["regret, mean and worst"]
    rows = []
    for source, told in SOURCES.items():
        having = [result for result in found.values() if source in result["validations"]]
        cells = [row for result in having for row in errors_of(result)[source].values()]
        if not cells:
            continue
        validations = [result["validations"][source] for result in having]
        errors = [[row["error"]["mean"] for row in errors_of(one)[source].values()] for one in having]
        rows.append(
            [told, *spread([row["error"]["mean"] for row in cells])]
            + [without_drift(having, errors)]
            + [f"{sum(row['in_interval'] for row in cells)} of {len(cells)}"]
            + [f"{statistics.fmean(one['kendall_tau'] for one in validations):.2f}"]
            + [" and ".join(f"{100 * value:.1f} %" for value in mean_and_worst(one["regret"] for one in validations))]
        )
    errors = [list(naive_errors(result).values()) for result in found.values()]
    rows.append(["three-term fit", *spread(sum(errors, [])), without_drift(found.values(), errors), "", "", ""])
    return results.table(head, rows)


def without_drift(found, errors):
    """The mean error if the machine had been as fast in the live run as before. `errors`: of each result."""
    pairs = [(result["drift"], error) for result, some in zip(found, errors) for error in some]
    return f"{100 * statistics.fmean(abs((1 + error) * (1 + drift) - 1) for drift, error in pairs):.1f} %"


def mean_and_worst(values):
    values = list(values)
    return statistics.fmean(values), max(values)


def spread(errors):
    """How many, and the mean, median and largest size, as texts."""
    sizes = [abs(error) for error in errors]
    figures = (statistics.fmean(sizes), statistics.median(sizes), max(sizes))
    return [str(len(sizes)), *(f"{100 * figure:.1f} %" for figure in figures)]


def report(found):
    days = sorted({result["live_at"][:10] for result in found.values()})
    lines = [
        "# Models calibrated in the user's own PyTorch",
        "",
        "Written by `tests/live/own_model.py`. Errors of predicted mean steps, predicted before",
        "the policies ran: with a profile by `stepsim_calibrate.py`, by `import run-record`",
        "from one recorded policy, and by `stepsim_measure.py` where the family is known; beside",
        "them a fit of a + b tokens + c tokens x length to the recorded policy. The profiles",
        "were made first; then, with all shapes met, all policies trained live, by turns in",
        "blocks of 4 steps of one process, 2 ranks over gloo. Models: `tests/live/own`. `without",
        "drift`: if the recorded policy's steps had taken as long in the live run as before.",
        "",
        f"Machine: {results.machine()}. {' and '.join(days)} (UTC).",
        "",
        *summary(found),
        "",
    ]
    for name, result in found.items():
        lines += model_text(name, result)
    return "\n".join(lines).rstrip() + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--set", default="own", choices=SETS, help="which jobs")
    parser.add_argument("--build", default="build", help="folder of a build")
    parser.add_argument("--work", help="folder for records; default: own_model in the build")
    parser.add_argument("--out", help="report to write; default: that of the set")
    parser.add_argument("--models", help="which of the set, by commas; default: all")
    parser.add_argument("--seconds", type=int, default=60, help="of each calibration")
    parser.add_argument("--live-seconds", type=int, default=60, help="of each live run")
    options = parser.parse_args()
    options.work = options.work or os.path.join(options.build, "own_model")
    options.out = options.out or str(LIVE / REPORTS[options.set])
    found, failed = {}, []
    for name in options.models.split(",") if options.models else SETS[options.set]:
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
