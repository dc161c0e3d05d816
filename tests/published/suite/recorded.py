"""Our own campaigns, as their documents recorded them."""

import collections
import dataclasses
import pathlib
import re
from collections.abc import Callable

import live_tables
from row import Row

LIVE = pathlib.Path(__file__).resolve().parents[2] / "live"


@dataclasses.dataclass
class Document:
    """Which rows a document has, and what was given for them."""

    name: str
    group: Callable  # Of a found row: its group, or None: it is no prediction.
    job: Callable
    given: str
    known: Callable = lambda found: False  # Whether this very thing had been measured before.
    unit: str = "ms"


def always(value):
    return lambda found: value


def live_policies(found):
    return "live: bucket caps" if found.section.startswith("bucket_caps") else "live: batching policies, 1.13"


def fsdp2_live(found):
    return "live: DDP on shared processors" if found.name.endswith("ddp") else "live: FSDP2 and HSDP from DDP steps"


def fsdp2_run(found):
    run = re.match(r"The (first|second) run", found.section)
    return f"Llama-like 2.4 M, {'HSDP 2x2' if '4 ranks' in found.section else '2 ranks'}, {run[1] if run else 'third'} run"


def sleepers(found):
    return "live: sleeping layers, quiet" if found.section.startswith("Quiet") else "live: sleeping layers, busy records"


def h100(found):
    return "live: one GPU, op by op" if found.section.startswith("Known") else "live: one GPU, whole steps"


def h200(found):
    whole = found.section.startswith("A model of one's own")
    return "live: one GPU, whole steps" if whole else "live: one GPU, op by op"


def h200_job(found):
    visit = found.visit or {"The visits before": "third visit"}.get(found.section.split(":")[0], "sixth visit")
    if found.section.startswith("A model of"):
        return f"GPT-2 of Hugging Face, H200, {visit}"
    bert = found.name.startswith("BERT") or found.measured < 50
    return f"{'BERT base' if bert else 'GPT-2 medium'}, H200, {visit}"


def h100_job(found):
    if found.section.startswith("Known"):
        return "BERT base, H100" if found.measured < 65 else "GPT-2 medium, H100"
    return f"Llama 0.4 B, H100, {found.visit}" if found.visit else "GPT-2 of Hugging Face, H100"


def quiet_sampler(found):
    return "a quiet machine" in found.section


def sampler(found):
    return f"live: batches of the sampler{', quiet machine' if quiet_sampler(found) else ''}"


def compiled(found):
    """The run of 2026-11-27 was the first group's before there was a second one, and stays there."""
    return f"live: a compiled model{', quiet machine' if '2026-11-28' in found.section else ''}"


def compiled_job(found):
    run = re.search(r"Run of [\d:]+$", found.section)
    return f"compiled, quiet {run[0].lower()}" if run else f"compiled, {found.visit or 'quiet'}"


def own_gpu(found):
    if "op by op" in found.section:
        return "live: one GPU, op by op"
    return f"live: one GPU, {'one recorded policy' if 'recorded' in found.section else 'whole steps'}"


def own_gpu_job(found):
    model = found.section.split(": ")[-2] if "steps of" in found.section or "shapes" in found.section else "BERT base"
    return f"{model}, H200 of 2026-11-28{', one recorded policy' if 'recorded' in found.section else ''}"


def fsdp2_gpu_job(found):
    if found.section.startswith("The third visit"):
        return f"Llama 345 M, a network of delays, the third visit, an H200{', by whole steps' if found.whole else ''}"
    return f"Llama 345 M, H100 with a network of delays, {found.section.lower()}"


def fsdp2_gpu(found):
    return "live: fully_shard on a GPU, whole steps" if found.whole else "live: fully_shard on a GPU, op by op"


