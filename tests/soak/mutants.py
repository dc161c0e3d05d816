#!/usr/bin/env python3
"""Plants small faults one at a time and says which of them the tests catch.

    python3 tests/soak/mutants.py choose --count 60 --seed 1 >> tests/soak/mutants.txt
    python3 tests/soak/mutants.py run FOLDER [--workers 2] [--only N…] [--likely]

The list has a fault a line: `file | line | what takes the place of its expression`, in a page's
script `file | line | the line instead`. `choose` proposes lines of sim, costmodel and calibrate with one
operator changed: a bound, a sign, a comparison, and/or, the larger/the smaller. The list is text, to
be read and mended by hand: a change that cannot matter is no fault and does not belong there.

`run` builds a copy of the sources in FOLDER into which all faults of C++ are written at once, each
behind a condition: the environment's STEPSIM_MUTANT turns one on. So there is one build; faults of
the page are built one by one. Then Meson's tests run for each fault, the most likely ones first,
until one fails; with --likely only those, so that a fault which they miss may still be caught.
Prints a table and ends with status 1 when fewer than 95 % are caught.
"""

import argparse
import concurrent.futures
import json
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
# The tests that are likeliest to see a fault of a folder; the others follow.
LIKELY = {
    "sim/batching": ["batching", "sim", "batching fixtures"],
    "sim/parallel": ["ddp", "sim"],
    "sim": ["sim", "ddp", "shipped scenarios", "stepsim command line", "stepsim studies", "stepsim buckets"],
    "sim/replay": ["replay", "sim"],
    "sim/cli": ["stepsim advise", "stepsim command line", "stepsim studies", "stepsim buckets", "report pages"],
    "sim/report": ["sim", "shipped scenarios", "report figures", "report pages", "stepsim trace", "stepsim advise"],
    "sim/report/trace": ["sim", "stepsim trace", "profiler traces"],
    "sim/report/html": ["drawn pages in a browser", "report pages", "report pages in a browser"],
    "costmodel": ["costmodel", "sim", "calibrate"],
    "costmodel/terminal": ["terminal", "programs on a terminal"],
    "calibrate/import": ["stepcal import", "stepcal import kineto", "stepcal import step-times", "planted records"],
    "calibrate": ["calibrate", "stepcal import"],
}
# They need a GPU's libraries, measure time or memory, or look at the sources and not at what they do.
UNFIT_TESTS = re.compile(r"clang|layers|faults to plant|memory of|meson install|live campaign|limits of inputs|python notebook")
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


def place_of(text, line):
    """Where the line stands, without its indentation; None when it is not there just once."""
    places = list(re.finditer(r"^[ \t]*(" + re.escape(line) + r")$", text, re.MULTILINE))
    return places[0].span(1) if len(places) == 1 else None


def stale(mutants, root=ROOT):
    """What is wrong with the faults that cannot be planted into the sources of today, a line each."""
    wrong = []
    for number, name, line, changed in mutants:
        coded = name.endswith(".cpp")
        if not (root / name).exists():
            wrong.append(f"fault {number}: there is no {name}")
        elif place_of((root / name).read_text(), line) is None:
            wrong.append(f"fault {number}: {name} does not have the line {line!r} once")
        elif coded and not STATEMENT.match(line):
            wrong.append(f"fault {number}: {line!r} is no statement with one expression")
        elif changed == (STATEMENT.match(line)[2] if coded else line):
            wrong.append(f"fault {number}: {changed!r} is what stands there")
    return wrong


def plant(copy, mutants):
    """Writes all faults of C++ into the copy; those of the page are looked for only."""
    if wrong := stale(mutants, copy):
        sys.exit("\n".join(wrong))
    (copy / "mutant.h").write_text(HELPER)
    for number, name, line, changed in mutants:
        text = (copy / name).read_text()
        place = place_of(text, line)
        if name.endswith(".cpp"):
            match = STATEMENT.match(line)
            planted = f"{match[1]}stepsim_mutant({number}) ? ({changed}) : ({match[2]}){match[3]}"
            (copy / name).write_text(text[: place[0]] + planted + text[place[1]:])


def build(folder, mutants):
    """Builds, leaving out faults that do not compile. Returns those that do."""
    copy = folder / "source"
    if copy.exists():
        shutil.rmtree(copy)
    subprocess.run(["git", "clone", "-q", str(ROOT), str(copy)], check=True)
    while True:
        subprocess.run(["git", "-C", str(copy), "checkout", "-q", "."], check=True)
        plant(copy, mutants)
        if not (copy / "build" / "build.ninja").exists():
            subprocess.run(["meson", "setup", str(copy / "build"), str(copy), "-Dunity=on", "-Dunity_size=1000",
                            "-Doptimization=1", "-Dwerror=false", "-Dbenchmarks=disabled", "-Dcuda=disabled",
                            f"-Dcpp_args=-include {copy}/mutant.h"], check=True, stdout=subprocess.DEVNULL)
        done = subprocess.run(["ninja", "-C", str(copy / "build")], capture_output=True, text=True)
        if done.returncode == 0:
            return mutants
        broken = {int(n) for n in re.findall(r"stepsim_mutant\((\d+)\)", done.stdout)}
        if not broken & {m[0] for m in mutants}:
            sys.exit(done.stdout[-3000:])
        print(f"left out, since they do not compile: {sorted(broken)}", flush=True)
        mutants = [m for m in mutants if m[0] not in broken]


