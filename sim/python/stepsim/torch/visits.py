"""Which samples the ranks visit, counted from the batches that they hand out."""

import collections

import numpy

from ..errors import InputError

_NAMED = 5  # The most samples that a message names.


class Visits(collections.namedtuple("Visits", "samples once repeated left_out")):
    """How often the ranks visit the samples of an epoch, or of what a loaded state left of one.

    samples: Their number. once: How many of them are visited once, and whole.
    repeated: [] Ids of those that are visited again, or of which tokens are: ranks with fewer
        batches start theirs again, and some policies fill a step up.
    left_out: [] Ids of those that no rank visits, or not whole: drop_last, uneven="drop", and what
        the policy does not take.
    """

    def __str__(self):
        return (f"{self.samples} samples: {self.once} visited once, {len(self.repeated)} more "
                f"often, {len(self.left_out)} left out or cropped")


def visits_of(planned, ids, lengths):
    """Returns the Visits.

    Args:
        planned: [visit][3] sample, start and length, of all ranks.
        ids: Of the samples that are to be visited. lengths: [sample]
    """
    samples, starts, own = planned.T
    visited = numpy.bincount(samples, own, len(lengths))  # In tokens, as what follows.
    if starts.any() or (own != lengths[samples]).any():
        covered = _covered(planned, len(lengths))
    else:
        covered = numpy.minimum(visited, lengths)
    is_repeated, is_left_out = (visited > covered)[ids], (covered < lengths)[ids]
    once = int((~is_repeated & ~is_left_out).sum())
    return Visits(len(ids), once, ids[is_repeated], ids[is_left_out])


def _covered(rows, count):
    """Returns [sample] how many of its tokens are visited at all."""
    rows = rows[numpy.lexsort((rows[:, 1], rows[:, 0]))]
    samples, starts, ends = rows[:, 0], rows[:, 1], rows[:, 1] + rows[:, 2]
    # The furthest token so far of each sample: every sample counts from a multiple of `apart`.
    apart = int(ends.max(initial=0)) + 1
    reached = numpy.maximum.accumulate(samples * apart + ends) - samples * apart
    before = numpy.where(numpy.diff(samples, prepend=-1) == 0, numpy.roll(reached, 1), 0)
    return numpy.bincount(samples, numpy.maximum(0, ends - numpy.maximum(starts, before)), count)


def differences(planned, found):
    """Returns (missing, extra) of two lists of visits: [visit][1] samples, or [visit][3]."""
    rows = numpy.concatenate([planned, found])
    if len(rows) == 0:
        return rows, rows
    signs = numpy.repeat([-1, 1], [len(planned), len(found)])
    order = numpy.lexsort(rows.T)
    rows, signs = rows[order], signs[order]
    first = numpy.flatnonzero(numpy.append(True, (rows[1:] != rows[:-1]).any(axis=1)))
    balance = numpy.add.reduceat(signs, first)
    return rows[first[balance < 0]], rows[first[balance > 0]]


def check_visits(ranks):
    """Raises InputError where ranks do not hand out what was planned for them, and names the
    samples. `ranks`: [rank] differences()."""
    told = []
    for place, words in enumerate(("missing", "visited too often")):
        rows = [(rank, row) for rank, both in enumerate(ranks) for row in both[place].tolist()]
        if rows:
            named = [_named(row, rank) for rank, row in rows[:_NAMED]]
            more = f" and {len(rows) - _NAMED} more" if len(rows) > _NAMED else ""
            told.append(f"{words}: {', '.join(named)}{more}")
    if told:
        raise InputError(
            "the ranks hand out other batches than were planned; " + "; ".join(told)
            + ". They were changed after planning: do not train with them, make the sampler anew"
        )


def _named(row, rank):
    part = f" (tokens {row[1]} to {row[1] + row[2] - 1})" if len(row) == 3 else ""
    return f"sample {row[0]}{part} on rank {rank}"
