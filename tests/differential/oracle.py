"""A slow, plain second opinion on the step time of DDP.

Written from the documents alone (scenarios/README.md, costmodel/README.md, sim/README.md and PyTorch's
rules as they cite them), never from the C++ sources, and with loops where those have formulas.
It knows plain scenarios: models of kind `blocks` with or without their own tensors, costs of
`[times]` or of a profile's tables, sums of features and rooflines, measured all-reduces or closed
forms over links, DDP without hooks, batches without randomness. No noise, no interference, no host.

All times are whole nanoseconds. A kernel, a collective and the building of a batch are rounded to
them one by one.
"""

import bisect
import math
import re

UNITS = {
    "ns": 1, "us": 1e3, "ms": 1e6, "s": 1e9,
    "B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30,
    "MB/s": 1e6, "GB/s": 1e9, "GiB/s": 2**30, "Gbit/s": 1e9 / 8,
}
ELEMENT_BYTES = {"f32": 4, "tf32": 4, "bf16": 2, "f16": 2, "f64": 8}
UNLIMITED = math.inf


def number(text):
    """The value of "25 MiB" in bytes, of "1.5 ms" in nanoseconds, of "3 GB/s" in bytes a second."""
    if not isinstance(text, str):
        return text
    digits, unit = re.fullmatch(r"([0-9.eE+-]+?) ?([A-Za-z/]+)", text).groups()
    return float(digits) * UNITS[unit]


# Set when a time lay halfway between two nanoseconds, where the last bit of a sum decides: an answer
# is then good to a few nanoseconds only.
halfway = False


def whole(nanoseconds):
    global halfway
    share = nanoseconds - math.floor(nanoseconds)
    halfway = halfway or abs(share - 0.5) < 1e-6 + 1e-13 * nanoseconds
    return math.floor(nanoseconds + 0.5)


# ---- Curves through measured points.

def between(knots, x):
    """Linear between knots, the first value below the first one. x is not beyond the last."""
    xs = [knot[0] for knot in knots]
    if x <= xs[0]:
        return knots[0][1]
    i = min(bisect.bisect_right(xs, x), len(xs) - 1)
    (x0, y0), (x1, y1) = knots[i - 1], knots[i]
    return y0 + (y1 - y0) * (x - x0) / (x1 - x0)


def tail_slope(knots, share, fewest):
    """The slope beyond the last knot: of the line a + b x, a and b not negative, with the least
    squared relative residuals through the knots from `share` of the last one on."""
    chosen = [knot for i, knot in enumerate(knots)
              if knot[0] >= share * knots[-1][0] or i >= len(knots) - fewest]
    if len(knots) == 1:
        return knots[0][1] / knots[0][0]
    w = [1 / y**2 for _, y in chosen]
    x_mean = sum(wi * x for wi, (x, _) in zip(w, chosen)) / sum(w)
    y_mean = sum(wi * y for wi, (_, y) in zip(w, chosen)) / sum(w)
    xx = sum(wi * (x - x_mean)**2 for wi, (x, _) in zip(w, chosen))
    xy = sum(wi * (x - x_mean) * (y - y_mean) for wi, (x, y) in zip(w, chosen))
    slope = max(xy / xx, 0) if xx > 0 else 0
    if y_mean - slope * x_mean < 0:  # The best line starts below zero: through zero instead.
        slope = sum(x / y for x, y in chosen) / sum((x / y)**2 for x, y in chosen)
    return slope


def table(knots, x, share, fewest):
    if x <= knots[-1][0]:
        return between(knots, x)
    return knots[-1][1] + tail_slope(knots, share, fewest) * (x - knots[-1][0])


# ---- Buckets.

def fill(sizes, order, limits):
    """PyTorch's rule for tensors of one dtype: the bucket closes when its sum reaches the limit."""
    buckets, members, total = [], [], 0
    for tensor in order:
        members.append(tensor)
        total += sizes[tensor]
        if total >= limits[min(len(buckets), len(limits) - 1)]:
            buckets.append(members)
            members, total = [], 0
    return buckets + [members] if members else buckets


