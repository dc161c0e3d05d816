#!/usr/bin/env python3
"""What fsdp2_live.py makes of times that are known; nothing is trained."""

import json
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "live")]
import fsdp2_live  # noqa: E402  (needs the path above)
import small_runner  # noqa: E402


def table_rows():
    predicted = {
        "a ddp": {"mean": 100.0, "interval": [90.0, 110.0]},
        "a fsdp2": {"mean": 150.0, "interval": [140.0, 160.0]},
        "b ddp": {"mean": 80.0, "interval": [70.0, 90.0]},
    }
    measured = {"a ddp": [0.09, 0.11], "a fsdp2": [0.2, 0.2], "b ddp": [0.06, 0.06]}
    return fsdp2_live.compared(predicted, measured, {"a": 1000, "b": 500})


def test_errors_and_intervals():
    rows = table_rows()
    assert [round(row["error"], 3) for row in rows] == [0.0, -0.25, 0.333], rows
    assert [row["inside"] for row in rows] == [True, False, False], rows
    assert [row["steps"] for row in rows] == [2, 2, 2], rows


def test_pairs_are_ordered_by_useful_tokens():
    # Predicted 10, 6.67 and 6.25 tokens a millisecond; measured 10, 5 and 8.33.
    wrong = fsdp2_live.wrong_pairs(table_rows())
    assert [pair[:2] for pair in wrong] == [("b ddp", "a fsdp2")], wrong
    assert abs(wrong[0][2] - (8.3333333 / 5 - 1)) < 1e-6, wrong


def test_a_base_has_means_that_grow_with_the_bytes():
    times = {"4096": [0.002] * 98 + [0.5] * 2, "8192": [0.001] * 100, "16384": [0.004] * 100}
    base = fsdp2_live.base_profile({"all_gather 2": times})
    (table,) = base["collectives"]
    assert (table["kind"], table["ranks"], table["range"]) == ("all_gather", 2, [4096, 16384]), table
    # Two of a hundred that something held up are left out, and no size is faster than a smaller one.
    expected = [[4096, 0.002], [8192, 0.002], [16384, 0.004]]
    for (size, seconds), (own_size, own) in zip(table["knots_s"], expected):
        assert size == own_size and abs(seconds - own) < 1e-12, table


@small_runner.in_new_folder
def test_jitter_is_told_by_steps_of_one_shape():
    header = {"warmup_steps": 1, "world_size": 2,
              "model": {"parameters": [{"name": "embedding", "shape": [50, 4]}, {"name": "a", "shape": [3]},
                                       {"name": "b", "shape": [2, 2]}]}}  # fmt: skip
    ratios = [(9.0, 1.0), (1.2, 0.8), (0.8, 1.2), (5.0, 1.0)]  # A warm-up, two steps, and one of two shapes.
    rows = [
        {"repeat": 0, "step": step, "rank": rank, "samples": 1 + (step == 3) * rank, "max_length": 8,
         "forward_ms": 10 * ratio, "forward_cpu_ms": 10.0}
        for step, of_ranks in enumerate(ratios) for rank, ratio in enumerate(of_ranks)
    ]  # fmt: skip
    path = pathlib.Path("calibration.jsonl")
    path.write_text("\n".join(map(json.dumps, [header, *rows])) + "\n", encoding="utf-8")
    # Both variances are 0.08; the ops weigh 3 and 4 of 7.
    assert abs(fsdp2_live.recorded_jitter(path) - (0.08 / (25 / 49)) ** 0.5) < 1e-9


def test_the_report_names_what_is_off():
    result = {
        "torch": "2.15.0", "op_jitter": 0.25, "predicted_at": 0.0, "live_at": 10.0, "other_load": [0.1, 0.2],
        "rows": table_rows(),
    }  # fmt: skip
    text = fsdp2_live.text_of("4", result)
    assert "4 ranks, HSDP of 2 x 2" in text and "| a | fsdp2 | 150.0 | 140.0 to 160.0 | 200.0 | 2 | -25.0% | no |" in text
    assert "fully_shard: mean error 25.0%, bias -25.0%, 0 of 1 in the interval." in text, text
    assert "Kendall tau 0.33; pairs in the wrong order: b ddp and a fsdp2 (66.7% apart)." in text, text


if __name__ == "__main__":
    sys.exit(small_runner.main(dict(globals())))
