"""A Llama-style decoder (RMS norms, rotary positions, two key heads for four, gated MLP), of 4 layers x 192, for
stepsim_calibrate.py."""

import torch
from torch import nn
from torch.nn import functional as F

VOCAB, HIDDEN, LAYERS, HEADS, KEY_HEADS, INNER = 2048, 192, 4, 4, 2, 512
WIDTH = HIDDEN // HEADS


class Norm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(HIDDEN))

    def forward(self, rows):
        return self.weight * rows * torch.rsqrt(rows.square().mean(-1, keepdim=True) + 1e-6)


def rotated(rows, cosines, sines):
    first, second = rows.chunk(2, dim=-1)
    return torch.cat([first * cosines - second * sines, second * cosines + first * sines], dim=-1)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = Norm(), Norm()
        self.query = nn.Linear(HIDDEN, HIDDEN, bias=False)
        self.key = nn.Linear(HIDDEN, KEY_HEADS * WIDTH, bias=False)
        self.value = nn.Linear(HIDDEN, KEY_HEADS * WIDTH, bias=False)
        self.out = nn.Linear(HIDDEN, HIDDEN, bias=False)
        self.gate = nn.Linear(HIDDEN, INNER, bias=False)
        self.up = nn.Linear(HIDDEN, INNER, bias=False)
        self.down = nn.Linear(INNER, HIDDEN, bias=False)

    def heads(self, rows, count):
        return rows.unflatten(-1, (count, WIDTH)).transpose(1, 2)

    def attention(self, rows, cosines, sines, bias):
        query = rotated(self.heads(self.query(rows), HEADS), cosines, sines)
        key = rotated(self.heads(self.key(rows), KEY_HEADS), cosines, sines)
        key, value = (
            one.repeat_interleave(HEADS // KEY_HEADS, dim=1)
            for one in (key, self.heads(self.value(rows), KEY_HEADS))
        )
        scores = query @ key.transpose(2, 3) / WIDTH**0.5 + bias
        return self.out((F.softmax(scores, dim=-1) @ value).transpose(1, 2).flatten(2))

    def forward(self, rows, cosines, sines, bias):
        rows = rows + self.attention(self.norm1(rows), cosines, sines, bias)
        inner = self.norm2(rows)
        return rows + self.down(F.silu(self.gate(inner)) * self.up(inner))


class Llama(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCAB, HIDDEN)
        self.layers = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = Norm()
        self.head = nn.Linear(HIDDEN, VOCAB, bias=False)

    def forward(self, tokens, mask):
        """The mean loss of the next token, over positions that are not padded."""
        length = tokens.shape[1]
        rates = 10000.0 ** (-torch.arange(0, WIDTH, 2) / WIDTH)
        angles = torch.arange(length)[:, None] * rates
        bias = torch.full((length, length), -1e9).triu(1)
        rows = self.embedding(tokens)
        for layer in self.layers:
            rows = layer(rows, angles.cos(), angles.sin(), bias)
        targets = torch.where(mask, tokens.roll(-1, dims=1), -100)
        return F.cross_entropy(self.head(self.norm(rows)).flatten(0, 1), targets.flatten(), ignore_index=-100)


def make_model():
    torch.manual_seed(1)
    return Llama()


def make_batch(samples, length, device, lengths):
    tokens = torch.randint(1, VOCAB, (samples, length), device=device)
    own = torch.tensor(lengths, device=device)[:, None]
    return tokens, torch.arange(length, device=device)[None, :] < own
