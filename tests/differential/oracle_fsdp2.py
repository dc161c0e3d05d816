"""The oracle's second opinion on FSDP2: the schedule of PyTorch's fully_shard, rank by rank.

Written from the documents alone: the order of hooks, gathers and reductions, the streams and what
they wait for, the kernels and their bytes. It knows chains of ops in which each unit is used once:
a root around blocks, or a model that is one unit.
"""

import math

import oracle

GATHER_IN, GATHER, REDUCE, REPLICA = "gather_in", "gather", "reduce", "replica"
DEVICE = None


class Unit:
    """A unit of fully_shard and the bytes that it moves."""

    def __init__(self, model, tensors, parallel, shards):
        self.tensors = tensors
        stored = model.element_bytes
        gathered = oracle.ELEMENT_BYTES.get(parallel.get("param_dtype", "own"), stored)
        reduced = oracle.ELEMENT_BYTES.get(parallel.get("reduce_dtype", "own"), stored)
        elements = sum(self.padded(model.shapes[tensor], shards) for tensor in tensors)
        self.owned = elements // shards
        self.stored_shard = elements * stored / shards
        self.gathered = elements * gathered
        self.reduced = elements * reduced
        types = [parallel.get(key, "own") for key in ("param_dtype", "reduce_dtype")]
        self.casts, self.casts_back = (one not in ("own", model.parameter_dtype) for one in types)

    @staticmethod
    def padded(shape, shards):
        return math.ceil(shape[0] / shards) * shards * math.prod(shape[1:])


def unit_of(model, tensor):
    """The name of the block that a tensor is in: up to the first number of its name."""
    if model.names is None:
        return f"block{tensor}"
    parts = model.names[tensor].split(".")
    numbers = [i for i, part in enumerate(parts) if part.isdigit()]
    return ".".join(parts[:numbers[0] + 1]) if numbers else "root"


