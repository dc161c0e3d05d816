"""Checks that include lines follow the layers, and that folders stay small.

Each folder may include itself and the folders listed above it, nothing below: so no include points
up, and there is no circle. Each library is seen only where the design allows it.
Prints `N passed, N failed, N skipped`.
"""

import collections
import pathlib
import re
import sys

import small_runner

ROOT = pathlib.Path(__file__).resolve().parent.parent
INCLUDE = re.compile(r'^\s*#include\s+[<"]([^>"]+)[>"]', re.MULTILINE)
SOURCES = (".h", ".cpp", ".cu", ".cuh")
OTHER_SOURCES = (".js", ".css", ".html", ".py")  # They count as nouns, too.

# From the bottom up. sim and calibrate stand beside each other.
COSTMODEL = [
    "costmodel/base",
    "costmodel/io",
    "costmodel/architecture",
    "costmodel/model",
    "costmodel/compute",
    "costmodel/network",
    "costmodel/records",
    "costmodel/terminal",
]
SIM = [
    "sim/batching/random",
    "sim/batching/algorithms",
    "sim/batching",
    "sim/batching/policies",
    "sim/engine",
    "sim/parallel",
    "sim/parallel/ddp",
    "sim/parallel/ddp/hooks",
    "sim/parallel/fsdp2",
    "sim/parallel/fsdp1",
    "sim/parallel/zero",
    "sim/parallel/fsdp",
    "sim/scenario",
    "sim/predict",
    "sim/points",
    "sim/study/training",
    "sim/study/starter",
    "sim/study",
    "sim/study/tune",
    "sim/study/diff",
    "sim/replay",
    "sim/report",
    "sim/report/sweep",
    "sim/report/tune",
    "sim/report/advice",
    "sim/report/diff",
    "sim/report/validation",
    "sim/report/buckets",
    "sim/report/trace",
    "sim/report/html",
    "sim/ask",
    "sim/cli",
    "sim/cli/points",
    "sim/mpi",
]
CALIBRATE = [
    "calibrate/samples",
    "calibrate/ranks",
    "calibrate/measure",
    "calibrate/cpu",
    "calibrate/cuda/device",
    "calibrate/cuda/kernels",
    "calibrate/cuda/attention",
    "calibrate/cuda/collectives",
    "calibrate/cuda/ops",
    "calibrate/cuda/timing",
    "calibrate/cuda",
    "calibrate/fit",
    "calibrate/import/nccl",
    "calibrate/import",
    "calibrate/import/recorded",
    "calibrate/import/kineto",
    "calibrate/import/torch_records",
    "calibrate/import/step_times",
    "calibrate/export",
    "calibrate/cli",
    "calibrate",
]

# What is made of both: the program, the library and the Python package, which hand calibrate's fits to sim.
COMPOSED = COSTMODEL + CALIBRATE + SIM + ["sim", "sim/library", "sim/python"]

# Library header prefix -> folders (or files) that may include it.
LIBRARIES = {
    "boost/": ("costmodel/terminal/command_parser.cpp", "costmodel/base/quantile.cpp", "sim/predict/draws/noise"),
    "gloo/": ("calibrate/cpu/",),
    "Eigen/": ("calibrate/fit/", "sim/batching/algorithms/sparse_nnls"),
    "simdjson": ("costmodel/io/", "calibrate/import/kineto/"),
    "toml++/": ("sim/scenario/",),
    "zlib.h": ("costmodel/io/",),
    "cuda": ("calibrate/cuda/",),
    "cublas": ("calibrate/cuda/",),
    "cudnn": ("calibrate/cuda/",),
    "nccl": ("calibrate/cuda/",),
    "mpi.h": ("sim/mpi/",),
    "pybind11/": ("sim/python/",),
}

# A noun is a header with its sources. Folders of rows of one kind may hold more.
MOST_NOUNS = 20
ROWS_OF_ONE_KIND = ("sim/batching/policies", "sim/cli", "calibrate/cuda/kernels")


