#!/usr/bin/env python3
"""Records one batching policy under fully_shard, predicts the others from that record, and then trains them.

usage: python3 tests/live/fsdp2_recorded.py --build BUILD --work FOLDER [--out REPORT.md] [--seconds 150]

Two ranks of gloo on this machine's processors train one policy with stepsim_recorder.py. `stepcal import
run-record` makes a profile of that record twice: of it alone, and with a base of gloo's collectives, timed
before. Both predict three policies, under fully_shard as recorded, kept after the forward, and DDP. Then all
of them train by turns in one process group. It needs PyTorch 2.8 or newer, which is that of the python3 it
runs with.
"""

import argparse
import json
import os
import pathlib
import statistics
import sys
import time

LIVE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(LIVE), str(LIVE.parent)]

import campaign  # noqa: E402
import fsdp2_live  # noqa: E402

RECORDED = "fixed"
SHARES = {"collectives": 0.15, "record": 0.2, "live": 0.55}
PARALLELISMS = {  # As fsdp2_rank.py names them, and what the scenario says of them.
    "fsdp2": ["parallel.kind=fsdp2", "parallel.units=layers.*"],
    "fsdp2_keep": ["parallel.kind=fsdp2", "parallel.units=layers.*", "parallel.reshard_after_forward=false"],
    "ddp": [],
}

HEAD = """# Policies predicted from a record of FSDP2, and then trained

Made by `tests/live/fsdp2_recorded.py`: a Llama-style decoder of 4 layers x 192 (39 tensors, 2.4 M parameters) under PyTorch's `fully_shard`, two ranks over gloo on one machine's
processors. One policy (`fixed`) was recorded with `stepsim_recorder.py` while it trained under `fully_shard`. `stepcal import run-record` made a profile of that record alone, and another one with
gloo's collectives as `--base`. Predictions were on disk before the live run began; then all pairs trained by turns in blocks of 4 steps of one process group. A step ends when its last
rank does.
"""


class Trial(fsdp2_live.Trial):
    """As that one, but its profiles come from a record of fully_shard."""

    def __init__(self, options):
        options.worlds = "2"
        super().__init__("2", options)
        self.seconds = {task: part * options.seconds for task, part in SHARES.items()}

    def profiles(self):
        """Returns {name: the profile's file}."""
        self.say("collectives")
        found = self.task(
            "collectives", largest_bytes=fsdp2_live.LARGEST_BYTES, seconds=self.seconds["collectives"]
        )["found"]
        base = self.folder / "base.json"
        base.write_text(json.dumps(fsdp2_live.base_profile(found)), encoding="utf-8")
        self.say(f"recording {RECORDED} under fully_shard")
        done = self.task(
            "record", model=fsdp2_live.MODEL, plan=str(self.folder / "plans" / f"{RECORDED}.jsonl"),
            parallelism="fsdp2", record=str(self.folder / "record"), seconds=self.seconds["record"],
        )["found"]  # fmt: skip
        if done["error"]:
            raise RuntimeError(f"not recorded: {done['error']}")
        files = {}
        for name, more in (("alone", []), ("with base", ["--base", base])):
            files[name] = self.folder / f"profile_{name.replace(' ', '_')}.json"
            record = self.folder / "record.jsonl"
            self.tool("calibrate/stepcal", "import", "run-record", record, *more, "--profile", files[name])
        return files

    def predictions(self, scenario, profile):
        """Returns {"policy parallelism": {"mean", "interval"}}."""
        predicted = {}
        for name, settings in PARALLELISMS.items():
            report = self.folder / f"report_{profile.stem}_{name}.json"
            sets = [word for setting in settings for word in ("--set", setting)]
            self.tool(
                "sim/stepsim", "compare", scenario, "--profile", profile, *sets, "--json", report, "--quiet"
            )
            for one in json.loads(report.read_text(encoding="utf-8"))["predictions"]:
                step = one["summary"]["step_time_ms"]
                interval = step.get("interval90_same_hour", step["interval90"])
                predicted[f"{one['policy']} {name}"] = {"mean": step["mean"], "interval": interval}
        return predicted

    def run(self):
        scenario = self.scenario()
        self.tool("sim/stepsim", "plan", scenario, "--out-dir", self.folder / "plans", "--quiet")
        plans = sorted((self.folder / "plans").glob("*.jsonl"))
        marks = [campaign.processor_s()]
        predicted = {name: self.predictions(scenario, file) for name, file in self.profiles().items()}
        (self.folder / "predictions.json").write_text(json.dumps(predicted, indent=1), encoding="utf-8")
        predicted_at = time.time()
        self.say("predictions are on disk; training")
        marks.append(campaign.processor_s())
        live = self.task(
            "train", model=fsdp2_live.MODEL, plans=list(map(str, plans)), parallelisms=list(PARALLELISMS),
            block=fsdp2_live.BLOCK, passes=fsdp2_live.PASSES, seconds=self.seconds["live"],
        )  # fmt: skip
        marks.append(campaign.processor_s())
        if live["began_at"] <= predicted_at:
            raise RuntimeError("the live run began before the predictions were on disk")
        tokens = dict.fromkeys((plan.stem for plan in plans), 0)
        result = {
            "torch": live["torch"], "predicted_at": predicted_at, "live_at": live["began_at"],
            "other_load": [campaign.other_load(*pair) for pair in zip(marks, marks[1:])],
            "rows": {name: fsdp2_live.compared(one, live["found"], tokens) for name, one in predicted.items()},
        }  # fmt: skip
        (self.folder / "result.json").write_text(json.dumps(result, indent=1), encoding="utf-8")
        return result


