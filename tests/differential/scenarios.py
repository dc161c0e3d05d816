"""Random plain scenarios, the same for the same seed."""

import json
import math
import pathlib
import random


def log_uniform(rng, low, high):
    return math.exp(rng.uniform(math.log(low), math.log(high)))


def size_text(rng, low, high):
    """A size in any of the forms that a scenario takes."""
    size = int(log_uniform(rng, low, high))
    form = rng.randrange(3)
    if form == 0 and size >= 2**20:
        return f"{size // 2**20} MiB"
    if form == 1 and size >= 2**10:
        return f"{size // 2**10} KiB"
    return f"{size} B"


def time_text(rng, low_us, high_us):
    us = log_uniform(rng, low_us, high_us)
    return rng.choice([f"{us:.3f} us", f"{us / 1e3:.6f} ms", f"{us * 1e3:.0f} ns"])


def curve(rng, xs, seconds, digits=9):
    """Knots over xs that rise and fall a little, around a line that ends at `seconds`."""
    return [[x, float(f"{seconds * (0.05 + 0.95 * x / xs[-1]) * rng.uniform(0.8, 1.25):.{digits}g}")] for x in xs]


def doubling(rng, low, high):
    """At least two ascending whole numbers from about low to about high."""
    xs = sorted({int(log_uniform(rng, low, high)) for _ in range(rng.randint(2, 9))})
    return xs if len(xs) > 1 else [xs[0], 2 * xs[0]]


