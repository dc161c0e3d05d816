"""Runs stepsim advise as a user would, on the records of a made training.

usage: advise_test.py PATH_OF_STEPSIM
"""

import json
import math
import os
import pathlib
import random
import re
import shutil
import sys
import tempfile
import tomllib
import types

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
import stepsim_program  # noqa: E402  (it takes the same argument)
import small_runner  # noqa: E402  (needs the path above)

PARAMETERS = [["embed.weight", [8000, 192]], ["hidden.weight", [192, 192]], ["head.weight", [4, 192]]]
ELEMENTS = [8000 * 192, 192 * 192, 4 * 192]


def header(**members):
    return {
        "format": "stepsim-run-record/1",
        "policy": "fixed",
        "world_size": 2,
        "backend": "gloo",
        "device": "test",
        "started_at": "2026-11-22T10:00:00Z",
        "versions": {"torch": "1.13.0a0"},
        "warmup_steps": 2,
        "model": {
            "name": "Own",
            "parameters": [{"name": n, "shape": s, "dtype": "f32"} for n, s in PARAMETERS],
            "buffers": {"f32": 12},
        },
        "ddp": {"bucket_cap_bytes": 25 << 20, "first_bucket_bytes": 1 << 20},
        "optimizer": {"kind": "SGD", "settings": {"lr": 0.1, "momentum": 0.9}},
        "loader": {"samples": 5000, "batch_size": 16, "workers": 2, "prefetch_factor": 4},
        **members,
    }


def training(steps=40, lengths=lambda draw: draw.randint(8, 120)):
    """Rows of two ranks whose passes take 20 and 40 us a padded token; all-reduces take 3 ms."""
    draw = random.Random(11)
    rows = []
    for step in range(steps):
        batches = [[lengths(draw) for _ in range(16)] for _ in range(2)]
        tokens = [16 * max(batch) for batch in batches]
        own = [2 + 0.020 * t + 1 + 0.040 * t for t in tokens]  # data, forward, backward
        for rank, batch in enumerate(batches):
            forward, backward = 1 + 0.020 * tokens[rank], 0.040 * tokens[rank]
            launches = [2 + forward + share * backward for share in (0.4, 1.0)]
            end = max(own) + 3
            rows.append({
                "repeat": 0, "step": step, "rank": rank, "samples": 16, "max_length": max(batch),
                "useful_tokens": sum(batch), "padded_tokens": tokens[rank], "start_ms": 200.0 * step,
                "data_ms": 2, "forward_ms": forward, "backward_ms": backward,
                "wait_ms": end - own[rank], "optimizer_ms": 4, "step_ms": end + 4, "lengths": batch,
                "buckets": [
                    {"bytes": 4 * sum(ELEMENTS[1:]), "launch_ms": launches[0], "end_ms": end - 2},
                    {"bytes": 4 * ELEMENTS[0], "launch_ms": launches[1], "end_ms": end},
                ],
            })  # fmt: skip
    return rows


def write(path, first, rows):
    path.write_text("".join(json.dumps(line) + "\n" for line in [first, *rows]), encoding="utf-8")


def in_folder_of_ranks(test):
    """Calls the test in a folder that holds the files of both ranks."""

    def wrapped():
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            rows = training()
            for rank in range(2):
                own = [row for row in rows if row["rank"] == rank]
                write(folder / f"run.rank{rank}.jsonl", header(), own)
            before = os.getcwd()
            os.chdir(folder)
            try:
                test(folder)
            finally:
                os.chdir(before)

    return wrapped


RANKS = ["run.rank0.jsonl", "run.rank1.jsonl"]


