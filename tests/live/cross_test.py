#!/usr/bin/env python3
"""Holds what policies' records say of one another (CROSS.md) to its figures.

usage: cross_test.py STEPCAL STEPSIM
"""

import os
import pathlib
import sys

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parent), str(pathlib.Path(__file__).resolve().parents[1])]

import cross  # noqa: E402  (needs the path above)
import small_runner  # noqa: E402

STEPCAL, STEPSIM = (os.path.abspath(path) for path in sys.argv[1:3])


def test_records_predict_one_another():
    rows = cross.all_rows(STEPCAL, STEPSIM)
    for ranks, count in ((2, 252), (4, 60)):
        found = cross.summary([row for row in rows if cross.ranks_of(row) == ranks])
        assert found["n"] == count, (ranks, found)
        assert found["mean"] < 0.033 and found["worst"] < 0.13, (ranks, found)
        assert found["covered"] >= 0.92 and found["half_width"] < 0.08, (ranks, found)
    for group in cross.GROUPS:
        found = cross.summary([row for row in rows if row["group"] == group])
        assert found["covered"] >= 0.83, (group, found)


if __name__ == "__main__":
    sys.exit(small_runner.main(globals()))