DOCUMENTS = (
    Document("RESULTS", live_policies, lambda one: one.section, "a training of one policy, and a sweep of all-reduces"),
    Document("FSDP2_LIVE", fsdp2_live, fsdp2_run, "DDP steps of a calibration, hooks, collectives"),
    Document("FSDP2_RECORDED", always("live: FSDP2 from one recorded policy"),
             lambda one: "Llama-like 2.4 M, " + one.section.split(":")[0].lower(), "a training of `fixed` under fully_shard",
             lambda one: one.name == "fixed, fsdp2"),
    Document("FSDP2", always("live: FSDP2 from DDP records"), always("transformer 4 x 128 on busy processors"),
             "DDP steps of the other policies, and a table of collectives"),
    Document("FSDP2_GPU", fsdp2_gpu, fsdp2_gpu_job,
             "ops and hooks timed on the GPU, or 20 s of DDP steps"),
    Document("FSDP2_SLEEPERS", sleepers, lambda one: one.name.split(",")[0], "hooks and collectives timed before",
             lambda one: one.section.startswith("Quiet") and one.name == "uniform, ddp"),
    Document("H200", h200, h200_job, "ops, or 24 shapes of whole steps, timed before"),
    Document("H100", h100, h100_job, "ops, or 24 shapes of whole steps, timed before"),
    Document("OWN_GPU", own_gpu, own_gpu_job, "24 shapes of whole steps, 48 recorded steps of one policy, or ops, timed before",
             lambda one: "recorded" in one.section and one.name == "group_by_length"),
    Document("BATCH_SAMPLER", sampler, lambda one: f"classifier 2 x 64{', quiet machine' if quiet_sampler(one) else ''}",
             "50 steps of `bucketed`", unit="tokens/s"),
    Document("NEW_SHAPES", always("live: new shapes"), lambda one: one.section, "a training of `fixed`",
             lambda one: one.name == "fixed"),
    Document("STEP_TIMES", always("live: seven steps from five"), always("two networks of 1.6 and 0.4 Gbit/s"), "five timed steps"),
    Document("ADVISOR", lambda one: None if one.name.startswith("gain") else "live: steps of an advice",
             lambda one: "TokenClassifier, " + one.section.split(": ")[-1].lower(), "60 to 80 recorded steps"),
    Document("BUCKET_LIST", always("live: a list of bucket limits"), always("a device that sleeps"), "parts of the step, timed before"),
    Document("COMPILED_DDP", compiled, compiled_job, "48 steps of `fixed`", lambda one: one.name.startswith("fixed")),
)

# (document, group of a way to calibrate)
WAYS = (
    ("OWN_MODEL", "1.13"),
    ("TODAYS_MODELS", "2.15"),
)


def calibrated_policy(text):
    """{section: the policy that was trained for the calibration} of RESULTS.md."""
    found = {}
    for part in re.split(r"^### ", text, flags=re.MULTILINE)[1:]:
        if match := re.search(r"Calibrated by a training of `(\w+)`", part):
            found[part.splitlines()[0]] = match[1]
    return found


def mark_whole(text, runs):
    """Tables of FSDP2_GPU.md say in the line above whether they are by ops or by whole steps."""
    order = re.findall(r"^By (ops|whole steps):", text, flags=re.MULTILINE)
    sizes = [len(rows) for _, header, rows in live_tables.tables(text) if "predicted, ms" in header]
    if len(order) != len(sizes):
        raise ValueError(f"FSDP2_GPU.md: {len(sizes)} tables and {len(order)} lines that begin with By")
    kinds = [kind == "whole steps" for kind, size in zip(order, sizes) for _ in range(size)]
    for one, whole in zip(runs, kinds, strict=True):
        one.whole = whole


def numbered(name, job, seen):
    """The name, with a number where the job had it before: rounds have the same rows."""
    seen[job, name] += 1
    return f"{name}, round {seen[job, name]}" if seen[job, name] > 1 else name


def document_rows(document):
    text = (LIVE / f"{document.name}.md").read_text(encoding="utf-8")
    runs = live_tables.all_runs(text)
    if document.name == "FSDP2_GPU":
        mark_whole(text, runs)
    calibrated = calibrated_policy(text) if document.name == "RESULTS" else {}
    rows, seen = [], collections.Counter()
    for one in runs:
        group = document.group(one)
        if group is None:
            continue
        known = document.known(one) or calibrated.get(one.section) == one.name
        section = "" if document.name in ("H200", "H100", "OWN_GPU") else one.section.split(": ")[-1]
        if section.lower() in document.job(one).lower() or document.name in ("BATCH_SAMPLER", "COMPILED_DDP"):
            section = ""
        name = numbered(", ".join(part for part in (one.name, section) if part), document.job(one), seen)
        rows.append(
            Row(group, "this project", document.job(one), name, one.measured, one.predicted, one.low, one.high, one.inside,
                one.three_terms, unit=document.unit, licence="Apache-2.0", given=document.given, when="then",
                counted=not known)
        )  # fmt: skip
    return rows


def way_rows(name, version):
    text = (LIVE / f"{name}.md").read_text(encoding="utf-8")
    rows = []
    for table in live_tables.tables(text):
        for way, runs in live_tables.policies_of(*table).items():
            recorded = re.search(r"\((\w+)\)", way)
            kind = {"one": "one recorded policy", "stepsim_calibrate.py": "calibrated in PyTorch"}.get(way.split(" ")[0], "op by op")
            for one in runs:
                rows.append(
                    Row(f"live: {kind}, {version}", "this project", one.section, f"{one.name}, by {way}", one.measured, one.predicted,
                        inside=one.inside, three_terms=one.three_terms if recorded else None, licence="Apache-2.0", given=way,
                        when="then", counted=not (recorded and recorded[1] == one.name))
                )  # fmt: skip
    return rows


def rows():
    found = []
    for document in DOCUMENTS:
        found += document_rows(document)
    for way in WAYS:
        found += way_rows(*way)
    return found
