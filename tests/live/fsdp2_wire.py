#!/usr/bin/env python3
"""The live run of fsdp2_gpu.py: one rank trains on one GPU, with a network of delays.

usage: python3 tests/live/fsdp2_wire.py SPEC.json

The process group is PyTorch's "fake" one of 8 ranks, whose collectives do nothing. In place of them a kernel
that waits holds a communication stream of the group for as long as seconds_of() says. A gather copies its shard
to all places first, so that parameters are numbers.
"""

import json
import pathlib
import statistics
import sys
import time
import types

import torch
import torch.distributed as dist

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "calibrate" / "torch"), str(ROOT / "tests" / "live")]

import stepsim_models as models  # noqa: E402  (needs the paths above)
from fsdp2_gpu import NETWORKS, RANKS, seconds_of  # noqa: E402

BLOCK = 4
UNTIMED, FEWEST_PASSES = 3, 3


class Wire:
    """The network: collectives that hold a stream of their group."""

    def __init__(self, device):
        self.device = device
        self.network = next(iter(NETWORKS))
        self.streams = {}
        self.cycles_per_s = self.speed() if device.type == "cuda" else 0.0
        self.moved_per_s = self.copies() if device.type == "cuda" else 1e9

    def speed(self):
        cuda = torch.cuda
        cuda._sleep(1_000_000)
        begin, end = (cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        cuda._sleep(200_000_000)
        end.record()
        end.synchronize()
        return 2e8 / (begin.elapsed_time(end) / 1e3)

    def copies(self):
        """Bytes a second that a gather writes while it copies a shard to all places."""
        cuda = torch.cuda
        shard = torch.ones(1 << 20, device=self.device)
        whole = torch.empty(8 << 20, device=self.device)
        begin, end = (cuda.Event(enable_timing=True) for _ in range(2))
        whole.view(8, -1).copy_(shard)
        begin.record()
        for _ in range(20):
            whole.view(8, -1).copy_(shard)
        end.record()
        end.synchronize()
        return 20 * 4 * (8 << 20) / (begin.elapsed_time(end) / 1e3)

    def hold(self, kind, group, size, copy=None):
        """The stream of the caller goes on when the collective is over. Returns the stream."""
        seconds = seconds_of(self.network, kind, size)
        if self.device.type != "cuda":
            if copy is not None:
                copy()
            time.sleep(seconds)
            return None
        cuda = torch.cuda
        current = cuda.current_stream()
        stream = self.streams.get(group) or self.new(group)
        stream.wait_stream(current)
        with cuda.stream(stream):
            if copy is not None:
                copy()
                seconds -= size / self.moved_per_s
            cuda._sleep(int(max(0.0, seconds) * self.cycles_per_s))
            ended = stream.record_event()
        current.wait_event(ended)
        return stream

    def new(self, group):
        self.streams[group] = torch.cuda.Stream()
        return self.streams[group]

    def gather(self, output, shard, group=None, async_op=False):
        assert not async_op
        parts = output.view(-1, shard.numel())  # The shard is the first of them.
        self.hold("all_gather", group, output.numel() * output.element_size(), lambda: parts[1:].copy_(shard.view(-1)))

    def scatter(self, output, input, op=None, group=None, async_op=False):
        assert not async_op
        part = input.view(-1)[: output.numel()]
        self.hold("reduce_scatter", group, input.numel() * input.element_size(), lambda: output.view(-1).copy_(part))

    def reduce(self, tensor, op=None, group=None, async_op=False):
        assert not async_op
        self.hold("all_reduce", group, tensor.numel() * tensor.element_size())

    def hook(self, _state, bucket):
        """DDP's, on a stream that the backward does not wait for."""
        buffer = bucket.buffer()
        size = buffer.numel() * buffer.element_size()
        if self.device.type != "cuda":
            self.hold("all_reduce", "ddp", size)
            future = torch.futures.Future()
            future.set_result(buffer)
            return future
        cuda = torch.cuda
        stream = self.streams.get("ddp") or self.new("ddp")
        stream.wait_stream(cuda.current_stream())
        future = torch.futures.Future(devices=[self.device])
        with cuda.stream(stream):
            cuda._sleep(int(seconds_of(self.network, "all_reduce", size) * self.cycles_per_s))
            future.set_result(buffer)
        return future

    def host_seconds(self):
        """What the host takes for a gather, and for the hook of a bucket, which is called from C++ besides."""
        if self.device.type != "cuda":
            return {"gather": 0.0, "hook": 0.0}
        buffers = torch.ones(8, device=self.device), torch.ones(1, device=self.device)
        bucket = types.SimpleNamespace(buffer=lambda: buffers[0])
        return {
            "gather": self.timed(lambda: self.gather(*buffers, group="timed")),
            "hook": self.timed(lambda: self.hook(None, bucket)),
        }

    @staticmethod
    def timed(call):
        times = []
        for _ in range(50):
            torch.cuda.synchronize()
            begin = time.perf_counter()
            for _ in range(10):
                call()
            times.append((time.perf_counter() - begin) / 10)
        return statistics.median(times)


class Trainer:
    """The model under one parallelism, and its optimizer."""

    def __init__(self, config, name, wire):
        # pylint: disable=import-outside-toplevel
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        self.config = config
        model = models.make_model(config, wire.device).train()
        if name.startswith("ddp"):
            cap = 100 if name.endswith("100mib") else 25
            model = torch.nn.parallel.DistributedDataParallel(model, bucket_cap_mb=cap)
            model.register_comm_hook(None, wire.hook)
        else:
            more = {"reshard_after_forward": False} if name.endswith("keep") else {}
            if name.startswith("hsdp"):
                mesh = init_device_mesh(wire.device.type, (2, RANKS // 2), mesh_dim_names=("replicas", "shards"))
            else:
                mesh = init_device_mesh(wire.device.type, (RANKS,))
            for layer in model.layers:
                fully_shard(layer, mesh=mesh, **more)
            fully_shard(model, mesh=mesh, **more)
        self.model = model
        self.optimizer = models.make_optimizer("adamw", model.parameters())

    def step(self, batch):
        self.optimizer.zero_grad(set_to_none=True)
        with models.autocast(self.config, batch[0].device):
            loss = self.model(*batch)
        loss.backward()
        self.optimizer.step()


class Marks:
    """Ends of steps on the compute stream, or by the clock of the host."""

    def __init__(self, device):
        self.device, self.all = device, []

    def mark(self):
        if self.device.type != "cuda":
            self.all.append(time.perf_counter())
            return
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        self.all.append(event)

    def seconds(self):
        if self.device.type != "cuda":
            return [end - begin for begin, end in zip(self.all, self.all[1:])]
        torch.cuda.synchronize()
        return [begin.elapsed_time(end) / 1e3 for begin, end in zip(self.all, self.all[1:])]


def train(spec):
    """Writes {"network policy parallelism": [seconds of steps]}, and peak bytes of each parallelism alone."""
    from torch.testing._internal.distributed.fake_pg import FakeStore  # pylint: disable=import-outside-toplevel

    device = torch.device("cuda", 0) if spec["device"] == "cuda" else torch.device(spec["device"])
    dist.init_process_group("fake", rank=0, world_size=RANKS, store=FakeStore())
    wire = Wire(device)
    for name, own in (
        ("all_gather_into_tensor", wire.gather), ("all_gather_single", wire.gather),
        ("reduce_scatter_tensor", wire.scatter), ("reduce_scatter_single", wire.scatter),
        ("all_reduce", wire.reduce),
    ):  # fmt: skip
        if hasattr(dist, name):
            setattr(dist, name, own)
    config, began_at = spec["config"], time.time()

    def batch(policy):
        samples, length = spec["batches"][policy]
        return models.make_batch(config, [length] * samples, length, device)

    # Memory, each alone: the peak of a step, and what is held between steps.
    memory = {}
    for name in spec["parallelisms"] if device.type == "cuda" else ():
        before = torch.cuda.memory_allocated()
        trainer = Trainer(config, name, wire)
        for policy in spec["batches"]:
            for _ in range(UNTIMED):
                trainer.step(batch(policy))
            torch.cuda.synchronize()
            held = torch.cuda.memory_allocated() - before
            torch.cuda.reset_peak_memory_stats()
            trainer.step(batch(policy))
            torch.cuda.synchronize()
            memory[f"{policy} {name}"] = [torch.cuda.max_memory_allocated() - before, held]
        del trainer
        torch.cuda.empty_cache()

    trainers = {name: Trainer(config, name, wire) for name in spec["parallelisms"]}
    found = {f"{net} {policy} {name}": [] for net in spec["networks"] for policy in spec["batches"] for name in trainers}
    for name, trainer in trainers.items():
        for policy in spec["batches"]:
            for _ in range(UNTIMED):
                trainer.step(batch(policy))
    deadline, passes = time.monotonic() + spec["seconds"], 0
    while passes < FEWEST_PASSES or time.monotonic() < deadline:
        begun = time.monotonic()
        for cell in found:
            wire.network, policy, name = cell.split()
            trainer, own = trainers[name], batch(policy)
            if device.type == "cuda":
                torch.cuda.synchronize()
            trainer.step(own)  # The step before it, which hosts run ahead of.
            marks = Marks(device)
            marks.mark()
            for _ in range(BLOCK):
                trainer.step(batch(policy))
                marks.mark()
            found[cell] += marks.seconds()
        passes += 1
        if time.monotonic() + (time.monotonic() - begun) > deadline:
            break
    result = {
        "torch": torch.__version__, "began_at": began_at, "found": found, "memory": memory,
        "device": torch.cuda.get_device_name() if device.type == "cuda" else "cpu",
        "cycles_per_s": [wire.cycles_per_s, wire.speed() if device.type == "cuda" else 0.0],
    }  # fmt: skip
    pathlib.Path(spec["out"]).write_text(json.dumps(result), encoding="utf-8")


def host_of_wire(spec):
    wire = Wire(torch.device("cuda", 0) if spec["device"] == "cuda" else torch.device(spec["device"]))
    pathlib.Path(spec["out"]).write_text(json.dumps(wire.host_seconds()), encoding="utf-8")


def main():
    spec = json.loads(pathlib.Path(sys.argv[1]).read_text(encoding="utf-8"))
    {"train": train, "host_of_wire": host_of_wire}[spec["task"]](spec)


if __name__ == "__main__":
    main()
