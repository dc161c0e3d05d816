"""check_gpu killed at ten random points: its archive holds everything up to then.

usage: check_gpu_kill_test.py STEPCAL_EMULATED STEPSIM TEST_CUDA_EMULATED

The stage is killed with its process group, as a machine that is taken away ends. What was written
before the archive's last period must be in it, whole files and the beginnings of growing ones.
"""

import contextlib
import os
import pathlib
import random
import signal
import subprocess
import sys
import tarfile
import tempfile
import time

import rehearsal

KILLS = 10
# Stages in turn, and the latest second to kill each: most of what it takes.
STAGES = {"steps": 10.0, "smoke": 6.0, "torch": 4.0, "kernels": 2.0}
PERIOD_S = 0.5
# For packing, on a machine that does other things as well.
SLACK_S = 3.0
SEED = 19

failures = []


def check(condition, text):
    print(("ok    " if condition else "FAIL  ") + text, flush=True)
    if not condition:
        failures.append(text)


def archived(archive):
    with tarfile.open(archive) as packed:
        return {
            member.name.split("/", 1)[1]: packed.extractfile(member).read()
            for member in packed
            if member.isfile()
        }


def lost_files(files, work, killed):
    """Files that were there before the last archive was due and differ from their copy in it."""
    lost = []
    for path in sorted(work.rglob("*")):
        name = str(path.relative_to(work))
        if not path.is_file() or name.startswith("."):
            continue
        copy = files.get(name, b"")
        if not path.read_bytes().startswith(copy):
            lost.append(f"{name} (damaged)")
        elif path.stat().st_mtime < killed - PERIOD_S - SLACK_S and copy != path.read_bytes():
            lost.append(name)
    return lost


def kill_after(seconds, stage, folder, out, work):
    """Starts the stage and kills it with all it has started. Returns when it was killed."""
    with subprocess.Popen(
        [folder / "check_gpu", stage, out],
        env=rehearsal.environment(work, PERIOD_S),
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    ) as process:  # fmt: skip
        time.sleep(seconds)
        killed = time.time()
        with contextlib.suppress(ProcessLookupError):  # It was faster.
            os.killpg(process.pid, signal.SIGKILL)
    return killed


def check_fit(stepcal, archives, folder):
    """The samples of a calibration that was killed are fitted with what there is."""
    for archive in archives:
        samples = archived(archive).get("samples.jsonl", b"")
        if samples.count(b'"kind":"step"') > 1:
            (folder / "samples.jsonl").write_bytes(samples)
            fitted = subprocess.run(
                [stepcal, "fit", folder / "samples.jsonl", "--out", folder / "profile.json"],
                capture_output=True, text=True, check=False)  # fmt: skip
            lines = samples.count(b"\n")
            check(fitted.returncode == 0, f"{lines} lines of a killed calibration are fitted")


with tempfile.TemporaryDirectory() as name:
    top = pathlib.Path(name)
    rehearsal.make_bundle(top / "bundle", *sys.argv[1:4])
    draw = random.Random(SEED)
    for number in range(KILLS):
        stage, latest = list(STAGES.items())[number % len(STAGES)]
        seconds = draw.uniform(0.2, latest)
        out, work = top / f"out{number}", top / f"work{number}"
        killed = kill_after(seconds, stage, top / "bundle", out, work)
        archive = out / f"{stage}.tar.gz"
        if seconds < PERIOD_S + SLACK_S and not archive.exists():
            check(True, f"{stage} killed after {seconds:.1f} s, before the first archive was due")
            continue
        files = archived(archive)
        lost = lost_files(files, work / stage, killed)
        parts = files.get("parts.tsv", b"").decode().splitlines()[1:]
        age = killed - archive.stat().st_mtime
        check(not lost, f"{stage} killed after {seconds:.1f} s in part {len(parts) + 1}, {len(files)} files in the "
              f"archive of {age:.1f} s before {lost or ''}")  # fmt: skip
    check_fit(sys.argv[1], sorted(top.glob("out*/steps.tar.gz")), top)

print(f"{len(failures)} failed")
sys.exit(1 if failures else 0)
