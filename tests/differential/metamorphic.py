"""What metamorphic relations share: scenarios, the program, and how two answers are compared.

A relation says how an answer has to change when its scenario changes, whatever the answer is. Scenarios are
those of scenarios.py; half of them get more: interference, gloo, hooks, ZeRO, a host of its own, loader
workers.
"""

import copy
import json
import math
import pathlib
import random
import subprocess

import scenarios

NS = 1e-6  # In milliseconds.


class Refused(Exception):
    """The program refuses the scenario: nothing to compare."""


class NotHere(Exception):
    """The relation says nothing about this scenario."""


class Violation(Exception):
    """What the relation forbids."""


def demand(holds, what):
    if not holds:
        raise Violation(what)


# ---- Scenarios.

def add_hook(rng, tables):
    hook = rng.choice(["allreduce", "fp16", "bf16", "power_sgd", "top_k", "quantize_per_tensor", "noop"])
    tables["ddp"]["communication_hook"] = {"kind": hook, "start_iteration": 0} if hook == "power_sgd" else hook
    if hook in ("fp16", "bf16", "allreduce") and rng.random() < 0.5:
        tables["host"] = tables.get("host", {}) | {"python_hook": scenarios.time_text(rng, 0.1, 50)}


def add_host(rng, tables):
    host = tables.setdefault("host", {})
    host["launch"] = scenarios.time_text(rng, 0.1, 50)
    for key in ("enqueue", "hook", "sync"):
        if rng.random() < 0.5:
            host[key] = scenarios.time_text(rng, 0.1, 50)
    if rng.random() < 0.4:
        host["queue_depth"] = rng.randint(1, 40)
    if rng.random() < 0.4:
        host["step_sync"] = True


def add_loading(rng, tables):
    tables["data"]["loading"] = {"batch": scenarios.time_text(rng, 1, 1e4),
                                 "per_token": scenarios.time_text(rng, 0.01, 10)}
    tables["data"]["workers"] = rng.randint(0, 3)
    if rng.random() < 0.5:
        tables["data"]["delays"] = [{"rank": rng.randrange(tables["cluster"]["ranks"]),
                                     "delay": scenarios.time_text(rng, 1, 1e4)}]


def add_interference(rng, tables):
    tables["interference"] = {"strength": round(rng.uniform(0, 1), 3)}
    if rng.random() < 0.3:
        tables["interference"] = {"compute": round(rng.uniform(0, 1), 3), "transfer": round(rng.uniform(0, 1), 3),
                                  "while_waiting": rng.random() < 0.5}


MORE = {
    "interference": add_interference,
    "gloo": lambda rng, tables: tables["cluster"].update(communicator="gloo"),
    "hook": add_hook,
    "zero": lambda rng, tables: tables["ddp"].update(zero_stage=rng.randint(1, 3)),
    "host": add_host,
    "loading": add_loading,
    "optimizer_in_backward": lambda rng, tables: tables["ddp"].update(optimizer_in_backward=True),
    "find_unused": lambda rng, tables: tables["ddp"].update(find_unused_parameters=True),
    "static_graph": lambda rng, tables: tables["ddp"].update(static_graph=True),
    "weighting": lambda rng, tables: tables["policy"][0].update(weighting=rng.choice(["sample", "token"])),
}


def scenario_of(seed):
    """A plain scenario, and in half of the cases one or two things more, whose names are in "more"."""
    scenario = scenarios.random_scenario(seed)
    rng = random.Random(f"more {seed}")
    scenario["more"] = rng.sample(sorted(MORE), rng.randint(1, 2)) if rng.random() < 0.5 else []
    for name in scenario["more"]:
        MORE[name](rng, scenario["tables"])
    return scenario


