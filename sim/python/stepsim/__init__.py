"""Know the step time of a PyTorch DDP job before you run it.

>>> import stepsim
>>> print(stepsim.Scenario("token_skew").compare())

Scenario asks the questions; Profile, Plan and RunRecord are the files; stepsim.torch has the batch
sampler, the recorder and the advisor for training loops. Times are in milliseconds, memory in bytes
unless a name says otherwise.
"""

from . import results
from ._core import __version__
from .advise import advise
from .catalog import buckets, lengths_of, models, policies, profiles, replay
from .errors import InputError, MachineError
from .records import Plan, Profile, RunRecord
from .scenario import Scenario

__all__ = [
    "InputError",
    "MachineError",
    "Plan",
    "Profile",
    "RunRecord",
    "Scenario",
    "__version__",
    "advise",
    "buckets",
    "lengths_of",
    "models",
    "policies",
    "profiles",
    "replay",
    "results",
]
