#!/usr/bin/env python3
"""stepsim.integrations inside the loops of Trainer, SFTTrainer, Accelerate and Lightning, under two ranks of
gloo on the CPU.

usage: PYTHONPATH=BUILD/sim/python adapters_test.py [--table FILE]

Needs torch, transformers, trl, peft, accelerate and lightning. The ranks run with the Python that
STEPSIM_FRAMEWORKS_PYTHON names, else with this one.
"""

import functools
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS), str(TESTS / "python")]

import small_runner  # noqa: E402

PROGRAMS = TESTS / "python" / "adapters"
SAMPLES = 241
SECONDS = 900
BUDGET = {"policy": "token_budget", "max_tokens": 200}
ADVISES = {"advisor": {"steps": 24, "all_reduce_seconds": 0.3}}
_folder = tempfile.TemporaryDirectory(prefix="stepsim-adapters-")


def interpreter():
    return os.environ.get("STEPSIM_FRAMEWORKS_PYTHON", sys.executable)


def environment():
    return {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false",
            "CUDA_VISIBLE_DEVICES": ""}


def once(function):
    """Calls a function once; what it returned or raised is there for all who call it."""

    @functools.cache
    def outcome():
        try:
            return function(), None
        except BaseException as error:  # pylint: disable=broad-except
            return None, error

    def called():
        result, error = outcome()
        if error is not None:
            raise error
        return result

    return called


@functools.cache
def needed(*libraries):
    """Raises Skip where one of the libraries, or the package, cannot be imported."""
    imports = "; ".join(f"import {name}" for name in ("stepsim", *libraries))
    done = subprocess.run([interpreter(), "-c", imports], check=False, env=environment(), text=True,
                          capture_output=True, timeout=SECONDS)
    if done.returncode:
        raise small_runner.Skip(f"{interpreter()}: {done.stderr.strip().splitlines()[-1]}")


