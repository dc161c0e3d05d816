"""Rows out of RESULTS.md and FSDP.md, which tests compare with what the programs predict now."""

import csv
import dataclasses
import io
import pathlib
import re

import live_tables
from row import LEVELS, Row, intervals

FOLDER = pathlib.Path(__file__).resolve().parents[1]


@dataclasses.dataclass
class Section:
    """Where the prediction and the naive models stand in a table of RESULTS.md."""

    title: str  # How it begins.
    group: str
    team: str
    predicted: str
    given: str
    naive: dict = dataclasses.field(default_factory=dict)  # {model: variant}
    licence: str = "figures only"
    unit: str = "ms"
    counted: bool = True
    job: str = ""  # "": the first word of the row.
    rows: str = ""  # Those whose names match; others are no steps.
    others: dict = dataclasses.field(default_factory=dict)  # {row: another variant}


README = "PyTorch's DDP benchmark"
SECTIONS = (
    Section(f"{README}: the step on 2 to 16", "published: DDP from one GPU", "PyTorch", "k = 0.5", "the step on one GPU; interference is assumed",
            {"perfect_overlap": "k = 0"}, "BSD-3-Clause"),
    Section(f"{README}: buckets of 1 MiB", "published: DDP from one GPU", "PyTorch", "k = 0.5", "the step with 25 MiB",
            {"perfect_overlap": "k = 0"}, "BSD-3-Clause"),
    Section(f"{README}: DDP on one GPU", "published: levels and costs", "PyTorch", "copies at 900 GB/s", "the step without DDP", licence="BSD-3-Clause"),
    Section(f"{README}: the step without DDP", "published: levels and costs", "PyTorch", "slower as ResNet-50 is",
            "operations and bytes of the layers; ResNet-50's step", {"linear": "at the card's peaks"}, "BSD-3-Clause"),
    Section("ResNet-50 of NVIDIA", "published: DDP from one GPU", "NVIDIA", "k = 0.5", "the rate of one GPU", {"perfect_overlap": "k = 0"},
            unit="x", job="ResNet-50"),
    Section("MLPerf Training v2.1", "other trainers: MLPerf", "MLCommons", "balanced", "prices of kernels of other models", unit="ms",
            counted=False, job="BERT-large, DGX A100, v2.1"),
    Section("3.4 billion parameters", "published: levels and costs", "EnzoDing", "line alone", "a line through all-reduces",
            job="3.4 B on two RTX PRO 6000", others={"one all-reduce": "with copies at 1792 GB/s"}),
    Section("Fun-ASR-Nano", "published: levels and costs", "FunASR", "predicted", "what a plan costs, and how many are new",
            job="Fun-ASR-Nano, B200", rows="mean step|a step"),
    Section("Three samplers", "published: policies", "transformers", "predicted", "two means, and lengths of the same data",
            job="Qwen2.5-0.5B, two RTX 5090"),
    Section("DDP lab", "published: policies", "duoan", "compute as slow as with 4 ranks", "times to load, and compute of a case without a late rank",
            job="DDP lab, gloo on one CPU", rows="step, rank 0 late"),
    Section("Token-skew lab, 4 gloo ranks", "published: policies", "duoan", "recorded steps", "ten steps of the other case",
            {"three_terms": "three terms"}, job="token-skew lab, gloo on one CPU"),
)  # fmt: skip


def fixed_columns(lines):
    """Cells of a table whose columns are at least two blanks apart."""
    width = max(map(len, lines))
    padded = [line.ljust(width) for line in lines]
    used = [any(line[i] != " " for line in padded) for i in range(width)]
    starts = [i for i in range(width) if used[i] and (i == 0 or not any(used[max(0, i - 2) : i]))]
    ends = starts[1:] + [width]
    return [[line[a:b].strip() for a, b in zip(starts, ends)] for line in padded]


def code_tables(text):
    """{title: (header, rows)} of the sections of RESULTS.md."""
    found = {}
    for part in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        if match := re.search(r"```\n(.*?)```", part, re.DOTALL):
            header, *rows = fixed_columns(match[1].splitlines())
            found[part.splitlines()[0]] = (header, rows)
    return found


