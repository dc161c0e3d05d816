#!/usr/bin/env python3
"""sleepers.cpp against steps worked by hand, and fsdp2_sleepers.py on the recorded ones, where they are.

usage: fsdp2_sleepers_test.py SLEEPERS
"""

import collections
import json
import os
import pathlib
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "live")]
import fsdp2_sleepers  # noqa: E402  (needs the path above)
import small_runner  # noqa: E402

SLEEPERS = os.path.abspath(sys.argv[1])
FREE = {name: 0.0 for name in fsdp2_sleepers.HOST_MS}
GATHER, SCATTER = 3.0, 5.0


def played(*jobs):
    pathlib.Path("jobs.json").write_text(json.dumps(jobs), encoding="utf-8")
    done = subprocess.run([SLEEPERS, "jobs.json"], check=True, capture_output=True, text=True)
    return list(map(float, done.stdout.split()))


def job(work=None, **more):
    """Two layers of 10 ms forward and 20 ms backward, on both ranks."""
    tables = {"all_gather": GATHER, "reduce_scatter": SCATTER, "all_reduce": 7.0, "copy": 0.0}
    return {
        **fsdp2_sleepers.PLAIN, **FREE, **{name: [[1, time], [1e9, time]] for name, time in tables.items()},
        "elements": [1000, 4000, 4000], "optimizer_ms": 1.0,
        "work_ms": work or [2 * [2 * [[10.0, 20.0]]]], **more,
    }  # fmt: skip


@small_runner.in_new_folder
def test_serial_sums():
    plain, kept, freed, ddp = played(job(), job(layers_kept=True), job(root_freed=True), job(kind="ddp"))
    # Forward gathers root and layers, backward the layers; then three reductions.
    assert plain == 61 + 5 * GATHER + 3 * SCATTER, plain
    assert kept == 61 + 3 * GATHER + 3 * SCATTER, kept
    assert freed == 61 + 6 * GATHER + 3 * SCATTER, freed
    assert ddp == 61 + 7, ddp  # All gradients are in one bucket, which closes at the end.


@small_runner.in_new_folder
def test_hooks_and_the_sharded_optimizer():
    hosts = {"unit_forward_ms": 1.0, "unit_backward_ms": 2.0, "sharded_tensor_ms": 4.0}
    without, with_hooks = played(job(), job(**hosts))
    assert with_hooks - without == 3 * 1 + 3 * 2 + 3 * 4, (without, with_hooks)


@small_runner.in_new_folder
def test_gathers_beside_compute():
    # Backward's second gather runs beside the last layer; forward's are waited for at once.
    plain, beside, ahead = played(job(), job(**{"async": True}), job(forward_prefetch=1, **{"async": True}))
    assert plain - beside == GATHER, (plain, beside)
    assert beside - ahead == GATHER, (beside, ahead)  # The second layer's; the first one's is waited for.


@small_runner.in_new_folder
def test_layers_meet_where_ddp_meets_once():
    opposite = [[[[10.0, 20.0], [30.0, 20.0]], [[30.0, 20.0], [10.0, 20.0]]]]
    sharded, ddp = played(job(opposite), job(opposite, kind="ddp"))
    even, even_ddp = played(job(), job(kind="ddp"))
    assert ddp - even_ddp == 20, ddp  # The maximum of sums,
    assert sharded - even == 40, sharded  # against the sum of maxima.


@small_runner.in_new_folder
def test_micro_batches():
    work = 3 * [2 * [2 * [[10.0, 20.0]]]]
    reduce, no_sync, keep, ddp = played(
        *(job(work, accumulate=mode) for mode in ("reduce", "no_sync")),
        job(work, accumulate="keep_no_sync", layers_kept=True), job(work, kind="ddp"),
    )  # fmt: skip
    assert reduce == 181 + 15 * GATHER + 9 * SCATTER, reduce
    assert no_sync == 181 + 15 * GATHER + 3 * SCATTER, no_sync
    assert keep == 181 + 3 * GATHER + 3 * SCATTER, keep
    assert ddp == 181 + 7, ddp


def test_recorded_steps():
    data = pathlib.Path(os.environ.get("STEPSIM_DATA", ROOT.parent / "shared" / "data")) / "fsdp2"
    if not data.exists():
        raise small_runner.Skip(f"no reference data at {data}")
    errors, cells = collections.defaultdict(list), 0
    for key, predicted, _, times in fsdp2_sleepers.rows(SLEEPERS, data):
        cells += 1
        if key != fsdp2_sleepers.CALIBRATION:
            errors[key[1] == "ddp"].append(predicted / statistics.fmean(times) - 1)
    assert cells == 60, cells
    ddp, sharded = (statistics.fmean(map(abs, errors[is_ddp])) for is_ddp in (True, False))
    assert ddp < 0.02 and sharded < 0.21, (ddp, sharded)  # As FSDP2_SLEEPERS.md has them.


if __name__ == "__main__":
    sys.exit(small_runner.main(dict(globals())))
