#!/usr/bin/env python3
"""Predicts DDP, FSDP2 and HSDP on 8 GPUs, and then trains one of the ranks on one GPU, with a network of delays.

usage: python3 tests/live/fsdp2_gpu.py --tools FOLDER --out FOLDER [--device cuda]

FOLDER has stepsim and stepcal (calibrate/cuda/bundle). The process group is PyTorch's "fake" one of 8 ranks. In
place of its collectives, which do nothing, a kernel that waits holds a communication stream of the group for as
long as the prediction's table of collectives says, so that streams, events, hooks, copies, launches and the
optimizer of shards are PyTorch's own, on one GPU. All batches have one length: all ranks would do the same.

First stepsim_measure.py times the model's ops and fully_shard's hooks; then all predictions are written; then
parallelisms and policies train by turns in blocks of 4 steps. No step of the kinds predicted is used before.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
TORCH = ROOT / "calibrate" / "torch"
SCENARIO = ROOT / "tests" / "live" / "scenarios" / "fsdp2_gpu.toml"
MY_MODEL = """import json
import sys

import torch

sys.path.insert(0, "{torch}")
import stepsim_models as models

CONFIG = json.load(open("{config}"))
precision = "{precision}"


def make_model():
    return models.make_model(CONFIG, torch.device("cuda" if torch.cuda.is_available() else "cpu"))


def make_batch(samples, length, device, lengths):
    return models.make_batch(CONFIG, list(lengths), length, torch.device(device))
"""
NETWORKS = {  # Seconds of a message of nothing, and bytes a second of a gather or a scatter; an all-reduce is both.
    "400_gbit": (30e-6, 50e9),
    "200_gbit": (30e-6, 25e9),
    "100_gbit": (30e-6, 12.5e9),
}
PARALLELISMS = {
    "ddp": [],
    "ddp_100mib": ["ddp.bucket_cap=100 MiB"],
    "fsdp2": ["parallel.kind=fsdp2"],
    "fsdp2_keep": ["parallel.kind=fsdp2", "parallel.reshard_after_forward=false"],
    "hsdp": ["parallel.kind=fsdp2", "parallel.replicas=2"],
}
RANKS = 8
SIZES = [1 << power for power in range(8, 34)]  # Of the tables.


def seconds_of(network, kind, size):
    """What a collective of so many bytes (gathered, or before they are reduced) takes."""
    latency, rate = NETWORKS[network]
    return (2 if kind == "all_reduce" else 1) * (latency + size / rate)


def tables(network):
    """The network as a profile's collectives."""
    found = []
    for kind in ("all_reduce", "all_gather", "reduce_scatter"):
        for ranks in (2, 4, 8):
            knots = [[size, seconds_of(network, kind, size)] for size in SIZES]
            found.append({"kind": kind, "ranks": ranks, "nodes": 1, "dtype": "f32", "variable": "bytes",
                          "knots_s": knots, "range": [SIZES[0], SIZES[-1]]})  # fmt: skip
    return found


# ---- predictions ---------------------------------------------------------------------------------