def entry(rng, name, way, dtype, largest, seconds):
    """A profile's entry for any size of its class, in one of the plain forms."""
    form = rng.choice(["table", "features", "roofline"])
    made = {"op": name, "pass": way, "dtype": dtype, "form": form, "samples": 4, "errors": {"random": 0.05}}
    if form == "table":
        # Up to four times beyond the last knot are not refused.
        xs = doubling(rng, max(largest // 50, 1), max(largest * rng.uniform(0.4, 2), 4))
        xs[-1] = max(xs[-1], largest // 3 + 1)
        return {**made, "knots_s": curve(rng, xs, seconds), "range": [xs[0], xs[-1]]}
    features = ["1", "flops", "bytes"] if form == "roofline" else ["1", "elements"]
    per = seconds / largest
    coefficients = [float(f"{seconds * rng.uniform(0, 0.1):.9g}")] + [
        float(f"{per * rng.uniform(0, 1):.9g}") for _ in features[1:]]
    return {**made, "features": features, "coefficients_s": coefficients, "range": [1, 2 * largest]}


def random_model(rng, files, timed):
    model = {"kind": "blocks"}
    if rng.random() < 0.3:
        model["parameter_dtype"] = rng.choice(["bf16", "f64", "f16"])
    largest = 10 ** rng.uniform(2, 6.5)
    if not timed or rng.random() < 0.3:  # Lists of tensors take [times].
        model |= {"layers": rng.randint(1, 30), "block_elements": int(log_uniform(rng, 1, largest)) + 1}
        return model, [model["block_elements"]] * model["layers"]
    rows, elements = ["name,shape,forward,backward"], []
    for i in range(rng.randint(1, 40)):
        shape = [int(log_uniform(rng, 1, math.sqrt(largest))) for _ in range(rng.randint(1, 2))]
        elements.append(math.prod(shape))
        work = [rng.randint(0 if i else 1, 5000) for _ in range(2)]
        rows.append(f"t{i},{'x'.join(map(str, shape))},{work[0]},{work[1]}")
    files["tensors.csv"] = "\n".join(rows) + "\n"
    return model | {"tensors": "tensors.csv"}, elements


def random_network(rng, cluster, total_bytes, profile):
    ranks = cluster["ranks"]
    kind = rng.choice(["scenario", "profile", "links"]) if profile else rng.choice(["scenario", "links"])
    if kind == "scenario" and ranks == 1:
        kind = "links"  # One rank has no all-reduce to state.
    if kind == "links":
        algorithm = rng.choice(["ring", "flat_ring", "tree", "recursive_doubling", "rabenseifner", "hierarchical", "auto"])
        links = {"algorithm": algorithm, "intra_latency": time_text(rng, 0.1, 30),
                 "intra_bandwidth": f"{log_uniform(rng, 0.1, 400):.3f} GB/s"}
        divisors = [g for g in range(1, ranks) if ranks % g == 0]
        if algorithm in ("flat_ring", "hierarchical", "tree", "auto") and divisors and rng.random() < 0.5:
            cluster["ranks_per_node"] = rng.choice(divisors)
            links |= {"inter_latency": time_text(rng, 0.1, 50),
                      "node_bandwidth": f"{log_uniform(rng, 0.1, 400):.3f} GB/s"}
        cluster["topology"] = links
        return
    # Small messages take the time of the first knot when that is small.
    sizes = doubling(rng, 8, max(total_bytes * rng.uniform(0.3, 3), 64))
    sizes[0] = min(sizes[0], 32768)
    sizes[-1] = max(sizes[-1], total_bytes // 3, sizes[0] + 1)
    sizes = sorted(set(sizes))
    seconds = total_bytes / 10 ** rng.uniform(8, 11) + 1e-5
    if kind == "scenario":
        cluster["all_reduce"] = {
            "sizes": [f"{size} B" for size in sizes],
            "times": [f"{max(time * 1e9, 1):.0f} ns" for _, time in curve(rng, sizes, seconds)]}
    else:
        profile["collectives"] = [{"kind": "all_reduce", "ranks": ranks, "nodes": 1, "dtype": "f32",
                                   "variable": "bytes", "knots_s": curve(rng, sizes, seconds),
                                   "errors": {"random": 0.05}}]


def random_ddp(rng, tensor_bytes):
    ddp = {}
    total_bytes = sum(tensor_bytes)
    if rng.random() < 0.8:
        ddp["bucket_cap"] = size_text(rng, max(total_bytes / 40, 4), 2 * total_bytes + 8)
    if rng.random() < 0.6:
        ddp["first_bucket_cap"] = size_text(rng, max(total_bytes / 100, 4), total_bytes + 8)
    for key in ("bucket_cap", "first_bucket_cap"):
        if rng.random() < 0.2:  # A limit that a bucket reaches to the byte.
            ddp[key] = f"{sum(tensor_bytes[-rng.randint(1, len(tensor_bytes)):])} B"
    if rng.random() < 0.4:
        ddp["torch"] = rng.choice(["1.8", "1.13", "2.4", "newest"])
    if rng.random() < 0.15:
        ddp |= {"bucket_rule": rng.choice(["before_cap", "per_parameter", "single"])}
        ddp.pop("first_bucket_cap", None)  # Only "pytorch" takes it.
        if ddp["bucket_rule"] != "before_cap":
            ddp.pop("bucket_cap", None)
    elif rng.random() < 0.15:
        ddp["last_bucket_cap"] = True
    elif rng.random() < 0.1:
        ddp["torch"] = "newest"
        ddp.pop("bucket_cap", None), ddp.pop("first_bucket_cap", None)
        ddp["bucket_caps"] = [size_text(rng, max(total_bytes / 40, 4), total_bytes + 8)
                              for _ in range(rng.randint(1, 5))]
    for key, share, value in (("gradient_as_bucket_view", 0.5, True), ("set_to_none", 0.3, False),
                              ("overlap", 0.15, False)):
        if rng.random() < share:
            ddp[key] = value
    if rng.random() < 0.3:
        ddp["accumulation_steps"] = rng.randint(2, 4)
        if rng.random() < 0.5:
            ddp["no_sync"] = False
    return ddp


def random_data(rng, ranks, files):
    longest = rng.choice([1, 16, 300])
    if rng.random() < 0.2:
        lengths = {"constant": rng.randint(1, longest)}
        data = {"samples": rng.randint(ranks, 12 * ranks)}
    else:
        rows = [rng.randint(1, longest) for _ in range(rng.randint(ranks, 12 * ranks))]
        files["lengths.txt"] = "\n".join(map(str, rows)) + "\n"
        lengths, data = {"file": "lengths.txt"}, {}
    if rng.random() < 0.3:
        lengths["cap"] = longest = rng.randint(1, longest)
    data |= {"lengths": lengths, "sampler": {"shuffle": False}}
    if rng.random() < 0.3:
        data["sampler"]["drop_last"] = True
    kind = rng.choice(["fixed", "bucketed", "token_budget", "local_sort", "local_token_budget"])
    policy = {"name": kind, "kind": kind}
    if "budget" in kind:
        policy["max_tokens"] = rng.randint(1, 6 * longest)
        if kind == "local_token_budget" and rng.random() < 0.5:
            policy["sort"] = False
    else:
        policy["batch_size"] = 1 if data["sampler"].get("drop_last") else rng.randint(1, 6)
    padded = rng.random()
    if padded < 0.2:
        policy["pad_to_multiple_of"] = rng.choice([2, 8, 64])
    elif padded < 0.3:
        policy["pad_to_lengths"] = sorted({rng.randint(1, 300) for _ in range(3)} | {300})
    return data, policy


def random_scenario(seed):
    """Returns {"tables", "files", "profile"}: a scenario's tables, the files that it names, and its
    profile or None."""
    rng = random.Random(seed)
    files = {}
    ranks = rng.choice([1, 2, 2, 3, 4, 5, 8, 12, 16])
    steps = rng.randint(1, 5)
    cluster = {"ranks": ranks}
    timed = rng.random() < 0.6
    model, elements = random_model(rng, files, timed)
    total = sum(elements)
    element_bytes = {"bf16": 2, "f16": 2, "f64": 8}.get(model.get("parameter_dtype"), 4)
    tables = {"scenario": {"name": f"seed_{seed}", "steps": steps, "warmup_steps": rng.randint(0, steps - 1)},
              "cluster": cluster, "model": model, "ddp": random_ddp(rng, [element_bytes * n for n in elements])}
    profile = None
    if timed:
        tables["times"] = {"forward": time_text(rng, 1, 1e6), "backward": time_text(rng, 1, 1e6)}
        if rng.random() < 0.7:
            tables["times"]["optimizer"] = time_text(rng, 1, 1e5)
        if rng.random() < 0.5:
            tables["times"]["tokens"] = rng.randint(1, 2000)
        if rng.random() < 0.7:
            tables["times"]["copy_bandwidth"] = f"{log_uniform(rng, 1, 3000):.3f} GB/s"
    else:
        work = max(elements)
        dtype, stored = "f32", model.get("parameter_dtype", "f32")
        seconds = 10 ** rng.uniform(-7, -3)
        ops = [entry(rng, "elementwise", way, dtype, work, seconds) for way in ("forward", "backward")]
        ops += [entry(rng, name, "forward", stored, largest, seconds * rng.uniform(0.05, 0.5))
                for name, largest in (("zero_gradient", total), ("gradient_copy_in", 2 * max(elements)),
                                      ("gradient_copy_out", max(elements)), ("optimizer", total))]
        ops.append({"op": "collate", "pass": "forward", "dtype": dtype, "form": "features",
                    "features": ["1", "tokens", "samples"], "range": [1, 10000], "samples": 4, "errors": {},
                    "coefficients_s": [float(f"{10 ** rng.uniform(-9, -5):.9g}") for _ in range(3)]})
        profile = {"format": "stepsim-profile/1", "name": "random", "device": "none", "backend": "cuda",
                   "provenance": {}, "memory_capacity_bytes": 0, "host": {"launch_s": 0.0, "host_is_device": False},
                   "noise": {"step_jitter": 0.0, "drift": 0.0, "sentinel_s": 0.0}, "ops": ops, "collectives": []}
        cluster["profile"] = "profile.json"
        profile["host"]["host_is_device"] = rng.random() < 0.3
        if rng.random() < 0.4 and not profile["host"]["host_is_device"]:
            profile["host"]["launch_s"] = float(f"{10 ** rng.uniform(-7, -4):.6g}")
    if rng.random() < 0.2:
        tables["host"] = {"launch": time_text(rng, 0.1, 100)}
    random_network(rng, cluster, total * element_bytes, profile)
    if rng.random() < 0.4:
        slow = rng.sample(range(ranks), rng.randint(1, ranks))
        cluster["slow_ranks"] = [{"rank": rank, "factor": round(rng.uniform(1, 3), 3)} for rank in slow]
    if rng.random() < 0.2:
        cluster["skew"] = round(rng.uniform(0, 1), 3)
    data, policy = random_data(rng, ranks, files)
    tables |= {"data": data, "policy": [policy]}
    return {"tables": tables, "files": files, "profile": profile}


def random_sharded(seed):
    """A random scenario of FSDP2: a root around blocks, or one unit."""
    scenario = random_scenario(seed)
    rng = random.Random(-1 - seed)
    tables, files, profile = (scenario[name] for name in ("tables", "files", "profile"))
    cluster, ddp = tables["cluster"], tables["ddp"]
    micro = ddp.get("accumulation_steps", 1)
    tables["ddp"] = {"accumulation_steps": micro} if micro > 1 else {}
    ranks = cluster["ranks"]
    if "tensors.csv" in files:
        head, *rows = files["tensors.csv"].split()
        ends = [rng.randint(0, len(rows) // 2) for _ in range(2)]
        size = rng.randint(1, 4)
        named = []
        for i, row in enumerate(rows):
            inside = ends[0] <= i < len(rows) - ends[1]
            name = f"layers.{(i - ends[0]) // size}.t{i}" if inside else f"t{i}"
            named.append(name + row[row.index(","):])
        files["tensors.csv"] = "\n".join([head] + named) + "\n"
        elements = [math.prod(map(int, row.split(",")[1].split("x"))) for row in rows]
        # Rows are padded to the ranks.
        elements = [n + ranks * n // int(row.split(",")[1].split("x")[0]) for n, row in zip(elements, rows)]
    else:
        elements = [tables["model"]["block_elements"] + ranks] * tables["model"]["layers"]
    total = 8 * sum(elements)
    for key in ("all_reduce", "topology", "ranks_per_node"):
        cluster.pop(key, None)
    if profile:
        profile["collectives"] = []
        profile["ops"] = [one for one in profile["ops"] if one["op"] not in ("gradient_copy_in", "optimizer")]
        stored = tables["model"].get("parameter_dtype", "f32")
        profile["ops"] += [entry(rng, name, "forward", stored, 3 * total, 10 ** rng.uniform(-7, -3))
                           for name in ("gradient_copy_in", "optimizer")]
    replicas = rng.choice([n for n in range(1, ranks + 1) if ranks % n == 0]) if rng.random() < 0.4 else 1
    parallel = {"kind": "fsdp2"}
    while True:
        random_network(rng, cluster, total, profile)
        if "topology" in cluster:
            break
        if replicas == 1:  # Only links have prices for other numbers of ranks.
            break
        cluster.pop("all_reduce", None)
        if profile:
            profile["collectives"] = []
    cluster.pop("ranks_per_node", None)
    if "topology" in cluster:
        cluster["topology"] = {key: value for key, value in cluster["topology"].items() if key.startswith("intra")}
        cluster["topology"]["algorithm"] = "ring"
    if profile and profile["host"]["host_is_device"] and rng.random() < 0.5:
        cluster["communicator"] = "gloo"
        if rng.random() < 0.3:
            parallel["async_unshard"] = True
    if replicas > 1:
        parallel["replicas"] = replicas
    if rng.random() < 0.2:
        parallel["units"] = "model"
    for key, share, values in (
            ("reshard_after_forward", 0.4, ["true", "false"]), ("param_dtype", 0.4, ["bf16", "f32"]),
            ("reduce_dtype", 0.4, ["bf16", "f32"]), ("reduce_buffers", 0.3, [2, 3]),
            ("separate_reduce_group", 0.3, [True])):
        if rng.random() < share:
            parallel[key] = rng.choice(values)
    if micro > 1 and rng.random() < 0.7:
        parallel["accumulation"] = rng.choice(["no_sync", "keep", "keep_no_sync"])
    tables["parallel"] = parallel
    tables["host"] = tables.get("host", {}) | {
        key: time_text(rng, 0.1, 3000) for key in (
            "unit_forward", "unit_forward_tensor", "unit_backward", "unit_backward_tensor", "sharded_tensor")}
    if rng.random() < 0.3:
        tables["host"]["enqueue"] = time_text(rng, 0.1, 100)
    return scenario


# ---- Files.

def toml_value(value):
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {toml_value(one)}" for key, one in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml_value, value)) + "]"
    return json.dumps(value)


def toml_text(tables):
    lines = []
    for name, content in tables.items():
        for table in content if isinstance(content, list) else [content]:
            lines.append(f"[[{name}]]" if isinstance(content, list) else f"[{name}]")
            lines += [f"{key} = {toml_value(value)}" for key, value in table.items()]
    return "\n".join(lines) + "\n"


def write(scenario, folder):
    """Writes the scenario and its files. Returns the path of the scenario."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in scenario["files"].items():
        (folder / name).write_text(text)
    if scenario["profile"]:
        (folder / "profile.json").write_text(json.dumps(scenario["profile"]))
    path = folder / "scenario.toml"
    path.write_text(toml_text(scenario["tables"]))
    return path
