"""Relations between commands: what one command says of a scenario, another one has to say as well."""

import json
import math

from metamorphic import (
    NotHere, add_noise, add_policies, demand, differences, micro_batches, rounding_ms)

POINT = {  # Members of a sweep's point that a prediction's summary has under another name.
    "step_ms": ("step_time_ms", "mean"), "interval90": ("step_time_ms", "interval90"),
}


def swept(case):
    """A key and two values for it, as texts."""
    tables = case.scenario["tables"]
    choices = [("cluster.network_speed", ["0.5", "3"]), ("cluster.compute_speed", ["0.7", "2"]),
               ("ddp.gradient_as_bucket_view", ["true", "false"]), ("ddp.overlap", ["true", "false"]),
               ("model.layers", ["2", "5"]), ("cluster.skew", ["0", "0.25"]),
               ("scenario.steps", [str(tables["scenario"]["steps"] + 1), str(tables["scenario"]["steps"] + 2)])]
    if "tensors" in tables["model"]:
        choices = [one for one in choices if one[0] != "model.layers"]
    if "bucket_caps" not in tables["ddp"] and tables["ddp"].get("bucket_rule") not in ("per_parameter", "single"):
        choices += [("ddp.bucket_cap", ["1KiB", "64KiB"])] * 3
    if "times" in tables:
        choices += [("times.forward", ["1 ms", "20 ms"])]
    return case.rng.choice(choices)


def noisy_copy(case):
    scenario = case.copy()
    if case.rng.random() < 0.5:
        add_noise(scenario, case.rng)
    return scenario


def relation_a_sweep_is_a_run_of_each_value(case):
    scenario = noisy_copy(case)
    key, values = swept(case)
    path = case.write(scenario)
    points = case.json("sweep", path, "--over", f"{key}={','.join(values)}")["points"]
    demand(len(points) == len(values), f"{len(points)} points of {len(values)} values")
    for value, point in zip(values, points):
        summary = case.json("run", path, "--set", f"{key}={value}")["predictions"][0]["summary"]
        shared = {}
        for member in point.keys() & (summary.keys() | POINT.keys()):
            wanted = summary
            for part in POINT.get(member, (member,)):
                wanted = wanted[part]
            shared[member] = wanted
        demand(len(shared) >= 10, f"a point has too little of a run: {sorted(shared)}")
        found = differences({member: point[member] for member in shared}, shared)
        demand(not found, f"{key}={value}: " + "; ".join(found[:5]))


def several(case):
    scenario = noisy_copy(case)
    add_policies(scenario, case.rng, 2)
    return scenario


def compared(case, scenario, *options):
    answer = case.json("compare", case.write(scenario), *options)
    return {one["policy"]: one for one in answer["predictions"]}


def relation_compare_is_a_run_of_each_policy(case):
    scenario = several(case)
    for policy, row in compared(case, scenario).items():
        alone = case.predict(scenario, "--policy", policy)
        found = differences({"summary": row["summary"], "steps": row["steps"]},
                            {"summary": alone["summary"], "steps": alone["steps"]})
        demand(not found, f"{policy}: " + "; ".join(found[:5]))


def relation_order_and_names_of_policies_do_not_matter(case):
    scenario = several(case)
    wanted = compared(case, scenario)
    policies = scenario["tables"]["policy"]
    names = {one["name"]: f"renamed {len(policies) - i}" for i, one in enumerate(policies)}
    case.rng.shuffle(policies)
    for policy in policies:
        policy["name"] = names[policy["name"]]
    got = compared(case, scenario)
    for old, new in names.items():
        for part in ("summary", "steps"):
            demand(got[new][part] == wanted[old][part], f"{old}, elsewhere and renamed: other {part}: " + "; ".join(
                differences(got[new][part], wanted[old][part])[:5]))


def relation_threads_do_not_change_a_byte(case):
    scenario = several(case)
    path = case.write(scenario)
    key, values = swept(case)
    words = case.rng.choice([["compare", path], ["sweep", path, "--over", f"{key}={','.join(values)}"]])
    one, three = (case.ask(*words, "--threads", threads, "--json", "-", "--quiet") for threads in (1, 3))
    demand(one == three, f"{words[0]}: other bytes with three threads")


