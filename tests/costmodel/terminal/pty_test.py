"""What the programs print on a terminal (a pseudo-terminal of so many columns) and into a pipe.

usage: pty_test.py PATH_OF_STEPSIM PATH_OF_STEPCAL
"""

import fcntl
import os
import pathlib
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests"))
import small_runner  # noqa: E402  (needs the path above)

STEPSIM = os.path.abspath(sys.argv[1])
STEPCAL = os.path.abspath(sys.argv[2])
COMPARE = (STEPSIM, "compare", "scenarios/token_skew.toml")
SWEEP = (STEPSIM, "sweep", "scenarios/bucket_valley.toml", "--over", "ddp.bucket_cap=1MiB..2GiB:x2")
ESCAPE = re.compile(r"\x1b\[[0-9;]*[mK]")
PLAIN = {"TERM": "xterm", "LC_ALL": "C.UTF-8", "PATH": os.environ["PATH"]}
PLAIN.update((name, value) for name, value in os.environ.items() if name.startswith("STEPSIM_"))


def on_terminal(arguments, columns, stdout=None, **variables):
    """What a program writes to a terminal; `stdout`: a file that takes standard output instead."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(ROOT)
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
        if stdout is not None:
            os.dup2(stdout.fileno(), 1)
        os.execve(arguments[0], arguments, {**PLAIN, **variables})
    written = b""
    while True:
        try:
            part = os.read(terminal, 65536)
        except OSError:  # The program has left the terminal.
            break
        if not part:
            break
        written += part
    os.close(terminal)
    _, status = os.waitpid(pid, 0)
    assert status == 0, (arguments, status, written)
    return written.decode("utf-8").replace("\r\n", "\n")


def piped(arguments, **variables):
    return subprocess.run(arguments, check=True, capture_output=True, text=True, cwd=ROOT,
                          env={**PLAIN, **variables}).stdout


def widest(text):
    """Columns of the longest line; commands to copy stay whole whatever the width."""
    lines = [ESCAPE.sub("", line) for line in re.split(r"[\r\n]", text)]  # \r: progress bars
    return max(len(line) for line in lines if not line.lower().startswith("next: "))


def test_no_line_is_wider_than_the_terminal_and_no_figure_is_lost():
    for command in (COMPARE, SWEEP, (STEPSIM, "blame", "scenarios/token_skew_2ranks.toml"),
                    (STEPSIM, "run", "scenarios/token_skew.toml"), (STEPSIM, "models")):
        plain = piped(command)
        figures = set(re.findall(r"\b\d+\.\d+\b", re.sub(r"(?m)^planning on this.*$", "", plain)))
        for columns in (60, 80, 200):
            text = ESCAPE.sub("", on_terminal(command, columns))
            assert widest(text) <= columns, (command, columns, widest(text), text)
            lost = figures - set(re.findall(r"\b\d+\.\d+\b", text))
            assert not lost, (command, columns, lost)


def test_columns_has_the_last_word_on_the_width():
    assert widest(on_terminal(SWEEP, 200, COLUMNS="80")) <= 80
    assert 80 < widest(on_terminal(SWEEP, 80, COLUMNS="200")) <= 200
    assert piped(SWEEP, COLUMNS="80") == piped(SWEEP)


def test_a_terminal_that_does_not_tell_its_width_has_80_columns():
    assert widest(on_terminal(COMPARE, 0)) == widest(on_terminal(COMPARE, 80)) == 80
    assert widest(on_terminal(COMPARE, 120)) > 80


def test_bars_are_for_terminals_and_made_of_blocks_where_the_locale_has_them():
    assert "●" in on_terminal(COMPARE, 200) and "█" in on_terminal(SWEEP, 200)
    ascii_text = on_terminal(SWEEP, 200, LC_ALL="C")
    assert "█" not in ascii_text and "####" in ascii_text
    assert "●" not in piped(COMPARE) and "\x1b" not in piped(COMPARE)


def test_colour_only_where_it_is_understood_and_wanted():
    assert "\x1b[32mbucketing" in on_terminal(COMPARE, 120)
    for variables in ({"NO_COLOR": "1"}, {"TERM": "dumb"}, {"TERM": ""}):
        assert "\x1b" not in on_terminal(COMPARE, 120, **variables), variables
    assert "\x1b[32m" in on_terminal(COMPARE, 120, NO_COLOR="")  # Empty means unset.
    assert "\x1b[32m" in piped(COMPARE, CLICOLOR_FORCE="1")
    assert "\x1b" not in piped(COMPARE, CLICOLOR_FORCE="0")
    assert "\x1b" not in piped(COMPARE, CLICOLOR_FORCE="1", NO_COLOR="1")


def test_errors_have_colour_on_the_terminal_of_standard_error():
    wrong = ["/bin/bash", "-c", f"{STEPSIM} compare; {STEPCAL} fit; true"]
    text = on_terminal(wrong, 120)
    assert text.count("\x1b[31merror:\x1b[0m") == 2, text
    assert "\x1b" not in on_terminal(wrong, 120, NO_COLOR="1")


def long_sweep(folder):
    """A sweep of some seconds on any machine."""
    over = "ddp.bucket_cap=1MiB..1500MiB:+1MiB"
    return (STEPSIM, "sweep", "scenarios/bucket_valley.toml", "--over", over, "--threads", "1", "--csv", os.path.join(folder, "sweep.csv"), "--quiet")


def test_a_long_job_shows_its_progress_and_erases_it():
    with tempfile.TemporaryDirectory() as folder, open(os.devnull, "wb") as nothing:
        text = on_terminal(long_sweep(folder), 80, nothing)
        assert re.search(r"\r\x1b\[Ksweeping  [█▏▎▍▌▋▊▉ ]+ \d+ %, about \d+ s left", text), text
        assert text.endswith("\r\x1b[K"), text
    assert "\r" not in on_terminal(COMPARE, 80)


def test_help_fits_and_keeps_examples_whole():
    for command in ((STEPSIM, "replay"), (STEPCAL, "calibrate"), (STEPCAL, "import", "kineto")):
        text = on_terminal((*command, "--help"), 80)
        assert "\n\x1b[1mexamples:\x1b[0m\n" in text, text
        assert piped((*command, "--help")) == ESCAPE.sub("", text)


def test_the_summaries_of_commands_stand_in_one_column():
    for program in (STEPSIM, STEPCAL):
        listed = piped((program, "--help")).split("\ncommands:\n")[1].split("\n\n")[0].splitlines()
        columns = {re.match(r"  \S+ +", line).end() for line in listed}
        assert len(listed) > 5 and len(columns) == 1, listed


if __name__ == "__main__":
    sys.exit(small_runner.main(dict(globals())))
