"""Published tables of step times by placement and batch: some rows make a profile, as a user would make
it, and the others are predicted from that."""

import concurrent.futures
import csv
import dataclasses
import os
import pathlib
import random
import subprocess
import tempfile

import networks
from row import LEVELS, Row, intervals
from simple_models import Fitted, nodes, per_node, ranks

ROOT = pathlib.Path(__file__).resolve().parents[3]
SEED = 51  # Of the choice of rows where a source has thousands.
RESNET50 = ("--tensors", str(ROOT / "scenarios" / "published" / "resnet50.csv"))


@dataclasses.dataclass
class Step:
    """One published step. `sync_ms`: exposed communication, where the source has it."""

    placement: str
    batch: int  # Samples of a rank, over all micro-batches.
    ms: float
    sync_ms: float | None = None
    name: str = ""
    micro_batches: int = 1


@dataclasses.dataclass
class Table:
    group: str
    team: str
    job: str
    licence: str
    given: str
    model: tuple  # Arguments of `stepcal import step-times`.
    fitted: list
    predicted: list
    counted: bool = True


def of_digits(placement, nodes, gpus):
    """A placement of one digit a node; without digits GPUs are dealt out evenly."""
    if placement:
        return "+".join(placement)
    more, least = int(gpus) % int(nodes), int(gpus) // int(nodes)
    return "+".join([str(least + 1)] * more + [str(least)] * (int(nodes) - more))


COPIED = ROOT / "tests" / "data" / "published"


def read(path):
    with open(path, encoding="utf-8") as file:
        return list(csv.DictReader(file))


def copied(data, name):
    """Rows of a table that lies here, else of one in the reference data."""
    here = COPIED / name
    return read(here if here.exists() else data / "public_steps" / name)


def pollux(data, folder):
    """Of each number of nodes and GPUs one placement and one batch, drawn."""
    models = {"bert": ("--preset", "bert-base"), "cifar10": networks.resnet18(folder), "imagenet": RESNET50}
    four, five = ({"1", "2", "4", "1+1"}, {"1", "2", "4", "1+1", "1+1+1+1"})
    tables = []
    for name, model in models.items():
        steps = [
            Step(of_digits(row["placement"], row["nodes"], row["gpus"]), int(row["local_batch"]),
                 1e3 * float(row["step_s"]), 1e3 * float(row["sync_s"]))
            for row in read(data / "ddp_scaling" / f"{name}.csv")
        ]  # fmt: skip
        alike = {}
        for step in steps:
            if step.placement not in five:
                alike.setdefault((nodes(step.placement), ranks(step.placement)), []).append(step)
        choice = random.Random(SEED)
        drawn = [choice.choice(own) for _, own in sorted(alike.items())]
        for placements, said in ((four, "four"), (five, "five")):
            tables.append(
                Table(f"published: DDP on T4, from {said} placements", "Petuum", f"{name}, T4 and 50 Gbit/s a node",
                      "figures only", f"all batches on {', '.join(sorted(placements))}", model,
                      [step for step in steps if step.placement in placements], drawn)
            )  # fmt: skip
    return tables


def elasticflow(data, folder):
    models = {"bert": ("--preset", "bert-base"), "resnet50": RESNET50, "vgg16": networks.vgg16(folder)}
    rows = copied(data, "elasticflow_a100.csv")
    tables = []
    for name, model in models.items():
        steps = [
            Step(f"{row['nodes']}x{row['placement'][0]}" if int(row["nodes"]) > 1 else row["placement"],
                 int(row["local_batch"]), float(row["step_ms"]),
                 name=f"{row['gpus']} GPUs, {row['local_batch']} samples each")
            for row in rows if row["model"] == name
        ]  # fmt: skip
        for most, said in ((8, "one node"), (16, "one and two nodes")):
            tables.append(
                Table(f"published: DDP on A100, from {said}", "Peking University", f"{name}, A100 and InfiniBand", "Apache-2.0",
                      f"all rows on 1 to {most} GPUs", model, [step for step in steps if ranks(step.placement) <= most],
                      [step for step in steps if ranks(step.placement) > most])
            )  # fmt: skip
    return tables


