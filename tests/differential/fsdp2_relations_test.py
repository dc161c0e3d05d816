"""Checks relations between predictions of FSDP2 on random scenarios; no oracle is asked.

Usage: fsdp2_relations_test.py ANSWERS [--scenarios N] [--seed S]

Each relation changes a scenario in a way that cannot make its steps longer, or must leave them as
they are. Ends with `N passed, N failed, 0 skipped`, one for each relation.
"""

import argparse
import copy
import pathlib
import sys
import tempfile

import differential_test
import scenarios

ROUNDING_MS = 1e-4  # A faster network rounds each of some hundred collectives anew.


def with_parallel(**keys):
    def change(tables):
        if any(tables["parallel"].get(key) == value for key, value in keys.items()):
            return False
        tables["parallel"].update(keys)
        return True
    return change


def faster_network(tables):
    tables["cluster"]["network_speed"] = 2.0
    return tables["cluster"]["ranks"] > 1


def free_network(tables):
    tables["cluster"]["network_speed"] = 1e6
    return tables["cluster"]["ranks"] > 1


def without_hooks(tables):
    for key in tables["host"]:
        if key.startswith(("unit_", "sharded_")):
            tables["host"][key] = "0 ns"
    return True


def keeping(tables):
    """ZeRO-2 in place of ZeRO-3: nothing is gathered again."""
    return with_parallel(reshard_after_forward="false")(tables)


def one_replica(tables):
    if tables["parallel"].get("replicas", 1) != 1:
        return False
    tables["parallel"]["replicas"] = 1
    return True


def one_rank(tables):
    """The network of one rank does not matter."""
    if tables["cluster"]["ranks"] > 1 or "topology" not in tables["cluster"]:
        return False
    tables["cluster"]["topology"] |= {"intra_latency": "1 s", "intra_bandwidth": "0.001 GB/s"}
    return True


NOT_SLOWER = {
    "a network twice as fast": faster_network,
    "a network a million times as fast": free_network,
    "no hooks": without_hooks,
    "nothing is freed after the forward": keeping,
    "three reduce-scatter inputs": with_parallel(reduce_buffers=3),
    "a second communicator": with_parallel(separate_reduce_group=True),
}
EQUAL = {"one replica is said": one_replica, "the network of one rank": one_rank}


def ends(answer):
    """[rank and step] When each step ends."""
    return [row[4] + row[11] for row in answer["engine"]["rows"]]


def violations(product, change, equal, seeds):
    """Returns how many scenarios the relation reached, and the seeds at which it does not hold."""
    reached, violated = 0, []
    for seed in seeds:
        scenario = scenarios.random_sharded(seed)
        if scenario["tables"]["parallel"].get("async_unshard"):
            continue  # Transfers that share links may make each other late.
        changed = copy.deepcopy(scenario)
        if not change(changed["tables"]):
            continue
        before, after = product.answer(scenario), product.answer(changed)
        if "error" in before or "error" in after:
            raise SystemExit(f"seed {seed}: {before.get('error') or after.get('error')}")
        reached += 1
        pairs = list(zip(ends(before), ends(after)))
        slack = 0 if equal else ROUNDING_MS
        if any(new > old + slack or equal and new != old for old, new in pairs):
            violated.append(seed)
    return reached, violated


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("answers")
    parser.add_argument("--scenarios", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    failed = 0
    with tempfile.TemporaryDirectory(prefix="relations-") as folder:
        product = differential_test.Product(options.answers, pathlib.Path(folder))
        for name, change in (NOT_SLOWER | EQUAL).items():
            seeds = range(options.seed, options.seed + options.scenarios)
            reached, violated = violations(product, change, name in EQUAL, seeds)
            failed += bool(violated) or reached == 0
            print(f"{name}: {reached} scenarios, " + (f"violated by seeds {violated[:5]}" if violated else "holds"))
        product.process.stdin.close()
        product.process.wait()
    total = len(NOT_SLOWER) + len(EQUAL)
    print(f"{total - failed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
