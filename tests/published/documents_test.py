#!/usr/bin/env python3
"""Compares SHARDING.md, FSDP.md and FSDP.csv with what the program predicts now.

usage: documents_test.py STEPSIM QUIET_STEPS
A difference writes NAME.new beside the document. STEPSIM_ACCEPT=1 rewrites the documents; that counts
as skipped, so that it never looks like a pass.
"""

import os
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import fsdp_figures  # noqa: E402  (needs the path above)
import sharding  # noqa: E402
import small_runner  # noqa: E402

STEPSIM, QUIET_STEPS = (os.path.abspath(path) for path in sys.argv[1:3])
DATA = pathlib.Path(os.environ.get("STEPSIM_DATA", HERE.parents[2] / "shared" / "data"))


def compare(texts):
    wrong = []
    for name, text in texts.items():
        path = HERE / name
        if os.environ.get("STEPSIM_ACCEPT") == "1":
            path.write_text(text, encoding="utf-8")
        elif text != path.read_text(encoding="utf-8"):
            new = path.with_name(name + ".new")
            new.write_text(text, encoding="utf-8")
            wrong.append(f"differs: {path} and {new}")
    if os.environ.get("STEPSIM_ACCEPT") == "1":
        raise small_runner.Skip(f"accepted {', '.join(texts)}")
    assert not wrong, "\n".join(wrong)


def test_sharding():
    compare({"SHARDING.md": sharding.text(STEPSIM)})


def test_fsdp():
    if not (DATA / "public_steps").exists():
        raise small_runner.Skip(f"no reference data at {DATA}")
    compare(fsdp_figures.texts(QUIET_STEPS, DATA))


if __name__ == "__main__":
    sys.exit(small_runner.main(globals()))
