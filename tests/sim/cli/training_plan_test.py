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


if __name__ == "__main__":
    sys.exit(small_runner.main(globals()))
