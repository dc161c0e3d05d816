#!/usr/bin/env python3
"""Runs stepsim and stepcal where machines are unkind, and prints what they say and their exit status.

    python3 tests/soak/hardship.py BUILD

A full disk, read-only and missing folders, a pipe that closes, two processes on one file, a clock
that jumps back, other locales and time zones, odd paths. Each line says what was expected and
whether it came. Needs root for the mounts, faketime for the clock and a German locale; what is not
there is counted as skipped. Ends with `N passed, N failed, N skipped`.
"""

import os
import pathlib
import shlex
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCENARIO = str(ROOT / "scenarios/token_skew_2ranks.toml")
SMALL = "--model tiny-classifier --max-length 64 --max-tokens 256 --budget 1"


class Hardship:
    def __init__(self, build, work):
        self.stepsim = shlex.quote(str(build / "sim/stepsim"))
        self.stepcal = shlex.quote(str(build / "calibrate/stepcal"))
        self.work = work
        self.counts = {"passed": 0, "failed": 0, "skipped": 0}

    def shell(self, command, **environment):
        line = command.replace("STEPSIM", self.stepsim).replace("STEPCAL", self.stepcal)
        done = subprocess.run(["bash", "-c", line], cwd=self.work, capture_output=True, timeout=300,
                              env={**os.environ, **environment})
        return done.returncode, (done.stdout + done.stderr).decode(errors="replace")

    def expect(self, what, command, status, text, **environment):
        code, said = self.shell(command, **environment)
        right = code == status and text in said
        line = next((one for one in reversed(said.splitlines()) if text in one), said[-160:])
        self.counts["passed" if right else "failed"] += 1
        print(f"{'ok    ' if right else 'FAILED'} {what:<44} status {code}  {line.strip()[:150]}", flush=True)

    def same(self, what, command, other, **environment):
        """The command's output in this environment is that of the other command."""
        here, there = self.shell(command, **environment), self.shell(other)
        right = here == there and here[0] == 0
        self.counts["passed" if right else "failed"] += 1
        print(f"{'ok    ' if right else 'FAILED'} {what:<44} status {here[0]}  {'same output' if right else 'differs'}")

    def skip(self, what, why):
        self.counts["skipped"] += 1
        print(f"skip   {what:<44} {why}")


def disks(hard):
    mount = "mkdir -p small && mount -t tmpfs -o size=4k none small && "
    if os.geteuid() != 0 or hard.shell("unshare -m true")[0] != 0:
        hard.skip("full and read-only disks", "needs root for mounts")
        return
    for what, command in [
        ("a page", f"STEPSIM compare {SCENARIO} --html small/page.html"),
        ("JSON", f"STEPSIM compare {SCENARIO} --json small/answer.json"),
        ("a trace", f"STEPSIM trace {SCENARIO} --out small/trace.json"),
        ("samples", f"STEPCAL measure {SMALL} --out small/samples.jsonl"),
    ]:
        inner = shlex.quote(mount + command.replace("STEPSIM", hard.stepsim).replace("STEPCAL", hard.stepcal) +
                            "; code=$?; ls -A small | sed 's/^/left: /'; exit $code")
        hard.expect(f"a full disk: {what}", f"unshare -m bash -c {inner}", 3, "No space left on device")
    inner = shlex.quote("mkdir -p fixed && mount -t tmpfs -o ro none fixed && " +
                        f"{hard.stepsim} compare {SCENARIO} --json fixed/answer.json")
    hard.expect("a read-only disk", f"unshare -m bash -c {inner}", 3, "Read-only file system")


