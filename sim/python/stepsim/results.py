"""What the questions return: typed fields, columns, and every form that the programs write."""

import csv
import dataclasses
import functools
import html
import io
import json
import math
import os
from typing import Any, Dict, List, Optional, Tuple

from . import _core, plots
from .errors import InputError
from .table import Table

Interval = Tuple[float, float]


def _column(texts):
    """One column of a CSV file as an array: whole numbers, real ones (NaN where empty) or texts."""
    import numpy

    filled = [text for text in texts if text != ""]
    for kind in (int, float):
        try:
            numbers = [kind(text) for text in filled]
        except ValueError:
            continue
        if len(filled) == len(texts):
            return numpy.array(numbers, dtype="int64" if kind is int else "float64")
        if filled:
            return numpy.array([float(text) if text else float("nan") for text in texts])
    return numpy.array(texts, dtype=str)


class Result(Table):
    """What a command of stepsim found.

    str(result) is the report that the command prints, which a notebook shows. plot() draws some kinds, show() shows the page.

    Attributes:
        ok: False where the command line's exit status is 1: the answer is no (out of memory, an
            error beyond the bound, no solution).
    """

    def __init__(self, answer):
        self._answer = answer
        self.ok = answer.status == 0

    @functools.cached_property
    def data(self) -> Any:
        """The JSON of the result, read: a dict, or a list for a Catalog."""
        return json.loads(self.to_json())

    @functools.cached_property
    def columns(self) -> Dict[str, Any]:
        """The result as a table: the columns of its CSV by name, each a NumPy array [row]."""
        rows = list(csv.reader(io.StringIO(self.to_csv())))
        return {name: _column([row[i] for row in rows[1:]]) for i, name in enumerate(rows[0])}

    def to_json(self) -> str:
        """Returns the text that the command writes with --json, byte for byte."""
        return self._answer.json()

    def to_csv(self) -> str:
        """Returns the text that the command writes with --csv."""
        return self._answer.csv()

    def to_html(self) -> str:
        """Returns the page that the command writes with --html: one file that needs no network.

        Raises:
            InputError: This kind of result has no page.
            MachineError: stepsim was built without pages.
        """
        return self._answer.html()

    def page(self, path):
        """Writes the page to a file. Raises as to_html(), and MachineError."""
        _core.write_text(os.fspath(path), self.to_html())

    def report(self, columns: int = 0) -> str:
        """Returns what the command prints, for a terminal of so many columns (0: any width)."""
        return self._answer.text(columns)

    def __str__(self):
        return self.report().rstrip("\n")

    def _brief(self) -> str:
        """The answer in one line."""
        if isinstance(self.data, dict) and self.data.get("headline"):
            return self.data["headline"]
        return next((line for line in str(self).splitlines() if line), "")

    def __repr__(self):
        return f"<stepsim.{type(self).__name__}{'' if self.ok else ', not ok'}: {self._brief()}>"

    def plot(self):
        """Returns a picture of the result, a plots.Plot: a few KB, which a notebook shows.

        Raises:
            InputError: This kind of result has none; show() shows the page of those that have one.
        """
        raise InputError(f"a {type(self).__name__} has no plot; show() shows its page, where there is one")

    def show(self):
        """Returns the page in a frame, for a notebook; some 0.6 MB of it. Raises as to_html()."""
        return _Frame(self.to_html())

    def _repr_html_(self):
        """The report as text, and what a notebook would else print in a red box."""
        warnings = "".join(f"warning: {warning}\n" for warning in self._answer.warnings)
        more = ""
        if self._answer.has("html"):
            plots = "plot() draws it; " if type(self).plot is not Result.plot else ""
            more = f'<div style="opacity:0.7;font-size:90%">{plots}show() shows it as a page, page("page.html") writes it</div>'
        return f"<pre>{html.escape(str(self) + chr(10) + warnings)}</pre>{more}"


