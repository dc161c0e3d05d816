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
    """Of a build with unity each library is read at once, as it is compiled: a quarter of the time of
    its sources one by one. A file that includes sources is suspicious to a check that is left out for
    it, and a using-declaration that nothing needs is only found in a source that is read alone."""
    tidy = [tool("clang-tidy"), "--quiet", "--checks=-bugprone-suspicious-include"]
    checked = {
        output: [*tidy, str(BUILD / file), "--", *arguments]
        for output, (file, arguments) in parsing.commands(BUILD).items()
        if output.startswith(("costmodel/", "sim/", "calibrate/"))
    }
    assert len(checked) >= 20, len(checked)
    failed = parsing.run_all(BUILD, checked)
    assert not failed, "\n".join(failed)


if __name__ == "__main__":
    sys.exit(small_runner.main(globals()))
