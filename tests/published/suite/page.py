"""VALIDATION.md: what all rows say together, the worst first."""

import csv
import pathlib

import scatter
import scores
from row import LEVELS, NAIVE

TEMPLATE = pathlib.Path(__file__).with_name("page.md.in")
CAUSES = pathlib.Path(__file__).with_name("causes.csv")
NARROW = pathlib.Path(__file__).with_name("narrow.csv")
CHECKS = pathlib.Path(__file__).with_name("checks.csv")
TITLES = {"three_terms": "three terms", "perfect_overlap": "perfect overlap", "no_overlap": "no overlap", "linear": "linear"}


def percent(value, signed=False):
    return "" if value is None else f"{100 * value:{'+' if signed else ''}.1f} %"


def figure(value, unit):
    if value is None:
        return ""
    if unit == "ms" and value >= 1e4:
        return f"{value / 1e3:.1f} s"
    return f"{value:.3g} {unit}" if value < 100 else f"{value:.0f} {unit}"


def table(header, rows):
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


TUNED = "published: DDP on T4"  # The tables on which priors were chosen.


def answer(counted, every):
    total = scores.score(counted)
    fresh = [row for row in counted if not row.group.startswith(("live", TUNED))]
    others = scores.score(fresh)
    groups = {name: scores.score(rows) for name, rows in scores.by(fresh or counted, "group").items()}
    name, worst = max(groups.items(), key=lambda item: item[1].mean)
    naive = min((mean for _, mean, _ in worst.naive.values()), default=None)
    beside = f" (the best naive model: {percent(naive)})" if naive is not None else ""
    return (
        f"**Half of {total.rows} predictions are within {percent(total.median)} of what was measured, the mean is off by "
        f"{percent(total.mean)}, and {percent(total.covered)} of {total.with_interval} intervals that are meant to hold 90 % hold it.\n"
        f"Of the {others.rows} for other teams' figures (without the T4 tables, on which priors were chosen) half are within "
        f"{percent(others.median)}, the mean is off by {percent(others.mean)}, and the worst group, \"{name}\", by "
        f"{percent(worst.mean)}{beside}.**\n\n"
        f"{total.rows} figures of {len(scores.by(counted, 'job'))} jobs, measured by {len(scores.by(counted, 'team'))} teams; another "
        f"{len(every) - len(counted)} rows are shown and not counted: other trainers than PyTorch's, and what had itself been measured."
    )


def causes():
    """{job: why its rows are as far off as they are}, found out by hand."""
    with open(CAUSES, encoding="utf-8") as file:
        return {row["job"]: row["why"] for row in csv.DictReader(file)}


def worst_table(counted):
    why = causes()
    total = {job: len(rows) for job, rows in scores.by(counted, "job").items()}
    rows = []
    for row in scores.worst(counted, 10):
        interval = f"{figure(row.low, '').strip()} to {figure(row.high, '').strip()}" if row.low is not None else ""
        measured, predicted = figure(row.measured, row.unit), figure(row.predicted, row.unit)
        rows.append([row.job, row.row, row.team, measured, predicted, interval, percent(row.error(), True),
                     str(total[row.job]), why.get(row.job, "not known")])  # fmt: skip
    header = ["job", "row", "measured by", "measured", "predicted", "90 % interval", "error", "rows of the job", "why"]
    return table(header, rows)


def naive_cell(score, model):
    if model not in score.naive:
        return ""
    count, mean, ours = score.naive[model]
    same = "" if count == score.rows else f" (ours {percent(ours)} on these {count})"
    return f"{percent(mean)}{same}"


def group_row(name, rows):
    score = scores.score(rows)
    covered = f"{percent(score.covered)} of {score.with_interval}" if score.with_interval else ""
    return [
        name, str(score.rows), str(len(scores.by(rows, "job"))), percent(score.mean), percent(score.median),
        percent(score.worst, True), percent(score.bias, True), covered, percent(score.half_width),
        *(naive_cell(score, model) for model in NAIVE),
    ]  # fmt: skip


GROUPS = ["group", "rows", "jobs", "mean", "median", "worst", "bias", "in the interval", "its half width", *TITLES.values()]


def groups_table(counted, others):
    groups = scores.by(counted, "group")
    order = sorted(groups, key=lambda name: -scores.score(groups[name]).mean)
    rows = [group_row(name, groups[name]) for name in order]
    rows += [group_row(f"*not counted:* {name}", own) for name, own in scores.by(others, "group").items()]
    return table(GROUPS, rows)


def naive_lines(counted):
    """Groups of enough rows in which a naive model is better."""
    better, worse = [], []
    for name, rows in scores.by(counted, "group").items():
        score = scores.score(rows)
        for model, (count, mean, ours) in score.naive.items():
            if count >= scores.ENOUGH:
                line = f"{name}: {TITLES[model]} {percent(mean)}, ours {percent(ours)}{scores.by_jobs(rows, model)}"
                (better if ours < mean else worse).append(line)
    text = (
        f"Of {len(better) + len(worse)} pairs of a group and a naive model with {scores.ENOUGH} rows or more, "
        f"ours has the smaller mean error in {len(better)}."
    )
    if worse:
        text += " Not in these:\n\n" + "\n".join(f"- {one}" for one in worse)
    return text


