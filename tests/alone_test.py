"""Checks that sources include what they use: each is parsed alone, with its own flags and without a
precompiled header.

usage: alone_test.py BUILD_FOLDER some|all COMPILER…
The tests build each library as one file, in which a source also sees what its neighbours include;
`meson setup build` does not. `all` takes minutes. `some` are those in which, by reading alone, a name
seems to come from nowhere (missing_names.py), those that changed last, and some of all others: which
ones, the commit says.
"""

import pathlib
import shutil
import subprocess
import sys

import missing_names
import parsing
import small_runner

BUILD = pathlib.Path(sys.argv[1]).resolve()
SOME_OR_ALL, *COMPILER = sys.argv[2:]
CHANGED = 6
BY_TURNS = 4


def git(*arguments):
    """Lines of git's answer; none where this is no clone or git is not installed."""
    command = ["git", "-C", str(parsing.ROOT), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return []
    return done.stdout.splitlines() if done.returncode == 0 else []


def changed_last():
    """Files that differ from the last commit, then those of the commits, the newest first."""
    return [
        *git("diff", "--name-only", "HEAD"),
        *git("ls-files", "--others", "--exclude-standard"),
        *git("log", "-100", "--format=", "--name-only"),
    ]


def some(sources):
    """Returns {why: sources} of the sources to parse."""
    chosen = {"an include seems to be missing": [*filter(sources.get, missing_names.missing_names())]}
    taken = set(sum(chosen.values(), []))
    changed = dict.fromkeys(one for one in changed_last() if one in sources and one not in taken)
    chosen["changed last"] = list(changed)[:CHANGED]
    others = sorted(set(sources) - taken - set(chosen["changed last"]))
    commit = "".join(git("rev-parse", "--short=8", "HEAD")) or "0"
    begin = int(commit, 16) % len(others)
    chosen[f"of the others, at commit {commit}"] = (others * 2)[begin : begin + BY_TURNS]
    return chosen


def test_each_source_includes_what_it_uses():
    if shutil.which(COMPILER[0]) is None:
        raise small_runner.Skip(f"{COMPILER[0]} is not installed")
    sources = parsing.sources(BUILD)
    assert len(sources) >= 400, len(sources)
    chosen = {"all": sorted(sources)} if SOME_OR_ALL == "all" else some(sources)
    for why, names in chosen.items():
        listed = "" if why == "all" else ": " + " ".join(names)
        print(f"{why}: {len(names)} of {len(sources)} sources{listed}")
    files = [(parsing.ROOT / name, sources[name]) for names in chosen.values() for name in names]
    failed = parsing.parse_all(COMPILER, BUILD, files)
    assert not failed, "\n".join(failed)


if __name__ == "__main__":
    sys.exit(small_runner.main(globals()))
