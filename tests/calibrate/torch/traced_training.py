#!/usr/bin/env python3
"""One rank of a real DDP training over gloo: python3 traced_training.py PLAN… STEPS

It trains that many steps of each plan by turns under PyTorch's profiler, in a small transformer
encoder, and writes for each PLAN.jsonl the trace PLAN.rankN.pt.trace.json.gz with its steps.

PyTorch built without Kineto, as Debian's is, leaves the shapes out of the traces that it writes. So
the rows are written here from what the profiler saw, in the form that Kineto writes.
"""

import gzip
import json
import pathlib
import sys

import torch
import torch.distributed as dist

WARMUP = 2  # DDP makes its buckets anew after the first step.


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(1000, 128)
        layer = torch.nn.TransformerEncoderLayer(128, 4, 512, dropout=0.0, batch_first=True)
        self.layers = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = torch.nn.Linear(128, 2)

    def forward(self, tokens):
        return self.head(self.layers(self.embedding(tokens))[:, 0])


def batches_of(plan, rank):
    with open(plan, encoding="utf-8") as lines:
        next(lines)
        return [row["lengths"] for row in map(json.loads, lines) if row["rank"] == rank]


def row_of(event):
    """The row as Kineto writes it. This profiler does not keep types: all tensors here are float."""
    named = event.trace_name.startswith(("ProfilerStep#", "Optimizer.", "DistributedData", "gloo:"))
    args = {"Input Dims": event.input_shapes, "Input type": ["float"] * len(event.input_shapes)}
    return {
        **{"ph": "X", "cat": "user_annotation" if named else "cpu_op"},
        **{"name": event.trace_name, "pid": 1, "tid": event.thread, "args": args},
        **{"ts": event.time_range.start, "dur": event.time_range.elapsed_us()},
    }


def write_traces(profiler, plans):
    """Writes the rows of every step to the trace of its plan."""
    rows = [row_of(event) for event in profiler.events() if event.trace_name is not None]
    steps = [row for row in rows if row["name"].startswith("ProfilerStep#")]
    spans = sorted((row["ts"], row["ts"] + row["dur"]) for row in steps)[:-1]
    rank, ranks = dist.get_rank(), dist.get_world_size()
    for turn, plan in enumerate(plans):
        turns = spans[(turn - WARMUP) % len(plans) :: len(plans)]
        own = [row for row in rows if any(start <= row["ts"] < end for start, end in turns)]
        header = {"backend": "gloo", "rank": rank, "world_size": ranks}
        path = f"{plan.removesuffix('.jsonl')}.rank{rank}.pt.trace.json.gz"
        with gzip.open(path, "wt", encoding="utf-8", compresslevel=1) as file:
            json.dump({"schemaVersion": 1, "distributedInfo": header, "traceEvents": own}, file)


def main(plans, steps):
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    ddp = torch.nn.parallel.DistributedDataParallel(Model(), bucket_cap_mb=1)
    optimizer = torch.optim.AdamW(ddp.parameters(), lr=1e-5)
    turns = [batches_of(plan, dist.get_rank()) for plan in plans]
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU],
        record_shapes=True,
        schedule=torch.profiler.schedule(
            # One step more: what gloo still does after the last step ends while it is recorded.
            wait=WARMUP - 1, warmup=1, active=steps * len(plans) + 1, repeat=1
        ),
        on_trace_ready=lambda done: write_traces(done, plans),
    ) as profiler:
        for number in range(WARMUP + steps * len(plans) + 1):
            turn = turns[number % len(plans)]
            lengths = turn[min(number // len(plans), len(turn) - 1)]
            tokens = torch.randint(1, 1000, (len(lengths), max(lengths)))
            optimizer.zero_grad()
            output = ddp(tokens)
            loss = torch.nn.functional.cross_entropy(output, tokens[:, 0] % 2)
            loss.backward()
            optimizer.step()
            profiler.step()
    dist.barrier()


if __name__ == "__main__":
    main(sys.argv[1:-1], int(sys.argv[-1]))