def relation_shards_merge_to_the_sweep(case):
    scenario = noisy_copy(case)
    path = case.write(scenario)
    key, values = swept(case)
    whole = case.folder / "whole.json"
    words = ["sweep", path, "--over", f"{key}={','.join(values)}"]
    wanted = case.ask(*words, "--json", "-", "--quiet"), case.ask(*words)
    parts = [case.folder / f"part-{i}.jsonl" for i in (1, 2)]
    for i, part in enumerate(parts):
        part.unlink(missing_ok=True)
        case.ask(*words, "--shard", f"{i + 1}/2", "--resume", part, "--quiet")
    if case.rng.random() < 0.5:
        parts.reverse()
    whole.unlink(missing_ok=True)
    demand(case.ask("merge", *parts, "--json", "-", "--quiet") == wanted[0], "merged JSON has other bytes")
    demand(case.ask("merge", *parts) == wanted[1], "merged text has other bytes")


def plan_of(case, scenario, change=lambda line: None):
    """The scenario with the batches of its plan, whose lines `change` may alter."""
    path, name = case.write(scenario), scenario["tables"]["policy"][0]["name"]
    case.ask("plan", path, "--policy", name, "--out", case.folder / "plan.jsonl", "--quiet")
    lines = [json.loads(line) for line in (case.folder / "plan.jsonl").read_text().splitlines()]
    for line in lines[1:]:
        change(line)
    lines[1:] = sorted(lines[1:], key=lambda line: (line["step"], line["rank"], line["micro_batch"]))
    other = json.loads(json.dumps(scenario))
    other["files"]["plan.jsonl"] = "\n".join(map(json.dumps, lines)) + "\n"
    other["tables"]["data"]["lengths"] = {"plan": "plan.jsonl"}
    other["tables"]["data"].pop("samples", None)
    other["tables"]["policy"] = [{"name": name, "kind": "plan", "file": "plan.jsonl"}]
    return other


def without(prediction, *keys):
    summary = {key: value for key, value in prediction["summary"].items() if key not in keys}
    return {"summary": summary, "steps": prediction["steps"]}


# Of a plan the epoch is not known, so that samples are counted over the simulated steps.
OF_EPOCH = ("tokens_per_sample", "samples_per_s")


def relation_a_plan_plays_its_own_steps(case):
    scenario = noisy_copy(case)
    planned = case.predict(scenario)
    played = case.predict(plan_of(case, scenario), name="two")
    found = differences(without(played, *OF_EPOCH), without(planned, *OF_EPOCH))
    demand(not found, "; ".join(found[:5]))


def relation_permuted_ranks_take_the_same_step(case):
    """Batches, slow ranks and delays go with their rank. No skew, which is by number, and no ZeRO-1 or 2, whose
    ranks own different parameters."""
    if "zero" in case.more:
        raise NotHere
    scenario = case.copy()
    cluster = scenario["tables"]["cluster"]
    cluster.pop("skew", None)
    to = list(range(cluster["ranks"]))
    case.rng.shuffle(to)
    first = case.predict(plan_of(case, scenario))

    def move(line):
        line["rank"] = to[line["rank"]]

    other = plan_of(case, scenario, move)
    moved = other["tables"]["cluster"].get("slow_ranks", []) + other["tables"]["data"].get("delays", [])
    for one in moved:
        move(one)
    second = case.predict(other, name="two")
    rows = [row | {"rank": to[row["rank"]]} for row in first["steps"]]
    rows.sort(key=lambda row: (row["step"], row["rank"]))
    found = differences(without(second, *OF_EPOCH), {"summary": without(first, *OF_EPOCH)["summary"], "steps": rows},
                        1e-9)
    demand(not found, f"{to}: " + "; ".join(found[:5]))


def nested(slices):
    """Whether any two slices of a stream overlap, other than one inside the other."""
    stack = []
    for start, end, name in sorted(slices, key=lambda one: (one[0], -one[1])):
        while stack and stack[-1][1] <= start + 1e-4:
            stack.pop()
        if stack and end > stack[-1][1] + 1e-4:
            return f"{name} at {start} to {end} us overlaps {stack[-1]}"
        stack.append((start, end, name))
    return ""