def section_rows(section, header, rows):
    found = []
    for cells in rows:
        name = cells[0]
        if not re.match(section.rows, name):
            continue
        variant = section.others.get(name, section.predicted)
        value = live_tables.number(cells[header.index(variant)] or "")
        if value is None:
            continue
        low = high = None
        for title, cell in zip(header, cells):
            if title.startswith("90 % interval") and cell and title.endswith((variant, "its last")):
                low, high = map(float, live_tables.RANGE.match(cell).groups())
        measured = live_tables.number(cells[1])
        row = Row(section.group, section.team, section.job or re.split(r"[ ,]", name)[0], name if section.job else f"{name}, {header[1]}",
                  measured, value, low, high, unit=section.unit, licence=section.licence, given=section.given, when="page",
                  counted=section.counted)  # fmt: skip
        row.row = f"{name} ({section.title.split(': ')[-1]})" if not section.job else name
        for model, title in section.naive.items():
            setattr(row, model, live_tables.number(cells[header.index(title)] or ""))
        found.append(row)
    return found


def results_rows(text):
    tables = code_tables(text)
    found = []
    for section in SECTIONS:
        title = next((one for one in tables if one.startswith(section.title)), None)
        if title is None:
            raise ValueError(f"RESULTS.md has no section {section.title!r} any more: mend SECTIONS in {__file__}")
        found += section_rows(section, *tables[title])
    return found


# How a heading of FSDP.md begins: (team, licence, what gives the level).
FSDP = {
    "1": ("torchtitan", "BSD-3-Clause", "the row on 8 GPUs"),
    "4": ("torchtitan", "BSD-3-Clause", "published prices of kernels alone"),
    "5": ("torchtitan", "BSD-3-Clause", "the row on 32 GPUs"),
    "6": ("KempnerForge", "MIT", "the row on one GPU"),
    "8": ("daddyofadoggy", "figures only", "the row on one GPU"),
    "9": ("daddyofadoggy", "figures only", "the row with kept parameters"),
    "10": ("fms-fsdp", "figures only", "published prices of kernels alone"),
}


def fsdp_intervals(text):
    """{(heading, row): members of a Row} of FSDP.csv."""
    found = {}
    for cells in csv.DictReader(io.StringIO(text)):
        ends = {level: [float(cells[f"{end}{level}"]) for end in ("low", "high")] for level in LEVELS}
        found[cells["heading"], cells["row"]] = intervals(ends)
    return found


def fsdp_rows(text, levels):
    """(rows, [what was refused]). `levels`: as fsdp_intervals() has them."""
    found, refused = [], []
    for section, header, rows in live_tables.tables(text):
        if "published ms" not in header:
            continue
        heading = section.split(": ", 1)[-1]
        foundry = section.startswith("llm-foundry")
        number = heading.split(".")[0]
        team, licence, given = ("MosaicML", "Apache-2.0", "3b on 16 GPUs of the same card") if foundry else FSDP[number]
        group = f"FSDP: llm-foundry, {heading[:4].upper()}" if foundry else "FSDP: published steps"
        for cells in rows:
            named = dict(zip(header, cells))
            if named["predicted ms"].startswith("refused"):
                refused.append(f"{heading.split('. ', 1)[-1]}, {named['row']}")
                continue
            measured, predicted = float(named["published ms"]), float(named["predicted ms"])
            own = levels[heading, named["row"]] if named["90 % interval"] else {}

            def naive(title, named=named, measured=measured):
                return measured * (1 + live_tables.percent(named[title])) if title in named else None

            job = f"MPT {named['row'].split(',')[0]}, {heading[:4].upper()}" if foundry else heading.split(". ", 1)[-1]
            found.append(
                Row(group, team, job, named["row"], measured, predicted, **own, perfect_overlap=naive("perfect overlap"),
                    no_overlap=naive("no overlap"), linear=naive("constant rate"), licence=licence, given=given, when="page")
            )  # fmt: skip
    counts = [int(count) for count in re.findall(r"\((\d+)\)", "".join(re.findall(r"^Refused, since.*", text, re.MULTILINE)))]
    if counts:
        refused.append(f"llm-foundry on the A100: {sum(counts)} rows")
    return found, refused


def rows():
    results = results_rows((FOLDER / "RESULTS.md").read_text(encoding="utf-8"))
    levels = fsdp_intervals((FOLDER / "FSDP.csv").read_text(encoding="utf-8"))
    sharded, refused = fsdp_rows((FOLDER / "FSDP.md").read_text(encoding="utf-8"), levels)
    return results + sharded, refused
