"""What a host spends on the units of fully_shard (FSDP2): its hooks, and the optimizer on sharded
tensors. stepsim_calibrate.py and stepsim_measure.py time it before the ranks meet. It needs only torch
and, beside it, stepsim_ranks.py.

Small units are trained plainly and under fully_shard by turns. The process group is PyTorch's "fake" one,
whose collectives do nothing, and a tensor holds a few numbers, so that what the sharded step takes more is
the host's own work. On a CPU times are the thread's processor time, and each unit has a matrix product in
forward and backward: behind a layer's work hooks take half as long again as in a row, since their data is
no longer in the caches. On a GPU the tensors are there, and times are the clock's: autograd's backward runs
in a thread of its own, and the device, which has next to nothing to do, is waited for before each step.
"""

import functools
import os
import statistics
import sys
import time

if __package__:  # A module of the package stepsim …
    from . import stepsim_ranks  # It says so where there is no PyTorch.
else:  # … or a file by itself, with the others beside it.
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    import stepsim_ranks  # It says so where there is no PyTorch.

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

SIZES = ((3, 1), (3, 12), (8, 1), (8, 6), (8, 12))  # (units, tensors of each), the root among them.
SHARDS = 2
ROWS = 8  # Of a tensor.
WORK = 384  # Rows of the matrices that a unit multiplies on a CPU.
LARGE = (3, 4, 1 << 19)  # Units, tensors of each, rows: what copies take, by the byte.
UNTIMED, STEPS = 2, 8


class NotMeasured(Exception):
    """Says why."""


@functools.cache
def matrix_of_work():
    return torch.full((WORK, WORK), 1.0 / WORK)


class Work(torch.autograd.Function):
    """A product of matrices in forward and in backward, which changes nothing."""

    @staticmethod
    def forward(ctx, rows, matrix):
        ctx.matrix = matrix
        matrix @ matrix
        return rows.clone()

    @staticmethod
    def backward(ctx, gradient):
        ctx.matrix @ ctx.matrix
        return gradient, None


class Unit(torch.nn.Module):
    """Uses so many small tensors, and then the units inside of it."""

    def __init__(self, tensors, inner=(), rows=ROWS):
        super().__init__()
        self.weights = torch.nn.ParameterList(torch.nn.Parameter(torch.ones(rows)) for _ in range(tensors))
        self.inner = torch.nn.ModuleList(inner)

    def forward(self, rows):
        if rows.device.type == "cpu":
            rows = Work.apply(rows, matrix_of_work())
        for weight in self.weights:
            rows = rows * weight
        for unit in self.inner:
            rows = unit(rows)
        return rows


class Trained:
    """Such a model, plain or sharded, and its optimizer."""

    def __init__(self, units, tensors, make_optimizer, device, shard=None, rows=ROWS):
        self.rows, self.device = rows, device
        self.model = Unit(tensors, [Unit(tensors, rows=rows) for _ in range(units - 1)], rows).to(device)
        if shard is not None:
            for unit in self.model.inner:
                shard(unit)
            shard(self.model)
        self.optimizer = make_optimizer(list(self.model.parameters()))

    def step(self):
        """Returns the host's seconds in forward, backward and optimizer."""
        clock = time.perf_counter if self.device.type == "cuda" else time.thread_time
        # Blocks of a real model have inputs with gradients.
        rows = torch.ones(self.rows, device=self.device, requires_grad=True)
        self.optimizer.zero_grad(set_to_none=True)
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        at = [clock()]
        loss = self.model(rows).sum()
        at.append(clock())
        loss.backward()
        at.append(clock())
        self.optimizer.step()
        at.append(clock())
        return [end - begin for begin, end in zip(at, at[1:])]


def fit(samples):
    """Solves a * units + b * tensors by least squares of relative errors, neither below 0.

    Args:
        samples: (units, tensors of all of them, seconds) of each model.

    Returns (seconds of a unit, seconds of a tensor).
    """
    rows = [(n / t, p / t) for n, p, t in samples if t > 0]
    if not rows:
        return 0.0, 0.0
    aa, ab, bb = (sum(x * y for x, y in ((r[i], r[j]) for r in rows)) for i, j in ((0, 0), (0, 1), (1, 1)))
    a, b = sum(r[0] for r in rows), sum(r[1] for r in rows)
    determinant = aa * bb - ab * ab
    unit, tensor = (a * bb - b * ab) / determinant, (b * aa - a * ab) / determinant
    if tensor < 0:
        return a / aa, 0.0
    if unit < 0:
        return 0.0, b / bb
    return unit, tensor


