"""Checks that Clang accepts the libraries and programs, with the warnings that GCC builds with.

usage: clang_test.py BUILD_FOLDER
Clang parses every source of costmodel, sim and calibrate that the build compiles, without making
code. It is skipped where no clang++ is installed.
"""

import concurrent.futures
import json
import os
import pathlib
import shlex
import shutil
import subprocess
import sys

import small_runner

BUILD = pathlib.Path(sys.argv[1]).resolve()
CLANG = shutil.which("clang++-14") or shutil.which("clang++")
# What GCC alone knows, and what is only about code.
LEFT_OUT = ("-Wno-restrict", "-Wno-subobject-linkage", "-Wno-maybe-uninitialized", "-O", "-c", "-MD")
LEFT_OUT_WITH_VALUE = ("-o", "-MF", "-MQ")


def parsing_arguments(command):
    """Returns the arguments of a compiler's command that matter to who only parses."""
    words = shlex.split(command)
    words = iter(words[next(i for i, word in enumerate(words) if word.startswith("-")) :])
    kept = []
    for word in words:
        if word in LEFT_OUT_WITH_VALUE:
            next(words)
        elif not word.startswith(LEFT_OUT):
            kept.append(word)
    return kept


def commands():
    """Returns (file, arguments) of each source that belongs to the product."""
    entries = json.loads((BUILD / "compile_commands.json").read_text(encoding="utf-8"))
    return [
        (entry["file"], parsing_arguments(entry["command"]))
        for entry in entries
        if entry["output"].startswith(("costmodel/", "sim/", "calibrate/"))
        and entry["output"].endswith(".cpp.o")
    ]


def parse(command):
    file, arguments = command
    done = subprocess.run(
        [CLANG, "-fsyntax-only", *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=BUILD,
    )
    return f"{file}\n{done.stderr}" if done.returncode != 0 else ""


def test_clang_accepts_the_sources():
    if CLANG is None:
        raise small_runner.Skip("no clang++ is installed")
    chosen = commands()
    assert len(chosen) >= 10, chosen
    with concurrent.futures.ThreadPoolExecutor(min(2, os.cpu_count() or 1)) as pool:
        failed = [text for text in pool.map(parse, chosen) if text]
    assert not failed, "\n".join(failed)


if __name__ == "__main__":
    sys.exit(small_runner.main(globals()))
