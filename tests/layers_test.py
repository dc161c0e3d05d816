"""Checks that include lines follow the layers.

costmodel includes none of the others; sim and calibrate never include each other; each library is
seen only where the design allows it. Prints `N passed, N failed, N skipped`.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
INCLUDE = re.compile(r'^\s*#include\s+[<"]([^>"]+)[>"]', re.MULTILINE)

# Folder -> prefixes of project headers it must not include.
FORBIDDEN = {
    "costmodel": ("sim/", "calibrate/", "tests/"),
    "sim": ("calibrate/", "tests/"),
    "calibrate": ("sim/", "tests/"),
}

# Library header prefix -> folders (or files) that may include it.
LIBRARIES = {
    "boost/": ("sim/cli/", "calibrate/cli/", "costmodel/terminal/command_parser"),
    "gloo/": ("calibrate/cpu/",),
    "Eigen/": ("calibrate/cpu/", "calibrate/fit/", "sim/batching/algorithms/sparse_nnls"),
    "toml++/": ("sim/scenario/",),
    "zlib.h": ("costmodel/io/",),
    "cuda": ("calibrate/cuda/",),
    "cublas": ("calibrate/cuda/",),
    "cudnn": ("calibrate/cuda/",),
    "nccl": ("calibrate/cuda/",),
}


def sources(folder):
    for path in sorted((ROOT / folder).rglob("*")):
        if path.suffix in (".h", ".cpp", ".cu", ".cuh"):
            yield path


def main():
    failures = []
    checked = 0
    for folder, forbidden in FORBIDDEN.items():
        for path in sources(folder):
            name = path.relative_to(ROOT).as_posix()
            text = path.read_text(encoding="utf-8")
            if path.suffix == ".h" and not text.startswith("#pragma once"):
                failures.append(f"{name}: does not start with #pragma once")
            for include in INCLUDE.findall(text):
                checked += 1
                if include.startswith(forbidden):
                    failures.append(f"{name}: includes {include}")
                for library, allowed in LIBRARIES.items():
                    if include.startswith(library) and not name.startswith(allowed):
                        failures.append(f"{name}: includes {include}, allowed in {allowed}")
    for failure in failures:
        print(failure)
    if checked == 0:
        failures.append("nothing was checked")
    print(f"{0 if failures else 1} passed, {len(failures)} failed, 0 skipped")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