def files(hard):
    hard.expect("a folder that is not there", f"STEPSIM compare {SCENARIO} --json none/answer.json", 3,
                "No such file or directory")
    if os.geteuid() == 0:
        open_to_all = "chmod -R a+rX . && mkdir -p mine && chmod 700 mine && "
        command = shlex.quote(f"{hard.stepsim} compare {SCENARIO} --json mine/answer.json")
        code, _ = hard.shell(f"setpriv --reuid 65534 {hard.stepsim} --version")
        if code == 0:
            hard.expect("no permission", f"{open_to_all} setpriv --reuid 65534 --clear-groups bash -c {command}", 3,
                        "Permission denied")
        else:
            hard.skip("no permission", "nobody may not run this build")
    hard.expect("a pipe that closes", f"set -o pipefail; STEPSIM plan {SCENARIO} --json - 2>/dev/null | head -c 1 "
                ">/dev/null; STEPSIM compare " + SCENARIO + " | head -n 1", 0, "")
    hard.expect("two stepcal on one samples file",
                f"STEPCAL measure {SMALL} --out two.jsonl >/dev/null 2>&1 & sleep 0.7; "
                f"STEPCAL measure {SMALL} --out two.jsonl; code=$?; wait; exit $code", 2, "another process is writing it")
    hard.expect("two sweeps on one --resume file",
                f"for i in 1 2 3 4 5 6; do STEPSIM sweep {SCENARIO} --set scenario.steps=20000 --over "
                "ddp.bucket_cap=1MiB..64MiB:x2 --resume one.jsonl >/dev/null 2>>said & done; wait; cat said; ", 0,
                "another process is writing it")
    hard.expect("two pages under one name",
                f"for i in 1 2 3 4; do STEPSIM compare {SCENARIO} --html one.html >/dev/null & done; wait; "
                "tail -c 8 one.html; ls -A | grep -c tmp; true", 0, "</html>")


def paths(hard):
    for what, name in [("a path with spaces and quotes", b"a b 'c' \"d\""), ("a path that is not UTF-8", b"\xff\xfe"),
                       ("a path of 4,000 characters", b"/".join([b"x" * 200] * 19))]:
        folder = os.path.join(os.fsencode(hard.work), name)
        os.makedirs(folder, exist_ok=True)
        done = subprocess.run([hard.stepsim, "plan", SCENARIO, "--out-dir", "plans"], cwd=folder, capture_output=True)
        live = subprocess.run([hard.stepsim, "compare", SCENARIO, "--json", os.path.join(folder, b"answer.json")],
                              cwd=folder, capture_output=True)
        right = done.returncode == 0 and live.returncode == 0 and os.path.exists(os.path.join(folder, b"answer.json"))
        hard.counts["passed" if right else "failed"] += 1
        said = (done.stderr + live.stderr).decode(errors="replace")[-120:].strip()
        print(f"{'ok    ' if right else 'FAILED'} {what:<44} status {done.returncode} {live.returncode}  {said}")
    long = "n" * 300
    hard.expect("a file name that is too long", f"STEPSIM compare {SCENARIO} --json {long}.json", 3, "File name too long")


def places(hard):
    command = f"STEPSIM compare {SCENARIO} --json -"
    have = hard.shell("locale -a")[1]
    german = next((one for one in have.split() if one.lower().startswith("de_de.utf")), None)
    if german:
        hard.same("a locale with decimal commas", command, command, LC_ALL=german)
    else:
        hard.skip("a locale with decimal commas", "no de_DE: localedef -i de_DE -f UTF-8 de_DE.UTF-8")
    for zone in ("Asia/Kathmandu", "Pacific/Apia"):
        hard.same(f"the time zone {zone}", command, command, TZ=zone)
    if shutil.which("faketime"):
        hard.expect("a clock that jumps back an hour while measuring",
                    f"STEPCAL measure {SMALL} --out clock.jsonl && faketime -f -1h {hard.stepcal} measure {SMALL} --out "
                    "clock.jsonl && STEPCAL fit clock.jsonl --out clock.json", 0, "wrote")
    else:
        hard.skip("a clock that jumps back", "no faketime")


def main():
    build = pathlib.Path(sys.argv[1]).resolve() if len(sys.argv) == 2 else sys.exit(__doc__)
    with tempfile.TemporaryDirectory(prefix="stepsim-hardship-") as work:
        hard = Hardship(build, pathlib.Path(work))
        for part in (disks, files, paths, places):
            part(hard)
    print("{passed} passed, {failed} failed, {skipped} skipped".format(**hard.counts))
    return 1 if hard.counts["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
