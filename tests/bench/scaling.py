#!/usr/bin/env python3
"""Is the time of `stepsim run` linear in ranks, steps and buckets?

usage: scaling.py STEPSIM [--repeat N] [--out tests/bench/SCALING.md]

Runs the whole command on growing cases, three series by turns, and takes the median of the processor time. Writes a
table and, beside it, a picture (SCALING.svg) with the slope of each series on logarithmic axes: 1 is linear.
"""

import argparse
import math
import pathlib
import resource
import statistics
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SCENARIO = str(ROOT / "scenarios" / "engines_step.toml")
RANKS, STEPS, BUCKETS = 64, 100, 12
SERIES = {
    "ranks": [64 << shift for shift in range(0, 11, 2)],
    "steps": [100 * 4**power for power in range(0, 6)],
    "buckets": [12 * 2**power for power in range(0, 8)],
}
WIDTH, HEIGHT, MARGIN = 300, 240, 46
REPORT = """# How does the time of a command grow?

Processor time of whole `stepsim run` commands on variants of [engines_step.toml](../../scenarios/engines_step.toml) with a jitter of 3 %, so that all
draws of the noise are played: over ranks ({steps} steps, {buckets} buckets), over steps ({ranks} ranks, {buckets} buckets) and over buckets ({ranks} ranks, {steps} steps).
Medians of {repeat} runs that took turns. Large runs play fewer draws of the noise: at most 150 million steps of a rank, and at least 20 draws.
The slope is that from the row above on logarithmic axes: 1 is linear, less is better.

![Seconds over ranks, steps and buckets on logarithmic axes](SCALING.svg)

```
meson setup build && ninja -C build
python3 tests/bench/scaling.py build/sim/stepsim --out tests/bench/SCALING.md
```

"""


def command(stepsim, what, value):
    ranks = value if what == "ranks" else RANKS
    steps = value if what == "steps" else STEPS
    buckets = value if what == "buckets" else BUCKETS
    settings = [f"cluster.ranks={ranks}", f"data.samples={ranks * steps}", "cluster.jitter=0.03",
                f"model.layers={buckets}", f"model.block_elements={7_077_888 * BUCKETS // buckets}"]
    return [stepsim, "run", SCENARIO, "--steps", str(steps), "--quiet", "--json", "/dev/null",
            *[word for setting in settings for word in ("--set", setting)]]


def seconds_of(arguments):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(arguments, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def panel(left, what, points):
    """Draws one series; a dashed line through its last point has slope 1."""
    xs = [math.log10(x) for x, _ in points]
    low, high = math.log10(0.003), math.log10(100)

    def place(x, y):
        right = MARGIN + (x - xs[0]) / (xs[-1] - xs[0]) * (WIDTH - MARGIN - 12)
        up = (min(max(y, low), high) - low) / (high - low) * (HEIGHT - MARGIN - 24)
        return left + right, HEIGHT - MARGIN - up

    parts = [f'<text x="{left + WIDTH / 2 + 16}" y="{HEIGHT - 8}" text-anchor="middle">{what}</text>']
    for power in range(-2, 3):
        x, y = place(xs[0], power)
        parts.append(f'<line x1="{x:.1f}" x2="{left + WIDTH - 12}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ccc"/>'
                     f'<text x="{x - 6:.1f}" y="{y + 4:.1f}" text-anchor="end">{10.0**power:g} s</text>')
    for value, x in ((points[0][0], xs[0]), (points[-1][0], xs[-1])):
        parts.append(f'<text x="{place(x, low)[0]:.1f}" y="{HEIGHT - MARGIN + 16}" text-anchor="middle">{value:,}</text>')
    line = [place(x, math.log10(y)) for x, (_, y) in zip(xs, points)]
    reach = min(xs[-1] - xs[0], math.log10(points[-1][1]) - low)
    ends = place(xs[-1] - reach, math.log10(points[-1][1]) - reach), line[-1]
    parts.append(f'<line x1="{ends[0][0]:.1f}" y1="{ends[0][1]:.1f}" x2="{ends[1][0]:.1f}" y2="{ends[1][1]:.1f}" '
                 'stroke="#999" stroke-dasharray="4 4"/>')
    parts.append('<polyline fill="none" stroke="#1b6ca8" stroke-width="2" points="'
                 + " ".join(f"{x:.1f},{y:.1f}" for x, y in line) + '"/>')
    parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="#1b6ca8"/>' for x, y in line]
    return "".join(parts)


def picture(measured):
    panels = "".join(panel(i * WIDTH, what, points) for i, (what, points) in enumerate(measured.items()))
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH * len(measured)} {HEIGHT}" '
            f'font-family="sans-serif" font-size="12"><rect width="100%" height="100%" fill="white"/>{panels}</svg>\n')


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("stepsim")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--out")
    arguments = parser.parse_args()
    seconds = {(what, value): [] for what, values in SERIES.items() for value in values}
    for _ in range(arguments.repeat):
        for (what, value), times in seconds.items():
            times.append(seconds_of(command(arguments.stepsim, what, value)))
    measured = {what: [(value, statistics.median(seconds[what, value])) for value in values]
                for what, values in SERIES.items()}
    lines = ["| over | value | seconds | spread | slope |", "|---|---|---|---|---|"]
    for what, points in measured.items():
        for i, (value, middle) in enumerate(points):
            times = seconds[what, value]
            slope = "" if i == 0 else f"{math.log(middle / points[i - 1][1]) / math.log(value / points[i - 1][0]):.2f}"
            lines.append(f"| {what} | {value:,} | {middle:.3f} | {min(times):.3f} to {max(times):.3f} | {slope} |")
    print("\n".join(lines))
    if arguments.out:
        out = pathlib.Path(arguments.out)
        out.write_text(REPORT.format(ranks=RANKS, steps=STEPS, buckets=BUCKETS, repeat=arguments.repeat)
                       + "\n".join(lines) + "\n", encoding="utf-8")
        out.with_suffix(".svg").write_text(picture(measured), encoding="utf-8")


if __name__ == "__main__":
    main()
