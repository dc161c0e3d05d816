"""Plants faults in the oracle, one at a time, and checks that the differential test sees each.

Usage: faults_test.py ANSWERS
Ends with `N passed, N failed, 0 skipped`.
"""

import pathlib
import sys
import tempfile
import types

import differential_test
import oracle
import oracle_fsdp2
import scenarios

MOST = 400  # Scenarios until a fault has to be seen.

FAULTS = [
    ("a bucket closes above its limit, not at it", "        if total >= limits", "        if total > limits"),
    ("buckets ascend", "ready = registered[::-1]", "ready = registered"),
    ("no first bucket", "limits = [first, cap]", "limits = [cap]"),
    ("the rebuilt buckets hold from the first step on", "self.initial if self.synchronised == 0", "self.rebuilt if True"),
    ("the newest torch keeps 1 MiB", "first = cap\n", "pass\n"),
    ("all-reduces start when the first rank is there", "begin = max([own[b] for own in launches] + [free])",
     "begin = max(min(own[b] for own in launches), free)"),
    ("all-reduces run side by side", "[own[b] for own in launches] + [free]", "[own[b] for own in launches]"),
    ("a ring sends once around", "(2, 2 * (n - 1) / n)", "(2, (n - 1) / n)"),
    ("no copy out of the last bucket", "for (begin, end), bucket in zip(ends, buckets):\n                    row[",
     "for (begin, end), bucket in zip(ends, buckets[:-1] + [[]]):\n                    row["),
    ("copies cost nothing to launch", "        self.host += self.launch\n", "        self.host += self.launch * (nanoseconds > 0)\n"),
    ("the host waits for the optimizer", '            row["step"] = rank.device', '            rank.host = rank.device\n            row["step"] = rank.device'),
    ("slow ranks are not slow", 'math.prod(one["factor"] for', "math.prod(1 for"),
    ("a short batch is dropped", "if drop_last and len(batches", "if len(batches) > 1 and len(batches"),
    ("a budget counts useful tokens", "(len(batch) + 1) * max(batch + [length])", "sum(batch + [length])"),
    ("nothing is padded", "self.padded = self.samples * longest", "self.padded = self.useful"),
    ("lengths are cut after padding", 'min(length, source.get("cap", length))', "length"),
    ("the tail of a table is flat", "return knots[-1][1] + tail_slope", "return knots[-1][1] + 0 * tail_slope"),
    ("every micro-batch reduces", 'self.ddp.get("no_sync", True)', "False"),
    ("a rounding down", "math.floor(nanoseconds + 0.5)", "math.floor(nanoseconds)"),
]


FSDP2_FAULTS = [
    ("rows are not padded", "math.ceil(shape[0] / shards) * shards", "shape[0]"),
    ("gathers have the stored type", "self.gathered = elements * gathered", "self.gathered = elements * stored"),
    ("nothing is cast back", "if what.casts_back:", "if False:"),
    ("the root is freed", 'reshard == "default" and unit != "root"', 'reshard == "default"'),
    ("nothing is gathered ahead in the backward", "        if place > 0:", "        if False:"),
    ("any number of reduce-scatter inputs", "if len(self.held) >= job.buffers:", "if False:"),
    ("two communicators always", 'if name != "reduce" or self.separate', "if True"),
    ("gathers do not wait for copies out", "        if self.saved is not None:", "        if False:"),
    ("the first block reduces as soon as it is done", 'if unit == first_block and chain[-1] != "root"', "if False"),
    ("the root's hook comes before that of the block that it returns", "root_waits = has_root and chain[0]",
     "root_waits = False and chain[0]"),
    ("copies in for a reduction are free", "self.memory((what.reduced if kept else gradients) + what.reduced",
     "self.memory(0 * what.reduced"),
    ("hooks hold nobody", "            self.rank.host += nanoseconds", "            pass"),
    ("replicas reduce whole units", "what.reduced / job.shards, REPLICA", "what.reduced, REPLICA"),
    ("the optimizer has all elements", "elements // shards", "elements"),
    ("gradients are added in no time", "if unit in self.has_gradient:", "if False:"),
    ("a step ends before its reductions", "self.stand(-math.inf, end)", "pass"),
    ("kept parameters are gathered again", "self.frees_after_backward = mode", "self.frees_after_backward = True or mode"),
]


def planted(module, old, new):
    """The module with a fault; the rest of the oracle uses it as well."""
    text = pathlib.Path(module.__file__).read_text()
    if text.count(old) < 1:
        raise SystemExit(f"the oracle has no {old!r}")
    faulty = types.ModuleType(module.__name__)
    exec(compile(text.replace(old, new), module.__name__, "exec"), faulty.__dict__)
    return faulty


def is_seen(product, scenario):
    """Whether the answers differ; an oracle that stops has seen nothing."""
    found = differential_test.disagreement(product, scenario)[0]
    return bool(found) and not found[0].startswith("oracle: ")


def main():
    passed = failed = 0
    with tempfile.TemporaryDirectory(prefix="faults-") as folder:
        product = differential_test.Product(sys.argv[1], pathlib.Path(folder))
        for module, faults, scenario in ((oracle, FAULTS, scenarios.random_scenario),
                                         (oracle_fsdp2, FSDP2_FAULTS, scenarios.random_sharded)):
            for name, old, new in faults:
                setattr(differential_test, module.__name__, planted(module, old, new))
                seen = next((seed for seed in range(MOST) if is_seen(product, scenario(seed))), None)
                print(f"{name}: " + ("not seen" if seen is None else f"seen by scenario {seen}"))
                passed += seen is not None
                failed += seen is None
            setattr(differential_test, module.__name__, module)
        product.process.stdin.close()
        product.process.wait()
    print(f"{passed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
