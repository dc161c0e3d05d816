#!/usr/bin/env python3
"""Measures torch.distributed.all_reduce over message sizes and prints the same table as nccl-tests'
all_reduce_perf, which `stepcal import nccl-tests` reads. stepsim_recorder.py has to lie beside it.

    torchrun --nproc_per_node 2 all_reduce.py --out all_reduce.log
    RANK=0 WORLD_SIZE=2 MASTER_ADDR=10.0.0.1 MASTER_PORT=29500 all_reduce.py --out all_reduce.log

The all-reduces of one size follow each other without a barrier; each is waited for. The columns
"out-of-place" hold their median, "in-place" their mean, both averaged over the ranks.
"""

import argparse
import os
import socket
import statistics
import sys
import time

import torch
import torch.distributed as dist

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import stepsim_recorder  # noqa: E402  (beside this file)

BYTES = 4  # The size of an element (float32).
WARMUP = 5


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--backend", choices=("gloo", "nccl"), default="gloo")
    parser.add_argument("--min-bytes", type=int, default=4096)
    parser.add_argument("--max-bytes", type=int, default=64 * 2**20)
    parser.add_argument("--seconds", type=float, default=1.0, help="time limit for each size")
    parser.add_argument("--max-iterations", type=int, default=1000, help="for each size")
    parser.add_argument("--out", help="file to write the table to; default: standard output")
    return parser.parse_args()


class Device:
    """Where the data are, and how to time all-reduces there."""

    def __init__(self, backend, index=None):
        self.cuda = backend == "nccl"
        self.index = int(os.environ.get("LOCAL_RANK", 0)) if index is None else index
        if self.cuda:
            torch.cuda.set_device(self.index)
        self.name = torch.cuda.get_device_name() if self.cuda else "CPU"
        self.tensors_on = "cuda" if self.cuda else "cpu"

    def mark(self):
        if not self.cuda:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def seconds(self, begin, end):
        return begin.elapsed_time(end) / 1e3 if self.cuda else end - begin

    def wait(self):
        if self.cuda:
            torch.cuda.synchronize()


def spans(device, data, count):
    """Runs `count` all-reduces one after the other; returns the seconds of each on this rank."""
    marks = [device.mark()]
    for _ in range(count):
        dist.all_reduce(data)
        marks.append(device.mark())
    device.wait()
    return [device.seconds(begin, end) for begin, end in zip(marks, marks[1:])]


def from_rank_0(number, device):
    """Returns the whole number that rank 0 gives."""
    number = torch.tensor([number], device=device.tensors_on)
    dist.broadcast(number, 0)
    return int(number)


def iterations(device, data, arguments):
    """Returns how many iterations fit the time limit, at least 3. Rank 0 decides for all ranks."""
    each = statistics.median(spans(device, data, WARMUP))
    wanted = int(arguments.seconds / max(each, 1e-7))
    return from_rank_0(max(3, min(wanted, arguments.max_iterations)), device)


def mean_over_ranks(values, device):
    total = torch.tensor(values, dtype=torch.float64, device=device.tensors_on)
    dist.all_reduce(total)
    return [float(value) / dist.get_world_size() for value in total]


