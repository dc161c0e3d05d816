#!/usr/bin/env python3
"""Predicts the policies of models of one's own on one GPU, by both ways in, and then trains them.

usage: python3 tests/live/own_gpu.py --tools FOLDER --out FOLDER [--models llama,gpt2,qwen3] [--device cuda]
       python3 tests/live/own_gpu.py --report FOLDER

The second prints the tables of OWN_GPU.md. FOLDER of the first has stepsim and stepcal (calibrate/cuda/bundle). For each model (tests/live/own/gpu_model.py):

1. stepsim_calibrate.py trains 24 shapes; its profile predicts all policies (`whole`).
2. Another epoch of one policy is trained and recorded; that record's profile predicts them, too (`recorded`).
3. All policies train by turns of 4 steps, and both predictions are held against them.

Each prediction is on disk before the steps that it is compared with. Llama and Qwen3 train with
TORCH_CUDNN_SDPA_DEPRIORITIZED=1; GPT-2 with what PyTorch prefers, which compiles every new shape.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
TORCH = ROOT / "calibrate" / "torch"
SCENARIO = ROOT / "tests" / "live" / "scenarios" / "own_gpu.toml"
MODEL = ROOT / "tests" / "live" / "own" / "gpu_model.py"
RECORDED = "group_by_length"  # Its batches differ most in length; only those of max_tokens differ in samples.
WITH_CUDNN = ("gpt2",)
TITLES = {"llama": "Llama, 0.4 billion parameters", "qwen3": "Qwen3-0.6B", "gpt2": "GPT-2, 124 million parameters, with cuDNN's attention"}


class Model:
    def __init__(self, name, options):
        self.options = options
        self.tools = pathlib.Path(options.tools).resolve()
        self.folder = pathlib.Path(options.out).resolve() / name
        self.folder.mkdir(parents=True, exist_ok=True)
        self.environment = {**os.environ, "STEPSIM_OWN_MODEL": name}
        if name not in WITH_CUDNN:
            self.environment["TORCH_CUDNN_SDPA_DEPRIORITIZED"] = "1"

    def call(self, name, *command, status=(0,)):
        """What it prints goes to NAME.txt."""
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False, cwd=self.folder, env=self.environment)
        (self.folder / f"{name}.txt").write_text(done.stdout + done.stderr, encoding="utf-8")
        if done.returncode not in status:
            raise RuntimeError(f"{name}: status {done.returncode}: {done.stderr[-2000:] or done.stdout[-2000:]}")
        print(f"[{time.strftime('%H:%M:%S')}] {self.folder.name} {name}", flush=True)

    def tool(self, name, program, *arguments, status=(0,)):
        with_cuda = self.tools / "with_cuda"
        self.call(name, *([with_cuda] if with_cuda.exists() else []), self.tools / program, *arguments, status=status)

    def torch(self, name, program, *arguments):
        self.call(name, sys.executable, TORCH / program, *arguments, "--device", self.options.device)

    def predict(self, way, *records):
        self.tool(f"{way}.import", "stepcal", "import", "run-record", *records, "--profile", f"{way}.json")
        self.tool(f"{way}.compare", "stepsim", "compare", SCENARIO, "--profile", f"{way}.json",
                  "--json", f"{way}.prediction.json")  # fmt: skip

    def run(self):
        options = self.options
        self.tool("plan", "stepsim", "plan", SCENARIO, "--out-dir", "plans", "--quiet")
        self.tool("plan_other", "stepsim", "plan", SCENARIO, "--out-dir", "other", "--quiet",
                  "--policy", RECORDED, "--set", "data.sampler.seed=2")  # fmt: skip
        plans = sorted((self.folder / "plans").glob("*.jsonl"))
        self.tool("grid", "stepcal", "grid", *plans, "--out", "shapes.json")
        self.torch("calibrate", "stepsim_calibrate.py", MODEL, "--shapes", "shapes.json", "--out", "whole",
                   "--seconds", options.seconds)  # fmt: skip
        self.predict("whole", "whole.jsonl")
        self.torch("record", "stepsim_live.py", *(self.folder / "other").glob("*.jsonl"), "--model", MODEL, "--out-dir", "recorded")
        self.predict("recorded", *(self.folder / "recorded").glob("*.jsonl"))
        self.torch("live", "stepsim_live.py", *plans, "--model", MODEL, "--out-dir", "live", "--seconds", options.live_seconds)
        for way in ("whole", "recorded"):
            self.tool(f"{way}.validate", "stepsim", "validate", SCENARIO, "--profile", f"{way}.json", "--predictions",
                      f"{way}.prediction.json", "--live", *(self.folder / "live" / one.name for one in plans),
                      "--json", f"{way}.validation.json", status=(0, 1))  # fmt: skip
        print("\n".join(text_of(self.folder)), flush=True)


def text_of(folder):
    """Lines of a model's tables on the page."""
    for way, by in (("whole", "by 24 calibrated shapes"), ("recorded", f"by 48 recorded steps of `{RECORDED}`")):
        rows = json.loads((folder / f"{way}.validation.json").read_text(encoding="utf-8"))["policies"]
        sizes = [abs(row["error"]["mean"]) for row in rows]
        yield ""
        yield f"### {TITLES[folder.name]}: {by}"
        yield ""
        yield f"Mean error {sum(sizes) / len(sizes):.1%}, {sum(row['in_interval'] for row in rows)} of {len(rows)} in the interval."
        yield ""
        yield "| policy | predicted, ms | 90 % interval | measured, ms | error | in interval |"
        yield "|---|---|---|---|---|---|"
        for row in rows:
            low, high = row["predicted_ms"]["interval90"]
            yield (
                f"| {row['policy']} | {row['predicted_ms']['mean']:.1f} | {low:.0f} to {high:.0f} | {row['measured_ms']['mean']:.1f} | "
                f"{row['error']['mean']:+.1%} | {'yes' if row['in_interval'] else 'no'} |"
            )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tools")
    parser.add_argument("--out")
    parser.add_argument("--report", help="folder of earlier runs")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--models", default="llama,gpt2,qwen3")
    parser.add_argument("--seconds", type=float, default=20, help="of each calibration")
    parser.add_argument("--live-seconds", type=float, default=60)
    options = parser.parse_args()
    if options.report:
        for name in TITLES:
            print("\n".join(text_of(pathlib.Path(options.report) / name)))
        return
    if not options.tools or not options.out:
        parser.error("--tools and --out, or --report")
    failed = []
    for name in options.models.split(","):
        try:
            Model(name, options).run()
        except RuntimeError as error:  # The others go on.
            print(f"{name}: {error}", flush=True)
            failed.append(name)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
