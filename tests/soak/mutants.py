#!/usr/bin/env python3
"""Plants small faults one at a time and says which of them the tests catch.

    python3 tests/soak/mutants.py choose --count 60 --seed 1 > tests/soak/mutants.txt
    python3 tests/soak/mutants.py run FOLDER [--workers 2] [--only N…]

`choose` picks lines of sim, costmodel and calibrate and changes one operator in each: a bound, a
sign, a comparison, and/or, the larger/the smaller. The list is text, to be read and mended by hand:
a change that cannot matter is no fault and does not belong there.

`run` builds a copy of the sources in FOLDER into which all faults of the list are written at once,
each behind a condition: the environment's STEPSIM_MUTANT turns one on. So there is one build. The
test programs then run for each fault, the most likely ones first, until one fails. Prints a table
and ends with status 1 when fewer than 95 % are caught.
"""

import argparse
import concurrent.futures
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
LIST = HERE / "mutants.txt"
SWAPS = [
    (" < ", " <= "), (" <= ", " < "), (" > ", " >= "), (" >= ", " > "), (" == ", " != "), (" != ", " == "),
    (" && ", " || "), (" || ", " && "), (" + ", " - "), (" - ", " + "), (" * ", " / "), (" / ", " * "),
    ("std::max(", "std::min("), ("std::min(", "std::max("), (" + 1", ""), (" - 1", ""),
]  # fmt: skip
STATEMENT = re.compile(r"^(\s*(?:\} else )?if \(|\s*while \(|\s*return |\s*[\w.\[\]>()-]+ [+*-]?= )(.+?)(\) \{|;)$")
UNFIT = re.compile(r'"|\'|constexpr|//|<[\w:]+>|\{|\[&|\[=|Eigen|: \(|const ')
SKIPPED = re.compile(r"/(html|terminal|cuda|python|mpi|cli|torch)/|report|plot|_names|main\.cpp|catalog|blame")
PROGRAMS = {
    "sim/batching": ["sim/batching/test_batching", "sim/test_sim"],
    "sim/ddp": ["sim/ddp/test_ddp", "sim/test_sim"],
    "sim": ["sim/test_sim", "sim/ddp/test_ddp"],
    "costmodel": ["costmodel/test_costmodel", "sim/test_sim", "calibrate/test_calibrate"],
    "calibrate": ["calibrate/test_calibrate"],
}
HELPER = """#pragma once
#include <cstdlib>
inline bool stepsim_mutant(int number) {
  static const int chosen = [] {
    const char* const text = std::getenv("STEPSIM_MUTANT");
    return text == nullptr ? 0 : std::atoi(text);
  }();
  return chosen == number;
}
"""


def sources():
    names = subprocess.run(["git", "ls-files", "sim/**.cpp", "costmodel/**.cpp", "calibrate/**.cpp"], cwd=ROOT,
                           check=True, capture_output=True, text=True).stdout.split()
    return [name for name in names if not SKIPPED.search("/" + name)]


def choose(count, seed):
    """At most two faults of a file, as `file | old line | new expression`."""
    rng = random.Random(seed)
    found = {}
    for name in sources():
        lines = (ROOT / name).read_text().split("\n")
        for line in lines:
            match = STATEMENT.match(line)
            if not match or UNFIT.search(line) or lines.count(line) > 1:
                continue
            expression = match[2]
            if expression.count("(") != expression.count(")"):
                continue
            options = [(old, new, m.start()) for old, new in SWAPS for m in re.finditer(re.escape(old), expression)]
            if options:
                old, new, at = rng.choice(options)
                changed = expression[:at] + new + expression[at + len(old):]
                found.setdefault(name, []).append((line.strip(), changed))
    pool = [(name, *one) for name, all_of in found.items() for one in rng.sample(all_of, min(2, len(all_of)))]
    for name, line, changed in sorted(rng.sample(pool, count)):
        print(f"{name} | {line} | {changed}")


def read_list():
    mutants = []
    for number, text in enumerate(LIST.read_text().splitlines(), 1):
        if text and not text.startswith("#"):
            mutants.append((number, *text.split(" | ")))
    return mutants


def plant(copy, mutants):
    """Writes all faults into the copy."""
    (copy / "mutant.h").write_text(HELPER)
    for number, name, line, changed in mutants:
        path = copy / name
        text = path.read_text()
        place = re.search(r"^\s*" + re.escape(line) + r"$", text, re.MULTILINE)
        if not place:
            sys.exit(f"mutant {number}: {name} has no line {line!r} any more")
        match = STATEMENT.match(place[0].lstrip("\n"))
        planted = f"{match[1]}stepsim_mutant({number}) ? ({changed}) : ({match[2]}){match[3]}"
        path.write_text(text[: place.start()] + planted + text[place.end():])


