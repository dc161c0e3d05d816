"""Runs the commands of the READMEs as printed, and checks that every shipped scenario is listed.

usage: docs_test.py PATH_OF_STEPSIM
"""

import collections
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

import small_runner

ROOT = pathlib.Path(__file__).resolve().parent.parent
STEPSIM = os.path.abspath(sys.argv[1])
# The commands write into this folder; the scenarios lie beside it, as a reader has them.
FOLDER = tempfile.TemporaryDirectory()
os.symlink(ROOT / "scenarios", pathlib.Path(FOLDER.name) / "scenarios")

RAN = set()  # Pages share some commands.

# golden_test.py runs these.
ELSEWHERE = re.compile(r"stepsim compare scenarios/\S+$|stepsim ladder scenarios/ladders.toml ")


def commands(path):
    """Returns the stepsim commands in `…` and in blocks that need only shipped files."""
    text = (ROOT / path).read_text(encoding="utf-8")
    blocks = "".join(re.findall(r"```\n(.*?)```", text, re.DOTALL))
    found = [line.split("#")[0].strip() for line in blocks.splitlines()]
    spans = re.findall(r"`([^`]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))
    found += [" ".join(span.split()) for span in spans]
    # Other commands need a live run or a recording, which other tests make.
    whole = re.compile(r"stepsim (policies|models|profiles)$|stepsim \w+ scenarios/[^…|]*$")
    chosen = [one for one in dict.fromkeys(found) if whole.match(one)]
    return [one for one in chosen if not one.startswith("stepsim validate")]


def run(command):
    arguments = shlex.split(command, posix=True)[1:]
    done = subprocess.run(
        [STEPSIM, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        cwd=FOLDER.name,
    )
    if "--html" in command and done.returncode == 2 and "html" in done.stderr:
        return  # This build makes no pages.
    assert done.returncode == 0, f"{command}: status {done.returncode}\n{done.stderr}"
    assert done.stdout, command


def run_all(path, least):
    chosen = [one for one in commands(path) if not ELSEWHERE.match(one)]
    assert len(chosen) >= least, chosen
    fresh = [command for command in chosen if command not in RAN]
    for command in fresh:
        run(command)
    RAN.update(fresh)
    print(f"{path}: {len(chosen)} commands, {len(chosen) - len(fresh)} of them ran for another page")


def test_the_commands_of_the_readme_run():
    run_all("README.md", 2)


def test_the_commands_of_the_site_run():
    for page, least in [("tour", 5), ("planning", 4), ("commands", 12)]:
        run_all(f"sim/site/{page}.md", least)


def test_the_commands_of_the_scenarios_run():
    run_all("scenarios/README.md", 15)


def test_every_scenario_is_listed_and_every_listed_one_is_there():
    text = (ROOT / "scenarios" / "README.md").read_text(encoding="utf-8")
    rows = [line for line in text.splitlines() if re.match(r"\|.*`stepsim [a-z]+ scenarios/", line)]
    names = [re.search(r"`stepsim [a-z]+ (\S+?)[ `]", row).group(1) for row in rows]
    listed = collections.Counter(names)
    shipped = {str(path.relative_to(ROOT)) for path in (ROOT / "scenarios").rglob("*.toml")}
    assert set(listed) == shipped | {"scenarios/replay"}, set(listed) ^ shipped
    assert set(listed.values()) == {1}, listed


if __name__ == "__main__":
    sys.exit(small_runner.main(globals()))