def trained(program, specs, name=None):
    """Trains the specs on two ranks. Returns {name: what came of it}."""
    import torch_store

    folder = pathlib.Path(_folder.name) / (name or program)
    folder.mkdir()
    for name, spec in specs.items():
        spec.setdefault("folder", str(folder / name))
        if "mixin" in spec and spec["mixin"].get("advisor"):
            spec["mixin"] = {"advisor": {**spec["mixin"]["advisor"], "out_dir": str(folder / name / "advice")}}
    (folder / "specs.json").write_text(json.dumps(specs), encoding="utf-8")
    names = {**environment(), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1",
             "MASTER_PORT": str(torch_store.free_port())}
    ranks = [
        subprocess.Popen(
            [interpreter(), str(PROGRAMS / f"{program}_rank.py"), "specs.json", "out.json"], cwd=folder,
            env={**names, "RANK": str(rank), "LOCAL_RANK": str(rank)}, text=True, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        for rank in range(2)
    ]  # fmt: skip
    statuses, texts = torch_store.ended(ranks, SECONDS)
    assert not any(statuses), "\n".join(text[-4000:] for text in texts)
    return json.loads((folder / "out.json").read_text(encoding="utf-8"))


def samples_of(result, epoch):
    return [one for rank in result["ranks"] for step in rank[epoch] for batch in step for one in batch]


def check_epochs(result, epochs=3, padding=1):
    """Every sample is trained in every epoch, and the ranks make the same numbers of steps. What comes
    more often are `padding` samples, as DistributedSampler's so that ranks have equal numbers, and
    those with which an idle rank takes part, which do not count."""
    for rank in result["ranks"]:
        assert len(rank) == epochs, [len(rank) for rank in result["ranks"]]
    for epoch in range(epochs):
        seen = samples_of(result, epoch)
        assert sorted(set(seen)) == list(range(SAMPLES)), (epoch, SAMPLES - len(set(seen)))
        counts = [len(rank[epoch]) for rank in result["ranks"]]
        assert len(set(counts)) == 1, counts
        idle = result["idle"][epoch] if result.get("idle") else 0
        assert padding is None or len(seen) == SAMPLES + padding + idle, (len(seen), idle)


def check_resumed(resumed, whole, epoch, steps):
    """A training that goes on from a checkpoint `steps` steps into `epoch` trains the batches that were
    left, and has the weights of one that was not interrupted."""
    for own, other in zip(resumed["ranks"], whole["ranks"]):
        assert own == [other[epoch][steps:], *other[epoch + 1 :]], (own[0][:1], other[epoch][steps : steps + 1])
    assert resumed["weights"] == whole["weights"]


# ---- Trainer and SFTTrainer -----------------------------------------------------------------------


@once
def with_trainer():
    needed("transformers", "accelerate")
    base = {"trainer": "trainer", "model": "llama", "batching": BUDGET}
    cut = {**base, "accumulation": 2, "save_at": 4, "epochs": 2}
    checkpoints = pathlib.Path(_folder.name) / "trainer" / "cut"
    resumed = {**cut, "resume": str(checkpoints / "checkpoint-12")}
    return trained("trainer", {
        "llama": {**base, "mixin": ADVISES},
        "llama, 2 accumulated": {**base, "accumulation": 2},
        "bert": {**base, "model": "bert", "mixin": ADVISES},
        "bert, 2 accumulated": {**base, "model": "bert", "accumulation": 2, "workers": 1},
        "bert, min_max": {**base, "model": "bert", "batching": {"policy": "min_max", "global_batch": 16}},
        "bert, Trainer's batches": {**base, "model": "bert", "batching": None, "epochs": 1},
        "BERT, Trainer's weights": {**base, "model": "bert", "batching": None, "accumulation": 2, "epochs": 1,
                                    "mixin": {"weighting": "trainer"}},
        "2.5 epochs": {**base, "epochs": 2.5},
        "20 steps": {**base, "max_steps": 20},
        "late": {**base, "late": 0.1, "epochs": 1, "mixin": {"recorder": "late"}},
        "late, Trainer's weights": {**base, "late": 0.1, "epochs": 1, "mixin": {"recorder": "late2", "weighting": "trainer"}},
        "cut": cut,
        "resumed": resumed,
        "resumed at an end": {**cut, "resume": str(checkpoints / "checkpoint-8")},
        "another accumulation": {**resumed, "accumulation": 1, "raises": True},
        "another policy": {**resumed, "batching": {"policy": "token_budget", "max_tokens": 100}, "raises": True},
    })  # fmt: skip


def test_trainer_visits_every_sample_in_every_epoch():
    for name, result in with_trainer().items():
        if name.startswith(("llama", "bert")):
            if "Trainer's" in name:
                check_epochs(result, 1, padding=None)  # Accelerate fills the last batches up.
            else:
                check_epochs(result)


def test_trainer_plans_all_steps_of_epochs_that_differ():
    result = with_trainer()["llama"]
    counts = [len(epoch) for epoch in result["ranks"][0]]
    assert len(set(counts)) > 1, counts  # Else this shows nothing.
    assert result["max_steps"] == result["steps"] == sum(counts), (result["max_steps"], counts)
    assert result["rates"][-1] == 0 and result["rates"][-2] > 0, result["rates"][-2:]  # A linear schedule ends there.
    part = with_trainer()["2.5 epochs"]
    assert part["steps"] == counts[0] + counts[1] + math.ceil(counts[2] / 2), (part["steps"], counts)
    assert with_trainer()["20 steps"]["steps"] == 20
    halves = with_trainer()["llama, 2 accumulated"]["ranks"][0]
    assert [len(epoch) for epoch in halves] == [math.ceil(count / 2) for count in counts]


def test_trainer_has_the_gradient_of_one_process():
    for name, result in with_trainer().items():
        if name.startswith(("llama", "bert")):
            assert result["gradient_error"] < 1e-6, (name, result["gradient_error"])
    # Twice for the processes and twice for the batches: what the mix-in is for. Where Trainer mends it, this says so.
    wrong = with_trainer()["BERT, Trainer's weights"]["gradient_error"]
    assert abs(wrong - 3) < 1e-3, wrong


def test_trainer_resumes_inside_an_epoch():
    whole, resumed = with_trainer()["cut"], with_trainer()["resumed"]
    steps = len(whole["ranks"][0][0])
    assert steps == 8 and len(whole["ranks"][0][1]) > 4, steps
    check_resumed(resumed, whole, 1, 4)
    check_resumed(with_trainer()["resumed at an end"], whole, 1, 0)
    raised = with_trainer()["another accumulation"]["raised"]
    assert "gradient_accumulation_steps=2, now 1" in raised, raised
    raised = with_trainer()["another policy"]["raised"]
    assert "it was taken with another policy" in raised, raised


def check_advice(result):
    assert result["advisor_error"] is None and result["advice"], result["advisor_error"]


def test_trainer_is_advised():
    for name in ("llama", "bert"):
        check_advice(with_trainer()[name])


@once
def with_sft():
    needed("trl", "datasets", "peft")
    base = {"trainer": "sft", "model": "llama", "batching": BUDGET, "sft": {"max_length": None}}
    return trained("trainer", name="sft", specs={
        "plain": {**base, "mixin": ADVISES},
        "padding_free": {**base, "sft": {"max_length": None, "padding_free": True}},
        "packing": {**base, "sft": {"max_length": 64, "packing": True}, "accumulation": 2},
        "lora": {**base, "lora": True, "mixin": {"recorder": "lora"}},
    })  # fmt: skip


def check_record(path, frozen=0):
    """Returns the header of a run record whose every row has its parts."""
    header, *rows = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    assert header["optimizer"]["kind"] == "AdamW", header["optimizer"]
    assert header["ddp"]["bucket_cap_bytes"] == 25 << 20 and header["world_size"] == 2
    assert sum(one.get("frozen", False) for one in header["model"]["parameters"]) == frozen
    for row in rows:
        assert row["buckets"] and row["lengths"] and row["forward_ms"] > 0 and row["optimizer_ms"] > 0, row
        assert row["useful_tokens"] == sum(row["lengths"]) <= row["padded_tokens"], row
    return header, rows


def test_trainer_books_no_waiting_for_counts_on_loading():
    with_trainer()
    for name in ("late", "late2"):
        _, rows = check_record(pathlib.Path(_folder.name) / "trainer" / f"{name}.jsonl")
        data = sorted(row["data_ms"] for row in rows if row["rank"] == 0)
        steps = sorted(row["step_ms"] for row in rows if row["rank"] == 0)
        assert steps[len(steps) // 2] > 100 > 2 * data[len(data) // 2], (name, data, steps)


def test_sft_visits_every_sample_with_the_gradient_of_one_process():
    for name, result in with_sft().items():
        check_epochs(result, padding=None if name == "packing" else 1)  # A pack holds several samples.
        assert result["gradient_error"] < 1e-6, (name, result["gradient_error"])
    check_advice(with_sft()["plain"])


def test_frozen_weights_are_recorded():
    """LoRA: 4 of 25 tensors train, and make one bucket."""
    with_sft()
    header, rows = check_record(pathlib.Path(_folder.name) / "sft" / "lora.jsonl", frozen=21)
    assert header["model"]["name"] == "LlamaForCausalLM", header["model"]["name"]
    trained_bytes = sum(4 * math.prod(one["shape"]) for one in header["model"]["parameters"] if not one.get("frozen"))
    assert [bucket["bytes"] for bucket in rows[-1]["buckets"]] == [trained_bytes]


# ---- Accelerate ---------------------------------------------------------------------------------


@once
def with_accelerate():
    needed("accelerate", "transformers")
    cut = {"batching": BUDGET, "epochs": 2, "save_at": 20}
    advisor = {**ADVISES["advisor"], "out_dir": str(pathlib.Path(_folder.name) / "advice")}
    return trained("accelerate", {
        "plain": {"batching": BUDGET},
        "2 accumulated": {"batching": BUDGET, "accumulation": 2, "workers": 1},
        "min_max": {"batching": {"policy": "min_max", "global_batch": 16}, "loader": {"even_batches": False}},
        "advised": {"batching": BUDGET, "advisor": advisor},
        "cut": {**cut, "folder": str(pathlib.Path(_folder.name) / "accelerate" / "state")},
        "resumed": {**cut, "resume": str(pathlib.Path(_folder.name) / "accelerate" / "state")},
        "dealt out twice": {"batching": BUDGET, "sampler": "plain", "raises": True},
        "prepared twice": {"batching": BUDGET, "twice": True},
        "split": {"batching": BUDGET, "loader": {"split_batches": True}, "raises": True},
        "dispatched": {"batching": BUDGET, "loader": {"dispatch_batches": True}, "raises": True},
    })  # fmt: skip


def test_accelerate_visits_every_sample_with_the_gradient_of_one_process():
    for name in ("plain", "2 accumulated", "min_max", "advised", "prepared twice"):
        result = with_accelerate()[name]
        check_epochs(result)
        assert name == "advised" or result["gradient_error"] < 1e-6, (name, result["gradient_error"])
    check_advice(with_accelerate()["advised"])


def test_accelerate_resumes_inside_an_epoch():
    whole = with_accelerate()["cut"]
    steps = 20 - len(whole["ranks"][0][0])
    assert 0 < steps < len(whole["ranks"][0][1]), steps
    check_resumed(with_accelerate()["resumed"], whole, 1, steps)


def test_accelerate_refuses_batches_that_are_dealt_out_twice():
    raised = {name: result["raised"] for name, result in with_accelerate().items() if "raised" in result}
    assert "take stepsim.integrations.accelerate.BatchSampler" in raised["dealt out twice"], raised
    assert "without split_batches and dispatch_batches" in raised["split"], raised
    assert "without split_batches and dispatch_batches" in raised["dispatched"], raised


# ---- Lightning ----------------------------------------------------------------------------------


@once
def with_lightning():
    needed("lightning", "transformers")
    cut = {"batching": BUDGET, "epochs": 2, "accumulation": 2, "save_at": [8, 11]}
    folder = pathlib.Path(_folder.name) / "lightning" / "cut"
    advisor = {**ADVISES["advisor"], "out_dir": str(pathlib.Path(_folder.name) / "lightning" / "advice")}
    return trained("lightning", {
        "plain": {"batching": BUDGET, "callback": {"advisor": advisor}},
        "2 accumulated": {"batching": BUDGET, "accumulation": 2, "workers": 1},
        "min_max": {"batching": {"policy": "min_max", "global_batch": 16}, "callback": {"recorder": "minmax"}},
        "cut": cut,
        "resumed": {**cut, "resume": str(folder / "11.ckpt")},
        "resumed at an end": {**cut, "resume": str(folder / "8.ckpt")},
        "dealt out twice": {"batching": BUDGET, "trainer": {"use_distributed_sampler": True}, "raises": True},
        "not reloaded": {"batching": BUDGET, "trainer": {"reload_dataloaders_every_n_epochs": 0}, "raises": True},
    })  # fmt: skip


def test_lightning_visits_every_sample_with_the_gradient_of_one_process():
    for name in ("plain", "2 accumulated", "min_max"):
        result = with_lightning()[name]
        check_epochs(result)
        assert result["gradient_error"] < 1e-6, (name, result["gradient_error"])
        counts = [len(epoch) for epoch in result["ranks"][0]]
        assert result["planned"] == result["steps"] == sum(counts), (result["planned"], counts)
    check_advice(with_lightning()["plain"])
    check_record(pathlib.Path(_folder.name) / "lightning" / "minmax.jsonl")


def test_lightning_resumes_inside_an_epoch():
    whole = with_lightning()["cut"]
    assert len(whole["ranks"][0][0]) == 8 and len(whole["ranks"][0][1]) > 3
    check_resumed(with_lightning()["resumed"], whole, 1, 3)
    check_resumed(with_lightning()["resumed at an end"], whole, 1, 0)


def test_lightning_refuses_settings_that_lose_samples():
    assert "say use_distributed_sampler=False" in with_lightning()["dealt out twice"]["raised"]
    assert "say reload_dataloaders_every_n_epochs=1" in with_lightning()["not reloaded"]["raised"]


# ---- what the adapters take hold of -------------------------------------------------------------


PARTS = """
import sys, warnings
import numpy
from stepsim.errors import InputError
from stepsim.integrations._versions import Parts

class Owner:
    def known(self, one, two): ...

def of(tested, name, arguments):
    Parts("numpy", tested, [(Owner, name, arguments)]).check()

major = ".".join(numpy.__version__.split(".")[:2])
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    of([major], "known", ["one", "two"])
    assert not told, told
    of(["0.1"], "known", ["one"])
    assert "not tested with numpy " + numpy.__version__ in str(told[0].message), told[0].message
for name, arguments, expected in [("gone", [], "has no gone in Owner"), ("known", ["three"], "a known without three")]:
    try:
        of([major], name, arguments)
        raise AssertionError(name)
    except InputError as error:
        assert expected in str(error) and f"install numpy=={major}.*" in str(error), error
"""


def test_parts_that_are_not_there_are_named_with_the_versions_tested():
    needed()
    small_runner.run(interpreter(), "-c", PARTS, env=environment())


# ---- the table of tests/live/ADAPTERS.md --------------------------------------------------------


def row_of(library, name, result):
    epochs = range(len(result["ranks"][0]))
    seen = [samples_of(result, epoch) for epoch in epochs]
    counts = [[len(rank[epoch]) for rank in result["ranks"]] for epoch in epochs]
    missed = [SAMPLES - len(set(one)) for one in seen]
    error = result["gradient_error"]
    steps = " ".join(str(own[0]) if len(set(own)) == 1 else "/".join(map(str, own)) for own in counts)
    more = " ".join(str(len(one) - SAMPLES) for one in seen)
    idle = " ".join(map(str, result["idle"])) if result.get("idle") else ""
    return (f"| {library} | {name} | {' '.join(map(str, missed))} | {more} | {idle} | {steps} | "
            f"{'' if error is None else f'{error:.1e}'} |")


def table():
    lines = ["| library | case | samples missed, by epoch | more visits | of these idle | steps of each rank | gradient error |",
             "| --- | --- | --- | --- | --- | --- | --- |"]
    advice = []
    for library, results in (("Trainer", with_trainer), ("SFTTrainer", with_sft), ("Accelerate", with_accelerate),
                             ("Lightning", with_lightning)):
        try:
            told = results()
        except small_runner.Skip as reason:
            lines.append(f"| {library} | skipped: {reason} | | | | | |")
            continue
        for name, result in told.items():
            if "ranks" in result and not name.startswith("resumed") and not name.startswith("late"):
                lines.append(row_of(library, name, result))
            if result.get("advice"):
                advice += [f"{library}, {name}:", "", "```", *result["advice"], "```", ""]
    return "\n".join([*lines, "", *advice])


def main():
    status = small_runner.main(dict(globals()))
    if sys.argv[1:2] == ["--table"]:
        pathlib.Path(sys.argv[2]).write_text(table() + "\n", encoding="utf-8")
    return status


if __name__ == "__main__":
    sys.exit(main())
