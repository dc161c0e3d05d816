"""What many rows say together."""

import dataclasses
import math
import statistics

from row import LEVELS, NAIVE

ENOUGH = 10  # Rows of which a group needs as many before its coverage says anything.


@dataclasses.dataclass
class Score:
    """Errors as fractions; None where no row has the figure."""

    rows: int
    mean: float
    median: float
    worst: float  # Signed, that of the largest size.
    bias: float  # Of times: above 0 is too slow.
    covered: float | None  # Of those with an interval.
    with_interval: int
    half_width: float | None  # Median, over the prediction.
    naive: dict  # {model: (rows, its mean error, ours on the same rows)}


def sizes(rows, model="predicted"):
    return [abs(row.error(model)) for row in rows]


def score(rows):
    errors = [row.error() for row in rows]
    judged = [row for row in rows if row.inside is not None]
    widths = [(row.high - row.low) / 2 / row.predicted for row in rows if row.low is not None]
    naive = {}
    for model in NAIVE:
        known = [row for row in rows if row.error(model) is not None]
        if known:
            naive[model] = (len(known), statistics.fmean(sizes(known, model)), statistics.fmean(sizes(known)))
    return Score(
        len(rows),
        statistics.fmean(map(abs, errors)),
        statistics.median(map(abs, errors)),
        max(errors, key=abs),
        statistics.fmean(row.bias for row in rows),
        statistics.fmean(row.inside for row in judged) if judged else None,
        len(judged),
        statistics.median(widths) if widths else None,
        naive,
    )


def by(rows, name):
    """{value: rows} in the order of first appearance."""
    found = {}
    for row in rows:
        found.setdefault(getattr(row, name), []).append(row)
    return found


def level(rows):
    """Median of measured over predicted."""
    return math.exp(statistics.median(math.log(row.measured / row.predicted) for row in rows))


def levels(rows):
    """{job: level} of the rows whose interval has ends."""
    return {job: level(own) for job, own in by([row for row in rows if row.low is not None], "job").items()}


def held_but_for_level(rows):
    """(share, number) of rows that would lie in their interval if that were moved by the level of the other
    rows of their job: what is left is the scatter within a job. None where no job has several with ends."""
    held = []
    for own in by([row for row in rows if row.low is not None], "job").values():
        for i, row in enumerate(own):
            if others := own[:i] + own[i + 1 :]:
                held.append(row.low * level(others) <= row.measured <= row.high * level(others))
    return (statistics.fmean(held), len(held)) if held else None


def by_jobs(rows, model):
    """" (points +- standard error, better in 1 of 2 jobs)": how much more our jobs' mean errors are."""
    more = []
    for own in by([row for row in rows if row.error(model) is not None], "job").values():
        more.append(statistics.fmean(abs(row.error()) - abs(row.error(model)) for row in own))
    if len(more) < 2:
        return ""
    error = statistics.stdev(more) / math.sqrt(len(more))
    better = sum(one < 0 for one in more)
    return f" ({100 * statistics.fmean(more):+.1f} +- {100 * error:.1f} points by jobs; ours better in {better} of {len(more)})"


def calibration(rows):
    """{level: the share of rows in the interval of that level} and the number of rows, of those that
    have all levels."""
    known = [row for row in rows if row.has_levels]
    held = {
        level: statistics.fmean(row.interval(level)[0] <= row.measured <= row.interval(level)[1] for row in known)
        for level in LEVELS
        if known
    }
    return held, len(known)


def worst(rows, number, apart=True):
    """The rows of the largest errors; `apart`: one of each job."""
    chosen, jobs = [], set()
    for row in sorted(rows, key=lambda one: -abs(one.error())):
        if not apart or row.job not in jobs:
            chosen.append(row)
            jobs.add(row.job)
        if len(chosen) == number:
            break
    return chosen