def buckets_of(ddp, sizes):
    """The buckets of the first iteration and those from the rebuild on, in launch order."""
    registered = list(range(len(sizes)))
    ready = registered[::-1]
    rule = ddp.get("bucket_rule", "pytorch")
    torch = ddp.get("torch", "2.4")
    cap = number(ddp.get("bucket_cap", "25 MiB"))
    first = number(ddp.get("first_bucket_cap", "1 MiB"))
    if torch == "newest" and "bucket_cap" in ddp and "first_bucket_cap" not in ddp:
        first = cap
    limits = [first, cap]
    listed = "bucket_caps" in ddp
    if listed:
        limits = [number(one) for one in ddp["bucket_caps"]]
    if rule == "per_parameter":
        both = [[tensor] for tensor in ready]
        return both, both
    if rule == "single":
        return [ready], [ready]
    if rule == "before_cap":
        both, total = [], 0
        for tensor in ready:
            if not both or total + sizes[tensor] > cap:
                both.append([])
                total = 0
            both[-1].append(tensor)
            total += sizes[tensor]
        return both, both
    unused = ddp.get("find_unused_parameters", False)
    limited = unused or torch == "1.8" or listed
    initial = fill(sizes, registered, limits if limited else [UNLIMITED])
    initial.sort(key=min)
    initial.reverse()
    if unused:
        return initial, initial
    if ddp.get("last_bucket_cap", False):
        rebuilt = fill(sizes, registered, limits)
        return initial, rebuilt[::-1]
    return initial, fill(sizes, ready, limits)


# ---- What things cost.

class Model:
    """A chain of ops with one tensor each."""

    def __init__(self, tables, files):
        model = tables["model"]
        if "tensors" in model:
            rows = [line.split(",") for line in files[model["tensors"]].split()[1:]]
            self.elements = [math.prod(int(n) for n in row[1].split("x")) for row in rows]
            self.forward = [int(row[2]) for row in rows]
            self.backward = [int(row[3]) for row in rows]
        else:
            self.elements = [model["block_elements"]] * model["layers"]
            self.forward = self.backward = self.elements
        self.dtype = model.get("dtype", "f32")
        self.parameter_dtype = model.get("parameter_dtype", "f32")
        self.element_bytes = ELEMENT_BYTES[self.parameter_dtype]
        self.names = [row[0] for row in rows] if "tensors" in model else None
        self.shapes = ([[int(n) for n in row[1].split("x")] for row in rows] if "tensors" in model
                       else [[n] for n in self.elements])
        self.bytes = [n * self.element_bytes for n in self.elements]


class Times:
    """`[times]`: each op has its share of the pass; DDP's copies go by bandwidth."""

    def __init__(self, times, model):
        self.model = model
        self.pass_ns = {way: number(times[way]) for way in ("forward", "backward")}
        self.optimizer_ns = number(times.get("optimizer", 0))
        self.tokens = times.get("tokens", 0)
        self.bandwidth = number(times.get("copy_bandwidth", 0))

    def op(self, way, work, batch):
        every = sum(self.model.forward if way == "forward" else self.model.backward)
        scale = batch.padded / self.tokens if self.tokens else 1
        return scale * self.pass_ns[way] * work / every if every else 0

    def moved(self, elements, passes):
        if not self.bandwidth:
            return 0
        return 1e9 * passes * elements * self.model.element_bytes / self.bandwidth

    def zero(self, elements):
        return self.moved(elements, 1)

    def copy_in(self, elements):
        return self.moved(elements, 2)

    copy_out = copy_in

    def optimizer(self, elements):
        return self.optimizer_ns * elements / sum(self.model.elements)

    def collate(self, batch):
        return 0


