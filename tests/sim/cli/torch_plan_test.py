#!/usr/bin/env python3
"""The example of calibrate/torch: batches of `stepsim plan` come out of a PyTorch DataLoader as planned."""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests"))

import small_runner  # noqa: E402
from torch_store import torch_or_skip  # noqa: E402

STEPSIM = os.path.abspath(sys.argv[1])
SCENARIO = ROOT / "scenarios" / "token_skew_2ranks.toml"
PACKING = ROOT / "scenarios" / "packing.toml"


def example():
    """The last Python block of its README."""
    readme = (ROOT / "calibrate" / "torch" / "README.md").read_text(encoding="utf-8")
    return re.findall(r"```python\n(.*?)```", readme, re.DOTALL)[-1]


def plan_rows(scenario, policy, *options):
    """The rows of the plan that is then in plan.jsonl."""
    subprocess.run(
        [STEPSIM, "plan", scenario, "--policy", policy, "--out", "plan.jsonl", "--quiet", *options],
        check=True,
    )
    return [json.loads(line) for line in open("plan.jsonl", encoding="utf-8")][1:]


def padded(batch, multiple):
    """A collate function with pad_to_multiple_of."""
    import torch

    rows = torch.nn.utils.rnn.pad_sequence(batch, batch_first=True, padding_value=-1)
    return torch.nn.functional.pad(rows, (0, -rows.shape[1] % multiple), value=-1)


def check_loader(rows, ranks, steps, multiple=1):
    """The example's batches hold the planned tokens, 4096 * sample + place, and scale their losses."""
    import torch

    ends = {}
    for row in rows:
        offsets = row.get("offsets", [0] * len(row["samples"]))
        for sample, offset, length in zip(row["samples"], offsets, row["lengths"]):
            ends[sample] = max(ends.get(sample, 0), offset + length)
    data = {sample: 4096 * sample + torch.arange(end) for sample, end in ends.items()}
    for rank in range(ranks):
        torch.distributed.get_rank = lambda rank=rank: rank
        losses = []
        names = {
            "dataset": data,
            "pad": lambda batch: padded(batch, multiple),
            "mean_loss": lambda batch: 3.0,
            "train_step": losses.append,
        }
        exec(example(), names)  # pylint: disable=exec-used
        batches = list(names["loader"])
        planned = [row for row in rows if row["rank"] == rank]
        assert len(batches) == len(planned) == steps, (len(batches), len(planned))
        assert losses == [3.0 * row["loss_scale"] for row in planned], losses
        for batch, row in zip(batches, planned):
            offsets = row.get("offsets", [0] * len(row["samples"]))
            first = [4096 * sample + offset for sample, offset in zip(row["samples"], offsets)]
            assert batch[:, 0].tolist() == first, row
            assert (batch >= 0).sum(dim=1).tolist() == row["lengths"], row
            assert batch.shape == (len(row["samples"]), row["max_length"]), batch.shape
            assert (batch >= 0).sum().item() == row["useful_tokens"], row


def test_the_example_of_the_readme():
    torch_or_skip()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for policy in ["bucketing", "token_budget"]:
            rows = plan_rows(SCENARIO, policy)
            assert not any("offsets" in row for row in rows), policy
            check_loader(rows, ranks=2, steps=12)
        rows = plan_rows(SCENARIO, "bucketing", "--set", "policy.bucketing.pad_to_multiple_of=32")
        check_loader(rows, ranks=2, steps=12, multiple=32)
        rows = plan_rows(SCENARIO, "bucketing", "--set", "policy.bucketing.weighting=token")
        assert any(row["loss_scale"] != 1 for row in rows), rows
        check_loader(rows, ranks=2, steps=12)


def test_the_example_of_the_readme_cuts_samples():
    torch_or_skip()
    options = ["--set", "cluster.ranks=2", "--set", "data.samples=200", "--steps", "6"]
    options += ["--set", "data.lengths={uniform=[1,4000]}"]
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for policy in ["TRL bfd_split", "TRL wrapped", "nanochat", "modded-nanogpt", "llm-foundry"]:
            rows = plan_rows(PACKING, policy, *options)
            assert any("offsets" in row for row in rows), policy
            check_loader(rows, ranks=2, steps=6)


sys.exit(small_runner.main(dict(globals())))
