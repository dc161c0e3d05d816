#!/usr/bin/env python3
"""Is the time of commands linear in ranks, steps, buckets, samples, policies and points?

usage: scaling.py STEPSIM [--repeat N] [--large] [--out tests/bench/SCALING.md]

Runs whole commands on growing cases, all series by turns, and takes the median of the processor time; with --large four jobs
of 65,536 ranks once, too. Writes a table and, beside it, a picture (SCALING.svg) with the slope of each series on logarithmic
axes: 1 is linear.
"""

import argparse
import math
import pathlib
import resource
import statistics
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SCENARIOS = ROOT / "scenarios"
RANKS, STEPS, BUCKETS = 64, 100, 12
SERIES = {
    "ranks": [64 << shift for shift in range(0, 11, 2)],
    "steps": [100 * 4**power for power in range(0, 6)],
    "buckets": [12 * 2**power for power in range(0, 8)],
    "samples": [48_000 * 4**power for power in range(0, 4)],
    "policies": [2 * 2**power for power in range(0, 7)],
    "points": [8 * 4**power for power in range(0, 4)],
}
LARGE = {  # 65,536 ranks, 100 steps.
    "jitter": [],
    "jitter, a loader with two workers": ["data.workers=2", 'data.loading={batch="20 ms"}'],
    "jitter, accumulation over 4": ["ddp.accumulation_steps=4", "ddp.no_sync=true"],
    "jitter, FSDP2": ['parallel.kind="fsdp2"'],
}
WIDTH, HEIGHT, MARGIN = 300, 240, 46
REPORT = """# How does the time of a command grow?

Processor time of whole commands on variants of [engines_step.toml](../../scenarios/engines_step.toml) with a jitter of 3 %, so that all
draws of the noise are played: `stepsim run` over ranks ({steps} steps, {buckets} buckets), over steps ({ranks} ranks, {buckets} buckets) and over buckets
({ranks} ranks, {steps} steps); `stepsim compare` over samples ([batching_libraries.toml](../../scenarios/batching_libraries.toml), two of its policies) and over policies
(8 ranks, {steps} steps), `stepsim sweep` over points (bucket caps, 8 ranks, {steps} steps).
{runs} Large runs play fewer draws of the noise: at most 150 million steps of a rank, and at least 20 draws.
The slope is that from the row above on logarithmic axes: 1 is linear, less is better.

![Seconds over ranks, steps, buckets, samples, policies and points on logarithmic axes](SCALING.svg)

```
meson setup build && ninja -C build
python3 tests/bench/scaling.py build/sim/stepsim --out tests/bench/SCALING.md
```

"""


def step_settings(ranks=8, steps=STEPS, buckets=BUCKETS, extra=()):
    settings = [f"cluster.ranks={ranks}", f"data.samples={ranks * steps}", "cluster.jitter=0.03",
                f"model.layers={buckets}", f"model.block_elements={7_077_888 * BUCKETS // buckets}", *extra]
    return ["--steps", str(steps), "--quiet", *[word for one in settings for word in ("--set", one)]]


def with_policies(folder, count):
    """A scenario with so many policies."""
    path = pathlib.Path(folder) / f"policies{count}.toml"
    text = (SCENARIOS / "engines_step.toml").read_text(encoding="utf-8").split("[[policy]]")[0]
    for number in range(count):
        text += f'[[policy]]\nname = "p{number}"\nkind = "fixed"\nbatch_size = {1 + number % 4}\n\n'
    path.write_text(text, encoding="utf-8")
    return str(path)


def first_two_libraries(folder):
    path = pathlib.Path(folder) / "libraries.toml"
    text = (SCENARIOS / "batching_libraries.toml").read_text(encoding="utf-8").replace(
        'histogram = "', f'histogram = "{SCENARIOS}/').replace('profile = "', f'profile = "{SCENARIOS}/')
    path.write_text("[[policy]]".join(text.split("[[policy]]")[:3]), encoding="utf-8")
    return str(path)


def command(stepsim, what, value, folder):
    one = str(SCENARIOS / "engines_step.toml")
    if what == "samples":
        return [stepsim, "compare", first_two_libraries(folder), "--set", f"data.samples={value}", "--quiet",
                "--json", "/dev/null"]
    if what == "policies":
        return [stepsim, "compare", with_policies(folder, value), *step_settings(extra=[f"data.samples={3200}"]),
                "--json", "/dev/null"]
    if what == "points":
        return [stepsim, "sweep", one, "--over", f"ddp.bucket_cap=1MiB..{value}MiB:+1MiB", "--set",
                'ddp.bucket_rule="pytorch"', *step_settings(), "--json", "/dev/null"]
    return [stepsim, "run", one, *step_settings(**{"ranks": RANKS, what: value}), "--json", "/dev/null"]


def large_command(stepsim, extra):
    return [stepsim, "run", str(SCENARIOS / "engines_step.toml"), *step_settings(65_536, 100, extra=extra),
            "--json", "/dev/null"]


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
    panels = "".join(f'<g transform="translate(0 {i // 3 * HEIGHT})">{panel(i % 3 * WIDTH, what, points)}</g>'
                     for i, (what, points) in enumerate(measured.items()))
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH * 3} {HEIGHT * 2}" '
            f'font-family="sans-serif" font-size="12"><rect width="100%" height="100%" fill="white"/>{panels}</svg>\n')


def large_cases(stepsim):
    lines = ["", "65,536 ranks and 100 steps, once each:", "", "| job | seconds | wall, seconds | memory, MiB |",
             "|---|---|---|---|"]
    for what, extra in LARGE.items():
        run = ["/usr/bin/time", "-f", "%U %S %e %M", *large_command(stepsim, extra)]
        done = subprocess.run(run, check=True, capture_output=True, text=True)
        user, system, wall, kib = map(float, done.stderr.splitlines()[-1].split())
        lines.append(f"| {what} | {user + system:.1f} | {wall:.1f} | {kib / 1024:,.0f} |")
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("stepsim")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--large", action="store_true")
    parser.add_argument("--out")
    arguments = parser.parse_args()
    seconds = {(what, value): [] for what, values in SERIES.items() for value in values}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(arguments.repeat):
            for (what, value), times in seconds.items():
                times.append(seconds_of(command(arguments.stepsim, what, value, folder)))
    measured = {what: [(value, statistics.median(seconds[what, value])) for value in values]
                for what, values in SERIES.items()}
    lines = ["| over | value | seconds | spread | slope |", "|---|---|---|---|---|"]
    for what, points in measured.items():
        for i, (value, middle) in enumerate(points):
            times = seconds[what, value]
            slope = "" if i == 0 else f"{math.log(middle / points[i - 1][1]) / math.log(value / points[i - 1][0]):.2f}"
            lines.append(f"| {what} | {value:,} | {middle:.3f} | {min(times):.3f} to {max(times):.3f} | {slope} |")
    lines += large_cases(arguments.stepsim) if arguments.large else []
    print("\n".join(lines))
    if arguments.out:
        out = pathlib.Path(arguments.out)
        many = f"Medians of {arguments.repeat} runs that took turns."
        runs = "Each was run once." if arguments.repeat == 1 else many
        out.write_text(REPORT.format(ranks=RANKS, steps=STEPS, buckets=BUCKETS, runs=runs)
                       + "\n".join(lines) + "\n", encoding="utf-8")
        out.with_suffix(".svg").write_text(picture(measured), encoding="utf-8")


if __name__ == "__main__":
    main()
