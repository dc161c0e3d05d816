#!/usr/bin/env python3
"""Writes SHARDING.md: DDP, ZeRO-1, ZeRO-2, FSDP2 and HSDP for two models on 8, 16 and 64 H100.

usage: sharding.py STEPSIM
"""

import json
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
NAMES = "ddp,zero1,zero2,fsdp2,hsdp"
MODELS = {"shard_1b": "a Llama of 1.2 billion parameters", "shard_8b": "Llama 3 8B"}
PLACEMENTS = {"8": "8 GPUs, one node", "2x8": "16 GPUs, 2 nodes", "8x8": "64 GPUs, 8 nodes"}
HEAD = """# DDP or shards

Which way of sharding fits into 80 GB and is fastest? Predicted, not measured: kernels and collectives inside a node by published figures of
H100, collectives between nodes by NCCL's own model over 50 GB/s a GPU. fp32 parameters and AdamW moments (DDP computes in bf16 by
autocast), gathers in bf16, reductions in fp32, embedding and head as units of their own, as torchtitan does; one sequence of 8192 tokens a
GPU; the 8B model with checkpointing of every block. `zero2` is FSDP2 that keeps its parameters after the forward; `hsdp` has one replica
on each node. `tests/published/sharding.py STEPSIM` writes this page, and a test compares it. Any of these tables, and its page:

```
stepsim sweep scenarios/shard_8b.toml --over parallel=ddp,zero1,zero2,fsdp2,hsdp --set cluster.placement=2x8 --html page.html
```

What it says: communication hides nearly whole in all of them, so that memory decides. DDP and ZeRO-1 do not fit the 8B model; of what
fits, keeping the parameters saves a gather and costs 13 GiB. HSDP does not pay on links of 400 Gbit/s a GPU: its all-reduce between nodes
is one more collective. ZeRO-1 pays for broadcasting its parameters after the step. Steps of one model differ by less than the
intervals, which have the error of unmeasured kernels in common: `stepsim sweep` draws it once for all and says what can be told apart.
"""
COLUMNS = (
    "| | step ms | 90 % interval | exposed ms | collectives ms | memory GiB | fits 80 GB |\n"
    "|---|---|---|---|---|---|---|"
)


def points(stepsim, scenario, placement):
    line = [stepsim, "sweep", str(ROOT / "scenarios" / f"{scenario}.toml"), "--over", f"parallel={NAMES}"]
    line += ["--set", f"cluster.placement={placement}", "--json", "-"]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1):
        raise RuntimeError(done.stderr)
    return json.loads(done.stdout)


def order(point):
    """The fastest that fits first; what is refused last."""
    return (bool(point.get("refused")), bool(point.get("out_of_memory")), point.get("step_ms", 0))


def line(point):
    name = point["values"]["parallel"]
    if point.get("refused"):
        return f"| {name} | refused: {point['refused']} | | | | | |"
    low, high = point["interval90"]
    return (
        f"| {name} | {point['step_ms']:.1f} | {low:.0f} to {high:.0f} | {point['exposed_transfer_ms']:.1f} "
        f"| {point['communication_ms']:.1f} | {point['peak_memory_mib'] / 1024:.1f} "
        f"| {'no' if point.get('out_of_memory') else 'yes'} |"
    )


def text(stepsim):
    parts = [HEAD]
    for scenario, model in MODELS.items():
        for placement, where in PLACEMENTS.items():
            swept = points(stepsim, scenario, placement)
            rows = sorted(swept["points"], key=order)
            parts.append(f"## {model}, {where}\n\n{COLUMNS}\n" + "\n".join(map(line, rows)) + "\n")
    return "\n".join(parts)


if __name__ == "__main__":
    print(text(os.path.abspath(sys.argv[1])), end="")
