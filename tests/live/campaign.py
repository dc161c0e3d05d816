"""Runs real PyTorch DDP training on this machine and compares it with predictions made before.

For each configuration it runs a short probe, which tells how long a step takes and so how slow the
links must be and how many steps fit; calibrates from a training of one policy; predicts; and then
trains all policies or bucket sizes live, alternating between them in blocks of 4 steps.
"""

import argparse
import dataclasses
import datetime
import json
import os
import pathlib
import shutil
import signal
import statistics
import subprocess
import sys
import time

import naive
import network
import ranks
import results
from configurations import CONFIGURATIONS, DEFAULT_CAP_MIB

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
TRAIN = ROOT / "tests" / "live" / "train.py"
ALL_REDUCE = ROOT / "calibrate" / "torch" / "all_reduce.py"
BLOCK = 4
PROBE_STEPS = 8
CALIBRATION_PASSES = range(2, 9)  # Short steps get more passes, to span CALIBRATION_S,
CALIBRATION_S = 15  # because a machine's speed changes from second to second.
START_S = 5  # The time to start a training and to end it.
STEPS = range(12, 49, BLOCK)
MOST_PASSES = 12
SWEEP_S = 10  # The time for measuring all-reduces by size.
LIMIT_S = 600  # The time limit of one training.


def read_lines(path):
    """Returns (header, rows) of a JSONL file."""
    with open(path, encoding="utf-8") as lines:
        header = json.loads(next(lines))
        return header, [json.loads(line) for line in lines]


def write_json(path, value):
    path.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")


def read_json(path):
    return json.loads(path.read_text(encoding="utf-8"))


def stamp(seconds):
    """Formats a time in UTC, as run records write their own start."""
    moment = datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def width(plan, warmup_steps):
    """Returns the largest over the smallest padded tokens of the steady batches."""
    tokens = [row["padded_tokens"] for row in plan if row["step"] >= warmup_steps]
    return max(tokens) / min(tokens)


def widest(plans):
    """Returns the policy whose batches cover the widest range. `plans`: {name: (header, rows)}."""
    return max(plans, key=lambda name: width(plans[name][1], plans[name][0]["warmup_steps"]))


def mean_tokens(rows):
    """Returns the mean over steps of the padded tokens of a step's largest batch."""
    steps = naive.by_step(rows).values()
    return statistics.fmean(max(row["padded_tokens"] for row in step) for step in steps)


def mean_step_s(rows):
    return statistics.fmean(naive.step_ms(step) for step in naive.by_step(rows).values()) / 1e3


def link_rate(share, gradient_bytes, step_s, ranks_):
    """Returns the bits per second at which a ring all-reduce of all gradients takes `share` of a
    step whose other part takes `step_s`."""
    transfer_s = step_s * share / (1 - share)
    return 8 * 2 * (ranks_ - 1) / ranks_ * gradient_bytes / transfer_s


def size_live(seconds, step_s, runs, passes=None):
    """Returns (steps, passes) of the live training: as many steps as fit 4 passes, then passes."""
    wanted = passes or 4
    fitting = int(seconds / (step_s * runs * wanted)) // BLOCK * BLOCK
    steps = max(STEPS[0], min(STEPS[-1], fitting))
    if passes is None:
        wanted = max(4, min(MOST_PASSES, int(seconds / (step_s * runs * steps))))
    return steps, wanted