class _Frame:
    """A page in a notebook."""

    def __init__(self, page):
        self._page = html.escape(page, quote=True)

    def _repr_html_(self):
        return (
            f'<iframe srcdoc="{self._page}" sandbox="allow-scripts allow-popups" '
            'style="width:100%;height:640px;box-sizing:border-box;border:1px solid #ccc">'
            "</iframe>"
        )


def _typed(kind, source, **given):
    """Makes a dataclass of the members of a dict that it has fields for."""
    fields = {field.name for field in dataclasses.fields(kind)}
    return kind(**{name: source[name] for name in fields if name in source}, **given)


@dataclasses.dataclass(frozen=True, repr=False)
class Prediction:
    """One policy's predicted steps: means over the steady steps. Times are in milliseconds."""

    policy: str
    step_ms: float  #: Mean step time.
    interval90_ms: Interval  #: 90 % interval of the mean.
    step_ms_p50: float
    step_ms_p95: float
    step_ms_p99: float
    step_ms_max: float  #: The longest step of a run, mean over the runs; p99 of all can be above it.
    useful_tokens_per_s: float  #: Of all ranks, without padding.
    padded_tokens_per_s: float
    samples_per_s: float
    useful_tokens_per_step: float
    padded_tokens_per_step: float
    padding_ratio: float  #: 1 - useful / padded tokens.
    rank_token_spread: float  #: Mean of the difference between most and fewest tokens of a rank.
    data_ms: float
    forward_ms: float
    backward_ms: float
    optimizer_ms: float
    communication_ms: float  #: Sum of the collectives of a step.
    exposed_communication_ms: float  #: Idle after the backward, waiting for slower ranks included.
    exposed_transfer_ms: float  #: Of that: while the collectives themselves run.
    waiting_for_ranks_ms: float  #: Of that: until the last rank arrives.
    overlap_fraction: float
    scaling_efficiency: float
    peak_memory_mib: float
    warnings: List[str]
    out_of_memory: Optional[Dict[str, Any]]  #: Where not all batches of the first epoch fit: the step and rank that need most, with their bytes.
    training: Optional[Dict[str, Any]]  #: What the policy does to one epoch.
    _steps: List[Dict[str, Any]] = dataclasses.field(repr=False, compare=False)

    @functools.cached_property
    def steps(self) -> Dict[str, Any]:
        """Every step and rank of the run without noise: columns by name, each an array
        [steps * ranks], by step and then rank."""
        import numpy

        names = self._steps[0] if self._steps else {}
        return {name: numpy.array([row[name] for row in self._steps]) for name in names}

    def __repr__(self):
        low, high = self.interval90_ms
        return (f"<stepsim.results.Prediction {self.policy}: {self.step_ms:.3f} ms a step "
                f"({low:.3f} to {high:.3f}), {self.useful_tokens_per_s:.0f} useful tokens/s>")

    @classmethod
    def _of(cls, source):
        summary = source["summary"]
        step = summary["step_time_ms"]
        return _typed(
            cls,
            summary,
            policy=source["policy"],
            step_ms=step["mean"],
            interval90_ms=tuple(step["interval90"]),
            step_ms_p50=step["p50"],
            step_ms_p95=step["p95"],
            step_ms_p99=step["p99"],
            step_ms_max=step["max"],
            warnings=source.get("warnings", []),
            out_of_memory=source.get("out_of_memory"),
            training=source.get("training"),
            _steps=source.get("steps", []),
        )


class Run(Result):
    """One policy in detail."""

    def _brief(self):
        one = self.prediction
        return (f"{one.policy}, {one.step_ms:.3f} ms a step, "
                f"{one.useful_tokens_per_s:.0f} useful tokens/s")

    @functools.cached_property
    def prediction(self) -> Prediction:
        return Prediction._of(self.data["predictions"][0])


