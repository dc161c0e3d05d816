#!/usr/bin/env python3
"""The files for PyTorch as modules of the package: python3 -m stepsim.torch.calibrate and others.

usage: PYTHONPATH=BUILD/sim/python torch_modules_test.py
"""

import json
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import small_runner  # noqa: E402  (needs the path above)
import torch_store  # noqa: E402

# `steps` is also the name of a module in stepsim.torch, which must not hide a user's own.
STEPS = "SIZE = 16\n"
MODEL = """
import torch
import steps

def make_model():
    return torch.nn.Linear(steps.SIZE, 1)

def make_batch(samples, length, device):
    return torch.randn(samples, length, steps.SIZE, device=device)

def loss(model, batch):
    return model(batch).square().mean()
"""
SHAPES = [{"samples": samples, "length": length} for samples, length in ((8, 32), (4, 8))]


def on_ranks(folder, module, *arguments, ranks=2):
    """Runs a module of stepsim.torch on ranks with gloo. Returns [rank] what each printed."""
    torch_store.torch_or_skip()
    command = [sys.executable, "-m", f"stepsim.torch.{module}", *arguments]
    statuses, texts = torch_store.run_ranks(command, ranks, folder)
    assert statuses == [0] * ranks, texts
    assert not any("RuntimeWarning" in text for text in texts), texts
    return texts


def test_a_model_is_calibrated_and_its_files_are_merged():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "steps.py").write_text(STEPS, encoding="utf-8")
        (folder / "my_model.py").write_text(MODEL, encoding="utf-8")
        text = json.dumps({"format": "stepsim-shapes/1", "shapes": SHAPES})
        (folder / "shapes.json").write_text(text, encoding="utf-8")
        told = on_ranks(name, "calibrate", "my_model.py", "--shapes", "shapes.json", "--out", "mine",
                        "--device", "cpu", "--seconds", "3")[0]
        assert "next: stepcal import nccl-tests mine.all_reduce.log" in told, told
        merged = (folder / "mine.jsonl").read_text(encoding="utf-8")
        parts = sorted(path.name for path in folder.glob("mine.rank*.jsonl"))
        on_ranks(name, "stepsim_recorder", "merge", *parts, "--out", "again.jsonl", ranks=1)
        assert (folder / "again.jsonl").read_text(encoding="utf-8") == merged


def test_all_reduces_are_measured():
    with tempfile.TemporaryDirectory() as folder:
        on_ranks(folder, "all_reduce", "--seconds", "0.05", "--max-bytes", "16384", "--out", "a.log")
        text = pathlib.Path(folder, "a.log").read_text(encoding="utf-8")
    assert "all_reduce_perf" in text and "# Out of bounds values : 0 OK" in text, text


def test_all_names_of_the_package_are_there():
    import stepsim.torch
    from stepsim.torch.calibrate import calibrate

    assert callable(calibrate)
    missing = [name for name in stepsim.torch.__all__
               if name != "Advisor" and not hasattr(stepsim.torch, name)]
    assert not missing, missing


if __name__ == "__main__":
    sys.exit(small_runner.main(globals()))
