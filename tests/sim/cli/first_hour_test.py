"""What strangers met in their first hour, each place once: tests/live/FIRST_HOUR.md tells where.

usage: first_hour_test.py PATH_OF_STEPSIM PATH_OF_STEPCAL
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

from stepsim_program import STEPSIM, run

import small_runner  # from a folder that stepsim_program names

STEPCAL = os.path.abspath(sys.argv[2])
STEP_TIMES = "placement,batch,step_ms\n1,256,542.5\n2,128,290.0\n4,64,161.5\n8,32,96.35\n8+8,16,65.99\n"


def too_large():
    """A scenario of init whose first policy does not fit into memory, and whose last one does."""
    lengths = [32 + 7919 * i % 1000 for i in range(4000)] + [8192 - i for i in range(400)]
    pathlib.Path("lengths.txt").write_text("\n".join(map(str, lengths)), encoding="utf-8")
    return run("init", "--model", "llama3.2-3b", "--gpus", "8", "--profile", "h100_8x_published", "--lengths",
               "lengths.txt").stdout


@small_runner.in_new_folder
def test_what_init_names_next_runs():
    text = too_large()
    line = re.search(r"stepsim (sweep scenario.toml --policy token_budget --over \S+)", text)
    assert line, text
    assert "\nBest: " in run(*line[1].split()).stdout


@small_runner.in_new_folder
def test_init_names_the_policy_that_lacks_least_where_none_fits():
    lengths = [32 + 7919 * i % 1000 for i in range(4000)] + [8192 - i for i in range(400)]
    pathlib.Path("lengths.txt").write_text("\n".join(map(str, lengths)), encoding="utf-8")
    text = run("init", "--model", "llama3-8b", "--gpus", "8", "--profile", "h100_8x_published", "--lengths",
               "lengths.txt").stdout
    named = re.search(r"stepsim sweep scenario.toml --policy (\w+) --over", text)
    run("compare", "scenario.toml", "--json", "out.json", status=1)
    told = json.loads(pathlib.Path("out.json").read_text(encoding="utf-8"))["predictions"]
    lacks = {one["policy"]: one["out_of_memory"]["needed_bytes"] for one in told}  # KeyError: one fits.
    least = min(lacks, key=lacks.get)
    assert len(lacks) == 3 and least != told[0]["policy"], lacks  # The first one would not be named.
    assert named and named[1] == least, (text, lacks)


@small_runner.in_new_folder
def test_a_sweep_of_a_policy_that_does_not_fit_names_those_that_do():
    too_large()
    answer = run("sweep", "scenario.toml", "--over", "parallel=ddp,fsdp2", "--json", "out.json", status=1)
    assert "As the scenario stands, it fits with --policy token_budget." in answer.stdout, answer.stdout
    # What is missing is the most that any step needs, which the column of memory shows, too.
    (least,) = re.findall(r"lacks least: ([\d.]+) GiB beside the ([\d.]+) GiB", answer.stdout)
    points = json.loads(pathlib.Path("out.json").read_text(encoding="utf-8"))["points"]
    peak = min(point["peak_memory_mib"] for point in points) / 1024
    assert abs(sum(map(float, least)) - peak) < 0.11, (least, peak)
    assert re.search(r"\n(ddp|fsdp2) .* [\d.]+ GiB ", answer.stdout), answer.stdout


@small_runner.in_new_folder
def test_long_lists_of_known_names_are_not_printed():
    for command, name in (("help", "nothing_like_it"), ("keys", "nothing_like_it"), ("models", "x.json")):
        message = run(command, name, status=2).stderr
        assert len(message) < 250, message
    assert run("help", "scaling").stdout.startswith("efficiency (also: scaling efficiency)\n")


@small_runner.in_new_folder
def test_models_tells_of_a_preset_what_it_tells_of_a_file():
    for name, parameters in (("llama3-8b", 8030261248), ("bert-base", 109482240), ("llama3.2-1b", 1235814400)):
        told = json.loads(run("models", name, "--json", "-").stdout)
        assert told["parameters"] == parameters and told["flops"] > parameters, told
        assert f"parameters      {parameters}\n" in run("models", name).stdout
    assert "did you mean" not in run("models", "llama3-8bb", status=2).stdout


@small_runner.in_new_folder
def test_a_program_without_its_files_says_so():
    os.mkdir("bin")
    alone = shutil.copy(STEPSIM, "bin/stepsim")
    message = subprocess.run([alone, "init", "--model", "llama3-8b", "--gpus", "8"], capture_output=True, text=True,
                             stdin=subprocess.DEVNULL, check=False).stderr
    assert "no shipped profiles found: there is no folder scenarios/profiles here" in message, message


@small_runner.in_new_folder
def test_a_default_that_is_kept_has_no_arguments_to_paste():
    too_large()
    text = run("buckets", "scenario.toml", "--best").stdout
    assert "Nothing to gain here: keep DDP's default of 25 MiB (" in text and "In PyTorch" not in text, text
    assert "likely to be faster" not in text, text  # Of what gains nothing.


@small_runner.in_new_folder
def test_step_times_of_images_are_told_in_samples():
    pathlib.Path("steps.csv").write_text(STEP_TIMES, encoding="utf-8")
    words = ["import", "step-times", "steps.csv", "--out", "job.json", "--scenario", "job.toml"]
    message = small_runner.run(STEPCAL, *words, "--preset", "resnet50", status=2).stderr
    assert "--gradient-bytes" in message and "kind =" not in message, message
    text = small_runner.run(STEPCAL, *words, "--gradient-bytes", "97.5 MiB").stdout
    line = re.search(r"next: stepsim (sweep job.toml --policy batch_16 --over cluster.placement=2x8,4x8,8x8)\n", text)
    assert line, text
    text = run(*line[1].split()).stdout
    assert re.search(r"\nBest: .* for 1024 samples a step; .* slower for each sample ", text), text
    assert "token" not in text.split("\n\n")[2], text


@small_runner.in_new_folder
def test_what_fits_is_decided_by_the_longest_sample_of_the_epoch():
    """A few simulated steps seldom have it, and a training meets it before the day is over."""
    pathlib.Path("lengths.txt").write_text("\n".join(["512"] * 19999 + ["16384"]), encoding="utf-8")
    run("init", "--model", "qwen2.5-1.5b", "--gpus", "8", "--profile", "h100_8x_published", "--lengths", "lengths.txt")
    answer = run("run", "scenario.toml", "--policy", "fixed", "--json", "out.json", status=1)
    told = json.loads(pathlib.Path("out.json").read_text(encoding="utf-8"))["predictions"][0]
    misfit = told["out_of_memory"]
    assert misfit["step"] >= 12 and misfit["needed_bytes"] > misfit["capacity_bytes"], told
    assert told["summary"]["peak_memory_mib"] * 2**20 < misfit["capacity_bytes"], told
    assert told["largest_memory_mib"] * 2**20 == misfit["needed_bytes"], told
    assert told["largest_token_budget"]["length"] == 16384, told
    assert f"step {misfit['step']} of the epoch, after the simulated ones, rank" in answer.stdout, answer.stdout
    assert "GiB in the largest batch of the epoch" in answer.stdout, answer.stdout
    text = run("compare", "scenario.toml", status=1).stdout
    assert "fits into memory" in text and "\nfixed !" in text, text
    # Its table shows the memory that decides, not that of the simulated steps.
    (row,) = re.findall(r"\nfixed !.* ([\d.]+) GiB", run("compare", "scenario.toml", "--wide", status=1).stdout)
    assert abs(float(row) / (misfit["needed_bytes"] / 2**30) - 1) < 0.005, (row, misfit)
    # As many steps as reach it say the same.
    longer = run("run", "scenario.toml", "--policy", "fixed", "--steps", str(misfit["step"] + 1), "--json", "out.json",
                 status=1).stdout
    again = json.loads(pathlib.Path("out.json").read_text(encoding="utf-8"))["predictions"][0]["out_of_memory"]
    assert again == misfit and "after the simulated ones" not in longer, (again, misfit)
    # What tune recommends fits, too.
    text = run("tune", "scenario.toml", "--over", "policy.fixed.batch_size=1,2,8", "--over", "parallel=ddp,fsdp2",
               status=(0, 1)).stdout
    assert " out of memory" in text and "batch_size 8" not in text, text


@small_runner.in_new_folder
def test_exposed_is_the_same_word_everywhere():
    """In the table of buckets, too, it leaves out the wait for slower ranks."""
    words = ["token_skew", "--policy", "variable_fixed"]
    run("buckets", *words, "--best", "--json", "best.json")
    text = run("buckets", *words, "--best").stdout
    summary = json.loads(run("run", *words, "--json", "-").stdout)["predictions"][0]["summary"]
    alone = summary["exposed_communication_ms"] - summary["waiting_for_ranks_ms"]
    shown = float(re.search(r"DDP's default .*", text)[0].split()[-3])
    assert summary["waiting_for_ranks_ms"] > 1 and abs(shown - alone) < 0.0006, (shown, summary)


def test_blame_names_what_can_help_sharded_trainings():
    """ZeRO-1's broadcasts do not go by buckets."""
    for sharding, swept in (("ddp", "ddp.bucket_cap="), ("zero1", "parallel=ddp,zero1,zero2,fsdp2"),
                            ("zero2", "parallel.units="), ("fsdp1", "parallel.units="), ("fsdp2", "parallel.units=")):
        text = run("blame", "shard_8b", "--set", f"parallel={sharding}", status=(0, 1)).stdout
        (line,) = re.findall(r"\nNext: (.*)", text)
        assert f" --over {swept}" in line, (sharding, line)


