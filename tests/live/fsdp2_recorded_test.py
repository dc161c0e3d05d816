#!/usr/bin/env python3
"""What fsdp2_recorded.py makes of times that are known; nothing is trained."""

import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "live")]
import fsdp2_live  # noqa: E402  (needs the path above)
import fsdp2_recorded  # noqa: E402
import small_runner  # noqa: E402


def test_the_report_tells_the_recorded_policy_from_the_others():
    predicted = {
        "fixed fsdp2": {"mean": 100.0, "interval": [90.0, 110.0]},
        "bucketed fsdp2": {"mean": 80.0, "interval": [75.0, 85.0]},
        "bucketed fsdp2_keep": {"mean": 70.0, "interval": [60.0, 80.0]},
        "bucketed ddp": {"mean": 50.0, "interval": [45.0, 55.0]},
    }
    measured = {"fixed fsdp2": [0.1], "bucketed fsdp2": [0.1], "bucketed fsdp2_keep": [0.07], "bucketed ddp": [0.04]}
    rows = fsdp2_live.compared(predicted, measured, {"fixed": 0, "bucketed": 0})
    result = {"torch": "2.15.0", "predicted_at": 0.0, "live_at": 10.0, "other_load": [0.1, 0.2], "rows": {"alone": rows}}
    text = fsdp2_recorded.text_of(result)
    assert "| bucketed | fsdp2 | 80.0 | 75.0 to 85.0 | 100.0 | 1 | -20.0% | no |" in text, text
    assert "the recorded policy itself: mean error 0.0%, worst 0.0%, bias +0.0%, 1 of 1 in the interval." in text, text
    assert "the two other policies: mean error 20.0%, worst 20.0%, bias -20.0%, 0 of 1" in text, text
    assert "DDP: mean error 25.0%" in text, text


def test_the_scenario_shards_as_the_ranks_do():
    for name, settings in fsdp2_recorded.PARALLELISMS.items():
        assert ("parallel.kind=fsdp2" in settings) == name.startswith("fsdp2"), name
        assert ("parallel.reshard_after_forward=false" in settings) == name.endswith("keep"), name


if __name__ == "__main__":
    sys.exit(small_runner.main(dict(globals())))