def add_policies(scenario, rng, count):
    """More policies over the same data, with names of their own."""
    tables = scenario["tables"]
    first = tables["policy"][0]
    one_sample = tables["data"]["sampler"].get("drop_last", False)
    for i in range(count):
        kind = rng.choice(["fixed", "bucketed", "local_sort"])
        tables["policy"].append({"name": f"other_{i}", "kind": kind,
                                 "batch_size": 1 if one_sample else rng.randint(1, 6)})
    first["name"] = "first"


def add_noise(scenario, rng):
    noise = scenario["tables"].setdefault("noise", {})
    for key in ("op_jitter", "rank_speed"):
        if rng.random() < 0.6:
            noise[key] = round(rng.uniform(0.005, 0.1), 4)
    if rng.random() < 0.4:
        noise |= {"stall_probability": round(rng.uniform(0, 0.3), 3), "stall": scenarios.time_text(rng, 10, 1e4)}
    if rng.random() < 0.3:
        noise |= {"loader_stall_probability": round(rng.uniform(0, 0.2), 3),
                  "loader_stall": scenarios.time_text(rng, 10, 1e4)}
    if rng.random() < 0.3:
        noise["step_quantiles"] = sorted(round(rng.uniform(0.8, 1.5), 3) for _ in range(rng.randint(2, 9)))
        noise["rank_correlation"] = round(rng.random(), 2)
    else:
        scenario["tables"]["cluster"]["jitter"] = round(rng.uniform(0, 0.2), 3)
    if scenario["profile"]:
        scenario["profile"]["noise"] |= {"drift": round(rng.uniform(0, 0.1), 3),
                                         "step_jitter": round(rng.uniform(0, 0.1), 3)}


def scaled_text(text, factor):
    number, unit = text.split()
    return f"{float(number) * factor!r} {unit}"


def scale(table, keys, factor):
    for key in keys:
        if key in table:
            table[key] = scaled_text(table[key], factor)


def scale_host(scenario, factor):
    """The host's times and those of loading, wherever they stand."""
    tables, profile = scenario["tables"], scenario["profile"]
    scale(tables.get("host", {}), ("launch", "enqueue", "hook", "python_hook", "sync"), factor)
    scale(tables["data"].get("loading", {}), ("batch", "per_token"), factor)
    for one in tables["data"].get("delays", []):
        scale(one, ("delay",), factor)
    if profile:
        profile["host"]["launch_s"] *= factor
        for op in profile["ops"]:
            if op["op"] == "collate":
                scale_op(op, factor)


def scale_op(op, factor):
    if "knots_s" in op:
        op["knots_s"] = [[x, seconds * factor] for x, seconds in op["knots_s"]]
    else:
        op["coefficients_s"] = [seconds * factor for seconds in op["coefficients_s"]]


def scale_links(scenario, factor):
    cluster, profile = scenario["tables"]["cluster"], scenario["profile"]
    if "all_reduce" in cluster:
        cluster["all_reduce"]["times"] = [scaled_text(one, factor) for one in cluster["all_reduce"]["times"]]
    scale(cluster.get("topology", {}), ("intra_latency", "inter_latency"), factor)
    scale(cluster.get("topology", {}), ("intra_bandwidth", "node_bandwidth"), 1 / factor)
    for collective in (profile or {}).get("collectives", []):
        scale_op(collective, factor)


def scale_kernels(scenario, factor):
    times = scenario["tables"].get("times", {})
    scale(times, ("forward", "backward", "optimizer"), factor)
    scale(times, ("copy_bandwidth",), 1 / factor)
    for op in (scenario["profile"] or {}).get("ops", []):
        if op["op"] != "collate":
            scale_op(op, factor)


def over_links(scenario, rng):
    """Puts closed forms in place of measured all-reduces, whose price is that of their ranks alone."""
    cluster = scenario["tables"]["cluster"]
    if "topology" not in cluster:
        cluster.pop("all_reduce", None)
        if scenario["profile"]:
            scenario["profile"]["collectives"] = []
        cluster["topology"] = {"algorithm": rng.choice(["ring", "tree", "recursive_doubling", "rabenseifner", "auto"]),
                               "intra_latency": scenarios.time_text(rng, 0.1, 30),
                               "intra_bandwidth": f"{scenarios.log_uniform(rng, 0.1, 400):.3f} GB/s"}


