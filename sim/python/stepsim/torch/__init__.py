"""For PyTorch training loops: batches by any policy, planned for all ranks; the recorder; the advisor.

>>> from stepsim.torch import BatchSampler
>>> sampler = BatchSampler(lengths, "token_budget", max_tokens=4096)
>>> loader = DataLoader(dataset, batch_sampler=sampler, collate_fn=pad)

Recorder records what a training does; Advisor also says what would make it faster. Batches can be
looked at without PyTorch.
"""

import typing

from .plan_sampler import PlanSampler
from .sampler import BatchSampler
from .steps import Piece, Step
from .visits import Visits

if typing.TYPE_CHECKING:
    from .advisor import Advisor
    from .stepsim_recorder import Recorder, merge

__all__ = ["Advisor", "BatchSampler", "Piece", "PlanSampler", "Recorder", "Step", "Visits", "merge"]


def __getattr__(name):
    # Loaded when they are used: `python3 -m stepsim.torch.stepsim_recorder` runs a module that is
    # not there yet, and the Advisor needs PyTorch.
    if name in ("Recorder", "merge"):
        from . import stepsim_recorder

        return getattr(stepsim_recorder, name)
    if name != "Advisor":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from .advisor import Advisor
    except ImportError as error:
        raise ImportError(f"the Advisor needs PyTorch, which cannot be imported: {error}") from error
    return Advisor