def measure(device, size, arguments):
    """Returns (median seconds, mean seconds, wrong elements) for one size."""
    data = torch.zeros(size // BYTES, device=device.tensors_on)
    taken = spans(device, data, iterations(device, data, arguments))
    data.fill_(1.0)
    dist.all_reduce(data)
    wrong = int((data != dist.get_world_size()).sum())
    return *mean_over_ranks([statistics.median(taken), statistics.fmean(taken)], device), wrong


class Table:
    """The rows of the table, and their mean bus bandwidth as nccl-tests defines it."""

    def __init__(self, ranks):
        self.factor = 2 * (ranks - 1) / ranks
        self.rows = []
        self.bandwidths = []
        self.wrong = 0

    def block(self, size, seconds, wrong):
        """Formats time in us, algorithm and bus bandwidth in GB/s, and wrong elements."""
        algorithm = size / seconds / 1e9
        self.bandwidths.append(algorithm * self.factor)
        self.wrong += wrong
        return f"{seconds * 1e6:11.2f} {algorithm:9.4f} {self.bandwidths[-1]:9.4f} {wrong:6}"

    def add(self, size, median, mean, wrong):
        count = f"{size:12} {size // BYTES:13}     float     sum      -1"
        blocks = " ".join(self.block(size, seconds, wrong) for seconds in (median, mean))
        self.rows.append(f"{count} {blocks}")

    def foot(self):
        return [
            f"# Out of bounds values : {self.wrong} {'FAILED' if self.wrong else 'OK'}",
            f"# Avg bus bandwidth    : {statistics.fmean(self.bandwidths):.4f}",
        ]


def head(backend, device):
    """Returns the lines that all_reduce_perf prints above its rows; bus ids are made up."""
    places = [None] * dist.get_world_size()
    place = (socket.gethostname(), os.getpid(), device.index, device.name)
    dist.all_gather_object(places, place)
    lines = [
        f"# torch.distributed.all_reduce, torch {torch.__version__}, backend {backend}",
        "# Collective test starting: all_reduce_perf",
    ]
    lines += [
        f"#  Rank {rank:2} Group  0 Pid {process:6} on {host} device {index:2}"
        f" [0000:{rank:02x}:00] {name}"
        for rank, (host, process, index, name) in enumerate(places)
    ]
    lines += [
        "# out-of-place: median over the iterations; in-place: mean",
        "#       size         count      type   redop    root"
        "        time   algbw   busbw #wrong     time   algbw   busbw #wrong",
        "#        (B)    (elements)                      "
        "        (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)",
    ]
    return lines


def sweep(arguments):
    """Measures all sizes and returns the table as text. All ranks of the default process group call
    it. `arguments` has the members of parse_arguments()."""
    device = Device(arguments.backend)
    lines = head(arguments.backend, device)
    table = Table(dist.get_world_size())
    size = arguments.min_bytes
    while size <= arguments.max_bytes:
        table.add(size, *measure(device, size, arguments))
        size *= 2
    return "\n".join(lines + table.rows + table.foot()) + "\n"


def quick_sweep(backend, data, seconds, index=None):
    """Measures sizes from 64 KiB up to that of `data` in about `seconds`, inside a training, and
    returns the table as text. All ranks of the default process group call it.

    Every round takes each size, small ones several times, so that all see the machine in the same
    state. The first round takes each once, warms up and checks the sums; it ends at the size by
    which a quarter of the time is gone.

    Args:
        data: A float32 tensor on the device that the ranks reduce on; it is overwritten.
        seconds: At least two rounds more are measured, whatever they take.
        index: That of the CUDA device; None: of LOCAL_RANK.
    """
    most_rounds, most_repeats = 100, 20
    device = Device(backend, index)
    lines = head(backend, device)
    sizes = [64 * 1024]
    while 2 * sizes[-1] < data.numel() * BYTES:
        sizes.append(2 * sizes[-1])
    sizes.append(data.numel() * BYTES)
    taken, wrong = {}, {}
    start = time.perf_counter()
    for size in sizes:
        part = data[: size // BYTES].fill_(1.0)
        taken[size] = spans(device, part, 1)
        wrong[size] = int((part != dist.get_world_size()).sum())
        if from_rank_0(int(time.perf_counter() - start > seconds / 4), device):
            break
    data.zero_()
    share = sum(sum(times) for times in taken.values()) / len(taken)  # Of a size in a round.
    repeats = {
        size: from_rank_0(max(1, min(most_repeats, int(share / times[0]))), device)
        for size, times in taken.items()
    }
    each = sum(repeats[size] * times[0] for size, times in taken.items())
    rounds = from_rank_0(max(2, min(most_rounds, int(seconds * 3 / 4 / each))), device)
    taken = {size: [] for size in taken}
    for _ in range(rounds):
        for size, times in taken.items():
            times += spans(device, data[: size // BYTES], repeats[size])
    table = Table(dist.get_world_size())
    for size, times in taken.items():
        means = mean_over_ranks([statistics.median(times), statistics.fmean(times)], device)
        table.add(size, *means, wrong[size])
    return "\n".join(lines + table.rows + table.foot()) + "\n"


def main():
    arguments = parse_arguments()
    stepsim_recorder.start_ranks(arguments.backend)
    text = sweep(arguments)
    if dist.get_rank() == 0:
        if arguments.out:
            with open(arguments.out, "w", encoding="utf-8") as file:
                file.write(text)
        else:
            sys.stdout.write(text)
    dist.barrier()  # gloo aborts a rank that ends while another one still talks to it.
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
