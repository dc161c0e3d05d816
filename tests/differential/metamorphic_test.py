"""Metamorphic relations: how a prediction has to change when its scenario changes.

Usage: metamorphic_test.py STEPSIM [--scenarios N] [--seed S] [--only WORD]

Each relation is asked of N scenarios, number i with the seed S + i. Relations between figures stand here,
those between commands in metamorphic_commands.py. An exception that is honest is written where it is made.
A violation is printed with its seed; `--only` runs the relations whose name has the word. Ends with
`N passed, N failed, 0 skipped`, where N counts relations.
"""

import argparse
import math
import os
import random
import sys
import tempfile
import time
import traceback

import metamorphic_commands
import scenarios
from metamorphic import (
    NS, Case, NotHere, Refused, Violation, add_noise, demand, differences, micro_batches, over_links,
    rounding_ms, scale_host, scale_kernels, scale_links, scale_op,
    tensors)


def figures(prediction):
    """Without what names or describes: the figures and rows."""
    return {"summary": prediction["summary"], "steps": prediction["steps"]}


def agree(got, wanted, case, factor=1.0, scenario=None, times=2.0):
    slack = times * rounding_ms(scenario or case.scenario)
    summary = wanted["summary"]
    found = differences(figures(got), figures(wanted), slack, factor, summary["step_time_ms"]["mean"],
                        summary["communication_ms"])
    demand(not found, "; ".join(found[:5]))


def at_most(what, less, more, slack_ms):
    demand(less <= more * (1 + 1e-9) + slack_ms, f"{what}: {less} exceeds {more}")


# ---- All times.

def relation_doubled_times_double_the_step(case):
    doubled = case.copy()
    for change in (scale_kernels, scale_links, scale_host):
        change(doubled, 2.0)
    agree(case.predict(doubled, name="two"), case.predict(), case, 2.0)


def relation_half_speeds_are_doubled_times(case):
    """compute_speed and network_speed hold for every kernel and every collective; the host is doubled by hand."""
    halved, doubled = case.copy(), case.copy()
    halved["tables"]["cluster"] |= {"compute_speed": 0.5, "network_speed": 0.5}
    scale_host(halved, 2.0)
    for change in (scale_kernels, scale_links, scale_host):
        change(doubled, 2.0)
    agree(case.predict(halved, name="two"), case.predict(doubled), case)


def relation_all_ranks_slow_is_half_compute_speed(case):
    slow, halved = case.copy(), case.copy()
    ranks = case.scenario["tables"]["cluster"]["ranks"]
    factors = {one["rank"]: one["factor"] for one in case.scenario["tables"]["cluster"].get("slow_ranks", [])}
    slow["tables"]["cluster"]["slow_ranks"] = [{"rank": r, "factor": 2 * factors.get(r, 1)} for r in range(ranks)]
    halved["tables"]["cluster"]["compute_speed"] = 0.5
    for op in (halved["profile"] or {}).get("ops", []):
        if op["op"] == "collate":  # A slow rank's host builds batches slowly; a fast device's does not.
            scale_op(op, 2.0)
    agree(case.predict(slow, name="two"), case.predict(halved), case)


# ---- Ranks.

def relation_one_more_rank_is_never_faster(case):
    """With the same work for each rank, over closed forms on one node, whose prices grow with the ranks."""
    if set(case.more) & {"interference", "gloo", "zero", "hook"}:
        # Interference and gloo's shared links are not monotone; ZeRO's shards get smaller; top-k and the like
        # gather, which small numbers of ranks price by other rules.
        raise NotHere
    scenario = case.copy()
    over_links(scenario, case.rng)
    tables = scenario["tables"]
    for key in ("ranks_per_node",):
        tables["cluster"].pop(key, None)
    for key in ("inter_latency", "node_bandwidth"):
        tables["cluster"]["topology"].pop(key, None)
    scenario["files"].pop("lengths.txt", None)
    tables["data"] |= {"lengths": {"constant": case.rng.randint(1, 100)}, "samples": 400}
    tables["policy"] = [{"name": "fixed", "kind": "fixed", "batch_size": 3}]
    tables["cluster"].pop("skew", None)
    fewer = case.predict(scenario)["summary"]
    tables["cluster"]["ranks"] += 1
    more = case.predict(scenario)["summary"]
    slack = rounding_ms(scenario)
    at_most("the step", fewer["step_time_ms"]["mean"], more["step_time_ms"]["mean"], slack)
    at_most("the collectives", fewer["communication_ms"], more["communication_ms"], slack)