def relation_a_trace_shows_the_steps(case):
    path = case.write(case.scenario)
    rows = case.json("run", path, "--trace", case.folder / "trace.json")["predictions"][0]["steps"]
    events = [one for one in json.loads((case.folder / "trace.json").read_text())["traceEvents"] if one["ph"] == "X"]
    streams, work = {}, {}
    for one in events:
        span = (one["ts"], one["ts"] + one["dur"], one["name"])
        streams.setdefault((one["pid"], one["tid"]), []).append(span)
        if one["cat"] != "step":
            work.setdefault((one["pid"], one["args"].get("step")), []).append(span)
    for stream, slices in streams.items():
        fault = nested(slices)
        demand(not fault, f"stream {stream}: {fault}")
    steps = {(one["pid"], one["args"]["step"]): one for one in events if one["cat"] == "step"}
    demand(len(steps) == len(rows), f"{len(steps)} steps in the trace, {len(rows)} rows")
    for row in rows:
        shown = steps[row["rank"], row["step"]]
        place = f"step {row['step']}, rank {row['rank']}"
        demand(math.isclose(shown["dur"], 1e3 * row["step_ms"], rel_tol=1e-9, abs_tol=2e-3),
               f"{place}: {shown['dur']} us, run says {row['step_ms']} ms")
        demand(math.isclose(shown["ts"], 1e3 * row["start_ms"], rel_tol=1e-9, abs_tol=2e-3),
               f"{place}: starts at {shown['ts']} us, run says {row['start_ms']} ms")
        for start, end, name in work.get((row["rank"], row["step"]), []):
            demand(end <= shown["ts"] + shown["dur"] + 2e-3, f"{place}: {name} ends at {end} us, after its step")


def live_record(prediction, ranks, steps, repeats):
    """A record of a training that took just the predicted times, on one host: clocks of several would be laid over
    one another by where their ranks meet, and with a hook that sends nothing they never do."""
    lines = [{"format": "stepsim-run-record/1", "policy": prediction["policy"], "world_size": ranks,
              "started_at": "2026-11-20T19:37:25Z", "device": "test", "cores": ranks,
              "repeats": repeats}]
    for repeat in range(repeats):
        for row in prediction["steps"]:
            if row["step"] in steps:
                kept = {key: row[key] for key in ("step", "rank", "samples", "max_length", "useful_tokens",
                                                  "padded_tokens", "data_ms", "forward_ms", "backward_ms",
                                                  "optimizer_ms", "step_ms", "start_ms")}
                lines.append({"repeat": repeat, **kept, "wait_ms": row["exposed_communication_ms"]})
    return "\n".join(map(json.dumps, lines)) + "\n"


def relation_a_perfect_prediction_has_no_error(case):
    """Also where the run was repeated, and where some of its steps alone were recorded."""
    scenario = case.copy()
    steps = case.rng.choice([3, 7, 20, 40])
    warmup = case.rng.randint(0, 2)
    scenario["tables"]["scenario"] |= {"steps": steps, "warmup_steps": warmup}
    path = case.write(scenario)
    prediction = case.predict(scenario)
    recorded = range(steps)
    if case.rng.random() < 0.4:
        recorded = sorted(case.rng.sample(range(warmup, steps), case.rng.randint(1, steps - warmup)))
    (case.folder / "live.jsonl").write_text(
        live_record(prediction, scenario["tables"]["cluster"]["ranks"], set(recorded), case.rng.randint(1, 3)))
    answer = case.json("validate", path, "--live", case.folder / "live.jsonl")["policies"][0]
    step_ms = answer["measured_ms"]["mean"]
    slack = 1e-9 + 2 * rounding_ms(scenario) / step_ms
    errors = {key: value for key, value in answer["error"].items() if key != "mean_by_part"}
    errors |= {f"part {key}": value for key, value in answer["error"]["mean_by_part"].items() if value is not None}
    for key, error in errors.items():
        demand(abs(error) <= slack, f"error of {key} {error}, {len(recorded)} of {steps} steps, {answer}")