@in_folder_of_ranks
def test_records_alone_give_an_answer_in_five_lines(folder):
    text = stepsim_program.run("advise", *RANKS, "--price-per-hour", "10", "--json", "a.json").stdout
    lines = text.splitlines()
    heads = ["your step:", "best policy:", "bucket cap:", "it changes:", "an epoch:"]
    assert [line[: len(head)] for line, head in zip(lines, heads)] == heads, text
    assert " with fixed (90 % interval " in lines[0], lines[0]
    assert " useful tokens/s over fixed (90 % interval +" in lines[1], lines[1]
    assert "stepsim plan" not in text and "plan's" not in text, text
    assert "5000 samples take " in lines[4] and "at 10.00 an hour" in lines[4], lines[4]
    result = json.loads((folder / "a.json").read_text(encoding="utf-8"))
    assert result["answer"] == lines[:5]
    fixed = next(row for row in result["epochs"] if row["policy"] == "fixed")
    assert abs(fixed["steps"] - 5000 / 32) < 1, fixed
    assert abs(fixed["price"] - 10 * fixed["hours"]) < 1e-9, fixed
    mean = next(p for p in result["predictions"]["predictions"] if p["policy"] == "fixed")
    assert abs(fixed["hours"] * 3.6e6 / fixed["steps"] - mean["summary"]["step_time_ms"]["mean"]) < 1e-6
    # The times were made by known laws: 10 ms a step, 60 us a token of the fuller rank.
    steps = [json.loads(line) for line in (folder / RANKS[0]).read_text().splitlines()[1:]]
    recorded = sum(row["step_ms"] for row in steps[2:]) / len(steps[2:])
    assert abs(mean["summary"]["step_time_ms"]["mean"] / recorded - 1) < 0.05, (mean, recorded)


def with_model(folder, rows, members, **first):
    """Writes both ranks' files with other members of the header's model, and of the header."""
    told = header(**first)
    told["model"].update(members)
    for rank in range(2):
        write(folder / f"run.rank{rank}.jsonl", told, [row for row in rows if row["rank"] == rank])


def asked(*more):
    shutil.rmtree("advice", ignore_errors=True)
    done = stepsim_program.run("advise", *RANKS, "--json", "a.json", *more)
    result = json.loads(pathlib.Path("a.json").read_text(encoding="utf-8"))
    made = pathlib.Path("advice/scenario.toml").read_text(encoding="utf-8")
    return done.stdout, result["options"], made


@in_folder_of_ranks
def test_flops_are_told_where_they_can_be_known(folder):
    text, options, made = asked()
    assert "compute:" not in text and "MFU" not in text and "flops" not in made, text
    assert {one["tflops_per_rank"] for one in options} == {one["mfu"] for one in options} == {None}
    # By the user: of two ranks, each does half of the tokens.
    text, options, made = asked("--flops-per-token", "3e6", "--peak-tflops", "2")
    for one in options:
        tflops = 3e6 * one["useful_tokens_per_s"] / 2 / 1e12
        assert abs(one["tflops_per_rank"] / tflops - 1) < 1e-9 and abs(one["mfu"] / (tflops / 2) - 1) < 1e-9, one
    assert f"{options[0]['mfu'] * 100:.1f} % MFU" in text and "counted by model.flops_per_token = 3e+06" in text, text
    compared = json.loads(stepsim_program.run("compare", "advice/scenario.toml", "--epochs", "1", "--json", "-").stdout)
    of_now = next(one for one in compared["training"] if one["policy"] == options[0]["policy"])
    assert of_now["mfu"] == options[0]["mfu"], (of_now, options[0])
    assert " FLOP/s a rank  " in asked("--flops-per-token", "3e6", "--wide")[0]
    # By the record's weights: the table is looked up, hidden and head are multiplied.
    parameters = header()["model"]["parameters"]
    parameters[0]["lookup"] = True
    rows = training()
    with_model(folder, rows, {"parameters": parameters})
    products = 6 * sum(ELEMENTS[1:])
    text, options, made = asked()
    assert f"flops_per_token = {products}  # 6 x {sum(ELEMENTS[1:])} weights that are multiplied; attention is not" in made, made
    assert options[0]["tflops_per_rank"] and options[0]["mfu"] is None and " MFU" not in text, options[0]
    lengths = [one for row in rows for one in row["lengths"]]
    mean = sum(one * one for one in lengths) / sum(lengths)
    for odd in ({"shape": [2, 128, 3]}, {"name": "experts.0.weight"}):
        with_model(folder, rows, {"parameters": [*parameters[:2], {**parameters[2], **odd}]})
        assert "flops" not in asked()[2], odd
    with_model(folder, rows, {"parameters": parameters, "attention": {"layers": 2, "width": 192}},
               autocast="bf16", device="NVIDIA H100 80GB HBM3")
    text, options, made = asked()
    stated = float(re.search(r"flops_per_token = (\S+)", made)[1])
    assert abs(stated / (products + 12 * 2 * 192 * mean) - 1) < 1e-5, made
    assert "peak_tflops = 989  # dense, bf16 autocast on NVIDIA H100" in made and options[0]["mfu"], made