def relation_one_rank_has_no_network(case):
    scenario = case.copy()
    over_links(scenario, case.rng)
    cluster = scenario["tables"]["cluster"]
    cluster["ranks"] = 1
    for key in ("ranks_per_node", "slow_ranks", "skew"):
        cluster.pop(key, None)
    scenario["tables"]["data"].pop("delays", None)
    alone = case.predict(scenario)
    demand(alone["summary"]["communication_ms"] == 0, f"collectives {alone['summary']['communication_ms']} ms")
    # A hook's kernels, and what a host takes to enqueue a collective, are waited for on one rank, too.
    if "hook" not in case.more:
        demand(abs(alone["summary"]["exposed_transfer_ms"]) < NS, "an exposed transfer on one rank")
    if not set(case.more) & {"host", "hook"}:
        demand(alone["summary"]["exposed_communication_ms"] == 0, "exposed communication on one rank")
    cluster["network_speed"] = 0.1
    demand(figures(case.predict(scenario)) == figures(alone), "the network's speed moves one rank")


# ---- Links.

def relation_faster_links_never_cost(case):
    """Over all steps, the first one included, since the end of the last one is what cannot come later. It also holds
    where transfers slow compute, and where two share the links."""
    scenario = case.copy()
    scenario["tables"]["scenario"]["warmup_steps"] = 0  # The sum of all steps is the end of the last.
    before = case.predict(scenario)["summary"]
    way = case.rng.choice(["links", "speed"])
    if way == "links":
        scale_links(scenario, 1 / case.rng.uniform(1, 5))
    else:
        scenario["tables"]["cluster"]["network_speed"] = case.rng.uniform(1, 5)
    after = case.predict(scenario)["summary"]
    slack = rounding_ms(scenario)
    at_most("the step", after["step_time_ms"]["mean"], before["step_time_ms"]["mean"], slack)
    at_most("the collectives", after["communication_ms"], before["communication_ms"], slack)
    at_most("exposed communication", after["exposed_communication_ms"], before["exposed_communication_ms"], slack)


def relation_free_links_expose_nothing(case):
    """Links a million times as fast. Not with a hook, whose kernels run where transfers do."""
    scenario = case.copy()
    scenario["tables"].pop("interference", None)
    before = case.predict(scenario)["summary"]["communication_ms"]
    scenario["tables"]["cluster"]["network_speed"] = 1e6
    answer = case.predict(scenario)
    slack = rounding_ms(scenario)
    if "hook" not in case.more:
        at_most("the collectives", answer["summary"]["communication_ms"], 1e-6 * before, slack)
        for row in answer["steps"]:
            transfer = row["exposed_communication_ms"] - row["waiting_for_ranks_ms"]
            at_most(f"exposed transfer of step {row['step']}, rank {row['rank']}", transfer, 1e-6 * before, 2 * slack)
    ddp = scenario["tables"]["ddp"]
    if case.more or micro_batches(scenario) > 1 or not ddp.get("gradient_as_bucket_view"):
        # Ranks meet or wait in more places than before the optimizer; and copies out of the first buckets are made
        # while a rank waits for the last one.
        return
    by_step = {}
    for row in answer["steps"]:
        by_step.setdefault(row["step"], []).append(row)
    for step, rows in by_step.items():
        own = [row["start_ms"] + row["data_ms"] + row["forward_ms"] + row["backward_ms"] for row in rows]
        meeting = max(own)
        end = max(meeting + row["optimizer_ms"] for row in rows)
        took = end - max(row["start_ms"] for row in rows)
        stated = max(row["start_ms"] + row["step_ms"] for row in rows) - max(row["start_ms"] for row in rows)
        left = slack + 2e-6 * before  # What a millionth of the transfers still takes.
        demand(math.isclose(took, stated, rel_tol=1e-9, abs_tol=left), f"step {step}: {stated}, slowest rank {took}")


