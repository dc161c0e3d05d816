#!/usr/bin/env python3
"""One rank of fsdp2_live.py: times gloo's collectives, or trains plans under DDP and fully_shard by turns.

    RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 fsdp2_rank.py SPEC.json

SPEC.json: {"task": "collectives", "replicas", "largest_bytes", "seconds", "out"}, or {"task": "train",
"replicas", "model", "plans", "block", "passes", "seconds", "out"}, or {"task": "record", "replicas",
"model", "plan", "parallelism", "record", "seconds", "out"}. Rank 0 writes `out`.
"""

import collections
import importlib
import json
import pathlib
import random
import sys
import time

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

LIVE = pathlib.Path(__file__).resolve().parent
SMALLEST_BYTES = 4096
BLOCK_BEFORE = 4  # Steps before a recording: the order of the units is met, memory is there.
CLOCK = time.monotonic  # One clock for all ranks of a machine.


def mesh_of(replicas):
    """The mesh of FSDP2, or of HSDP with several replicas."""
    world = dist.get_world_size()
    if replicas == 1:
        return init_device_mesh("cpu", (world,), mesh_dim_names=("shards",))
    return init_device_mesh("cpu", (replicas, world // replicas), mesh_dim_names=("replicas", "shards"))


def gathered(value):
    values = [None] * dist.get_world_size()
    dist.all_gather_object(values, value)
    return values


# ---- collectives ---------------------------------------------------------------------------------


class Collectives:
    """All-reduces of all ranks, and gathers and reductions of the groups that FSDP2 or HSDP has."""

    def __init__(self, replicas):
        mesh = mesh_of(replicas)
        shards = mesh.get_group("shards")
        self.groups = [("all_reduce", dist.group.WORLD)]
        self.groups += [("all_gather", shards), ("reduce_scatter", shards)]
        if replicas > 1:
            self.groups.append(("all_reduce", mesh.get_group("replicas")))
        self.rows = torch.ones(512, 512)

    def once(self, kind, group, size):
        """Returns (begin, end). Buffers are new each time, as fully_shard's are."""
        ranks = dist.get_world_size(group)
        whole = torch.zeros(size // 4)
        part = torch.zeros(size // 4 // ranks)
        self.rows.matmul(self.rows)  # As in a step, other data are in the caches, and ranks do not arrive together.
        begin = CLOCK()
        if kind == "all_reduce":
            dist.all_reduce(whole, group=group)
        elif kind == "all_gather":
            dist.all_gather_into_tensor(whole, part, group=group)
        else:
            dist.reduce_scatter_tensor(part, whole, op=dist.ReduceOp.AVG, group=group)
        return begin, CLOCK()


def collectives(spec):
    """Returns {"kind ranks": {bytes: [seconds from the last rank's begin to the last rank's end]}}."""
    measured = Collectives(spec["replicas"])
    sizes = []
    while not sizes or sizes[-1] < spec["largest_bytes"]:
        sizes.append(SMALLEST_BYTES << len(sizes))
    times = collections.defaultdict(list)
    deadline = CLOCK() + spec["seconds"]
    drawn = random.Random(1)
    while True:
        order = [(kind, group, size) for kind, group in measured.groups for size in sizes]
        drawn.shuffle(order)  # The same on all ranks.
        for kind, group, size in order:
            name = f"{kind} {dist.get_world_size(group)}"
            members = tuple(dist.get_process_group_ranks(group))
            times[name, size].append((members, *measured.once(kind, group, size)))
        stop = torch.tensor([float(CLOCK() > deadline)])
        dist.all_reduce(stop, dist.ReduceOp.MAX)
        if stop.item() > 0:
            break
    by_rank = gathered(dict(times))
    found = collections.defaultdict(dict)
    for name, size in times:
        seconds = []
        for ranks in zip(*(own[name, size] for own in by_rank)):
            for members in {one[0] for one in ranks}:
                own = [one for one in ranks if one[0] == members]
                seconds.append(max(end for _, _, end in own) - max(begin for _, begin, _ in own))
        found[name][size] = seconds
    return found


# ---- training ------------------------------------------------------------------------------------


class Trainer:
    """The model under one parallelism, and its optimizer."""

    def __init__(self, module, parallelism, mesh):
        model = module.make_model()
        if parallelism == "ddp":
            model = torch.nn.parallel.DistributedDataParallel(model)
        else:
            more = {"reshard_after_forward": False} if parallelism.endswith("keep") else {}
            for layer in model.layers:
                fully_shard(layer, mesh=mesh, **more)
            fully_shard(model, mesh=mesh, **more)
        self.model = model.train()
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6)  # As stepsim_calibrate.py's default.

    def step(self, batch):
        self.optimizer.zero_grad(set_to_none=True)
        self.model(*batch).backward()
        self.optimizer.step()


class Run:
    """A plan under one parallelism."""

    def __init__(self, plan, trainer, module):
        with open(plan, encoding="utf-8") as lines:
            next(lines)
            rows = [json.loads(line) for line in lines]
        self.rows = [row for row in rows if row["rank"] == dist.get_rank()]
        self.trainer, self.module = trainer, module
        self.blocks = []  # (begin, ends of steps)

    def play(self, first, last):
        """Trains some steps in a row; their batches are made before."""
        batches = [
            self.module.make_batch(len(row["lengths"]), row["max_length"], "cpu", row["lengths"])
            for row in self.rows[first:last]
        ]
        dist.barrier()
        begin, ends = CLOCK(), []
        for batch in batches:
            self.trainer.step(batch)
            ends.append(CLOCK())
        return begin, ends


def train(spec):
    """Returns {"policy parallelism": [seconds of steps]}: from the last rank's begin of a block to the last
    rank's end of a step, and from there to the next one's."""
    sys.path.insert(0, str(LIVE / "own"))
    module = importlib.import_module(spec["model"])
    mesh = mesh_of(spec["replicas"])
    trainers = {one: Trainer(module, one, mesh) for one in spec["parallelisms"]}
    runs = {}
    for plan in map(pathlib.Path, spec["plans"]):
        for name, trainer in trainers.items():
            runs[f"{plan.stem} {name}"] = Run(plan, trainer, module)
    names, steps = list(runs), min(len(run.rows) for run in runs.values())
    for name, run in runs.items():  # DDP meets all batches and rebuilds its buckets, others meet their order.
        run.play(0, steps if name.endswith(" ddp") else spec["block"])
    deadline = CLOCK() + spec["seconds"]
    for number in range(spec["passes"]):
        begun = CLOCK()
        for turn, first in enumerate(range(0, steps, spec["block"])):
            shift = (turn + number * 4) % len(names)
            for name in names[shift:] + names[:shift]:
                runs[name].blocks.append(runs[name].play(first, first + spec["block"]))
        over = torch.tensor([float(CLOCK() + (CLOCK() - begun) > deadline)])  # Another pass takes as long.
        dist.all_reduce(over, dist.ReduceOp.MAX)
        if over.item() > 0:
            break
    found = {}
    for name, run in runs.items():
        found[name] = []
        for ranks in zip(*gathered(run.blocks)):
            marks = [max(begin for begin, _ in ranks), *map(max, zip(*(ends for _, ends in ranks)))]
            found[name] += [end - begin for begin, end in zip(marks, marks[1:])]
    return found


# ---- recording -----------------------------------------------------------------------------------


def record(spec):
    """Records a plan under fully_shard with stepsim_recorder.py, pass after pass."""
    sys.path[:0] = [str(LIVE / "own"), str(LIVE.parents[1] / "calibrate" / "torch")]
    import stepsim_recorder  # pylint: disable=import-outside-toplevel

    module = importlib.import_module(spec["model"])
    trainer = Trainer(module, spec["parallelism"], mesh_of(spec["replicas"]))
    run = Run(spec["plan"], trainer, module)
    run.play(0, min(BLOCK_BEFORE, len(run.rows)))
    recorder = stepsim_recorder.Recorder(
        spec["record"], policy=pathlib.Path(spec["plan"]).stem, model=trainer.model, optimizer=trainer.optimizer
    )
    deadline = CLOCK() + spec["seconds"]
    while True:
        for row in run.rows:
            batch = module.make_batch(len(row["lengths"]), row["max_length"], "cpu", row["lengths"])
            with recorder.step(lengths=row["lengths"], max_length=row["max_length"]):
                trainer.optimizer.zero_grad(set_to_none=True)
                recorder.backward(trainer.model(*batch))
                trainer.optimizer.step()
        over = torch.tensor([float(CLOCK() > deadline)])
        dist.all_reduce(over, dist.ReduceOp.MAX)
        if over.item() > 0:
            break
        recorder.next_repeat()
    recorder.close()
    return {"error": recorder.error}


def main():
    spec = json.loads(pathlib.Path(sys.argv[1]).read_text(encoding="utf-8"))
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(1 + dist.get_rank())
    begun = time.time()
    found = {"collectives": collectives, "train": train, "record": record}[spec["task"]](spec)
    if dist.get_rank() == 0:
        result = {"began_at": begun, "torch": torch.__version__, "found": found}
        pathlib.Path(spec["out"]).write_text(json.dumps(result), encoding="utf-8")
    dist.barrier()  # gloo aborts a rank that ends while another one still talks to it.
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
