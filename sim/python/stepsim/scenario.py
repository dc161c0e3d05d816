"""Scenarios, and the questions that one can ask about them."""

import os
import pathlib
import tempfile
from typing import List

from . import _core, _toml, results
from ._ask import ask, flags
from .records import Plan, RunRecord


def _setting(key, value):
    if not isinstance(key, str):
        raise TypeError(f"a key is a text such as 'ddp.bucket_cap', not {key!r}")
    return f"{key}={value if isinstance(value, str) else _toml.value_text(value)}"


def _values_text(values):
    """The values of a swept key: a text as --over takes it ("1MiB..2GiB:x2") or a list."""
    if isinstance(values, str):
        return values
    return ",".join(one if isinstance(one, str) else _toml.value_text(one) for one in values)


class Scenario:
    """A training job to predict: a cluster, a model, data and batching policies.

    >>> scenario = Scenario("token_skew")            # a shipped scenario, or the path of a file
    >>> scenario.set("ddp.bucket_cap", "50 MiB").compare()

    Args:
        source: The path of a scenario file; the name of a shipped one; or the scenario itself as a
            dict of its tables, {"cluster": {"ranks": 4, …}, "policy": [{…}, …], …}. Paths in a
            dict start from the current folder.
        lengths: The tokens of each sample, in place of the scenario's data: a list, an array or a
            tensor of whole numbers [sample].

    Keys: scenarios/README.md has all of them. Every question raises InputError, with file, line
    and column, where the scenario is wrong, and MachineError for faults of the machine. Long ones
    show their progress; `progress` is True, False or a function (what, share from 0 to 1).
    """

    def __init__(self, source, lengths=None):
        self._set = []
        self._folder = None  # Of a file with lengths.
        if isinstance(source, dict):
            self._file = "scenario.toml"
            self._text = _toml.document_text(source)
        else:
            self._file = _core.scenario_path(os.fspath(source))
            self._text = None
        if lengths is not None:
            self.set("data.lengths", lengths)

    @classmethod
    def from_text(cls, text, file="scenario.toml") -> "Scenario":
        """Makes a scenario of the text of a file. `file` names it in messages, and relative paths
        inside start from its folder."""
        scenario = cls({})
        scenario._file, scenario._text = os.fspath(file), text
        return scenario

    @property
    def file(self) -> str:
        """The file; for a scenario that is in none, what messages call it."""
        return self._file

    @property
    def text(self) -> str:
        """The text of the file, without what set() changed."""
        if self._text is not None:
            return self._text
        return pathlib.Path(self._file).read_text(encoding="utf-8")

    @property
    def settings(self) -> List[str]:
        """What set() changed, as --set takes it."""
        return list(self._set)

    def set(self, key, value) -> "Scenario":
        """Changes a key: set("ddp.bucket_cap", "50 MiB"), set("policy.bucketing.batch_size", 16).

        A text is read as `--set KEY=TEXT` reads it; numbers, lists and dicts are taken as they are.
        The key "data.lengths" also takes an array, list or tensor of lengths [sample], in tokens.
        Returns the scenario itself. What is wrong is found by the next question.
        """
        if key == "data.lengths" and not isinstance(value, (str, dict)):
            return self._set_lengths(value)
        self._set.append(_setting(key, value))
        return self

    def _set_lengths(self, lengths):
        from .lengths import checked_lengths

        lengths = checked_lengths(lengths)
        self._folder = tempfile.TemporaryDirectory(prefix="stepsim-")
        file = pathlib.Path(self._folder.name) / "lengths.txt"
        file.write_text("\n".join(map(str, lengths.tolist())) + "\n", encoding="ascii")
        self._set.append(_setting("data.lengths", {"file": file}))
        self._set.append(_setting("data.samples", len(lengths)))
        return self

    def copy(self) -> "Scenario":
        """Returns a scenario that can be changed without changing this one."""
        other = type(self)({})
        other._file, other._text, other._folder = self._file, self._text, self._folder
        other._set = list(self._set)
        return other

    def __repr__(self):
        changed = f", {len(self._set)} keys set" if self._set else ""
        return f"<stepsim.Scenario {self._file}{changed}>"

    def _arguments(self, options):
        words = [self._file]
        for setting in self._set:
            words += ["--set", setting]
        return words + options

    def _ask(self, kind, command, options, progress=None):
        return kind(ask(command, self._arguments(options), self._text, progress))

    def run(self, policy=None, progress=None) -> results.Run:
        """Predicts one policy in detail (the first, without a name). Returns a results.Run."""
        return self._ask(results.Run, "run", flags(policy=policy), progress)

    def compare(self, progress=None) -> results.Comparison:
        """Predicts every policy and ranks them. Returns a results.Comparison."""
        return self._ask(results.Comparison, "compare", [], progress)

    def sweep(self, over, policy=None, samples=None, tokens=None, gpu_hour=None, efficiency=None,
              threads=None, progress=None) -> results.Sweep:
        """Predicts the step at every value of one or more keys.

        Args:
            over: {key: values}; values are a list, or a text as the command line takes it:
                {"ddp.bucket_cap": "1MiB..2GiB:x2"}, {"cluster.ranks": [2, 4, 8]}.
            policy: A policy of the scenario; None: the first.
            samples, tokens: To train on; the result then says hours and GPU-hours.
            gpu_hour: The price of a rank for an hour.
            efficiency: Samples/s a rank, in percent of the best, that a cluster is worth (80).
            threads: None: one a core.

        Returns a results.Sweep.
        """
        options = []
        for key, values in over.items():
            options += ["--over", f"{key}={_values_text(values)}"]
        options += flags(policy=policy, samples=samples, tokens=tokens, gpu_hour=gpu_hour,
                          efficiency=efficiency, threads=threads)
        return self._ask(results.Sweep, "sweep", options, progress)

    def tune(self, over=None, samples=None, tokens=None, max_order_change=None,
             keep_all_samples=False, within=None, most_priced=None, threads=None,
             progress=None) -> results.Tuning:
        """Searches for the setting with the most useful tokens per second.

        Args:
            over: {key: values} as for sweep(), and {"policy": [names]}; None: the scenario's
                policies around their sizes, and keys of DDP that leave the training as it is.
            samples, tokens: (least, most) of a step, over all ranks.
            max_order_change: Percent of an epoch, mean distance from the sampler's order.
            keep_all_samples: Whether settings that lose samples of an epoch, or crop some, are left out.
            within: Percent that the search may miss at most (1).
            most_priced: Points to price at most.
            threads: None: one a core.

        Returns a results.Tuning.
        """
        def span(ends):
            return None if ends is None else f"{ends[0]}..{ends[1]}"
        options = []
        for key, values in (over or {}).items():
            options += ["--over", f"{key}={_values_text(values)}"]
        options += flags(samples=span(samples), tokens=span(tokens),
                         max_order_change=max_order_change, within=within,
                         most_priced=most_priced, threads=threads)
        options += ["--keep-all-samples"] if keep_all_samples else []
        return self._ask(results.Tuning, "tune", options, progress)

    def blame(self, policy=None, progress=None) -> results.Blame:
        """Says what the step is spent on and what would save most. Returns a results.Blame."""
        return self._ask(results.Blame, "blame", flags(policy=policy), progress)

    def solve(self, key, step_time, policy=None, progress=None) -> results.Solution:
        """Finds the value of a key at which the predicted mean step is the measured one.

        Args:
            key: The key and its range: "interference.strength=0..2".
            step_time: The measured mean step: "736.7 ms", or a number of milliseconds.

        Returns a results.Solution.
        """
        if not isinstance(step_time, str):
            step_time = f"{step_time} ms"
        return self._ask(
            results.Solution, "solve", flags(key=key, step_time=step_time, policy=policy), progress
        )

    def ladder(self, shape_cost=None, policy=None, rungs=None, multiples=None, step=None, key=None,
               progress=None) -> results.Ladder:
        """Finds the lengths to pad batches to, where each new shape costs a rank `shape_cost`
        ("500 ms"; None: what the scenario or its profile says). Returns a results.Ladder."""
        def joined(numbers):
            return numbers if numbers is None or isinstance(numbers, str) else _values_text(numbers)

        options = flags(shape_cost=shape_cost, policy=policy, rungs=joined(rungs),
                         multiples=joined(multiples), step=step, key=key)
        return self._ask(results.Ladder, "ladder", options, progress)

    def buckets(self) -> results.Buckets:
        """Returns the gradient buckets that DDP makes, a results.Buckets."""
        return self._ask(results.Buckets, "buckets", [])

    def best_buckets(self, policy=None, progress=None) -> results.BestBuckets:
        """Finds the best bucket cap and the best list of limits for one policy (the first, without
        a name). Returns a results.BestBuckets."""
        options = flags(best=True, policy=policy)
        return self._ask(results.BestBuckets, "buckets", options, progress)

    def lengths(self, policy=None) -> results.Lengths:
        """Describes the sample lengths. Returns a results.Lengths."""
        return self._ask(results.Lengths, "lengths", flags(policy=policy))

    def plan(self, policy=None) -> Plan:
        """Plans the batches of every step and rank by one policy (the first, without a name).
        Returns a Plan."""
        with tempfile.TemporaryDirectory(prefix="stepsim-") as folder:
            file = os.path.join(folder, "plan.jsonl")
            ask("plan", self._arguments(flags(policy=policy, out=file)), self._text, False)
            return Plan.read(file)

    def trace(self, path=None, folder=None, policy=None, ranks=None, steps=None,
              by_part=False) -> str:
        """Writes the predicted timeline of a policy.

        Args:
            path: One Chrome trace for ui.perfetto.dev; packed where the name ends in .gz.
            folder: A file a rank as PyTorch's profiler writes it.
            ranks, steps: Which to show, as "0..3,8".
            by_part: One slice for a part of a step in place of each op.

        Returns what the command prints, as a text.
        """
        options = flags(policy=policy, out=path and os.fspath(path),
                         out_dir=folder and os.fspath(folder), ranks=ranks, steps=steps,
                         parts=by_part)
        return ask("trace", self._arguments(options), self._text, False).text()

    def validate(self, records=None, step_times=None, predictions=None, bound=None,
                 progress=None) -> results.Validation:
        """Compares predicted and measured steps.

        Args:
            records: Run records: paths, or RunRecord objects.
            step_times: The path of a table of measured steps, in place of records.
            predictions: A file that Comparison.to_json() was written to before the live run.
            bound: The largest error of a mean, in percent (10).

        Returns a results.Validation; its `ok` says whether the errors stay within the bound.
        """
        if records is not None and not isinstance(records, (list, tuple)):
            records = [records]
        files = records and [
            one.file if isinstance(one, RunRecord) else os.fspath(one) for one in records
        ]
        options = flags(predictions=predictions and os.fspath(predictions), bound=bound,
                         step_times=step_times and os.fspath(step_times), live=files or None)
        return self._ask(results.Validation, "validate", options, progress)
