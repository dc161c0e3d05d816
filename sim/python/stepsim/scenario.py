"""Scenarios, and the questions that one can ask about them."""

import copy
import functools
import os
import pathlib
from typing import List

from . import _core, results
from ._ask import ask, tell
from ._questions import ROWS, made
from .errors import InputError, MachineError
from .lengths import checked_lengths
from .records import Plan, record_files


def _lengths_set(lengths):
    """What to set for an array of lengths in place of a scenario's data."""
    lengths = checked_lengths(lengths)
    return [("data.lengths", lengths), ("data.samples", len(lengths))]


def _are_lengths(value):
    """Whether the key data.lengths has an array of them, and not a source of lengths."""
    return value is not None and not isinstance(value, (str, dict))


def settings_of(key, value):
    """What set(key, value) sets: [(key, value)], as _core takes them."""
    if not isinstance(key, str):
        raise TypeError(f"a key is a text such as 'ddp.bucket_cap', not {key!r}")
    is_array = key == "data.lengths" and _are_lengths(value)
    return _lengths_set(value) if is_array else [(key, value)]


def _milliseconds(time):
    return time if isinstance(time, str) else f"{time} ms"


def _report(answer) -> str:
    return answer.text()


def _answer(scenario, question, options, progress=None, executor=None, axes=()):
    return ask(question, options, scenario, progress, executor, axes)


def _method(question, kind=results.Result, order=None, **more):
    return made(question, kind, _answer, order, method=True, **more)


class Scenario:
    """A training job to predict: a cluster, a model, data and batching policies.

    >>> scenario = Scenario("token_skew")            # a shipped scenario, or the path of a file
    >>> scenario.set("ddp.bucket_cap", "50 MiB").compare()

    Args:
        source: The path of a scenario file; the name of a shipped one; or the scenario itself as a
            dict of its tables, {"cluster": {"ranks": 4, …}, "policy": [{…}, …], …}. Paths in a
            dict start from the current folder; its data's lengths may be an array, as below.
        lengths: The tokens of each sample, in place of the scenario's data: a list, an array or a
            tensor of whole numbers [sample].
        file: What messages call a scenario that is in no file.

    Keys: scenarios/README.md has all of them. Every question raises InputError, with file, line
    and column, where the scenario is wrong, and MachineError for faults of the machine. Long ones
    show their progress; `progress` is True, False or a function (what, share from 0 to 1).
    """

    def __init__(self, source, lengths=None, file="scenario.toml"):
        if isinstance(source, dict):
            data = source.get("data")
            if lengths is None and isinstance(data, dict) and _are_lengths(data.get("lengths")):
                lengths = data["lengths"]
                rest = {key: value for key, value in data.items() if key != "lengths"}
                source = {**source, "data": rest}
            self._file, self._content = os.fspath(file), copy.deepcopy(source)
        else:
            self._file, self._content = _core.scenario_path(os.fspath(source)), None
        self._set = [] if lengths is None else _lengths_set(lengths)  # (key, value)
        _ = self._given  # What no scenario holds is said now.

    @classmethod
    def from_text(cls, text, file="scenario.toml") -> "Scenario":
        """Makes a scenario of the text of a file. `file` names it in messages, and relative paths
        inside start from its folder."""
        return cls._made(os.fspath(file), text, [])

    @classmethod
    def _made(cls, file, content, settings):
        scenario = cls.__new__(cls)
        scenario._file, scenario._content, scenario._set = file, content, settings
        return scenario

    def __reduce__(self):
        return type(self)._made, (self._file, self._content, self._set)

    @functools.cached_property
    def _given(self):
        return _core.Scenario(self._file, self._content, self._set)

    @property
    def file(self) -> str:
        """The file; for a scenario that is in none, what messages call it."""
        return self._file

    @property
    def text(self) -> str:
        """The text of the file, without what set() changed."""
        if self._content is not None:
            return self._given.text
        return pathlib.Path(self._file).read_text(encoding="utf-8")

    @property
    def settings(self) -> List[str]:
        """What set() changed, as --set takes it."""
        return self._given.settings

    def set(self, key, value) -> "Scenario":
        """Returns a scenario with another value of a key, and leaves this one as it is:
        set("ddp.bucket_cap", "50 MiB"), set("policy.bucketing.batch_size", 16).

        A text is read as `--set KEY=TEXT` reads it; numbers, lists and dicts are taken as they are.
        The key "data.lengths" also takes an array, list or tensor of lengths [sample], in tokens.
        What is wrong is found by the next question.
        """
        other = self._made(self._file, self._content, self._set + settings_of(key, value))
        _ = other._given  # A value of a wrong type is said now.
        return other

    def copy(self) -> "Scenario":
        """Returns another scenario that is the same."""
        return self._made(self._file, self._content, list(self._set))

    def __repr__(self):
        changed = f", {len(self._set)} keys set" if self._set else ""
        try:
            about = self._given.facts()
        except (InputError, MachineError):
            return f"<stepsim.Scenario {self._file}{changed}>"
        return (f"<stepsim.Scenario {about['name']}: {about['ranks']} ranks, policies "
                f"{', '.join(about['policies'])}{changed}>")

    def plan(self, policy=None) -> Plan:
        """Plans the batches of every step and rank by one policy (the first, without a name).
        Returns a Plan."""
        plan, notes = self._given.plan(policy or "")
        tell(notes, stacklevel=3)
        return Plan(plan)

    # What follows is made of the rows of the questions.
    run = _method("run", results.Run, "policy progress")
    compare = _method("compare", results.Comparison, "progress")
    sweep = _method(
        "sweep",
        results.Sweep,
        "over policy samples tokens gpu_hour efficiency threads progress",
        required="over",
    )
    tune = _method(
        "tune",
        results.Tuning,
        "over samples tokens max_order_change keep_all_samples within most_priced threads progress",
    )
    blame = _method("blame", results.Blame, "policy progress")
    solve = _method(
        "solve",
        results.Solution,
        "key step_time policy progress",
        required="key step_time",
        convert={"step_time": _milliseconds},
        words={"step_time": 'The measured mean step: "736.7 ms", or a number of milliseconds.'},
    )
    ladder = _method(
        "ladder", results.Ladder, "shape_cost policy rungs multiples step key progress"
    )
    buckets = _method("buckets", results.Buckets, "", hidden="best policy params")
    best_buckets = _method(
        "buckets",
        results.BestBuckets,
        "policy progress",
        name="best_buckets",
        fixed={"best": True},
        hidden="params",
    )
    lengths = _method("lengths", results.Lengths, "policy", hidden="file field")
    trace = _method(
        "trace",
        _report,
        "path folder policy ranks steps by_part",
        renamed={"path": "out", "folder": "out_dir", "by_part": "parts"},
        words={"steps": 'Which to show, as "0..3,8"; a number: so many.'},
    )
    validate = _method(
        "validate",
        results.Validation,
        "records step_times predictions bound progress",
        renamed={"records": "live"},
        convert={"records": record_files},
        words={"records": "Run records: paths, or RunRecord objects."},
    )


# A question that nothing is said of above has a method, too, whose result is a results.Result.
for _name, _row in ROWS.items():
    if not hasattr(Scenario, _name) and any(one["name"] == "scenario" for one in _row["options"]):
        setattr(Scenario, _name, _method(_name))
