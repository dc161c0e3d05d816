"""Questions that need no scenario."""

import os

from . import results
from ._ask import ask
from ._questions import ROWS, made
from .records import record_files


def _ask(question, options, progress=None):
    return ask(question, options, None, progress)


def policies(*kinds) -> results.Catalog:
    """Lists the kinds of batching policies there are, in detail where kinds are named. Returns a
    results.Catalog of dicts with kind, family, summary, parameters and source."""
    return results.Catalog(_ask("policies", {"kinds": list(kinds) or None}))


def models() -> results.Catalog:
    """Lists the model presets there are. Returns a results.Catalog."""
    return results.Catalog(_ask("models", {}))


def profiles(folder=None) -> results.Catalog:
    """Lists the calibrated machines in a folder, or the shipped ones. Returns a results.Catalog."""
    return results.Catalog(_ask("profiles", {"dir": folder and os.fspath(folder)}))


def lengths_of(path, field=None) -> results.Lengths:
    """Describes the lengths in a file: one a line, .jsonl with a field, a histogram or a plan.
    Returns a results.Lengths."""
    return results.Lengths(_ask("lengths", {"file": os.fspath(path), "field": field}))


def buckets(path) -> results.Buckets:
    """Returns the gradient buckets of lists of parameters in a file, a results.Buckets:
    {"cases": [{"name", "params": [{"bytes", "dtype"}]}]}."""
    return results.Buckets(_ask("buckets", {"params": os.fspath(path)}))


replay = made("replay", results.Replay, _ask, "program", required="program")

diff = made(
    "diff",
    results.Diff,
    _ask,
    "before after progress",
    required="before after",
    hidden="records",
    convert={"before": record_files, "after": record_files},
    words={
        "before": "A run record, the files of all its ranks, or several runs: paths or RunRecord objects.",
        "after": "The same of the runs that are compared with these.",
    },
)

# The questions that nothing more is said of: by their rows alone.
others = {
    name: made(name, results.Result, _ask)
    for name, row in ROWS.items()
    if name not in globals() and name != "advise"
    and all(one["name"] != "scenario" for one in row["options"])
}