@in_folder_of_ranks
def test_flops_are_counted_by_a_config_that_makes_the_recorded_model(folder):
    config = {"model_type": "gpt2", "n_layer": 1, "n_head": 2, "n_embd": 8, "vocab_size": 50, "n_positions": 128}
    names = [("wte.weight", [50, 8]), ("wpe.weight", [128, 8])]
    names += [(f"h.0.{name}", shape) for name, shape in (
        ("ln_1.weight", [8]), ("ln_1.bias", [8]), ("attn.c_attn.weight", [8, 24]), ("attn.c_attn.bias", [24]),
        ("attn.c_proj.weight", [8, 8]), ("attn.c_proj.bias", [8]), ("ln_2.weight", [8]), ("ln_2.bias", [8]),
        ("mlp.c_fc.weight", [8, 32]), ("mlp.c_fc.bias", [32]), ("mlp.c_proj.weight", [32, 8]), ("mlp.c_proj.bias", [8]))]
    names += [("ln_f.weight", [8]), ("ln_f.bias", [8])]
    parameters = [{"name": "transformer." + name, "shape": shape, "dtype": "f32"} for name, shape in names]
    elements = sum(math.prod(shape) for _, shape in names)
    rows = training()
    for row in rows:
        row["buckets"] = [{**row["buckets"][1], "bytes": 4 * elements}]

    model = {"name": "GPT2LMHeadModel", "parameters": parameters, "buffers": {}}
    with_model(folder, rows, {**model, "config": config})
    text, options, made = asked()
    assert 'config = "config.json"' in made and 'architecture = "GPT2LMHeadModel"' in made, made
    assert json.loads((folder / "advice/config.json").read_text(encoding="utf-8")) == config
    assert "counted by config.json" in text and "config.json, prediction.json" in text, text
    lengths = [one for row in rows for one in row["lengths"]]
    mean = sum(one * one for one in lengths) / sum(lengths)
    products = 8 * 24 + 8 * 8 + 2 * 8 * 32 + 8 * 50  # The head is the table once more.
    flops = 6 * products + 12 * 8 * mean
    tflops = flops * options[0]["useful_tokens_per_s"] / 2 / 1e12
    assert abs(options[0]["tflops_per_rank"] / tflops - 1) < 0.01, (options[0], tflops)
    with_model(folder, rows, model)
    assert "compute:" not in asked()[0]
    (folder / "c.json").write_text(json.dumps(config), encoding="utf-8")
    assert asked("--config", "c.json")[1][0]["tflops_per_rank"] == options[0]["tflops_per_rank"]
    (folder / "c.json").write_text(json.dumps({**config, "n_embd": 16}), encoding="utf-8")
    failed = stepsim_program.run("advise", *RANKS, "--config", "c.json", status=2).stderr
    assert "makes another model than the recorded one" in failed and "transformer.wte.weight" in failed, failed


@in_folder_of_ranks
def test_names_of_files_and_folders_reach_no_shell(folder):
    odd = "$(touch broken-in) '; touch broken-in; `touch broken-in` \" &.jsonl"
    write(folder / odd, header(), training())
    stepsim_program.run("advise", odd, "--out-dir", "a $(touch broken-in) folder")
    assert (folder / "a $(touch broken-in) folder" / "profile.json").exists()
    assert not list(folder.rglob("broken-in"))


