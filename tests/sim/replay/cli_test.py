"""Runs `stepsim replay` as a user would: reports, options, messages.

usage: cli_test.py PATH_OF_STEPSIM
"""

import csv
import gzip
import io
import json
import os
import pathlib
import shutil
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests"))
import small_runner  # noqa: E402  (needs the path above)

STEPSIM = os.path.abspath(sys.argv[1])
EXAMPLE = str(ROOT / "scenarios" / "replay")
DATA = pathlib.Path(os.environ.get("STEPSIM_DATA", ROOT / ".." / "shared" / "data"))


def replay(*arguments, status=0):
    """Runs stepsim replay, checks its exit status and returns the finished process."""
    return small_runner.run(STEPSIM, "replay", *arguments, status=status)


def recorded(name):
    path = DATA / "traces" / name
    if not path.exists():
        raise small_runner.Skip(f"no reference data at {path}")
    return str(path)


def test_the_example_prints_the_steps_that_hand_computation_gives():
    text = replay(EXAMPLE).stdout
    assert "0           390.0\n1           539.0\n" in text, text
    assert "measured" not in text and "error" not in text, text
    assert "0           339.0\n" in replay(EXAMPLE, "--no-barrier").stdout
    assert "0           539.0\n" in replay(EXAMPLE, "--ranks-from", "1").stdout


def test_json_and_csv_hold_what_the_text_says_and_quiet_is_quiet():
    result = json.loads(replay(EXAMPLE, "--json", "-").stdout)
    assert result["format"] == "stepsim-replay/1"
    assert [rank["replayed_us"] for rank in result["ranks"]] == [390, 539]
    assert result["ranks"][0]["measured_us"] is None and result["error"] is None
    collective = result["collectives"][0]
    assert collective["replayed"] == {"skew_us": 200, "transfer_us": 50, "end_us": 362}
    table = list(csv.DictReader(io.StringIO(replay(EXAMPLE, "--csv", "-").stdout)))
    assert [row["replayed_us"] for row in table] == ["390", "539"]
    assert replay(EXAMPLE, "--quiet").stdout == ""
    replay(EXAMPLE, "--json", "-", "--csv", "-", status=2)


def test_a_measured_step_is_compared():
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(EXAMPLE, folder, dirs_exist_ok=True)
        ranks = pathlib.Path(folder) / "ranks.csv"
        ranks.write_text("rank,step_start_us,step_dur_us\n0,0,400\n1,0,\n", encoding="utf-8")
        text = replay(folder).stdout
        assert "0           400.0        390.0  -2.50 %\n" in text, text
        assert "mean |error| 2.50 %, worst 2.50 %, bias -2.50 % (early)" in text, text
        error = json.loads(replay(folder, "--json", "-").stdout)["error"]
        assert abs(error["bias"] + 0.025) < 1e-12


def test_a_pipeline_file_is_known_by_its_columns_plain_or_packed():
    rows = (
        "step,dp_rank,pp_stage,op,mb,seq,start_ms,dur_ms\n"
        "5,0,0,forward-compute,0,0,0,10\n5,0,0,grads-reduce-scatter,-1,0,30,5\n"
        "5,1,0,forward-compute,0,0,0,30\n5,1,0,grads-reduce-scatter,-1,0,30.5,5\n"
    )
    with tempfile.TemporaryDirectory() as folder:
        plain = pathlib.Path(folder) / "ops.csv"
        plain.write_text(rows, encoding="utf-8")
        packed = pathlib.Path(folder) / "x.gz"
        packed.write_bytes(gzip.compress(rows.encode()))
        result = json.loads(replay(str(plain), "--json", "-").stdout)
        step = result["steps"][0]
        # The second replica's host takes 0.5 ms more to begin the reduce-scatter.
        assert step["measured_ms"] == 35.5 and step["replayed_ms"] == 35.5, step
        assert step["balanced_ms"] == 25.5, step
        assert abs(result["imbalance_cost"] - (35.5 / 25.5 - 1)) < 1e-12
        assert result["cut"] == [], result
        text = replay(folder, "--balanced", "--no-host-gaps").stdout
        assert "imbalance costs 42.0 %" in text and "5           35.50" in text, text
        assert replay(str(packed)).stdout.splitlines()[2:] == replay(folder).stdout.splitlines()[2:]