def summary(label, rows):
    errors = [row["error"] for row in rows]
    return (f"- {label}: mean error {statistics.fmean(map(abs, errors)):.1%}, worst "
            f"{max(map(abs, errors)):.1%}, bias {statistics.fmean(errors):+.1%}, "
            f"{sum(row['inside'] for row in rows)} of {len(rows)} in the interval.")  # fmt: skip


def text_of(result):
    lines = [
        f"PyTorch {result['torch']}, gloo, one thread a rank. Predictions on disk "
        f"{fsdp2_live.moment(result['predicted_at'])}, live from {fsdp2_live.moment(result['live_at'])}. Other programs "
        f"kept {result['other_load'][0]:.2f} processors busy while it was recorded and {result['other_load'][1]:.2f} in the live run.",
    ]  # fmt: skip
    for name, rows in result["rows"].items():
        lines += [
            "",
            f"## The record {name}",
            "",
            *fsdp2_live.table_of(rows),
        ]
        own = [row for row in rows if row["name"].endswith(" fsdp2")]
        lines += [
            "",
            summary("the recorded policy itself", [row for row in own if row["name"].startswith(RECORDED)]),
            summary("the two other policies", [row for row in own if not row["name"].startswith(RECORDED)]),
            summary("parameters kept", [row for row in rows if row["name"].endswith(" fsdp2_keep")]),
            summary("DDP", [row for row in rows if row["name"].endswith(" ddp")]),
        ]
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--build", type=pathlib.Path, default="build")
    parser.add_argument("--work", type=pathlib.Path, default="fsdp2_recorded_work")
    parser.add_argument("--out", type=pathlib.Path, help="where the tables go, too")
    parser.add_argument("--seconds", type=float, default=150.0, help="about how long, all together")
    parser.add_argument("--steps", type=int, default=24, help="of each plan, a multiple of 4")
    options = parser.parse_args()
    os.environ.update(fsdp2_live.ALLOCATOR)
    text = text_of(Trial(options).run())
    print(text)
    if options.out:
        options.out.write_text(f"{HEAD}\n{text}", encoding="utf-8")


if __name__ == "__main__":
    main()