@in_folder_of_ranks
def test_one_table_has_the_step_now_and_what_would_change_it(folder):
    done = stepsim_program.run("advise", *RANKS, "--json", "a.json", "--html", "a.html")
    result = json.loads((folder / "a.json").read_text(encoding="utf-8"))
    now, *others = result["options"]
    assert (now["change"], now["policy"], now["bucket_cap"]) == ("now", "fixed", 25 << 20), now
    parts = ("data_ms", "forward_ms", "backward_ms", "exposed_communication_ms", "optimizer_ms")
    assert abs(sum(now[part] for part in parts) / now["step_ms"] - 1) < 0.01, now
    batches = next(one for one in others if one["change"] == "other batches")
    assert batches["policy"] == result["recommendation"]["policy"], batches
    assert batches["verdict"] == "faster" and batches["bucket_cap"] == 25 << 20, batches
    for one in others:
        low, high = one["gain_interval90"]
        gain = one["useful_tokens_per_s"] / now["useful_tokens_per_s"] - 1
        assert low <= one["gain"] <= high and abs(one["gain"] - gain) < 1e-9, one
    table = done.stdout.split("\n\n")[1].splitlines()
    assert table[0].startswith("train with") and len(table) == 1 + len(result["options"]), table
    assert re.match(r"fixed, 25 MiB +now ", table[1]), table
    assert all(len(line) <= 80 for line in table), table
    wide = stepsim_program.run("advise", *RANKS, "--wide").stdout.split("\n\n")[1].splitlines()
    assert "optimizer" in wide[0] and all(row.startswith(short) for row, short in zip(wide, table)), wide
    assert '"verdict":"now"' in (folder / "a.html").read_text(encoding="utf-8")


@in_folder_of_ranks
def test_its_files_serve_the_other_commands(folder):
    stepsim_program.run("advise", *RANKS, "--quiet")
    toml = (folder / "advice/scenario.toml").read_text(encoding="utf-8")
    for line in ('torch = "1.13"', 'bucket_cap = "25 MiB"', 'first_bucket_cap = "1 MiB"',
                 "# 2 loader workers:", "broadcasts of buffers", "samples = 5000",
                 "state_bytes_per_parameter = 4", "batch_size = 16", "set_epoch = true"):  # fmt: skip
        assert line in toml, f"{line}\n{toml}"
    for command in ("compare", "run", "blame", "buckets", "lengths"):
        stepsim_program.run(command, "advice/scenario.toml", "--quiet")
    stepsim_program.run("sweep", "advice/scenario.toml", "--over", "ddp.bucket_cap=1MiB,25MiB", "--quiet")
    again = stepsim_program.run("compare", "advice/scenario.toml", "--json", "-").stdout
    kept = (folder / "advice/prediction.json").read_text(encoding="utf-8")
    assert json.loads(again) == json.loads(kept)


@in_folder_of_ranks
def test_an_edited_scenario_is_kept_and_used(folder):
    stepsim_program.run("advise", *RANKS, "--quiet")
    file = folder / "advice/scenario.toml"
    own = file.read_text(encoding="utf-8").replace('name = "planner"', 'name = "mine"')
    file.write_text(own, encoding="utf-8")
    text = stepsim_program.run("advise", *RANKS).stdout
    assert "warning: advice/scenario.toml was edited and is used as it stands" in text, text
    assert file.read_text(encoding="utf-8") == own
    assert '"mine"' in (folder / "advice/prediction.json").read_text(encoding="utf-8")
    # What runs now is what was recorded, wherever it stands among the policies.
    head, first, *others = own.split("[[policy]]")
    assert 'name = "fixed"' in first and others, own
    file.write_text("[[policy]]".join([head, *others, "\n" + first]), encoding="utf-8")
    text = stepsim_program.run("advise", *RANKS, "--json", "a.json").stdout
    now = json.loads((folder / "a.json").read_text(encoding="utf-8"))["options"][0]
    assert (now["change"], now["policy"]) == ("now", "fixed"), now
    assert " with fixed (90 % interval " in text.splitlines()[0], text


