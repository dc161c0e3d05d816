#!/usr/bin/env python3
"""stepsim_units.py in real PyTorch, and the way of its times into a profile.

usage: torch_units_live_test.py PATH_OF_STEPCAL
"""

import json
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[3]
TORCH = ROOT / "calibrate" / "torch"
sys.path[:0] = [str(ROOT / "tests"), str(TORCH)]
import small_runner  # noqa: E402  (needs the path above)
from torch_store import torch_or_skip  # noqa: E402

STEPCAL = os.path.abspath(sys.argv[1])
SHARDS_ON_A_CPU = (2, 8)  # The version of PyTorch from which on fully_shard surely runs there.
NAMES = ("forward_s", "forward_tensor_s", "backward_s", "backward_tensor_s", "optimizer_tensor_s",
         "byte_s")
MODEL = """
import torch

def make_model():
    return torch.nn.Sequential(torch.nn.Embedding(50, 8), torch.nn.Linear(8, 8))

def make_batch(samples, length, device):
    return torch.randint(0, 50, (samples, length), device=device)

def loss(model, batch):
    return model(batch).square().mean()
"""


def can_shard():
    import torch  # pylint: disable=import-outside-toplevel

    return tuple(int(one) for one in torch.__version__.split("+")[0].split(".")[:2]) >= SHARDS_ON_A_CPU


def optimizer(**more):
    import torch  # pylint: disable=import-outside-toplevel

    return lambda parameters: torch.optim.AdamW(parameters, lr=1e-6, **more)


def measured(make_optimizer):
    import stepsim_units  # pylint: disable=import-outside-toplevel
    import torch  # pylint: disable=import-outside-toplevel

    return stepsim_units.measure(make_optimizer, torch.device("cpu"))


def test_hooks_and_optimizers_have_the_times_of_a_host():
    torch_or_skip()
    if not can_shard():
        raise small_runner.Skip("this PyTorch has no fully_shard for CPUs")
    loop, foreach = measured(optimizer(foreach=False)), measured(optimizer(foreach=True))
    for found in (loop, foreach):
        assert tuple(found) == NAMES, found
        assert 2e-5 < found["forward_s"] < 2e-2 and 2e-5 < found["backward_s"] < 2e-2, found
        assert max(found["forward_tensor_s"], found["backward_tensor_s"]) < found["forward_s"], found
    # One tensor after the other passes the dispatch of sharded tensors a dozen times.
    assert loop["optimizer_tensor_s"] > 2 * foreach["optimizer_tensor_s"] > 0, (loop, foreach)


def test_without_fully_shard_the_reason_is_said():
    torch_or_skip()
    import stepsim_units  # pylint: disable=import-outside-toplevel

    if can_shard():
        raise small_runner.Skip("this PyTorch has fully_shard")
    try:
        found = measured(optimizer())
    except stepsim_units.NotMeasured as error:
        assert str(error), error
    else:
        assert tuple(found) == NAMES, found  # 2.6 and 2.7 may do.


def test_an_optimizer_that_fails_is_named():
    torch_or_skip()
    import stepsim_units  # pylint: disable=import-outside-toplevel

    if not can_shard():
        raise small_runner.Skip("this PyTorch has no fully_shard for CPUs")

    def failing(_parameters):
        raise ValueError("not for these")

    try:
        measured(failing)
    except stepsim_units.NotMeasured as error:
        assert "not for these" in str(error), error
    else:
        raise AssertionError("measured what failed")
    assert tuple(measured(optimizer())) == NAMES  # And leaves no process group behind.


@small_runner.in_new_folder
def test_a_calibration_takes_them_into_the_profile():
    torch_or_skip()
    pathlib.Path("my_model.py").write_text(MODEL, encoding="utf-8")
    shapes = [{"samples": samples, "length": length} for samples in (1, 4) for length in (4, 16)]
    pathlib.Path("shapes.json").write_text(json.dumps({"shapes": shapes}), encoding="utf-8")
    names = {**os.environ, "OMP_NUM_THREADS": "1"}
    text = small_runner.output(
        sys.executable, TORCH / "stepsim_calibrate.py", "my_model.py", "--shapes", "shapes.json",
        "--out", "mine", "--device", "cpu", "--seconds", "2", env=names,
    )  # fmt: skip
    header = json.loads(pathlib.Path("mine.jsonl").read_text(encoding="utf-8").splitlines()[0])
    subprocess.run([STEPCAL, "import", "run-record", "mine.jsonl", "--profile", "mine.json"], check=True)
    host = json.loads(pathlib.Path("mine.json").read_text(encoding="utf-8"))["host"]
    if can_shard():
        assert tuple(header["unit_host"]) == NAMES, header
        assert host["units"] == header["unit_host"], host
    elif "unit_host" not in header:
        assert "units of fully_shard: " in text and "units" not in host, text


if __name__ == "__main__":
    sys.exit(small_runner.main(dict(globals())))