class Comparison(Result):
    """All policies of a scenario side by side."""

    def _brief(self):
        best = f"best is {self.best}" if self.best else "none is best"
        return f"{best} of {', '.join(self.predictions)}"

    def plot(self):
        """Useful tokens a second by policy, the fastest first, with 90 % intervals."""
        def speeds(one):
            low, high = one.interval90_ms
            tokens = one.useful_tokens_per_step * 1e3
            return one.policy, one.useful_tokens_per_s, tokens / high, tokens / low

        ranked = sorted(self.predictions.values(), key=lambda one: -one.useful_tokens_per_s)
        return plots.bars("useful tokens a second, with 90 % intervals", [speeds(one) for one in ranked])

    @functools.cached_property
    def predictions(self) -> Dict[str, Prediction]:
        """The predictions by policy, in the order of the scenario."""
        return {one["policy"]: Prediction._of(one) for one in self.data["predictions"]}

    @property
    def best(self) -> Optional[str]:
        """The recommended policy; None where none can be."""
        return self.data["recommendation"].get("policy")

    @property
    def gain(self) -> Optional[float]:
        """What the recommended policy gains over the next one, as a fraction of its tokens/s."""
        return self.data["recommendation"].get("gain")

    @property
    def gain_interval90(self) -> Optional[Interval]:
        interval = self.data["recommendation"].get("gain_interval90")
        return (interval[0], interval[1]) if interval else None

    @property
    def choices(self) -> List[Dict[str, Any]]:
        """The policies that can be chosen, the fastest first, with how likely each is to be it."""
        return self.data["recommendation"].get("choices", [])


@dataclasses.dataclass(frozen=True)
class SweepPoint:
    """One point of a sweep. Times are in milliseconds."""

    values: Dict[str, Any]  #: The swept keys and their values: numbers in bytes or seconds.
    place: List[int]  #: Which value of each key, by number.
    step_ms: float = math.nan
    interval90_ms: Interval = (math.nan, math.nan)
    gain_of_best: float = math.nan  #: What the best point gains over this one, as a fraction.
    useful_tokens_per_s: float = math.nan
    buckets: int = 0
    communication_ms: float = math.nan
    exposed_communication_ms: float = math.nan
    exposed_transfer_ms: float = math.nan
    waiting_for_ranks_ms: float = math.nan
    overlap_fraction: float = math.nan
    peak_memory_mib: float = math.nan
    op_source: str = ""
    collective_source: str = ""
    out_of_memory: str = ""  #: Empty: it fits.
    remark: str = ""
    refused: str = ""  #: Why the point could not be predicted: it has no figures then. Else empty.
    warnings: List[str] = dataclasses.field(default_factory=list)


class Sweep(Result):
    """A scenario at every value of one or more keys."""

    @functools.cached_property
    def points(self) -> List[SweepPoint]:
        return [
            _typed(SweepPoint, one, interval90_ms=tuple(one.get("interval90", (math.nan, math.nan))))
            for one in self.data["points"]
        ]

    def plot(self):
        """The step time over the swept key, with its 90 % interval.

        Raises:
            InputError: Several keys were swept, or fewer than two points have a time.
        """
        points = [one for one in self.points if not one.refused]
        keys = list(points[0].values) if points else []
        if len(keys) != 1 or len(points) < 2:
            raise InputError(f"a plot takes two points of one key at least, these are {len(points)} of {len(keys)} keys; "
                             "show() shows the page")
        names = [self._name(one, keys[0]) for one in points]
        return plots.curve("step ms, with 90 % intervals", keys[0], names,
                           [(one.step_ms, *one.interval90_ms) for one in points])

    @staticmethod
    def _name(point, key):
        value = point.values[key]
        if key.endswith(("bucket_cap", "_cap")) and isinstance(value, (int, float)):
            return f"{value / 2**20:g} MiB"
        return f"{value:g}" if isinstance(value, float) else str(value)

    @property
    def best(self) -> SweepPoint:
        return self.points[self.data["best"]]

    @property
    def headline(self) -> str:
        """The answer in one sentence."""
        return self.data["headline"]


@dataclasses.dataclass(frozen=True)
class Setting:
    """One finalist of a search. Times are in milliseconds."""

    policy: str
    set: List[str]  #: "key=value", as Scenario.set() takes them one by one.
    step_ms: float
    useful_tokens_per_s: float
    peak_memory_mib: float
    order_change: float  #: Mean distance from the sampler's order, as a share of the epoch.
    tokens_left_out: float  #: Tokens in no batch of an epoch, as a share of all.
    too_close_to_tell: bool  #: Nobody could tell it from the best one.