@in_folder_of_ranks
def test_lengths_of_the_data_set_lead_to_a_plan_that_validate_takes(folder):
    draw = random.Random(5)
    lengths = [draw.randint(8, 120) for _ in range(640)]
    (folder / "lengths.txt").write_text("\n".join(map(str, lengths)) + "\n", encoding="utf-8")
    stepsim_program.run("advise", *RANKS, "--quiet")  # What it makes without lengths is made anew.
    text = stepsim_program.run("advise", *RANKS, "--lengths", "lengths.txt").stdout
    assert "stepsim diff " in text and "      stepsim validate advice/scenario.toml --live after.jsonl" in text, text
    command = next(line for line in text.splitlines() if line.startswith("more: "))
    words = command.removeprefix("more: stepsim ").split("(")[0].split()
    stepsim_program.run(*words)
    rows = [json.loads(line) for line in (folder / "advice/plan.jsonl").read_text().splitlines()[1:]]
    assert rows and all(
        row["lengths"] == [lengths[sample] for sample in row["samples"]] for row in rows
    )


class Taken:
    """Stands for stepsim.torch.BatchSampler, and keeps what it was given."""

    def __init__(self, *arguments, **given):
        self.arguments, self.given = arguments, given

    @classmethod
    def from_scenario(cls, *arguments):
        return cls(*arguments)


@in_folder_of_ranks
def test_the_answer_has_the_policy_as_python_to_paste(folder):
    text = stepsim_program.run("advise", *RANKS, "--json", "a.json").stdout
    result = json.loads((folder / "a.json").read_text(encoding="utf-8"))
    scenario = tomllib.loads((folder / "advice/scenario.toml").read_text(encoding="utf-8"))
    policy = next(one for one in scenario["policy"] if one["name"] == result["recommendation"]["policy"])
    assert result["kind"] == policy["kind"] and f'(kind "{policy["kind"]}")' in text, (policy, text)
    assert "".join(f"    {line}\n" for line in result["python"]) in text, text
    stub = types.SimpleNamespace(torch=types.SimpleNamespace(BatchSampler=Taken))
    names = {"stepsim": stub, "lengths": "all", "dataset": "data", "collate": "pad", "loss": 3.0,
             "DataLoader": Taken, "step": types.SimpleNamespace(loss_scale=0.5)}
    first, *lines = result["python"]
    assert first == "import stepsim.torch", first
    exec("\n".join(lines), names)
    assert names["sampler"].arguments == ("all", policy["kind"]), names["sampler"].arguments
    wanted = {key: value for key, value in policy.items() if key not in ("name", "kind")}
    wanted["seed"] = scenario["scenario"]["seed"]  # So that `stepsim plan` has the same batches.
    assert names["sampler"].given == wanted, (names["sampler"].given, wanted)
    assert names["loader"].given == {"batch_sampler": names["sampler"], "collate_fn": "pad"}
    assert names["loss"] == 1.5
    # What needs the profile, too, comes from the scenario.
    file = folder / "advice/scenario.toml"
    head, *policies = file.read_text(encoding="utf-8").split("[[policy]]")
    kept = [one for one in policies if 'name = "fixed"' in one or 'name = "planner"' in one]
    file.write_text("[[policy]]".join([head, *kept]), encoding="utf-8")
    stepsim_program.run("advise", *RANKS, "--json", "a.json")
    result = json.loads((folder / "a.json").read_text(encoding="utf-8"))
    exec("\n".join(result["python"][1:]), names)
    assert names["sampler"].arguments == ("advice/scenario.toml", "planner", "all"), names["sampler"].arguments


@in_folder_of_ranks
def test_code_to_paste_fits_the_screen_and_names_the_model_of_the_record(folder):
    text = stepsim_program.run("advise", *RANKS, "--json", "a.json").stdout
    python = json.loads((folder / "a.json").read_text(encoding="utf-8"))["python"]
    assert all(len(line) <= 76 for line in python) and len(python) > 5, python
    assert all(line.startswith("#") for line in python if "#" in line), python
    assert '\n    Recorder("after", ' in text and ", model=ddp, loader=loader)\n" in text, text
    for rank in range(2):
        rows = [row for row in training() if row["rank"] == rank]
        sharded = {"kind": "fsdp2", "units": "embed; hidden", "replicas": 1, "shards": 2,
                   "reshard_after_forward": "default", "param_dtype": "own", "reduce_dtype": "own", "offload": False,
                   "reshard_by_unit": [None] * 3, "unit_modules": [[""], ["embed"], ["hidden"]]}
        told = header(parallel=sharded)
        del told["ddp"]
        write(folder / f"run.rank{rank}.jsonl", told, rows)
    text = stepsim_program.run("advise", *RANKS, "--out-dir", "sharded").stdout
    assert "model=model, loader=loader)\n" in text and "model=ddp" not in text, text