class Trial:
    def __init__(self, options):
        self.options = options
        self.tools = pathlib.Path(options.tools).resolve()
        self.folder = pathlib.Path(options.out).resolve()
        self.folder.mkdir(parents=True, exist_ok=True)
        self.sets = [word for one in options.set for word in ("--set", one)]

    def say(self, text):
        print(f"[{time.strftime('%H:%M:%S')}] {text}", flush=True)

    def tool(self, name, *arguments):
        with_cuda = self.tools / "with_cuda"
        self.call(*([with_cuda] if with_cuda.exists() else []), self.tools / name, *arguments)

    def call(self, *command):
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
        with open(self.folder / "tools.log", "a", encoding="utf-8") as log:
            log.write(f"$ {' '.join(map(str, command))}\n{done.stdout}{done.stderr}\n")
        if done.returncode != 0:
            raise RuntimeError(f"{command}: {done.stderr[-3000:] or done.stdout[-3000:]}")

    def task(self, task, **more):
        spec, out = self.folder / f"{task}_spec.json", self.folder / f"{task}.json"
        spec.write_text(json.dumps({"task": task, "device": self.options.device, "out": str(out), **more}), encoding="utf-8")
        self.call(sys.executable, ROOT / "tests" / "live" / "fsdp2_wire.py", spec)
        return json.loads(out.read_text(encoding="utf-8"))

    def measure(self):
        """Returns the request of the measurement."""
        plans, shapes, samples = (self.folder / name for name in ("plans", "shapes.json", "samples.jsonl"))
        profile = ROOT / "scenarios" / "profiles" / "h100_8x_published.json"
        self.tool("stepsim", "plan", SCENARIO, "--profile", profile, "--set", "cluster.ranks=1", *self.sets,
                  "--out-dir", plans, "--quiet")  # fmt: skip
        self.tool("stepcal", "grid", *sorted(plans.glob("*.jsonl")), "--out", shapes)
        self.call(sys.executable, TORCH / "stepsim_measure.py", shapes, "--out", samples,
                  "--seconds", self.options.seconds, "--device", self.options.device)  # fmt: skip
        self.tool("stepcal", "fit", samples, "--out", self.folder / "measured.json")
        return json.loads(shapes.read_text(encoding="utf-8"))

    def calibrate(self, request):
        """The same by whole steps of a model that Stepsim knows nothing of. Returns the scenario's path."""
        config, model = self.folder / "config.json", self.folder / "my_model.py"
        config.write_text(json.dumps(request["plan"]["model"]), encoding="utf-8")
        precision = "none" if request["plan"]["model"]["dtype"] == "f32" else "bf16"
        model.write_text(MY_MODEL.format(torch=str(TORCH), config=str(config), precision=precision), encoding="utf-8")
        self.call(sys.executable, TORCH / "stepsim_calibrate.py", model, "--shapes", self.folder / "shapes.json",
                  "--out", self.folder / "whole", "--seconds", self.options.seconds / 2, "--device", self.options.device)  # fmt: skip
        self.tool("stepcal", "import", "run-record", self.folder / "whole.jsonl", "--profile", self.folder / "whole.json")
        text = SCENARIO.read_text(encoding="utf-8")
        begin, end = text.index("[model]"), text.index("[ddp]")
        path = self.folder / "whole.toml"
        path.write_text(text[:begin] + '[model]\nkind = "recorded"\n\n' + text[end:], encoding="utf-8")
        return path

    def predict(self, enqueue, scenario, measured):
        predicted = {}
        profile = json.loads((self.folder / f"{measured}.json").read_text(encoding="utf-8"))
        own_sets = [one for one in self.options.set if not one.startswith("model.") or scenario == SCENARIO]
        own_sets = [word for one in own_sets for word in ("--set", one)]
        for network in self.options.networks.split(","):
            own = self.folder / f"{measured}_{network}.json"
            own.write_text(json.dumps({**profile, "collectives": tables(network)}), encoding="utf-8")
            for name in self.options.parallelisms.split(","):
                settings = PARALLELISMS[name]
                report = self.folder / f"report_{measured}_{network}_{name}.json"
                seconds = enqueue["hook" if name.startswith("ddp") else "gather"]
                settings = [*settings, f"host.enqueue={seconds * 1e6:.1f} us"]
                sets = [word for setting in settings for word in ("--set", setting)]
                self.tool("stepsim", "compare", scenario, "--profile", own, *own_sets, *sets,
                          "--json", report, "--quiet")  # fmt: skip
                predicted.update(predictions_of(report, network, name))
        (self.folder / f"predictions_{measured}.json").write_text(json.dumps(predicted, indent=1), encoding="utf-8")
        return predicted

    def run(self):
        self.say("measuring ops and hooks")
        request = self.measure()
        enqueue = self.task("host_of_wire")
        whole = self.calibrate(request)
        self.say(f"predicting; a gather of the wire takes the host {enqueue['gather'] * 1e6:.0f} us, a hook {enqueue['hook'] * 1e6:.0f}")
        predicted = {"measured": self.predict(enqueue, SCENARIO, "measured"), "whole": self.predict(enqueue, whole, "whole")}
        predicted_at = time.time()
        self.say("predictions are on disk; training")
        names = {one.stem: one for one in (self.folder / "plans").glob("*.jsonl")}
        batches = {}
        for name, plan in names.items():
            with open(plan, encoding="utf-8") as lines:
                next(lines)
                row = json.loads(next(lines))
            batches[name] = [len(row["lengths"]), row["max_length"]]
        live = self.task("train", config=request["plan"]["model"], batches=batches, seconds=self.options.live_seconds,
                         networks=self.options.networks.split(","), parallelisms=self.options.parallelisms.split(","))  # fmt: skip
        assert live["began_at"] > predicted_at
        result = {"predictions": predicted, **live}
        (self.folder / "result.json").write_text(json.dumps(result), encoding="utf-8")
        print(text_of(result), flush=True)


