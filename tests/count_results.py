"""Adds up the test cases of all test programs from Meson's logs and prints them as the last line.

A program reports its cases by doctest's summary line plus `stepsim-skipped: N` (cases that could
not do what they are for, with the reason printed), or by a line `N passed, N failed, N skipped` (or
`unsupported`). One that reports nothing counts as one case, passed or failed by its exit status.
"""

import json
import re
import sys

DOCTEST = re.compile(r"\[doctest\] test cases: +(\d+) \| +(\d+) passed \| +(\d+) failed")
OWN_SKIPS = re.compile(r"^stepsim-skipped: (\d+)$", re.MULTILINE)
PLAIN = re.compile(r"^(\d+) passed, (\d+) failed, (\d+) (?:skipped|unsupported)$", re.MULTILINE)


def count(result):
    """Returns (passed, failed, skipped) of one program's log entry."""
    output = result.get("stdout") or ""
    passed = failed = skipped = 0
    for match in DOCTEST.finditer(output):
        passed += int(match.group(2))
        failed += int(match.group(3))
    for match in OWN_SKIPS.finditer(output):
        skipped += int(match.group(1))
        passed -= int(match.group(1))
    for match in PLAIN.finditer(output):
        passed += int(match.group(1))
        failed += int(match.group(2))
        skipped += int(match.group(3))
    ok = result["result"] in ("OK", "EXPECTEDFAIL")
    if result["result"] == "SKIP" and passed + failed + skipped == 0:
        return 0, 0, 1
    if passed + failed + skipped == 0:
        return (1, 0, 0) if ok else (0, 1, 0)
    if not ok and failed == 0:
        failed = 1
    return passed, failed, skipped


def main(paths):
    totals = [0, 0, 0]
    for path in paths:
        with open(path, encoding="utf-8") as log:
            for line in log:
                result = json.loads(line)
                for reason in re.findall(r"^SKIPPED: .*$", result.get("stdout") or "", re.MULTILINE):
                    print(reason)
                for i, number in enumerate(count(result)):
                    totals[i] += number
    print(f"{totals[0]} passed, {totals[1]} failed, {totals[2]} skipped")
    return 1 if totals[1] > 0 or totals[0] == 0 else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
