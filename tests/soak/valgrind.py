#!/usr/bin/env python3
"""Runs a sample of commands under valgrind: no read of what was never written, none out of bounds.

    python3 tests/soak/valgrind.py BUILD

Sanitizers see what they were compiled into; valgrind also sees zlib, fmt and the C++ library. The
CPU backend is left out: it is built for this processor, and valgrind knows no AVX-512. Prints a line
a command with its seconds and ends with `N commands under valgrind, N faults`.
"""

import pathlib
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
SKEW = f"{ROOT}/scenarios/token_skew_2ranks.toml"
VALLEY = f"{ROOT}/scenarios/bucket_valley.toml"
CORPUS = ROOT / "tests/fuzz/corpus"
FAULT = 99  # The exit status that valgrind gives a program with a fault.
COMMANDS = [
    f"stepsim compare {SKEW} --steps 4 --json compare.json --html compare.html",
    f"stepsim run {SKEW} --policy bucketing --steps 4 --csv run.csv",
    f"stepsim blame {SKEW} --policy bucketing --steps 4",
    f"stepsim sweep {VALLEY} --over ddp.bucket_cap=25MiB,100MiB --steps 4 --resume points.jsonl",
    f"stepsim buckets {VALLEY} --best",
    f"stepsim trace {SKEW} --policy bucketing --steps 2..3 --out trace.json.gz",
    f"stepsim lengths {ROOT}/scenarios/sst2_distilbert.toml",
    f"stepsim ladder {SKEW} --shape-cost 5ms --steps 4",
    f"stepsim plan {SKEW} --out-dir plans --steps 4",
    f"stepsim replay {ROOT}/scenarios/replay",
    f"stepsim advise {ROOT}/scenarios/tour/random.jsonl",
    f"stepcal import run-record {ROOT}/scenarios/tour/random.jsonl --profile mine.json",
    f"stepsim validate {ROOT}/scenarios/tour/tour.toml --live {ROOT}/scenarios/tour/bucketed.jsonl"
    " --profile mine.json --bound 100",
    f"stepcal fit --samples {CORPUS}/samples/steps.jsonl --out fitted.json",
    f"stepcal import nccl-tests {CORPUS}/nccl_log/plain.txt --profile net.json",
    f"stepcal import kineto {CORPUS}/kineto/one.json.gz --program step",
    f"stepcal import step-times {CORPUS}/tables/steps.csv --preset bert-base --out job.json --scenario job.toml",
    f"stepcal grid plans/bucketing.jsonl --out shapes.json",
]
REFUSED = [
    "stepsim compare no_such.toml",
    f"stepsim compare {SKEW} --set cluster.ranks=none",
    f"stepcal import nccl-tests {CORPUS}/nccl_log/labels.txt --profile net.json",
]


def main():
    build = pathlib.Path(sys.argv[1]).resolve()
    programs = {"stepsim": build / "sim/stepsim", "stepcal": build / "calibrate/stepcal"}
    faults = 0
    with tempfile.TemporaryDirectory() as folder:
        for command in COMMANDS + REFUSED:
            name, *arguments = command.split()
            begin = time.monotonic()
            done = subprocess.run(
                ["valgrind", "-q", "--trace-children=yes", f"--error-exitcode={FAULT}",
                 f"--suppressions={ROOT}/tests/soak/valgrind.supp", programs[name], *arguments],
                cwd=folder, capture_output=True, text=True, errors="replace", timeout=1800)
            fault = "==" in done.stderr or done.returncode != (2 if command in REFUSED else 0)
            faults += fault
            print(f"{'FAULT' if fault else 'ok   '} {time.monotonic() - begin:6.1f} s  status {done.returncode:<3} "
                  f"{command.replace(str(ROOT) + '/', '')}", flush=True)
            if fault:
                print(done.stderr)
    print(f"{len(COMMANDS + REFUSED)} commands under valgrind, {faults} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
