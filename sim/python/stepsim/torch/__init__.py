"""For PyTorch training loops: batches by any policy, planned for all ranks.

>>> from stepsim.torch import BatchSampler
>>> sampler = BatchSampler(lengths, "token_budget", max_tokens=4096)
>>> loader = DataLoader(dataset, batch_sampler=sampler, collate_fn=pad)
"""

from .plan_sampler import PlanSampler
from .sampler import BatchSampler
from .steps import Piece, Step

__all__ = ["BatchSampler", "Piece", "PlanSampler", "Step"]