def times_of(samples):
    """What a profile's host takes as "units", of what sharded steps took longer than plain ones.

    Args:
        samples: {(units, tensors of each): seconds of forward, backward, optimizer}.
    """
    sizes = [(units, units * tensors) for units, tensors in samples]
    parts = list(zip(*samples.values()))
    forward, backward = (fit([(*size, one) for size, one in zip(sizes, part)]) for part in parts[:2])
    _, optimizer = fit_tensors([(size[1], one) for size, one in zip(sizes, parts[2])])
    return {
        **{"forward_s": forward[0], "forward_tensor_s": forward[1]},
        **{"backward_s": backward[0], "backward_tensor_s": backward[1]},
        "optimizer_tensor_s": optimizer,
    }


def byte_seconds(seconds, times, size, shards=SHARDS):
    """What copies take for each byte that they read or write, of a model of large tensors.

    Args:
        seconds: What its sharded steps took longer in forward and backward.
        times: times_of() small ones.
        size: Its units, the tensors of each and the elements of a tensor.
        shards: Of the process group.

    A forward gathers each unit: a shard is copied into the buffer and the whole out of it. A backward gathers
    all but the root again, and copies all gradients into the buffer of the reduction.
    """
    units, tensors, elements = size
    unit = 4 * tensors * elements  # Bytes.
    gather, reduction = 2 * unit / shards + 2 * unit, 2 * unit
    moved = [units * gather, (units - 1) * gather + units * reduction]
    hooks = [units * times[f"{way}_s"] + units * tensors * times[f"{way}_tensor_s"] for way in ("forward", "backward")]
    return max(0.0, (sum(seconds[:2]) - sum(hooks)) / sum(moved))


def fit_tensors(samples):
    """Solves c + b * tensors by least squares: an optimizer's step begins with work of its own, which is
    no tensor's. Returns (c, b), b not below 0."""
    counts, times = zip(*samples)
    middle, mean = statistics.fmean(counts), statistics.fmean(times)
    slope = sum((n - middle) * (t - mean) for n, t in samples) / sum((n - middle) ** 2 for n in counts)
    return mean - max(0.0, slope) * middle, max(0.0, slope)


def longer(units, tensors, make_optimizer, device, shard, rows=ROWS):
    """What sharded steps take longer than plain ones: medians of steps by turns."""
    plain = Trained(units, tensors, make_optimizer, device, rows=rows)
    sharded = Trained(units, tensors, make_optimizer, device, shard, rows)
    steps = [(sharded.step(), plain.step()) for _ in range(UNTIMED + STEPS)][UNTIMED:]
    medians = [[statistics.median(part) for part in zip(*times)] for times in zip(*steps)]
    return [with_shards - without for with_shards, without in zip(*medians)]


def measure(make_optimizer, device):
    """Times the host's work for units of fully_shard, with the job's own optimizer.

    Args:
        make_optimizer: make_optimizer(parameters).
        device: Where the job trains.

    Returns a dict of seconds, as a profile's host has them as "units". Raises NotMeasured: this PyTorch
    has no fully_shard, a process group has begun, or the job's optimizer takes no sharded tensors.
    """
    if not dist.is_available():
        raise NotMeasured("this PyTorch has no torch.distributed")
    if dist.is_initialized():
        raise NotMeasured("the process group has begun already")
    try:
        # pylint: disable=import-outside-toplevel
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard
        from torch.testing._internal.distributed.fake_pg import FakeStore
    except ImportError as error:
        raise NotMeasured(f"PyTorch {torch.__version__} has no fully_shard, or none to try") from error
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        dist.init_process_group("fake", rank=0, world_size=SHARDS, store=FakeStore())
        mesh = init_device_mesh(device.type, (SHARDS,))

        def shard(module):
            fully_shard(module, mesh=mesh)

        times = times_of({size: longer(*size, make_optimizer, device, shard) for size in SIZES})
        if device.type == "cpu":  # A GPU copies by kernels that have prices of their own.
            large = longer(*LARGE[:2], make_optimizer, device, shard, LARGE[2])
            times["byte_s"] = byte_seconds(large, times, LARGE)
        return times
    except Exception as error:  # pylint: disable=broad-except
        if stepsim_ranks.is_out_of_memory(error):
            raise
        raise NotMeasured(f"{type(error).__name__}: {str(error).splitlines()[:1]}") from error
    finally:
        torch.set_num_threads(threads)
        if dist.is_initialized():
            dist.destroy_process_group()


def measured(make_optimizer, device):
    """Returns measure(), or None and says why not on rank 0."""
    try:
        return measure(make_optimizer, device)
    except NotMeasured as error:
        if os.environ.get("RANK", "0") == "0":
            print(f"not measured: the host's time for units of fully_shard: {error}", flush=True)
        return None
