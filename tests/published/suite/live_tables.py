"""Rows out of the tables of tests/live: predictions that a document recorded beside what was then
measured. Nothing is computed anew.

Two kinds of tables are read. In the first each row is a run, and columns are called "predicted",
"measured", "error", "90 % interval", "in interval" and the like, once or for several visits. In the
second each column is a policy, and the rows are ways to predict it, "measured" among them.
"""

import dataclasses
import re

NUMBER = re.compile(r"[-+]?\d[\d,]*\.?\d*")
RANGE = re.compile(r"([\d.]+) ?(?:-|to) ?([\d.]+)")
YES = {"yes": 1.0, "no": 0.0}
COUNT = re.compile(r"(\d+) of (\d+)")


def split(line):
    return tuple(cell.strip() for cell in line.strip().strip("|").split("|"))


def tables(text):
    """[(section, header, [cells])] of a Markdown document."""
    found, headings, rows, header = [], {}, None, None
    for line in [*text.splitlines(), ""]:
        if match := re.match(r"(#+) (.*)", line):
            level = len(match[1])
            headings = {key: value for key, value in headings.items() if key < level}
            headings[level] = match[2]
        if line.startswith("|"):
            if rows is None:
                header, rows = split(line), []
            elif not re.match(r"\|[\s:|-]+\|$", line):
                rows.append(split(line))
        elif rows is not None:
            section = ": ".join(headings[key] for key in sorted(headings) if key > 1)
            found.append((section, header, rows))
            rows = None
    return found


def number(cell):
    match = NUMBER.search(cell)
    return float(match[0].replace(",", "")) if match else None


def percent(cell):
    return float(cell.replace("%", "").replace(" ", "")) / 100


@dataclasses.dataclass
class Found:
    """A run that a table tells of."""

    section: str
    name: str
    visit: str = ""  # Where a table has several.
    predicted: float | None = None
    measured: float | None = None
    low: float | None = None
    high: float | None = None
    inside: float | None = None
    stated: float | None = None  # The error as printed.
    three_terms: float | None = None


KINDS = (
    # (what it is, how such a header begins)
    ("interval", ("90 % interval", "interval of the same hour")),
    ("inside", ("in interval", "inside", "in it", "in its interval", "in the 90 % interval")),
    ("three_terms", ("three-term fit",)),
)
OTHERWISE = re.compile(r"gain|over the default|memory|all shapes known|first meetings|tokens/s|as imported|with costs|processor time")


def kind_of(header):
    if OTHERWISE.search(header):
        return None
    for name, starts in KINDS:
        if header.startswith(starts):
            return name
    if header.startswith(("predicted", "measured")) or header == "error":
        return re.split(r"[ ,]", header)[0]
    return None


def columns_of(header):
    """[(kind, visit)] of a header: a visit lasts until the next one is named, and of two columns of one
    kind in a visit the first one counts."""
    result, visit, seen = [], "", set()
    for cell in header:
        low = cell.lower()
        if match := re.match(r"(\w+ visit): (.*)", low):
            visit, low = match.groups()
            seen = set()
        kind = kind_of(low)
        result.append((None if kind in seen else kind, visit))
        seen.add(kind)
    return result


def take(one, kind, cell):
    """Puts a cell into its place."""
    if kind in ("predicted", "measured"):
        setattr(one, kind, number(cell))
        if match := re.search(r"\(([\d.]+)-([\d.]+)\)", cell):
            one.low, one.high = map(float, match.groups())
    elif kind == "interval":
        if match := RANGE.search(cell):
            one.low, one.high = map(float, match.groups())
    elif kind == "inside":
        one.inside = YES.get(cell)
    elif kind:
        setattr(one, {"error": "stated"}.get(kind, kind), percent(cell))


NO_NAMES = re.compile(r"steps$|buckets$|first meetings|plans by")


