"""Predicted against measured steps as an SVG picture: above both, below their ratio. Intervals are thin lines."""

import dataclasses
import math

RATIOS = (0.4, 0.5, 0.7, 1.0, 1.4, 2.0, 3.0, 5.0)
RATIO_ENDS = (0.33, 6.0)
# (family, colour)
FAMILIES = (
    ("published, DDP", "#1f5fa8"),
    ("published, FSDP", "#b3541e"),
    ("ours, on processors", "#2e8540"),
    ("ours, on one GPU", "#7b3fa0"),
    ("shown, not counted", "#9a9a9a"),
)


def family(row):
    """Index into FAMILIES."""
    if not row.counted:
        return 4
    if row.group.startswith("live"):
        return 3 if "GPU" in row.group else 2
    return 1 if row.group.startswith("FSDP") else 0


@dataclasses.dataclass(frozen=True)
class Layout:
    """Sizes of a picture, in its own units."""

    width: int
    margin: int  # Left of the panels; for the numbers.
    right: int
    font: int
    columns: int  # Of the legend.
    dot: float

    @property
    def line(self):
        return 1.55 * self.font

    def legend_rows(self, count):
        return math.ceil(count / self.columns)

    def legend(self, names):
        """`names`: [(text, colour)]."""
        parts, step = [], (self.width - self.margin - self.right) / self.columns
        for index, (name, colour) in enumerate(names):
            x, y = self.margin + step * (index % self.columns), self.line * (1 + index // self.columns)
            parts.append(f'<path d="M{x + self.font / 3:.1f} {y - self.font / 3:.1f}h0" stroke="{colour}" stroke-width="{0.66 * self.font:.1f}" stroke-linecap="round"/>')
            parts.append(f'<text x="{x + 1.1 * self.font:.1f}" y="{y:.1f}">{name}</text>')
        return parts


WIDE = Layout(760, 96, 36, 18, 2, 5)
NARROW = Layout(380, 76, 12, 12, 1, 3.6)


class Panel:
    """Axes with a frame around them. `x_ends`, `y_ends`: (lowest, highest)."""

    def __init__(self, layout, top, height, x_ends, y_ends, logarithmic=True):
        self.layout, self.top, self.height = layout, top, height
        self.scale = math.log if logarithmic else float
        self.x_ends, self.y_ends = [tuple(map(self.scale, ends)) for ends in (x_ends, y_ends)]

    @property
    def bottom(self):
        return self.top + self.height

    @property
    def across(self):
        return self.layout.width - self.layout.margin - self.layout.right

    def x(self, value):
        low, high = self.x_ends
        return self.layout.margin + self.across * (self.scale(value) - low) / (high - low)

    def y(self, value):
        low, high = self.y_ends
        part = (self.scale(value) - low) / (high - low)
        return self.top + self.height * (1 - min(1.0, max(0.0, part)))

    def point(self, x, y):
        return f"M{self.x(x):.1f} {self.y(y):.1f}h0"

    def interval(self, x, low, high):
        top, bottom = f"{self.y(high):.1f}", f"{self.y(low):.1f}"
        return "" if top == bottom else f"M{self.x(x):.1f} {bottom}V{top}"

    def frame(self):
        return f'<rect x="{self.layout.margin}" y="{self.top:.1f}" width="{self.across}" height="{self.height:.1f}" class="axis"/>'

    def vertical(self, value, label):
        x = f"{self.x(value):.1f}"
        line = f'<path d="M{x} {self.top:.1f}v{self.height:.1f}" class="grid"/>'
        y = self.bottom + 1.4 * self.layout.font
        return line + (f'<text x="{x}" y="{y:.1f}" text-anchor="middle">{label}</text>' if label else "")

    def horizontal(self, value, label):
        y, font = self.y(value), self.layout.font
        line = f'<path d="M{self.layout.margin} {y:.1f}h{self.across}" class="grid"/>'
        return line + (f'<text x="{self.layout.margin - font / 2:.1f}" y="{y + font / 3:.1f}" text-anchor="end">{label}</text>' if label else "")

    def titles(self, below, beside):
        middle, x = self.top + self.height / 2, 1.1 * self.layout.font
        return [
            f'<text x="{x:.1f}" y="{middle:.1f}" text-anchor="middle" transform="rotate(-90 {x:.1f} {middle:.1f})">{beside}</text>',
            f'<text x="{self.layout.margin + self.across / 2:.1f}" y="{self.bottom + 2.9 * self.layout.font:.1f}" text-anchor="middle">{below}</text>',
        ]


def head(layout, total, label):
    """The picture's first lines, by which it looks right on its own; a page may say otherwise for .picture."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {layout.width} {total:.0f}" role="img" aria-label="{label}">\n'
        f"<style>text{{font:{layout.font}px sans-serif;fill:#222}}.grid{{stroke:#ddd;fill:none}}.axis{{stroke:#555;fill:none}}"
        ".line{stroke-width:.8;opacity:.35;fill:none}"
        f".dot{{stroke-width:{layout.dot};stroke-linecap:round;opacity:.6;fill:none}}.curve{{stroke-width:2;fill:none}}"
        f".knot{{stroke-width:{1.8 * layout.dot};stroke-linecap:round;fill:none}}</style>\n"
        f'<rect width="{layout.width}" height="{total:.0f}" class="paper" fill="#fff"/>'
    )


def milliseconds(value):
    return f"{value / 1e3:g} s" if value >= 1e3 else f"{value:g} ms"


def marks(panel, rows, ratio):
    """Intervals below, points above, a path for each family."""
    parts = []
    for index, (_, colour) in reversed(list(enumerate(FAMILIES))):
        own = [row for row in rows if family(row) == index]
        scale = [row.measured if ratio else 1.0 for row in own]
        lines = "".join(
            panel.interval(row.measured, row.low / by, row.high / by) for row, by in zip(own, scale) if row.low is not None
        )
        points = "".join(panel.point(row.measured, row.predicted / by) for row, by in zip(own, scale))
        if lines:
            parts.append(f'<path d="{lines}" stroke="{colour}" class="line"/>')
        if points:
            parts.append(f'<path d="{points}" stroke="{colour}" class="dot"/>')
    return parts


def drawn(rows):
    """The rows that the picture has."""
    return [row for row in rows if row.unit == "ms"]


def panels(rows, layout=WIDE):
    """The panel of both times, and that of their ratio."""
    values = [value for row in drawn(rows) for value in (row.measured, row.predicted)]
    ends = (min(values) / 1.3, max(values) * 1.3)
    both = Panel(layout, layout.line * (layout.legend_rows(len(FAMILIES)) + 1), 0.62 * layout.width, ends, ends)
    return both, Panel(layout, both.bottom + 3.7 * layout.line, 0.43 * layout.width, ends, RATIO_ENDS)


def svg(rows, layout=WIDE):
    both, ratio = panels(rows, layout)
    rows = drawn(rows)
    low, high = map(math.exp, both.x_ends)
    decades = [10.0**power for power in range(math.ceil(math.log10(low)), math.floor(math.log10(high)) + 1)]
    counts = [sum(family(row) == index for row in rows) for index in range(len(FAMILIES))]
    parts = [head(layout, ratio.bottom + 2.6 * layout.line, "predicted against measured steps")]
    parts += layout.legend([(f"{name} ({count})", colour) for (name, colour), count in zip(FAMILIES, counts)])
    for panel in (both, ratio):
        parts += [panel.vertical(one, milliseconds(one)) for one in decades]
    parts += [both.horizontal(one, milliseconds(one)) for one in decades]
    parts += [ratio.horizontal(one, f"{one:g}") for one in RATIOS]
    parts.append(f'<path d="M{both.x(low):.1f} {both.y(low):.1f}L{both.x(high):.1f} {both.y(high):.1f}" class="axis"/>')
    parts.append(f'<path d="M{layout.margin} {ratio.y(1):.1f}h{ratio.across}" class="axis"/>')
    for panel, by_ratio, title in ((both, False, "predicted step"), (ratio, True, "predicted over measured")):
        parts += [*marks(panel, rows, by_ratio), panel.frame(), *panel.titles("measured step", title)]
    return "\n".join([*parts, "</svg>"]) + "\n"
