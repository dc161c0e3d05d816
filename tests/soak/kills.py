#!/usr/bin/env python3
"""Kills stepsim and stepcal at random moments and checks that nothing finished is lost.

    python3 tests/soak/kills.py BUILD --kills 1000 [--quickstart N] [--workers 2] [--seed 1] [--stage NAME…]

A trial starts one command in a fresh folder, sends SIGKILL to it (not to its ranks: they must end
with it) at a random moment of its usual time, and looks:
- no process of the trial is left after 3 s, and after the second run no temporary file;
- every file with a final name is whole: JSON parses, JSON Lines parse line by line, gzip unpacks;
  only a file to which lines are appended (samples, --resume) may end in a torn line;
- what an append-only file held at the kill is still in it after the same command ran again;
- that second run ends with status 0, and where a command has one right answer, its files are
  byte for byte those of a run that nobody disturbed.

With --quickstart N, scenarios/quickstart of a clone is killed N times as well, with all that it has
started, as when its terminal or container goes: each fourth time while it builds. A trial takes two
to four minutes there, one after another.

Prints a table by stage; exit status 1 when anything was lost.
"""

import argparse
import concurrent.futures
import contextlib
import gzip
import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCENARIO = str(ROOT / "scenarios/token_skew_2ranks.toml")
RECORD = str(ROOT / "scenarios/tour/random.jsonl")
APPENDED = {"samples.jsonl", "points.jsonl"}


class Stage:
    """One command. `exact`: its files do not depend on the run. `kept`: a file to which it appends."""

    def __init__(self, name, command, exact=True, kept=None):
        self.name, self.command, self.exact, self.kept = name, command, exact, kept
        self.usual_s = 0.0
        self.files = {}
        self.kills = self.late = 0
        self.faults = []

    def prepare(self, trial):
        """Makes what a trial needs in its folder, and returns that."""
        for part in ("run", "temporary"):
            (trial / part).mkdir(parents=True)
        return trial

    def folder(self, trial):
        """Where the command runs."""
        return trial / "run"

    def start(self, trial):
        out = open(trial / "output", "wb")
        environment = dict(os.environ, STEPSIM_TRIAL=str(trial), TMPDIR=str(trial / "temporary"))
        return subprocess.Popen(self.command, cwd=self.folder(trial), stdout=out, stderr=out, env=environment,
                                start_new_session=True)

    def kill(self, process):
        process.send_signal(signal.SIGKILL)

    def written(self, trial):
        """{name: path} of the files that the command has written."""
        folder = self.folder(trial)
        return {str(p.relative_to(folder)): p for p in sorted(folder.rglob("*")) if p.is_file()}


class Quickstart(Stage):
    """scenarios/quickstart in a clone that all its trials share."""

    def __init__(self, clone, builds):
        super().__init__("quickstart, building" if builds else "quickstart", ["scenarios/quickstart"], exact=False)
        self.clone, self.builds = clone, builds

    def prepare(self, trial):
        if not self.clone.exists():
            subprocess.run(["git", "clone", "-q", str(ROOT), str(self.clone)], check=True)
        shutil.rmtree(self.clone / ("build" if self.builds else "build/quickstart"), ignore_errors=True)
        return super().prepare(trial)

    def folder(self, trial):
        return self.clone

    def kill(self, process):
        with contextlib.suppress(ProcessLookupError):  # It has ended by itself.
            os.killpg(process.pid, signal.SIGKILL)

    def written(self, trial):
        folder = self.clone / "build/quickstart"
        return {str(p.relative_to(folder)): p for p in sorted(folder.rglob("*")) if p.is_file()}


def stages(build, inputs):
    stepsim, stepcal = str(build / "sim/stepsim"), str(build / "calibrate/stepcal")
    small = ["--model", "tiny-classifier", "--max-length", "64", "--max-tokens", "256", "--budget", "1"]
    return [
        Stage("stepsim plan", [stepsim, "plan", SCENARIO, "--steps", "3000", "--out-dir", "plans"]),
        Stage("stepsim compare", [stepsim, "compare", SCENARIO, "--steps", "2000", "--json", "compare.json", "--html", "compare.html"]),
        Stage("stepsim sweep", [stepsim, "sweep", SCENARIO, "--over", "ddp.bucket_cap=1MiB..64MiB:x2",
                                "--set", "scenario.steps=2000", "--resume", "points.jsonl", "--json", "sweep.json"], kept="points.jsonl"),
        Stage("stepsim trace", [stepsim, "trace", SCENARIO, "--steps", "40", "--out", "trace.json.gz"]),
        Stage("stepcal measure", [stepcal, "measure", *small, "--out", "samples.jsonl"], exact=False,
              kept="samples.jsonl"),
        Stage("stepcal fit", [stepcal, "fit", str(inputs / "samples.jsonl"), "--out", "profile.json"]),
        Stage("stepcal import", [stepcal, "import", "run-record", RECORD, "--profile", "recorded.json"]),
    ]


def prepare(build, inputs):
    """The samples that a stage reads."""
    stepcal = str(build / "calibrate/stepcal")
    subprocess.run([stepcal, "measure", "--model", "tiny-classifier", "--max-length", "64", "--max-tokens", "256",
                    "--budget", "2", "--out", str(inputs / "samples.jsonl")], check=True, stdout=subprocess.DEVNULL)


def text_of(path):
    return gzip.decompress(path.read_bytes()) if path.name.endswith(".gz") else path.read_bytes()


