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


def planted(text, old, new):
    if text.count(old) < 1:
        raise SystemExit(f"the oracle has no {old!r}")
    module = types.ModuleType("oracle")
    exec(compile(text.replace(old, new), "oracle", "exec"), module.__dict__)
    return module


def is_seen(product, seed):
    """Whether the answers differ; an oracle that stops has seen nothing."""
    found = differential_test.disagreement(product, scenarios.random_scenario(seed))[0]
    return bool(found) and not found[0].startswith("oracle: ")


def main():
    text = pathlib.Path(oracle.__file__).read_text()
    passed = failed = 0
    with tempfile.TemporaryDirectory(prefix="faults-") as folder:
        product = differential_test.Product(sys.argv[1], pathlib.Path(folder))
        for name, old, new in FAULTS:
            differential_test.oracle = planted(text, old, new)
            seen = next((seed for seed in range(MOST) if is_seen(product, seed)), None)
            print(f"{name}: " + ("not seen" if seen is None else f"seen by scenario {seen}"))
            passed += seen is not None
            failed += seen is None
        product.process.stdin.close()
        product.process.wait()
    print(f"{passed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
