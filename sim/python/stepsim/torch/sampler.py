"""A batch sampler that batches by any policy of stepsim."""

import os
import threading
import time
import warnings
from typing import Any, Dict, Optional

import numpy

from .. import _core
from ..errors import InputError
from ..lengths import checked_lengths
from ..records import Profile
from ..scenario import Scenario
from .ahead import Ahead
from .epochs import MADE, Source, digest, planned_epoch
from .ranks import check_process, checked_rank, compare_ranks, gathered
from .steps import StepSampler, checked_epoch
from .visits import Visits, check_visits, differences, visits_of

_STATE_FORMAT = "stepsim-batch-sampler/1"


def _number(name, value, least=0):
    if isinstance(value, bool) or not hasattr(value, "__index__") or value < least:
        raise InputError(f"{name}: expected a whole number from {least}, not {value!r}")
    return value.__index__()


def _yes_or_no(name, value):
    if value not in (True, False):
        raise InputError(f"{name}: expected True or False, not {value!r}")
    return bool(value)


class BatchSampler(StepSampler):
    """A batch_sampler for DataLoader which batches by any policy of `stepsim policies`, for each
    rank of a DDP training.

        sampler = BatchSampler(lengths, "token_budget", max_tokens=4096)
        loader = DataLoader(dataset, batch_sampler=sampler, collate_fn=pad, num_workers=4)
        for epoch in range(sampler.epoch, epochs):
            sampler.set_epoch(epoch)
            for batch, step in sampler.steps(loader):
                loss = mean_loss(ddp(batch)) * step.loss_scale
                ...

    All ranks plan alike, without a word between them, and have the same number of steps. Epochs are
    planned in a thread: the first one from construction on, the next one while an epoch runs.

    Args:
        lengths: The tokens of each sample [sample], from 1: list, array, tensor, dataset column.
        policy: A kind of policy, "token_budget", with its parameters as keyword arguments; or a
            dict as a [[policy]] table of a scenario (scenarios/README.md).
        profile: The calibration of this machine, a stepsim.Profile, path or shipped name, for
            policies that plan by time.
        model: What is trained, where the profile does not say it: the name of a preset
            (stepsim.models()) or a dict as the [model] table.
        rank, world_size: None: those of torch.distributed where it is initialised, else RANK and
            WORLD_SIZE of the environment, else 0 and 1.
        seed, shuffle, drop_last: As DistributedSampler's.
        uneven: Where the policy forms unequal numbers of batches: "repeat", ranks with fewer start
            theirs again; "drop", the others leave their last ones out; or "idle", ranks with fewer
            take part with one sample that does not count, where a weighting is given: no sample is
            lost or comes twice for this.
        weighting: What the average over ranks shall be the mean over: "sample", "token", or "none":
            a mean of the ranks' means, in which samples of a small batch weigh more. With the
            others multiply each rank's mean loss by its step's loss_scale, which is
            ranks * own / all, of samples or useful tokens in the step: DDP averages gradients, so
            that the sum of loss_scale * mean over ranks, over the number of ranks, is the mean of
            all.
        parameters: Of the policy, and the other keys of its table (pad_to_multiple_of, attention).

    A policy that cuts samples (`packed_bfd_split`, …) hands out Piece(sample, start, length) in
    place of ids; the dataset's __getitem__ must take one and return those tokens.

    Attributes:
        rank, world_size, epoch: Numbers. policy: The policy's name. seed: A number.
        plans_by: "time" (calibrated costs), "tokens" (padded ones, in place of unknown costs), or
            None: the policy does not weigh batches.
        cuts: Whether Piece objects are handed out.
        wait_seconds: What the process has waited for plans so far, in seconds.
        check_value: A short text over lengths, policy, seed, world_size and version.

    Raises InputError: lengths are no whole numbers from 1, the policy or a parameter is unknown or
    wrong, the rank is not one of world_size, the profile has no costs for the model.
    """

    def __init__(self, lengths, policy, *, profile=None, model=None, rank=None, world_size=None,
                 seed=0, shuffle=True, drop_last=False, uneven="repeat", weighting=None,
                 **parameters):
        table = _policy_table(policy, weighting, parameters)
        sampler = {
            "kind": "distributed",
            "shuffle": _yes_or_no("shuffle", shuffle),
            "seed": _number("seed", seed),
            "drop_last": _yes_or_no("drop_last", drop_last),
        }
        if profile is not None and not isinstance(profile, Profile):
            profile = Profile(profile)
        model = _model_table(model, profile)
        document = {
            "scenario": {"name": MADE, "steps": 1},
            "cluster": {"ranks": 1},
            "model": model,
            "data": {"samples": 1, "lengths": {"constant": 1}, "sampler": sampler},
            "policy": [table],
        }
        if profile is not None:
            document["cluster"]["profile"] = os.path.abspath(profile.file)
        try:
            scenario = Scenario(document, file=MADE)
            says = [Scenario({"sampler": sampler, "policy": table, "model": model}).text,
                    None if profile is None else profile.id]
        except (TypeError, ValueError) as error:
            raise InputError(f"policy '{table['name']}': {error}") from None
        uneven = _checked_uneven(uneven)
        lengths = checked_lengths(lengths).copy()  # The caller may change its own.
        source = Source(scenario, table["name"], lengths, uneven, says, True)
        self._begin(source, rank, world_size)

    @classmethod
    def from_scenario(cls, scenario, policy, lengths=None, *, rank=None, world_size=None,
                      uneven="repeat") -> "BatchSampler":
        """Makes a sampler of a policy of a scenario, with its sampler, model and profile.

        Args:
            scenario: A stepsim.Scenario, or what its constructor takes.
            policy: The policy's name in it.
            lengths: The tokens of each sample; None: the scenario's own.
            rank, world_size, uneven: As the constructor's; the scenario's number of ranks does
                not count.
        """
        if not isinstance(scenario, Scenario):
            scenario = Scenario(scenario)
        if lengths is None:
            lengths = _core.data_lengths(scenario._given, policy)
        sampler = cls.__new__(cls)
        lengths = checked_lengths(lengths).copy()  # The caller may change its own.
        source = Source(scenario, policy, lengths, _checked_uneven(uneven),
                        [scenario.text, scenario.settings, policy], False)
        sampler._begin(source, rank, world_size)
        return sampler

    def _begin(self, source, rank, world_size):
        super().__init__()
        self._is_given = rank is not None and world_size is not None
        self.rank, self.world_size = checked_rank(rank, world_size)
        self._source = source
        planner = source.planner(None, self.world_size)
        self.policy, self.seed, self.cuts = planner.policy, planner.seed, planner.cuts
        self.plans_by = "time" if planner.by_time else "tokens" if planner.by_cost else None
        self.wait_seconds = 0.0
        self._counts = {}  # {epoch: steps of all of it}
        self._segments = []  # What other numbers of ranks did of the epoch.
        self._loaded = []  # The segments of a state that the epoch goes on from.
        self._turn, self._process = threading.Lock(), os.getpid()
        self._ahead = {}  # {epoch: Ahead}
        self._current = None  # The RankEpoch that is at hand.
        self._plan(self._epoch)

    def __getstate__(self):
        # Threads and planners stay behind. An iteration that runs is not part of a copy.
        return {**self.__dict__, "_turn": None, "_ahead": {}, "_current": None, "_run": None}

    def __setstate__(self, state):
        self.__dict__.update(state)
        self._turn, self._process = threading.Lock(), os.getpid()

    def __repr__(self):
        return (f"<stepsim BatchSampler {self.policy}: {len(self._source.lengths)} samples, rank "
                f"{self.rank} of {self.world_size}, epoch {self._epoch}>")

    # ---- planning -------------------------------------------------------------------------------

    def _notice_fork(self):
        """A forked process has none of the threads, and a lock that one of them may have held."""
        if self._process != os.getpid():
            self._turn, self._process, self._ahead = threading.Lock(), os.getpid(), {}

    def _plan(self, epoch):
        """Begins to plan an epoch, unless that has begun."""
        self._notice_fork()
        if epoch not in self._ahead:
            source, rank, ranks = self._source, self.rank, self.world_size
            segments = self._loaded if epoch == self._epoch else []
            self._ahead[epoch] = Ahead(
                lambda: planned_epoch(source, epoch, segments, rank, ranks), self._turn
            )

    def _at_hand(self):
        """Returns the RankEpoch of the current epoch, and waits until it is planned."""
        if self._current is None:
            self._plan(self._epoch)
            begun = time.perf_counter()
            ahead = self._ahead[self._epoch]
            waits = not ahead.is_done
            try:
                self._current = ahead.get()
            finally:
                if waits:
                    self.wait_seconds += time.perf_counter() - begun
                del self._ahead[self._epoch]
        return self._current

    def _steps(self):
        return self._at_hand().steps

    def _before(self):
        return sum(steps for _, steps, _ in self._segments)

    def _enter(self):
        self._segments, self._loaded, self._current = [], [], None
        self._ahead = {epoch: job for epoch, job in self._ahead.items() if epoch == self._epoch}
        self._plan(self._epoch)

    def _check_process(self):
        if not self._is_given:
            check_process(self.rank, self.world_size)

    def __iter__(self):
        batches = super().__iter__()
        self._ahead = {epoch: job for epoch, job in self._ahead.items() if epoch > self._epoch}
        self._plan(self._epoch + 1)
        return batches

    def steps_of(self, epoch: int) -> int:
        """Returns the steps of a whole epoch, the same on every rank; it is planned for that, where
        that is not known yet. A schedule needs their sum: epochs differ with most policies.
        """
        epoch = checked_epoch(epoch)
        if epoch not in self._counts:
            self._notice_fork()
            with self._turn:
                planner = self._source.planner(None, self.world_size)
                self._counts[epoch] = planner.epoch(epoch).steps
        return self._counts[epoch]

    def accumulated_scales(self, batches: int) -> numpy.ndarray:
        """Returns [step] loss_scales for a loop that adds up the gradients of so many batches before
        each optimizer step: the average over ranks of the sums is then the mean over all of them. A
        loop that divides each loss by `batches` multiplies by it, too.

        Raises InputError: `batches` is no whole number from 1.
        """
        if isinstance(batches, bool) or not hasattr(batches, "__index__") or batches < 1:
            raise InputError(f"batches: expected a whole number from 1, not {batches!r}")
        scales, units = self.loss_scales, self._at_hand().steps.all_units[self._first :]
        group = numpy.arange(len(units)) // batches
        whole = numpy.bincount(group, units)[group] if len(units) else units
        # Without a weighting the loss of a step is the mean of its batches' means.
        equal = 1.0 / numpy.bincount(group)[group] if len(units) else units
        return scales * numpy.where(whole > 0, units / numpy.maximum(whole, 1), equal)

    # ---- state ----------------------------------------------------------------------------------

    def state_dict(self, steps: Optional[int] = None) -> Dict[str, Any]:
        """Returns where the loop stands, a dict of texts and numbers, the same on all ranks: one
        rank may save it for all.

        Args:
            steps: The batches that the loop has used since it began to iterate, for loops that do
                not go through steps(): batch_idx + 1 of a loop that enumerates the loader.

        Raises InputError: the loop iterates over the loader by itself, and `steps` is not given. A
        DataLoader with workers draws batches ahead, so that the number drawn is not the number
        used.
        """
        done = self._done(steps)
        segments = [list(segment) for segment in self._segments]
        if done > 0:
            segments.append([self.world_size, done, self._at_hand().part.check_value()])
        return {
            "format": _STATE_FORMAT,
            "stepsim": _core.__version__,
            "lengths": self._source.lengths_id,
            "policy": self._source.policy_id,
            "seed": self.seed,
            "epoch": self._epoch,
            "segments": segments,
        }

    def load_state_dict(self, state: Dict[str, Any]) -> None:
        """Goes on where a state was taken: the next iteration hands out what the epoch has left.

        On another number of ranks the samples that no rank has visited are batched anew over these
        ranks, and a warning says what that changes. Raises InputError: the state is of other
        lengths, another policy or seed, or its epoch is no longer planned as it was.
        """
        epoch, segments = self._checked_state(state)
        ranks = self.world_size
        self._notice_fork()
        with self._turn:
            current = planned_epoch(self._source, epoch, segments, self.rank, ranks)
        goes_on = bool(segments) and segments[-1][0] == ranks
        self._epoch, self._first, self._run = epoch, current.first, None
        self._segments = segments[:-1] if goes_on else segments
        self._loaded = segments
        self._current = current
        self._ahead = {}
        if current.note:
            warnings.warn(current.note, stacklevel=2)

    def _checked_state(self, state):
        if not isinstance(state, dict) or state.get("format") != _STATE_FORMAT:
            raise InputError("state: this is no state of a stepsim BatchSampler")
        own = {"lengths": self._source.lengths_id, "policy": self._source.policy_id,
               "seed": self.seed}
        names = {"lengths": "other lengths of samples", "seed": "another seed",
                 "policy": "another policy, or another parameter, sampler, model or profile"}
        try:
            wrong = [names[key] for key, value in own.items() if state[key] != value]
            epoch = checked_epoch(state["epoch"])
            segments = [(checked_rank(0, _number("ranks", size, 1))[1], _number("steps", steps, 1),
                         str(check))
                        for size, steps, check in state["segments"]]
        except (KeyError, TypeError, ValueError) as error:
            if isinstance(error, InputError):
                raise InputError(f"state: {error}") from None
            raise InputError(f"state: it is damaged ({error!r})") from None
        if wrong:
            raise InputError("state: it was taken with " + ", ".join(wrong))
        return epoch, segments

    # ---- checks ---------------------------------------------------------------------------------

    @property
    def check_value(self) -> str:
        return digest(self._source.lengths_id, self._source.policy_id, self.seed, self.world_size,
                       _core.__version__)

    def verify(self, group=None) -> Visits:
        """Compares the ranks over torch.distributed, and counts every sample of the epoch in the
        batches that they hand out; every rank has to call it. Constructing and iterating never
        communicate.

        Returns how often the ranks visit the samples, the same on all ranks.

        Raises InputError on all ranks, naming the rank that differs and in what: lengths, policy,
        seed, world size, version, or the planned batches; or naming the samples that are missing
        from the ranks' batches, or are in them more often than was planned.
        """
        facts = {"rank": self.rank, "world size": self.world_size,
                 "stepsim version": _core.__version__,
                 "number of samples": len(self._source.lengths),
                 "lengths": self._source.lengths_id, "policy": self._source.policy_id,
                 "seed": self.seed, "epoch": self._epoch}
        found = None
        try:
            part, steps = self._at_hand().part, self._at_hand().steps
            facts["planned batches"] = part.check_value()
            visited = steps.visits()
            found = differences(part.visits(self.rank)[:, : visited.shape[1]], visited)
        except Exception as error:  # pylint: disable=broad-except  (all ranks have to hear of it)
            facts["error"] = str(error)
        ranks = gathered((facts, found), group)
        compare_ranks([own for own, _ in ranks])
        check_visits([own for _, own in ranks])
        planned = numpy.concatenate([part.visits(rank) for rank in range(self.world_size)])
        lengths = self._source.lengths
        ids = numpy.arange(len(lengths)) if part.ids is None else numpy.unique(part.ids)
        return visits_of(planned, ids, lengths)


