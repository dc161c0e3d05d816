#!/usr/bin/env python3
"""A sweep of real all-reduces over gloo becomes a profile: all_reduce.py, stepcal import. So do gathers and
scatters, where gloo of this PyTorch has them.

usage: torch_all_reduce_test.py PATH_OF_STEPCAL
"""

import json
import os
import pathlib
import re
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests"))
import small_runner  # noqa: E402  (needs the path above)
from torch_store import run_ranks, torch_or_skip  # noqa: E402

STEPCAL = os.path.abspath(sys.argv[1])
PROGRAM = ROOT / "calibrate" / "torch" / "all_reduce.py"
SIZES = [4096 * 2**index for index in range(9)]  # The importer wants 1 MiB or more at the end.


def sweep(out, *options, ranks=2):
    """Runs the program on all ranks. Returns their exit status and what they said."""
    command = [sys.executable, str(PROGRAM), "--seconds", "0.05", "--max-bytes", str(SIZES[-1]), *options]
    statuses, texts = run_ranks([*command, "--out", out], ranks)
    assert len(set(statuses)) == 1, texts
    return statuses[0], "\n".join(texts)


def test_a_sweep_over_gloo_is_accepted_and_becomes_a_table_of_its_medians():
    torch_or_skip()
    with tempfile.TemporaryDirectory() as folder:
        log, profile, rows = (os.path.join(folder, n) for n in ("a.log", "p.json", "rows.json"))
        assert sweep(log)[0] == 0
        command = [STEPCAL, "import", "nccl-tests", log, "--profile", profile, "--json", rows]
        done = small_runner.run(*command)
        warnings = set(re.findall(r"warn: (\w+):", done.stdout))
        assert warnings <= {"noisy", "nonmonotone"}, done.stdout  # A busy machine.
        found = json.loads(pathlib.Path(rows).read_text(encoding="utf-8"))
        assert found["ranks"] == 2 and found["nodes"] == 1
        assert [row["bytes"] for row in found["rows"]] == SIZES
        assert all(row["out_of_place_us"] > 0 for row in found["rows"])
        (table,) = json.loads(pathlib.Path(profile).read_text(encoding="utf-8"))["collectives"]
        assert table["ranks"] == 2 and [knot[0] for knot in table["knots_s"]] == SIZES
        assert "# Out of bounds values : 0 OK" in pathlib.Path(log).read_text(encoding="utf-8")


def test_gathers_and_scatters_become_tables_of_their_own():
    torch_or_skip()
    for collective in ("all_gather", "reduce_scatter"):
        with tempfile.TemporaryDirectory() as folder:
            log, profile = (os.path.join(folder, n) for n in ("a.log", "p.json"))
            status, text = sweep(log, "--collective", collective)
            if status == 2:  # gloo of 1.13 has neither.
                assert f"has no {collective} of one buffer" in text and "Traceback" not in text, text
                continue
            assert status == 0, text
            small_runner.run(STEPCAL, "import", "nccl-tests", log, "--profile", profile)
            (table,) = json.loads(pathlib.Path(profile).read_text(encoding="utf-8"))["collectives"]
            assert table["kind"] == collective and table["ranks"] == 2, table
            assert [knot[0] for knot in table["knots_s"]] == SIZES
            assert "# Out of bounds values : 0 OK" in pathlib.Path(log).read_text(encoding="utf-8")


if __name__ == "__main__":
    sys.exit(small_runner.main(globals()))
