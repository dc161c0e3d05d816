"""A batch sampler that plays a plan."""

import numpy

from .. import _core
from ..errors import InputError
from ..records import Plan
from .ranks import checked_rank, current_rank
from .steps import RankSteps, StepSampler

_STATE_FORMAT = "stepsim-plan-sampler/1"


class PlanSampler(StepSampler):
    """A batch_sampler for DataLoader which hands out the batches of a plan, the same ones in every
    epoch.

        sampler = PlanSampler("plan.jsonl")
        for batch, step in sampler.steps(DataLoader(dataset, batch_sampler=sampler, …)):

    A plan with accumulated gradients has several batches a step; each is a step here. Where the
    plan cuts samples, Piece(sample, start, length) takes the place of an id.

    Args:
        plan: A stepsim.Plan, or the path of its file.
        rank, world_size: As BatchSampler's.

    Attributes:
        plan: The stepsim.Plan. rank, world_size, epoch: Numbers. cuts: Whether samples are cut.

    Raises InputError: the file is no plan, or it is for another number of ranks.
    """

    def __init__(self, plan, rank=None, world_size=None):
        super().__init__()
        self.plan = plan if isinstance(plan, Plan) else Plan.read(plan)
        self.rank, self.world_size = checked_rank(rank, world_size)
        self._is_given = rank is not None and world_size is not None
        if current_rank() == (0, 1) and world_size is None:
            # Nothing says how many ranks there are, so those of the plan.
            self.rank, self.world_size = checked_rank(rank or 0, self.plan.ranks)
            self._is_given = rank is not None
        if self.world_size != self.plan.ranks:
            raise InputError(
                f"the plan is for {self.plan.ranks} ranks, but there are {self.world_size}"
            )
        rows = (self.plan["rank"] == self.rank).nonzero()[0]
        rows = rows[numpy.lexsort((self.plan["micro_batch"][rows], self.plan["step"][rows]))]
        every_start = self.plan.offsets
        self.cuts = any(every_start)
        samples = [self.plan.samples[row] for row in rows]
        lengths = [self.plan.lengths[row] for row in rows]
        starts = None
        if self.cuts:  # A row without offsets has whole samples.
            starts = _joined([every_start[row] or [0] * len(self.plan.samples[row]) for row in rows])
        counts = [0] + [len(row) for row in samples]
        self._of_rank = RankSteps(
            numpy.cumsum(counts), _joined(samples), starts, _joined(lengths), None,
            self.plan["max_length"][rows], self.plan["useful_tokens"][rows],
            self.plan["loss_scale"][rows],
        )

    def _steps(self):
        return self._of_rank

    def _before(self):
        return 0

    @property
    def check_value(self):
        """A short text over the batches of all ranks."""
        return _core.lengths_id(_joined([*self.plan.samples, *self.plan.lengths]))

    def state_dict(self, steps=None):
        """Returns where the loop stands, as BatchSampler.state_dict()."""
        return {"format": _STATE_FORMAT, "plan": self.check_value, "epoch": self._epoch,
                "steps": self._done(steps)}

    def load_state_dict(self, state):
        """Goes on where a state was taken. Raises InputError: it is of another plan."""
        if not isinstance(state, dict) or state.get("format") != _STATE_FORMAT:
            raise InputError("state: this is no state of a stepsim PlanSampler")
        if state.get("plan") != self.check_value:
            raise InputError("state: it was taken with another plan")
        steps, epoch = state.get("steps"), state.get("epoch")
        if not isinstance(steps, int) or not isinstance(epoch, int) or not (
                0 <= steps <= len(self._of_rank) and epoch >= 0):
            raise InputError(f"state: it is damaged (epoch {epoch!r}, steps {steps!r})")
        self._epoch, self._first, self._run = epoch, steps, None

    def _check_process(self):
        now = current_rank()
        if not self._is_given and now not in ((self.rank, self.world_size), (0, 1)):
            raise InputError(
                f"this sampler was made for rank {self.rank} of {self.world_size}, but this "
                f"process is rank {now[0]} of {now[1]}: make it after init_process_group()"
            )


def _joined(rows):
    return numpy.array([item for row in rows for item in row], dtype=numpy.int64)
