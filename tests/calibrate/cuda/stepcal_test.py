"""stepcal and stepsim from a plan to a prediction, on devices emulated on the host.

usage: stepcal_test.py STEPCAL_EMULATED STEPSIM
"""

import json
import pathlib
import subprocess
import sys
import tempfile

STEPCAL, STEPSIM = sys.argv[1:3]
ROOT = pathlib.Path(__file__).resolve().parents[3]

SCENARIO = """
[scenario]
name = "emulated"
seed = 1
steps = 6
warmup_steps = 1

[cluster]
ranks = {ranks}
profile = "{root}/scenarios/profiles/h100_8x_published.json"

[model]
kind = "gpt2"
layers = 1
hidden = 16
heads = 2
ffn = 24
vocab = 40
max_length = 8
causal = true
dtype = "bf16"
attention = "flash"

[optimizer]
kind = "adamw"

[data]
samples = 48
lengths = {{ uniform = [5, 8], seed = 1 }}
sampler = {{ kind = "distributed", shuffle = true, seed = 1 }}

[[policy]]
name = "fixed"
kind = "fixed"
batch_size = 2

[[policy]]
name = "sorted"
kind = "hf_group_by_length"
batch_size = 2
"""

failures = []


def check(condition, text):
    print(("ok    " if condition else "FAIL  ") + text)
    if not condition:
        failures.append(text)


def run(*command, status=0):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != status:
        print(" ".join(map(str, command)), done.stdout, done.stderr, sep="\n")
        check(False, f"exit status {done.returncode}, expected {status}")
    return done


with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
    one = folder / "one.toml"
    two = folder / "two.toml"
    one.write_text(SCENARIO.format(ranks=1, root=ROOT), encoding="utf-8")
    two.write_text(SCENARIO.format(ranks=2, root=ROOT), encoding="utf-8")
    profile = folder / "profile.json"

    devices = run(STEPCAL, "devices").stdout
    check("cuda:1  emulated device" in devices, "devices lists both")

    run(STEPSIM, "plan", one, "--out-dir", folder / "plans")
    plans = sorted((folder / "plans").glob("*.jsonl"))
    samples = folder / "samples.jsonl"
    calibrate = [STEPCAL, "calibrate", "--device", "cuda", "--plan", *plans, "--budget", "1 s",
                 "--samples", samples, "--out", profile]  # fmt: skip
    calibrated = run(*calibrate)
    check(profile.exists(), "a profile was written")
    written = json.loads(profile.read_text(encoding="utf-8"))
    check(written["backend"] == "cuda" and written["host"]["launch_s"] > 0, "it holds the host's costs")
    check("not measured" in calibrated.stdout, "what one rank cannot measure is said")
    versions = written["provenance"]["versions"]
    check(all(key in versions for key in ("cublas", "cudnn", "nccl")), "versions are recorded")

    # What a calibration has left out is in its samples file; the next one reads it there.
    with open(samples, "a", encoding="utf-8") as file:
        for line in (
            {"kind": "refused", "pass": 0, "samples": 3, "max_length": 7, "why": "out of memory"},
            {"kind": "disturbed", "pass": 0, "rank": 0, "dropped": 2, "throttled": 1, "cooled_seconds": 0.5},
            {"kind": "disturbed", "pass": 1, "rank": 0, "dropped": 3, "throttled": 0, "cooled_seconds": 0},
            {"kind": "prepared", "pass": 1, "seconds": 2.4,
             "plans": [{"shape": f"{i}", "seconds": 0.25 * (1 + i % 3)} for i in range(300)]},
        ):  # fmt: skip
            file.write(json.dumps(line) + "\n")
    again = run(*calibrate).stdout
    check("skipped 3 x 7: out of memory" in again, "a skipped shape is named in the output")
    check("5 times dropped" in again and "1 ops ran while heat" in again, "what disturbed is counted")
    check("0.50 s of a core each (0.25 to 0.75)" in again, "what attention plans take is said")
    check('forward = "500 ms"' in again, "and what a scenario says of it")
    written = json.loads(profile.read_text(encoding="utf-8"))
    check("batches of 3 x 7: out of memory" in written["provenance"]["not_measured"], "and in the profile")
    check(written["provenance"]["disturbed"]["dropped"] == 5, "the profile counts, too")

    compared = run(STEPSIM, "compare", one, "--profile", profile, "--json", folder / "prediction.json")
    check("fixed" in compared.stdout, "the policies are predicted")
    checked = subprocess.run([STEPCAL, "check", "--profile", profile], capture_output=True, text=True, check=False)
    check(checked.returncode in (0, 1) and "gemm" in checked.stdout, "check measures again")

    run(STEPSIM, "plan", two, "--out-dir", folder / "plans2")
    plans = sorted((folder / "plans2").glob("*.jsonl"))
    refused = run(
        STEPCAL, "measure", "--plan", *plans, "--device", "cuda:1", "--out", folder / "none", status=2)
    check("rank 1 needs CUDA device 2" in refused.stderr, "a rank without a device is refused")
    refused = run(STEPCAL, "calibrate", "--plan", *plans, "--out", folder / "none", status=2)
    check("python3 -m stepsim.torch.measure" in refused.stderr, "a CPU is left to PyTorch")

print(f"{len(failures)} failed")
sys.exit(1 if failures else 0)