def processor_s():
    """Returns the seconds that (all processors were busy, this process's ended children ran, the
    clock shows)."""
    with open("/proc/stat", encoding="utf-8") as file:
        user, nice, system, _, _, irq, softirq, steal = map(int, file.readline().split()[1:9])
    busy = (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")
    children = os.times()
    return busy, children.children_user + children.children_system, time.monotonic()


def other_load(before, after):
    """Returns how many processors others kept busy, on average, between two processor_s()."""
    busy, own, wall = (b - a for a, b in zip(before, after))
    return max(0.0, busy - own) / wall


class Campaign:
    """Runs one configuration in a folder of its own."""

    def __init__(self, configuration, tools, folder, options):
        self.configuration = configuration
        self.tools = tools
        self.folder = folder
        self.options = options
        self.seconds = configuration.seconds / (3 if options.quick else 1)
        self.steps = STEPS[-1]
        self.started = time.monotonic()
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)

    def say(self, text):
        spent = time.monotonic() - self.started
        name = self.configuration.name
        print(f"[{name} {spent:4.0f} s of {self.seconds:.0f}] {text}", flush=True)

    def tool(self, name, *arguments, statuses=(0,)):
        """Runs stepsim or stepcal; its output goes to a log beside the results."""
        command = [str(self.tools / name), *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        with open(self.folder / "tools.log", "a", encoding="utf-8") as log:
            log.write(f"$ {' '.join(command)}\n{done.stdout}{done.stderr}")
        if done.returncode not in statuses:
            raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip() or done.stdout.strip()}")

    def stepsim(self, command, *arguments, **options):
        self.tool(
            "sim/stepsim",
            *(command, self.configuration.path, "--steps", self.steps, *arguments),
            **options,
        )

    def train(self, net, name, runs, passes):
        """Trains `runs`, which are as train.py takes them, and removes the ranks' own records."""
        spec = {"threads": 1, "block": BLOCK, "passes": passes, "runs": runs}
        write_json(self.folder / f"{name}.json", spec)
        arguments = [self.folder / f"{name}.json"]
        ranks.run(net, TRAIN, arguments, self.folder / f"{name}.log", LIMIT_S)
        for run in runs:
            for part in pathlib.Path(run["record"]).parent.glob(
                pathlib.Path(run["record"]).name + ".rank*.jsonl"
            ):
                part.unlink()

    def run_of(self, policy, plan, record, cap_mib=DEFAULT_CAP_MIB, watch=False):
        paths = {"plan": str(plan), "record": str(self.folder / record)}
        return {"name": policy, **paths, "bucket_cap_mb": cap_mib, "watch": watch}

    # ---- calibration --------------------------------------------------------------------------

    def choose_policy(self):
        """Plans every policy that needs no costs and calibrates with the one of widest range."""
        policies = results.scenario_policies(self.configuration.path)
        plans = {}
        for policy in policies:
            if policy["kind"] != "planner":
                path = self.folder / "first_plans" / f"{policy['name']}.jsonl"
                path.parent.mkdir(exist_ok=True)
                self.stepsim("plan", "--policy", policy["name"], "--out", path, "--quiet")
                plans[policy["name"]] = read_lines(path)
        self.policy = widest(plans)
        self.tokens = statistics.fmean(mean_tokens(rows) for _, rows in plans.values())
        self.plan = self.folder / "first_plans" / f"{self.policy}.jsonl"
        self.runs = len(self.configuration.caps_mib) or len(policies)
        self.rank_count = plans[self.policy][0]["ranks"]

    def cut_plan(self, steps, name):
        """Writes the first steps of the calibration's plan as a plan and returns its path."""
        header, rows = read_lines(self.plan)
        path = self.folder / "first_plans" / name
        kept = [{**header, "steps": steps}] + [row for row in rows if row["step"] < steps]
        path.write_text("".join(json.dumps(row) + "\n" for row in kept), encoding="utf-8")
        return path

    def open_network(self, bits_per_second=None):
        if self.options.namespaces:
            return network.Network(self.rank_count, bits_per_second)
        return network.Loopback(self.rank_count)

    def probe(self):
        """Sets the link's rate and the number of steps and passes."""
        plan = self.cut_plan(PROBE_STEPS, "probe.jsonl")
        with self.open_network() as net:
            runs = [self.run_of(self.policy, plan, "probe", watch=True)]
            self.train(net, "probe", runs, 1)
        rows = read_lines(self.folder / "probe.jsonl")[1]
        step_s = self.expected_step_s(rows)
        self.gradient_bytes = sum(bucket["bytes"] for bucket in rows[-1]["buckets"])
        share = self.configuration.share
        self.rate = None
        if share is not None:
            self.rate = link_rate(share, self.gradient_bytes, step_s, self.rank_count)
            step_s /= 1 - share
        self.size_calibration(step_s)

    def expected_step_s(self, rows):
        """Returns the mean step over all policies, from recorded steps of one of them; steps are
        taken to be proportional to tokens."""
        return mean_step_s(rows) * self.tokens / mean_tokens(rows)

    def left(self):
        return self.seconds - (time.monotonic() - self.started)

    def size_calibration(self, step_s):
        """Sets the calibration's steps and passes to fit a third of the time, together with the
        all-reduces by size. Each step runs with and without bucket times."""
        fewest, most = CALIBRATION_PASSES[0], CALIBRATION_PASSES[-1]
        seconds = self.left() / 3 - SWEEP_S
        self.calibration_steps, _ = size_live(seconds, 2 * step_s, 1, fewest)
        pass_s = 2 * step_s * self.calibration_steps
        self.calibration_passes = max(fewest, min(most, round(CALIBRATION_S / pass_s)))
        rate = f", links of {self.rate / 1e6:.0f} Mbit/s" if self.rate else ""
        self.say(
            f"step about {step_s * 1e3:.0f} ms{rate}; calibration by "
            f"{self.calibration_steps} steps of {self.policy} x {self.calibration_passes} passes"
        )

    def size_live(self):
        """Sets the live run's steps and passes to fit the time left, by the calibration's steps."""
        step_s = self.expected_step_s(read_lines(self.folder / "calibration.jsonl")[1])
        seconds = max(5, self.left() - START_S)
        self.live_steps, self.passes = size_live(seconds, step_s, self.runs, self.options.passes)
        live_s = self.live_steps * self.passes * self.runs * step_s + START_S
        self.say(
            f"live: {self.runs} x {self.live_steps} steps x {self.passes} passes, step about "
            f"{step_s * 1e3:.0f} ms: {live_s:.0f} s"
        )

    def calibrate(self, net):
        self.say("all-reduce alone")
        most = 2 ** (2 * self.gradient_bytes - 1).bit_length()
        log = self.folder / "all_reduce.log"
        arguments = ["--seconds", 0.4, "--max-bytes", min(most, 2**27), "--out", log]
        ranks.run(net, ALL_REDUCE, arguments, self.folder / "all_reduce.out", LIMIT_S)
        self.say(f"calibration: training of {self.policy}")
        plan = self.cut_plan(self.calibration_steps, "calibration.jsonl")
        runs = [
            self.run_of(self.policy, plan, "calibration"),
            self.run_of(self.policy, plan, "calibration_watched", watch=True),
        ]
        self.train(net, "calibration_training", runs, self.calibration_passes)
        swept, profile = self.folder / "all_reduce.json", self.folder / "profile.json"
        self.tool("calibrate/stepcal", "import", "nccl-tests", log, "--profile", swept)
        record = self.folder / "calibration.jsonl"
        options = ["--plan", plan, "--profile", profile, "--base", swept]
        watched_record = self.folder / "calibration_watched.jsonl"
        self.tool("calibrate/stepcal", "import", "run-record", record, watched_record, *options)
        self.profile = profile

    # ---- predictions and the live run ---------------------------------------------------------

    def cases(self):
        """Returns (name, its --set arguments, bucket cap in MiB) of each column of predictions."""
        caps = self.configuration.caps_mib
        if not caps:
            return [("all", [], DEFAULT_CAP_MIB)]
        return [(f"cap{cap}", ["--set", f"ddp.bucket_cap={cap} MiB"], cap) for cap in caps]

    def predict(self):
        self.steps = self.live_steps
        plans = self.folder / "plans"
        self.stepsim("plan", "--profile", self.profile, "--out-dir", plans, "--quiet")
        written = []
        for name, sets, _ in self.cases():
            path = self.folder / f"predictions_{name}.json"
            self.stepsim("compare", *sets, "--profile", self.profile, "--json", path, "--quiet")
            written.append(path.stat().st_mtime)
        self.predictions_written = max(written)
        self.say(f"predictions on disk at {stamp(self.predictions_written)}")
        time.sleep(1)  # Records state their start in whole seconds, which must be later.

    def live(self, net):
        runs = [
            self.run_of(plan.stem, plan, f"live_{name}_{plan.stem}", cap_mib=cap)
            for name, _, cap in self.cases()
            for plan in sorted((self.folder / "plans").glob("*.jsonl"))
        ]
        before = processor_s()
        self.train(net, "live", runs, self.passes)
        self.other_load = other_load(before, processor_s())
        self.live_started = min(
            read_lines(f"{run['record']}.jsonl")[0]["started_at"] for run in runs
        )
        if stamp(self.predictions_written) >= self.live_started:
            raise RuntimeError("the predictions were not on disk before the live run")

    def validate(self):
        """Returns {bucket cap: stepsim's validation}."""
        validations = {}
        for name, sets, cap in self.cases():
            path = self.folder / f"validation_{name}.json"
            files = [
                *("--live", *sorted(self.folder.glob(f"live_{name}_*.jsonl"))),
                *("--predictions", self.folder / f"predictions_{name}.json"),
            ]
            more = ["--profile", self.profile, "--json", path, "--quiet"]
            self.stepsim("validate", *sets, *files, *more, statuses=(0, 1))
            validations[cap] = read_json(path)
        return validations

    def naive_ms(self):
        """Returns {policy: mean step in ms by the three-term fit to the calibration}."""
        header, rows = read_lines(self.folder / "calibration.jsonl")
        coefficients = naive.fit(rows, header["warmup_steps"])
        found = {}
        for path in (self.folder / "plans").glob("*.jsonl"):
            plan_header, plan = read_lines(path)
            found[path.stem] = naive.predict_ms(coefficients, plan, plan_header["warmup_steps"])
        return found

    def run(self):
        """Runs the configuration; writes and returns the result that the report is made from."""
        self.choose_policy()
        self.probe()
        with self.open_network(self.rate) as net:
            self.calibrate(net)
            self.size_live()
            self.predict()
            self.live(net)
        result = {
            **dataclasses.asdict(self.configuration),
            "ranks": self.rank_count,
            "gradient_bytes": self.gradient_bytes,
            "bits_per_second": self.rate,
            "namespaces": self.options.namespaces,
            "calibration_policy": self.policy,
            "steps": self.live_steps,
            "passes": self.passes,
            "other_load": self.other_load,
            "predictions_written": stamp(self.predictions_written),
            "live_started": self.live_started,
            **results.cells(self.validate(), self.naive_ms(), self.configuration.caps_mib),
        }
        write_json(self.folder / "result.json", result)
        self.say(results.one_line(result))
        return result