def test_cut_steps_are_left_out_and_named():
    whole = "{0},0,0,params-all-gather,0,0,1\n{0},0,0,forward-compute,0,1,99\n{0},0,0,optimizer,0,100,5\n"
    late = "3,0,0,forward-compute,0,60,40\n3,0,0,optimizer,0,100,5\n"
    with tempfile.TemporaryDirectory() as folder:
        plain = pathlib.Path(folder) / "ops.csv"
        header = "step,dp_rank,pp_stage,op,seq,start_ms,dur_ms\n"
        plain.write_text(header + late + whole.format(4) + whole.format(5), encoding="utf-8")
        text = replay(folder).stdout
        assert "2 steps of 1 replicas" in text and "mean |error| 0.00 %" in text, text
        assert "cut        1 step not replayed and not in any mean: 3. Step 3: begins inside" in text, text
        result = json.loads(replay(folder, "--json", "-").stdout)
        assert [one["step"] for one in result["steps"]] == [4, 5], result
        assert [one["step"] for one in result["cut"]] == [3], result
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(EXAMPLE, folder, dirs_exist_ok=True)
        ranks = pathlib.Path(folder) / "ranks.csv"
        ranks.write_text("rank,step_start_us,step_dur_us,cut\n0,0,400,0\n1,0,900,1\n", encoding="utf-8")
        text = replay(folder).stdout
        assert "% (cut)\n" in text and "mean |error| 2.50 %" in text, text
        result = json.loads(replay(folder, "--json", "-").stdout)
        assert [one["cut"] for one in result["ranks"]] == [False, True], result


def test_wrong_options_and_files_are_bad_input():
    assert "no program given" in replay(status=2).stderr
    assert "nowhere" in replay("nowhere", status=2).stderr
    assert "holds no program.csv" in replay(str(ROOT / "tests"), status=2).stderr
    ranks = os.path.join(EXAMPLE, "ranks.csv")
    assert "neither a program of CPU launches" in replay(ranks, status=2).stderr
    assert "is for programs of a pipeline" in replay(EXAMPLE, "--balanced", status=2).stderr
    assert "there is no rank 7" in replay(EXAMPLE, "--ranks-from", "7", status=2).stderr
    assert "a rank or 'shortest'" in replay(EXAMPLE, "--transfers-from", "x", status=2).stderr
    assert "from 0 to 100" in replay(EXAMPLE, "--cpu-scale", "-1", status=2).stderr
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(EXAMPLE, folder, dirs_exist_ok=True)
        program = pathlib.Path(folder) / "program.csv"
        text = program.read_text(encoding="utf-8")
        program.write_text(text.replace("gpu,7,300", "gpu,7,many"), encoding="utf-8")
        message = replay(folder, status=2).stderr
        assert "program.csv:8:13: error: gpu_dur_us: expected a number, not 'many'" in message


def test_the_recorded_step_of_eight_ranks():
    folder = recorded("dlrm_8xV100")
    text = replay(folder).stdout
    assert "mean |error| 0.15 %, worst 0.19 %, bias -0.15 % (early)" in text, text
    alone = json.loads(replay(folder, "--no-barrier", "--json", "-").stdout)
    assert alone["error"]["mean_absolute"] > 0.15


def test_the_recorded_pipeline_job():
    folder = recorded("bytedance_SE")
    text = replay(folder).stdout
    assert "mean |error| 0.00 %, worst 0.02 %" in text, text
    options = ("--no-host-gaps", "--sends", "buffered", "--steps-table", "--balanced")
    published = replay(folder, *options).stdout
    assert "mean |error| 0.52 %, worst 0.93 %" in published, published
    assert "imbalance costs 35.0 %" in published, published
    assert len(published.splitlines()) == 6 + 2 + 45, published


if __name__ == "__main__":
    sys.exit(small_runner.main(globals()))
