"""Know the step time of a PyTorch DDP job before you run it.

>>> import stepsim
>>> print(stepsim.Scenario("token_skew").compare())

Scenario asks the questions; Profile, Plan and RunRecord are the files; stepsim.torch has the batch
sampler, the recorder and the advisor for training loops. Times are in milliseconds, memory in bytes
unless a name says otherwise.
"""

import sys

try:
    from ._core import __version__
except ModuleNotFoundError as error:
    if error.name != f"{__name__}._core":
        raise
    raise ImportError(
        f"{__path__[0]} holds the package stepsim without its compiled part for this Python "
        f"({sys.version_info[0]}.{sys.version_info[1]}). Where that is a folder of sources, start "
        "Python elsewhere, so that it finds an installed stepsim; to install one, say "
        "`python3 -m pip install .` in the folder of Stepsim"
    ) from None
from . import _arrays, _core

_arrays.check_arrays(_core)

from . import results
from .advise import advise
from .catalog import buckets, diff, lengths_of, models, others, policies, profiles, replay
from .errors import InputError, MachineError
from .job import Job
from .records import Plan, Profile, RunRecord
from .scenario import Scenario

__all__ = [
    "InputError",
    "Job",
    "MachineError",
    "Plan",
    "Profile",
    "RunRecord",
    "Scenario",
    "__version__",
    "advise",
    "buckets",
    "diff",
    "lengths_of",
    "models",
    "policies",
    "profiles",
    "replay",
    "results",
    *others,
]
globals().update(others)