class Ops:
    """The entries of a profile for single ops; all of them are for any size of their class."""

    # Elements read and written for each element of the op.
    MOVED = {("elementwise", "forward"): 3, ("elementwise", "backward"): 2, ("zero_gradient", "forward"): 1,
             ("gradient_copy_in", "forward"): 2, ("gradient_copy_out", "forward"): 2, ("optimizer", "forward"): 7}

    def __init__(self, profile, model):
        self.model = model
        self.entries = {(entry["op"], entry["pass"]): entry for entry in profile["ops"]}

    def price(self, name, way, elements, dtype):
        entry = self.entries[name, way]
        # A tensor's op runs over elements and not over rows: a table of tokens finds one row.
        if entry["form"] == "table":
            return 1e9 * table(entry["knots_s"], elements, 1 / 4, 2)
        values = {"1": 1, "elements": elements, "flops": elements,
                  "bytes": self.MOVED[name, way] * elements * ELEMENT_BYTES[dtype]}
        seconds = sum(c * values[f] for f, c in zip(entry["features"], entry["coefficients_s"]))
        return 1e9 * max(seconds, 0)

    def op(self, way, work, batch):
        return self.price("elementwise", way, work, self.model.dtype)

    def zero(self, elements):
        return self.price("zero_gradient", "forward", elements, self.model.parameter_dtype)

    def copy_in(self, elements):
        return self.price("gradient_copy_in", "forward", elements, self.model.parameter_dtype)

    def copy_out(self, elements):
        return self.price("gradient_copy_out", "forward", elements, self.model.parameter_dtype)

    def optimizer(self, elements):
        return self.price("optimizer", "forward", elements, self.model.parameter_dtype)

    def collate(self, batch):
        entry = self.entries["collate", "forward"]
        values = {"1": 1, "tokens": batch.padded, "samples": batch.samples}
        return 1e9 * max(sum(c * values[f] for f, c in zip(entry["features"], entry["coefficients_s"])), 0)


def doublings(count):
    """How many doublings of 1 reach `count`."""
    rounds = 0
    while 2**rounds < count:
        rounds += 1
    return rounds


def over_links(topology, ranks, per_node, size, broadcast=False, half=False):
    """Nanoseconds of an all-reduce or a broadcast of `size` bytes by closed forms over links. `half`:
    of a gather or a reduce-scatter, which goes around a ring once."""
    if ranks == 1:
        return 0
    n, g, m = ranks, per_node, ranks // per_node
    a_in, b_in = number(topology.get("intra_latency", 0)), number(topology.get("intra_bandwidth", 0)) / 1e9
    if m > 1:
        a_out = number(topology["inter_latency"])
        node = number(topology["node_bandwidth"]) / 1e9
        share = node / g

    # How often a ring is gone around, and how often a rank sends the message.
    rounds, sent = (1, 1) if broadcast else (1, (n - 1) / n) if half else (2, 2 * (n - 1) / n)

    def ring(count, bytes_, latency, bandwidth):
        return 2 * (count - 1) * latency + 2 * (count - 1) / count * bytes_ / bandwidth if count > 1 else 0

    def flat():
        if m == 1:
            return rounds * (n - 1) * a_in + sent * size / b_in
        crossing = rounds * (m - 1)
        slowest = min(b_in, node) if g > 1 else node
        return (rounds * (n - 1) - crossing) * a_in + crossing * a_out + sent * size / slowest

    def two_level():
        inside = 2 * ((g - 1) * a_in + (g - 1) / g * size / b_in) if g > 1 else 0
        return inside + (ring(m, size / g, a_out, share) if m > 1 else 0)

    def tree():
        """A chain inside the nodes and two binary trees between them, up and down; where the
        message goes from one to one other, each sends it once."""
        if m == 1 and n == 2:
            return rounds * a_in + size / b_in
        latency = (g - 1) * a_in + (doublings(m) * a_out if m > 1 else 0)
        inside = rounds * size / b_in if g > 1 else 0
        network = (1 if m == 2 else rounds) * size / node if m > 1 else 0
        return rounds * latency + max(inside, network)

    algorithm = topology["algorithm"]
    if algorithm == "auto":  # What is possible; a broadcast has no rings inside and between nodes.
        return min([flat(), tree()] + [two_level()] * (not broadcast))
    if algorithm in ("ring", "flat_ring") or broadcast and algorithm != "tree":
        return flat()
    if algorithm == "hierarchical":
        return two_level()
    if algorithm == "tree":
        return tree()
    if algorithm == "recursive_doubling":
        return doublings(n) * (a_in + size / b_in)
    if algorithm == "rabenseifner":
        return 2 * doublings(n) * a_in + 2 * (n - 1) / n * size / b_in
    raise ValueError(algorithm)