def sources():
    for top in ("costmodel", "sim", "calibrate"):
        for path in sorted((ROOT / top).rglob("*")):
            if path.suffix in SOURCES:
                yield path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")


# Rooms that are a part of another one: predict() plays a run, and draws of it.
PART_OF = {"sim/predict/draws": "sim/predict", "sim/predict/run": "sim/predict"}


def below(folder):
    """The folders that files of `folder` may include."""
    folder = PART_OF.get(folder, folder)
    for stack in (COSTMODEL, COSTMODEL + SIM, COSTMODEL + CALIBRATE, COMPOSED):
        if folder in stack:
            return set(stack[: stack.index(folder) + 1])
    raise AssertionError(f"{folder}/ is in no layer: add it to tests/layers_test.py")


def test_an_include_never_points_up():
    checked = 0
    wrong = []
    for name, text in sources():
        allowed = below(name.rpartition("/")[0])
        for include in INCLUDE.findall(text):
            if (ROOT / include).exists():
                checked += 1
                inside = include.rpartition("/")[0]
                if PART_OF.get(inside, inside) not in allowed:
                    wrong.append(f"{name} includes {include}")
    assert checked > 1000, checked
    assert not wrong, "\n".join(wrong)


def test_each_library_is_seen_where_the_design_allows_it():
    wrong = []
    for name, text in sources():
        for include in INCLUDE.findall(text):
            for library, allowed in LIBRARIES.items():
                if include.startswith(library) and not name.startswith(allowed):
                    wrong.append(f"{name} includes {include}, allowed in {allowed}")
    assert not wrong, "\n".join(wrong)


def test_every_header_is_included_once():
    wrong = [name for name, text in sources()
             if name.endswith(".h") and not text.startswith("#pragma once")]
    assert not wrong, f"no #pragma once at the start of {wrong}"


def nouns(names):
    """A source belongs to the header or script whose name its own begins with."""
    headers = {pathlib.PurePath(name).stem for name in names if name.endswith((".h", ".cuh"))}
    stems = {pathlib.PurePath(name).stem for name in names}
    alone = {stem for stem in stems - headers
             if not any(stem.startswith(other + "_") for other in stems)}
    return headers | alone


def test_no_folder_is_a_heap():
    folders = collections.defaultdict(list)
    for top in ("costmodel", "sim", "calibrate"):
        for path in (ROOT / top).rglob("*"):
            if path.suffix in SOURCES + OTHER_SOURCES:
                name = path.relative_to(ROOT).as_posix()
                folders[name.rpartition("/")[0]].append(name)
    crowded = {folder: len(nouns(names)) for folder, names in folders.items()
               if folder not in ROWS_OF_ONE_KIND and len(nouns(names)) > MOST_NOUNS}
    assert not crowded, f"more than {MOST_NOUNS} nouns: {crowded}"


def types_of(path):
    """The types that a file defines, as (namespace, name), but for those of a namespace without a name."""
    found, namespaces = set(), []
    for line in path.read_text(encoding="utf-8").splitlines():
        if opened := re.match(r"(?:inline )?namespace ?([\w:]*) ?\{", line):
            namespaces.append(opened[1])
        elif line.startswith("}  // namespace") and namespaces:
            namespaces.pop()
        elif all(namespaces) and (named := re.match(r"(?:struct|class|enum class) (\w+)\b(?!::)[^;]*\{", line)):
            found.add(("::".join(namespaces), named[1]))
    return found


def test_no_type_is_defined_twice():
    """What links both would take the members of one, and its destructor, for those of the other."""
    files = collections.defaultdict(list)
    for top in ("costmodel", "sim", "calibrate"):
        for path in (ROOT / top).rglob("*"):
            if path.suffix in SOURCES + OTHER_SOURCES:
                for named in types_of(path):
                    files[named].append(path.relative_to(ROOT).as_posix())
    twice = {named: paths for named, paths in files.items() if len(paths) > 1}
    assert len(files) > 500, len(files)
    assert not twice, twice


if __name__ == "__main__":
    sys.exit(small_runner.main(globals()))