def parse_arguments():
    parser = argparse.ArgumentParser(
        prog="tests/live/campaign",
        description="Calibrates, predicts, trains real PyTorch DDP live and compares.",
    )
    names = [configuration.name for configuration in CONFIGURATIONS]
    parser.add_argument("--only", nargs="+", choices=names, metavar="NAME", help=", ".join(names))
    parser.add_argument("--out", default=str(ROOT / "tests" / "live"), help="RESULTS.md, records/")
    parser.add_argument("--work", default=str(ROOT / "build" / "live"), help="everything else")
    parser.add_argument("--build", default=str(ROOT / "build"), help="meson's build folder")
    parser.add_argument("--passes", type=int, help="passes of the live training; default: 4 to 12")
    parser.add_argument("--report", action="store_true", help="only write the report on --work")
    parser.add_argument("--quick", action="store_true", help="take a third of the time")
    return parser.parse_args()


def why_skipped(configuration, missing):
    if configuration.share is not None and missing:
        return f"limited links: {missing}"
    return None


def run_all(options):
    """Runs the chosen configurations; returns {name: reason} of those that did not run."""
    work, missing = pathlib.Path(options.work), network.missing()
    options.namespaces = missing is None
    chosen = [c for c in CONFIGURATIONS if not options.only or c.name in options.only]
    left_out = {}
    for number, configuration in enumerate(chosen):
        reason = why_skipped(configuration, missing)
        left = sum(c.seconds for c in chosen[number:]) / (3 if options.quick else 1)
        print(f"== {number + 1} of {len(chosen)}: {configuration.name}; {left / 60:.0f} min left")
        if reason is None:
            try:
                folder = work / configuration.name
                Campaign(configuration, pathlib.Path(options.build), folder, options).run()
            except RuntimeError as error:
                reason = str(error)
        if reason is not None:
            left_out[configuration.name] = reason
            print(f"left out: {configuration.name}: {reason}", file=sys.stderr, flush=True)
    return left_out