def comparable(name, data):
    """Without the times at which a file was made; points, which end in any order, sorted."""
    data = re.sub(rb"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?Z?", b"TIME", data)
    return sorted(data.splitlines()) if name == "points.jsonl" else data


def broken(path):
    """Why a file is not whole; empty when it is."""
    try:
        data = text_of(path)
        if path.name in APPENDED:
            data = data[: data.rfind(b"\n") + 1]
        if path.suffix == ".jsonl":
            for line in data.splitlines():
                json.loads(line)
            return "" if path.name in APPENDED or data.endswith(b"\n") else "no end of line"
        if ".json" in path.name:
            json.loads(data)
        elif path.suffix == ".html" and not data.rstrip().endswith(b"</html>"):
            return "no end of the page"
    except (ValueError, OSError, EOFError) as error:
        return str(error)
    return ""


def survivors(trial):
    """Processes of a trial that still run."""
    mark = f"STEPSIM_TRIAL={trial}".encode()
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if mark in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def killed(stage, trial, moment):
    """One kill and the run after it. Returns (whether it was running, list of faults)."""
    process = stage.start(trial)
    time.sleep(moment)
    was_running = process.poll() is None
    stage.kill(process)
    process.wait()
    deadline = time.monotonic() + 3
    while survivors(trial) and time.monotonic() < deadline:
        time.sleep(0.02)
    faults = [f"process {pid} is left" for pid in survivors(trial)]
    files = stage.written(trial)
    for name, path in files.items():
        why = broken(path)
        if name.endswith(".tmp"):
            faults.append(f"{name} is left behind")
        elif why:
            faults.append(f"{name} is half-written: {why}")
    kept = b""
    if stage.kept in files:
        data = files[stage.kept].read_bytes()
        kept = data[: data.rfind(b"\n") + 1]
    again = stage.start(trial)
    if again.wait() != 0:
        said = (trial / "output").read_text(errors="replace")[-300:]
        return was_running, [*faults, f"the second run ended with {again.returncode}: {said}"]
    after = stage.written(trial)
    faults += [f"{left.name} is left among the temporary files" for left in (trial / "temporary").iterdir()]
    if kept and not after[stage.kept].read_bytes().startswith(kept):
        faults.append(f"{stage.kept} lost what it held at the kill")
    for name, content in stage.files.items():
        if name not in after:
            faults.append(f"{name} is missing after the second run")
        elif broken(after[name]):
            faults.append(f"{name} is broken after the second run: {broken(after[name])}")
        elif stage.exact and comparable(name, text_of(after[name])) != comparable(name, content):
            faults.append(f"{name} differs from that of an undisturbed run")
    return was_running, faults


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--quickstart", type=int, default=0, help="so many kills of scenarios/quickstart")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--stage", nargs="*", default=[], help="only these, e.g. 'stepcal fit'")
    arguments = parser.parse_args()
    build = arguments.build.resolve()
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="stepsim-kills-") as root:
        work = pathlib.Path(root)
        inputs = work / "inputs"
        inputs.mkdir()
        prepare(build, inputs)
        chosen = [s for s in stages(build, inputs) if not arguments.stage or s.name in arguments.stage]
        slow = [Quickstart(work / "clone", builds) for builds in (True, False) if arguments.quickstart]
        for stage in chosen + slow:
            trial = stage.prepare(work / "undisturbed" / stage.name.replace(" ", "_"))
            at = time.monotonic()
            if stage.start(trial).wait() != 0:
                sys.exit(f"{stage.name} fails undisturbed: " + (trial / "output").read_text(errors="replace")[-2000:])
            stage.usual_s = time.monotonic() - at
            stage.files = {name: text_of(path) for name, path in stage.written(trial).items()}
        # Short commands are killed as often as long ones are, weighted a little to the short.
        rng = random.Random(arguments.seed)
        weights = [1 / (0.3 + stage.usual_s) for stage in chosen]
        order = rng.choices(chosen, weights, k=arguments.kills) if chosen else []
        jobs = [(number, stage, rng.uniform(0, 1.05 * stage.usual_s)) for number, stage in enumerate(order)]

        def run(job):
            number, stage, moment = job
            trial = stage.prepare(work / f"trial{number}")
            result = killed(stage, trial, moment)
            shutil.rmtree(trial)
            return stage, result

        def count(stage, was_running, faults):
            stage.kills += was_running
            stage.late += not was_running
            stage.faults += faults

        with concurrent.futures.ThreadPoolExecutor(arguments.workers) as pool:
            for stage, result in pool.map(run, jobs):
                count(stage, *result)
        for number in range(arguments.quickstart):
            stage = slow[0 if number % 4 == 0 else 1]
            result = run((len(jobs) + number, stage, rng.uniform(0, 1.05 * stage.usual_s)))
            print(f"{stage.name}: {result[1]}", file=sys.stderr, flush=True)
            count(stage, *result[1])
    print(f"{'stage':<20} {'usual s':>8} {'kills':>6} {'ended before':>13} {'faults':>7}")
    for stage in chosen + slow:
        print(f"{stage.name:<20} {stage.usual_s:>8.2f} {stage.kills:>6} {stage.late:>13} {len(stage.faults):>7}")
    total = sum(stage.kills for stage in chosen + slow)
    faults = [f"{stage.name}: {fault}" for stage in chosen + slow for fault in stage.faults]
    print(f"{total} kills in {time.monotonic() - begin:.0f} s, {len(faults)} faults")
    for fault in faults[:20]:
        print("  " + fault)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
