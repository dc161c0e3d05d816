#!/usr/bin/env python3
"""Predicts DDP, FSDP2 and HSDP for three batching policies, and then trains them, on this machine's processors.

usage: python3 tests/live/fsdp2_live.py --build BUILD --work FOLDER [--out REPORT.md] [--seconds 500]

For 2 ranks (DDP, FSDP2, FSDP2 that keeps its parameters) and for 4 ranks (DDP, HSDP of 2 x 2, and that kept):
gloo's collectives are timed; stepsim_calibrate.py trains DDP steps and times fully_shard's hooks; all nine
pairs of policy and parallelism are predicted; then they train by turns in blocks of 4 steps of one process
group, for as many passes over the plans as fit the time. No step of FSDP2 is used for its prediction. It needs
PyTorch 2.8 or newer, which is that of the python3 it runs with. 4 ranks on fewer processors share them.
"""

import argparse
import datetime
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIVE, TORCH = ROOT / "tests" / "live", ROOT / "calibrate" / "torch"
sys.path[:0] = [str(LIVE), str(TORCH)]

import campaign  # noqa: E402
import fsdp2_records  # noqa: E402
import network  # noqa: E402
import ranks  # noqa: E402
import results  # noqa: E402

MODEL = "llama"
BLOCK, PASSES = 4, 50
LIMIT_S = 600
# Memory stays with the process: else some batches take half as long again, always the same ones.
ALLOCATOR = {"MALLOC_TRIM_THRESHOLD_": "4000000000", "MALLOC_MMAP_THRESHOLD_": "4000000000"}
LARGEST_BYTES = 1 << 24  # More than all parameters together.
SLOWEST_LEFT_OUT = 0.02  # Of the times of a collective: what other programs held up.
# Shares of the time; the rest is for starting and for the predictions.
SHARES = {"collectives": 0.1, "calibration": 0.2, "live": 0.5}
WORLDS = {  # Ranks, replicas and, by parallelism, what the scenario says of it.
    "2": (2, 1, {
        "ddp": [],
        "fsdp2": ["parallel.kind=fsdp2"],
        "fsdp2_keep": ["parallel.kind=fsdp2", "parallel.reshard_after_forward=false"],
    }),
    "4": (4, 2, {
        "ddp": [],
        "hsdp": ["parallel.kind=fsdp2", "parallel.replicas=2"],
        "hsdp_keep": ["parallel.kind=fsdp2", "parallel.replicas=2", "parallel.reshard_after_forward=false"],
    }),
}  # fmt: skip

HEAD = """# DDP, FSDP2 and HSDP predicted, and then trained

Made by `tests/live/fsdp2_live.py`: a Llama-style decoder of 4 layers x 192 (39 tensors, 2.4 M parameters) in real PyTorch over gloo on one machine's processors, three batching
policies, under DDP and under `fully_shard`, which frees or keeps its parameters after the forward; the root and each layer are units. The predictions were on disk before the live run
began. They are made of three things: DDP steps of `stepsim_calibrate.py`, on shapes that cover the policies' batches; the hooks, the copies by the byte and the optimizer of sharded tensors, which it times on a
process group that does nothing; and gloo's all-gathers, reduce-scatters and all-reduces, timed with a matrix product before each; how much single ops scatter comes from the same DDP steps ([FSDP2.md](FSDP2.md)). No step of `fully_shard` is used. Live, all pairs of
policy and parallelism take turns in blocks of 4 steps in one process group; a step ends when its last rank does. Memory stays with the processes (`MALLOC_TRIM_THRESHOLD_`,
`MALLOC_MMAP_THRESHOLD_`). Intervals are those of the same hour.
"""


def trimmed_mean(times):
    kept = sorted(times)[: max(1, round(len(times) * (1 - SLOWEST_LEFT_OUT)))]
    return statistics.fmean(kept)


