#!/usr/bin/env python3
"""What runs inside PyTorch, under several of its versions.

A VERSION is one of the package index ("2.9.1"), "newest", or "system" for the Python that has it
already. Each of the others gets a virtual environment in $STEPSIM_TORCH, else /var/tmp/stepsim-torch,
which is kept for the next run (some 6 GB each; to begin anew, remove it). PYTHON_FOLDER holds the
package as it was built. Prints version x part: tests passed, failed, skipped, and the seconds.
"""

import argparse
import os
import pathlib
import re
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
for name in ("stepcal", "stepsim", "python_folder"):
    parser.add_argument(name, type=os.path.abspath)
parser.add_argument("versions", nargs="+")
parser.add_argument("--parts", help="which, by commas; default: all")
OPTIONS = parser.parse_args()
STEPCAL, STEPSIM, PYTHON_FOLDER = OPTIONS.stepcal, OPTIONS.stepsim, OPTIONS.python_folder
ENVIRONMENTS = pathlib.Path(os.environ.get("STEPSIM_TORCH", "/var/tmp/stepsim-torch"))
# The package is built with Debian's pybind11, which cannot read the arrays of NumPy 2; that the one
# which pip builds can is what the test `pip install` shows.
PACKAGES = ["numpy<2", "transformers"]
LIMIT_S = 1800

PARTS = {
    "recorder": ["calibrate/torch/torch_recorder_test.py", STEPSIM],
    "calibration": ["calibrate/torch/torch_calibrate_test.py", STEPCAL, STEPSIM],
    "ops, live runs": ["calibrate/torch/torch_measure_test.py", STEPCAL, STEPSIM],
    "all-reduces": ["calibrate/torch/torch_all_reduce_test.py", STEPCAL],
    "units (FSDP2)": ["calibrate/torch/torch_units_live_test.py", STEPCAL],
    "traces": ["calibrate/torch/torch_trace_test.py", STEPCAL, STEPSIM],
    "BatchSampler": ["python/sampler_test.py"],
    "Advisor": ["python/advisor_test.py", PYTHON_FOLDER],
    "transformers": ["calibrate/torch/torch_transformers_test.py", STEPCAL, STEPSIM],
    "modules": ["python/torch_modules_test.py"],
    "cost file": ["calibrate/export/cost_file_test.py", STEPCAL, STEPSIM],
}


def python_of(version):
    """The Python of an environment with this PyTorch, made where it is not there yet."""
    if version == "system":
        return "/usr/bin/python3"
    folder = ENVIRONMENTS / version
    python = folder / "bin" / "python"
    done = folder / "complete"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    if not done.exists() or done.read_text(encoding="utf-8") != str(PACKAGES) or version == "newest":
        torch = "torch" if version == "newest" else f"torch=={version}"
        command = [str(python), "-m", "pip", "install", "--quiet", "--upgrade", torch, *PACKAGES]
        subprocess.run(command, check=True)
        done.write_text(str(PACKAGES), encoding="utf-8")
    return str(python)


def count(text):
    """(passed, failed, skipped) of a test's last line, and the names of those that failed."""
    found = re.findall(r"(\d+) passed, (\d+) failed, (\d+) skipped", text)
    failed = re.findall(r"^FAILED:? (\S+)", text, re.MULTILINE)
    return tuple(int(number) for number in found[-1]) if found else None, failed


def run_part(python, arguments):
    environment = {**os.environ, "PYTHONPATH": PYTHON_FOLDER}
    command = [python, str(ROOT / "tests" / arguments[0]), *arguments[1:]]
    begin = time.monotonic()
    try:
        done = subprocess.run(
            command,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        text = done.stdout
    except subprocess.TimeoutExpired as error:
        text = (error.stdout or b"").decode(errors="replace") + f"\nFAILED: longer than {LIMIT_S} s\n"
    counts, failed = count(text)
    return counts or (0, 1, 0), failed, time.monotonic() - begin, text


def main():
    total = [0, 0, 0]
    for version in OPTIONS.versions:
        try:
            python = python_of(version)
            told = [python, "-c", "import torch; print(torch.__version__)"]
            name = subprocess.run(told, capture_output=True, text=True, check=True).stdout.strip()
        except (OSError, subprocess.CalledProcessError) as error:
            reason = f"no environment with PyTorch {version}: {error}"
            print(f"SKIPPED: {reason}", flush=True)
            total[2] += 1
            continue
        for part in OPTIONS.parts.split(",") if OPTIONS.parts else PARTS:
            arguments = PARTS[part]
            counts, failed, seconds, text = run_part(python, arguments)
            total = [have + more for have, more in zip(total, counts)]
            passed, wrong, skipped = counts
            line = f"PyTorch {name:16} {part:16} {passed:4} passed {wrong:3} failed {skipped:3} skipped"
            print(f"{line} {seconds:6.0f} s {' '.join(failed)}", flush=True)
            for reason in re.findall(r"^SKIPPED.*", text, re.MULTILINE):
                print(f"    {reason}")
            if wrong:
                print(text[-6000:])
    print("{} passed, {} failed, {} skipped".format(*total))
    return 1 if total[1] else 0


if __name__ == "__main__":
    sys.exit(main())