class Tests:
    """The tests of the build, with their usual seconds."""

    def __init__(self, folder, workers, likely):
        self.build = folder / "source/build"  # Inside the sources, so that it finds their scenarios.
        listed = subprocess.run(["meson", "test", "-C", self.build, "--no-rebuild", "--list"], check=True,
                                capture_output=True, text=True)
        names = [line.split(" / ")[-1].strip() for line in listed.stdout.splitlines()]
        chosen = {test for tests in LIKELY.values() for test in tests} if likely else names
        self.usual = dict.fromkeys(name for name in names if name and name in chosen and not UNFIT_TESTS.search(name))
        told = subprocess.run(["meson", "introspect", "--tests", self.build], check=True, capture_output=True, text=True)
        self.by_doctest = {test["name"] for test in json.loads(told.stdout) if "/test_" in test["cmd"][0]}
        with concurrent.futures.ThreadPoolExecutor(workers) as pool:
            for name, (failed, seconds) in zip([*self.usual], pool.map(lambda n: self.fails(n, 0), [*self.usual])):
                self.usual[name] = seconds
                if failed:
                    print(f"left out, since it fails without any fault: {name}", flush=True)
                    del self.usual[name]

    def fails(self, name, number):
        """Whether a test fails, or hangs, with this fault; and seconds."""
        begin = time.monotonic()
        usual = self.usual[name]
        try:
            done = subprocess.run(
                ["prlimit", f"--data={8 << 30}", "meson", "test", "-C", self.build, "--no-rebuild",
                 "--timeout-multiplier", "40", "--logbase", f"mutant{number}",
                 *(["--test-args=--abort-after=1"] if name in self.by_doctest else []), name],
                env=dict(os.environ, STEPSIM_MUTANT=str(number), STEPSIM_DATA=os.environ.get(
                    "STEPSIM_DATA", str(ROOT.parent / "shared/data"))),
                timeout=None if usual is None else 60 + 10 * usual, stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL)
            return done.returncode != 0, time.monotonic() - begin
        except subprocess.TimeoutExpired:
            return True, time.monotonic() - begin

    def catch(self, mutant):
        """The first test that fails with the fault, and seconds; None when none does."""
        number, name, _, _ = mutant
        begin = time.monotonic()
        folders = sorted((f for f in LIKELY if name.startswith(f + "/")), key=len, reverse=True)
        first = [test for f in folders for test in LIKELY[f]]
        rest = sorted(self.usual, key=self.usual.get)
        for test in dict.fromkeys([*first, *rest]):
            if test in self.usual and self.fails(test, number)[0]:
                return test, time.monotonic() - begin
        return None, time.monotonic() - begin


def catch_on_page(folder, tests, mutant):
    """The same for a fault of the page's script: it is built in, and taken out again."""
    _, name, line, changed = mutant
    path = folder / "source" / name
    text = path.read_text()
    place = place_of(text, line)
    path.write_text(text[: place[0]] + changed + text[place[1]:])
    subprocess.run(["ninja", "-C", tests.build, "sim/stepsim"], check=True, stdout=subprocess.DEVNULL)
    try:
        for test in (*LIKELY["sim/report/html"], "report figures"):
            if test in tests.usual and tests.fails(test, 0)[0]:
                return test, 0.0
        return None, 0.0
    finally:
        path.write_text(text)


def run(folder, workers, only, likely):
    folder.mkdir(parents=True, exist_ok=True)
    folder = folder.resolve()
    mutants = build(folder, read_list())
    mutants = [m for m in mutants if not only or m[0] in only]
    tests = Tests(folder, workers, likely)
    missed = 0

    def report(mutant, caught, seconds):
        nonlocal missed
        number, name, line, changed = mutant
        missed += caught is None
        print(f"{number:>3} {caught or 'MISSED':<26} {seconds:>6.0f} s  {name}", flush=True)
        if caught is None:
            print(f"      {line}\n      -> {changed}", flush=True)

    coded = [m for m in mutants if m[1].endswith(".cpp")]
    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        for mutant, result in zip(coded, pool.map(tests.catch, coded)):
            report(mutant, *result)
    for mutant in mutants:
        if mutant not in coded:
            report(mutant, *catch_on_page(folder, tests, mutant))
    subprocess.run(["ninja", "-C", tests.build], check=True, stdout=subprocess.DEVNULL)
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
    ran.add_argument("--likely", action="store_true")
    arguments = parser.parse_args()
    if arguments.command == "choose":
        choose(arguments.count, arguments.seed)
        return 0
    return run(arguments.folder, arguments.workers, arguments.only, arguments.likely)


if __name__ == "__main__":
    sys.exit(main())
