"""Checks that Clang accepts the libraries and programs, with the warnings that GCC builds with.

usage: clang_test.py BUILD_FOLDER
Clang parses every source of costmodel, sim and calibrate that the build compiles, without making
code. It is skipped where no clang++ is installed.
"""

import pathlib
import shutil
import sys

import parsing
import small_runner

BUILD = pathlib.Path(sys.argv[1]).resolve()
CLANG = shutil.which("clang++-14") or shutil.which("clang++")


def test_clang_accepts_the_sources():
    if CLANG is None:
        raise small_runner.Skip("no clang++ is installed")
    chosen = [
        command
        for output, command in parsing.commands(BUILD).items()
        if output.startswith(("costmodel/", "sim/", "calibrate/"))
    ]
    assert len(chosen) >= 10, chosen
    failed = parsing.parse_all([CLANG], BUILD, chosen)
    assert not failed, "\n".join(failed)


if __name__ == "__main__":
    sys.exit(small_runner.main(globals()))
