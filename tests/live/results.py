"""Makes the campaign's results: cells of predicted against measured, RESULTS.md, packed records."""

import lzma
import os
import pathlib
import platform
import subprocess
import sys
import tarfile
import tomllib

GOOD = 0.03  # An error up to this is a hit, if the live run repeats better than that.
MOST_BYTES = 5 * 2**20


def scenario_policies(path):
    with open(path, "rb") as file:
        return tomllib.load(file)["policy"]


# ---- cells --------------------------------------------------------------------------------------


def cell(row, naive_ms, cap_mib):
    """Returns the cell of one policy of a validation, with the three-term fit."""
    measured = row["measured_ms"]["mean"]
    return {
        "policy": row["policy"],
        "cap_mib": cap_mib,
        "predicted_ms": row["predicted_ms"]["mean"],
        "interval_ms": row["predicted_ms"]["interval90"],
        "measured_ms": measured,
        "error": row["error"]["mean"],
        "per_step_error": row["error"]["per_step"],
        "naive_ms": naive_ms[row["policy"]],
        "naive_error": naive_ms[row["policy"]] / measured - 1,
        "repeatability": row["repeatability"],
        "in_interval": row["in_interval"],
    }


def kendall_tau(pairs):
    """Returns Kendall's tau of pairs (a, b); ties count as neither."""
    score = count = 0
    for index, (a, b) in enumerate(pairs):
        for c, d in pairs[:index]:
            score += ((a - c) * (b - d) > 0) - ((a - c) * (b - d) < 0)
            count += 1
    return score / count if count else 1.0


def best_cap(found):
    """Returns the recommended and the truly best bucket size, and the regret of the first."""
    recommended = min(found, key=lambda row: row["predicted_ms"])
    truly = min(found, key=lambda row: row["measured_ms"])
    return {
        "kendall_tau": kendall_tau([(row["predicted_ms"], row["measured_ms"]) for row in found]),
        "recommended": f"{recommended['cap_mib']} MiB",
        "truly_best": f"{truly['cap_mib']} MiB",
        "regret": recommended["measured_ms"] / truly["measured_ms"] - 1,
        "interval_coverage": sum(row["in_interval"] for row in found) / len(found),
    }


def cells(validations, naive_ms, caps_mib):
    """Returns a result's members that come from `validations`, {bucket cap: its validation}."""
    found = [
        cell(row, naive_ms, cap)
        for cap, validation in validations.items()
        for row in validation["policies"]
    ]
    if caps_mib:
        return {"cells": found, **best_cap(found)}
    (validation,) = validations.values()
    members = ("kendall_tau", "recommended", "truly_best", "regret", "interval_coverage")
    return {"cells": found, **{member: validation[member] for member in members}}


def mean_error(found, member="error"):
    return sum(abs(row[member]) for row in found) / len(found)


def one_line(result):
    found = result["cells"]
    naive_error = mean_error(found, "naive_error")
    return (
        f"mean |error| {mean_error(found):.1%} (three-term fit {naive_error:.1%}), "
        f"tau {result['kendall_tau']:.2f}, regret {result['regret']:.1%}, "
        f"in interval {sum(row['in_interval'] for row in found)} of {len(found)}"
    )


# ---- RESULTS.md ---------------------------------------------------------------------------------


