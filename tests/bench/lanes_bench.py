#!/usr/bin/env python3
"""How many steps of a rank does a prediction play in a second?

usage: lanes_bench.py STEPSIM [OTHER_STEPSIM] [--repeat N]

Runs `stepsim run` on variants of engines_step.toml, by turns, and prints the median of ranks x steps x draws over the processor
time of the whole command, in millions a second. A jitter of 3 % makes it play all 100 draws of the noise. The first job is
played by the recurrence, the others by the engine's programs in lanes.
"""

import argparse
import statistics

from scaling import SCENARIOS, seconds_of, step_settings

DRAWS = 100
JOBS = {
    "jitter": [],
    "accumulation over 4": ["ddp.accumulation_steps=4", "ddp.no_sync=true"],
    "a loader with two workers": ["data.workers=2", 'data.loading={batch="20 ms"}'],
    "FSDP2": ['parallel.kind="fsdp2"'],
    "interference": ["interference.strength=0.3"],
    "op jitter": ["noise.op_jitter=0.03"],
    "interference, op jitter, loader": ["interference.strength=0.3", "noise.op_jitter=0.03", "data.workers=2",
                                        'data.loading={batch="20 ms"}'],
}  # fmt: skip
SIZES = [(64, 1000), (1024, 60)]  # Ranks, steps: start and end of the command take less than a tenth.


def rate(stepsim, ranks, steps, extra):
    command = [stepsim, "run", str(SCENARIOS / "engines_step.toml"), *step_settings(ranks, steps, extra=extra),
               "--json", "/dev/null"]
    return ranks * steps * DRAWS / seconds_of(command) / 1e6


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("stepsim", nargs="+")
    parser.add_argument("--repeat", type=int, default=5)
    arguments = parser.parse_args()
    print("| job, M rank-steps/s | ranks | " + " | ".join(arguments.stepsim) + " | spread of the first |")
    print("|---" * (len(arguments.stepsim) + 3) + "|")
    for ranks, steps in SIZES:
        for name, extra in JOBS.items():
            rates = [[] for _ in arguments.stepsim]
            for _ in range(arguments.repeat):
                for one, stepsim in zip(rates, arguments.stepsim):
                    one.append(rate(stepsim, ranks, steps, extra))
            print(f"| {name} | {ranks:,} | " + " | ".join(f"{statistics.median(one):.2f}" for one in rates)
                  + f" | {min(rates[0]):.2f} to {max(rates[0]):.2f} |", flush=True)


if __name__ == "__main__":
    main()
