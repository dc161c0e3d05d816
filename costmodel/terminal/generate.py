"""Writes the shell completions and man pages of a program from its own help.

usage: generate.py PROGRAM FOLDER FILE…
PROGRAM --help-json states commands and options, one JSON object a line; the files are PROGRAM.bash,
_PROGRAM (zsh), PROGRAM.1 and PROGRAM-COMMAND.1. FILE… are those that the build expects: another
set is an error, so that a new command is not forgotten.
"""

import json
import pathlib
import subprocess
import sys

import completion
import man_page


def read_help(program):
    """(name of the program, help of each command and set by name) as the program states them."""
    text = subprocess.run([program, "--help-json"], check=True, capture_output=True, text=True)
    helps = [json.loads(line) for line in text.stdout.splitlines()]
    return helps[0]["command"], {one["command"]: one for one in helps}


def main(program, folder, expected):
    name, helps = read_help(program)
    files = {f"{name}.bash": completion.bash(name, helps), f"_{name}": completion.zsh(name, helps)}
    for command, one in helps.items():
        files[command.replace(" ", "-") + ".1"] = man_page.page(name, one, helps)
    if set(files) != set(expected):
        different = sorted(set(files) ^ set(expected))
        sys.exit(f"generate.py: the build and {name} --help-json differ in {', '.join(different)}")
    for file, text in files.items():
        (pathlib.Path(folder) / file).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
