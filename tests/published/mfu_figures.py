#!/usr/bin/env python3
"""MFU and memory of published runs beside what their authors printed; writes MFU.md.

usage: mfu_figures.py STEPSIM DATA > MFU.md

The runs are rows of fsdp_rows.py. An MFU is a count of operations over a time: with the printed step time the
table compares the counts alone, and with the predicted one the whole figure. Nothing is fitted.
"""

import dataclasses
import json
import pathlib
import subprocess
import sys
import tempfile

import fsdp_rows

PEAK = 989e12  # Dense bf16 of H100 and H200 (SXM), as the authors take it.
CARD_GIB = 160  # More than any of these cards has: nothing is refused for memory.
# MFU that llm-foundry printed, by the name of the row in fsdp_rows.py.
FOUNDRY = {"3b, 8 GPUs, 5 x 4096": 42.31, "3b, 8 GPUs, 20 x 1024": 46.2}


def kempner(nodes, per_node, batch, accumulation, model=fsdp_rows.LLAMA_8B):
    return fsdp_rows.settings(
        "h200", nodes, per_node, batch, 4096, {**model, "model.parameter_dtype": "bf16"}, accumulation,
        parallel__units="blocks", parallel__reshard_after_forward="true", parallel__accumulation="no_sync",
        model__loss_dtype="own",
    )


def titan(nodes):
    return fsdp_rows.settings("h100", nodes, 8, 2, 8192, fsdp_rows.LLAMA_8B, **fsdp_rows.SELECTIVE,
                              **fsdp_rows.titan_2024(32))


@dataclasses.dataclass
class Run:
    """What a source prints; None where it does not."""

    name: str
    keys: dict
    step_ms: float
    parameters: float
    layers: int
    hidden: int
    mfu: float | None  # Percent.
    memory_gib: float | None
    source: str

    @property
    def tokens(self):
        """Of a rank's step."""
        length = int(self.keys["data.lengths"].strip("{}").split("=")[1])
        return self.keys["policy.fixed.batch_size"] * self.keys["ddp.accumulation_steps"] * length, length

    @property
    def plain_mfu(self):
        """By the count that these authors use: 6 N + 12 L H S for a token."""
        tokens, length = self.tokens
        flops = 6 * self.parameters + 12 * self.layers * self.hidden * length
        return 100 * flops * tokens / (self.step_ms / 1e3) / PEAK


KEMPNER = "KempnerForge, full checkpointing, bf16 with reductions in f32"
TITAN = "torchtitan, selective checkpointing of ops, f32 parameters; memory reserved"
LLAMA_13B = fsdp_rows.LLAMA_13B
RUNS = [
    Run("Llama 7B on one H200", kempner(1, 1, 2, 4), 3129.41, 8.03e9, 32, 4096, 57.8, 80.7, KEMPNER),
    Run("the same on 2 H200", kempner(1, 2, 2, 4), 3499.36, 8.03e9, 32, 4096, 51.7, 62.4, KEMPNER),
    Run("the same on 4 H200, 4 x 2", kempner(1, 4, 4, 2), 3362.29, 8.03e9, 32, 4096, 53.8, 61.1, KEMPNER),
    Run("the same on 4 H200, 8 x 4", kempner(1, 4, 8, 4), 13492.4, 8.03e9, 32, 4096, 53.7, 81.0, KEMPNER),
    Run("the same on 32 H200, 4 x 4", kempner(8, 4, 4, 4), 7052.0, 8.03e9, 32, 4096, 51.3, 51.3, KEMPNER),
    Run("Llama 13B on 8 H200", kempner(2, 4, 4, 4, LLAMA_13B), 14808.3, 14.84e9, 40, 5120, 44.4, 88.5, KEMPNER),
    Run("Llama 8B on 8 H100", titan(1), 2843.46, 8.03e9, 32, 4096, None, 82.4, TITAN),
    Run("the same, compiled", titan(1), 2457.48, 8.03e9, 32, 4096, None, 77.0, TITAN),
    Run("the same on 128 H100", titan(16), 2923.1, 8.03e9, 32, 4096, None, 67.0, TITAN),
    Run("the same, compiled", titan(16), 2515.2, 8.03e9, 32, 4096, None, 62.0, TITAN),
]