def measured(knots, size, most):
    """Nanoseconds of a measured all-reduce: between and beyond the knots as any table; below them
    flat up to 32 KiB, else on the line through the first two."""
    first, first_time = knots[0]
    flat = 32 * 1024
    if size >= first or first <= flat:
        return table(knots, size, 1 / 2, 3)
    factor = first / max(size, flat)
    if size <= flat and factor > most:
        return first_time / factor
    in_proportion = first_time / factor
    if len(knots) == 1:
        return (in_proportion + first_time) / 2
    slope = (knots[1][1] - first_time) / (knots[1][0] - first)
    return min(max(first_time - slope * (first - first / factor), in_proportion), first_time)


def collective(tables, profile, size, broadcast=False):
    """Nanoseconds of an all-reduce, or of a broadcast, which nobody measured: its price is that of
    the measured all-reduce by the bytes that a ring sends."""
    cluster = tables["cluster"]
    ranks = cluster["ranks"]
    if ranks == 1:
        return 0
    share = ranks / (2 * (ranks - 1)) if broadcast else 1
    if "all_reduce" in cluster:
        sizes = [number(one) for one in cluster["all_reduce"]["sizes"]]
        times = [number(one) for one in cluster["all_reduce"]["times"]]
        return share * measured(list(zip(sizes, times)), size, math.inf)
    if profile and profile.get("collectives"):
        knots = profile["collectives"][0]["knots_s"]
        return share * 1e9 * measured(knots, size, 4)
    return over_links(cluster["topology"], ranks, cluster.get("ranks_per_node", ranks), size, broadcast)


# ---- Batches.

class Batch:
    def __init__(self, lengths, policy):
        longest = max(lengths)
        if "pad_to_lengths" in policy:
            longest = min(one for one in policy["pad_to_lengths"] if one >= longest)
        else:
            multiple = policy.get("pad_to_multiple_of", 1)
            longest = (longest + multiple - 1) // multiple * multiple
        self.samples = len(lengths)
        self.length = longest
        self.useful = sum(lengths)
        self.padded = self.samples * longest


def all_lengths(data, files):
    source = data["lengths"]
    if "constant" in source:
        lengths = [source["constant"]] * data["samples"]
    else:
        lengths = [int(line) for line in files[source["file"]].split()][:data.get("samples")]
    return [min(length, source.get("cap", length)) for length in lengths]


