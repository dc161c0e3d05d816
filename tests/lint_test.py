"""Checks that all C++ is formatted by clang-format, and that clang-tidy finds nothing in the program.

usage: lint_test.py BUILD_FOLDER
Of version 14 both, since others format and find other things; skipped where they are not installed.
"""

import pathlib
import re
import shutil
import subprocess
import sys

import parsing
import small_runner

BUILD = pathlib.Path(sys.argv[1]).resolve()
VERSION = 14
SUFFIXES = (".cpp", ".h", ".cu", ".cuh")


def tool(name):
    """The path of a tool of the right version. Raises Skip."""
    for path in (shutil.which(f"{name}-{VERSION}"), shutil.which(name)):
        if path is not None:
            told = subprocess.run([path, "--version"], capture_output=True, text=True, check=True).stdout
            if re.search(rf"version {VERSION}\.", told):
                return path
    raise small_runner.Skip(f"no {name} {VERSION} is installed")


def test_sources_are_formatted():
    command = ["git", "-C", str(parsing.ROOT), "ls-files"]
    try:
        listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    except (OSError, subprocess.CalledProcessError) as error:
        raise small_runner.Skip(f"this is no clone, or git is not installed ({error})") from error
    files = [str(parsing.ROOT / name) for name in listed if name.endswith(SUFFIXES)]
    assert len(files) >= 600, len(files)
    command = [tool("clang-format"), "--dry-run", "--Werror"]
    failed = parsing.run_all(BUILD, {f"part {i}": [*command, *files[i::8]] for i in range(8)})
    assert not failed, "\n".join(failed)


def test_clang_tidy_finds_nothing():
    tidy = tool("clang-tidy")
    sources = {
        name: arguments
        for name, arguments in parsing.sources(BUILD).items()
        if name.startswith(("costmodel/", "sim/", "calibrate/"))
    }
    assert len(sources) >= 250, len(sources)
    checked = {
        name: [tidy, "--quiet", str(parsing.ROOT / name), "--", *arguments]
        for name, arguments in sorted(sources.items())
    }
    failed = parsing.run_all(BUILD, checked)
    assert not failed, "\n".join(failed)


if __name__ == "__main__":
    sys.exit(small_runner.main(globals()))