def base_profile(found):
    """A profile of nothing but the timed collectives: means, no size faster than a smaller one.

    Args:
        found: {"kind ranks": {bytes: [seconds]}}.
    """
    tables = []
    for name, times in found.items():
        kind, count = name.split()
        knots, longest = [], 0.0
        for size in sorted(times, key=int):
            longest = max(longest, trimmed_mean(times[size]))
            knots.append([int(size), longest])
        tables.append({"kind": kind, "ranks": int(count), "nodes": 1, "dtype": "f32", "variable": "bytes",
                       "knots_s": knots, "range": [knots[0][0], knots[-1][0]]})  # fmt: skip
    return {
        "format": "stepsim-profile/1", "name": "gloo", "device": "cpu", "backend": "cpu", "provenance": {},
        "memory_capacity_bytes": 0, "host": {"launch_s": 0, "host_is_device": True}, "ops": [],
        "collectives": tables,
    }  # fmt: skip


def recorded_jitter(path):
    """The jitter of single ops that a calibration's steps tell, as FSDP2.md describes it: of those steps in
    which all ranks had one shape, since ranks that share processors hold each other up by their shapes."""
    header, rows = campaign.read_lines(path)
    steps = {}
    for row in rows:
        if row["step"] >= header["warmup_steps"]:
            steps.setdefault((row["repeat"], row["step"]), {})[row["rank"]] = row
    held = []
    for of_ranks in steps.values():
        shapes = {(row["samples"], row["max_length"]) for row in of_ranks.values()}
        if len(of_ranks) == header["world_size"] and len(shapes) == 1:
            held.append([row["forward_ms"] / row["forward_cpu_ms"] for _, row in sorted(of_ranks.items())])
    return fsdp2_records.op_jitter(held, header["model"]["parameters"]) if len(held) > 1 else 0.0


def compared(predicted, measured, tokens):
    """Rows of the table.

    Args:
        predicted: {"policy parallelism": {"mean", "interval"}} in milliseconds.
        measured: {"policy parallelism": [seconds of steps]}.
        tokens: {policy: useful tokens of a step}.
    """
    rows = []
    for name, one in predicted.items():
        mean = 1e3 * statistics.fmean(measured[name])
        low, high = one["interval"]
        rows.append({
            "name": name, "predicted_ms": one["mean"], "interval": [low, high], "measured_ms": mean,
            "steps": len(measured[name]), "error": one["mean"] / mean - 1, "inside": low <= mean <= high,
            "tokens": tokens[name.split()[0]],
        })  # fmt: skip
    return rows


def wrong_pairs(rows):
    """Pairs that are in another order of useful tokens a second than predicted."""

    def rate(row, which):
        return row["tokens"] / row[which]

    pairs = []
    for place, a in enumerate(rows):
        for b in rows[:place]:
            signs = [rate(a, which) > rate(b, which) for which in ("predicted_ms", "measured_ms")]
            if signs[0] != signs[1]:
                apart = abs(rate(a, "measured_ms") / rate(b, "measured_ms") - 1)
                pairs.append((a["name"], b["name"], apart))
    return pairs