def runs_of(section, header, rows):
    """The first kind of table."""
    columns = columns_of(header)
    kinds = [kind for kind, _ in columns]
    if not {"predicted", "measured"} <= set(kinds):
        return []
    before = min(kinds.index("predicted"), kinds.index("measured"))
    names = [i for i in range(before) if not NO_NAMES.match(header[i]) and not OTHERWISE.search(header[i])]
    found = []
    for cells in rows:
        name = ", ".join(cells[i] for i in names if cells[i]).replace("`", "")
        for visit in dict.fromkeys(visit for kind, visit in columns if kind):
            one, texts = Found(section, name, visit), {}
            for (kind, of), cell in zip(columns, cells):
                if of == visit and kind and cell:
                    texts[kind] = cell
                    take(one, kind, cell)
            if {"predicted", "measured"} <= texts.keys():
                found.append(checked(one, texts["predicted"], texts["measured"]))
    return found


def half_unit(cell):
    """Half of the last digit of a number."""
    digits = NUMBER.search(cell)[0].partition(".")[2]
    return 0.5 * 10 ** -len(digits)


def checked(one, predicted, measured):
    """Compares a row with the error that stands beside it, so that no column is taken for another."""
    if one.stated is not None:
        error = one.predicted / one.measured - 1
        slack = 0.00055 + (half_unit(predicted) + (1 + error) * half_unit(measured)) / one.measured
        if abs(error - one.stated) > slack:
            raise ValueError(
                f"{one.section}, {one.name}: {predicted} beside {measured} is an error of {error:+.1%}, "
                f"and the table says {one.stated:+.1%}"
            )
    if one.three_terms is not None:
        one.three_terms = one.measured * (1 + one.three_terms)
    return one


def policies_of(section, header, rows):
    """The second kind of table: {way to predict: [Found]}."""
    named = {row[0]: row for row in rows}
    if "measured" not in named or header[0] != "profile by":
        return {}
    naive = named.get("three-term fit")
    result = {}
    for name, row in named.items():
        if name in ("measured", "three-term fit", "passes differ by"):
            continue
        share = COUNT.match(row[header.index("in interval")])
        found = []
        for column, policy in enumerate(header):
            if not re.search(r"\d ms$", named["measured"][column]):
                continue
            measured = number(named["measured"][column])
            one = Found(section, policy, "", measured * (1 + percent(row[column])), measured)
            one.inside = int(share[1]) / int(share[2])
            if naive:
                one.three_terms = measured * (1 + percent(naive[column]))
            found.append(one)
        result[name] = found
    return result


PAIR = re.compile(r"([\d.]+) ms, ([-+]?[\d.]+) %$")


def pairs_of(section, header, rows):
    """Cells of "predicted ms, error" below two lines of header: visit and model."""
    found = []
    visits, last = [], ""
    for cell in header:
        last = cell or last
        visits.append(last)
    models = rows[0] if rows else ()
    for cells in rows[1:]:
        for column, cell in enumerate(cells):
            if match := PAIR.match(cell):
                predicted, error = float(match[1]), float(match[2]) / 100
                one = Found(section, f"{models[column]}, {cells[0]}", visits[column], predicted, predicted / (1 + error))
                found.append(one)
    counts = {cells[0]: cells for cells in rows}.get("inside")
    if counts:
        for one in found:
            for column, cell in enumerate(counts):
                if visits[column] == one.visit and one.name.startswith(models[column]) and (match := COUNT.match(cell)):
                    one.inside = int(match[1]) / int(match[2])
    return found


TRIPLE = re.compile(r"([\d.]+), ([\d.]+) ms, ([-+]?[\d.]+) %$")


def triples_of(section, header, rows):
    """Cells of "measured, predicted ms, error" below the name of a policy."""
    found = []
    for cells in rows:
        for column, cell in enumerate(cells):
            if match := TRIPLE.match(cell):
                name = header[column].split(":")[0].replace("`", "").split(",")[0]
                one = Found(section, name, f"{header[0]} of {cells[0]}", float(match[2]), float(match[1]))
                one.stated = float(match[3]) / 100
                if counts := COUNT.match(cells[-1]):
                    one.inside = int(counts[1]) / int(counts[2])
                found.append(checked(one, match[2], match[1]))
    return found


def all_runs(text):
    """[Found] of every table of the first kind, of pairs and of triples."""
    found = []
    for table in tables(text):
        found += runs_of(*table) or pairs_of(*table) or triples_of(*table)
    return found
