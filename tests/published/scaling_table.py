"""Makes scenarios/published/scaling.csv: what published jobs keep of their samples/s a GPU on more GPUs.

usage: scaling_table.py [--check]

Reads the tables of step times that others published ($STEPSIM_DATA/public_steps); its README names their authors,
commits and licences. A row compares two runs that have everything in common but the number of GPUs: the model, the
batch of a GPU, the precision and the way of sharding. --check compares with the file that is shipped.
"""

import collections
import csv
import os
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
SHIPPED = ROOT / "scenarios" / "published" / "scaling.csv"
HEADER = "job,parameters,gpu,gpus_a_node,sharding,from_gpus,gpus,efficiency,source,date\n"
ELASTICFLOW = {"bert": ("BERT base", 109500000), "resnet50": ("ResNet-50", 25600000), "vgg16": ("VGG-16", 138400000)}


def rows_of(data, file):
    with open(data / file, encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


def elasticflow(data):
    for row in rows_of(data, "elasticflow_a100.csv"):
        name, parameters = ELASTICFLOW[row["model"]]
        job = (f"{name}, batch {row['local_batch']}", parameters, "A100", 8, "DDP")
        yield job, int(row["gpus"]), 1000 / float(row["step_ms"]), "pkusys/ElasticFlow@04a0109", ""


def llm_foundry(data):
    rows = rows_of(data, "llm_foundry_fsdp.csv")
    parameters = {}  # They grow a little with the sequence: the least of a model.
    for row in rows:
        count = int(row["parameters"])
        parameters[row["model"]] = min(count, parameters.get(row["model"], count))
    same = ("sequence", "micro_batch", "precision", "activation_checkpointing")
    for row in rows:
        job = (f"MPT {row['model'].upper()}", parameters[row["model"]], row["gpu"].split("_")[0].upper(), 8,
               f"FSDP {row['sharding']}", tuple(row[one] for one in same))
        yield job, int(row["gpus"]), float(row["tokens_per_s_gpu"]), "mosaicml/llm-foundry@8c8dd48", ""


def torchtitan(data):
    same = ("gpu", "async_tp", "compile", "float8", "activation_checkpointing", "sequence", "local_batch")
    for row in rows_of(data, "torchtitan.csv"):
        if row["model"] == "llama3.1-8b" and row["tp"] == row["pp"] == row["cp"] == "1":
            name = "Llama 3.1 8B" + (" float8" if row["float8"] != "no" else "")
            job = (name, 8030261248, row["gpu"].split("-")[0], 8, "FSDP2")
            date = "2024-12" if "202412" in row["source"] else "2025-06"
            yield (*job, tuple(row[one] for one in same)), int(row["gpus"]), float(row["tokens_per_s_gpu"]), \
                "pytorch/torchtitan@b5bcd76", date


def kempner(data):
    for row in rows_of(data, "kempnerforge_h200.csv"):
        if row["tp"] in ("1", "4") and row["pp"] == "1" and row["source"] == "mfu_scaling":
            shards = "FSDP2" if row["tp"] == "1" else "FSDP2 TP 4"
            job = (f"Llama {row['model'].upper()}", int(float(row["parameters"])), "H200", 4, shards,
                   tuple(row[one] for one in ("sequence", "micro_batch", "accumulation", "compile")))
            yield job, int(row["gpus"]), float(row["tokens_per_s"]) / int(row["gpus"]), \
                "KempnerInstitute/KempnerForge@5666d0d", ""


def oumi(data):
    for row in rows_of(data, "oumi_llama2b.csv"):
        if row["source"] == "pr213":
            gpus = int(row["nodes"]) * int(row["gpus_per_node"])
            job = ("Llama 2B", 2000000000, "A100", 4, "FSDP " + row["strategy"])
            yield job, gpus, float(row["samples_per_s"]) / gpus, "oumi-ai/oumi pull request 213", "2024-07"


def mlperf(data):
    for row in rows_of(data, "mlperf_dp.csv"):
        if row["benchmark"] == "bert" and row["submitter"] == "Dell" and row["batch_per_gpu"] == "96":
            if row["system"].endswith("XE9680x8H100-SXM-80GB"):
                job = ("BERT large", 335141888, "H100", 8, "NVIDIA's code", row["round"])
                yield job, int(row["gpus"]), float(row["samples_per_s_gpu"]), f"MLPerf Training {row['round']}", ""


def table(data):
    jobs = collections.defaultdict(dict)
    sources = {}
    for reader in (elasticflow, llm_foundry, torchtitan, kempner, oumi, mlperf):
        for job, gpus, speed, source, date in reader(data):
            jobs[job].setdefault(gpus, speed)
            sources[job] = (source, date)
    text = HEADER
    for job, speeds in jobs.items():
        least = min(speeds)
        for gpus in sorted(speeds):
            if gpus > least:
                cells = (f'"{job[0]}"', *job[1:5], least, gpus, f"{speeds[gpus] / speeds[least]:.3f}", *sources[job])
                text += ",".join(map(str, cells)) + "\n"
    return text


def main():
    data = pathlib.Path(os.environ.get("STEPSIM_DATA", ROOT / ".." / "shared" / "data")) / "public_steps"
    if not data.is_dir():
        print(f"SKIPPED: no reference data at {data}")
        return 77
    text = table(data)
    if "--check" in sys.argv:
        if text != SHIPPED.read_text(encoding="utf-8"):
            print(f"FAILED: {SHIPPED} is not what the tables say")
            return 1
        return 0
    SHIPPED.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
