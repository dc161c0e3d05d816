#!/usr/bin/env python3
"""Makes the folder for a GPU machine, and starts its programs where Debian's libraries are hidden; no GPU.

usage: bundle_test.py
It builds in build-bundle/ of the sources, some five minutes the first time.
"""

import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests"))
import small_runner  # noqa: E402  (needs the path above)

CUDA = ROOT / "calibrate" / "cuda"


def test_the_folder_needs_no_library_of_debian():
    # Root alone may hide the libraries of this machine from a program.
    hides = shutil.which("unshare") and subprocess.run(["unshare", "-m", "true"], check=False).returncode == 0
    only = [] if hides else ["--libraries-only"]
    with tempfile.TemporaryDirectory() as folder:
        small_runner.run(CUDA / "bundle", folder, "--architecture", "90", timeout=3000)
        said = small_runner.output(CUDA / "check_bundle", folder, *only)
        if not only:
            assert said.count("ok    ") >= 6, said


if __name__ == "__main__":
    sys.exit(small_runner.main(globals()))
