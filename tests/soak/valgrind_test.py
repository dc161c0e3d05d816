"""Checks that both programs begin under valgrind, without which soak/valgrind.py can look at nothing.

usage: valgrind_test.py STEPSIM STEPCAL
What is done before main(), as by the libraries that they are linked with, is looked at here, too.
"""

import pathlib
import shutil
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import small_runner  # noqa: E402  (needs the path above)

PROGRAMS = sys.argv[1:3]


def test_programs_begin():
    if shutil.which("valgrind") is None:
        raise small_runner.Skip("valgrind is not installed")
    for program in PROGRAMS:
        done = small_runner.run("valgrind", "-q", "--error-exitcode=99",
                                f"--suppressions={HERE / 'valgrind.supp'}", program, "--version")
        assert done.stderr == "", done.stderr


if __name__ == "__main__":
    sys.exit(small_runner.main(globals()))
