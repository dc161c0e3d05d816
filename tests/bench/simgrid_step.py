#!/usr/bin/env python3
"""One training step in Stepsim and in SimGrid, side by side: do they agree, and how long do they take?

usage: simgrid_step.py STEPSIM [--ranks 8,16,…] [--repeat N] [--out tests/bench/SIMGRID.md]

Needs SimGrid (apt-get install libsimgrid-dev) and a compiler. Whole commands take turns, A B A B; the
table has medians and the spread of processor time.
"""

import argparse
import json
import pathlib
import resource
import shutil
import statistics
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SCENARIO = ROOT / "scenarios" / "engines_step.toml"
STEPS = 10
REPORT = """# The same training step in SimGrid

Ten steps of [engines_step.toml](../../scenarios/engines_step.toml): 12 layers, a bucket of 27 MiB each, a ring at 100 GB/s and 2 us a hop,
ranks up to 20 % slower. [simgrid_step.cpp](simgrid_step.cpp) plays it with SimGrid's S4U (network model CM02), which sends each of the 2 (n - 1) messages of
a rank in each of the 120 all-reduces; Stepsim prices an all-reduce as a whole. Both say when the last step ends. Seconds are of processor
time of whole commands that took turns, median and spread of {repeat} (of one from 1,024 ranks on). `stepsim run` also plays 200 draws of the
costs' errors and writes a row for each rank and step, which SimGrid's program does not.

```
apt-get install libsimgrid-dev
meson setup build && ninja -C build
python3 tests/bench/simgrid_step.py build/sim/stepsim --out tests/bench/SIMGRID.md
```

"""


def processor_seconds(command):
    """Runs a command; returns its output and the processor time of it alone."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return done.stdout, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def stepsim_end_ms(text):
    rows = json.loads(text)["predictions"][0]["steps"]
    return max(row["start_ms"] + row["step_ms"] for row in rows)


def spread(seconds):
    middle = statistics.median(seconds)
    text = f"{middle:.3f}" if middle < 10 else f"{middle:.0f}"
    return text if len(seconds) == 1 else f"{text} ({min(seconds):.3f} to {max(seconds):.3f})"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("stepsim")
    parser.add_argument("--ranks", default="8,16,64,256,1024")
    parser.add_argument("--repeat", type=int, default=7)
    parser.add_argument("--out")
    arguments = parser.parse_args()
    compiler = shutil.which("g++") or shutil.which("clang++")
    if compiler is None or not pathlib.Path("/usr/include/simgrid/s4u.hpp").exists():
        raise SystemExit("simgrid_step.py: needs g++ and SimGrid: apt-get install g++ libsimgrid-dev")
    lines = ["| ranks | Stepsim ms | SimGrid ms | difference | Stepsim s | SimGrid s | ratio |",
             "|---|---|---|---|---|---|---|"]
    print("\n".join(lines), flush=True)
    with tempfile.TemporaryDirectory() as folder:
        program = f"{folder}/simgrid_step"
        subprocess.run([compiler, "-O2", "-std=c++20", str(ROOT / "tests/bench/simgrid_step.cpp"), "-o", program,
                        "-lsimgrid"], check=True)
        for ranks in (int(text) for text in arguments.ranks.split(",")):
            run = [arguments.stepsim, "run", str(SCENARIO), "--set", f"cluster.ranks={ranks}",
                   "--set", f"data.samples={ranks * STEPS}", "--json", "-"]
            commands = {"stepsim": run, "simgrid": [program, str(ranks), str(STEPS)]}
            seconds = {name: [] for name in commands}
            for _ in range(arguments.repeat if ranks < 1024 else 1):
                for name, command in commands.items():
                    text, used = processor_seconds(command)
                    seconds[name].append(used)
                    if name == "simgrid":
                        theirs = 1e3 * float(text)
                    else:
                        ours = stepsim_end_ms(text)
            ratio = statistics.median(seconds["simgrid"]) / statistics.median(seconds["stepsim"])
            lines.append(
                f"| {ranks} | {ours:.3f} | {theirs:.3f} | {100 * (ours / theirs - 1):+.4f} % "
                f"| {spread(seconds['stepsim'])} | {spread(seconds['simgrid'])} | {ratio:.0f} |")
            print(lines[-1], flush=True)
    if arguments.out:
        pathlib.Path(arguments.out).write_text(
            REPORT.format(repeat=arguments.repeat) + "\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