def rank_batches(tables, files, rank):
    """The batches of one rank's epoch."""
    data, policy, ranks = tables["data"], tables["policy"][0], tables["cluster"]["ranks"]
    lengths = all_lengths(data, files)
    drop_last = data.get("sampler", {}).get("drop_last", False)
    if drop_last:
        lengths = lengths[:len(lengths) // ranks * ranks]
    else:
        lengths += lengths[:-len(lengths) % ranks]  # Padded with its own head.
    mine = lengths[rank::ranks]
    kind = policy["kind"]
    if kind in ("local_sort", "bucketed", "token_budget") or kind == "local_token_budget" and policy.get("sort", True):
        mine = sorted(mine)
    batches = []
    if "max_tokens" in policy:
        batch = []
        for length in mine:
            if batch and (len(batch) + 1) * max(batch + [length]) > policy["max_tokens"]:
                batches.append(batch)
                batch = []
            batch.append(length)
        batches.append(batch)
    else:
        size = policy["batch_size"]
        batches = [mine[i:i + size] for i in range(0, len(mine), size)]
        if drop_last and len(batches[-1]) < size:
            batches.pop()
    return [Batch(batch, policy) for batch in batches]


# ---- The step.

class Rank:
    """The two clocks of a rank: its host, which launches kernels and runs ahead, and its device."""

    def __init__(self, launch, host_is_device, factor):
        self.host = self.device = 0
        self.streams = {}  # Beside the device's own.
        self.launch = 0 if host_is_device else launch
        self.host_is_device = host_is_device
        self.factor = factor

    def build(self, nanoseconds):
        """Builds a batch on the host; the device goes on when it is there."""
        if self.host_is_device:
            self.host = self.device
        self.host += whole(nanoseconds * self.factor)
        self.device = max(self.device, self.host)

    def run(self, nanoseconds):
        """Launches a kernel, which runs behind those before it."""
        self.host += self.launch
        self.device = max(self.device, self.host) + whole(nanoseconds * self.factor)

    def await_end(self, end):
        self.device = max(self.device, end)

    def ready(self):
        """When a collective that is launched now has arrived."""
        return self.device if self.host_is_device else max(self.host, self.device)


class Oracle:
    def __init__(self, tables, files, profile):
        self.tables = tables
        self.ddp = tables.get("ddp", {})
        self.model = Model(tables, files)
        self.costs = Times(tables["times"], self.model) if "times" in tables else Ops(profile, self.model)
        self.profile = profile
        self.micro = self.ddp.get("accumulation_steps", 1)
        self.initial, self.rebuilt = buckets_of(self.ddp, self.model.bytes)
        count = tables["cluster"]["ranks"]
        self.epochs = [rank_batches(tables, files, rank) for rank in range(count)]
        host = {} if "times" in tables else profile["host"]
        launch = number(tables.get("host", {}).get("launch", 1e9 * host.get("launch_s", 0)))
        slow = tables["cluster"].get("slow_ranks", [])
        self.ranks = [Rank(whole(launch), host.get("host_is_device", False),
                           math.prod(one["factor"] for one in slow if one["rank"] == rank))
                      for rank in range(count)]
        self.skew = [1 + tables["cluster"].get("skew", 0) * rank / max(count - 1, 1) for rank in range(count)]
        self.rebuilds = (self.ddp.get("bucket_rule", "pytorch") == "pytorch"
                         and not self.ddp.get("find_unused_parameters", False))
        self.recorded = False  # Whether a backward has recorded the order of the gradients.
        self.synchronised = 0  # Backwards that reduced gradients.

    def backward(self, rank, skew, batch, buckets, later):
        """Plays a backward and its copies. Returns when each bucket is launched; with
        buckets = None nothing is reduced. `later`: gradients are added to those of an earlier one."""
        overlap = self.ddp.get("overlap", True)
        launches, missing = [], [set(bucket) for bucket in buckets or []]
        for tensor in reversed(range(len(self.model.elements))):
            rank.run(skew * self.costs.op("backward", self.model.backward[tensor], batch))
            if later:  # Reads the old and the new gradient, writes the sum: half as much again as a copy.
                rank.run(self.costs.copy_in(math.ceil(1.5 * self.model.elements[tensor])))
            if buckets is None or not overlap:
                continue
            rank.run(self.costs.copy_in(self.model.elements[tensor]))
            for members in missing:
                members.discard(tensor)
            while len(launches) < len(buckets) and not missing[len(launches)]:
                launches.append(rank.ready())  # In order: a full bucket waits for those before it.
        for bucket in [] if overlap else buckets or []:
            for tensor in bucket:
                rank.run(self.costs.copy_in(self.model.elements[tensor]))
            launches.append(rank.ready())
        return launches

    def all_reduces(self, buckets, launches):
        """Returns (start, end) of each: from when the last rank is there, one after another."""
        ends, free = [], 0
        for b, bucket in enumerate(buckets):
            size = sum(self.model.bytes[tensor] for tensor in bucket)
            begin = max([own[b] for own in launches] + [free])
            free = begin + whole(collective(self.tables, self.profile, size))
            ends.append((begin, free))
        return ends

    def rebuild(self, rows):
        """Rank 0 tells the others the new buckets in two broadcasts, and every host waits for each.
        Returns (start, end) of both."""
        reductions = []
        for count in (len(self.model.elements) + 1, len(self.rebuilt)):
            begin = max(rank.ready() for rank in self.ranks)
            end = begin + whole(collective(self.tables, self.profile, 4 * count, True))
            for rank, row in zip(self.ranks, rows):
                row["waiting"] += max(begin - rank.device, 0)
                row["exposed"] += max(end - rank.device, 0)
                rank.await_end(end)
                rank.host = rank.device
            reductions.append((begin, end))
        return reductions

    def step(self, step):
        """Plays one step. Returns the rows of its ranks, and (start, end) of each all-reduce."""
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
        for m in range(self.micro):
            buckets = None
            if m == self.micro - 1 or not self.ddp.get("no_sync", True):
                buckets = self.initial if self.synchronised == 0 else self.rebuilt
                self.synchronised += 1
            for rank, row in zip(self.ranks, rows):
                batch, before = row["batches"][m], rank.device
                rank.build(self.costs.collate(batch))
                row["data"] += rank.device - before
                if m == 0 and not self.ddp.get("set_to_none", True):
                    before = rank.device
                    rank.run(self.costs.zero(sum(self.model.elements)))
                    row["forward"] += rank.device - before
            if self.rebuilds and self.recorded and self.micro > 1:  # Left out of plain steps.
                reductions += self.rebuild(rows)
                self.rebuilds = False
            self.recorded = self.recorded or buckets is not None
            launches = []
            for rank, row, skew in zip(self.ranks, rows, self.skew):
                batch, before = row["batches"][m], rank.device
                for work in self.model.forward:
                    rank.run(skew * self.costs.op("forward", work, batch))
                forward_end = rank.device
                row["forward"] += forward_end - before
                launches.append(self.backward(rank, skew, batch, buckets, m > 0))
                row["backward_end"] = rank.device
                row["backward"] += rank.device - forward_end
            if buckets is None:
                continue
            ends = self.all_reduces(buckets, launches)
            reductions += ends
            for rank, row in zip(self.ranks, rows):
                for (begin, end), bucket in zip(ends, buckets):
                    row["waiting"] += max(begin - rank.device, 0)
                    row["exposed"] += max(end - rank.device, 0)
                    rank.await_end(end)
                    before = rank.device
                    if not self.ddp.get("gradient_as_bucket_view", False):
                        for tensor in bucket:
                            rank.run(self.costs.copy_out(self.model.elements[tensor]))
                    row["optimizer"] += rank.device - before
        for rank, row in zip(self.ranks, rows):
            before = rank.device
            rank.run(self.costs.optimizer(sum(self.model.elements)))
            row["optimizer"] += rank.device - before
            row["step"] = rank.device - row["start"]
        return rows, reductions


def predict(tables, files=None, profile=None, make=None):
    """The answer to a scenario.

    Args:
        tables: The scenario's TOML tables, as a dict.
        files: {name: text} of the files that it names.
        profile: The profile, as its JSON reads; None: the scenario has times of its own.
        make: The class that plays its kind of parallelism; None: DDP's.
    """
    global halfway
    halfway = False
    oracle = (make or Oracle)(tables, files or {}, profile)
    steps, warmup = tables["scenario"]["steps"], tables["scenario"].get("warmup_steps", 0)
    rows, step_ns, exposed, waiting, communication, hidden, useful, padded = [], [], 0, 0, 0, 0, 0, 0
    for number_ in range(steps):
        step, reductions = oracle.step(number_)
        rows += step
        if number_ < warmup:
            continue
        step_ns.append(max(row["start"] + row["step"] for row in step) - max(row["start"] for row in step))
        exposed += sum(row["exposed"] for row in step) / len(step)
        waiting += sum(row["waiting"] for row in step) / len(step)
        useful += sum(row["useful_tokens"] for row in step)
        padded += sum(row["padded_tokens"] for row in step)
        last = max(row["backward_end"] for row in step)
        for begin, end in reductions:
            communication += end - begin
            hidden += max(min(end, last) - begin, 0)
    steady = len(step_ns)
    return {
        "initial": oracle.initial, "rebuilt": oracle.rebuilt, "rows": rows,
        "step_ms": sum(step_ns) / steady / 1e6,
        "exposed_ms": exposed / steady / 1e6, "waiting_ms": waiting / steady / 1e6,
        "communication_ms": communication / steady / 1e6,
        "overlap": hidden / communication if communication else 0,
        "padding": 1 - useful / padded,
    }
