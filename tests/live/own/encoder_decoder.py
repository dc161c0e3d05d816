"""A small translation model with torch's own layers, for stepsim_calibrate.py. A length is that of
the source; targets have three quarters of it."""

import torch
from torch import nn
from torch.nn import functional as F

VOCAB, HIDDEN, LAYERS, POSITIONS = 4096, 128, 2, 256


class Translator(nn.Module):
    def __init__(self):
        super().__init__()
        self.source = nn.Embedding(VOCAB, HIDDEN)
        self.target = nn.Embedding(VOCAB, HIDDEN)
        self.positions = nn.Embedding(POSITIONS, HIDDEN)
        more = {"dim_feedforward": 512, "dropout": 0.0, "batch_first": True}
        self.encoder = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(HIDDEN, 4, **more), LAYERS, enable_nested_tensor=False
        )
        self.decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(HIDDEN, 4, **more), LAYERS)
        self.head = nn.Linear(HIDDEN, VOCAB)

    def embed(self, table, tokens):
        return table(tokens) + self.positions(torch.arange(tokens.shape[1], device=tokens.device))

    def forward(self, source, target):
        length = target.shape[1]
        later = torch.ones(length, length, dtype=torch.bool, device=target.device).triu(1)
        memory = self.encoder(self.embed(self.source, source))
        rows = self.decoder(self.embed(self.target, target), memory, tgt_mask=later)
        return F.cross_entropy(self.head(rows).flatten(0, 1), target.flatten())


def make_model():
    torch.manual_seed(1)
    return Translator()


def make_batch(samples, length, device):
    source = torch.randint(1, VOCAB, (samples, length), device=device)
    return source, torch.randint(1, VOCAB, (samples, max(1, 3 * length // 4)), device=device)
