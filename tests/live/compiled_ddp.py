#!/usr/bin/env python3
"""A model under torch.compile, recorded with one policy, predicted with two others, then trained.

    PYTHON compiled_ddp.py STEPSIM STEPCAL FOLDER     # minutes to half an hour
    PYTHON compiled_ddp.py --result FOLDER            # the table once more

PYTHON has PyTorch 2 and a C++ compiler for Inductor. Two ranks over gloo train an embedding, four
linear layers and a head in `torch.compile(DistributedDataParallel(model))`: few kernels, since each takes
a C++ compiler seconds. Each run is a process of its own with a cache of compiled code of its own
(FOLDER/cache.*; empty unless they lie there from an earlier time). FOLDER/prediction.json is written before
any of the runs that it is compared with; the recorded policy runs once more behind these, to tell how the
machine's load changed. What it prints is in COMPILED_DDP.md.
"""

import datetime
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "calibrate" / "torch")]

STEPS = 48
WARMUP = 3
SAMPLES = 8 * 2 * STEPS
VOCABULARY, WIDTH, LAYERS = 4000, 256, 4
POLICIES = ["bucketed", "token_budget", "fixed"]
SCENARIO = f"""
[scenario]
name = "compiled_ddp"
steps = {STEPS}
warmup_steps = {WARMUP}
[cluster]
ranks = 2
profile = "profile.json"
[model]
kind = "recorded"
[ddp]
torch = "newest"
[data]
samples = {SAMPLES}
lengths = {{ file = "lengths.txt" }}
[[policy]]
name = "bucketed"
kind = "bucketed"
batch_size = 8
[[policy]]
name = "token_budget"
kind = "token_budget"
max_tokens = 420
[[policy]]
name = "fixed"
kind = "fixed"
batch_size = 8
"""


# ---- one rank -------------------------------------------------------------------------------


def make_model():
    import torch

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = torch.nn.Embedding(VOCABULARY, WIDTH)
            self.layers = torch.nn.ModuleList(torch.nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS))
            self.head = torch.nn.Linear(WIDTH, VOCABULARY)

        def forward(self, tokens):
            x = self.embedding(tokens)
            for layer in self.layers:
                x = x + torch.relu(layer(x))
            return self.head(x).square().mean()

    torch.manual_seed(1)
    return Model()


def rank_main(name, plan):
    import torch
    import torch.distributed as dist
    from stepsim_recorder import Recorder

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    ddp = torch.nn.parallel.DistributedDataParallel(make_model())
    model = torch.compile(ddp)
    optimizer = torch.optim.AdamW(ddp.parameters(), lr=1e-4)
    recorder = Recorder(name, policy=name, scenario="compiled_ddp", warmup_steps=WARMUP,
                        model=model, optimizer=optimizer)  # fmt: skip
    for lengths in rows_of(plan, rank):
        tokens = torch.randint(0, VOCABULARY, (len(lengths), max(lengths)))
        with recorder.step(lengths=lengths):
            optimizer.zero_grad()
            recorder.backward(model(tokens))
            optimizer.step()
    recorder.close()


# ---- the whole ------------------------------------------------------------------------------


def rows_of(plan, rank):
    """[step] lengths of a rank's batch; a line without rank is the plan's header."""
    lines = [json.loads(line) for line in pathlib.Path(plan).read_text(encoding="utf-8").splitlines()]
    return [line["lengths"] for line in lines if line.get("rank") == rank]