def foundry_runs(data):
    for row in fsdp_rows.foundry_rows(data):
        if row.card == "h100_80gb" and row.name in FOUNDRY:
            layers, hidden, _ = fsdp_rows.MPT[row.model]
            yield Run(
                f"MPT {row.name}", row.row.settings, row.row.published_ms, row.parameters, layers, hidden,
                FOUNDRY[row.name], None, "llm-foundry@8c8dd48",
            )


def with_memory(settings, gibibytes, folder):
    """The keys with a profile of the same prices whose card has this memory."""
    profile = pathlib.Path(settings["cluster.profile"])
    content = json.loads(profile.read_text(encoding="utf-8"))
    content["memory_capacity_bytes"] = int(gibibytes * 2**30)
    path = pathlib.Path(folder, profile.name)
    path.write_text(json.dumps(content), encoding="utf-8")
    return {**settings, "cluster.profile": path}


def predicted(stepsim, settings):
    line = [stepsim, "run", str(fsdp_rows.BASE), "--epochs", "1", "--json", "-"]
    for key, value in settings.items():
        line += ["--set", f"{key}={value}"]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1):
        sys.exit(f"mfu_figures: {done.stderr}")
    return json.loads(done.stdout)


def off(value, printed):
    return f"{100 * (value / printed - 1):+.1f} %"


def main():
    lines = [
        "# MFU and memory of published runs",
        "",
        "`tests/published/mfu_figures.py STEPSIM DATA`. Our MFU counts the matrix products of a forward and a backward without",
        "recomputation, and of attention the pairs that a causal mask leaves, over the dense peak of bf16 (989 TFLOP/s). The authors count",
        "6 operations for each parameter, embedding tables included, and all pairs. Both counts stand over the *printed* step time here, so",
        "they compare the counts; the third divides ours by the step that published kernels' prices give, with no row of the source used.",
        "Memory is the peak of a rank in GiB. torchtitan prints what PyTorch's allocator had reserved, ours is what is allocated.",
        "",
        "KempnerForge says GB and counts GiB, and its loss takes logits in 16 bit: both follow from its own rows, as its code was not at",
        "hand. From micro-batches of 4 to 8 on 4 GPUs memory grows by 19.9 for 16,384 tokens; as GiB these are 1,304,180 bytes a token,",
        "and 8 bytes for each of 128,256 logits, the inputs of 32 layers and of the last norm, and its output come to 1,304,576. The states",
        "in bf16, the gradients that are not reduced yet in f32 and that slope then leave 0.07 to 0.11 GB of what is printed on 2, 4 and",
        "32 GPUs; read as 1e9 bytes they are 2 to 4 GB too many. On one GPU they are 4 GB too many either way, which nothing here explains.",
        "",
        "| run | MFU printed | their count | our count | ours, predicted step | memory printed | predicted | source |",
        "|---|---|---|---|---|---|---|---|",
    ]
    with tempfile.TemporaryDirectory() as folder:
        lines += [line_of(one, folder) for one in [*RUNS, *foundry_runs(pathlib.Path(sys.argv[2]))]]
    print("\n".join(lines))


def line_of(one, folder):
    result = predicted(sys.argv[1], with_memory(one.keys, CARD_GIB, folder))
    mfu = 100 * next(iter(find(result, "mfu")))
    step = result["predictions"][0]["summary"]["step_time_ms"]["mean"]
    peak = result["predictions"][0]["summary"]["peak_memory_mib"] / 1024
    printed = f"{one.mfu:.1f} %" if one.mfu else "-"
    memory = f"{one.memory_gib:.1f} | {peak:.1f} ({off(peak, one.memory_gib)})" if one.memory_gib else f"- | {peak:.1f}"
    return (
        f"| {one.name} | {printed} | {one.plain_mfu:.1f} % | {mfu * step / one.step_ms:.1f} % | {mfu:.1f} % | {memory} "
        f"| {one.source} |"
    )


def find(tree, key):
    """All values of a key in a tree of JSON."""
    if isinstance(tree, dict):
        if tree.get(key) is not None:
            yield tree[key]
        tree = list(tree.values())
    for item in tree if isinstance(tree, list) else []:
        yield from find(item, key)


if __name__ == "__main__":
    main()
