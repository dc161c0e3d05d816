"""A batch sampler that plays a plan."""

from typing import Any, Dict, Optional

import numpy

from .. import _core
from ..errors import InputError
from ..records import Plan
from .ranks import check_process, checked_rank, compare_ranks, gathered, known_rank
from .steps import RankSteps, StepSampler, checked_epoch
from .visits import Visits, check_visits, differences, visits_of

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
        rank, world_size: As BatchSampler's; where nothing says the number of ranks, the plan does.

    Attributes:
        plan: The stepsim.Plan. rank, world_size, epoch: Numbers. cuts: Whether samples are cut.

    Raises InputError: the file is no plan, or it is for another number of ranks.
    """

    def __init__(self, plan, rank=None, world_size=None):
        super().__init__()
        self.plan = plan if isinstance(plan, Plan) else Plan.read(plan)
        self._is_given = rank is not None and world_size is not None
        if world_size is None and known_rank() is None:
            if rank is None and self.plan.ranks > 1:
                raise InputError(f"rank: which of the plan's {self.plan.ranks} ranks is this?")
            rank, world_size = rank or 0, self.plan.ranks
        self.rank, self.world_size = checked_rank(rank, world_size)
        if self.world_size != self.plan.ranks:
            raise InputError(
                f"the plan is for {self.plan.ranks} ranks, but there are {self.world_size}"
            )
        rows = (self.plan["rank"] == self.rank).nonzero()[0]
        rows = rows[numpy.lexsort((self.plan["micro_batch"][rows], self.plan["step"][rows]))]
        every_sample, every_start, every_length = self._lists()
        self.cuts = any(every_start)
        samples = [every_sample[row] for row in rows]
        lengths = [every_length[row] for row in rows]
        starts = None
        if self.cuts:  # A row without offsets has whole samples.
            starts = _joined(
                [every_start[row] or [0] * len(every_sample[row]) for row in rows]
            )
        counts = [0] + [len(row) for row in samples]
        self._rows = rows
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
    def check_value(self) -> str:
        """A short text over the batches of all ranks."""
        return _core.lengths_id(_joined([*self.plan.samples, *self.plan.lengths]))

    def verify(self, group=None) -> Visits:
        """Compares the ranks over torch.distributed, and counts every sample of the plan in the
        batches that they hand out; every rank has to call it.

        Returns how often the ranks visit the samples that the plan has, the same on all ranks.

        Raises InputError on all ranks: they have other plans or numbers of batches, or samples of
        the plan are missing from their batches, or in them too often.
        """
        facts = {"rank": self.rank, "world size": self.world_size,
                 "stepsim version": _core.__version__, "plan": self.check_value,
                 "number of batches": len(self._of_rank)}
        visited = self._of_rank.visits()
        own = self._visits(self._rows)[:, : visited.shape[1]]
        ranks = gathered((facts, differences(own, visited), len(self._rows)), group)
        compare_ranks([facts for facts, _, _ in ranks])
        check_visits([both for _, both, _ in ranks])
        batches = sum(count for _, _, count in ranks)
        if batches != len(self.plan):
            raise InputError(f"the ranks have {batches} batches, but the plan {len(self.plan)}")
        planned = self._visits(range(len(self.plan)))
        lengths = numpy.zeros(planned[:, 0].max(initial=-1) + 1, dtype=numpy.int64)
        numpy.maximum.at(lengths, planned[:, 0], planned[:, 1] + planned[:, 2])
        return visits_of(planned, numpy.unique(planned[:, 0]), lengths)

    def _visits(self, rows):
        """Returns [visit][3] sample, start and length of these rows of the plan."""
        samples, starts, lengths = self._lists()
        visits = [
            visit for row in rows
            for visit in zip(samples[row], starts[row] or [0] * len(samples[row]), lengths[row])
        ]
        return numpy.array(visits, dtype=numpy.int64).reshape(-1, 3)

    def _lists(self):
        """Returns the plan's samples, offsets and lengths, each [row] a list; made anew."""
        return self.plan.samples, self.plan.offsets, self.plan.lengths

    def state_dict(self, steps: Optional[int] = None) -> Dict[str, Any]:
        """Returns where the loop stands, as BatchSampler.state_dict()."""
        return {"format": _STATE_FORMAT, "plan": self.check_value, "epoch": self._epoch,
                "steps": self._done(steps)}

    def load_state_dict(self, state: Dict[str, Any]) -> None:
        """Goes on where a state was taken. Raises InputError: it is of another plan."""
        if not isinstance(state, dict) or state.get("format") != _STATE_FORMAT:
            raise InputError("state: this is no state of a stepsim PlanSampler")
        if state.get("plan") != self.check_value:
            raise InputError("state: it was taken with another plan")
        steps, epoch = state.get("steps"), state.get("epoch")
        if not isinstance(steps, int) or isinstance(steps, bool) or not (
                0 <= steps <= len(self._of_rank)):
            raise InputError(f"state: it is damaged (steps {steps!r})")
        try:
            epoch = checked_epoch(epoch)
        except InputError as error:
            raise InputError(f"state: it is damaged ({error})") from None
        self._epoch, self._first, self._run = epoch, steps, None

    def _check_process(self):
        if not self._is_given:
            check_process(self.rank, self.world_size)


def _joined(rows):
    return numpy.array([item for row in rows for item in row], dtype=numpy.int64)