def with_drift(folder):
    """Returns a result with its drift: how much longer the calibration's steps took when live."""
    result = read_json(folder / "result.json")
    case = f"cap{DEFAULT_CAP_MIB}" if result["caps_mib"] else "all"
    live = folder / f"live_{case}_{result['calibration_policy']}.jsonl"
    header, before = read_lines(folder / "calibration.jsonl")
    drift = naive.drift(before, read_lines(live)[1], header["warmup_steps"])
    return {**result, "drift": drift}


def stop_at_signal(*_):
    raise KeyboardInterrupt


def main():
    options = parse_arguments()
    signal.signal(signal.SIGTERM, stop_at_signal)
    os.chdir(ROOT)
    try:
        left_out = {} if options.report else run_all(options)
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return 3
    out, work = pathlib.Path(options.out), pathlib.Path(options.work)
    found = [with_drift(path.parent) for path in sorted(work.glob("*/result.json"))]
    if not found:
        print("campaign: error: nothing ran", file=sys.stderr)
        return 3
    out.mkdir(parents=True, exist_ok=True)
    results.write_report(out / "RESULTS.md", found, left_out)
    size = results.pack_records(work, out / "records", [result["name"] for result in found])
    print(f"wrote {out / 'RESULTS.md'}; records: {size / 2**20:.1f} MiB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