@in_folder_of_ranks
def test_it_says_how_many_optimizer_steps_another_batch_makes_of_an_epoch(folder):
    text = stepsim_program.run("advise", *RANKS, "--json", "a.json", "--epochs", "3").stdout
    result = json.loads((folder / "a.json").read_text(encoding="utf-8"))
    steps = {row["policy"]: row["steps"] / 3 for row in result["epochs"]}
    best = result["recommendation"]["policy"]
    assert abs(steps["fixed"] - 5000 / 32) < 1e-6, steps
    said = re.search(r"it changes:   (\d+) samples a step in place of (\d+), so (\d+) optimizer steps an epoch "
                     r"in place of (\d+): learning rate and schedule need a look; samples move by", text)
    assert said, text
    assert said[2] == "32" and said[4] == "156" and int(said[3]) == round(steps[best]), (said[0], steps)
    assert abs(int(said[1]) * steps[best] / 5000 - 1) < 0.02, said[0]
    # As many samples: nothing to say of them.
    file = folder / "advice/scenario.toml"
    head, *policies = file.read_text(encoding="utf-8").split("[[policy]]")
    kept = [one for one in policies if 'name = "fixed"' in one or 'name = "bucketed"' in one]
    file.write_text("[[policy]]".join([head, *kept]), encoding="utf-8")
    text = stepsim_program.run("advise", *RANKS).stdout
    assert "best policy:  bucketed" in text and "it changes:   samples move by" in text, text


@in_folder_of_ranks
def test_an_epoch_has_as_many_steps_whatever_the_lengths_of_the_data(folder):
    (folder / "lengths.txt").write_text("30\n50\n" * 2500, encoding="utf-8")  # Recorded ones have 64 in the mean.
    stepsim_program.run("advise", *RANKS, "--json", "a.json", "--lengths", "lengths.txt")
    epochs = json.loads((folder / "a.json").read_text(encoding="utf-8"))["epochs"]
    (fixed,) = (row for row in epochs if row["policy"] == "fixed")
    assert abs(fixed["steps"] - 5000 / 32) < 1e-6, fixed
    said = stepsim_program.run("compare", "advice/scenario.toml").stdout
    note = "\nfixed: the 40 steps of its file, with 1280 of the 5000 samples; 156 of such steps are an epoch\n"
    assert note in said, said
    assert "order change: distance from the sampler's order, as a share" in said, said


def test_records_of_one_training_are_compared_together():
    rows = training()
    slower = [{**row, "step_ms": 1.5 * row["step_ms"]} for row in rows]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for file, policy, recorded in (("a", "fixed", rows), ("b", "fixed", slower), ("c", "other", slower)):
            write(folder / f"{file}.jsonl", header(policy=policy, started_at=f"2026-11-22T1{ord(file) - 97}:00:00Z"),
                  recorded)
        mean = recorded_mean(rows)
        for files, words in (("ab", f"; recorded {1.25 * mean:.0f} ms in the mean: {mean:.0f} ms in {name}/a.jsonl, "
                                    f"{1.5 * mean:.0f} ms in {name}/b.jsonl)"),
                             ("ac", f"; recorded {mean:.0f} ms in the mean: {mean:.0f} ms in {name}/a.jsonl, "
                                    f"{1.5 * mean:.0f} ms in {name}/c.jsonl, of another policy)")):
            said = stepsim_program.run("advise", *(f"{name}/{file}.jsonl" for file in files), "--out-dir",
                                       f"{name}/{files}").stdout
            assert words in said, (words, said)


def recorded_mean(rows):
    return sum(row["step_ms"] for row in rows[4:]) / len(rows[4:])