def modal(data, _):
    """Micro-batches of 12 sequences, as the source states. How many make a step is not known for the H100: 64
    are taken, as the script of that date has them; nanoGPT's own 40 cannot be dealt out to 16 ranks."""
    rows = {(row["source"], row["gpu"], int(row["nodes"])): float(row["step_ms"])
            for row in copied(data, "modal_nanogpt_ddp.csv")}  # fmt: skip
    tables = []

    def step(nodes, ms, name=""):
        micro = 64 // (8 * nodes)
        return Step(f"{nodes}x8" if nodes > 1 else "8", 12 * micro, ms, name=name, micro_batches=micro)

    for source, last in (("readme", 4), ("pr27", 8)):
        ends = [step(1, rows["readme", "H100", 1]), step(2, rows[source, "H100", 2])]
        far = step(last, rows[source, "H100", last], f"{8 * last} GPUs ({source})")
        tables.append(
            Table("published: DDP from two rows", "Modal Labs", "GPT-2 124 M, H100", "MIT", "the steps on 8 and 16 GPUs",
                  ("--preset", "gpt2-small"), ends, [far])
        )  # fmt: skip
    return tables


def sailor(data, _):
    """A replica is a node of four GPUs with tensor parallelism inside: a node counts as one rank."""
    rows = [row for row in copied(data, "sailor_dp.csv")
            if row["cluster"] == "clariden" and row["suspect"] == "0"]  # fmt: skip
    steps = [
        Step(f"{row['nodes']}x1" if row["nodes"] != "1" else "1", int(row["micro_batch"]) * int(row["micro_batches"]), float(row["step_ms"]),
             name=f"{row['gpus']} GPUs, {row['micro_batches']} x {row['micro_batch']}", micro_batches=int(row["micro_batches"]))
        for row in rows
    ]  # fmt: skip
    return [
        Table("other trainers: Megatron-DeepSpeed", "ETH Zurich", "OPT-350M, GH200", "MIT", "steps on one and two nodes",
              ("--gradient-bytes", str(4 * 331_196_416)), [step for step in steps if ranks(step.placement) <= 2],
              [step for step in steps if ranks(step.placement) > 2], counted=False)
    ]  # fmt: skip


def oumi(data, _):
    """Hybrid shards: nodes are replicas. Batches of 16 are taken, which cancel."""
    steps = [
        Step(f"{row['nodes']}x4" if row["nodes"] != "1" else "4", 16, 16e3 * 4 * int(row["nodes"]) / float(row["samples_per_s"]),
             name=f"{4 * int(row['nodes'])} GPUs, HYBRID_SHARD")
        for row in copied(data, "oumi_llama2b.csv") if row["strategy"] == "HYBRID_SHARD"
    ]  # fmt: skip
    return [
        Table("published: DDP from two rows", "oumi", "Llama 2B under HSDP, A100", "figures only", "the steps on one and two nodes",
              ("--gradient-bytes", str(4 * 2_000_000_000)), steps[:2], steps[2:])
    ]  # fmt: skip


# (benchmark, round, submitter, GPU): rows of the most GPUs are predicted from all others.
MLPERF = (
    ("bert", "v3.1", "NVIDIA", "H100-SXM5-80GB"),
    ("bert", "v3.1", "Dell", "H100-SXM5-80GB"),
    ("resnet50", "v3.1", "NVIDIA", "H100-SXM5-80GB"),
    ("resnet50", "v4.0", "NVIDIA", "H100-SXM5-80GB"),
    ("resnet50", "v3.1", "Dell", "H100-SXM5-80GB"),
    ("resnet50", "v3.1", "Fujitsu", "A100-PCIe-80GB"),
)


def mlperf(data, _):
    """Other trainers than DDP: shown, not counted."""
    rows = copied(data, "mlperf_dp.csv")
    tables = []
    for key in MLPERF:
        own = [row for row in rows if (row["benchmark"], row["round"], row["submitter"], row["gpu"]) == key]
        most = max(int(row["gpus"]) for row in own)
        steps = [
            Step(f"{row['nodes']}x{row['gpus_per_node']}" if row["nodes"] != "1" else row["gpus_per_node"], int(row["batch_per_gpu"]),
                 float(row["step_ms"]), name=f"{row['gpus']} GPUs, {row['batch_per_gpu']} samples each")
            for row in own
        ]  # fmt: skip
        benchmark, version, team, gpu = key
        tables.append(
            Table("other trainers: MLPerf", team, f"{benchmark}, {gpu}, MLPerf {version}", "Apache-2.0", "the rows on fewer GPUs",
                  ("--preset", "bert-large") if benchmark == "bert" else RESNET50,
                  [step for step in steps if ranks(step.placement) < most], [step for step in steps if ranks(step.placement) == most],
                  counted=False)
        )  # fmt: skip
    return tables


