"""Writes tests/bench/BEST_BUCKETS.md: DDP's default of 25 MiB, the best single cap and the best list
of limits for eight models on 2, 8 and 64 ranks, as `stepsim buckets --best` predicts them.

usage: best_buckets.py PATH_OF_STEPSIM > tests/bench/BEST_BUCKETS.md
"""

import json
import os
import subprocess
import sys
import tempfile

#: Preset, samples a rank, their length, and further keys of [model].
MODELS = (
    ("distilbert", 16, 512, ""),
    ("bert-base", 8, 512, ""),
    ("bert-large", 8, 512, ""),
    ("gpt2-small", 4, 1024, ""),
    ("gpt2-medium", 4, 1024, ""),
    ("gpt2-large", 2, 1024, ""),
    ("gpt2-xl", 2, 1024, ""),
    ("llama2-7b", 1, 1024, 'parameter_dtype = "bf16"'),
)
RANKS = (2, 8, 64)

SCENARIO = """
[scenario]
name = "best_buckets"
steps = 6
warmup_steps = 2
[cluster]
ranks = {ranks}
ranks_per_node = 8
profile = "h100_8x_published"
topology = {{ algorithm = "nccl", channels = 16, intra_latency = "3 us", intra_bandwidth = "370 GB/s", inter_latency = "8 us", node_bandwidth = "400 GB/s" }}
[model]
preset = "{preset}"
dtype = "bf16"
attention = "flash"
{more}
[ddp]
torch = "newest"
gradient_as_bucket_view = true
[data]
samples = 65536
lengths = {{ constant = {length} }}
[[policy]]
name = "fixed"
kind = "fixed"
batch_size = {batch}
"""

HEAD = """# Best bucket sizes of eight models

What `stepsim buckets --best` finds for steps with equal loads: DDP's default of 25 MiB, the best single `bucket_cap_mb`, and the best
`bucket_cap_mb_list` (the limits of its list → the buckets that it makes). Costs are those of `h100_8x_published`, which no live run has
confirmed, on nodes of 8 GPUs with assumed links of 400 GB/s between them; compute in bf16, gradients in fp32 (bf16 for llama2-7b) and views
of the buckets. Samples a rank and their tokens: {shapes}.

Times are predicted mean steps in milliseconds, gains are in throughput. Inside a node the backward hides all but the last bucket, so that
sizes change less than 1 %; between nodes 25 MiB pays the latency of too many messages. Only for llama2-7b on 64 ranks, whose best cap
leaves most communication exposed, does a list gain more over it than two runs differ by (1 %). This profile knows no host time for each bucket;
on a real host many small buckets cost more.

```
meson setup build && ninja -C build
python3 tests/bench/best_buckets.py build/sim/stepsim > tests/bench/BEST_BUCKETS.md
```

| model | ranks | 25 MiB | best cap | step | gain | best list | step | gain | over best cap |
|---|---|---|---|---|---|---|---|---|---|"""


def best(stepsim, folder, preset, batch, length, more, ranks):
    path = os.path.join(folder, "scenario.toml")
    with open(path, "w", encoding="utf-8") as file:
        file.write(SCENARIO.format(preset=preset, batch=batch, length=length, more=more, ranks=ranks))
    command = [stepsim, "buckets", path, "--best", "--json", "-"]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def cap_text(choice):
    return f"{choice['limits_bytes'][-1] / 2**20:.6g} MiB"


def row(preset, ranks, found):
    default, cap, limits = found["default"], found["best_cap"], found["best_list"]
    gains = [f"{100 * found[name]['gain']:+.1f} %" for name in (
        "best_cap_over_default", "best_list_over_default", "best_list_over_best_cap")]
    number = len(limits["limits_bytes"])
    return [preset, ranks, f"{default['step_ms']:.2f}", cap_text(cap),
            f"{cap['step_ms']:.2f}", gains[0], f"{number} → {limits['buckets']}",
            f"{limits['step_ms']:.2f}", gains[1], gains[2]]


def main():
    stepsim = os.path.abspath(sys.argv[1])
    shapes = ", ".join(f"{preset} {batch} x {length}" for preset, batch, length, _ in MODELS)
    print(HEAD.format(shapes=shapes))
    with tempfile.TemporaryDirectory() as folder:
        for model in MODELS:
            for ranks in RANKS:
                cells = row(model[0], ranks, best(stepsim, folder, *model, ranks))
                print("| " + " | ".join(map(str, cells)) + " |", flush=True)


if __name__ == "__main__":
    main()
