"""Asks `stepsim diff` about halves of real runs, equal ones and such with a part made longer.

usage: diff_test.py PATH_OF_STEPSIM
"""

import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import diff_halves  # noqa: E402  (it lies beside this file)
import small_runner  # noqa: E402  (needs the path above)

STEPSIM = sys.argv[1]
ARCHIVES = ("token_skew_2ranks", "gpt2_small", "h200_gpt2_medium")


def test_halves_of_the_same_run_do_not_differ():
    with tempfile.TemporaryDirectory() as folder:
        found = dict(diff_halves.Pairs(STEPSIM, folder).same(ARCHIVES))
    assert len(found) >= 20, len(found)
    differ = [name for name, diff in found.items() if diff["verdict"] != "no difference"]
    named = [name for name, diff in found.items() if diff["causes"]]
    assert not differ and not named, (differ, named)


def test_a_longer_part_is_named_with_its_rank_or_nothing_is():
    with tempfile.TemporaryDirectory() as folder:
        found = list(diff_halves.Pairs(STEPSIM, folder).planted(("token_skew_2ranks",)))
    hits = {share: sum(hit for _, own, _, hit, _ in found if own == share)
            for share in diff_halves.SHARES}
    # 120 steps a side that scatter by 4 % tell 10 % mostly, and 1 % never.
    assert hits[0.10] >= 15 and hits[0.03] <= hits[0.10], (hits, len(found))
    assert sum(others for *_, others in found) <= 1, found


if __name__ == "__main__":
    sys.exit(small_runner.main(globals()))
