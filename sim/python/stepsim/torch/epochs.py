"""Epochs as the ranks go through them, also where other numbers of ranks began them."""

import hashlib
import json
import re

import numpy

from .. import _core
from ..errors import InputError
from .steps import RankSteps

MADE = "BatchSampler"  # What messages call the scenario that is made for a sampler.


def digest(*parts):
    """Returns 16 hexadecimal digits over texts, numbers and lists."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


class Source:
    """Where planners come from: a policy of a scenario, and the data.

    Args:
        scenario: A stepsim.Scenario.
        policy: The policy's name.
        lengths: [sample]
        uneven: "repeat", "drop" or "idle": what ranks with fewer batches than others do.
        says: What the check value of the policy is made of.
        is_made: The scenario was made here: messages name no line of it.
    """

    def __init__(self, scenario, policy, lengths, uneven, says, is_made):
        self.scenario, self.policy = scenario, policy
        self.lengths, self.uneven, self.is_made = lengths, uneven, is_made
        self.policy_id = digest(says, uneven if uneven == "idle" else uneven == "drop")  # As states have it.
        self.lengths_id = _core.lengths_id(lengths)
        self._whole = {}  # {ranks: planner of all samples}

    def __getstate__(self):
        return {**self.__dict__, "_whole": {}}

    def planner(self, ids, ranks):
        """Returns a _core.EpochPlanner over the samples `ids`, None: over all."""
        if ids is None and ranks in self._whole:
            return self._whole[ranks]
        lengths = self.lengths if ids is None else self.lengths[ids]
        try:
            planner = _core.EpochPlanner(self.scenario._given, self.policy, lengths, ranks,
                                         self.uneven)
        except InputError as error:
            if not self.is_made:
                raise
            message = re.sub(rf"^{MADE}(:\d+:\d+)?: error: ", "", str(error).split("\n")[0])
            raise InputError(message) from None
        if ids is None:
            self._whole = {ranks: planner}
        return planner


class Part:
    """A plan of an epoch, or of what is left of one.

    Attributes:
        planned: A _core.PlannedEpoch; None: nothing is left.
        ids: [index in the plan] samples; None: the plan is over all samples.
    """

    def __init__(self, planned, ids):
        self.planned, self.ids = planned, ids

    @property
    def steps(self):
        return 0 if self.planned is None else self.planned.steps

    def check_value(self):
        return "" if self.planned is None else self.planned.check_value()

    def visits(self, rank):
        """Returns [visit][3] sample, start and length, as they are planned for a rank."""
        if self.planned is None:
            return numpy.zeros((0, 3), dtype=numpy.int64)
        samples, starts, lengths = self.planned.visits(rank)
        samples = samples if self.ids is None else self.ids[samples]
        return numpy.column_stack([samples, starts, lengths])

    def left_after(self, steps):
        """Returns [sample] the ids of which something was not visited in the first steps."""
        if self.planned is None:
            return numpy.zeros(0, dtype=numpy.int64)
        left = self.planned.left_after(steps)
        return left if self.ids is None else numpy.unique(self.ids[left])


class RankEpoch:
    """An epoch as one rank goes through it.

    Attributes:
        part: The Part that the rank is in.
        steps: Its RankSteps.
        before: The steps of the epoch that other parts had.
        first: The step where this one begins.
        note: What a person must know of it, or None.
    """

    def __init__(self, part, steps, before, first, note):
        self.part, self.steps, self.before, self.first, self.note = part, steps, before, first, note


def _no_steps(whole):
    nothing = numpy.zeros(0, dtype=numpy.int64)
    return RankSteps(numpy.zeros(1, dtype=numpy.int64), nothing, None, None, whole, nothing,
                     nothing, numpy.zeros(0), numpy.zeros(0))


def _rank_steps(source, part, rank, cuts):
    if part.planned is None:
        return _no_steps(source.lengths)
    arrays = part.planned.rank(rank)
    samples = arrays["samples"] if part.ids is None else part.ids[arrays["samples"]]
    starts, lengths = arrays["starts"], arrays["lengths"]
    if len(starts) == 0:  # All samples are whole.
        starts = numpy.zeros_like(samples) if cuts else None
        lengths = source.lengths[samples] if cuts else None
    return RankSteps(arrays["offsets"], samples, starts, lengths, source.lengths,
                     arrays["padded_lengths"], arrays["useful_tokens"], arrays["loss_scales"],
                     arrays["all_units"])


def _part(source, ids, ranks, number):
    """Plans epoch `number` over the samples `ids`; None: over all."""
    if ids is None:
        return Part(source.planner(None, ranks).epoch(number), None)
    if len(ids) == 0:
        return Part(None, ids)
    if len(ids) < ranks:  # Some are repeated, so that each rank has one.
        ids = numpy.resize(ids, ranks)
    return Part(source.planner(ids, ranks).epoch(number), ids)


def _rest(source, ids, ranks, number):
    """The same of what is left of an epoch: (part, a text where samples are left out)."""
    try:
        return _part(source, ids, ranks, number), None
    except InputError as error:
        return Part(None, ids), (
            f"; the policy makes no step of them ({error}), so that the epoch ends here and they "
            "are left out"
        )


def planned_epoch(source, number, segments, rank, ranks):
    """Returns the RankEpoch of one rank.

    Args:
        segments: [(ranks, steps, check value)] What was done of it. The last one may go on.
    """
    cuts = source.planner(None, ranks).cuts
    part, before = None, 0
    ids, note = None, None
    for place, (size, steps, check) in enumerate(segments):
        if place == 0:
            part = _part(source, None, size, number)
        else:
            part, _ = _rest(source, ids, size, number)
        if part.check_value() != check or steps > part.steps:
            raise InputError(
                f"state: epoch {number} on {size} ranks is not planned as it was when the state "
                "was written: the profile, the scenario or the version of stepsim has changed"
            )
        if place + 1 == len(segments) and size == ranks:
            return RankEpoch(part, _rank_steps(source, part, rank, cuts), before, steps, None)
        ids = part.left_after(steps)
        before += steps
    if not segments:
        part = _part(source, None, ranks, number)
    else:
        part, left_out = _rest(source, ids, ranks, number)
        note = _resize_note(number, segments, ids, len(source.lengths), part, ranks, left_out, cuts)
    return RankEpoch(part, _rank_steps(source, part, rank, cuts), before, 0, note)


def _resize_note(number, segments, ids, samples, part, ranks, left_out, cuts):
    done = sum(steps for _, steps, _ in segments)
    if len(ids) == 0:
        return None
    text = (
        f"epoch {number} goes on with {ranks} in place of {segments[-1][0]} ranks after {done} "
        f"steps: the {len(ids)} of {samples} samples that no rank has visited are batched anew"
    )
    if left_out:
        return text + left_out
    text += (
        f", {part.steps} more steps. The policy leaves out or repeats at the end of them what it "
        "would at the end of an epoch. Batches and their order are not those of the interrupted "
        "run, and a step holds the samples of another number of ranks, which may ask for another "
        "learning rate"
    )
    if cuts:
        text += "; samples of which a part was visited are visited as a whole"
    if len(ids) < ranks:
        text += "; there are fewer samples than ranks, so some are visited once more"
    return text