@small_runner.in_new_folder
def test_a_sweep_counts_epochs_as_run_does():
    run("init", "--model", "gpt2-small", "--gpus", "8", "--profile", "h100_8x_published", "--length", "512")
    swept = ["sweep", "scenario.toml", "--policy", "fixed", "--over", "cluster.ranks=4,8"]
    costs = ["--epochs", "3", "--gpu-hour", "2.5"]
    points = json.loads(run(*swept, *costs, "--json", "-").stdout)["training"]["points"]
    single = json.loads(run("run", "scenario.toml", "--policy", "fixed", *costs, "--json", "-").stdout)["training"][0]
    assert any(abs(point["hours"] / single["hours"] - 1) < 1e-6 for point in points), (points, single)
    assert "give one of --epochs, --samples and --tokens" in run(*swept, "--epochs", "3", "--samples", "9",
                                                                 status=2).stderr
    data = ["sweep", "scenario.toml", "--policy", "fixed", "--over", "data.samples=50000,100000"]
    assert "--epochs needs one data set for all values, but data.samples=" in run(*data, "--epochs", "3",
                                                                                  status=2).stderr
    run(*data, "--samples", "100000")


def test_values_that_are_refused_are_counted_in_the_sentence():
    axis = ["sweep", "shard_8b", "--over"]
    said = run(*axis, "parallel=fsdp2,fsdp3").stdout
    assert "no value that could be predicted is faster. 1 of 2 values was refused: the warnings say why.\n" in said, said
    said = run(*axis, "parallel=ddp,fsdp3", status=1).stdout
    assert "No value that could be predicted fits into memory." in said and "1 of 2 values was refused" in said, said
    assert "refused" not in run(*axis, "parallel=fsdp2,hsdp").stdout


