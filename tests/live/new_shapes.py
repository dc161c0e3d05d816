#!/usr/bin/env python3
"""Plants a cost of new shapes in real PyTorch DDP training and has it found, and other policies
predicted before they run.

    /usr/bin/python3 tests/live/new_shapes.py --build build [--work FOLDER] [--out REPORT.md]

For each planted cost: one policy is trained and recorded, a profile is made of that record alone,
the predictions of all policies are written, and then all are trained by turns in blocks of 4 steps,
each with caches of its own. Beside the policies of the scenario these are one that plans for the
found costs, and the policy with most first meetings cured as `stepsim compare` says. The ranks train without network namespaces, on 127.0.0.1.
"""

import argparse
import datetime
import json
import os
import pathlib
import re
import shutil
import statistics
import subprocess

import naive
import network
import ranks
import results

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
TRAIN = ROOT / "tests" / "live" / "train.py"
SCENARIO = ROOT / "tests" / "live" / "scenarios" / "new_shapes.toml"
RECORDED = "fixed"
WITHOUT_CAP = 25  # DDP's default, MiB
PLANTED_MS = ((0, 0), (5, 0), (50, 0), (5, 20), (50, 20))  # plan, a pass; graph
LIMIT_S = 900
CALIBRATION_PASSES = 2  # The second one meets nothing new.
# Memory stays with the process: else some batches take half as long again, always the same ones.
ALLOCATOR = {"MALLOC_TRIM_THRESHOLD_": "4000000000", "MALLOC_MMAP_THRESHOLD_": "4000000000"}


