"""Runs stepsim models with files of transformers: tensors, order of readiness, operations, and what is refused.

usage: models_test.py PATH_OF_STEPSIM

tiny_models.json.gz has models of each kind as transformers 5.24 builds and PyTorch 2.15 runs them: their tensors, the
order in which hooks saw gradients, and the operations that FlopCounterMode counted for 2 samples of 16 tokens.
tests/live/config_models.py writes it anew.
"""

import gzip
import json
import os
import pathlib
import sys

from stepsim_program import ROOT, run

import small_runner  # from a folder that stepsim_program names

TINY = pathlib.Path(__file__).resolve().parent / "tiny_models.json.gz"
LLAMA = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64, "num_attention_heads": 4,
         "num_hidden_layers": 2, "vocab_size": 100, "dtype": "bfloat16"}


def told(config, *words):
    """Returns what the program says of a configuration, which is left behind as config.json."""
    pathlib.Path("config.json").write_text(json.dumps(config), encoding="utf-8")
    answer = json.loads(run("models", "config.json", "--json", "-", *words).stdout)
    answer["tensors"] = [[t["name"], t["shape"], t["requires_grad"]] for t in answer["tensors"]]
    return answer


def refused(config):
    """Returns the message about a configuration."""
    pathlib.Path("config.json").write_text(json.dumps(config), encoding="utf-8")
    return run("models", "config.json", status=2).stderr


@small_runner.in_new_folder
def test_published_configurations_have_the_tensors_of_transformers():
    data = pathlib.Path(os.environ.get("STEPSIM_DATA", ROOT / ".." / "shared" / "data")) / "model_configs"
    if not data.exists():
        raise small_runner.Skip(f"no reference data at {data}")
    with gzip.open(data / "tensors.json.gz") as file:
        expected = json.load(file)
    assert len(expected) >= 18
    wrong = []
    for name, tensors in expected.items():
        config = json.loads((data / f"{name}.json").read_text(encoding="utf-8"))
        if told(config)["tensors"] != tensors:
            wrong.append(name)
    assert not wrong, wrong


@small_runner.in_new_folder
def test_small_models_of_each_kind_equal_those_that_ran():
    with gzip.open(TINY) as file:
        models = json.load(file)
    assert len(models) >= 40
    wrong = []
    for model in models:
        answer = told(model["config"], "--samples", "2", "--length", "16")
        wrong += [(model["name"], key) for key in ("tensors", "ready_order", "flops") if answer[key] != model[key]]
    assert not wrong, wrong


@small_runner.in_new_folder
def test_a_list_of_the_tensors_is_read_by_a_scenario():
    told(LLAMA)
    run("models", "config.json", "--csv", "tensors.csv")
    text = pathlib.Path("tensors.csv").read_text(encoding="utf-8")
    assert text.startswith("name,shape,requires_grad\nmodel.embed_tokens.weight,100x64,True\n"), text
    pathlib.Path("s.toml").write_text(SCENARIO.replace('config = "config.json"', 'kind = "blocks"\ntensors = "tensors.csv"')
                                      + '[times]\nforward = "1 ms"\nbackward = "2 ms"\n', encoding="utf-8")
    told({**LLAMA, "dtype": "float32"})
    listed = json.loads(run("buckets", "s.toml", "--json", "-").stdout)
    pathlib.Path("c.toml").write_text(SCENARIO, encoding="utf-8")
    described = json.loads(run("buckets", "c.toml", "--json", "-").stdout)
    assert listed["initial_bytes"] == described["initial_bytes"]


SCENARIO = """[scenario]
name = "mine"
steps = 4
[cluster]
ranks = 8
profile = "h100_8x_published"
[model]
config = "config.json"
[data]
samples = 1000
lengths = { constant = 64 }
[[policy]]
name = "fixed"
kind = "fixed"
batch_size = 4
"""


