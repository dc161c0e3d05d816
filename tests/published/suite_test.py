#!/usr/bin/env python3
"""Rows, scores, naive models and readers of documents of tests/published/suite, on a few lines each."""

import json
import pathlib
import re
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE / "suite"), str(HERE.parent)]

import curve  # noqa: E402  (needs the path above)
import html_page  # noqa: E402
import live_tables  # noqa: E402
import page  # noqa: E402
import pages  # noqa: E402
import recorded  # noqa: E402
import row  # noqa: E402
import scatter  # noqa: E402
import scores  # noqa: E402
import simple_models  # noqa: E402
import small_runner  # noqa: E402
import suite_files  # noqa: E402

LIVE = """# Title

## Visits

| policy | first visit: predicted | measured | error | inside | second visit: predicted | measured | error | inside | as imported now |
|---|---|---|---|---|---|---|---|---|---|
| fixed | 110.0 ms (99-120) | 100.0 ms | +10.0 % | yes | 150.0 ms (140-160) | 200.0 ms | -25.0 % | no | +1.0 % |

### Sampler

| batches by | plans by | steps | predicted | 90 % interval | measured | error | in it | over the default, predicted | measured |
|---|---|---|---|---|---|---|---|---|---|
| planner | time | 72 | 49,871 | 22439 to 75032 | 75594 | -34.0 % | yes | 3.02 | 3.63 |

## Ways

| profile by | took | fixed | planner | mean error | in interval |
|---|---|---|---|---|---|
| one recorded policy (fixed) | 9 s | +10.0 % | -20.0 % | 15.0 % | 1 of 2 |
| three-term fit |  | +50.0 % | 0.0 % | 25.0 % |  |
| measured |  | 200.00 ms | 50.00 ms |  |  |
"""
RESULTS = """## A title

```
figure           published ms  k = 0   error  90 % interval, k = 0  holds it
net (1), 2 GPUs         104.0  100.5  -3.4 %         97.7 to 103.8  no
net (1), 4 GPUs         104.0
```
"""


def near(value, expected):
    return abs(value - expected) <= 1e-6 * max(1.0, abs(expected))


def made(predicted, measured, low=None, high=None, **more):
    return row.Row("group", "team", more.pop("job", "job"), "row", measured, predicted, low, high, **more)


def test_tables_of_visits_are_read():
    first, second, sampler = live_tables.all_runs(LIVE)
    assert (first.visit, first.name, first.predicted, first.low, first.high, first.inside) == ("first visit", "fixed", 110, 99, 120, 1)
    assert (second.measured, second.stated, second.inside) == (200, -0.25, 0)
    assert (sampler.section, sampler.name) == ("Visits: Sampler", "planner")
    assert (sampler.predicted, sampler.measured, sampler.high, sampler.inside) == (49871, 75594, 75032, 1)


def test_tables_of_ways_are_read():
    (table,) = [one for one in live_tables.tables(LIVE) if one[0] == "Ways"]
    ((way, (fixed, planner)),) = live_tables.policies_of(*table).items()
    assert way == "one recorded policy (fixed)"
    assert near(fixed.predicted, 220) and near(planner.predicted, 40) and near(fixed.three_terms, 300)
    assert fixed.inside == planner.inside == 0.5


def test_a_column_taken_for_another_is_refused():
    wrong = LIVE.replace("| 200.0 ms | -25.0 %", "| 200.0 ms | -35.0 %")
    try:
        live_tables.all_runs(wrong)
    except ValueError as error:
        assert "fixed: 150.0 ms (140-160) beside 200.0 ms" in str(error), error
    else:
        raise AssertionError("a wrong error was not noticed")


def test_code_tables_are_read():
    header, rows = pages.code_tables(RESULTS)["A title"]
    assert header == ["figure", "published ms", "k = 0", "error", "90 % interval, k = 0", "holds it"], header
    assert rows[0] == ["net (1), 2 GPUs", "104.0", "100.5", "-3.4 %", "97.7 to 103.8", "no"], rows
    section = pages.Section("A title", "g", "t", "k = 0", "one GPU", {"perfect_overlap": "k = 0"})
    (one,) = pages.section_rows(section, header, rows)
    assert (one.measured, one.predicted, one.low, one.high, one.inside, one.perfect_overlap) == (104, 100.5, 97.7, 103.8, 0, 100.5)


