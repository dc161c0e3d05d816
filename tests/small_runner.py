"""Runs the test_… functions of a module and prints `N passed, N failed, N skipped`; and programs."""

import functools
import os
import subprocess
import tempfile
import traceback


class Skip(Exception):
    """A test raises this when it cannot run here; it counts as skipped and prints the reason."""


def run(*command, status=0, **keywords):
    """Runs a program, checks its exit status (one, or one of a tuple) and returns what has finished."""
    command = [str(word) for word in command]
    done = subprocess.run(
        command, check=False, **{"capture_output": True, "text": True, "timeout": 300, **keywords}
    )
    assert done.returncode in (status if isinstance(status, tuple) else (status,)), (
        f"{' '.join(command)}: status {done.returncode}, not {status}\n{done.stdout}{done.stderr}"
    )
    return done


def output(*command, **keywords):
    """The same; returns what it printed."""
    done = run(*command, **keywords)
    return done.stdout + done.stderr


def in_new_folder(test):
    """Makes a test run in an empty folder."""

    @functools.wraps(test)
    def wrapped():
        before = os.getcwd()
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            try:
                test()
            finally:
                os.chdir(before)

    return wrapped


def main(names):
    passed = failed = skipped = 0
    for name, test in list(names.items()):
        if not name.startswith("test_"):
            continue
        try:
            test()
            passed += 1
        except Skip as reason:
            print(f"SKIPPED: {name}: {reason}")
            skipped += 1
        except Exception:  # pylint: disable=broad-except  (a test may fail in any way)
            print(f"FAILED: {name}")
            traceback.print_exc()
            failed += 1
    print(f"{passed} passed, {failed} failed, {skipped} skipped", flush=True)
    return 1 if failed else 0
