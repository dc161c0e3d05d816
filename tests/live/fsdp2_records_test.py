#!/usr/bin/env python3
"""Holds what DDP's steps say of FSDP2's (FSDP2.md) to its figures.

usage: fsdp2_records_test.py STEPCAL STEPSIM
"""

import os
import pathlib
import statistics
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import fsdp2_records  # noqa: E402  (needs the path above)
import small_runner  # noqa: E402

STEPCAL, STEPSIM = (os.path.abspath(path) for path in sys.argv[1:3])
DATA = pathlib.Path(os.environ.get("STEPSIM_DATA", HERE.parents[2] / "shared" / "data")) / "fsdp2"
MOST = {"ddp": 0.03, "fsdp": 0.07, "fsdp_keep": 0.035, "fsdp_async": 0.1}


def test_ddp_steps_tell_those_of_fsdp2():
    if not DATA.exists():
        raise small_runner.Skip(f"no reference data at {DATA}")
    errors = {variant: [] for variant in MOST}
    for policy, variant, step, times in fsdp2_records.rows(STEPCAL, STEPSIM, DATA):
        mean = statistics.fmean(times)
        low, high = step["interval90_same_hour"]
        assert low <= mean <= high, (policy, variant, step, mean)
        errors[variant].append(abs(step["mean"] / mean - 1))
    for variant, found in errors.items():
        assert len(found) == 4 and statistics.fmean(found) < MOST[variant], (variant, found)


if __name__ == "__main__":
    sys.exit(small_runner.main(globals()))