def test_every_document_has_rows():
    names = {one.group for one in recorded.rows()}
    assert len(names) == 27, sorted(names)
    known = [one for one in recorded.rows() if not one.counted]
    assert any("bucketed" in one.row for one in known) and len(known) == 46, len(known)
    results, sharded = pages.rows()[0], [one for one in pages.rows()[0] if one.group.startswith("FSDP")]
    assert len(results) > 110 and len(sharded) > 50, (len(results), len(sharded))


def test_rows_survive_the_file():
    rows = [made(110, 100, 90, 120, linear=50.0), made(3, 4, unit="x", counted=False)]
    again = row.read(row.csv_text(rows))
    assert again == rows, again
    assert row.csv_text(again) == row.csv_text(rows)
    assert ",+10.0,inside\n" in row.csv_text(rows) and ",-25.0,no interval\n" in row.csv_text(rows)


def test_scores_are_those_by_hand():
    rows = [made(110, 100, 90, 120, linear=200.0), made(90, 100, 85, 95), made(130, 100, 50, 140), made(75, 100, unit="tokens/s")]
    found = scores.score(rows)
    assert near(found.mean, (0.1 + 0.1 + 0.3 + 0.25) / 4) and near(found.median, 0.175)
    assert near(found.worst, 0.3) and near(found.covered, 2 / 3) and found.with_interval == 3
    # A throughput that is predicted too low is a step predicted too long.
    assert near(found.bias, (0.1 - 0.1 + 0.3 + (1 / 0.75 - 1)) / 4)
    assert near(found.half_width, 15 / 110) and found.naive == {"linear": (1, 1.0, rows[0].error())}
    assert [one.predicted for one in scores.worst(rows + [made(50, 100, job="other")], 2)] == [50, 130]


def with_levels(predicted, measured):
    """Intervals of 10, 20, 30 and 40 % to either side."""
    ends = {level: (predicted * (1 - part), predicted * (1 + part)) for level, part in zip(row.LEVELS, (0.1, 0.2, 0.3, 0.4))}
    return made(predicted, measured, **row.intervals(ends))


def test_the_curve_counts_rows_with_all_levels():
    rows = [with_levels(100, measured) for measured in (105, 85, 125, 141)] + [made(100, 100, 90, 110)]
    assert scores.calibration(rows) == ({50: 0.25, 80: 0.5, 90: 0.75, 95: 0.75}, 4), scores.calibration(rows)
    assert rows[0].low == 70 and rows[0].inside == 1 and rows[3].inside == 0
    assert row.csv_text(row.read(row.csv_text(rows))) == row.csv_text(rows)
    told = page.calibration_lines([*rows, made(1, 1, inside=0.5)])
    assert "The curve has the 4 rows" in told and "Left out are 1 of which" in told and "and 1 of which it only" in told, told
    assert not page.calibration_kinds(rows)
    many = page.calibration_table(rows * 3).splitlines()
    assert many[-1] == "| group | 12 | 25.0 % | 50.0 % | 75.0 % | 75.0 % |", many
    drawn = curve.svg(rows * 3)
    assert drawn.count('class="knot"') == 2 and ">all (12)<" in drawn, drawn


def test_levels_and_what_is_left_without_them():
    slow = [made(100, measured, 90, 110, job="slow") for measured in (120, 125, 135)]
    level = [made(100, measured, 90, 110, job="level") for measured in (100, 101, 130)]
    found = scores.levels([*slow, *level, made(1, 1, inside=1.0, job="without ends")])
    assert near(found["slow"], 1.25) and near(found["level"], 1.01) and len(found) == 2, found
    assert scores.held_but_for_level(slow + level) == (1 / 3, 6) and scores.held_but_for_level([made(1, 1)]) is None
    narrow = page.narrow_table([*slow, *level] * 2).splitlines()
    assert narrow[-1] == "| group | 33.3 % of 12 | +1.0 % to +25.0 %, 2 jobs | 83.3 % of 12 | not known |", narrow


def test_naive_models_are_compared_by_jobs():
    rows = [made(100 + ours, 100, job=job, linear=100.0 + naive) for job, ours, naive in (("a", 10, 4), ("a", -10, 4), ("b", 2, 4))]
    assert scores.by_jobs(rows, "linear") == " (+2.0 +- 4.0 points by jobs; ours better in 1 of 2)", scores.by_jobs(rows, "linear")
    assert scores.by_jobs(rows[:2], "linear") == ""