def table(head, rows):
    """Returns a Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return ["| " + " | ".join(line) + " |" for line in lines]


def signed(fraction):
    return f"{fraction * 100:+.1f} %"


def cell_row(row, by_cap):
    low, high = row["interval_ms"]
    return [
        f"{row['cap_mib']} MiB" if by_cap else row["policy"],
        f"{row['predicted_ms']:.2f}",
        f"{low:.2f}-{high:.2f}",
        f"{row['measured_ms']:.2f}",
        signed(row["error"]),
        f"{row['per_step_error'] * 100:.1f} %",
        signed(row["naive_error"]),
        f"{row['repeatability'] * 100:.1f} %",
        "yes" if row["in_interval"] else "no",
    ]


def setting(result):
    """Returns the lines above a table."""
    links = "loopback" if not result["namespaces"] else "links as fast as they are"
    if result["bits_per_second"]:
        links = (
            f"links of {result['bits_per_second'] / 1e6:.0f} Mbit/s, by which all-reduces would "
            f"take {result['share'] * 100:.0f} % of a step without overlap"
        )
    return (
        f"`scenarios/{result['scenario']}.toml`: {result['ranks']} ranks, "
        f"{result['gradient_bytes'] / 1e6:.1f} MB of gradients, {links}. Calibrated by a training "
        f"of `{result['calibration_policy']}`; {result['steps']} steps, {result['passes']} passes. "
        f"Predictions on disk {result['predictions_written']}, live run began "
        f"{result['live_started']}; other work kept {result['other_load']:.2f} processors busy. "
        f"The calibration's own steps took {1 + result['drift']:.3f} times as long in the live run."
    )


def configuration_text(result):
    by_cap = bool(result["caps_mib"])
    head = ["bucket size" if by_cap else "policy", "predicted, ms", "90 % interval", "measured, ms"]
    head += ["error", "per-step error", "three-term fit", "repeatability", "in interval"]
    rows = [cell_row(row, by_cap) for row in result["cells"]]
    what = "bucket size" if by_cap else "policy"
    order = "step times" if by_cap else "useful tokens/s"
    return [
        f"### {result['name']}",
        "",
        setting(result),
        "",
        *table(head, rows),
        "",
        f"Kendall tau of the {order} {result['kendall_tau']:.2f}; recommended {what} "
        f"{result['recommended']}, truly best {result['truly_best']}: regret "
        f"{result['regret'] * 100:.1f} %; "
        f"{result['interval_coverage'] * 100:.0f} % in their intervals.",
        "",
    ]


def overall(found):
    """Sums up all cells as rows of a table."""
    for result in found:
        for row in result["cells"]:
            row["error_without_drift"] = (1 + row["error"]) * (1 + result["drift"]) - 1
    rows = [row for result in found for row in result["cells"]]
    steady = [row for row in rows if row["repeatability"] < GOOD]
    rules = [("all", rows), ("policies", policy_rows(found)), ("bucket sizes", cap_rows(found))]
    lines = []
    for name, part in rules:
        part_steady = [row for row in part if row in steady]
        if part:
            lines.append([name, str(len(part)), *shares(part, part_steady)])
    head = ["cells", "number", "mean error", "worst", "without drift", "three-term fit"]
    return table([*head, "within 3 %", "in interval"], lines)


def policy_rows(found):
    return [row for result in found if not result["caps_mib"] for row in result["cells"]]


def cap_rows(found):
    return [row for result in found if result["caps_mib"] for row in result["cells"]]


def shares(rows, steady):
    worst = max(rows, key=lambda row: abs(row["error"]))
    good = sum(abs(row["error"]) <= GOOD for row in steady)
    inside = sum(row["in_interval"] for row in rows)
    return [
        f"{mean_error(rows) * 100:.1f} %",
        signed(worst["error"]),
        f"{mean_error(rows, 'error_without_drift') * 100:.1f} %",
        f"{mean_error(rows, 'naive_error') * 100:.1f} %",
        f"{good} of {len(steady)}",
        f"{inside} of {len(rows)}",
    ]


def command_output(*command):
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def machine():
    """Returns a line on the machine that the campaign ran on."""
    rows = dict(line.split(":", 1) for line in command_output("lscpu").splitlines() if ":" in line)
    torch = command_output(sys.executable, "-c", "import torch; print(torch.__version__)")
    return (
        f"{rows.get('Model name', platform.processor()).strip()}, {os.cpu_count()} cores, "
        f"Linux {platform.release()}, PyTorch {torch} (gloo), Python {platform.python_version()}"
    )


INTRODUCTION = """# PyTorch DDP, live against predicted

Written by `tests/live/campaign`. Real PyTorch training over gloo, one thread a rank. For each table
come first a probe, a training of one policy and a sweep of all-reduces
(`calibrate/torch/all_reduce.py`), which `stepcal import run-record` makes the profile of, and the
predictions; only then the live training: all policies or bucket sizes by turns in blocks of 4
steps. A step is from the last rank's start to the last rank's end. Links are limited by `tc`
between network namespaces, one a rank.

`three-term fit`: error of a + b tokens + c tokens x length of the rank with most to do, by least
squares on the same calibration. `repeatability`: how much the same steps differ from pass to pass;
`within 3 %` counts the cells that repeat better than that. `without drift`: the mean error if the
machine had been as fast in the live run as in the calibration; known only afterwards, from the
steps that both ran.
"""


def write_report(path, found, left_out):
    """Writes the report on the results `found`; `left_out` is {configuration: reason}."""
    dates = sorted(result["live_started"][:10] for result in found)
    span = dates[0] if dates[0] == dates[-1] else f"{dates[0]} to {dates[-1]}"
    lines = [INTRODUCTION, f"Machine: {machine()}. Dates: {span} (UTC).", "", *overall(found), ""]
    lines += [line for result in found for line in configuration_text(result)]
    if left_out:
        lines += ["### Left out", ""]
        lines += [f"- {name}: {reason.splitlines()[0]}" for name, reason in left_out.items()]
    path.write_text("\n".join(lines).rstrip() + "\n", encoding="utf-8")


# ---- records ------------------------------------------------------------------------------------


def kept_files(folder):
    """Tells whether to keep a file: records, predictions, measurements and logs are kept, but not
    plans, which `stepsim plan` writes again."""
    return sorted(
        path
        for path in folder.iterdir()
        if path.suffix in (".json", ".jsonl", ".log")
    )


def pack_records(work, out, names):
    """Packs one NAME.tar.xz per configuration; returns their bytes, and warns beyond 5 MiB."""
    out.mkdir(parents=True, exist_ok=True)
    size = 0
    for name in names:
        path = out / f"{name}.tar.xz"
        with lzma.open(path, "wb", preset=9) as file, tarfile.open(fileobj=file, mode="w") as tar:
            for kept in kept_files(pathlib.Path(work) / name):
                tar.add(kept, arcname=f"{name}/{kept.name}")
        size += path.stat().st_size
    if size > MOST_BYTES:
        print(f"warning: records of {size / 2**20:.1f} MiB", file=sys.stderr)
    return size