class Schedule:
    """What one rank does in a step. It goes on as a generator: where it meets the other ranks of a
    group it yields what it brings, and gets the times of the collective."""

    def __init__(self, job, rank, row, skew):
        self.job, self.rank, self.row, self.skew = job, rank, row, skew
        self.gathered = set()   # Units that are whole.
        self.pending = {}       # [unit] times of the gather under way; None: nobody to wait for.
        self.saved = None       # When the last gather's buffer had been copied out.
        self.part = "forward"   # What of the row is under way.

    # -- Kernels and waits.

    def run(self, nanoseconds, part):
        """A kernel on the device, with the time before it that the device stands still."""
        before = self.rank.device
        self.rank.run(nanoseconds)
        self.row[part] += self.rank.device - before

    def memory(self, nbytes, part, stream=DEVICE):
        """A pass over so many bytes. On a CPU what a GPU does beside compute counts with the part that is under way."""
        time = self.job.costs.copy_in(max(1, math.ceil(nbytes / (2 * self.job.model.element_bytes))))
        rank = self.rank
        if stream is DEVICE or rank.host_is_device:
            self.run(time, part if stream is DEVICE else self.part)
            return
        rank.host += rank.launch
        begin = max(rank.streams.get(stream, -math.inf), rank.host)
        rank.streams[stream] = begin + oracle.whole(time * rank.factor)

    def hooks(self, nanoseconds):
        if self.rank.host_is_device:
            self.rank.device += nanoseconds
            self.row[self.part] += nanoseconds
        else:
            self.rank.host += nanoseconds

    def stream(self, name):
        return self.rank.streams.get(name, -math.inf)

    def follow(self, name, time):
        if not self.rank.host_is_device:
            self.rank.streams[name] = max(self.stream(name), time)

    def call(self, kind, nbytes, stream, group):
        """A collective; returns (last arrival, end)."""
        rank = self.rank
        self.hooks(self.job.enqueue)
        arrival = rank.device if rank.host_is_device else max(rank.host, self.stream(stream))
        _, last, end = yield kind, nbytes, group, arrival
        if rank.host_is_device and not (kind == "gather" and self.job.asynchronous):
            self.stand(last, end)
        return last, end

    def stand(self, last, end):
        """The device waits for a collective."""
        device = self.rank.device
        self.row["exposed"] += max(end - device, 0)
        self.rank.device = max(device, end)

    # -- What fully_shard does.

    def drop_buffer(self):
        if self.saved is not None:
            self.follow(GATHER_IN, self.saved)
            self.follow(GATHER, self.saved)
        self.saved = None

    def unshard(self, unit):
        if unit in self.gathered or unit in self.pending:
            return
        what, shards = self.job.units[unit], self.job.shards
        if what.casts:
            self.memory(what.stored_shard + what.gathered / shards, "forward", GATHER_IN)
        self.memory(2 * what.gathered / shards, "forward", GATHER_IN)
        self.pending[unit] = None
        if shards > 1:
            self.follow(GATHER, self.stream(GATHER_IN))
            self.pending[unit] = yield from self.call("gather", what.gathered, GATHER, "shard")

    def await_unit(self, unit, backward):
        if unit in self.gathered:
            return
        if not backward:
            self.drop_buffer()
        times = self.pending.pop(unit)
        if times and not (self.rank.host_is_device and not self.job.asynchronous):
            self.stand(*times)
        self.memory(2 * self.job.units[unit].gathered, "backward" if backward else "forward")
        self.saved = self.rank.device
        if backward:
            self.drop_buffer()
        self.gathered.add(unit)

    def enter(self, unit):
        host = self.job.host
        self.hooks(host["unit_forward"] + host["unit_forward_tensor"] * len(self.job.units[unit].tensors))
        yield from self.unshard(unit)
        self.await_unit(unit, False)

    def half_hook(self, unit):
        host = self.job.host
        both = host["unit_backward"] + host["unit_backward_tensor"] * len(self.job.units[unit].tensors)
        self.hooks(both // 2)

    def before_backward(self, unit, order):
        """`order`: the units in the order in which their forwards ended."""
        self.half_hook(unit)
        yield from self.unshard(unit)
        self.await_unit(unit, True)
        place = order.index(unit)
        if place > 0:
            yield from self.unshard(order[place - 1])

    def after_backward(self, unit, last):
        """`last`: gradients are reduced in this micro-batch."""
        job, what = self.job, self.job.units[unit]
        gradients = what.gathered
        if not last:
            if unit in self.kept_gradients:
                self.memory(gradients + 2 * what.reduced, "backward")
            elif what.reduced != gradients:
                self.memory(gradients + what.reduced, "backward")
            self.kept_gradients.add(unit)
        self.half_hook(unit)
        if job.frees_after_backward or self.is_last:
            self.gathered.discard(unit)
        if not last or job.shards == 1 and not job.replicates:
            return
        if job.shards > 1:
            if len(self.held) >= job.buffers:
                times = self.held.pop(0)
                if not self.rank.host_is_device:
                    self.stand(*times)
            kept = unit in self.kept_gradients
            if kept:
                self.kept_gradients.discard(unit)
                self.memory(gradients + 2 * what.reduced, "backward")
            self.memory((what.reduced if kept else gradients) + what.reduced, "backward")
            self.follow(REDUCE, self.rank.device)
            times = yield from self.call("scatter", what.reduced, REDUCE, "reduce")
            self.held.append(times)
            self.follow(REDUCE, times[1])
            if not job.replicates:
                self.finish(unit, REDUCE)
            self.ends[REDUCE] = self.stream(REDUCE)
        else:
            self.memory(gradients + what.reduced, "backward")
            self.follow(REPLICA, self.rank.device)
        if job.replicates:
            if job.shards > 1:
                self.follow(REPLICA, self.held[-1][1])
            times = yield from self.call("all_reduce", what.reduced / job.shards, REPLICA, "replica")
            self.follow(REPLICA, times[1])
            self.finish(unit, REPLICA)
            self.ends[REPLICA] = self.stream(REPLICA)

    def finish(self, unit, stream):
        what = self.job.units[unit]
        shard = what.reduced / self.job.shards
        if what.casts_back:
            self.memory(shard + what.stored_shard, "forward", stream)
        if unit in self.has_gradient:
            self.memory(3 * what.stored_shard, "forward", stream)
        self.has_gradient.add(unit)

    def forward(self, batch):
        job, costs = self.job, self.job.costs
        self.follow(GATHER_IN, self.rank.device)
        self.follow(GATHER, self.rank.device)
        order, current = [], "root"
        if "root" in job.units:
            yield from self.enter("root")

        def leave(unit):
            if unit in job.units:
                order.append(unit)
                if job.frees(unit):
                    self.gathered.discard(unit)

        for tensor, work in enumerate(job.model.forward):
            unit = job.unit[tensor]
            if unit != current:
                if current != "root":
                    leave(current)
                if unit != "root":
                    yield from self.enter(unit)
                current = unit
            self.run(self.skew * costs.op("forward", work, batch), "forward")
        if current != "root":
            leave(current)
        leave("root")
        self.drop_buffer()
        return order

    def backward(self, batch, order, last):
        """Hooks fire as autograd reaches the outputs and inputs that they are on."""
        job, model = self.job, self.job.model
        self.held, self.ends = [], {}
        chain = [job.unit[tensor] for tensor in reversed(range(len(model.elements)))]
        has_root = "root" in job.units
        first_block = next((unit for unit in reversed(chain) if unit != "root"), None)
        # Where the model returns its last block's output as it is, the hooks of both are on one
        # tensor, and that of the block came first.
        root_waits = has_root and chain[0] != "root"
        if has_root and not root_waits:
            yield from self.before_backward("root", order)
        late = []
        for i, unit in enumerate(chain):
            tensor = len(chain) - 1 - i
            if unit != "root" and (i == 0 or chain[i - 1] != unit):
                yield from self.before_backward(unit, order)
                if root_waits:
                    yield from self.before_backward("root", order)
                    root_waits = False
            self.run(self.skew * job.costs.op("backward", model.backward[tensor], batch), "backward")
            if unit != "root" and (i + 1 == len(chain) or chain[i + 1] != unit):
                # The first block's input needs no gradient unless the root computed it.
                if unit == first_block and chain[-1] != "root":
                    late.append(unit)
                else:
                    yield from self.after_backward(unit, last)
        for unit in (["root"] if has_root else []) + late:
            yield from self.after_backward(unit, last)
        self.row["backward_end"] = self.rank.device
        self.pending.clear()
        if not self.rank.host_is_device:
            for end in self.ends.values():
                self.stand(-math.inf, end)

    def step(self):
        rank, row, job = self.rank, self.row, self.job
        self.kept_gradients, self.has_gradient = set(), set()
        for m, batch in enumerate(row["batches"]):
            self.is_last = m == job.micro - 1
            reduces = self.is_last or not job.keeps_gradients
            before = rank.device
            rank.build(job.costs.collate(batch))
            row["data"] += rank.device - before
            self.part = "forward"
            order = yield from self.forward(batch)
            self.part = "backward"
            yield from self.backward(batch, order, reduces)
        self.part = "optimizer"
        self.hooks(job.host["sharded_tensor"] * len(job.model.elements))
        self.run(job.costs.optimizer(job.owned), "optimizer")
        row["step"] = rank.device - row["start"]


class Fsdp2Oracle(oracle.Oracle):
    """Plays steps of FSDP2, plain or with replicas."""

    def __init__(self, tables, files, profile):
        super().__init__(tables, files, profile)
        parallel = tables["parallel"]
        ranks = len(self.ranks)
        self.replicas = parallel.get("replicas", 1)
        self.replicates = self.replicas > 1
        self.shards = ranks // self.replicas
        whole_model = parallel.get("units", "blocks") == "model"
        self.unit = ["root" if whole_model else unit_of(self.model, tensor)
                     for tensor in range(len(self.model.elements))]
        self.units = {unit: Unit(self.model, [t for t, own in enumerate(self.unit) if own == unit], parallel,
                                 self.shards) for unit in dict.fromkeys(self.unit)}
        self.owned = sum(unit.owned for unit in self.units.values())
        reshard = parallel.get("reshard_after_forward", "default")
        self.frees = lambda unit: reshard == "true" or reshard == "default" and unit != "root"
        self.buffers = parallel.get("reduce_buffers", 1)
        self.separate = parallel.get("separate_reduce_group", False)
        self.asynchronous = False
        mode = parallel.get("accumulation", "reduce")
        self.keeps_gradients = mode in ("no_sync", "keep_no_sync")
        self.frees_after_backward = mode not in ("keep", "keep_no_sync")
        host = tables["host"]
        self.host = {key: oracle.whole(oracle.number(host[key])) for key in (
            "unit_forward", "unit_forward_tensor", "unit_backward", "unit_backward_tensor", "sharded_tensor")}
        self.enqueue = oracle.whole(oracle.number(host.get("enqueue", 0)))
        self.initial = self.rebuilt = [
            self.units[unit].tensors for unit in (["root"] if "root" in self.units else [])
            + [unit for unit in dict.fromkeys(self.unit) if unit != "root"]][::-1]

    def group_of(self, name, rank):
        return (name, rank % self.shards) if name == "replica" else (name, rank // self.shards)

    def seconds(self, kind, size, members):
        if kind == "all_reduce":
            cluster = {**self.tables["cluster"], "ranks": members}
            return oracle.collective({"cluster": cluster}, self.profile, size)
        cluster = self.tables["cluster"]
        if "all_reduce" in cluster or self.profile and self.profile.get("collectives"):
            return oracle.collective(self.tables, self.profile, size) / 2
        return oracle.over_links(cluster["topology"], members, cluster.get("ranks_per_node", members), size, half=True)

    def step(self, step):
        rows, reductions = [], []
        for rank, epoch in zip(self.ranks, self.epochs):
            batches = [epoch[(step * self.micro + m) % len(epoch)] for m in range(self.micro)]
            rows.append({
                "batches": batches, "start": rank.device, "data": 0, "forward": 0, "backward": 0,
                "exposed": 0, "waiting": 0, "optimizer": 0,
                "samples": sum(batch.samples for batch in batches),
                "max_length": max(batch.length for batch in batches),
                "useful_tokens": sum(batch.useful for batch in batches),
                "padded_tokens": sum(batch.padded for batch in batches)})
        running = [Schedule(self, *one).step() for one in zip(self.ranks, rows, self.skew)]
        asked = [next(one, None) for one in running]
        free = {}
        while any(asked):
            waiting = {}
            for rank, (kind, size, group, arrival) in enumerate(asked):
                waiting.setdefault(self.group_of(group, rank), []).append((rank, kind, size, arrival))
            for (name, number), members in waiting.items():
                _, kind, size, _ = members[0]
                communicator = (name if name != "reduce" or self.separate else "shard", number)
                last = max(arrival for *_, arrival in members)
                begin = max(last, free.get(communicator, -math.inf))
                end = free[communicator] = begin + oracle.whole(self.seconds(kind, size, len(members)))
                # A rank's own collectives count.
                reductions.append((begin, begin + (end - begin) * len(members) / len(rows)))
                for rank, *_ in members:
                    try:
                        asked[rank] = running[rank].send((begin, last, end))
                    except StopIteration:
                        asked[rank] = None
        least = min(row["exposed"] for row in rows)
        for row in rows:  # What the rank that waits least waits for are transfers.
            row["waiting"] = row["exposed"] - least
        return rows, reductions
