#!/usr/bin/env python3
"""Measures torch.distributed's all_reduce, all_gather_into_tensor or reduce_scatter_tensor over message sizes
and prints the same table as nccl-tests' all_reduce_perf, all_gather_perf or reduce_scatter_perf, which
`stepcal import nccl-tests` reads. stepsim_recorder.py has to lie beside it.

    torchrun --nproc_per_node 2 all_reduce.py --out all_reduce.log
    torchrun --nproc_per_node 2 all_reduce.py --collective all_gather --out all_gather.log
    RANK=0 WORLD_SIZE=2 MASTER_ADDR=10.0.0.1 MASTER_PORT=29500 all_reduce.py --out all_reduce.log

The collectives of one size follow each other without a barrier; each is waited for. A size is that of the
buffer of all ranks: what is gathered, or what is reduced. The columns
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
LEAST_LARGEST = 1 << 20  # `stepcal import nccl-tests` refuses a table that ends below.


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--collective", choices=tuple(COLLECTIVES), default="all_reduce")
    parser.add_argument("--backend", choices=("gloo", "nccl"), default="gloo")
    parser.add_argument("--min-bytes", type=int, default=4096)
    parser.add_argument("--max-bytes", type=int, default=64 * 2**20)
    parser.add_argument("--seconds", type=float, default=1.0, help="time limit for each size")
    parser.add_argument("--max-iterations", type=int, default=1000, help="for each size")
    parser.add_argument("--out", help="file to write the table to; default: standard output")
    return parser.parse_args()


class NotThere(Exception):
    """The message says which collective the backend of this PyTorch lacks."""


class AllReduce:
    """A collective of one size on buffers of its own.

    Attributes:
        size: Bytes of the buffer of all ranks.
        count: Elements, as nccl-tests counts them: of a gather or a scatter those of a rank.
    """

    NAME, REDUCTION = "all_reduce", "sum"
    SHARE = 2  # Of (ranks - 1) / ranks of the bytes: what passes the bus, as nccl-tests defines it.

    def __init__(self, size, device):
        self.data = torch.zeros(size // BYTES, device=device.tensors_on)
        self.count, self.size = self.data.numel(), self.data.numel() * BYTES

    def run(self):
        dist.all_reduce(self.data)

    def wrong(self):
        """Returns how many elements of one more are wrong."""
        self.data.fill_(1.0)
        self.run()
        return int((self.data != dist.get_world_size()).sum())


class AllGather:
    """Likewise, of one part a rank."""

    NAME, REDUCTION, SHARE = "all_gather", "none", 1

    def __init__(self, size, device):
        ranks = dist.get_world_size()
        self.part = torch.zeros(max(1, size // BYTES // ranks), device=device.tensors_on)
        self.whole = torch.zeros(self.part.numel() * ranks, device=device.tensors_on)
        self.count, self.size = self.part.numel(), self.whole.numel() * BYTES

    def run(self):
        dist.all_gather_into_tensor(self.whole, self.part)

    def wrong(self):
        self.part.fill_(dist.get_rank() + 1.0)
        self.run()
        parts = self.whole.view(dist.get_world_size(), -1)
        expected = torch.arange(1, len(parts) + 1, device=parts.device).view(-1, 1)
        return int((parts != expected).sum())


class ReduceScatter(AllGather):
    """Likewise, the other way round."""

    NAME, REDUCTION = "reduce_scatter", "sum"

    def run(self):
        dist.reduce_scatter_tensor(self.part, self.whole)

    def wrong(self):
        self.whole.fill_(1.0)
        self.run()
        return int((self.part != dist.get_world_size()).sum())


COLLECTIVES = {one.NAME: one for one in (AllReduce, AllGather, ReduceScatter)}


class Device:
    """Where the data are, and how to time collectives there."""

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


def spans(device, run, count):
    """Runs `count` collectives one after the other; returns the seconds of each on this rank."""
    marks = [device.mark()]
    for _ in range(count):
        run()
        marks.append(device.mark())
    device.wait()
    return [device.seconds(begin, end) for begin, end in zip(marks, marks[1:])]


def from_rank_0(number, device):
    """Returns the whole number that rank 0 gives."""
    number = torch.tensor([number], device=device.tensors_on)
    dist.broadcast(number, 0)
    return int(number)


def iterations(device, run, arguments):
    """Returns how many iterations fit the time limit, at least 3. Rank 0 decides for all ranks."""
    each = statistics.median(spans(device, run, WARMUP))
    wanted = int(arguments.seconds / max(each, 1e-7))
    return from_rank_0(max(3, min(wanted, arguments.max_iterations)), device)


def mean_over_ranks(values, device):
    total = torch.tensor(values, dtype=torch.float64, device=device.tensors_on)
    dist.all_reduce(total)
    return [float(value) / dist.get_world_size() for value in total]


def measure(device, collective, arguments):
    """Returns (median seconds, mean seconds, wrong elements)."""
    taken = spans(device, collective.run, iterations(device, collective.run, arguments))
    wrong = collective.wrong()
    return *mean_over_ranks([statistics.median(taken), statistics.fmean(taken)], device), wrong


class Table:
    """The rows of the table, and their mean bus bandwidth as nccl-tests defines it."""

    def __init__(self, collective=AllReduce):
        ranks = dist.get_world_size()
        self.factor = collective.SHARE * (ranks - 1) / ranks
        self.reduction = collective.REDUCTION
        self.rows = []
        self.bandwidths = []
        self.wrong = 0

    def block(self, size, seconds, wrong):
        """Formats time in us, algorithm and bus bandwidth in GB/s, and wrong elements."""
        algorithm = size / seconds / 1e9
        self.bandwidths.append(algorithm * self.factor)
        self.wrong += wrong
        return f"{seconds * 1e6:11.2f} {algorithm:9.4f} {self.bandwidths[-1]:9.4f} {wrong:6}"

    def add(self, size, count, median, mean, wrong):
        count = f"{size:12} {count:13}     float    {self.reduction:>4}      -1"
        blocks = " ".join(self.block(size, seconds, wrong) for seconds in (median, mean))
        self.rows.append(f"{count} {blocks}")

    def foot(self):
        return [
            f"# Out of bounds values : {self.wrong} {'FAILED' if self.wrong else 'OK'}",
            f"# Avg bus bandwidth    : {statistics.fmean(self.bandwidths):.4f}",
        ]


def head(backend, device, collective=AllReduce):
    """Returns the lines that nccl-tests print above their rows; bus ids are made up."""
    places = [None] * dist.get_world_size()
    place = (socket.gethostname(), os.getpid(), device.index, device.name)
    dist.all_gather_object(places, place)
    lines = [
        f"# torch.distributed: {collective.NAME}, torch {torch.__version__}, backend {backend}",
        f"# Collective test starting: {collective.NAME}_perf",
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
    it. `arguments` has the members of parse_arguments(). Raises NotThere on all ranks."""
    device = Device(arguments.backend)
    kind = COLLECTIVES[arguments.collective]
    lines = head(arguments.backend, device, kind)
    table = Table(kind)
    size = arguments.min_bytes
    while size <= arguments.max_bytes:
        collective = kind(size, device)
        try:
            measured = measure(device, collective, arguments)
        except RuntimeError as error:
            if "not support" not in str(error) and "no support" not in str(error):
                raise
            raise NotThere(
                f"{arguments.backend} of PyTorch {torch.__version__} has no {kind.NAME} of one buffer ({error}); a "
                "newer PyTorch has"
            ) from error
        table.add(collective.size, collective.count, *measured)
        size *= 2
    return "\n".join(lines + table.rows + table.foot()) + "\n"