def of_coverage(counted):
    """{"low", "fine" or "high": {group: its rows}} by how many of their rows intervals hold."""
    found = {"low": {}, "fine": {}, "high": {}}
    for name, rows in scores.by(counted, "group").items():
        score = scores.score(rows)
        if score.with_interval >= scores.ENOUGH:
            place = "low" if score.covered < 0.85 else "high" if score.covered > 0.95 else "fine"
            found[place][name] = rows
    return found


def coverage_lines(counted):
    found = of_coverage(counted)

    def said(groups):
        return [f"{name} ({percent(score.covered)} of {score.with_interval})" for name, score in ((one, scores.score(rows)) for one, rows in groups.items())]

    return (
        f"Groups with {scores.ENOUGH} intervals or more: {len(found['fine'])} hold 85 to 95 % of their rows, {len(found['low'])} fewer.\n\n"
        f"Wider than they need be, {len(found['high'])}: {'; '.join(said(found['high'])) or 'none'}."
    )


def narrow_causes():
    """{group: why its intervals hold too little}, found out by hand."""
    with open(NARROW, encoding="utf-8") as file:
        return {row["group"]: row["why"] for row in csv.DictReader(file)}


def narrow_table(counted):
    """Groups whose intervals hold too little, and what they would hold if the level of each job were known."""
    why, rows = narrow_causes(), []
    for name, own in of_coverage(counted)["low"].items():
        score, levels = scores.score(own), scores.levels(own)
        ends = " to ".join(dict.fromkeys(percent(one - 1, True) for one in (min(levels.values()), max(levels.values())))) if levels else ""
        ends += f", {len(levels)} job{'s' * (len(levels) > 1)}" if levels else ""
        known = scores.held_but_for_level(own)
        rows.append([name, f"{percent(score.covered)} of {score.with_interval}", ends,
                     f"{percent(known[0])} of {known[1]}" if known else "", why.get(name, "not known")])  # fmt: skip
    return table(["group", "inside", "levels: measured over predicted", "inside but for the level", "why"], rows)


def calibration_kinds(counted):
    """{kind or group: its rows} of which there are enough with intervals of all levels."""
    kinds = {"all": counted}
    for index, (name, _) in enumerate(scatter.FAMILIES):
        kinds[f"*{name}*"] = [one for one in counted if scatter.family(one) == index]
    kinds |= scores.by(counted, "group")
    return {name: own for name, own in kinds.items() if scores.calibration(own)[1] >= scores.ENOUGH}


def calibration_table(counted):
    rows = []
    for name, own in calibration_kinds(counted).items():
        held, count = scores.calibration(own)
        rows.append([name, str(count), *(percent(held[level]) for level in LEVELS)])
    return table(["rows", "number", *(f"{level} %" for level in LEVELS)], rows)


def calibration_lines(counted):
    known = [one for one in counted if one.has_levels]
    only90 = [one for one in counted if one.low is not None and not one.has_levels]
    neither = [one for one in counted if one.low is None and one.inside is not None]
    return (
        f"The curve has the {len(known)} rows whose intervals of 50, 80, 90 and 95 % are computed from the same draws. Left out are "
        f"{len(only90)} of which a document holds the 90 % interval alone, and {len(neither)} of which it only says whether, or how often, "
        f"that held."
    )


def sources_table(rows):
    found = []
    for team, own in sorted(scores.by(rows, "team").items()):
        jobs = scores.by(own, "job")
        given = "; ".join(dict.fromkeys(row.given for row in own)) if team != "this project" else "see the CSV"
        licences = ", ".join(sorted({row.licence for row in own}))
        found.append([team, licences, str(len(jobs)), str(len(own)), given])
    return table(["team", "licence of the figures", "jobs", "rows", "what was fitted or known"], found)


def checks_table():
    """What was run over the whole tree, and when, kept by hand."""
    with open(CHECKS, encoding="utf-8") as file:
        rows = [[row[name] for name in ("what", "command", "date", "commit", "result")] for row in csv.DictReader(file)]
    return table(["check", "command", "date", "commit", "result"], rows)


def refused_lines(refused):
    return "\n".join(f"- Refused, or not at hand: {one}." for one in refused)


def text(rows, refused):
    """page.md.in with its @words@ filled in."""
    counted = [row for row in rows if row.counted]
    others = [row for row in rows if not row.counted]
    parts = {
        "answer": answer(counted, rows),
        "worst": worst_table(counted),
        "groups": groups_table(counted, others),
        "naive": naive_lines(counted),
        "coverage": coverage_lines(counted),
        "narrow": narrow_table(counted),
        "calibration": calibration_table(counted),
        "curve": calibration_lines(counted),
        "refused": refused_lines(refused),
        "checks": checks_table(),
        "sources": sources_table(rows),
    }
    page = TEMPLATE.read_text(encoding="utf-8")
    for word, part in parts.items():
        page = page.replace(f"@{word}@", part)
    return page
