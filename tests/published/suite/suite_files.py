"""All rows, and the files that are made of them."""

import os
import pathlib
import re

import crossed
import curve
import page
import pages
import recorded
import row
import scatter
import step_tables

TESTS = pathlib.Path(__file__).resolve().parents[2]


def default_data():
    return pathlib.Path(os.environ.get("STEPSIM_DATA", TESTS.parents[1] / "shared" / "data"))


def all_rows(stepcal, stepsim, data):
    """(rows, [what was refused])."""
    tables, refused = step_tables.rows(stepcal, stepsim, data)
    published, refused_pages = pages.rows()
    return published + tables + crossed.rows(stepcal, stepsim) + recorded.rows(), refused_pages + refused


def kept():
    """(rows, [what was refused]) that the page and its CSV hold."""
    said = (TESTS / "VALIDATION.md").read_text(encoding="utf-8")
    refused = re.findall(r"^- Refused, or not at hand: (.*)\.$", said, re.MULTILINE)
    return row.read((TESTS / "published" / "VALIDATION.csv").read_text(encoding="utf-8")), refused


def files(rows, refused):
    """{name below tests/: its text}. Page and pictures are made of what the CSV holds."""
    rows = row.read(row.csv_text(rows))  # Rounded, so that errors are those of the figures beside them.
    return {
        "VALIDATION.md": page.text(rows, refused),
        "published/VALIDATION.csv": row.csv_text(rows),
        "published/validation.svg": scatter.svg(rows),
        "published/calibration.svg": curve.svg(rows),
    }


def made(stepcal, stepsim, data):
    return files(*all_rows(stepcal, stepsim, data))