def test_what_runs_now_are_the_recorded_batches_whatever_formed_them():
    """Batches of similar lengths, under a name that says nothing, one of a policy that the scenario
    has, and one of its own: no gain is promised that the user has already."""
    draw = random.Random(3)
    sorted_lengths = iter(sorted(draw.randint(8, 120) for _ in range(16 * 2 * 40)))
    rows = training(lengths=lambda draw: next(sorted_lengths))
    for policy, shown in (("", "recorded"), ("group_by_length", "recorded"), ("mine", "mine")):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            write(folder / "run.jsonl", header(policy=policy), rows)
            done = stepsim_program.run("advise", str(folder / "run.jsonl"), "--out-dir", name + "/a", "--json",
                                name + "/a.json")
            first = done.stdout.splitlines()[0]
            assert f" ms with {shown} (90 % interval" in first, first
            assert f"; recorded {recorded_mean(rows):.2f} ms)" in first, (first, recorded_mean(rows))
            result = json.loads((folder / "a.json").read_text(encoding="utf-8"))
            now = result["options"][0]
            steps = [row["step_ms"] for row in rows]  # Of both ranks, which are alike.
            assert abs(now["step_ms"] * len(steps) / sum(steps) - 1) < 0.01, now
            (batched,) = (p for p in result["predictions"]["predictions"] if p["policy"] == "bucketed")
            gain = batched["summary"]["useful_tokens_per_s"] / now["useful_tokens_per_s"] - 1
            assert abs(gain) < 0.05, gain
            # An epoch takes longer with what gives fewer useful tokens per second.
            hours = {row["policy"]: row["hours"] for row in result["epochs"]}
            speeds = {p["policy"]: p["summary"]["useful_tokens_per_s"]
                      for p in result["predictions"]["predictions"]}
            assert sorted(hours, key=hours.get) == sorted(speeds, key=speeds.get, reverse=True)
            stepsim_program.run("compare", str(folder / "a/scenario.toml"), "--quiet")


@in_folder_of_ranks
def test_a_step_that_a_rank_has_no_row_of_is_left_out(folder):
    rows = training()
    write(folder / "run.jsonl", header(), rows[:-1])
    stepsim_program.run("advise", "run.jsonl", "--json", "a.json")
    now = json.loads((folder / "a.json").read_text(encoding="utf-8"))["options"][0]
    assert abs(now["step_ms"] / recorded_mean(rows[:-2]) - 1) < 0.03, now
    write(folder / "rank0.jsonl", header(), [row for row in rows if row["rank"] == 0])
    said = stepsim_program.run("advise", "rank0.jsonl", status=2).stderr
    assert "rank" in said, said


@in_folder_of_ranks
def test_accumulated_gradients_need_no_plan(folder):
    rows = training()
    for row in rows:
        row["lengths"] = 2 * row["lengths"]
        row.update(micro_batches=2, micro_batch_samples=[16, 16], samples=32)
        row["micro_batch_max_lengths"] = 2 * [row["max_length"]]
        for member in ("useful_tokens", "padded_tokens", "forward_ms", "backward_ms"):
            row[member] *= 2
        first = row["forward_ms"] / 2 + row["backward_ms"] / 2  # Before the second micro-batch.
        row["step_ms"] += first
        for bucket in row["buckets"]:
            bucket["launch_ms"] += first
            bucket["end_ms"] += first
    write(folder / "run.jsonl", header(), rows)
    text = stepsim_program.run("advise", "run.jsonl", "--json", "a.json").stdout
    assert "accumulation_steps = 2\n" in (folder / "advice/scenario.toml").read_text(), text
    result = json.loads((folder / "a.json").read_text(encoding="utf-8"))
    mean = next(p for p in result["predictions"]["predictions"] if p["policy"] == "fixed")
    recorded = sum(row["step_ms"] for row in rows[4:]) / len(rows[4:])
    assert abs(mean["summary"]["step_time_ms"]["mean"] / recorded - 1) < 0.06, (mean, recorded)