@small_runner.in_new_folder
def test_a_scenario_takes_a_config_and_nothing_beside_it():
    told(LLAMA)
    pathlib.Path("s.toml").write_text(SCENARIO, encoding="utf-8")
    # In 16 bit, with fused attention, as the file says: for those there are prices.
    assert "model llama" in run("run", "s.toml").stdout
    for setting, message in (
        ("model.layers=3", "model.layers=3: error: config.json has the sizes"),
        ("model.architecture=LlamaForEverything", "unknown class of llama 'LlamaForEverything'"),
        ("model.config=none.json", "none.json"),
        ("model.dtype=f32", "no cost for embedding"),
    ):
        done = run("run", "s.toml", "--set", setting, status=2).stderr
        assert message in done, (setting, done)
    assert run("run", "s.toml", "--set", "model.architecture=LlamaForTokenClassification").returncode == 0
    pathlib.Path("s.toml").write_text(SCENARIO.replace('config = "config.json"', 'preset = "Qwen/Qwen3-0.6B"'),
                                      encoding="utf-8")
    message = run("run", "s.toml", status=2).stderr
    assert "is a name of Hugging Face, which is not looked up" in message, message
    assert 'AutoConfig.from_pretrained("Qwen/Qwen3-0.6B").to_json_file("config.json")' in message, message


@small_runner.in_new_folder
def test_sizes_that_a_file_leaves_out_are_told():
    """A misspelt key is taken for one that is not there, and transformers' default makes another model of it."""
    stated = {**LLAMA, "intermediate_size": 172}
    told(stated)
    assert "not in the file" not in run("models", "config.json").stdout
    for key, default in (("hidden_size", 4096), ("num_hidden_layers", 32), ("num_attention_heads", 32),
                         ("intermediate_size", 11008), ("vocab_size", 32000)):
        rest = {name: value for name, value in stated.items() if name != key}
        told({**rest, key.replace("_", "-"): 1})
        text = run("models", "config.json").stdout
        assert f"\nnot in the file {key} {default}, transformers' own default for this class\n" in text, text
        words = ["init", "--model", "config.json", "--gpus", "8", "--profile", "h100_8x_published", "--length", "64"]
        text = run(*words, "--batch-size", "8", "--out", f"{key}.toml").stdout
        assert f"\nassumed: {key} {default} (not in the config.json)\n" in text, text


@small_runner.in_new_folder
def test_a_model_of_several_names_the_part_that_is_known():
    message = refused({"model_type": "gemma3", "text_config": {**LLAMA, "model_type": "gemma3_text"}})
    assert "its text_config is one that is known ('gemma3_text')" in message and "did you mean" not in message, message
    message = refused({"model_type": "gemma9", "text_config": {"model_type": "gemma9_text"}})
    assert "unknown model_type 'gemma9'" in message and "text_config" not in message, message


@small_runner.in_new_folder
def test_what_is_not_known_is_refused_with_the_ways_on():
    message = refused({**LLAMA, "model_type": "mamba2"})
    assert "unknown model_type 'mamba2'; known: llama," in message, message
    assert 'kind = "recorded"' in message and "--tensors" in message, message
    message = refused({**LLAMA, "architectures": ["LlamaForQuestions"]})
    assert "unknown class of llama 'LlamaForQuestions'" in message and "LlamaForCausalLM" in message, message
    for change, words in (
        ({"hidden_size": "wide"}, "hidden_size: expected a whole number"),
        ({"hidden_size": -1}, "hidden_size: expected a whole number"),
        ({"num_attention_heads": 0}, "num_attention_heads: 0 heads"),
        ({"num_key_value_heads": 3}, "num_key_value_heads: 3 do not divide the 4 heads"),
        ({"tie_word_embeddings": "yes"}, "tie_word_embeddings: expected true or false"),
        ({"vocab_size": 0}, "would have a size of 0"),
        ({"hidden_size": 1 << 30}, "hidden_size: expected a whole number from 0 to"),
    ):
        message = refused({**LLAMA, **change})
        assert words in message, (change, message)
    pathlib.Path("config.json").write_text("[1]", encoding="utf-8")
    assert "no model_type" in run("models", "config.json", status=2).stderr
    assert "--samples needs a config.json" in run("models", "--samples", "2", status=2).stderr


if __name__ == "__main__":
    sys.exit(small_runner.main(globals()))
