"""Checks what stepsim run and compare say of FLOPs, and of what training takes.

usage: training_plan_test.py PATH_OF_STEPSIM
"""

import json
import re
import sys

from stepsim_program import ROOT, run

import small_runner  # from a folder that stepsim_program names


def test_training_is_told_in_flops_hours_and_money():
    shard = [str(ROOT / "scenarios" / "shard_8b.toml"), "--epochs", "3", "--gpu-hour", "2.5"]
    text = run("run", *shard).stdout
    (plan,) = json.loads(run("run", *shard, "--json", "-").stdout)["training"]
    prediction = json.loads(run("run", shard[0], "--json", "-").stdout)["predictions"][0]
    speed = prediction["summary"]["useful_tokens_per_s"]
    # Llama 3 8B: 7.5e9 weights of products, and 32 layers of 4096 wide attention over half of 8192 pairs a token.
    products = 32 * (2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14336) + 4096 * 128256
    flops = 6 * products + 3 * 32 * 4 * 4096 * 8193 / 2
    assert abs(plan["tflops_per_rank"] * 1e12 / (flops * speed / 64) - 1) < 1e-3, plan
    assert abs(plan["mfu"] - plan["tflops_per_rank"] / 989) < 1e-6, plan
    hours = 3 * 4096 * 8192 / speed / 3600
    assert abs(plan["hours"] / hours - 1) < 1e-6 and abs(plan["gpu_hours"] / (64 * hours) - 1) < 1e-6, plan
    assert abs(plan["money"] / (2.5 * 64 * hours) - 1) < 1e-6, plan
    assert re.search(r"policy +TFLOP/s +MFU +training +GPU-hours +cost\n", text), text
    assert f"{plan['mfu'] * 100:.1f} %" in text and f"{plan['money']:.2f}" in text, text
    cut = json.loads(run("compare", str(ROOT / "scenarios" / "packing.toml"), "--epochs", "1", "--json", "-").stdout)
    assert {plan["mfu"] for plan in cut["training"]} == {None}, cut["training"]  # Samples are cut to rows.
    assert "GPU-hours" not in run("run", shard[0]).stdout and " MFU" in run("run", shard[0]).stdout


def test_memory_is_told_by_parts_the_largest_first():
    held = {}
    for name in ("gpt2_medium_1gpu", "shard_8b"):
        file = str(ROOT / "scenarios" / f"{name}.toml")
        answer = json.loads(run("run", file, "--json", "-").stdout)
        mib = held[name] = answer["memory_parts"]["mib"]
        assert abs(sum(mib.values()) / answer["predictions"][0]["summary"]["peak_memory_mib"] - 1) < 1e-9, (name, mib)
        assert all(part > 0 for part in mib.values()) and list(mib.values()) == sorted(mib.values(), reverse=True), mib
        text = " ".join(run("run", file).stdout.split())
        places = [text.index(f" {part} ", text.index("peak memory")) for part in mib]
        assert places == sorted(places), (name, text)
    # GPT-2 medium in f32 under bf16 autocast: 354,823,168 parameters, two moments of each, a bucket beside each gradient.
    whole = 354_823_168 * 4 / 2**20
    parts = held["gpt2_medium_1gpu"]
    for part, times in (("parameters", 1), ("gradients", 1), ("buckets", 1), ("optimizer", 2)):
        assert abs(parts[part] / whole - times) < 1e-3, (part, parts)
    # Llama 3 8B on 64 ranks: a 64th of the parameters and of two moments, in f32.
    shard = 8_030_261_248 * 4 / 2**20 / 64
    parts = held["shard_8b"]
    assert abs(parts["parameters"] / shard - 1) < 1e-3 and abs(parts["optimizer"] / shard - 2) < 1e-3, parts


if __name__ == "__main__":
    sys.exit(small_runner.main(globals()))