@small_runner.in_new_folder
def test_the_slower_side_of_a_sweep_is_called_slower():
    text = run("sweep", "bucket_valley", "--over", "ddp.bucket_cap=1MiB..2GiB:x2").stdout
    (sentence,) = re.findall(r"\nBest: .*?; (.* slower .*)", text)
    assert "likely to be slower)" in sentence and "faster" not in sentence, sentence


@small_runner.in_new_folder
def test_a_large_gain_that_no_row_tells_is_too_unsure():
    rows = STEP_TIMES.rsplit("8+8", 1)[0]  # Nothing of two nodes.
    pathlib.Path("steps.csv").write_text(rows, encoding="utf-8")
    small_runner.run(STEPCAL, "import", "step-times", "steps.csv", "--gradient-bytes", "97.5 MiB", "--out", "job.json",
                     "--scenario", "job.toml")
    text = run("sweep", "job.toml", "--over", "cluster.placement=8,2x8").stdout
    assert ": too unsure to tell: measure what the warnings name)" in text, text
    assert re.search(r"\nwarning: .*2x8.*not measured", text), text


@small_runner.in_new_folder
def test_scaling_is_held_against_published_jobs():
    for speed, verdict in (("1", "within what others reach"), ("0.02", "less than others reach")):
        text = run("sweep", "two_nodes", "--over", "cluster.placement=8,2x8,4x8", "--set",
                   f"cluster.network_speed={speed}", "--json", "out.json").stdout
        scaling = json.loads(pathlib.Path("out.json").read_text(encoding="utf-8"))["training"]["scaling"]
        jobs = [job["efficiency"] for job in scaling["published"]]
        assert 1 < len(jobs) <= 5 and all(job["source"] for job in scaling["published"]), scaling
        assert (scaling["from_ranks"], scaling["ranks"]) == (8, 32), scaling
        within = min(jobs) <= scaling["efficiency"] <= max(jobs)
        assert within == (verdict == "within what others reach"), scaling
        assert f"{100 * min(jobs):.0f} to {100 * max(jobs):.0f} %: {verdict}" in text, text
        assert text.count("mosaicml/llm-foundry\n") >= 1, text
    # Settings of one size differ in something else than their size.
    run("sweep", "two_nodes", "--over", "cluster.placement=8,4+4", "--json", "out.json")
    assert "training" not in json.loads(pathlib.Path("out.json").read_text(encoding="utf-8"))


if __name__ == "__main__":
    sys.exit(small_runner.main(globals()))
