"""Naive models of step times by placement and batch, fitted to the same rows as a prediction.

- three terms: a + b samples + c bytes, least squares of relative errors, no coefficient below 0;
- no overlap: a rank alone, and then the transfer;
- perfect overlap: the longer of the two;
- linear scaling: as many samples a second of each rank as in the fitted row of the fewest ranks.

A rank alone is straight between the fitted batches, of the fewest ranks that were timed with each. A
transfer is the ring's volume, 2 (k - 1) / k of the gradients, over a speed inside a node and one
between nodes, each the one with the least mean error; where no row on several nodes was fitted, the
speed between them is that inside.
"""

import itertools
import math
import statistics

SPEEDS = [10 ** (step / 40) for step in range(-200, 121)]  # Gradients a ms.


def per_node(placement):
    """The ranks of each node of `4`, `1+2` or `2x8`."""
    found = []
    for part in placement.split("+"):
        count, _, each = part.partition("x")
        found += [int(each)] * int(count) if each else [int(count)]
    return tuple(found)


def ranks(placement):
    return sum(per_node(placement))


def nodes(placement):
    return len(per_node(placement))


def volume(placement):
    """What a rank sends, in gradients."""
    count = ranks(placement)
    return 2 * (count - 1) / count


def solved(matrix, right):
    """The solution of a small system, or None where it is singular."""
    size = len(right)
    rows = [[*line, value] for line, value in zip(matrix, right)]
    for column in range(size):
        pivot = max(range(column, size), key=lambda i: abs(rows[i][column]))
        rows[column], rows[pivot] = rows[pivot], rows[column]
        if abs(rows[column][column]) < 1e-12:
            return None
        for i in range(size):
            if i != column:
                factor = rows[i][column] / rows[column][column]
                rows[i] = [a - factor * b for a, b in zip(rows[i], rows[column])]
    return [rows[i][size] / rows[i][i] for i in range(size)]


def least_squares(features, targets):
    """Coefficients not below 0 of the least relative squares: the best of all sets of terms."""
    scales = [max(abs(line[i]) for line in features) or 1.0 for i in range(len(features[0]))]
    points = [[x / s / y for x, s in zip(line, scales)] for line, y in zip(features, targets)]
    best, chosen = math.inf, [0.0] * len(scales)
    for size in range(1, len(scales) + 1):
        for terms in itertools.combinations(range(len(scales)), size):
            normal = [[sum(p[i] * p[j] for p in points) for j in terms] for i in terms]
            found = solved(normal, [sum(p[i] for p in points) for i in terms])
            if found is None or min(found) < 0:
                continue
            whole = [0.0] * len(scales)
            for i, value in zip(terms, found):
                whole[i] = value
            loss = sum((sum(c * x for c, x in zip(whole, p)) - 1) ** 2 for p in points)
            if loss < best - 1e-15:
                best, chosen = loss, [value / s for value, s in zip(whole, scales)]
    return chosen


class Fitted:
    """The naive models of fitted rows (placement, batch, ms)."""

    def __init__(self, rows):
        self.rows = rows
        self.terms = least_squares([(1.0, batch, volume(where)) for where, batch, _ in rows], [ms for *_, ms in rows])
        self.alone_rows = {}
        for where, batch, ms in sorted(rows, key=lambda row: ranks(row[0])):
            self.alone_rows.setdefault(batch, ms)
        self.speeds = {name: self.best_speeds(join) for name, join in JOINS.items()}

    def three_terms(self, where, batch):
        a, b, c = self.terms
        return a + b * batch + c * volume(where)

    def alone(self, batch):
        known = sorted(self.alone_rows.items())
        if len(known) == 1:
            return known[0][1] * batch / known[0][0]
        after = next((i for i in range(1, len(known)) if known[i][0] >= batch), len(known) - 1)
        (low, at_low), (high, at_high) = known[after - 1 : after + 1]
        return max(0.0, at_low + (at_high - at_low) * (batch - low) / (high - low))

    def best_speeds(self, join):
        """[inside a node, between nodes]"""
        found = []
        for several in (False, True):
            rows = [row for row in self.rows if ranks(row[0]) > 1 and (nodes(row[0]) > 1) == several]
            if not rows:
                found.append(None)
                continue

            def loss(speed, rows=rows):
                return statistics.fmean(
                    abs(join(self.alone(batch), volume(where) / speed) / ms - 1) for where, batch, ms in rows
                )

            # Where several are as good the fastest of them: what hides tells no speed.
            found.append(min(reversed(SPEEDS), key=loss))
        inside, between = found
        return [inside or between, between or inside]

    def joined(self, name, where, batch):
        inside, between = self.speeds[name]
        speed = between if nodes(where) > 1 else inside
        transfer = volume(where) / speed if speed and ranks(where) > 1 else 0.0
        return JOINS[name](self.alone(batch), transfer)

    def linear(self, batch):
        fewest = min(ranks(where) for where, *_ in self.rows)
        _, known, ms = min(
            (row for row in self.rows if ranks(row[0]) == fewest), key=lambda row: abs(math.log(row[1] / batch))
        )
        return ms * batch / known

    def all(self, where, batch):
        """{model: ms}"""
        return {
            "three_terms": self.three_terms(where, batch),
            "perfect_overlap": self.joined("perfect_overlap", where, batch),
            "no_overlap": self.joined("no_overlap", where, batch),
            "linear": self.linear(batch),
        }


JOINS = {"perfect_overlap": max, "no_overlap": lambda compute, transfer: compute + transfer}
