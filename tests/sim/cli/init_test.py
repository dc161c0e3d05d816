"""Runs stepsim init as a user would, and the other commands on what it writes.

usage: init_test.py PATH_OF_STEPSIM
"""

import json
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
        assert text.startswith(f"wrote {file}, with 3 policies, for 4 GPUs of one node\n{assumed}next: stepsim compare "), text
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


def init(folder, *options, status=0):
    """What stepsim init says, and the scenario that it wrote or did not."""
    file = pathlib.Path(folder, "made.toml")
    file.unlink(missing_ok=True)
    result = run("init", *options, "--out", str(file), status=status)
    assert file.exists() == (status == 0), options
    return result.stdout + result.stderr, file


def test_init_writes_nothing_that_its_next_command_refuses():
    with tempfile.TemporaryDirectory() as folder:
        for options, words in (
            ("--model llama3-8b --gpus 2x8 --profile h100_8x_published --length 4096",
             ("no all_reduce of 16 ranks on 2 nodes", "--profile h100_2x8_published\n")),
            ("--model llama3-8b --gpus 4x8 --profile h100_2x8_published --length 4096",
             ("no all_reduce of 32 ranks on 4 nodes", "write a scenario with --gpus 8, then cluster.placement = \"4x8\"")),
            ("--model gpt2-small --gpus 4 --profile cpu_epyc_2core_4ranks --length 128",
             ("they are the model's own, so measure a model as large", "h100_8x_published\n")),
            ("--model gpt2-small --gpus 8 --profile h100_8x_published --length 4096",
             ("stepsim init: error: data.lengths.constant: samples of up to 4096 tokens", "takes 1024")),
            ("--model llama3-8b --gpus 8 --profile h100_8x_published --length 64 --parallel fsdp",
             ("--parallel fsdp: error: unknown sharding 'fsdp'; write \"fsdp2\"",
              "known: ddp, zero1, zero2, fsdp2, hsdp, fsdp1, zero\n")),
            ("--model llama3-8b --gpus 8 --profile h100_8x_published --length 64 --parallel hsdp",
             ("there is one node: that is fsdp2",)),
        ):
            said, _ = init(folder, *options.split(), status=2)
            assert all(word in said for word in words) and ".toml:" not in said, (options, said)
            assert "measure larger batches" not in said, said


def test_what_is_read_again_is_no_pipe():
    with tempfile.TemporaryDirectory() as folder:
        pipe = os.path.join(folder, "pipe")
        os.mkfifo(pipe)
        usual = {"--model": "gpt2-small", "--profile": "h100_8x_published"}
        for option in ("--lengths", "--model", "--profile"):
            said, _ = init(folder, *(word for pair in {**usual, option: pipe}.items() for word in pair), status=2)
            assert said.startswith(f"{option} {pipe}: error: {pipe} is a pipe") and "into a file" in said, said
        for arguments in ([pipe], [os.path.join(folder, "record.jsonl"), "--lengths", pipe]):
            said = run("advise", *arguments, "--out-dir", os.path.join(folder, "advice"), status=2).stderr
            assert "is a pipe or a terminal" in said, said


def test_every_sharding_of_the_help_is_written_as_compare_reads_it():
    with tempfile.TemporaryDirectory() as folder:
        common = "--model llama3.2-1b --gpus 8 --profile h100_8x_published --length 64".split()
        for name, parallel, ddp in (("ddp", None, None), ("zero1", None, {"zero_stage": 1}),
                                    ("zero2", {"kind": "fsdp2", "reshard_after_forward": "false"}, None),
                                    ("fsdp2", {"kind": "fsdp2"}, None), ("zero", {"kind": "zero"}, None),
                                    ("zero3", {"kind": "zero3"}, None)):
            _, file = init(folder, *common, "--parallel", name)
            content = tomllib.loads(file.read_text(encoding="utf-8"))
            assert (content.get("parallel"), content.get("ddp")) == (parallel, ddp), (name, content)
            assert "llama3.2-1b" in run("compare", str(file)).stdout


def test_init_says_what_it_made_of_long_samples_and_full_nodes():
    with tempfile.TemporaryDirectory() as folder:
        lengths = pathlib.Path(folder, "lengths.txt")
        lengths.write_text("\n".join(["100"] * 40 + ["5000"] * 10), encoding="utf-8")
        said, file = init(folder, *"--model gpt2-small --gpus 8 --profile h100_8x_published --batch-size 1".split(),
                          "--lengths", str(lengths))
        assert "note: 10 of 50 samples are longer than the 1024 tokens that gpt2-small takes: they are cut" in said, said
        content = tomllib.loads(file.read_text(encoding="utf-8"))
        assert content["data"]["lengths"] == {"file": "lengths.txt", "cap": 1024}, content
        # The mean is that of the cut ones, and no budget is below the longest.
        assert content["policy"][2]["max_tokens"] == 1024, content
        run("compare", str(file))
        common = "--model llama3-8b --profile h100_8x_published --length 4096 --gpus".split()
        said, _ = init(folder, *common, "16")
        assert "for 16 GPUs of one node\n" in said, said
        assert "On nodes of 8: --gpus 2x8, of which h100_2x8_published has the all-reduce\n" in said, said
        said, _ = init(folder, *common, "8")
        assert "note:" not in said, said


def test_a_preset_of_16_bit_says_so_and_what_is_usual():
    with tempfile.TemporaryDirectory() as folder:
        common = "--gpus 8 --profile h100_8x_published --length 64 --parallel fsdp2 --model".split()
        _, file = init(folder, *common, "llama3.2-1b")
        toml = file.read_text(encoding="utf-8")
        assert "# This preset has all in bf16: weights, gradients and AdamW's two moments" in toml, toml
        for line in ('parameter_dtype = "f32"', 'param_dtype = "bf16"', 'reduce_dtype = "f32"'):
            assert f"\n# {line}" in toml, toml
            toml = toml.replace(f"\n# {line}", f"\n{line}")
        usual = pathlib.Path(folder, "usual.toml")
        usual.write_text(toml, encoding="utf-8")
        memory = [json.loads(run("run", str(one), "--json", "-").stdout)["memory_parts"] for one in (file, usual)]
        states = [parts["mib"]["optimizer"] for parts in memory]
        assert abs(states[1] / states[0] - 2) < 0.01, memory
        _, file = init(folder, *common, "gpt2-small")
        assert "bf16:" not in file.read_text(encoding="utf-8")


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
