#!/usr/bin/env python3
"""The README's example: batches of `stepsim plan` come out of a PyTorch DataLoader as planned."""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests"))

import small_runner  # noqa: E402

STEPSIM = os.path.abspath(sys.argv[1])
SCENARIO = ROOT / "scenarios" / "token_skew_2ranks.toml"


def example():
    """The Python block of the README."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    return re.search(r"```python\n(.*?)```", readme, re.DOTALL).group(1)


def test_the_example_of_the_readme():
    try:
        import torch
    except ImportError as error:
        raise small_runner.Skip(f"PyTorch is not installed (python3-torch): {error}") from error
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for policy in ["bucketing", "token_budget"]:
            subprocess.run(
                [STEPSIM, "plan", SCENARIO, "--policy", policy, "--out", "plan.jsonl", "--quiet"],
                check=True,
            )
            rows = [json.loads(line) for line in open("plan.jsonl", encoding="utf-8")][1:]
            lengths = {}
            for row in rows:
                lengths.update(zip(row["samples"], row["lengths"]))
            size = max(lengths) + 1
            data = [torch.full((lengths.get(i, 1),), i) for i in range(size)]
            for rank in [0, 1]:
                torch.distributed.get_rank = lambda rank=rank: rank
                names = {
                    "dataset": data,
                    "pad": lambda batch: torch.nn.utils.rnn.pad_sequence(
                        batch, batch_first=True, padding_value=-1
                    ),
                }
                exec(example(), names)  # pylint: disable=exec-used
                batches = list(names["loader"])
                planned = [row for row in rows if row["rank"] == rank]
                assert len(batches) == len(planned) == 12, (len(batches), len(planned))
                for batch, row in zip(batches, planned):
                    assert batch[:, 0].tolist() == row["samples"], row
                    assert batch.shape == (len(row["samples"]), row["max_length"]), batch.shape
                    assert (batch >= 0).sum().item() == row["useful_tokens"], row


sys.exit(small_runner.main(dict(globals())))
