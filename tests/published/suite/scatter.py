"""Predicted against measured steps as an SVG picture: above both, below their ratio. Intervals are thin lines."""

import math

WIDTH, MARGIN, RIGHT = 760, 96, 36
TOP, HIGH = 108, 470  # The upper panel; the lower one follows.
GAP, LOW = 104, 330
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


class Panel:
    """Logarithmic axes."""

    def __init__(self, top, height, x_ends, y_ends):
        self.top, self.height = top, height
        self.x_ends, self.y_ends = [tuple(map(math.log, ends)) for ends in (x_ends, y_ends)]

    def x(self, value):
        low, high = self.x_ends
        return MARGIN + (WIDTH - MARGIN - RIGHT) * (math.log(value) - low) / (high - low)

    def y(self, value):
        low, high = self.y_ends
        part = (math.log(value) - low) / (high - low)
        return self.top + self.height * (1 - min(1.0, max(0.0, part)))

    def point(self, x, y):
        return f"M{self.x(x):.1f} {self.y(y):.1f}h0"

    def interval(self, x, low, high):
        top, bottom = f"{self.y(high):.1f}", f"{self.y(low):.1f}"
        return "" if top == bottom else f"M{self.x(x):.1f} {bottom}V{top}"

    def frame(self):
        return f'<rect x="{MARGIN}" y="{self.top}" width="{WIDTH - MARGIN - RIGHT}" height="{self.height}" fill="none" stroke="#555"/>'

    def vertical(self, value, label):
        x = f"{self.x(value):.1f}"
        line = f'<path d="M{x} {self.top}v{self.height}" class="grid"/>'
        return line + (f'<text x="{x}" y="{self.top + self.height + 26}" text-anchor="middle">{label}</text>' if label else "")

    def horizontal(self, value, label):
        y = self.y(value)
        return (
            f'<path d="M{MARGIN} {y:.1f}H{WIDTH - RIGHT}" class="grid"/>'
            f'<text x="{MARGIN - 10}" y="{y + 6:.1f}" text-anchor="end">{label}</text>'
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


def svg(rows):
    rows = [row for row in rows if row.unit == "ms"]
    values = [value for row in rows for value in (row.measured, row.predicted)]
    ends = (min(values) / 1.3, max(values) * 1.3)
    decades = [10.0**power for power in range(math.floor(math.log10(ends[0])), math.ceil(math.log10(ends[1])) + 1)]
    decades = [one for one in decades if ends[0] <= one <= ends[1]]
    both = Panel(TOP, HIGH, ends, ends)
    ratio = Panel(TOP + HIGH + GAP, LOW, ends, RATIO_ENDS)
    total = ratio.top + LOW + 70
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {total}" role="img" aria-label="predicted against measured steps">',
        "<style>text{font:18px sans-serif;fill:#222}.grid{stroke:#ddd;fill:none}.line{stroke-width:.8;opacity:.35;fill:none}"
        ".dot{stroke-width:5;stroke-linecap:round;opacity:.6;fill:none}</style>",
        f'<rect width="{WIDTH}" height="{total}" fill="#fff"/>',
    ]
    x, y = MARGIN, 30
    for index, (name, colour) in enumerate(FAMILIES):
        count = sum(family(row) == index for row in rows)
        parts.append(f'<path d="M{x + 6} {y - 6}h0" stroke="{colour}" stroke-width="12" stroke-linecap="round"/>')
        parts.append(f'<text x="{x + 20}" y="{y}">{name} ({count})</text>')
        x, y = (MARGIN, y + 28) if index % 2 else (MARGIN + 320, y)
    for panel in (both, ratio):
        parts += [panel.vertical(one, milliseconds(one)) for one in decades]
    parts += [both.horizontal(one, milliseconds(one)) for one in decades]
    parts += [ratio.horizontal(one, f"{one:g}") for one in RATIOS]
    start, end = (both.x(ends[0]), both.y(ends[0])), (both.x(ends[1]), both.y(ends[1]))
    parts.append(f'<path d="M{start[0]:.1f} {start[1]:.1f}L{end[0]:.1f} {end[1]:.1f}" stroke="#555"/>')
    parts.append(f'<path d="M{MARGIN} {ratio.y(1):.1f}H{WIDTH - RIGHT}" stroke="#555"/>')
    for panel, by_ratio, title in ((both, False, "predicted step"), (ratio, True, "predicted over measured")):
        parts += marks(panel, rows, by_ratio)
        parts.append(panel.frame())
        middle = panel.top + panel.height / 2
        parts.append(f'<text x="24" y="{middle}" text-anchor="middle" transform="rotate(-90 24 {middle})">{title}</text>')
        parts.append(f'<text x="{(MARGIN + WIDTH - RIGHT) / 2}" y="{panel.top + panel.height + 54}" text-anchor="middle">measured step</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"