def build(folder, mutants):
    """Builds, leaving out faults that do not compile. Returns those that do."""
    copy = folder / "source"
    while True:
        if copy.exists():
            shutil.rmtree(copy)
        subprocess.run(["git", "clone", "-q", str(ROOT), str(copy)], check=True)
        plant(copy, mutants)
        if not (folder / "build" / "build.ninja").exists():
            subprocess.run(["meson", "setup", str(folder / "build"), str(copy), "-Dunity=on", "-Dunity_size=1000",
                            "-Doptimization=1", "-Dwerror=false", "-Dbenchmarks=disabled",
                            *(f"-D{part}=disabled" for part in ("cuda", "python", "html", "mpi")),
                            f"-Dcpp_args=-include {copy}/mutant.h"], check=True, stdout=subprocess.DEVNULL)
        programs = sorted({f"tests/{p}" for all_of in PROGRAMS.values() for p in all_of})
        done = subprocess.run(["ninja", "-C", str(folder / "build"), *programs, "sim/stepsim", "calibrate/stepcal"],
                              capture_output=True, text=True)
        if done.returncode == 0:
            return mutants
        broken = {int(n) for n in re.findall(r"stepsim_mutant\((\d+)\)", done.stdout)}
        if not broken & {m[0] for m in mutants}:
            sys.exit(done.stdout[-3000:])
        print(f"left out, since they do not compile: {sorted(broken)}", flush=True)
        mutants = [m for m in mutants if m[0] not in broken]


def test(folder, mutant):
    """The name of the first program that catches the fault, and seconds; None when none does."""
    number, name, _, _ = mutant
    begin = time.monotonic()
    folders = sorted((f for f in PROGRAMS if name.startswith(f + "/")), key=len, reverse=True)
    first = [p for f in folders for p in PROGRAMS[f]]
    rest = [p for all_of in PROGRAMS.values() for p in all_of]
    environment = dict(os.environ, STEPSIM_MUTANT=str(number))
    programs = [[str(folder / "build/tests" / p)] for p in dict.fromkeys(first + rest)]
    golden = [sys.executable, str(folder / "source/tests/golden_test.py"), str(folder / "build/sim/stepsim")]
    for command in [*programs, golden]:
        try:
            done = subprocess.run(["prlimit", "--as=8589934592", *command], env=environment, cwd=folder / "source", timeout=400,
                                  stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            caught = done.returncode != 0
        except subprocess.TimeoutExpired:
            caught = True
        if caught:
            return pathlib.Path(command[-1] if command is not golden else "golden").name, time.monotonic() - begin
    return None, time.monotonic() - begin


def run(folder, workers, only):
    folder.mkdir(parents=True, exist_ok=True)
    mutants = build(folder.resolve(), read_list())
    mutants = [m for m in mutants if not only or m[0] in only]
    clean = test(folder.resolve(), (0, "sim/x", "", ""))
    if clean[0]:
        sys.exit(f"{clean[0]} fails without any fault")
    missed = 0
    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        for mutant, (caught, seconds) in zip(mutants, pool.map(lambda m: test(folder.resolve(), m), mutants)):
            number, name, line, changed = mutant
            missed += caught is None
            print(f"{number:>3} {caught or 'MISSED':<16} {seconds:>6.0f} s  {name}", flush=True)
            if caught is None:
                print(f"      {line}\n      -> {changed}", flush=True)
    share = 1 - missed / max(1, len(mutants))
    print(f"{len(mutants)} faults, {len(mutants) - missed} caught ({100 * share:.0f} %), {missed} missed")
    return 0 if share >= 0.95 else 1


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    chosen = commands.add_parser("choose")
    chosen.add_argument("--count", type=int, default=60)
    chosen.add_argument("--seed", type=int, default=1)
    ran = commands.add_parser("run")
    ran.add_argument("folder", type=pathlib.Path)
    ran.add_argument("--workers", type=int, default=2)
    ran.add_argument("--only", type=int, nargs="*", default=[])
    arguments = parser.parse_args()
    if arguments.command == "choose":
        choose(arguments.count, arguments.seed)
        return 0
    return run(arguments.folder, arguments.workers, arguments.only)


if __name__ == "__main__":
    sys.exit(main())
