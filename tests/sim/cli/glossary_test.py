"""Checks that the words of the output are those of the glossary: in tables, sentences, help and pages.

usage: glossary_test.py PATH_OF_STEPSIM
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import diff_test
import validate_test
from stepsim_program import PAIR, ROOT, SHARD_1B, SKEW, STEPSIM, run

import small_runner  # from a folder that stepsim_program names

PAGE = ROOT / "sim" / "report" / "GLOSSARY.md"
TABLES = (
    ("compare", SKEW),
    ("run", SKEW),
    ("blame", SKEW),
    ("sweep", SHARD_1B, "--over", "cluster.placement=8,2x8", "--samples", "1e6", "--gpu-hour", "2"),
    ("tune", PAIR, "--over", "ddp.bucket_cap=1MiB..4MiB:x2"),
)
# Names of a scenario's own, and words that say themselves.
OWN = {"cluster.placement", "policy", "step saved as", "note"}
# Of a validation's report in Markdown: where a record is from.
OF_A_RECORD = {"live record", "started", "device", "backend", "passes"}


def headings(text):
    """The cells of the lines that follow a blank one and have two or more, two blanks apart."""
    found = set()
    for block in text.split("\n\n"):
        lines = block.splitlines()
        cells = re.split(r"\s{2,}", lines[0].strip()) if lines else []
        if len(cells) >= 4 and len(lines) > 1 and not re.search(r"\d\.\d", lines[0]):
            found.update(cells)
    return found


def advice(folder):
    record = ROOT / "scenarios" / "tour" / "random.jsonl"
    return run("advise", record, "--wide", "--out-dir", os.path.join(folder, "advice")).stdout


def validation(folder):
    """The tables of a validation, on the terminal and in Markdown."""
    file, report = os.path.join(folder, "prediction.json"), os.path.join(folder, "report.md")
    run("compare", PAIR, "--json", file, "--quiet")
    live = []
    for prediction in json.loads(pathlib.Path(file).read_text(encoding="utf-8"))["predictions"]:
        live.append(os.path.join(folder, prediction["policy"] + ".jsonl"))
        validate_test.live_record(live[-1], prediction, [0.97, 1.0, 1.06])
    text = run("validate", PAIR, "--live", *live, "--predictions", file, "--wide", "--report", report).stdout
    lines = pathlib.Path(report).read_text(encoding="utf-8").splitlines()
    heads = [above for above, line in zip(lines, lines[1:]) if re.fullmatch(r"\|[-: |]+\|", line)]
    assert len(heads) >= 3, heads
    return text + "".join("\n\n" + "  ".join(cell.strip() for cell in head.strip("| ").split("|")) + "\n|\n"
                          for head in heads)


def difference(folder):
    rows = diff_test.training(2, {("forward", 0): 1.1, ("forward", 1): 1.1})
    before = diff_test.write(pathlib.Path(folder, "a.jsonl"), diff_test.training(1))
    after = diff_test.write(pathlib.Path(folder, "b.jsonl"), rows, **diff_test.LATER)
    return run("diff", before, after).stdout


def all_help():
    commands = re.findall(r"^  ([a-z]+)  ", run("--help").stdout, re.MULTILINE)
    return "".join(run(command, "--help").stdout for command in commands)


def test_every_heading_of_a_table_is_explained():
    seen = set()
    for words in TABLES:
        seen |= headings(run(*words).stdout)
    for table, own in ((advice, "gain, 90 %"), (validation, "repeatability"), (difference, "99 % interval")):
        with tempfile.TemporaryDirectory() as folder:
            found = headings(table(folder))
        assert own in found, (own, found)
        seen |= found
    assert len(seen) > 40, seen
    for heading in seen - OWN - OF_A_RECORD:
        done = subprocess.run([STEPSIM, "help", heading], capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{heading}: {done.stderr}"


def test_every_heading_of_a_page_is_explained():
    with tempfile.TemporaryDirectory() as folder:
        page = os.path.join(folder, "page.html")
        done = subprocess.run([STEPSIM, "sweep", SHARD_1B, "--over", "cluster.placement=8,2x8", "--html", page],
                              capture_output=True, text=True, check=False)
        if done.returncode == 2 and "html" in done.stderr:
            raise small_runner.Skip("this build makes no pages")
        text = pathlib.Path(page).read_text(encoding="utf-8")
    data = json.loads(re.search(r'id="stepsim-data"[^>]*>(.*?)</script>', text, re.DOTALL)[1])
    columns = data["columns"] + data["sweep_columns"]
    assert len(columns) > 20, columns
    for column in columns:
        word = column["heading"].lower()
        assert word in data["glossary"] or re.sub(" (ms|mib|s)$", "", word) in data["glossary"], column


def test_every_word_is_one_that_the_output_uses():
    sources = [path for folder in ("sim/report", "sim/study") for ending in ("js", "cpp")
               for path in (ROOT / folder).rglob("*." + ending) if path.name != "glossary.cpp"]
    texts = [text for path in sources for line in path.read_text(encoding="utf-8").splitlines()
             for text in re.findall(r'"((?:[^"\\]|\\.)*)"', line)]
    used = (" ".join(texts) + all_help()).lower()
    for term in json.loads(run("glossary", "--json", "-").stdout):
        for word in (term["word"], *term["also"]):
            assert word.lower() in used, f"nobody says {word}"


def test_the_page_of_the_documentation_is_the_programs():
    page = run("glossary", "--markdown", "-").stdout
    if os.environ.get("STEPSIM_ACCEPT"):
        PAGE.write_text(page, encoding="utf-8")
    assert page == PAGE.read_text(encoding="utf-8"), "stepsim glossary --markdown sim/report/GLOSSARY.md"


def test_help_explains_words_and_commands():
    text = run("help", "exposed").stdout
    assert text.startswith("exposed (also: ") and "idle after its backward" in " ".join(text.split()), text
    assert all(len(line) <= 80 for line in run("glossary").stdout.splitlines())
    assert run("help", "rank", "token", "spread").stdout == run("help", "Rank token spread").stdout
    assert run("help", "exposed", "ms").stdout == text
    assert run("help", "sweep").stdout == run("sweep", "--help").stdout
    message = run("help", "exposd", status=2).stderr
    assert "did you mean 'exposed'" in message and "stepsim --help" in message, message


def words_of(*asked):
    """The entries that help answers with."""
    return [term["word"] for term in json.loads(run("glossary", *asked, "--json", "-").stdout)]


def test_a_part_of_one_or_two_entries_is_answered_with_these():
    for asked, words in (("memory", ["memory"]), ("MFU", ["MFU"]), ("epoch", ["epoch"]), ("bucket", ["bucket"]),
                         ("regret", ["regret"]), ("interval", ["90 % interval"]), ("skew", ["sample skew"]),
                         ("exposed", ["exposed"]), ("padding", ["padding"]), ("overlap", ["overlap"]),
                         ("hour", ["drift", "GPU-hours"]), ("scaling", ["efficiency"]), ("warmup", ["step"]),
                         ("Warm-Up", ["step"]), ("bucket_cap", ["bucket"]), ("token skews", ["sample skew"]),
                         ("communications", ["collectives", "exposed"]), ("latency", ["bucket"]), ("gradient", ["bucket", "exposed"]), ("GPU", ["rank"]), ("allocator", ["memory"])):
        assert words_of(*asked.split()) == words, (asked, words_of(*asked.split()))
    assert run("help", "skew").stdout == run("help", "sample", "skew").stdout
    assert words_of("skew", "regret") == ["sample skew", "regret"]
    # Only where more fit is the answer a list of them.
    message = run("help", "tokens", status=2).stderr
    assert "'tokens' is in several entries: change, lost samples, padded tokens, " in message, message
    assert "stepsim help ENTRY" in message and len(message) < 300, message
    for nothing in ("skewness", "kew", "s", "-", "nothing_like_it"):
        assert "unknown word" in run("help", nothing, status=2).stderr, nothing


if __name__ == "__main__":
    sys.exit(small_runner.main(globals()))