class Tuning(Result):
    """The best setting of a space, and how much better another one could be."""

    @functools.cached_property
    def finalists(self) -> List[Setting]:
        return [
            _typed(Setting, {**one["with_noise"], **one}) for one in self.data["finalists"]
        ]

    @property
    def best(self) -> Optional[Setting]:
        """The fastest setting; None where none fits into memory."""
        return next(iter(self.finalists), None)

    @property
    def certificate(self) -> float:
        """Nothing else in the space is faster by more, as a fraction; see also `data["open"]`."""
        return self.data["certificate"]

    @property
    def headline(self) -> str:
        """The answer in one sentence."""
        return self.data["headline"]


@dataclasses.dataclass(frozen=True)
class Saving:
    """What one change to the step would save."""

    change: str
    step_ms: Optional[float]  #: None: the profile cannot price it.
    saves_ms: Optional[float]
    share: Optional[float]  #: Of the step.
    rank: Optional[int] = None


class Blame(Result):
    """What the step is spent on, and what would save most."""

    def _brief(self):
        known = [one for one in self.savings if one.saves_ms is not None]
        most = max(known, key=lambda one: one.saves_ms, default=None)
        saving = f", {most.change} would save {most.saves_ms:.3f} ms" if most else ""
        return f"{self.step_ms:.3f} ms a step{saving}"

    @functools.cached_property
    def savings(self) -> List[Saving]:
        blank = {"step_ms": None, "saves_ms": None, "share": None}
        return [_typed(Saving, {**blank, **one}) for one in self.data["changes"]]

    @property
    def step_ms(self) -> float:
        return self.data["step_ms"]


class Solution(Result):
    """The value of a key that makes a measured step time."""

    @property
    def found(self) -> bool:
        return self.data["found"]

    @property
    def value(self) -> Optional[str]:
        """The value as Scenario.set() takes it; None where there is none."""
        return self.data.get("value")

    @property
    def step_ms(self) -> Optional[float]:
        return self.data.get("step_ms")


class Ladder(Result):
    """The lengths to pad batches to, where new shapes cost something."""

    def best(self, policy: Optional[str] = None) -> Dict[str, Any]:
        """Returns the best padding of a policy, or of the first one."""
        policies = self.data["policies"]
        for one in policies:
            if policy in (None, one["policy"]):
                return one["rows"][one["best"]]
        raise KeyError(f"no policy '{policy}'; there are {[one['policy'] for one in policies]}")


class Buckets(Result):
    """The gradient buckets that DDP makes."""

    @property
    def rebuilt_bytes(self) -> List[int]:
        """The bytes of each bucket in launch order, from `data["rebuilt_from_iteration"]` on."""
        return self.data["rebuilt_bytes"]


class BestBuckets(Result):
    """DDP's default of 25 MiB, the best single cap and the best list of limits."""

    @property
    def best_cap(self) -> Dict[str, Any]:
        """The best single cap: "python" (arguments of DistributedDataParallel), "toml",
        "limits_bytes", "buckets", "step_ms", …"""
        return self.data["best_cap"]

    @property
    def best_list(self) -> Dict[str, Any]:
        """The best list of limits, with the members of best_cap."""
        return self.data["best_list"]


class Lengths(Result):
    """What the sample lengths look like."""


class Replay(Result):
    """A recorded program under the simulator's rules."""


class Validation(Result):
    """Predicted against measured."""

    def _brief(self):
        return self.data.get("verdict") or super()._brief()

    @property
    def verdict(self) -> str:
        return self.data["verdict"]

    def to_markdown(self) -> str:
        """Returns the text that the command writes with --report."""
        return self._answer.markdown()


