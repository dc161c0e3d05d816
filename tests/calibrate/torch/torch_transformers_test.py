#!/usr/bin/env python3
"""Models of transformers by their config.json: from a scenario to what was measured and trained, without a line of
the user's own.

usage: torch_transformers_test.py PATH_OF_STEPCAL PATH_OF_STEPSIM
Under a Python without transformers only the refusal is tested.
"""

import gzip
import importlib.util
import json
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[3]
TORCH = ROOT / "calibrate" / "torch"
sys.path[:0] = [str(ROOT / "tests"), str(TORCH)]
import small_runner  # noqa: E402  (needs the paths above)
from torch_store import torch_or_skip  # noqa: E402

STEPCAL, STEPSIM = (os.path.abspath(path) for path in sys.argv[1:3])
TINY = ROOT / "tests" / "sim" / "cli" / "tiny_models.json.gz"
CONFIG = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 32, "intermediate_size": 64,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 512,
}  # fmt: skip
SCENARIO = """
[scenario]
name = "named"
steps = 6
warmup_steps = 2
[cluster]
ranks = 2
communicator = "gloo"
[model]
config = "config.json"
[data]
samples = 200
lengths = { uniform = [8, 64], seed = 1 }
[[policy]]
name = "fixed"
kind = "fixed"
batch_size = 4
[[policy]]
name = "token_budget"
kind = "token_budget"
max_tokens = 200
"""


def has_transformers():
    return importlib.util.find_spec("transformers") is not None


def transformers_or_skip():
    torch_or_skip()
    if not has_transformers():
        raise small_runner.Skip("transformers is not installed")


def shell(*command, status=0):
    words = [sys.executable if one == "python" else one for one in map(str, command)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""}
    return small_runner.output(*words, status=status, env=environment, timeout=600)


def plans():
    pathlib.Path("config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    pathlib.Path("named.toml").write_text(SCENARIO, encoding="utf-8")
    shell(STEPSIM, "plan", "named.toml", "--out-dir", "plans", "--quiet")
    said = shell(STEPCAL, "grid", *sorted(pathlib.Path("plans").iterdir()), "--out", "shapes.json", "--count", "6")
    assert "next: python3 -m stepsim.torch.calibrate --shapes shapes.json --out mine" in said, said
    return sorted(pathlib.Path("plans").iterdir())


@small_runner.in_new_folder
def test_without_transformers_what_is_missing_is_said():
    torch_or_skip()
    if has_transformers():
        raise small_runner.Skip("transformers is installed")
    said = shell("python", TORCH / "stepsim_live.py", *plans(), "--out-dir", "live", status=2)
    assert "which is not installed here: pip install transformers, or give your own my_model.py" in said, said


@small_runner.in_new_folder
def test_from_a_config_to_a_validated_prediction():
    transformers_or_skip()
    paths = plans()
    calibrate = ["python", TORCH / "stepsim_calibrate.py", "--shapes", "shapes.json", "--out", "named"]
    said = shell(*calibrate, "--seconds", "8", "--device", "cpu")
    (next_command,) = (line[len("next: ") :] for line in said.splitlines() if line.startswith("next: "))
    folders = os.pathsep.join([os.path.dirname(STEPCAL), os.path.dirname(STEPSIM), os.environ["PATH"]])
    done = subprocess.run(next_command, shell=True, check=False, capture_output=True, text=True,
                          env={**os.environ, "PATH": folders})  # fmt: skip
    assert done.returncode == 0, (next_command, done.stdout, done.stderr)
    shell("python", TORCH / "stepsim_live.py", *paths, "--out-dir", "live", "--device", "cpu")
    recorded = ["--profile", "named.json"]
    text = shell(STEPSIM, "compare", "named.toml", *recorded)
    assert "token_budget" in text, text
    live = [f"live/{path.name}" for path in paths]
    text = shell(STEPSIM, "validate", "named.toml", *recorded, "--live", *live, status=(0, 1))
    assert "fixed" in text and "error" in text, text
    with open("live/fixed.jsonl", encoding="utf-8") as lines:
        model = json.loads(next(lines))["model"]
    assert model["name"] == "LlamaForCausalLM" and len(model["parameters"]) == 21, model


def test_every_kind_of_model_trains_on_batches_with_padding():
    transformers_or_skip()
    import stepsim_transformers
    import torch

    with gzip.open(TINY) as file:
        cases = json.load(file)
    assert len(cases) >= 40, len(cases)
    for case in cases:
        (architecture,) = case["config"]["architectures"]
        config = {"architecture": architecture, "config": json.dumps(case["config"]), "parameter_dtype": "f32"}
        own = stepsim_transformers.configuration(config["config"])
        model = stepsim_transformers.make_model(config, torch.device("cpu")).train()
        batch = stepsim_transformers.make_batch(architecture, own, [9, 16], 16, torch.device("cpu"))
        assert ("attention_mask" in batch) == ("input_ids" in batch), (case["name"], list(batch))
        value = stepsim_transformers.loss(model, batch)
        assert torch.isfinite(value), case["name"]
        value.backward()
        without = [n for n, one in model.named_parameters() if one.requires_grad and one.grad is None]
        names = [n for n, one in model.named_parameters() if one.requires_grad]
        ready = set(case["ready_order"])
        assert sorted(without) == sorted(name for name in names if name not in ready), (case["name"], without)


if __name__ == "__main__":
    sys.exit(small_runner.main(globals()))