def _checked_uneven(uneven):
    if uneven not in ("repeat", "drop", "idle"):
        raise InputError(f"uneven: expected \"repeat\", \"drop\" or \"idle\", not {uneven!r}")
    return uneven


def _policy_table(policy, weighting, parameters):
    """Returns the [[policy]] table."""
    if isinstance(policy, dict):
        table = dict(policy)
        if "kind" not in table:
            raise InputError('policy: a dict needs its "kind"')
    elif isinstance(policy, str):
        table = {"kind": policy}
    else:
        raise InputError(
            "policy: expected the name of a kind or a dict as a [[policy]] table, not a "
            f"{type(policy).__name__}; from_scenario() takes policies of a scenario"
        )
    for name, value in parameters.items():
        if value is not None:
            table[name] = value
    if weighting is not None:
        table["weighting"] = weighting
    if table["kind"] == "plan":
        raise InputError(
            "policy 'plan' plays the batches of a file: stepsim.torch.PlanSampler does that"
        )
    if "lengths" in table:
        raise InputError("policy: lengths are the sampler's first argument")
    table.setdefault("name", table["kind"])
    return table


def _model_table(model, profile):
    """Returns the [model] table."""
    if model is None and profile is not None and not profile.has_recorded_model:
        raise InputError(
            f"profile {profile.name} prices any model: say which with model= (stepsim.models())"
        )
    if model is None:
        # Without costs nothing looks at the model.
        return {"kind": "recorded"} if profile is not None else {
            "kind": "blocks", "layers": 1, "block_elements": 1}
    if isinstance(model, dict):
        return dict(model)
    if isinstance(model, str):
        return {"preset": model}
    raise InputError(
        f"model: expected a preset's name or a dict as [model], not a {type(model).__name__}"
    )
