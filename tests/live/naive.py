"""The three-term fit that predictions are compared with. A step takes a + b tokens + c tokens x
length, with the padded tokens and the padded length of the rank that has most to do."""

import collections


def terms(tokens, length):
    return (1.0, float(tokens), float(tokens) * length)


def largest(rows):
    """Returns the terms of the rank with the most token pairs among the rows of one step."""
    return max((terms(row["padded_tokens"], row["max_length"]) for row in rows), key=lambda t: t[2])


def by_step(rows):
    """Returns {(repeat, step): rows of all ranks}."""
    steps = collections.defaultdict(list)
    for row in rows:
        steps[row.get("repeat", 0), row["step"]].append(row)
    return steps


def step_ms(rows):
    """Returns the time from the last rank's start to the last rank's end."""
    return max(row["start_ms"] + row["step_ms"] for row in rows) - max(
        row["start_ms"] for row in rows
    )


def mean_ms_by_step(rows, warmup_steps):
    """Returns {step: its mean over the repeats} of the steady steps."""
    times = collections.defaultdict(list)
    for (_, step), ranks in by_step(rows).items():
        if step >= warmup_steps:
            times[step].append(step_ms(ranks))
    return {step: sum(each) / len(each) for step, each in times.items()}


def drift(before, after, warmup_steps):
    """Returns how much longer the same steps took in the second of two trainings, as a fraction."""
    first, second = (mean_ms_by_step(rows, warmup_steps) for rows in (before, after))
    common = first.keys() & second.keys()
    return sum(second[step] for step in common) / sum(first[step] for step in common) - 1


def solve(matrix, right):
    """Solves a small symmetric system by elimination; a term that is not determined is 0."""
    size = len(right)
    rows = [list(row) + [value] for row, value in zip(matrix, right)]
    scale = max(abs(value) for row in matrix for value in row)
    for column in range(size):
        pivot = max(range(column, size), key=lambda row: abs(rows[row][column]))
        rows[column], rows[pivot] = rows[pivot], rows[column]
        if abs(rows[column][column]) < 1e-12 * scale:
            rows[column] = [float(index == column) for index in range(size)] + [0.0]
        for row in range(size):
            if row != column:
                factor = rows[row][column] / rows[column][column]
                rows[row] = [a - factor * b for a, b in zip(rows[row], rows[column])]
    return [rows[index][size] / rows[index][index] for index in range(size)]


def fit(record, warmup_steps):
    """Returns (a, b, c) by least squares over the steady steps of a record's rows."""
    steps = [rows for (_, step), rows in by_step(record).items() if step >= warmup_steps]
    points = [(largest(rows), step_ms(rows)) for rows in steps]
    scales = [max(point[0][index] for point in points) for index in range(3)]
    scaled = [([x / s for x, s in zip(x, scales)], y) for x, y in points]
    normal = [[sum(x[i] * x[j] for x, _ in scaled) for j in range(3)] for i in range(3)]
    right = [sum(x[i] * y for x, y in scaled) for i in range(3)]
    return [value / scale for value, scale in zip(solve(normal, right), scales)]


def predict_ms(coefficients, plan, warmup_steps):
    """Returns the mean steady step that the fit predicts for a plan's rows."""
    steps = [rows for (_, step), rows in by_step(plan).items() if step >= warmup_steps]
    times = [sum(c * x for c, x in zip(coefficients, largest(rows))) for rows in steps]
    return sum(times) / len(times)
