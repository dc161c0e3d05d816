"""The folder that calibrate/cuda/bundle makes for a GPU machine, with emulated devices and small
models, and how to start check_gpu in it."""

import os
import pathlib
import shutil
import sys

ROOT = pathlib.Path(__file__).resolve().parents[3]
PYTHON = "/usr/bin/python3" if os.path.exists("/usr/bin/python3") else sys.executable

SCENARIO = """
[scenario]
name = "{name}"
seed = 1
steps = 7
warmup_steps = 2

[cluster]
ranks = 1
profile = "{root}/scenarios/profiles/h100_8x_published.json"

[model]
kind = "{kind}"
layers = 1
hidden = 16
heads = 2
ffn = 24
vocab = 40
max_length = 8
classes = {classes}
causal = {causal}
dtype = "bf16"
attention = "flash"

[ddp]
torch = "newest"

[optimizer]
kind = "adamw"

[data]
samples = 42
lengths = {{ uniform = [3, 8], seed = 1 }}
sampler = {{ kind = "distributed", shuffle = true, seed = 1 }}

[[policy]]
name = "fixed"
kind = "fixed"
batch_size = 3

[[policy]]
name = "group_by_length"
kind = "hf_group_by_length"
batch_size = 3
"""

# Of the emulated device: what the smoke stage runs, and a few more.
CASES = "^cuda: (an empty|a held|sums of rows)|^library: what a beta|^library: shapes without|planted"

# On a GPU machine a program with the CUDA backend starts only where with_cuda has found the libraries.
WITH_CUDA = '#!/bin/sh\nexport CUDA_LIBRARIES_FOUND=1\nexec "$@"\n'
NEEDS_CUDA = """#!/bin/sh
if [ -z "$CUDA_LIBRARIES_FOUND" ]; then
  echo "error while loading shared libraries: libcublas.so.13" >&2
  exit 127
fi
"""
STEPCAL = NEEDS_CUDA + 'exec "{program}" "$@"\n'

# Before the others, a case that fails, one that fails while a stream is held, and one that hangs.
TEST_GPU = (
    NEEDS_CUDA
    + """
case "$*" in
  *planted?failure*) echo "launches block: $CUDA_LAUNCH_BLOCKING"; exit 1 ;;
  *planted?hang*) exec sleep 100 ;;
  *-ltc*) echo "a planted failure"; echo "a planted failure, held"; echo "a planted hang" ;;
esac
exec "{program}" "$@"
"""
)

SHORTENED = {
    "PYTHON": PYTHON,
    "CHECK_GPU_BUDGET": "1 s",
    "CHECK_GPU_REPEATS": "1",
    "CHECK_GPU_CASES": CASES,
    "CHECK_GPU_CASE_SECONDS": "2",
    "CHECK_GPU_TORCH_DEVICE": "cpu",
    "CHECK_GPU_TORCH_SECONDS": "5",
    "CHECK_GPU_FIRST_CONTACT": "--small --seconds 4 --shapes 4",
}


def write_script(path, text):
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)


def make_bundle(folder, stepcal, stepsim, test_gpu):
    """Makes the folder of programs, scripts and scenarios."""
    for part in ("scenarios", "calibrate/cuda"):
        (folder / part).mkdir(parents=True)
    (folder / "stepsim").symlink_to(pathlib.Path(stepsim).resolve())
    for name, script, program in (("stepcal", STEPCAL, stepcal), ("test_gpu", TEST_GPU, test_gpu)):
        write_script(folder / name, script.format(program=pathlib.Path(program).resolve()))
    write_script(folder / "with_cuda", WITH_CUDA)
    for script in ("check_gpu", "check_gpu_stage.sh"):
        shutil.copy(ROOT / "calibrate/cuda" / script, folder / script)
    shutil.copy(ROOT / "calibrate/cuda/torch_libraries.py", folder / "calibrate/cuda")
    (folder / "calibrate/torch").symlink_to(ROOT / "calibrate/torch")
    (folder / "scenarios/profiles").symlink_to(ROOT / "scenarios/profiles")
    for file, kind, causal in (
        ("scenarios/gpt2_medium_1gpu.toml", "gpt2", "true"),
        ("calibrate/cuda/bert_1gpu.toml", "bert", "false"),
    ):
        text = SCENARIO.format(
            name=pathlib.Path(file).stem,
            root=ROOT,
            kind=kind,
            causal=causal,
            classes=0 if kind == "gpt2" else 2,
        )
        (folder / file).write_text(text, encoding="utf-8")


def environment(work, period):
    """What shortens check_gpu; `work` keeps the stages' folders, `period` is in seconds."""
    return {
        **os.environ,
        **SHORTENED,
        "CHECK_GPU_WORK": str(work),
        "CHECK_GPU_PERIOD": str(period),
    }
