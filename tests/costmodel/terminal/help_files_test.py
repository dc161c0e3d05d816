"""The completion scripts and man pages of the build.

usage: help_files_test.py PATH_OF_STEPSIM PATH_OF_STEPCAL
They lie beside the programs.
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests"))
import small_runner  # noqa: E402  (needs the path above)

STEPSIM = pathlib.Path(sys.argv[1]).resolve()
STEPCAL = pathlib.Path(sys.argv[2]).resolve()


def helps(program):
    text = subprocess.run([program, "--help-json"], check=True, capture_output=True, text=True)
    return [json.loads(line) for line in text.stdout.splitlines()]


def completed(*words, program=STEPSIM, cwd=ROOT):
    """What bash offers for the last of the words of a command line."""
    line = " ".join(words)
    script = (f"source {program}.bash; COMP_WORDS=(\"$@\"); COMP_CWORD=$(($# - 1)); "
              f"COMP_LINE={line!r}; _{program.name}; printf '%s\\n' \"${{COMPREPLY[@]}}\"")
    done = subprocess.run(["bash", "-c", script, "-", *words], check=True, capture_output=True,
                          text=True, cwd=cwd)
    assert done.stderr == "", done.stderr
    return [line for line in done.stdout.split("\n") if line]


def test_scripts_parse():
    for program in (STEPSIM, STEPCAL):
        subprocess.run(["bash", "-n", f"{program}.bash"], check=True)


def test_zsh_script_parses():
    if shutil.which("zsh") is None:
        raise small_runner.Skip("no zsh")
    for program in (STEPSIM, STEPCAL):
        script = program.parent / f"_{program.name}"
        assert script.read_text(encoding="utf-8").startswith(f"#compdef {program.name}\n")
        subprocess.run(["zsh", "-n", script], check=True)


def test_bash_completes_commands_and_options():
    assert completed("stepsim", "comp") == ["compare"]
    assert "sweep" in completed("stepsim", "") and "--version" in completed("stepsim", "--v")
    assert completed("stepsim", "sweep", "--ov") == ["--over"]
    assert completed("stepsim", "sweep", "x.toml", "--threads", "2", "--pol") == ["--policy"]
    assert completed("stepcal", "imp", program=STEPCAL) == ["import"]
    assert completed("stepcal", "import", "ki", program=STEPCAL) == ["kineto"]
    assert completed("stepcal", "import", "kineto", "--tr", program=STEPCAL) == ["--transfers"]


def test_bash_completes_every_option_of_every_command():
    for program in (STEPSIM, STEPCAL):
        for one in helps(program):
            offered = completed(*one["command"].split(" "), "--", program=program)
            for option in one.get("options", []):
                name = f"--{option['name']}"
                assert option["positional"] or name in offered, (one["command"], name)


def test_bash_completes_values():
    assert completed("stepsim", "compare", "scenarios/token_skew.t") == ["scenarios/token_skew.toml"]
    assert completed("stepsim", "compare", "READ") == []  # README.md is no scenario.
    policies = completed("stepsim", "run", "scenarios/token_skew.toml", "--policy", "")
    assert policies == ["uniform", "variable_fixed", "bucketing", "token_budget"], policies
    assert completed("stepsim", "run", "scenarios/packing.toml", "--policy", "TRL b") == [
        "TRL\\ bfd", "TRL\\ bfd_split"]
    assert completed("stepsim", "replay", "x", "--sends", "bu") == ["buffered"]
    assert completed("stepsim", "replay", "x", "--sends", "=", "bl") == ["blocking"]
    assert "scenarios/" in [f"{name}/" for name in completed("stepsim", "profiles", "--dir", "sc")]


def test_a_file_name_with_blanks_is_one_completion():
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "my job.toml").write_text("", encoding="utf-8")
        assert completed("stepsim", "compare", "my", cwd=folder) == ["my job.toml"]


def man_pages():
    pages = [*STEPSIM.parent.glob("stepsim*.1"), *STEPCAL.parent.glob("stepcal*.1")]
    assert len(pages) == len(helps(STEPSIM)) + len(helps(STEPCAL))
    return pages


def test_man_pages_render_without_warnings_and_hold_every_option():
    if shutil.which("groff") is None:
        raise small_runner.Skip("no groff")
    options = {one["command"].replace(" ", "-"): one.get("options", [])
               for program in (STEPSIM, STEPCAL) for one in helps(program)}
    for page in man_pages():
        done = subprocess.run(["groff", "-man", "-ww", "-Tutf8", "-P-cbou", page], check=True,
                              capture_output=True, text=True, timeout=60)
        assert done.stderr == "", (page, done.stderr)
        text = done.stdout.replace("\u2010", "-").replace("\u2212", "-")
        headings = [line for line in text.splitlines() if re.fullmatch("[A-Z]+( [A-Z]+)?", line)]
        assert {"NAME", "SYNOPSIS", "DESCRIPTION", "EXIT STATUS", "SEE ALSO"} <= set(headings), headings
        assert ("EXAMPLES" in headings) != ("COMMANDS" in headings), headings
        for option in options[page.stem]:
            assert option["positional"] or f"--{option['name']}" in text, (page, option["name"])


def test_man_pages_pass_mandoc():
    if shutil.which("mandoc") is None:
        raise small_runner.Skip("no mandoc")
    for page in man_pages():
        done = subprocess.run(["mandoc", "-T", "lint", "-W", "warning", page], check=False,
                              capture_output=True, text=True, timeout=60)
        assert done.stdout == "", done.stdout


def test_every_command_has_a_synopsis_a_description_and_examples():
    for program in (STEPSIM, STEPCAL):
        for one in helps(program):
            if "commands" not in one:
                blocks = one["usage"].strip().split("\n\n")
                assert blocks[0].startswith(f"usage: {one['command']}"), one["command"]
                assert len(blocks) >= 3, one["command"]
                assert blocks[-1].startswith("example"), one["command"]
                for option in one["options"]:
                    assert not option["takes_value"] or option["value"], (
                        f"{one['command']} --{option['name']}: say what its value is")


if __name__ == "__main__":
    sys.exit(small_runner.main(dict(globals())))
