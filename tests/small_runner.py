"""Runs the test_… functions of a module and prints `N passed, N failed, N skipped`."""

import traceback


class Skip(Exception):
    """A test raises this when it cannot run here; it counts as skipped and prints the reason."""


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
