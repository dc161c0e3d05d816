"""A small CNN on square images of varying size, for stepsim_calibrate.py. A length is the number of
an image's patches of 8 x 8 pixels: 64 is an image of side 64."""

import math

import torch
from torch import nn
from torch.nn import functional as F

PATCH = 8


class Residual(nn.Module):
    def __init__(self, channels, wider):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, wider, 3, stride=2, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(wider)
        self.conv2 = nn.Conv2d(wider, wider, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(wider)
        self.skip = nn.Conv2d(channels, wider, 1, stride=2, bias=False)

    def forward(self, maps):
        inner = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(maps)))))
        return F.relu(inner + self.skip(maps))


class Images(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, padding=1, bias=False)
        self.blocks = nn.Sequential(Residual(16, 32), Residual(32, 64), Residual(64, 128))
        self.classifier = nn.Linear(128, 10)

    def forward(self, images, labels):
        maps = self.blocks(F.relu(self.stem(images)))
        return F.cross_entropy(self.classifier(maps.mean(dim=(2, 3))), labels)


def make_model():
    torch.manual_seed(1)
    return Images()


def make_batch(samples, length, device):
    side = PATCH * round(math.sqrt(length))
    images = torch.randn(samples, 3, side, side, device=device)
    return images, torch.randint(0, 10, (samples,), device=device)
