"""A GPT-2-style decoder with tied embeddings, of 2 layers x 128, for stepsim_calibrate.py."""

import pathlib
import sys

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import models  # noqa: E402

SIZES = {
    "family": "gpt2",
    "layers": 2,
    "hidden": 128,
    "heads": 4,
    "ffn": 512,
    "vocab": 4096,
    "max_length": 256,
}


def make_model():
    return models.make_model(SIZES)


def make_batch(samples, length, device, lengths):
    tokens = torch.randint(1, SIZES["vocab"], (samples, length), device=device)
    own = torch.tensor(lengths, device=device)[:, None]
    mask = (torch.arange(length, device=device)[None, :] < own).float()
    return tokens * mask.long(), mask, None
