#!/usr/bin/env python3
"""Measures what offload to the host costs (fully_shard with CPUOffloadPolicy), as keys of a scenario:

    host.copy_bandwidth   bytes between pinned memory of the host and the GPU, the slower way of the two
    host.cpu_optimizer    the optimizer on the CPU, for a million parameters of a rank

    python3 host_copies.py
    torchrun --nproc_per_node 8 host_copies.py       # all ranks of a node at once, as in the training
    python3 host_copies.py --optimizer SGD --tensors 50

Give it as many ranks and OMP_NUM_THREADS as the training has: the ranks of a node share the links to
their GPUs and the memory of the host, and torchrun gives each rank one thread unless told otherwise.
With several ranks the slowest one counts. It needs torch, and stepsim_recorder.py beside it; without a GPU it measures the optimizer.
"""

import argparse
import os
import statistics
import sys
import time

import torch
import torch.distributed as dist

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import stepsim_recorder  # noqa: E402  (beside this file)

WARMUP, REPETITIONS = 2, 7


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--optimizer", default="AdamW", help="of torch.optim; default: AdamW")
    parser.add_argument("--parameters", type=int, default=20_000_000, help="of a rank's shard")
    parser.add_argument("--tensors", type=int, default=20, help="that the shard has")
    parser.add_argument("--bytes", type=int, default=256 * 2**20, help="of one copy")
    return parser.parse_args()


def median_seconds(work, ready=lambda: None):
    """The median time of some runs of `work`, each until `ready` returns."""
    times = []
    for _ in range(WARMUP + REPETITIONS):
        if dist.is_initialized():
            dist.barrier()
        ready()
        start = time.perf_counter()
        work()
        ready()
        times.append(time.perf_counter() - start)
    return statistics.median(times[WARMUP:])


def slowest(seconds):
    """The longest time of all ranks."""
    if not dist.is_initialized():
        return seconds
    times = [None] * dist.get_world_size()
    dist.all_gather_object(times, seconds)
    return max(times)


def copy_seconds(size, device):
    """Seconds of a copy of so many bytes to the device, and back."""
    host = torch.empty(size, dtype=torch.uint8, pin_memory=True)
    there = torch.empty(size, dtype=torch.uint8, device=device)

    def ready():
        torch.cuda.synchronize(device)

    return [median_seconds(lambda: to.copy_(of, non_blocking=True), ready) for to, of in ((there, host), (host, there))]


def optimizer_seconds(name, parameters, tensors):
    """Seconds of a step of an optimizer on the CPU."""
    size = max(1, parameters // tensors)
    shards = [torch.nn.Parameter(torch.randn(size)) for _ in range(tensors)]
    for shard in shards:
        shard.grad = torch.randn(size)
    optimizer = getattr(torch.optim, name)(shards, lr=1e-4)
    return median_seconds(optimizer.step)


def main():
    arguments = parse_arguments()
    if "RANK" in os.environ:
        stepsim_recorder.start_ranks("gloo")
    rank = int(os.environ.get("LOCAL_RANK", "0"))
    lines = []
    if torch.cuda.is_available():
        seconds = slowest(max(copy_seconds(arguments.bytes, torch.device("cuda", rank))))
        lines.append(f'host.copy_bandwidth = "{arguments.bytes / seconds / 1e9:.3g} GB/s"')
    else:
        lines.append("# no GPU: host.copy_bandwidth is measured where there is one")
    seconds = slowest(optimizer_seconds(arguments.optimizer, arguments.parameters, arguments.tensors))
    lines.append(f'host.cpu_optimizer = "{seconds / arguments.parameters * 1e9:.4g} ms"'
                 f"  # {arguments.optimizer}, {torch.get_num_threads()} threads a rank")  # fmt: skip
    if not dist.is_initialized() or dist.get_rank() == 0:
        print("\n".join(lines))
    if dist.is_initialized():
        stepsim_recorder.end_ranks()


if __name__ == "__main__":
    main()
