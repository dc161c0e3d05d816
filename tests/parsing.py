"""Parses the sources of a build with a compiler that makes no code."""

import concurrent.futures
import json
import os
import pathlib
import re
import shlex
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent
# What GCC alone knows, and what is only about code.
LEFT_OUT = ("-Wno-restrict", "-Wno-subobject-linkage", "-Wno-maybe-uninitialized", "-O", "-c", "-MD", "--param")
# A precompiled header would lend a source what it does not include.
LEFT_OUT_WITH_VALUE = ("-o", "-MF", "-MQ", "-include", "-include-pch")
UNITED = re.compile(r'^#include\s*[<"](.+)[>"]', re.MULTILINE)


def parsing_arguments(command):
    """Returns the arguments of a compiler's command that matter to who only parses; not the file."""
    words = shlex.split(command)
    words = iter(words[next(i for i, word in enumerate(words) if word.startswith("-")) : -1])
    kept = []
    for word in words:
        if word in LEFT_OUT_WITH_VALUE:
            next(words)
        elif not word.startswith(LEFT_OUT):
            kept.append(word)
    return kept


def commands(build):
    """Returns {output: (file, arguments)} of what the build compiles with the C++ compiler; the file
    of a build with unity may be one that includes many. Paths are relative to the build folder."""
    entries = json.loads((build / "compile_commands.json").read_text(encoding="utf-8"))
    return {
        entry["output"]: (entry["file"], parsing_arguments(entry["command"]))
        for entry in entries
        if entry["output"].endswith(".cpp.o")
    }


def sources(build):
    """Returns {source: arguments} of every source of ours, by its path from the root. One that is
    in several programs has the arguments of the first of them."""
    found = {}
    for file, arguments in commands(build).values():
        path = build / file
        united = "-unity" in path.name
        for one in UNITED.findall(path.read_text(encoding="utf-8")) if united else [path]:
            source = os.path.relpath(build / one, ROOT)
            if (ROOT / source).exists() and not (ROOT / source).is_relative_to(build):
                found.setdefault(source, arguments)
    return found


def run_all(build, commands):
    """Runs {name: command} in the build folder, two at a time. Returns what those printed that failed."""

    def run(named):
        name, command = named
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=build)
        return f"{name}\n{done.stdout}{done.stderr}" if done.returncode != 0 else ""

    with concurrent.futures.ThreadPoolExecutor(min(2, os.cpu_count() or 1)) as pool:
        return [text for text in pool.map(run, commands.items()) if text]


def parse_all(compiler, build, files):
    """Parses [(file, arguments)]. Returns what the compiler said of those that it refused."""
    return run_all(
        build,
        {str(file): [*compiler, "-fsyntax-only", *arguments, str(file)] for file, arguments in files},
    )