def quick_sweep(backend, data, seconds, index=None):
    """Measures sizes from 64 KiB up to that of `data` in about `seconds`, inside a training, and
    returns the table as text. All ranks of the default process group call it.

    Every round takes each size, small ones several times, so that all see the machine in the same
    state. The first round takes each once, warms up and checks the sums; it ends at the size by
    which a quarter of the time is gone, but not before 1 MiB, without which nothing is known of
    bandwidth.

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
        taken[size] = spans(device, lambda part=part: dist.all_reduce(part), 1)
        wrong[size] = int((part != dist.get_world_size()).sum())
        is_late = from_rank_0(int(time.perf_counter() - start > seconds / 4), device)
        if is_late and size >= LEAST_LARGEST:
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
            part = data[: size // BYTES]
            times += spans(device, lambda part=part: dist.all_reduce(part), repeats[size])
    table = Table()
    for size, times in taken.items():
        means = mean_over_ranks([statistics.median(times), statistics.fmean(times)], device)
        table.add(size, size // BYTES, *means, wrong[size])
    return "\n".join(lines + table.rows + table.foot()) + "\n"


def main():
    arguments = parse_arguments()
    stepsim_recorder.start_ranks(arguments.backend)
    try:
        text = sweep(arguments)
    except NotThere as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    if dist.get_rank() == 0:
        if arguments.out:
            with open(arguments.out, "w", encoding="utf-8") as file:
                file.write(text)
        else:
            sys.stdout.write(text)
    dist.barrier()  # gloo aborts a rank that ends while another one still talks to it.
    stepsim_recorder.end_ranks()


if __name__ == "__main__":
    main()
