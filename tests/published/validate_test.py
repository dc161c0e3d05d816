#!/usr/bin/env python3
"""Compares VALIDATION.md, its picture and its CSV with what the programs predict now.

usage: validate_test.py PATH_OF_STEPSIM PATH_OF_STEPCAL
A difference writes NAME.new beside the file, and names the first rows that moved. STEPSIM_ACCEPT=1
rewrites the files; that counts as skipped, so that it never looks like a pass.
"""

import os
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE / "suite"), str(HERE.parent)]

import small_runner  # noqa: E402  (needs the path above)
import suite_files  # noqa: E402

STEPSIM, STEPCAL = (os.path.abspath(path) for path in sys.argv[1:3])


def moved(old, new):
    """The first lines in which two files differ."""
    pairs = [(a, b) for a, b in zip(old.splitlines(), new.splitlines()) if a != b]
    return "\n".join(f"- {a}\n+ {b}" for a, b in pairs[:5])


def test_the_page_is_what_the_programs_predict():
    data = suite_files.default_data()
    if not (data / "public_steps").exists():
        raise small_runner.Skip(f"no reference data at {data}")
    made = suite_files.made(STEPCAL, STEPSIM, data)
    wrong = []
    for name, text in made.items():
        path = HERE.parent / name
        if os.environ.get("STEPSIM_ACCEPT") == "1":
            path.write_text(text, encoding="utf-8")
            continue
        old = path.read_text(encoding="utf-8")
        if text != old:
            path.with_name(path.name + ".new").write_text(text, encoding="utf-8")
            wrong.append(f"differs: {path} and {path.name}.new\n{moved(old, text)}")
    if os.environ.get("STEPSIM_ACCEPT") == "1":
        raise small_runner.Skip(f"accepted {', '.join(made)}")
    assert not wrong, "\n".join(wrong)


if __name__ == "__main__":
    sys.exit(small_runner.main(globals()))