def predictions_of(report, network, parallelism):
    """What `stepsim compare --json` wrote, as rows_of() takes it."""
    found = {}
    for one in json.loads(pathlib.Path(report).read_text(encoding="utf-8"))["predictions"]:
        summary = one["summary"]
        found[f"{network} {one['policy']} {parallelism}"] = {
            "mean": summary["step_time_ms"]["mean"],
            "interval": summary["step_time_ms"]["interval90"],
            "memory_mib": summary["peak_memory_mib"],
        }
    return found


def rows_of(predicted, live):
    """Rows of the table: each prediction beside what was measured.

    Args:
        predicted: {"network policy parallelism": {"mean", "interval", "memory_mib"}}, in milliseconds.
        live: {"found": {the same: [seconds of steps]}, "memory": {"policy parallelism": [peak, held]}}, in bytes.
    """
    rows = []
    for name, one in predicted.items():
        network, policy, parallelism = name.split()
        mean = 1e3 * statistics.fmean(live["found"][name])
        low, high = one["interval"]
        peak = live["memory"].get(f"{policy} {parallelism}", [0])[0]
        rows.append({
            "network": network, "policy": policy, "parallelism": parallelism, "predicted_ms": one["mean"],
            "interval": [low, high], "measured_ms": mean, "steps": len(live["found"][name]),
            "error": one["mean"] / mean - 1, "inside": low <= mean <= high,
            "memory_mib": one["memory_mib"], "peak_mib": peak / 2**20,
        })  # fmt: skip
    return rows


def text_of(result):
    """The page's tables."""
    lines = [f"{result['device']}, PyTorch {result['torch']}."]
    for measured, predicted in result["predictions"].items():
        rows = rows_of(predicted, result)
        errors = [row["error"] for row in rows]
        lines += [
            "",
            f"{measured}: mean error {statistics.fmean(map(abs, errors)):.1%}, bias {statistics.fmean(errors):+.1%}, "
            f"{sum(row['inside'] for row in rows)} of {len(rows)} in the interval.",
            "",
            "| network | policy | | predicted, ms | 90 % interval | measured, ms | steps | error | in interval | "
            "memory predicted, MiB | measured |",
            "|---|---|---|---|---|---|---|---|---|---|---|",
        ]
        for row in rows:
            low, high = row["interval"]
            lines.append(
                f"| {row['network'].replace('_gbit', ' Gbit/s')} | {row['policy']} | {row['parallelism']} | "
                f"{row['predicted_ms']:.1f} | {low:.0f} to {high:.0f} | {row['measured_ms']:.1f} | {row['steps']} | "
                f"{row['error']:+.1%} | {'yes' if row['inside'] else 'no'} | {row['memory_mib']:.0f} | "
                f"{row['peak_mib']:.0f} |"
            )
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tools", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--seconds", type=float, default=40, help="of measuring ops")
    parser.add_argument("--live-seconds", type=float, default=70)
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--networks", default=",".join(NETWORKS))
    parser.add_argument("--parallelisms", default=",".join(PARALLELISMS))
    Trial(parser.parse_args()).run()


if __name__ == "__main__":
    main()
