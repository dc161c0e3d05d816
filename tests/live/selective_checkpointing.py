#!/usr/bin/env python3
"""What PyTorch keeps of a checkpointed Llama's layers beside what Stepsim counts.

usage: selective_checkpointing.py STEPSIM

Layers of a small Llama in 16 bit run forward on the CPU, and the profiler adds up what is allocated and freed till then.
The policy of selective checkpointing keeps fused attention and the products of matrices but every n-th. Needs PyTorch
2.4 or newer, with torch.utils.checkpoint.create_selective_checkpoint_contexts.
"""

import functools
import json
import subprocess
import sys

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils import checkpoint

HIDDEN, HEADS, KV_HEADS, FFN, TOKENS, VOCAB = 256, 8, 2, 896, 512, 32768
WIDTH = HIDDEN // HEADS
KINDS = [("full", 0), ("layers", 2), ("ops", 2), ("ops", 3), ("ops", 0)]
MOST_OFF = 16  # Bytes a token and layer: PyTorch keeps a random state of 5 KB for each call.


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        linear = functools.partial(nn.Linear, bias=False)
        self.attention_norm, self.mlp_norm = nn.RMSNorm(HIDDEN), nn.RMSNorm(HIDDEN)
        self.q, self.o = linear(HIDDEN, HIDDEN), linear(HIDDEN, HIDDEN)
        self.k, self.v = linear(HIDDEN, KV_HEADS * WIDTH), linear(HIDDEN, KV_HEADS * WIDTH)
        self.gate, self.up, self.down = linear(HIDDEN, FFN), linear(HIDDEN, FFN), linear(FFN, HIDDEN)

    def heads(self, x, count):
        split = x.view(1, TOKENS, count, WIDTH).transpose(1, 2)
        return split.repeat_interleave(HEADS // count, 1)

    def forward(self, x):
        y = self.attention_norm(x)
        q, k, v = self.heads(self.q(y), HEADS), self.heads(self.k(y), KV_HEADS), self.heads(self.v(y), KV_HEADS)
        attention = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o(attention.transpose(1, 2).reshape(1, TOKENS, HIDDEN))
        y = self.mlp_norm(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


def contexts(every):
    """What a call of checkpoint() takes for its forward and for the forward that runs again."""
    products = {True: 0, False: 0}
    attention = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
    policy = checkpoint.CheckpointPolicy

    def choose(context, function, *_, **__):
        if function == torch.ops.aten.mm.default:
            products[context.is_recompute] += 1
            again = every > 0 and products[context.is_recompute] % every == 0
            return policy.PREFER_RECOMPUTE if again else policy.MUST_SAVE
        return policy.MUST_SAVE if function == attention else policy.PREFER_RECOMPUTE

    return checkpoint.create_selective_checkpoint_contexts(choose)


def run_layer(layer, index, x, kind, every):
    if kind == "layers" and (index + 1) % every != 0:
        return layer(x)
    if kind == "ops":
        return checkpoint.checkpoint(layer, x, use_reentrant=False, context_fn=functools.partial(contexts, every))
    return checkpoint.checkpoint(layer, x, use_reentrant=False)


def allocated(layers, kind, every):
    """Bytes that a forward through so many layers leaves allocated."""
    net = [Layer().to(torch.bfloat16) for _ in range(layers)]
    x = torch.randn(1, TOKENS, HIDDEN, dtype=torch.bfloat16, requires_grad=True)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        y = x
        for index, layer in enumerate(net):
            y = run_layer(layer, index, y, kind, every)
    events = profile.profiler.kineto_results.events()
    return sum(event.nbytes() for event in events if event.name() == "[memory]")


def of_pytorch(kind, every):
    """Bytes a token and layer; layers 3 to 6, so that what is there once does not count."""
    return (allocated(6, kind, every) - allocated(2, kind, every)) / 4 / TOKENS


SCENARIO = f"""[scenario]
name = "layers"
steps = 2
warmup_steps = 1
[cluster]
profile = "h100_8x_published"
ranks = 1
[model]
kind = "llama"
layers = 2
hidden = {HIDDEN}
heads = {HEADS}
kv_heads = {KV_HEADS}
ffn = {FFN}
vocab = {VOCAB}
max_length = {TOKENS}
dtype = "bf16"
parameter_dtype = "bf16"
attention = "flash"
[data]
samples = 16
lengths = {{ constant = {TOKENS} }}
[[policy]]
name = "fixed"
kind = "fixed"
batch_size = 1
"""


def of_stepsim(stepsim, path, kind, every):
    def peak(layers):
        line = [stepsim, "run", path, "--json", "-", "--set", f"model.layers={layers}"]
        line += ["--set", f"model.checkpointing={kind}"]
        line += ["--set", f"model.checkpoint_every={every}"] if kind != "full" else []
        done = subprocess.run(line, capture_output=True, text=True, check=True)
        return json.loads(done.stdout)["predictions"][0]["summary"]["peak_memory_mib"] * 2**20

    layer = HIDDEN * (2 * HIDDEN + 2 * KV_HEADS * WIDTH + 3 * FFN + 2)  # Its parameters.
    states = 2 + 2 + 2 + 4  # Parameter, gradient, bucket, the two moments of AdamW.
    return ((peak(6) - peak(2)) / 4 - states * layer) / TOKENS


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    if not hasattr(checkpoint, "create_selective_checkpoint_contexts"):
        sys.exit(f"selective_checkpointing: PyTorch {torch.__version__} has no selective checkpointing")
    with open("layers.toml", "w", encoding="utf-8") as file:
        file.write(SCENARIO)
    print(f"bytes a token and layer, PyTorch {torch.__version__.split('+')[0]}\n")
    print("| checkpointing | checkpoint_every | PyTorch | Stepsim |\n|---|---|---|---|")
    worst = 0
    for kind, every in KINDS:
        measured, counted = of_pytorch(kind, every), of_stepsim(sys.argv[1], "layers.toml", kind, every)
        # Layers that keep all are priced as transformers runs them, with norms that are written out.
        worst = max(worst, 0 if kind == "layers" else abs(counted - measured))
        print(f"| {kind} | {every or '-' if kind == 'full' else every} | {measured:.0f} | {counted:.0f} |")
    if worst > MOST_OFF:
        sys.exit(f"selective_checkpointing: {worst:.0f} bytes off")


if __name__ == "__main__":
    main()