def relation_no_sync_never_costs(case):
    """In steady steps. The host waits for the device where buckets are rebuilt, and that is a step later, when the
    host would be further ahead, where the first micro-batch is not reduced."""
    if set(case.more) & {"interference", "gloo", "zero", "hook", "optimizer_in_backward", "static_graph"}:
        raise NotHere
    scenario = case.copy()
    scenario["tables"]["scenario"] |= {"steps": 7, "warmup_steps": 3}
    ddp = scenario["tables"]["ddp"]
    ddp["accumulation_steps"] = max(2, micro_batches(scenario))
    ddp["no_sync"] = False
    always = case.predict(scenario)["summary"]
    ddp["no_sync"] = True
    last = case.predict(scenario)["summary"]
    slack = rounding_ms(scenario)
    at_most("collectives", last["communication_ms"], always["communication_ms"], slack)
    at_most("the step", last["step_time_ms"]["mean"], always["step_time_ms"]["mean"], slack)


def relation_overlap_never_costs(case):
    """Not with interference, which is made for that; not with gloo, whose host waits where buckets are rebuilt and
    is then less far ahead; not with a bound queue, since copies between the kernels of the backward fill it, so that
    the host's hooks are no longer hidden."""
    if set(case.more) & {"interference", "gloo"} or "queue_depth" in case.scenario["tables"].get("host", {}):
        raise NotHere
    scenario = case.copy()
    scenario["tables"]["scenario"]["warmup_steps"] = 0
    scenario["tables"]["ddp"]["overlap"] = False
    after = case.predict(scenario)["summary"]
    scenario["tables"]["ddp"]["overlap"] = True
    during = case.predict(scenario)["summary"]
    at_most("the step", during["step_time_ms"]["mean"], after["step_time_ms"]["mean"], rounding_ms(scenario))


# ---- Buckets.

def relation_buckets_hold_every_gradient_once(case):
    scenario = case.copy()
    scenario["tables"]["ddp"] |= scenarios.random_ddp(case.rng, [4096] * tensors(scenario))
    answer = case.json("buckets", case.write(scenario))
    text = scenario["files"].get("tensors.csv")
    if text:
        elements = [math.prod(map(int, row.split(",")[1].split("x"))) for row in text.split()[1:]]
    else:
        elements = [scenario["tables"]["model"]["block_elements"]] * tensors(scenario)
    size = {"bf16": 2, "f16": 2, "f64": 8}.get(scenario["tables"]["model"].get("parameter_dtype"), 4)
    for kind in ("initial", "rebuilt"):
        held = sorted(one for bucket in answer[kind] for one in bucket)
        demand(held == list(range(len(elements))), f"{kind} buckets hold {held}")
        wanted = [size * sum(elements[i] for i in bucket) for bucket in answer[kind]]
        demand(wanted == answer[f"{kind}_bytes"], f"{kind}: {answer[f'{kind}_bytes']} bytes, not {wanted}")
        demand(sum(wanted) == size * sum(elements), f"{kind}: {sum(wanted)} bytes in all")


# ---- One answer.

def relation_figures_lie_in_their_bounds(case):
    answer = case.predict()
    slack = rounding_ms(case.scenario)
    summary = answer["summary"]
    if "hook" not in case.more:  # A hook's kernels run between transfers, and are waited for as well.
        at_most("exposed transfer", summary["exposed_transfer_ms"], summary["communication_ms"], slack)
    for key in ("scaling_efficiency", "overlap_fraction", "padding_ratio"):
        most = 1e-9 + (slack / summary["step_time_ms"]["mean"] if key == "scaling_efficiency" else 0)
        demand(-1e-9 <= summary[key] <= 1 + most, f"{key} {summary[key]}")
    at_most("useful tokens", summary["useful_tokens_per_step"], summary["padded_tokens_per_step"], 0)
    for row in answer["steps"]:
        place = f"step {row['step']}, rank {row['rank']}"
        demand(row["useful_tokens"] <= row["padded_tokens"], f"{place}: more useful tokens than padded ones")
        for key in row:
            demand(row[key] >= 0, f"{place}: {key} {row[key]}")
        at_most(f"{place}: waiting", row["waiting_for_ranks_ms"], row["exposed_communication_ms"], slack)
        parts = sum(row[f"{part}_ms"] for part in ("data", "forward", "backward", "optimizer"))
        parts += row["exposed_communication_ms"]
        demand(math.isclose(parts, row["step_ms"], rel_tol=1e-9, abs_tol=slack),
               f"{place}: parts {parts} ms, the step {row['step_ms']}")


def relation_the_mean_lies_in_its_interval(case):
    scenario = case.copy()
    add_noise(scenario, case.rng)
    step = case.predict(scenario)["summary"]["step_time_ms"]
    low, high = step["interval90"]
    demand(low <= step["mean"] <= high, f"mean {step['mean']} outside of {low} to {high}")
    demand(step["p50"] <= step["p95"] <= step["p99"], f"quantiles {step}")


