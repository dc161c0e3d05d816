#!/usr/bin/env python3
"""Trains the batches of plans in real PyTorch under DDP, one rank, and records every step.

    python3 train_plans.py plans/*.jsonl --out-dir live      # one CUDA device, NCCL
    python3 train_plans.py plans/fixed.jsonl --out-dir live --device cpu

The model is the one that the plans describe, a GPT-2-like decoder or a BERT-like classifier, written
as a user of PyTorch writes it: scaled_dot_product_attention, autocast where the plans' dtype is a
short one, AdamW. The plans take turns, --block steps each. For each plan PLAN.jsonl it writes the
run record OUT-DIR/PLAN.jsonl; a run that is stopped leaves OUT-DIR/PLAN.rank0.jsonl, which holds the
steps up to then and is read as well. Needs torch and stepsim_recorder.py, here or in ../torch.
"""

import argparse
import contextlib
import json
import math
import os
import pathlib
import signal
import sys
import tempfile
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE / "torch"), str(HERE.parent / "torch")]

import stepsim_recorder  # noqa: E402  (found by the line above)

WARM_UP_STEPS = 3  # DDP rebuilds its buckets after the first.
HALF = {"bf16": torch.bfloat16, "f16": torch.float16}


def attend(query, key, value, mask):
    """Causal without a mask. PyTorch 1.13 lacks the function."""
    if hasattr(F, "scaled_dot_product_attention"):
        return F.scaled_dot_product_attention(
            query, key, value, attn_mask=mask, is_causal=mask is None
        )
    scores = query @ key.transpose(2, 3) / math.sqrt(query.shape[-1])
    if mask is None:
        mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
    return scores.masked_fill(~mask, -1e4).softmax(dim=-1) @ value


class Block(nn.Module):
    """Attention and MLP; the norms come before them (GPT-2) or after (BERT)."""

    def __init__(self, model, norm_first):
        super().__init__()
        hidden = model["hidden"]
        self.heads, self.norm_first = model["heads"], norm_first
        self.norm1 = nn.LayerNorm(hidden)
        self.qkv = nn.Linear(hidden, 3 * hidden)
        self.proj = nn.Linear(hidden, hidden)
        self.norm2 = nn.LayerNorm(hidden)
        self.fc1 = nn.Linear(hidden, model["ffn"])
        self.fc2 = nn.Linear(model["ffn"], hidden)

    def attention(self, rows, mask):
        samples, length, hidden = rows.shape
        heads = self.qkv(rows).view(samples, length, 3, self.heads, hidden // self.heads)
        query, key, value = heads.permute(2, 0, 3, 1, 4)
        context = attend(query, key, value, mask)
        return self.proj(context.transpose(1, 2).reshape(samples, length, hidden))

    def mlp(self, rows):
        return self.fc2(F.gelu(self.fc1(rows), **({"approximate": "tanh"} if self.norm_first else {})))

    def forward(self, rows, mask):
        if self.norm_first:
            rows = rows + self.attention(self.norm1(rows), mask)
            return rows + self.mlp(self.norm2(rows))
        rows = self.norm1(rows + self.attention(rows, mask))
        return self.norm2(rows + self.mlp(rows))


class Decoder(nn.Module):
    """GPT-2 with tied embeddings; the loss is of the next token, padding left out."""

    def __init__(self, model):
        super().__init__()
        self.wte = nn.Embedding(model["vocab"], model["hidden"])
        self.wpe = nn.Embedding(model["max_length"], model["hidden"])
        self.layers = nn.ModuleList(Block(model, True) for _ in range(model["layers"]))
        self.norm = nn.LayerNorm(model["hidden"])
        nn.init.normal_(self.wte.weight, std=0.02)
        nn.init.normal_(self.wpe.weight, std=0.02)

    def forward(self, tokens, lengths, _labels):
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        rows = self.wte(tokens) + self.wpe(positions)
        for layer in self.layers:
            rows = layer(rows, None)
        logits = F.linear(self.norm(rows), self.wte.weight)
        targets = tokens.roll(-1, dims=1).masked_fill(positions >= lengths[:, None] - 1, -100)
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-100)


class Classifier(nn.Module):
    """BERT with a class a sample; the padding is a mask, as Hugging Face gives it."""

    def __init__(self, model):
        super().__init__()
        hidden = model["hidden"]
        self.words = nn.Embedding(model["vocab"], hidden)
        self.positions = nn.Embedding(model["max_length"], hidden)
        self.types = nn.Embedding(2, hidden)
        self.norm = nn.LayerNorm(hidden)
        self.layers = nn.ModuleList(Block(model, False) for _ in range(model["layers"]))
        self.pooler = nn.Linear(hidden, hidden)
        self.classifier = nn.Linear(hidden, max(2, model["classes"]))

    def forward(self, tokens, lengths, labels):
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        embedded = self.words(tokens) + self.positions(positions)
        rows = self.norm(embedded + self.types(torch.zeros_like(tokens)))
        mask = (positions < lengths[:, None])[:, None, None, :]
        for layer in self.layers:
            rows = layer(rows, mask)
        pooled = torch.tanh(self.pooler(rows[:, 0]))
        return F.cross_entropy(self.classifier(pooled), labels)