def micro_batches(scenario):
    return scenario["tables"]["ddp"].get("accumulation_steps", 1)


def tensors(scenario):
    text = scenario["files"].get("tensors.csv")
    return len(text.split()) - 1 if text else scenario["tables"]["model"]["layers"]


def rounding_ms(scenario):
    """What rounding each kernel, copy, collective and launch of a step to a nanosecond may add up to."""
    return NS * (10 + 8 * tensors(scenario) * micro_batches(scenario))


# ---- Answers.

def walk(value, path=()):
    """All (path, leaf) of a JSON value."""
    if isinstance(value, dict):
        for key, one in value.items():
            yield from walk(one, (*path, key))
    elif isinstance(value, list):
        for i, one in enumerate(value):
            yield from walk(one, (*path, i))
    else:
        yield path, value


def is_time(path):
    return any(isinstance(key, str) and key.endswith("_ms") for key in path)


def differences(got, wanted, slack_ms=0.0, factor=1.0, step_ms=0.0, collectives_ms=0.0):
    """What differs, as texts: times are `factor` times the wanted ones up to `slack_ms`, rates the inverse,
    rates and ratios move by the slack over the time that they are taken of."""
    found = []
    left, right = dict(walk(got)), dict(walk(wanted))
    if left.keys() != right.keys():
        return [f"other members: {sorted(map(str, left.keys() ^ right.keys()))[:5]}"]
    for path, expected in right.items():
        value, key = left[path], str(path[-1])
        if isinstance(expected, float) and isinstance(value, (int, float)):
            whole_ms = collectives_ms if key == "overlap_fraction" else step_ms
            moved = 4 * slack_ms / max(whole_ms, 4 * slack_ms, NS)
            if is_time(path):
                expected, relative, absolute = expected * factor, 1e-9, slack_ms + 1e-9
            elif key.endswith("per_s"):
                expected, relative, absolute = expected / factor, 1e-9 + moved, 0
            else:
                relative, absolute = 1e-9, 1e-9 + moved
            same = math.isclose(value, expected, rel_tol=relative, abs_tol=absolute)
        else:
            same = value == expected
        if not same:
            found.append(f"{path}: {value!r}, expected {expected!r}")
    return found


class Case:
    """One scenario, a folder for it and the program that is asked."""

    def __init__(self, stepsim, folder, seed):
        self.stepsim, self.folder, self.seed = stepsim, pathlib.Path(folder), seed
        self.scenario = scenario_of(seed)
        self.rng = random.Random(f"case {seed}")
        self.asked = 0

    def copy(self):
        return copy.deepcopy(self.scenario)

    @property
    def more(self):
        return self.scenario["more"]

    def write(self, scenario, name="one"):
        return scenarios.write(scenario, self.folder / name)

    def ask(self, *words):
        """What a command prints; Refused with its message where it says no."""
        self.asked += 1
        done = subprocess.run([self.stepsim, *map(str, words)], capture_output=True, text=True, cwd=self.folder,
                              timeout=120, check=False)
        if done.returncode == 2:
            raise Refused(done.stderr.strip())
        demand(done.returncode == 0, f"status {done.returncode} of {words}: {done.stderr}{done.stdout[:300]}")
        return done.stdout

    def json(self, *words):
        return json.loads(self.ask(*words, "--json", "-", "--quiet"))

    def predict(self, scenario=None, *options, name="one"):
        """The first prediction of `stepsim run`, its summary and steps."""
        path = self.write(scenario or self.scenario, name)
        return self.json("run", path, *options)["predictions"][0]

    def changed(self, change):
        """The scenario, changed."""
        other = self.copy()
        change(other["tables"])
        return other