def relation_fewer_steps_are_the_first_ones(case):
    """A run of fewer steps is the beginning of a longer one; a prediction does not look ahead."""
    scenario = case.copy()
    steps = scenario["tables"]["scenario"]["steps"] + 3
    scenario["tables"]["scenario"] |= {"steps": steps, "warmup_steps": 0}
    longer = case.predict(scenario)
    scenario["tables"]["scenario"]["steps"] = steps - 3
    shorter = case.predict(scenario)
    rows = [row for row in longer["steps"] if row["step"] < steps - 3]
    found = differences({"steps": shorter["steps"]}, {"steps": rows})
    demand(not found, "; ".join(found[:5]))


def relation_units_and_places_of_a_key_do_not_matter(case):
    """A size in bytes or KiB, a placement or ranks a node, a key in the file or by --set."""
    scenario = case.copy()
    ddp, cluster = scenario["tables"]["ddp"], scenario["tables"]["cluster"]
    ddp.pop("bucket_caps", None)
    if ddp.get("bucket_rule") in ("per_parameter", "single"):
        ddp.pop("bucket_rule")
    kib = case.rng.randint(1, 4096)
    ddp["bucket_cap"] = f"{kib} KiB"
    wanted = figures(case.predict(scenario))
    ddp["bucket_cap"] = kib * 1024
    demand(figures(case.predict(scenario)) == wanted, "bytes are not KiB")
    ddp["bucket_cap"] = "1 B"
    demand(figures(case.predict(scenario, "--set", f"ddp.bucket_cap={kib} KiB")) == wanted, "--set is not the file")
    ddp["bucket_cap"] = f"{kib} KiB"
    if "ranks_per_node" in cluster:
        nodes = cluster.pop("ranks") // cluster["ranks_per_node"]
        cluster["placement"] = f"{nodes}x{cluster.pop('ranks_per_node')}"
        demand(figures(case.predict(scenario)) == wanted, "a placement is not ranks a node")


# ---- Running them.

def relations(only):
    found = {}
    for module in (globals(), vars(metamorphic_commands)):
        found |= {name.removeprefix("relation_"): one for name, one in module.items() if name.startswith("relation_")}
    return {name: one for name, one in found.items() if only in name}


def asked(name, relation, options, folder):
    """Counts of (held, not here, refused, violated); violations are printed."""
    held = left_out = refused = violated = 0
    for seed in range(options.seed, options.seed + options.scenarios):
        case = Case(options.stepsim, folder, seed)
        case.rng = random.Random(f"{name} {seed}")
        try:
            relation(case)
            held += 1
        except NotHere:
            left_out += 1
        except Refused as reason:
            refused += 1
            if options.refusals:
                print(f"seed {seed}, {name}: refused: {reason}")
        except Violation as what:
            violated += 1
            print(f"seed {seed}, {name}: {str(what)[:1500]} ({', '.join(case.more) or 'plain'})", flush=True)
        except Exception:  # pylint: disable=broad-except  (a relation's own fault is a finding, too)
            violated += 1
            print(f"seed {seed}, {name}: {traceback.format_exc()}", flush=True)
        if violated >= options.most_failures:
            break
    return held, left_out, refused, violated


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stepsim")
    parser.add_argument("--scenarios", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="")
    parser.add_argument("--refusals", action="store_true", help="say why scenarios are refused")
    parser.add_argument("--most-failures", type=int, default=3, help="of one relation, before the next")
    options = parser.parse_args()
    options.stepsim = os.path.abspath(options.stepsim)
    passed = failed = 0
    with tempfile.TemporaryDirectory(prefix="metamorphic-") as folder:
        for name, relation in relations(options.only).items():
            began = time.monotonic()
            held, left_out, refused, violated = asked(name, relation, options, folder)
            print(f"{name}: held {held}, says nothing {left_out}, refused {refused}, violated {violated}; "
                  f"{time.monotonic() - began:.1f} s", flush=True)
            # A relation that few scenarios reach would not see a fault.
            reached = held * 4 >= options.scenarios
            if not violated and not reached:
                print(f"{name}: reached by {held} of {options.scenarios} scenarios alone")
            passed, failed = (passed + 1, failed) if reached and not violated else (passed, failed + 1)
    print(f"{passed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