def test_data_of_one_length_needs_no_other_policy():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        write(folder / "run.jsonl", header(), training(lengths=lambda _: 64))
        text = stepsim_program.run("advise", str(folder / "run.jsonl"), "--out-dir", str(folder / "a")).stdout
        assert "best policy:  fixed: the scenario has no other" in text, text
        # Nothing to plan: the batches stay as they are.
        assert "stepsim plan" not in text and "next: stepsim compare " in text, text


@in_folder_of_ranks
def test_the_program_needs_no_other(folder):
    """A copy by itself, where no other program can be found, keeps the report of the same fit."""
    alone = shutil.copy2(stepsim_program.STEPSIM, folder / "stepsim")
    small_runner.run(alone, "advise", *RANKS, "--quiet", env={"PATH": "", "HOME": str(folder)})
    kept = (folder / "advice/profile.txt").read_text(encoding="utf-8")
    assert kept.startswith("38 steps of 2 ranks; ") and "\nwrote advice/profile.json\n" in kept, kept
    assert kept.endswith("next: stepsim compare SCENARIO.toml --profile advice/profile.json\n"), kept
    origin = json.loads((folder / "advice/profile.json").read_text(encoding="utf-8"))["provenance"]
    command = "stepcal import run-record run.rank0.jsonl run.rank1.jsonl --profile advice/profile.json"
    assert origin["recorded"]["command"] == command, origin


def refusal(folder, *arguments):
    arguments = [str(argument) for argument in (*arguments, "--out-dir", folder / "out")]
    done = stepsim_program.run("advise", *arguments, status=2)
    assert "Traceback" not in done.stderr and "internal" not in done.stderr, done.stderr
    return done.stderr


def test_mistakes_are_named():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        rows = training()
        assert "no run record given" in refusal(folder)
        missing = folder / "run.rank0.jsonl"
        write(missing, header(), [row for row in rows if row["rank"] == 0])
        assert "holds rank 0 of 2 ranks; give the files of all ranks" in refusal(folder, missing)
        other = folder / "run.rank1.jsonl"
        write(other, header(policy="b"), [row for row in rows if row["rank"] == 1])
        assert "is of another run than" in refusal(folder, missing, other)
        write(other, header(), [row for row in rows if row["rank"] == 0])
        assert "holds rank 0, as " in refusal(folder, missing, other)
        bare = folder / "bare.jsonl"
        write(bare, {k: v for k, v in header().items() if k != "model"}, rows)
        assert "no profile of these records:" in refusal(folder, bare)
        blind = folder / "blind.jsonl"
        write(blind, header(), [{k: v for k, v in row.items() if k != "lengths"} for row in rows])
        assert "recorder.step(lengths=" in refusal(folder, blind)
        unsaid = folder / "unsaid.jsonl"  # What the recorder writes of step() without lengths.
        nothing = {"samples": 0, "max_length": 0, "useful_tokens": 0, "padded_tokens": 0, "lengths": []}
        write(unsaid, header(), [{**row, **nothing} for row in rows])
        assert "unsaid.jsonl: error: holds no samples; give the tokens of each one" in refusal(folder, unsaid)
        assert "recorder.step(lengths=" in refusal(folder, unsaid)
        whole = folder / "whole.jsonl"
        write(whole, header(), rows)
        own = folder / "out" / "profile.json"
        assert "would overwrite an input" in refusal(folder, whole, "--base", own)
        assert "--price-per-hour must be" in refusal(folder, whole, "--price-per-hour", "-1")
        error = refusal(folder, stepsim_program.PAIR)
        assert "not a file of JSON lines" in error and "stepsim-run-record/1" in error, error
        error = stepsim_program.run("compare", str(whole), status=2).stderr
        assert "is JSON, not a scenario" in error and "stepsim advise" in error, error
        plan = folder / "plan.jsonl"
        pair = stepsim_program.PAIR
        stepsim_program.run("plan", pair, "--policy", "variable_fixed", "--out", str(plan), "--quiet")
        error = refusal(folder, whole, "--plan", plan)
        assert "no --plan is of it" in error, error
        write(whole, header(policy="variable_fixed"), rows)
        error = refusal(folder, whole, "--plan", plan)
        assert "cannot be those of the" in error and "tiny-classifier" in error, error


if __name__ == "__main__":
    sys.exit(small_runner.main(globals()))
