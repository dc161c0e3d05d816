#!/usr/bin/env python3
"""What host_copies.py prints are keys that a scenario takes; without a GPU the optimizer's alone.

usage: torch_copies_test.py PATH_OF_STEPSIM
"""

import os
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests"))
import small_runner  # noqa: E402  (needs the path above)
from torch_store import run_ranks, torch_or_skip  # noqa: E402

STEPSIM = os.path.abspath(sys.argv[1])
PROGRAM = ROOT / "calibrate" / "torch" / "host_copies.py"
SMALL = ["--parameters", "200000", "--tensors", "4", "--bytes", "1048576"]


def settings(text):
    """The keys that it prints, as --set has them."""
    return [f"{key}={value}" for key, value in re.findall(r'^(host\.\w+) = "([^"]+)"', text, re.MULTILINE)]


def test_one_rank_prints_keys_that_a_scenario_takes():
    torch_or_skip()
    done = small_runner.run(sys.executable, str(PROGRAM), *SMALL)
    assert done.returncode == 0, done.stderr
    keys = settings(done.stdout)
    assert any(key.startswith("host.cpu_optimizer=") and key.endswith(" ms") for key in keys), done.stdout
    if "# no GPU" in done.stdout:
        keys.append("host.copy_bandwidth=20 GB/s")
    options = [word for key in [*keys, "parallel=fsdp2", "parallel.offload=true"] for word in ("--set", key)]
    done = small_runner.run(STEPSIM, "run", str(ROOT / "scenarios" / "shard_1b.toml"), *options,
                            "--set", "cluster.placement=8")  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "with offload each rank copies at host.copy_bandwidth" in done.stdout + done.stderr, done.stdout


def test_of_several_ranks_the_slowest_counts_and_one_speaks():
    torch_or_skip()
    statuses, texts = run_ranks([sys.executable, str(PROGRAM), *SMALL, "--optimizer", "SGD"], 2)
    assert statuses == [0, 0], texts
    assert sum(text.count("host.cpu_optimizer") for text in texts) == 1, texts


if __name__ == "__main__":
    sys.exit(small_runner.main(dict(globals())))