def test_naive_models_find_what_was_planted():
    placements = [(where, batch) for where in ("1", "2", "4", "2x4", "4x4") for batch in (4, 8, 16)]
    rows = [(where, batch, 10 + 2 * batch + 30 * simple_models.volume(where)) for where, batch in placements]
    fitted = simple_models.Fitted(rows)
    assert simple_models.per_node("1+2x3+4") == (1, 3, 3, 4)
    expected = 10 + 2 * 12 + 30 * simple_models.volume("8x8")
    assert near(fitted.three_terms("8x8", 12), expected)
    assert abs(fitted.joined("no_overlap", "8x8", 12) / expected - 1) < 0.03
    assert near(fitted.linear(12), (10 + 2 * 16) * 12 / 16)
    hidden = [(where, batch, max(10 + 2 * batch, 60 * simple_models.volume(where))) for where, batch in placements]
    assert abs(simple_models.Fitted(hidden).joined("perfect_overlap", "8x8", 4) / (60 * simple_models.volume("8x8")) - 1) < 0.03


def test_the_page_and_the_picture_say_what_the_rows_say():
    rows = [made(150, 100, 90, 160), made(101, 100, 90, 120, job="near"), made(900, 100, job="other trainer", counted=False)]
    text = page.text(rows, ["a job: too far"])
    assert "**Half of 2 predictions are within 25.5 %" in text and "2 figures of 2 jobs, measured by 1 teams" in text, text
    assert "- Refused, or not at hand: a job: too far." in text
    assert "| job | row | team | 100 ms | 150 ms |" in text and "| *not counted:* group | 1 |" in text, text
    picture = scatter.svg(rows)
    assert picture.count('class="dot"') == 4 and "shown, not counted (1)" in picture  # Two families, two panels.


def test_page_and_pictures_are_made_of_the_csv():
    for name, text in suite_files.files(*suite_files.kept()).items():
        assert text == (HERE.parent / name).read_text(encoding="utf-8"), f"{name} is not made of VALIDATION.csv"


def test_markdown_becomes_html():
    text = "### A `head`, and\n\n- *one* [two](calibrate/import/README.md#a) **th\n  ree** a*b*c\n- <\n\n1. x\n\n| a | b |\n|---|---|\n| `|x` | +3.0 % |"
    made = html_page.blocks(text.replace("`|x`", "x"), {}, False)
    assert '<h3 id="a-head-and">A <code>head</code>, and</h3>' in made, made
    assert '<ul><li><em>one</em> <a href="../calibrate/import/README.md#a">two</a> <strong>th\nree</strong> a*b*c</li>' in made, made
    assert "<li>&lt;</li>" in made and "<ol><li>x</li>" in made, made
    assert '<td>x</td><td class="number">+3.0\u00a0%</td>' in made, made
    assert html_page.target("soak/README.md", True) == "../soak/index.html" and html_page.target("#a", True) == "#a"
    assert html_page.target("published/FSDP.md#b", True) == "FSDP.html#b" and html_page.target("published/a.csv", True) == "a.csv"


def test_the_html_has_all_of_the_document():
    rows, refused = suite_files.kept()
    web, said = html_page.text(rows, refused), page.text(rows, refused)
    for heading in re.findall(r"^##+ (.*)", said, re.MULTILINE):
        assert f'id="{html_page.anchor(heading)}"' in web, heading
    assert web.count("<tr>") == len(re.findall(r"^\|(?!---)", said, re.MULTILINE)), "a table lost rows"
    facts = json.loads(re.search(r'id="rows">(.*?)</script>', web)[1])
    assert len(facts["rows"]) == sum(one.unit == "ms" for one in rows)
    assert not re.search(r"@\w+@|\0", web) and len(re.findall(r"<svg ", web)) == 4


def test_each_job_of_the_worst_has_a_cause():
    rows = [one for one in row.read((HERE / "VALIDATION.csv").read_text(encoding="utf-8")) if one.counted]
    unknown = {one.job for one in scores.worst(rows, 10)} - page.causes().keys()
    assert not unknown, f"say in suite/causes.csv why, or that it was looked for: {unknown}"
    gone = page.causes().keys() - {one.job for one in rows}
    assert not gone, f"suite/causes.csv has causes of jobs that are gone: {gone}"


def test_each_group_of_narrow_intervals_has_a_cause():
    rows = [one for one in suite_files.kept()[0] if one.counted]
    assert page.narrow_causes().keys() == page.of_coverage(rows)["low"].keys(), "say why in suite/narrow.csv, and only of these"


if __name__ == "__main__":
    sys.exit(small_runner.main(globals()))
