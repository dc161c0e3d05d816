"""Small pictures of results, as SVG that a notebook shows and a file keeps."""

import html
import os

from . import _core

_WIDTH, _LEFT, _RIGHT, _ROW = 640, 150, 90, 26
_HEIGHT, _BOTTOM, _TOP = 260, 44, 24
_HUE, _MUTED = "#2f6fb5", "#8a8f98"


class Plot:
    """A picture. A notebook shows it; `save(path)` writes an .svg file; `svg` is its text."""

    def __init__(self, svg):
        self.svg = svg

    def _repr_svg_(self):
        return self.svg

    def save(self, path):
        """Writes the picture. Raises MachineError where that is not possible."""
        _core.write_text(os.fspath(path), self.svg)


def _text(x, y, text, anchor="start", color="currentColor", size=13):
    return (f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{color}" '
            f'font-size="{size}">{html.escape(str(text))}</text>')


def _line(x1, y1, x2, y2, color=_MUTED, width=1.0):
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{color}" stroke-width="{width}"/>'


def _svg(height, parts, title):
    head = (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height:.0f}" width="{_WIDTH}" '
            'font-family="sans-serif" role="img">')
    return "\n".join([head, f"<title>{html.escape(title)}</title>", *parts, "</svg>"])


def _figure(value):
    """Three digits, without an exponent."""
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def bars(title, rows):
    """One row for each name: its value as a bar, its interval as a line across the bar's end.

    Args:
        rows: [(name, value, low, high)], in the order in which they are shown; values above 0.
    """
    most = max((max(value, high) for _, value, _, high in rows), default=1.0) or 1.0
    room = _WIDTH - _LEFT - _RIGHT
    parts = [_text(8, 16, title, color=_MUTED)]
    for i, (name, value, low, high) in enumerate(rows):
        y = _TOP + i * _ROW + 8
        shown = name if len(name) <= 20 else name[:19] + "…"
        parts.append(_text(_LEFT - 8, y + 12, shown, "end"))
        parts.append(f'<rect x="{_LEFT}" y="{y}" width="{room * value / most:.1f}" height="14" fill="{_HUE}" '
                     'fill-opacity="0.45"/>')
        parts.append(_line(_LEFT + room * low / most, y + 7, _LEFT + room * high / most, y + 7, "currentColor", 2))
        parts.append(_text(_WIDTH - _RIGHT + 8, y + 12, _figure(value)))
    return Plot(_svg(_TOP + len(rows) * _ROW + 16, parts, title))


def curve(title, key, names, points):
    """A line through values in their order, with a band for their intervals.

    Args:
        key: What varies. names: Its values, for the axis.
        points: [(value, low, high)], one for each name.
    """
    most = max((max(value, high) for value, _, high in points), default=1.0) or 1.0
    right = _WIDTH - 24
    pitch = (right - 64) / max(len(points) - 1, 1)
    bottom = _HEIGHT - _BOTTOM

    def place(i, value):
        return 64 + i * pitch, bottom - (bottom - _TOP - 8) * value / most

    def polyline(values):
        return " ".join(f"{x:.1f},{y:.1f}" for x, y in (place(i, value) for i, value in enumerate(values)))

    highs, lows = [high for *_, high in points], [low for _, low, _ in points]
    around = polyline(highs) + " " + " ".join(reversed(polyline(lows).split()))
    parts = [_text(8, 16, title, color=_MUTED)]
    for share in (0, 0.5, 1):
        y = place(0, most * share)[1]
        parts += [_line(64, y, right, y), _text(58, y + 4, _figure(most * share), "end", _MUTED)]
    parts.append(f'<polygon points="{around}" fill="{_HUE}" fill-opacity="0.2"/>')
    parts.append(f'<polyline points="{polyline([value for value, *_ in points])}" fill="none" stroke="{_HUE}" '
                 'stroke-width="2"/>')
    every = -(-len(names) // 8)
    for i, name in enumerate(names):
        x, y = place(i, points[i][0])
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{_HUE}"/>')
        if i % every == 0:
            parts.append(_text(x, bottom + 18, name, "middle", size=11))
    parts.append(_text((64 + right) / 2, _HEIGHT - 8, key, "middle", _MUTED))
    return Plot(_svg(_HEIGHT, parts, title))