class Trial:
    """One number of ranks."""

    def __init__(self, name, options):
        self.name, self.options = name, options
        self.ranks, self.replicas, self.parallelisms = WORLDS[name]
        self.folder = pathlib.Path(options.work).resolve() / name
        self.build = pathlib.Path(options.build).resolve()
        share = options.seconds / len(options.worlds.split(","))
        self.jitter = 0.0
        self.seconds = {task: part * share for task, part in SHARES.items()}
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)

    def say(self, text):
        print(f"[{self.name} ranks, {time.strftime('%H:%M:%S')}] {text}", flush=True)

    def tool(self, program, *arguments):
        command = [str(self.build / program), *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        with open(self.folder / "tools.log", "a", encoding="utf-8") as log:
            log.write(f"$ {' '.join(command)}\n{done.stdout}{done.stderr}")
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(command)}: {done.stderr or done.stdout}")

    def scenario(self):
        text = (LIVE / "scenarios" / "fsdp2_live.toml").read_text(encoding="utf-8")
        known = f'ranks = {self.ranks}\nprofile = "{self.folder}/profile.json"\n'
        text = text.replace("ranks = 2\n", known)
        text = text.replace("steps = 24\n", f"steps = {self.options.steps}\n")
        path = self.folder / "scenario.toml"
        path.write_text(text, encoding="utf-8")
        return path

    def task(self, task, **more):
        """Runs fsdp2_rank.py on all ranks. Returns what rank 0 wrote."""
        spec, out = self.folder / f"{task}_spec.json", self.folder / f"{task}.json"
        asked = {"task": task, "replicas": self.replicas, "out": str(out), **more}
        spec.write_text(json.dumps(asked), encoding="utf-8")
        log = self.folder / f"{task}.log"
        ranks.run(network.Loopback(self.ranks), LIVE / "fsdp2_rank.py", [spec], log, LIMIT_S)
        return json.loads(out.read_text(encoding="utf-8"))

    def calibrate(self, plans):
        self.say("collectives")
        found = self.task(
            "collectives", largest_bytes=LARGEST_BYTES, seconds=self.seconds["collectives"]
        )["found"]
        base = self.folder / "base.json"
        base.write_text(json.dumps(base_profile(found)), encoding="utf-8")
        self.say("stepsim_calibrate.py: DDP steps, and fully_shard's hooks")
        shapes, out = self.folder / "shapes.json", self.folder / "calibration"
        self.tool("calibrate/stepcal", "grid", *plans, "--out", shapes)
        arguments = [LIVE / "own" / f"{MODEL}.py", "--shapes", shapes, "--out", out, "--device", "cpu"]
        arguments += ["--seconds", self.seconds["calibration"]]
        log = self.folder / "calibration.log"
        ranks.run(network.Loopback(self.ranks), TORCH / "stepsim_calibrate.py", arguments, log, LIMIT_S)
        records = [self.folder / f"calibration{part}.jsonl" for part in ("", ".buckets")]
        records = [path for path in records if path.exists()]  # In a short time there are no bucket times.
        profile = self.folder / "profile.json"
        self.tool(
            "calibrate/stepcal", "import", "run-record", *records, "--base", base, "--profile", profile
        )
        # Ranks that share processors take them from one another, which the profile counts by itself.
        self.jitter = recorded_jitter(records[0]) if self.ranks <= os.cpu_count() else 0.0
        if "units" not in json.loads(profile.read_text(encoding="utf-8"))["host"]:
            raise RuntimeError(f"{log}: the hooks of fully_shard were not measured")

    def predict(self, scenario):
        """Writes and returns {"policy parallelism": {"mean", "interval"}}."""
        predicted = {}
        for name, settings in self.parallelisms.items():
            report = self.folder / f"report_{name}.json"
            settings = [*settings, f"noise.op_jitter={self.jitter:.3f}"]
            sets = [word for setting in settings for word in ("--set", setting)]
            self.tool("sim/stepsim", "compare", scenario, *sets, "--json", report, "--quiet")
            for one in json.loads(report.read_text(encoding="utf-8"))["predictions"]:
                step = one["summary"]["step_time_ms"]
                interval = step.get("interval90_same_hour", step["interval90"])
                predicted[f"{one['policy']} {name}"] = {"mean": step["mean"], "interval": interval}
        (self.folder / "predictions.json").write_text(json.dumps(predicted, indent=1), encoding="utf-8")
        return predicted

    def run(self):
        scenario = self.scenario()
        self.tool("sim/stepsim", "plan", scenario, "--out-dir", self.folder / "plans", "--quiet")
        plans = sorted((self.folder / "plans").glob("*.jsonl"))
        marks = [campaign.processor_s()]
        self.calibrate(plans)
        predicted = self.predict(scenario)
        predicted_at = time.time()
        self.say("predictions are on disk; training")
        marks.append(campaign.processor_s())
        live = self.task(
            "train", model=MODEL, plans=list(map(str, plans)), parallelisms=list(self.parallelisms),
            block=BLOCK, passes=PASSES, seconds=self.seconds["live"],
        )  # fmt: skip
        marks.append(campaign.processor_s())
        if live["began_at"] <= predicted_at:
            raise RuntimeError("the live run began before the predictions were on disk")
        tokens = {}
        for plan in plans:
            rows = campaign.read_lines(plan)[1]
            tokens[plan.stem] = sum(row["useful_tokens"] for row in rows) / (max(r["step"] for r in rows) + 1)
        result = {
            "torch": live["torch"], "op_jitter": self.jitter, "predicted_at": predicted_at, "live_at": live["began_at"],
            "other_load": [campaign.other_load(*pair) for pair in zip(marks, marks[1:])],
            "rows": compared(predicted, live["found"], tokens),
        }  # fmt: skip
        (self.folder / "result.json").write_text(json.dumps(result, indent=1), encoding="utf-8")
        return result


