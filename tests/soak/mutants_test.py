"""Checks that every fault of mutants.txt can be planted into the sources as they are today.

usage: mutants_test.py
A source that is moved or rewritten takes its faults along: a list of which a part cannot be planted is
noticed only by who runs it, which takes an hour and happens before a release.
"""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import mutants
import small_runner


def test_every_fault_can_be_planted():
    listed = mutants.read_list()
    assert len(listed) >= 100, len(listed)
    wrong = mutants.stale(listed)
    assert not wrong, "\n".join(wrong)


def test_no_fault_is_listed_twice():
    listed = [tuple(fault[1:]) for fault in mutants.read_list()]
    assert len(set(listed)) == len(listed), [one for one in listed if listed.count(one) > 1]


if __name__ == "__main__":
    sys.exit(small_runner.main(globals()))
