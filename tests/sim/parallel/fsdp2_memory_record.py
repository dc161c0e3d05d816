"""Writes what PyTorch's own memory tracker says of FSDP2 programs: what fsdp2_memory_test.cpp reads.

    python3 fsdp2_memory_record.py RANKS FILE     # PyTorch 2.15; one process with the fake backend

The model is a linear layer of 1024 x 1024, blocks x + b(relu(a(x))) of 32 MiB and a linear layer of
1024 x 1024. Each program runs once before it is tracked, so that all of PyTorch's lazy state is
there. Values are MiB by the tracker's categories, rounded to three decimals; those of 0 are left out.
"""

import json
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed._tools.fsdp2_mem_tracker import FSDPMemTracker
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.testing._internal.distributed.fake_pg import FakeStore

WIDTH, INNER, ROWS = 1024, 4096, 4


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(WIDTH, INNER, bias=False)
        self.b = nn.Linear(INNER, WIDTH, bias=False)

    def forward(self, x):
        return x + self.b(torch.relu(self.a(x)))


class Model(nn.Module):
    def __init__(self, layers):
        super().__init__()
        self.first = nn.Linear(WIDTH, WIDTH, bias=False)
        self.blocks = nn.ModuleList(Block() for _ in range(layers))
        self.last = nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, x):
        x = self.first(x)
        for block in self.blocks:
            x = block(x)
        return self.last(x)


def snapshot(tracker, which):
    of_device = tracker.get_tracker_snapshot(which)[torch.device("cpu")]
    rounded = {getattr(k, "value", k): round(v / 2**20, 3) for k, v in of_device.items()}
    return {category: mib for category, mib in rounded.items() if mib}


def set_micro_batch(model, mode, last):
    """Turns the switches of an accumulation mode before a micro-batch."""
    if mode in ("no_sync", "keep_no_sync"):
        model.set_requires_gradient_sync(last)
    if mode in ("keep", "keep_no_sync"):
        model.set_reshard_after_backward(last)
    if mode == "no_all_reduce":
        model.set_requires_all_reduce(last)


def run_micro_batches(model, x, tracker, count, mode):
    for i in range(count):
        set_micro_batch(model, mode, i == count - 1)
        if i:
            tracker.reset_mod_stats()
        y = model(x)  # It is there until the next one is.
        y.sum().backward()


def track(phase, ranks, layers=3, root=None, blocks=None, policy=None, inputs=None,
          asynchronous=False, micro_batches=1, mode="reduce", optimizer=None, mesh=None):
    """Peak and end of a forward ("fwd"), of a step without ("bwd") or with its optimizer ("all")."""
    model = Model(layers)
    names = ("replicas", "shards") if mesh else ("shards",)
    options = {"mesh": init_device_mesh("cpu", mesh or (ranks,), mesh_dim_names=names)}
    if policy:
        options["mp_policy"] = policy
    for block in model.blocks:
        fully_shard(block, reshard_after_forward=blocks, **options)
    fully_shard(model, reshard_after_forward=root, **options)
    if inputs:
        model.set_reduce_scatter_max_input_buffers(inputs)
    if asynchronous:
        model._set_unshard_async_op(True)
    adam = optimizer and torch.optim.AdamW(model.parameters(), foreach=optimizer == "foreach",
                                           fused=optimizer == "fused")
    x = torch.randn(ROWS, WIDTH)
    for i in range(micro_batches):
        set_micro_batch(model, mode, i == micro_batches - 1)
        model(x).sum().backward()
    if adam:
        adam.step()
    model.zero_grad(set_to_none=True)
    tracker = FSDPMemTracker(model, adam) if adam else FSDPMemTracker(model)
    tracker.track_inputs((x,))
    with tracker:
        if phase == "fwd":
            set_micro_batch(model, mode, micro_batches == 1)
            model(x)
        else:
            run_micro_batches(model, x, tracker, micro_batches, mode)
            if phase == "all":
                adam.step()
        return {"peak": snapshot(tracker, "peak"), "end": snapshot(tracker, "current")}


def programs(ranks):
    bf16 = torch.bfloat16
    into_f32 = MixedPrecisionPolicy(param_dtype=bf16, reduce_dtype=torch.float32)
    into_bf16 = MixedPrecisionPolicy(param_dtype=bf16, reduce_dtype=bf16)
    two = {"micro_batches": 2}
    result = {
        "default fp32": {},
        "root True": {"root": True},
        "all False": {"root": False, "blocks": False},
        "bf16/fp32": {"policy": into_f32},
        "K=2 fp32": {"inputs": 2},
        "K=3 fp32": {"inputs": 3},
        "async unshard fp32": {"asynchronous": True},
        "no sync, 2 micro": {**two, "mode": "no_sync"},
        "no sync, 2 micro, bf16/fp32": {**two, "mode": "no_sync", "policy": into_f32},
        "default L=6": {"layers": 6},
        "bf16/own": {"policy": MixedPrecisionPolicy(param_dtype=bf16)},
        "bf16/bf16": {"policy": into_bf16},
        "reduce, 2 micro": two,
        "reduce, 2 micro, bf16/bf16": {**two, "policy": into_bf16},
        "no sync, 3 micro": {"micro_batches": 3, "mode": "no_sync"},
        "no sync, 3 micro, bf16/fp32": {"micro_batches": 3, "mode": "no_sync", "policy": into_f32},
        "keep, 2 micro": {**two, "mode": "keep"},
        "keep no sync, 2 micro": {**two, "mode": "keep_no_sync"},
        "async bf16/fp32": {"asynchronous": True, "policy": into_f32},
        "adamw foreach": {"optimizer": "foreach"},
        "adamw fused": {"optimizer": "fused"},
    }
    if ranks == 4:
        square = {"mesh": (2, 2)}
        late = {**square, **two, "mode": "no_all_reduce"}
        result |= {
            "slice 2": {"blocks": 2},
            "slice 2 bf16": {"blocks": 2, "policy": into_f32},
            "slice 2 root True": {"blocks": 2, "root": True},
            "hsdp 2x2": square,
            "hsdp 2x2 bf16/bf16": {**square, "policy": into_bf16},
            "hsdp 2x2 bf16/bf16 K=2": {**square, "policy": into_bf16, "inputs": 2},
            "hsdp 2x2, 2 micro": {**square, **two},
            "hsdp 2x2 no all-reduce, 2 micro": late,
            "hsdp 2x2 no all-reduce, 2 micro, bf16/bf16": {**late, "policy": into_bf16},
            "hsdp 4x1": {"mesh": (4, 1)},
            "hsdp 4x1 bf16/fp32": {"mesh": (4, 1), "policy": into_f32},
            "hsdp 1x4": {"mesh": (1, 4)},
        }
    return result


def main():
    ranks = int(sys.argv[1])
    dist.init_process_group("fake", rank=0, world_size=ranks, store=FakeStore())
    cases = {}
    for name, options in programs(ranks).items():
        for phase in ("fwd", "bwd", "all") if "optimizer" in options else ("fwd", "bwd"):
            cases[f"{name} | {phase}"] = track(phase, ranks, **options)
    with open(sys.argv[2], "w", encoding="utf-8") as file:
        json.dump({"N": ranks, "cases": cases}, file, indent=1)
        file.write("\n")


if __name__ == "__main__":
    main()