@dataclasses.dataclass(frozen=True)
class DiffCause:
    """A part of the step that moved beyond noise. Times are in milliseconds."""

    part: str  #: "data", "forward", "backward", "optimizer", …
    ranks: List[int]  #: Empty: all of them.
    change_ms: float
    change: float  #: In parts of what the part took before.
    interval_ms: Interval  #: As wide as it takes for all parts and ranks to hold together.
    waiting_ranks: List[int]  #: Those that wait longer for these.
    by_processor: bool  #: Times are the processor's: the clock's are too noisy to tell.
    processor_idle: bool  #: The clock's time grew, the processor's did not.
    words: str


class Diff(Result):
    """What moved between two records of a training.

    The table, `columns`, has a row for each part and rank.
    """

    @property
    def verdict(self) -> str:
        """"faster", "slower" or "no difference"."""
        return self.data["verdict"]

    @property
    def change(self) -> float:
        """How much longer a step takes at equal batches, as a fraction; where no step of one side has its like on the
        other, how many more useful tokens a second there are."""
        return (self.data["step"] or self.data["useful_tokens_per_s"])["change"]

    @property
    def interval(self) -> Interval:
        """That is wrong in 1 of 1000 comparisons."""
        return tuple((self.data["step"] or self.data["useful_tokens_per_s"])["interval"])

    @functools.cached_property
    def causes(self) -> List[DiffCause]:
        """The largest first; empty where no part moved beyond noise."""
        return [_typed(DiffCause, one) for one in self.data["causes"]]


@dataclasses.dataclass(frozen=True)
class AdviceOption:
    """One way to train. Times are in milliseconds."""

    #: "now", "other bucket cap", "other sharding", "other batches", "rival batches" or "both".
    change: str
    policy: str
    bucket_cap: int  #: In bytes.
    step_ms: float
    interval90_ms: Interval
    data_ms: float
    forward_ms: float
    backward_ms: float
    exposed_communication_ms: float  #: Idle after the backward, waiting for slower ranks included.
    waiting_for_ranks_ms: float  #: Of that: idle because a slower rank has not arrived.
    optimizer_ms: float
    useful_tokens_per_s: float
    gain: float  #: Of useful tokens/s over what runs now, as a fraction.
    gain_interval90: Interval
    verdict: str  #: "now", "faster", "likely faster", "slower" or "too close to tell".
    tflops_per_rank: Optional[float] = None  #: The model's, where the record or the caller says enough.
    mfu: Optional[float] = None  #: Of the card's peak, a fraction.
    setting: str = ""  #: What is set beside the batches: "25 MiB", "list of 3 caps", "root freed, too".


class Advice(Result):
    """From the records of a training to an answer."""

    def _brief(self):
        return self.lines[0]

    @functools.cached_property
    def options(self) -> List[AdviceOption]:
        """The table of the answer: what runs now first, then what differs from it."""
        return [
            _typed(
                AdviceOption,
                {**one, "interval90_ms": tuple(one["interval90_ms"]),
                 "gain_interval90": tuple(one["gain_interval90"])},
            )
            for one in self.data["options"]
        ]

    @property
    def lines(self) -> List[str]:
        """The answer in sentences."""
        return self.data["answer"]

    @property
    def policy(self) -> Optional[str]:
        """The recommended batching policy."""
        return self.data["recommendation"].get("policy")

    @property
    def bucket_cap(self) -> Dict[str, Any]:
        """{"own", "best": bytes, "gain": a fraction, "gain_interval90", "certain", "caps"}; empty under
        fully_shard, which has no buckets."""
        return self.data.get("bucket_cap", {})

    @property
    def shardings(self) -> List[Dict[str, Any]]:
        """Of a training under fully_shard: {"name", "step_time_ms", "peak_memory_mib", "fits", "gain",
        "gain_interval90", "certain"}, or "not_priced" with the reason; else empty."""
        return self.data.get("shardings", [])


class Catalog(Result):
    """A list of what there is: policies, models, profiles."""

    def _brief(self):
        return ", ".join(self.names)

    @property
    def names(self) -> List[str]:
        return [one.get("kind") or one["name"] for one in self.data]

    def __iter__(self):
        return iter(self.data)

    def __len__(self):
        return len(self.data)
