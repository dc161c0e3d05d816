"""One measured figure, what was predicted for it, and what naive models say."""

import csv
import dataclasses
import io

# Models that anybody makes of a few rows, or without any: what a prediction has to be better than.
NAIVE = ("three_terms", "perfect_overlap", "no_overlap", "linear")
LEVELS = (50, 80, 90, 95)  # Of intervals, in per cent. `low` and `high` are of 90.
DIGITS = 5  # Significant; predictions are the same on one machine, and in the sixth digit on another.


@dataclasses.dataclass
class Row:
    """Times in ms unless `unit` says otherwise; None: there is no such figure."""

    group: str
    team: str  # Who measured it.
    job: str  # One model on one kind of machine.
    row: str
    measured: float
    predicted: float
    low: float | None = None  # Of the 90 % interval.
    high: float | None = None
    inside: float | None = None  # 1 or 0; a share where the source counts a whole table only.
    three_terms: float | None = None  # a + b work + c bytes or work x length, fitted to the same rows.
    perfect_overlap: float | None = None
    no_overlap: float | None = None
    linear: float | None = None  # As much work a second of a GPU as in a fitted row.
    unit: str = "ms"
    licence: str = ""
    given: str = ""  # What was fitted, or known.
    when: str = "now"  # "now": by this program; "then": a document recorded it.
    counted: bool = True  # False: shown, and in no mean over groups.
    low50: float | None = None  # Intervals of other levels, from the same draws, where they are known.
    high50: float | None = None
    low80: float | None = None
    high80: float | None = None
    low95: float | None = None
    high95: float | None = None

    def __post_init__(self):
        if (self.low is None) != (self.high is None):
            raise ValueError(f"{self.group}, {self.job}, {self.row}: an interval of one end, {self.low} to {self.high}")
        if self.inside is None and self.low is not None:
            self.inside = float(self.low <= self.measured <= self.high)

    def interval(self, level):
        """(low, high) of one of LEVELS, or None."""
        end = "" if level == 90 else level
        low, high = getattr(self, f"low{end}"), getattr(self, f"high{end}")
        return None if low is None else (low, high)

    @property
    def has_levels(self):
        return all(self.interval(level) for level in LEVELS)

    def error(self, model="predicted"):
        """(prediction - measurement) / measurement; None where the model says nothing."""
        value = getattr(self, model)
        return None if value is None else value / self.measured - 1

    @property
    def bias(self):
        """The error as that of a time: what is too high in a throughput is too short in a step."""
        return self.error() if self.unit == "ms" else self.measured / self.predicted - 1

    @property
    def verdict(self):
        if self.inside is None:
            return "no interval"
        if self.inside == 1:
            return "inside"
        if 0 < self.inside < 1:
            return "some inside"
        return "too slow" if self.bias > 0 else "too fast"


def intervals(ends):
    """The members of a row: `ends` is {level: (low, high)}."""
    return {f"{end}{'' if level == 90 else level}": value for level, own in ends.items() for end, value in zip(("low", "high"), own)}


NUMBERS = ("measured", "predicted", "inside", *NAIVE, *intervals(dict.fromkeys(LEVELS, (0, 0))))
COLUMNS = [field.name for field in dataclasses.fields(Row)]
# The errors and the verdict follow from the rest; they stand in the file for those who read it.
DERIVED = ("error_pct", "verdict")


def cell(row, name):
    value = getattr(row, name)
    if name in NUMBERS:
        return "" if value is None else f"{value:.{DIGITS}g}"
    return {True: "yes", False: "no"}.get(value, value)


def csv_text(rows):
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow((*COLUMNS, *DERIVED))
    for row in rows:
        writer.writerow([*(cell(row, name) for name in COLUMNS), f"{100 * row.error():+.1f}", row.verdict])
    return file.getvalue()


def read(text):
    """The rows of csv_text()."""
    rows = []
    for cells in csv.DictReader(io.StringIO(text)):
        values = {name: cells[name] for name in COLUMNS}
        for name in NUMBERS:
            values[name] = float(values[name]) if values[name] else None
        values["counted"] = values["counted"] == "yes"
        rows.append(Row(**values))
    return rows
