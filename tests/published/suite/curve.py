"""The calibration curve as an SVG picture: of intervals that are meant to hold so many per cent, how many do."""

import row
import scatter
import scores

OF_ALL = "#222"
LEAST = 40  # Per cent: where the axes begin.
NO_ROOM = 95  # Has no words below the axis.


def curves(rows):
    """[(family, {level: share}, rows)] of the families with enough rows, and of all."""
    found = [("all", OF_ALL, *scores.calibration(rows))]
    for index, (name, colour) in enumerate(scatter.FAMILIES):
        found.append((name, colour, *scores.calibration([one for one in rows if scatter.family(one) == index])))
    return [(name, colour, held, count) for name, colour, held, count in found if count >= scores.ENOUGH]


def svg(rows, layout=scatter.WIDE):
    height = 0.62 * layout.width
    found = curves([one for one in rows if one.counted])
    legend = layout.legend_rows(len(found))
    panel = scatter.Panel(layout, layout.line * (legend + 1), height, (LEAST, 100), (LEAST, 100), logarithmic=False)
    marks = [LEAST, *row.LEVELS, 100]
    parts = [scatter.head(layout, panel.bottom + 2.6 * layout.line, "coverage of intervals against what they are meant to hold")]
    parts += layout.legend([(f"{name} ({count})", colour) for name, colour, _, count in found])
    parts += [panel.vertical(one, f"{one} %" if one != NO_ROOM else "") for one in marks]
    parts += [panel.horizontal(one, f"{one} %") for one in marks]
    parts.append(f'<path d="M{panel.x(LEAST):.1f} {panel.y(LEAST):.1f}L{panel.x(100):.1f} {panel.y(100):.1f}" class="axis"/>')
    for _, colour, held, _ in reversed(found):
        points = [(panel.x(level), panel.y(100 * share)) for level, share in held.items()]
        line = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
        dots = "".join(f"M{x:.1f} {y:.1f}h0" for x, y in points)
        parts.append(f'<path d="M{line}" stroke="{colour}" class="curve"/><path d="{dots}" stroke="{colour}" class="knot"/>')
    parts += [panel.frame(), *panel.titles("meant to hold", "hold")]
    return "\n".join([*parts, "</svg>"]) + "\n"
