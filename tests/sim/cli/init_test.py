"""Runs stepsim init as a user would, and the other commands on what it writes.

usage: init_test.py PATH_OF_STEPSIM
"""

import os
import pathlib
import pty
import select
import subprocess
import sys
import tempfile
import tomllib

from stepsim_program import STEPSIM, run

import small_runner  # from a folder that stepsim_program names


def test_init_writes_a_scenario_that_the_other_commands_take():
    with tempfile.TemporaryDirectory() as folder:
        lengths = pathlib.Path(folder, "lengths.txt")
        lengths.write_text("\n".join(str(32 + 7 * i % 400) for i in range(2000)), encoding="utf-8")
        file = os.path.join(folder, "mine.toml")
        common = ["--gpus", "4", "--profile", "h100_8x_published", "--out", file]
        text = run("init", "--model", "bert-base", "--lengths", str(lengths), *common).stdout
        assumed = "assumed: --batch-size 8\n"
        assert text.startswith(f"wrote {file}, with 3 policies\n{assumed}next: stepsim compare "), text
        toml = pathlib.Path(file).read_text(encoding="utf-8")
        content = tomllib.loads(toml)
        assert content["cluster"]["ranks"] == 4, content
        assert content["model"] == {"preset": "bert-base", "dtype": "bf16", "attention": "flash"}, content
        assert content["data"]["lengths"] == {"file": "lengths.txt"} and toml.count("#") > 8, toml
        mean = sum(map(int, lengths.read_text().split())) / 2000
        assert abs(content["policy"][2]["max_tokens"] - 8 * mean) <= 0.5, content["policy"]
        assert "\nUse " in run("compare", file).stdout
        message = run("init", "--model", "bert-base", *common, status=2).stderr
        assert "is there already" in message, message
        other = os.path.join(folder, "other.toml")
        message = run("init", "--out", other, status=2, stdin=subprocess.DEVNULL).stderr  # No terminal to ask at.
        assert "--model" in message, message
        message = run("init", "--model", "bert-bse", "--out", other, "--profile", "h100_8x_published", status=2).stderr
        assert "did you mean 'bert-base'" in message and not os.path.exists(other), message
        for option, words in (("--model=nothere.json", "there is no file nothere.json here"),
                              ("--model=Qwen/Qwen3-8B", "is a name of Hugging Face"),
                              ("--gpus=0", "'0' is no placement"), ("--length=4k", "--length takes a whole number")):
            given = {"--model": "bert-base", "--gpus": "8", "--profile": "h100_8x_published", "--out": other}
            given |= dict([option.split("=")])
            message = run("init", *(f"{key}={value}" for key, value in given.items()), status=2).stderr
            # Nothing is written, so that no line of the scenario can be what is wrong.
            assert words in message and ".toml:" not in message and not os.path.exists(other), message
        run("init", "--model", "llama3-8b", "--gpus", "2x8", "--profile", "h100_2x8_published", "--length", "4096",
            "--parallel", "fsdp2", "--out", other)
        placed = tomllib.loads(pathlib.Path(other).read_text(encoding="utf-8"))
        dotted = os.path.join(folder, "dotted.toml")
        run("init", "--model", "llama3.2-1b", "--gpus", "8", "--profile", "h100_8x_published", "--length", "64", "--out",
            dotted)
        assert tomllib.loads(pathlib.Path(dotted).read_text(encoding="utf-8"))["model"]["preset"] == "llama3.2-1b"
        text = run("compare", dotted).stdout
        assert "\nNothing to gain here: all policies are as fast (fixed: " in text, text
        assert placed["cluster"]["placement"] == "2x8" and placed["parallel"] == {"kind": "fsdp2"}, placed


def at_terminal(folder, answers):
    """What stepsim init says at a terminal where somebody answers so, each question in turn; and its exit status."""
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(folder)
        os.execv(STEPSIM, [STEPSIM, "init"])
    said = b""
    answers = list(answers)
    while select.select([terminal], [], [], 60)[0]:
        try:
            part = os.read(terminal, 65536)
        except OSError:  # It has ended.
            break
        said += part
        if answers and said.rstrip(b" ").endswith(b":"):
            os.write(terminal, answers.pop(0).encode() + b"\n")
    os.close(terminal)  # Who still asks, since no answer could be meant, is hung up on.
    return said.decode().replace("\r", ""), os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_init_asks_again_where_an_answer_cannot_be_meant():
    with tempfile.TemporaryDirectory() as folder:
        answers = ["", "lama3-8b", "llama3-8b", "sixteen", "2x8", "h100", "h100_2x8_published", "lengths.txt", "",
                   "0", " 4096 ", "2"]
        said, status = at_terminal(folder, answers)
        assert status == 0, said
        assert said.startswith("Writes scenario.toml. An empty line takes what is in brackets.\n"), said
        for wrong in ("there is no default", "did you mean 'llama3-8b'", "'sixteen' is no placement", "h100",
                      "there is no file lengths.txt here", "'0' is no whole number from 1 on"):
            assert wrong in said, (wrong, said)
        assert all(len(line.split("]: ")[0]) < 70 for line in said.splitlines() if "]: " in line), said
        content = tomllib.loads(pathlib.Path(folder, "scenario.toml").read_text(encoding="utf-8"))
        assert content["model"]["preset"] == "llama3-8b" and content["cluster"]["placement"] == "2x8", content
        assert content["data"]["lengths"] == {"constant": 4096}, content
        assert content["policy"][0]["batch_size"] == 2, content


def test_an_empty_line_takes_what_is_offered():
    with tempfile.TemporaryDirectory() as folder:
        said, status = at_terminal(folder, ["llama3-8b", "", "", "", "", ""])
        assert status == 0 and "no whole number" not in said and "no placement" not in said, said
        content = tomllib.loads(pathlib.Path(folder, "scenario.toml").read_text(encoding="utf-8"))
        assert content["cluster"]["ranks"] == 8 and content["cluster"]["profile"] == "h100_8x_published", content
        offered = [line.split("[")[1].split("]")[0] for line in said.splitlines() if "]: " in line]
        assert [str(content["data"]["lengths"]["constant"]), str(content["policy"][0]["batch_size"])] == offered[-2:], said


if __name__ == "__main__":
    sys.exit(small_runner.main(globals()))