class Trial:
    """One planted cost."""

    def __init__(self, tools, work, plan_ms, graph_ms):
        self.tools = tools
        self.folder = work / f"plan_{plan_ms}_graph_{graph_ms}"
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        self.plan_ms, self.graph_ms = plan_ms, graph_ms
        self.cure = ""
        self.scenario = SCENARIO

    def tool(self, program, *arguments):
        done = subprocess.run(
            [str(self.tools / program), *map(str, arguments)],
            check=False,
            capture_output=True,
            text=True,
        )
        if done.returncode != 0:
            raise RuntimeError(f"{program} {' '.join(map(str, arguments))}: {done.stderr}")
        return done.stdout

    def plan(self, policy, *profile):
        path = self.folder / f"{policy}.plan.jsonl"
        if not path.exists():
            self.tool(
                "sim/stepsim", "plan", self.scenario, "--policy", policy, "--out", path, *profile
            )
        return path

    def compare(self, profile, name):
        path = self.folder / f"{name}.json"
        self.tool("sim/stepsim", "compare", self.scenario, "--profile", profile, "--json", path)
        return json.loads(path.read_text("utf-8"))

    def add_cures(self, profile):
        """Adds the policies that avoid new shapes to the scenario, where these cost something."""
        compared = self.compare(profile, "uncured")
        text = SCENARIO.read_text("utf-8")
        tables = {}
        for table in text.split("[[policy]]")[1:]:
            name, rest = table.strip().split("\n", maxsplit=1)
            tables[name.split('"')[1]] = rest
        cures = [
            cure
            for cure in compared.get("cures", [])
            if cure["key"].startswith("pad_to") and "pad_to" not in tables[cure["policy"]]
        ]
        if cures:
            worst = max(cures, key=lambda cure: cure["epoch_step_ms"] / cure["cured_step_ms"])
            name = worst["policy"]
            text += f'\n[[policy]]\nname = "{name}, cured"\n{tables[name]}\n{worst["key"]}\n'
            self.cure = f'`{name}` with `{worst["key"]}`'
        text += '\n[[policy]]\nname = "planned_shapes"\nkind = "planned_shapes"\nbatch_size = 8\n'
        self.scenario = self.folder / "cured.toml"
        self.scenario.write_text(text, "utf-8")

    def train(self, name, policies, passes):
        """Trains the policies by turns. Returns {policy: record}."""
        records = {policy: self.folder / f"{name}_{policy}" for policy in policies}
        runs = []
        for policy in policies:
            run = {
                "name": policy,
                "plan": str(self.plan(policy)),
                "bucket_cap_mb": WITHOUT_CAP,
                "record": str(records[policy]),
            }
            if self.plan_ms or self.graph_ms:
                folder = self.folder / f"{name}_{policy}.graphs"
                run["planted"] = {
                    "plan_ms": self.plan_ms,
                    "graph_ms": self.graph_ms,
                    "folder": str(folder),
                }
            runs.append(run)
        spec = self.folder / f"{name}.json"
        spec.write_text(
            json.dumps({"threads": 1, "block": 4, "passes": passes, "runs": runs}), "utf-8"
        )
        ranks.run(network.Loopback(2), TRAIN, [spec], self.folder / f"{name}.log", LIMIT_S)
        return {policy: path.with_name(path.name + ".jsonl") for policy, path in records.items()}

    def run(self):
        record = self.train("calibration", [RECORDED], CALIBRATION_PASSES)[RECORDED]
        profile = self.folder / "profile.json"
        self.report = self.tool(
            "calibrate/stepcal", "import", "run-record", record, "--plan", self.plan(RECORDED),
            "--profile", profile,
        )
        self.costs = json.loads(profile.read_text("utf-8")).get("new_shapes", [])
        self.add_cures(profile)
        found = self.compare(profile, "predictions")["predictions"]
        for prediction in found:
            self.plan(prediction["policy"], "--profile", profile)
        self.predicted_at = datetime.datetime.now(datetime.timezone.utc)
        live = self.train("live", [prediction["policy"] for prediction in found], 1)
        self.rows = [self.row(prediction, live[prediction["policy"]]) for prediction in found]

    @staticmethod
    def row(prediction, path):
        with open(path, encoding="utf-8") as lines:
            header = json.loads(next(lines))
            rows = [json.loads(line) for line in lines]
        steps = naive.by_step([row for row in rows if row["step"] >= header["warmup_steps"]])
        measured = statistics.fmean(naive.step_ms(step) for step in steps.values())
        tokens = statistics.fmean(
            sum(row["useful_tokens"] for row in step) for step in steps.values()
        )
        step = prediction["summary"]["step_time_ms"]
        return {
            "policy": prediction["policy"],
            "predicted_ms": step["mean"],
            "low": step["interval90"][0],
            "high": step["interval90"][1],
            "warm_ms": prediction.get("new_shapes", {}).get("warm_step_ms", step["mean"]),
            "meetings": prediction.get("new_shapes", {}).get("first_meetings", 0),
            "measured_ms": measured,
            "tokens": tokens,
            "started_at": header["started_at"],
        }

    def spent_text(self):
        """What the calibration's ranks spent on a first meeting, by their own clocks."""
        spent = {}
        for path in self.folder.glob("calibration_*.graphs/spent_*.json"):
            for what, seconds in json.loads(path.read_text("utf-8")).items():
                spent.setdefault(what, []).extend(seconds)
        return ", ".join(
            f"{what} {statistics.fmean(seconds) * 1e3:.2f} ms ({len(seconds)} times)"
            for what, seconds in spent.items()
            if seconds and (self.graph_ms or what != "graph")
        )

    def text(self):
        title = f"{self.plan_ms} ms a pass for each new (samples, length) of a rank"
        if self.graph_ms:
            title += f", {self.graph_ms} ms for each length that no rank had met"
        lines = [f"## Planted: {title}", ""]
        if self.spent_text():
            lines += [f"Spent in the recorded run, by its own clock: {self.spent_text()}.", ""]
        if self.costs:
            lines += ["| found: key | shared | forward | backward | together | error of the fit |",
                      "|---|---|---|---|---|---|"]
            for cost in self.costs:
                forward, backward = cost["forward_s"] * 1e3, cost["backward_s"] * 1e3
                lines.append(
                    f"| {cost['key']} | {'yes' if cost['shared'] else 'no'} | {forward:.2f} ms | "
                    f"{backward:.2f} ms | {forward + backward:.2f} ms | "
                    f"{100 * cost['relative_error']:.1f} % |"
                )
        else:
            lines.append("Found: no cost of new shapes.")
        if self.cure:
            lines += ["", f"The cure of most gain that `compare` names: {self.cure}."]
        lines += ["", f"Predicted at {self.predicted_at:%H:%M:%S} UTC, trained from "
                  f"{self.rows[0]['started_at'][11:19]} on.", "",
                  "| policy | first meetings | predicted, all shapes known | predicted | measured "
                  "| error | in its interval | useful tokens/s, predicted | measured |",
                  "|---|---|---|---|---|---|---|---|---|"]
        for row in self.rows:
            error = row["predicted_ms"] / row["measured_ms"] - 1
            inside = "yes" if row["low"] <= row["measured_ms"] <= row["high"] else "no"
            lines.append(
                f"| {row['policy']} | {row['meetings']} | {row['warm_ms']:.1f} ms | "
                f"{row['predicted_ms']:.1f} ms | {row['measured_ms']:.1f} ms | {100 * error:+.1f} % "
                f"| {inside} | {row['tokens'] / row['predicted_ms'] * 1e3:.0f} | "
                f"{row['tokens'] / row['measured_ms'] * 1e3:.0f} |"
            )
        by = [sorted(self.rows, key=lambda row: row["tokens"] / row[key], reverse=True)
              for key in ("predicted_ms", "measured_ms")]
        orders = [", ".join(row["policy"] for row in order) for order in by]
        lines += ["", f"Fastest first, predicted: {orders[0]}; measured: {orders[1]}.", ""]
        return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--build", default="build", help="folder of a build")
    parser.add_argument("--work", default="build/new_shapes", help="folder for records")
    parser.add_argument("--out", default="-", help="Markdown report to write; -: print it")
    options = parser.parse_args()
    texts = []
    for plan_ms, graph_ms in PLANTED_MS:
        trial = Trial(pathlib.Path(options.build), pathlib.Path(options.work), plan_ms, graph_ms)
        trial.run()
        texts.append(trial.text())
        print(texts[-1], flush=True)
    if options.out != "-":
        head = ("# Costs of new shapes, planted in real PyTorch DDP and found again\n\n"
                "Two ranks with gloo, PyTorch's own DDP, a DistilBERT of 2 layers x 64; made by\n"
                f"`tests/live/new_shapes.py` on {results.machine()}.\n"
                f"`{RECORDED}` was recorded, all else predicted before it ran.\n\n")
        pathlib.Path(options.out).write_text(head + "\n".join(texts), "utf-8")


if __name__ == "__main__":
    os.environ.update(ALLOCATOR)
    main()