def run(*command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


def train(name, plan):
    """Both ranks of one run, whose compiled code goes to a new folder."""
    import torch_store

    statuses, outputs = torch_store.run_ranks(
        [sys.executable, os.path.abspath(__file__), "--rank", name, plan], timeout=3000,
        TORCHINDUCTOR_CACHE_DIR=os.path.abspath(f"cache.{name}"), TORCHINDUCTOR_FX_GRAPH_CACHE="0",
        TORCHINDUCTOR_COMPILE_THREADS="1",
    )  # fmt: skip
    assert statuses == [0, 0], "\n".join(outputs)


def first_lengths():
    """What is recorded: batches of 8 in a random order."""
    random.seed(7)
    lengths = [min(96, max(6, round(random.lognormvariate(3.3, 0.6)))) for _ in range(SAMPLES)]
    pathlib.Path("lengths.txt").write_text("\n".join(map(str, lengths)) + "\n", encoding="utf-8")
    order = list(range(SAMPLES))
    random.shuffle(order)
    with open("recorded_plan.jsonl", "w", encoding="utf-8") as file:
        for number in range(2 * STEPS):
            batch = [lengths[i] for i in order[8 * number : 8 * number + 8]]
            file.write(json.dumps({"step": number // 2, "rank": number % 2, "lengths": batch}) + "\n")


def read_rows(name):
    lines = pathlib.Path(f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines[1:]]


def measured(name):
    """Of a run: the mean steady step as `stepsim validate` counts it, the same of the processor times of
    the rank that takes most, the steps that compiled, and what these took longer in seconds."""
    rows = read_rows(name)
    compiling = sorted({row["step"] for row in rows if row.get("compiled_graphs", 0) > 0})
    times, processor, lost = [], [], 0.0
    for step in sorted({row["step"] for row in rows}):
        of_step = [row for row in rows if row["step"] == step]
        ms = max(r["start_ms"] + r["step_ms"] for r in of_step) - max(r["start_ms"] for r in of_step)
        if step in compiling:
            lost += ms
        elif step >= WARMUP:
            times.append(ms)
            processor.append(max(row["thread_cpu_ms"] for row in of_step))
    usual = statistics.fmean(times)
    return usual, statistics.fmean(processor), compiling, (lost - len(compiling) * usual) / 1e3


def started_at(name):
    return json.loads(pathlib.Path(f"{name}.jsonl").read_text(encoding="utf-8").splitlines()[0])["started_at"]


def result():
    """The table of predictions beside what was measured."""
    with open("prediction.json", encoding="utf-8") as file:
        predicted = {one["policy"]: one for one in json.load(file)["predictions"]}
    recorded, again = measured("recorded"), measured("fixed")
    fixed = predicted["fixed"]["summary"]["step_time_ms"]["mean"]
    written = datetime.datetime.fromtimestamp(os.path.getmtime("prediction.json"), datetime.timezone.utc)
    lines = [
        f"Recorded from {started_at('recorded')} on, predicted {written:%Y-%m-%dT%H:%M:%SZ}, trained from "
        f"{started_at(POLICIES[0])} on. The recorded `fixed` took {recorded[0]:.1f} ms a step ({recorded[1]:.1f} ms of "
        f"processor time), its {len(recorded[2])} compiling steps {recorded[3]:.1f} s longer. The same policy at the end: "
        f"{again[0]:.1f} ms ({100 * (again[0] / recorded[0] - 1):+.1f} %), {again[1]:.1f} ms of processor time.",
        "",
        "| policy | measured ms | predicted ms | 90 % interval, any hour | error | in interval | over `fixed`, predicted "
        "| over `fixed`, processor times | error of that | compiling steps | predicted | took s | predicted s |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for policy in POLICIES:
        mean, processor, compiling, seconds = measured(policy)
        step, shapes = predicted[policy]["summary"]["step_time_ms"], predicted[policy]["new_shapes"]
        low, high = step["interval90"]
        ratio, own = step["mean"] / fixed, processor / again[1]
        lines.append(
            f"| {policy} | {mean:.1f} | {step['mean']:.1f} | {low:.1f} to {high:.1f} | {100 * (step['mean'] / mean - 1):+.1f} % "
            f"| {'yes' if low <= mean <= high else 'no'} | {ratio:.3f} | {own:.3f} | {100 * (ratio / own - 1):+.1f} % "
            f"| {len(compiling)} | {shapes['stalled_steps']} | {seconds:.1f} | {shapes['lost_ms'] / 1e3:.1f} |"
        )
    return "\n".join(lines) + "\n"


def main(stepsim, stepcal, folder):
    stepsim, stepcal = os.path.abspath(stepsim), os.path.abspath(stepcal)
    os.makedirs(folder, exist_ok=True)
    os.chdir(folder)
    first_lengths()
    pathlib.Path("scenario.toml").write_text(SCENARIO, encoding="utf-8")
    train("recorded", "recorded_plan.jsonl")
    report = run(stepcal, "import", "run-record", "recorded.jsonl", "--profile", "profile.json")
    pathlib.Path("profile.txt").write_text(report, encoding="utf-8")
    run(stepsim, "compare", "scenario.toml", "--json", "prediction.json", "--quiet")
    run(stepsim, "plan", "scenario.toml", "--out-dir", "plans")
    for policy in POLICIES:
        train(policy, f"plans/{policy}.jsonl")
    print(result())


if __name__ == "__main__":
    if sys.argv[1] == "--rank":
        rank_main(*sys.argv[2:])
    elif sys.argv[1] == "--result":
        os.chdir(sys.argv[2])
        print(result())
    else:
        main(*sys.argv[1:])
