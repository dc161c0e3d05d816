"""transformers' ResNet, of 4 stages, on square images of varying size, for stepsim_calibrate.py. A
length is the number of an image's patches of 8 x 8 pixels: 64 is an image of side 64."""

import math

import torch
import transformers

PATCH = 8
CONFIG = transformers.ResNetConfig(
    embedding_size=16, hidden_sizes=[32, 64, 128, 256], depths=[1, 1, 1, 1], layer_type="basic", num_labels=10
)  # fmt: skip


def make_model():
    torch.manual_seed(1)
    return transformers.ResNetForImageClassification(CONFIG)


def make_batch(samples, length, device):
    side = PATCH * round(math.sqrt(length))
    images = torch.randn(samples, 3, side, side, device=device)
    return {"pixel_values": images, "labels": torch.randint(0, 10, (samples,), device=device)}
