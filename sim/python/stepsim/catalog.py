"""Questions that need no scenario."""

import os

from . import results
from ._ask import ask, flags


def policies(*kinds) -> results.Catalog:
    """Lists the kinds of batching policies there are, in detail where kinds are named. Returns a
    results.Catalog of dicts with kind, family, summary, parameters and source."""
    return results.Catalog(ask("policies", list(kinds), progress=False))


def models() -> results.Catalog:
    """Lists the model presets there are. Returns a results.Catalog."""
    return results.Catalog(ask("models", [], progress=False))


def profiles(folder=None) -> results.Catalog:
    """Lists the calibrated machines in a folder, or the shipped ones. Returns a results.Catalog."""
    options = flags(dir=folder and os.fspath(folder))
    return results.Catalog(ask("profiles", options, progress=False))


def lengths_of(path, field=None) -> results.Lengths:
    """Describes the lengths in a file: one a line, .jsonl with a field, a histogram or a plan.
    Returns a results.Lengths."""
    options = flags(file=os.fspath(path), field=field)
    return results.Lengths(ask("lengths", options, progress=False))


def buckets(path) -> results.Buckets:
    """Returns the gradient buckets of lists of parameters in a file, a results.Buckets:
    {"cases": [{"name", "params": [{"bytes", "dtype"}]}]}."""
    return results.Buckets(ask("buckets", flags(params=os.fspath(path)), progress=False))


def replay(program, **options) -> results.Replay:
    """Plays a recorded program under the simulator's rules. The options are those of
    `stepsim replay`: no_barrier=True, cpu_scale=0.5. Returns a results.Replay."""
    return results.Replay(ask("replay", [os.fspath(program), *flags(**options)], progress=False))