def moment(seconds):
    return datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")


def table_of(rows):
    """The lines of a table of compared pairs."""
    lines = [
        "| policy | | predicted, ms | 90 % interval | measured, ms | steps | error | in interval |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        policy, parallelism = row["name"].split()
        low, high = row["interval"]
        lines.append(
            f"| {policy} | {parallelism} | {row['predicted_ms']:.1f} | {low:.1f} to {high:.1f} | "
            f"{row['measured_ms']:.1f} | {row['steps']} | {row['error']:+.1%} | {'yes' if row['inside'] else 'no'} |"
        )
    return lines


def text_of(name, result):
    count, replicas, _ = WORLDS[name]
    rows = result["rows"]
    cores = os.cpu_count()
    mesh = f"HSDP of {replicas} x {count // replicas}" if replicas > 1 else "FSDP2"
    shared = f"; {count} processes share {cores} processors" if count > cores else ""
    lines = [
        f"## {count} ranks, {mesh}",
        "",
        f"PyTorch {result['torch']}, gloo, one thread a rank{shared}. Predictions on disk "
        f"{moment(result['predicted_at'])}, live from {moment(result['live_at'])}. Other programs kept {result['other_load'][0]:.2f} processors busy in the "
        f"calibration and {result['other_load'][1]:.2f} in the live run. "
        + (f"Single ops scatter by {result['op_jitter']:.0%}, as the calibration's forwards tell." if result["op_jitter"]
           else "How ranks share processors is counted, and no further scatter of single ops."),
        "",
        *table_of(rows),
        "",
    ]
    for kind, chosen in (
        ("DDP", [row for row in rows if row["name"].endswith(" ddp")]),
        ("fully_shard", [row for row in rows if not row["name"].endswith(" ddp")]),
        ("all", rows),
    ):
        errors = [row["error"] for row in chosen]
        lines.append(
            f"- {kind}: mean error {statistics.fmean(map(abs, errors)):.1%}, bias {statistics.fmean(errors):+.1%}, "
            f"{sum(row['inside'] for row in chosen)} of {len(chosen)} in the interval."
        )
    rates = [(row["tokens"] / row["predicted_ms"], row["tokens"] / row["measured_ms"]) for row in rows]
    wrong = [f"{a} and {b} ({apart:.1%} apart)" for a, b, apart in wrong_pairs(rows)]
    lines.append(
        f"- Order by useful tokens a second: Kendall tau {results.kendall_tau(rates):.2f}; pairs in the wrong order: "
        f"{'; '.join(wrong) if wrong else 'none'}."
    )
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--build", type=pathlib.Path, default="build")
    parser.add_argument("--work", type=pathlib.Path, default="fsdp2_live_work")
    parser.add_argument("--out", type=pathlib.Path, help="where the tables go, too")
    parser.add_argument("--seconds", type=float, default=480.0, help="about how long, all together")
    parser.add_argument("--steps", type=int, default=24, help="of each plan, a multiple of 4")
    parser.add_argument("--worlds", default="2,4", help="numbers of ranks: 2, 4")
    options = parser.parse_args()
    os.environ.update(ALLOCATOR)
    texts = [text_of(name, Trial(name, options).run()) for name in options.worlds.split(",")]
    print("\n".join(texts))
    if options.out:
        options.out.write_text("\n".join([HEAD, *texts]), encoding="utf-8")


if __name__ == "__main__":
    main()