SOURCES = (pollux, elasticflow, modal, sailor, oumi, mlperf)


class Refused(Exception):
    """The programs refuse a table, or a prediction from it."""


def run(*command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1):
        raise Refused((done.stderr.strip() or done.stdout.strip()).splitlines()[-1])
    return done.stdout


def write(path, steps):
    with_sync = all(step.sync_ms is not None for step in steps)
    with_micro = accumulates(steps)
    with open(path, "w", encoding="utf-8") as file:
        file.write("placement,batch,step_ms" + (",sync_ms" if with_sync else "") + (",micro_batches" if with_micro else "") + "\n")
        for step in steps:
            file.write(f"{step.placement},{step.batch // step.micro_batches},{step.ms:.10g}")
            file.write((f",{step.sync_ms:.10g}" if with_sync else "") + (f",{step.micro_batches}" if with_micro else "") + "\n")


def accumulates(steps):
    return any(step.micro_batches > 1 for step in steps)


def levels_of(row, unit, scale):
    """The members of a Row that a file of answers has, in milliseconds."""
    ends = {level: [scale * float(row[f"{end}{level}_{unit}"]) for end in ("low", "high")] for level in LEVELS}
    return intervals(ends)


def asked(path, steps):
    """What the fit itself answers, for each step."""
    lines = {(per_node(row["placement"]), int(row["batch"])): row for row in read(path)}
    own = [lines[per_node(step.placement), step.batch] for step in steps]
    return [{"predicted": float(row["step_ms"]), **levels_of(row, "ms", 1)} for row in own]


def predictions(stepcal, stepsim, table, folder):
    """Members of the rows of a table to predict, by the fit itself where it knows their batches, else by
    the program that reads its profile."""
    rows, profile, scenario, others, result = (
        pathlib.Path(folder) / f"rows{end}" for end in (".csv", ".json", ".toml", "_others.csv", "_result.csv")
    )
    write(rows, table.fitted)
    known = {step.batch for step in table.fitted} >= {step.batch for step in table.predicted} and not accumulates(table.fitted)
    asks = [word for step in table.predicted for word in ("--ask", f"{step.placement}:{step.batch}")] if known else []
    answers = ("--answers", result) if known else ()
    run(stepcal, "import", "step-times", rows, *table.model, "--out", profile, "--scenario", scenario, *asks, *answers)
    if known:
        return asked(result, table.predicted)
    write(others, table.predicted)
    run(stepsim, "validate", scenario, "--step-times", others, "--csv", result)
    return [{"predicted": 1e3 * float(row["predicted_s"]), **levels_of(row, "s", 1e3)} for row in read(result)]


def table_rows(stepcal, stepsim, table):
    with tempfile.TemporaryDirectory() as folder:
        answers = predictions(stepcal, stepsim, table, folder)
    simple = Fitted([(step.placement, step.batch, step.ms) for step in table.fitted])
    return [
        Row(table.group, table.team, table.job, step.name or f"{step.placement}, batch {step.batch}", step.ms, **answer,
            **simple.all(step.placement, step.batch), licence=table.licence, given=table.given, counted=table.counted)
        for step, answer in zip(table.predicted, answers, strict=True)
    ]  # fmt: skip


def rows(stepcal, stepsim, data):
    """(rows, [what was refused or is not at hand])."""

    def one(table):
        try:
            return table_rows(stepcal, stepsim, table), []
        except Refused as why:
            return [], [f"{table.job}, from {table.given}: {why}"]

    tables, missing = [], []
    with tempfile.TemporaryDirectory() as folder:
        for source in SOURCES:
            try:
                tables += source(data, folder)
            except FileNotFoundError as why:
                missing.append(f"{source.__name__}, whose figures are not at hand ({why.filename})")
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            found = list(pool.map(one, tables))
    return [row for own, _ in found for row in own], missing + [why for _, refused in found for why in refused]
