#!/usr/bin/env python3
"""How much of a space `stepsim tune` prices in full, beside a search that prices everything.

usage: tune_bench.py STEPSIM [--only NAME] [--out tests/bench/TUNE.md]

Each space is searched twice, one after the other: best first with its certificate, and with
--exhaustive. Prints a Markdown table: the points, how many were priced, whether the best is that of
the exhaustive search, the certificate, and the seconds of both. Ends with an error if a certificate
lies.
"""

import argparse
import json
import pathlib
import subprocess
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
CAPS = "ddp.bucket_cap=1MiB..400MiB:x1.15"
MORE = ["ddp.gradient_as_bucket_view=false,true", "ddp.set_to_none=true,false"]
REPORT = """# How much of a space does `stepsim tune` price?

Six spaces, each searched best first and then point by point (`--exhaustive`). A point is *able to run* if the scenario, the memory and the
limits allow it. Points with the same buckets are the same and are priced once, but for the exhaustive search. *Priced* are the points that the
search priced in full to find the best and to prove it; in brackets their share of all points; *for the front* those that it priced
then, at most 256, to find what needs less memory or changes the order less.
The certificate bounds what any other point could be faster. Seconds are of whole commands, intervals of the finalists included, on 2 cores.

```
meson setup build && ninja -C build
python3 tests/bench/tune_bench.py build/sim/stepsim --out tests/bench/TUNE.md
```

"""
SPACES = [
    ("skewed, 2 ranks", "token_skew_2ranks",
     ["policy.bucketing.batch_size=4..16:+1", "policy.variable_fixed.batch_size=4..16:+1",
      "policy.token_budget.max_tokens=640..2560:+32",
      "policy.bucketing.pad_to_multiple_of=1,4,8,16", "ddp.accumulation_steps=1,2,4",
      "ddp.bucket_cap=64KiB..64MiB:x1.2"] + MORE, []),
    ("skewed, 4 ranks", "token_skew",
     ["policy.bucketing.batch_size=4..16:+1", "policy.variable_fixed.batch_size=4..16:+1",
      "policy.token_budget.max_tokens=640..2560:+64",
      "policy.bucketing.pad_to_multiple_of=1,4,8,16", "ddp.zero_stage=0,1,2",
      "ddp.bucket_cap=1MiB..64MiB:x1.2"] + MORE, []),
    ("communication-bound, 8 ranks", "bucket_valley",
     ["policy.fixed.batch_size=1..3:+1", "policy.fixed.pad_to_multiple_of=1,16,64,128",
      "ddp.bucket_cap=1MiB..2048MiB:x1.02", "ddp.accumulation_steps=1,2"] + MORE, []),
    ("host-bound, 8 ranks", "batching_libraries",
     ["policy=PyTorch,fairseq,OpenNMT", "policy.PyTorch.batch_size=4..24:+1",
      "policy.PyTorch.pad_to_multiple_of=1,8,16,32", CAPS, "ddp.accumulation_steps=1,2"] + MORE,
     ["--set", "cluster.ranks=8", "--steps", "24", "--set", "host.launch=12 us"]),
    ("one rank, memory-bound", "gpt2_medium_1gpu",
     ["policy.fixed.batch_size=1..64:+1", "policy.fixed.pad_to_multiple_of=1..128:+4",
      "ddp.accumulation_steps=1,2,3,4", "ddp.set_to_none=true,false"], []),
    ("64 ranks on 8 nodes", "engines_step",
     ["ddp.bucket_rule=pytorch", "ddp.bucket_cap=1MiB..2000MiB:x1.01", "cluster.skew=0,0.1,0.2,0.3",
      "ddp.set_to_none=true,false", "ddp.gradient_as_bucket_view=true,false",
      "ddp.first_bucket_cap=1MiB,4MiB,25MiB,100MiB"],
     ["--set", "cluster.ranks=64"]),
]


def search(program, scenario, over, options, *more):
    command = [program, "tune", str(ROOT / "scenarios" / f"{scenario}.toml"), *options,
               "--samples", "0..100000", "--json", "-", *more]
    for one in over:
        command += ["--over", one]
    begin = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode not in (0, 1):
        raise SystemExit(done.stderr)
    return json.loads(done.stdout), time.monotonic() - begin


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("stepsim")
    parser.add_argument("--out")
    parser.add_argument("--only", help="spaces whose name holds this")
    arguments = parser.parse_args()
    lines = ["| space | points | able to run | priced | for the front | best is that of all | certificate | search s | all s |",
             "|---|---|---|---|---|---|---|---|---|"]
    print("\n".join(lines), flush=True)
    for name, scenario, over, options in SPACES:
        if arguments.only and arguments.only not in name:
            continue
        found, seconds = search(arguments.stepsim, scenario, over, options)
        every, every_seconds = search(arguments.stepsim, scenario, over, options, "--exhaustive")
        best = [one["finalists"][0]["without_noise"]["useful_tokens_per_s"]
                for one in (found, every)]
        gap = best[1] / best[0] - 1
        assert gap <= found["certificate"] + 1e-9, f"{name}: the certificate lies"
        same = "yes" if gap <= 1e-9 else f"{100 * gap:.2f} % slower"
        priced = found["priced"] - found["priced_for_front"]
        lines.append(
            f"| {name} | {found['points']} | {every['priced']} | {priced} "
            f"({100 * priced / found['points']:.2f} %) | {found['priced_for_front']} | {same} "
            f"| {100 * found['certificate']:.2f} % | {seconds:.1f} | {every_seconds:.1f} |")
        print(lines[-1], flush=True)
    if arguments.out:
        pathlib.Path(arguments.out).write_text(REPORT + "\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