MODELS = {"gpt2": Decoder, "bert": Classifier}


class Trainer:
    """The model of the plans under DDP, and its optimizer."""

    def __init__(self, model, device):
        if model["family"] not in MODELS:
            sys.exit(f"train_plans: error: no model for {model['family']}; known: {', '.join(MODELS)}")
        torch.manual_seed(1)
        self.model, self.device = model, device
        # Random numbers for so many parameters take a CPU seconds.
        with device if hasattr(device, "__enter__") else contextlib.nullcontext():
            module = MODELS[model["family"]](model)
        self.ddp = nn.parallel.DistributedDataParallel(module.to(device))
        self.optimizer = torch.optim.AdamW(self.ddp.parameters(), lr=1e-6)
        self.half = HALF.get(model["dtype"])

    def batch(self, lengths, width):
        """Random tokens, drawn on the host and copied as a loader with pinned memory does."""
        tokens = torch.randint(1, self.model["vocab"], (len(lengths), width))
        labels = torch.randint(0, max(2, self.model["classes"]), (len(lengths),))
        parts = [tokens, torch.tensor(lengths), labels]
        if self.device.type == "cuda":
            parts = [part.pin_memory() for part in parts]
        return [part.to(self.device, non_blocking=True) for part in parts]

    def step(self, row, recorder):
        lengths = row.get("sequences", row["lengths"])  # Packed: rows of several samples.
        width = max(row["max_length"], *lengths)
        batch = self.batch(lengths, width)
        autocast = (
            torch.autocast(self.device.type, dtype=self.half)
            if self.half
            else contextlib.nullcontext()
        )
        with recorder.step(lengths=lengths, max_length=width, padded_tokens=row["padded_tokens"]):
            self.optimizer.zero_grad()
            with autocast:
                loss = self.ddp(*batch) * row["loss_scale"]
            recorder.backward(loss)
            self.optimizer.step()
        return loss


class Run:
    """One plan and its record."""

    def __init__(self, path, options):
        with open(path, encoding="utf-8") as lines:
            self.header = json.loads(next(lines))
            self.rows = [row for row in map(json.loads, lines) if row["rank"] == 0]
        if self.header["ranks"] != 1:
            sys.exit(f"train_plans: error: {path} has {self.header['ranks']} ranks; this trains one")
        self.rows = self.rows[: options.steps]
        self.recorder = stepsim_recorder.Recorder(
            os.path.join(options.out_dir, pathlib.Path(path).stem),
            policy=self.header["policy"],
            scenario=self.header["scenario"],
            warmup_steps=self.header["warmup_steps"],
        )

    def play(self, trainer, first, last):
        self.recorder.resume()
        for row in self.rows[first:last]:
            trainer.step(row, self.recorder)


def parse_options():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("plans", nargs="+", help="of stepsim plan, all of one model")
    parser.add_argument("--out-dir", required=True, help="folder of the records")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--block", type=int, default=4, help="steps of a plan before the next")
    parser.add_argument("--repeats", type=int, default=1, help="passes over all plans")
    parser.add_argument("--steps", type=int, help="of each plan, at most")
    parser.add_argument("--seconds", type=float, default=math.inf, help="ends after so long")
    return parser.parse_args()


def train(options, trainer, runs):
    """The plans take turns, in an order that rotates; false when the time is over."""
    end = time.monotonic() + options.seconds
    longest = max(len(run.rows) for run in runs)
    for repeat in range(options.repeats):
        if repeat > 0:
            for run in runs:
                run.recorder.next_repeat()
        for turn, first in enumerate(range(0, longest, options.block)):
            shift = (turn + repeat) % len(runs)
            for run in runs[shift:] + runs[:shift]:
                if time.monotonic() > end:
                    return False
                run.play(trainer, first, first + options.block)
    return True


def main():
    options = parse_options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # The records are closed then.
    os.makedirs(options.out_dir, exist_ok=True)
    device = torch.device(options.device)
    if device.type == "cpu":
        torch.set_num_threads(1)
    os.environ.setdefault("NCCL_SOCKET_IFNAME", "lo")
    with tempfile.TemporaryDirectory() as folder:
        dist.init_process_group(
            "nccl" if device.type == "cuda" else "gloo",
            init_method=f"file://{folder}/store",
            rank=0,
            world_size=1,
        )
        runs = [Run(path, options) for path in options.plans]
        model = runs[0].header["model"]
        if any(run.header["model"] != model for run in runs):
            sys.exit("train_plans: error: the plans are of different models")
        trainer = Trainer(model, device)
        silent = stepsim_recorder.Recorder(os.path.join(options.out_dir, "unused"))
        silent.recording = False
        for row in runs[0].rows[:WARM_UP_STEPS]:
            loss = trainer.step(row, silent)
        print(f"PyTorch {torch.__version__} on {device}, loss {float(loss):.3f}", flush=True)
        done = train(options, trainer, runs)
        for run in runs:
            run.recorder.close()
        print("trained" if done else f"stopped after {options.seconds:.0f} s", flush=True)
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
