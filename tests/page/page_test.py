"""The page of --html in a real headless Chromium: no error, no request, and the figures are true.

usage: page_test.py PATH_OF_STEPSIM
"""

import json
import math
import os
import pathlib
import re
import shlex
import sys
import time

from pages import (
    FOLDER, PAIR, ROOT, SKEW, advise_page, bars, browser, compare_page, errors, made, misfit_page, misfit_sweep_page, misfits_page, nothing_fits_page, open_all, opened,
    pages, partly_fitting_page, preferring, requests, run_page, run_tests, sharded_page, slide, sweep_page, table, training_page, tune_page, validated, validated_once,
    valley_page,
)  # fmt: skip

import stepsim_program  # from a folder that pages names

try:
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys
except ImportError:
    pass  # The first page that is opened says so.


def test_every_page_loads_without_an_error_or_a_request():
    for page in pages():
        chrome = opened(page)
        assert not errors(chrome), errors(chrome)
        assert not requests(chrome), requests(chrome)
        assert chrome.find_elements(By.CSS_SELECTOR, "svg[role=img]"), page["path"]


def test_every_picture_has_a_text_alternative_with_figures():
    for page in pages():
        chrome = opened(page)
        for picture in chrome.find_elements(By.CSS_SELECTOR, "svg[role=img]"):
            label = picture.get_attribute("aria-label")
            assert label and re.search(r"\d", label) and "NaN" not in label, (page["path"], label)
            assert "undefined" not in label, (page["path"], label)


def test_no_figure_is_missing_or_not_a_number():
    for page in pages():
        chrome = opened(page)
        open_all(chrome)
        text = chrome.execute_script("return document.body.innerHTML")
        text = text[: text.index("stepsim-data")]
        for word in ("NaN", "undefined", "[object", "Infinity"):
            assert word not in text, (page["path"], text[max(0, text.index(word) - 200):][:300])


def test_memory_over_the_step_is_drawn_with_the_peak_of_the_json():
    page = sharded_page()
    chrome = opened(page)
    curve = page["result"]["predictions"][0]["memory_curve"]
    peak = curve["points"][curve["peak"]]
    assert sum(peak["mib"]) == max(sum(point["mib"]) for point in curve["points"])
    card = chrome.find_element(By.ID, "memory")
    label = card.find_element(By.CSS_SELECTOR, "svg[role=img]").get_attribute("aria-label")
    assert peak["event"] in label and "in the " + peak["pass"] in label, label
    assert len(card.find_elements(By.CSS_SELECTOR, "svg[role=img] path.backward")) == 1
    # The areas reach as high as the mark of the peak.
    tops = [path.rect["y"] for path in card.find_elements(By.CSS_SELECTOR, "svg[role=img] path")
            if path.get_attribute("class") in ("other", "data", "forward", "backward", "transfer")]
    mark = card.find_element(By.CSS_SELECTOR, ".memory-peak").rect
    assert abs(min(tops) - (mark["y"] + mark["height"] / 2)) < 2, (tops, mark)
    # The words above the curve stand apart from it, and the mark says what it is.
    title = card.find_element(By.CSS_SELECTOR, "svg[role=img] .axis-title").rect
    caption = card.find_element(By.TAG_NAME, "figcaption").rect
    assert title["y"] - (caption["y"] + caption["height"]) > 14, (caption, title)
    assert card.find_element(By.CSS_SELECTOR, "svg[role=img] .mark text").text == "peak"
    assert not opened(run_page()).find_elements(By.ID, "memory")


def test_no_table_that_is_open_is_cut_on_a_wide_screen():
    for page in (*pages(), advise_page()):
        chrome = opened(page, width=1400)
        wide = chrome.execute_script(
            """return [...document.querySelectorAll(".scroll")].filter((box) => box.scrollWidth > box.clientWidth)
                 .map((box) => box.getAttribute("aria-label"));""")
        assert not wide, (page["path"], wide)
    tables = chrome.find_elements(By.CSS_SELECTOR, "#advice table")
    parts = [[head.text for head in table.find_elements(By.CSS_SELECTOR, "thead th")] for table in tables]
    assert [heads[0] for heads in parts] == ["train with"] * 2, parts
    assert parts[0][1:3] == ["verdict", "gain"] and "exposed" in parts[1] and "waiting" in parts[1], parts


def test_an_axis_of_few_steps_has_each_step_once():
    chrome = opened(made("few", "run", SKEW, "--policy", "uniform", "--steps", "3", "--set", "scenario.warmup_steps=1"))
    for axis in chrome.find_elements(By.CSS_SELECTOR, "#series svg .axis:not(.grid)")[:2]:
        labels = [tick.text for tick in axis.find_elements(By.CSS_SELECTOR, ".tick text")]
        assert labels == ["0", "1", "2"], labels


def test_what_is_reduced_together_has_the_name_that_its_training_gives_it():
    """Sharded training has units, DDP has buckets."""
    for page, word, other in ((sharded_page(), "unit", "bucket"), (run_page(), "bucket", "unit")):
        chrome = opened(page)
        figures = chrome.find_element(By.ID, "timeline-figures").text.lower()
        label = chrome.find_element(By.CSS_SELECTOR, "#timeline svg[role=img]").get_attribute("aria-label")
        tables = " ".join(one.get_attribute("textContent") for one in chrome.find_elements(By.TAG_NAME, "summary"))
        assert f"{word}s" in figures and other not in figures, figures
        assert f" {word}" in label and f" {other}" not in label, label
        assert f"The {word}s as a table" in tables and f"The {other}s as a table" not in tables, tables


def test_the_slider_moves_the_bars_and_the_end_of_the_step():
    chrome = opened(valley_page())
    slide(chrome, 0)
    small, end = bars(chrome), chrome.find_element(By.CSS_SELECTOR, ".end.now text").text
    slide(chrome, 12)
    large = bars(chrome)
    assert len(small) > len(large) > 0, (len(small), len(large))
    # The first bucket is the same: DDP caps it apart.
    assert small[1] != large[1] and small[-1] != large[-1]
    assert chrome.find_element(By.CSS_SELECTOR, ".end.now text").text != end
    assert "2 GiB" in chrome.find_element(By.CSS_SELECTOR, ".timeline-selection-value").text
    chrome.find_element(By.ID, "timeline-selection").send_keys(Keys.ARROW_LEFT)
    assert "1 GiB" in chrome.find_element(By.CSS_SELECTOR, ".timeline-selection-value").text


def test_bars_are_where_the_data_says():
    """On one scale for all settings: where a bar starts and the step ends, in proportion."""
    chrome = opened(valley_page())
    scales = []
    for index in (3, 10):
        slide(chrome, index)
        shown, starts, end = chrome.execute_script(
            """const data = JSON.parse(document.getElementById("stepsim-data").textContent);
               const one = data.timelines[arguments[0]];
               const end = document.querySelector(".end.now").getAttribute("transform");
               return [one.shown_us, one.ranks.flatMap((rank) =>
                 rank.buckets.map((bucket) => bucket[1])), Number(/[0-9.]+/.exec(end)[0])];""",
            index,
        )
        drawn = [x for x, _ in bars(chrome)]
        assert len(drawn) == len(starts)
        for x, start in zip(drawn, starts):
            assert abs(x - start / shown * end) < 0.02, (x, start)
        scales.append(end / shown)
    assert abs(scales[0] / scales[1] - 1) < 1e-4, scales


def test_steps_that_do_not_fit_leave_the_time_scale_to_those_that_do():
    chrome = opened(partly_fitting_page())
    ends = {}
    for index, least in ((1, 0.9), (4, 0.9), (0, 0.6)):
        slide(chrome, index)
        ends[index] = chrome.execute_script(
            """const end = document.querySelector(".end.now").getAttribute("transform");
               const axis = document.querySelector(".timeline .axis .domain").getBBox().width;
               return [Number(/[0-9.]+/.exec(end)[0]) / axis,
                 [...document.querySelectorAll(".timeline .axis text")].map((text) => text.textContent)];""")
        assert ends[index][0] > least, ends
    assert ends[0][1] == ends[1][1] != ends[4][1], ends  # One scale for those that fit.
    assert "those that do not fit into memory have a longer one" in chrome.find_element(By.CSS_SELECTOR, "#timeline .lead").text
    # What the scenario has is said where no point lies.
    words = chrome.find_element(By.CSS_SELECTOR, "#valley .mark.reference text").rect
    for dot in chrome.find_elements(By.CSS_SELECTOR, "#valley svg:first-of-type .dot"):
        at = dot.rect
        apart = (at["x"] > words["x"] + words["width"] or at["x"] + at["width"] < words["x"] or
                 at["y"] > words["y"] + words["height"] or at["y"] + at["height"] < words["y"])
        assert apart, (words, at)


def test_names_are_whole_where_there_is_room():
    chrome = opened(tune_page(), width=1400)
    names = [name.text for name in chrome.find_elements(By.CSS_SELECTOR, "#space .row-name")]
    assert len(names) >= 3 and not any("…" in name for name in names), names


def test_a_note_stands_apart_from_the_next_picture():
    chrome = opened(sweep_page())
    note = chrome.find_element(By.CSS_SELECTOR, "#valley .hint").rect
    caption = chrome.find_elements(By.CSS_SELECTOR, "#valley figcaption")[1].rect
    assert caption["y"] - (note["y"] + note["height"]) >= 14, (note, caption)


def test_figures_of_a_comparison_equal_the_json():
    page = compare_page()
    rows = table(opened(page), "The policies as a table")
    by_name = {row["policy"].rstrip(" *"): row for row in rows}
    assert len(by_name) == len(page["result"]["predictions"]) == 4
    for prediction in page["result"]["predictions"]:
        row, summary = by_name[prediction["policy"]], prediction["summary"]
        step = summary["step_time_ms"]
        assert row["step ms"] == f"{step['mean']:.3f}", row
        assert row["90 % interval"] == " – ".join(f"{end:.3f}" for end in step["interval90"]), row
        assert row["p95 ms"] == f"{step['p95']:.3f}", row
        assert row["useful tokens/s"] == f"{summary['useful_tokens_per_s']:,.0f}", row
        assert row["exposed ms"] == f"{summary['exposed_transfer_ms']:.3f}", row
        assert row["padding"] == f"{summary['padding_ratio'] * 100:.1f} %", row


def test_figures_of_a_sweep_equal_the_json():
    page = sweep_page()
    rows = table(opened(page), "The sweep as a table")
    points = page["result"]["points"]
    assert len(rows) == len(points) == 12
    labels = page["result"]["axes"][0]["labels"]
    for row, point in zip(rows, points):
        assert row["ddp.bucket_cap"] == labels[point["place"][0]], row
        assert row["step ms"] == f"{point['step_ms']:.3f}", row
        assert row["exposed ms"] == f"{point['exposed_transfer_ms']:.3f}", row
        assert row["buckets"] == str(point["buckets"]), row
    best = points[page["result"]["best"]]
    assert labels[best["place"][0]] in browser().find_element(By.ID, "headline").text


def test_what_training_costs_equals_the_json():
    page = training_page()
    chrome = opened(page)
    rows = table(chrome, "What training costs as a table")
    points = page["result"]["training"]["points"]
    assert len(rows) == len(points) == 4
    for row, point, swept in zip(rows, points, page["result"]["points"]):
        assert row["cluster.placement"] == swept["values"]["cluster.placement"], row
        assert row["samples/s"] == f"{point['samples_per_s']:.1f}", row
        assert row["GPU-hours"] == f"{point['rank_hours']:.1f}", row
        assert row["cost"] == f"{point['money']:.1f}", row
    # Placements are words: each has a bar of its own, and none a place on an axis.
    names = chrome.find_elements(By.CSS_SELECTOR, "#valley .row-name")
    found = [name.get_attribute("textContent") for name in names]
    assert found == [label * 2 for label in ("4", "8", "2x8", "8+4")], found  # And its title.
    assert len(chrome.find_elements(By.CSS_SELECTOR, "#training circle")) == 4


def test_figures_of_a_run_equal_the_json():
    page = run_page()
    chrome = opened(page)
    prediction = page["result"]["predictions"][0]
    steps = {}
    for row in prediction["steps"]:
        steps.setdefault(row["rank"], []).append(row)
    rows = table(chrome, "The tokens as a table")
    assert len(rows) == len(steps) == 4
    for row in rows:
        steady = steps[int(row["rank"])][2:]
        for column, key in (("useful", "useful_tokens"), ("padded", "padded_tokens")):
            mean = sum(step[key] for step in steady) / len(steady)
            assert abs(float(row[f"{column} tokens a step"]) - mean) < 0.051, (row, mean)
    assert f"{prediction['summary']['step_time_ms']['mean']:.2f} ms" in chrome.find_element(
        By.ID, "figures").text


def test_figures_of_a_validation_equal_the_json():
    page = validated()
    rows = {row["policy"]: row for row in table(opened(page), "Predicted and measured as a table")}
    assert len(rows) == 4
    for policy in page["result"]["policies"]:
        row = rows[policy["policy"]]
        assert row["predicted ms"] == f"{policy['predicted_ms']['mean']:.3f}", row
        assert row["measured ms"] == f"{policy['measured_ms']['mean']:.3f}", row
        assert row["error"] == f"{policy['error']['mean'] * 100:+.1f} %", row
    assert len(browser().find_elements(By.CSS_SELECTOR, ".scatter-point")) == 4


def test_the_valley_follows_the_slider_and_the_slider_the_valley():
    chrome = opened(sweep_page())
    slide(chrome, 2)
    first = chrome.find_element(By.CSS_SELECTOR, "#valley .dot.now").get_attribute("cx")
    slide(chrome, 9)
    assert chrome.find_element(By.CSS_SELECTOR, "#valley .dot.now").get_attribute("cx") != first
    assert chrome.find_elements(By.CSS_SELECTOR, "#valley .mark.best")
    assert chrome.find_elements(By.CSS_SELECTOR, "#valley .mark.reference")
    chrome.execute_script(
        """const catcher = document.querySelector("#valley .catch");
           const box = catcher.getBoundingClientRect();
           catcher.dispatchEvent(new MouseEvent("click",
             {clientX: box.left + 12, clientY: box.top + 20, bubbles: true}));"""
    )
    assert chrome.find_element(By.ID, "timeline-selection").get_attribute("value") == "0"


def test_figures_of_a_search_equal_the_json():
    page = tune_page()
    chrome = opened(page)
    result = page["result"]
    finalists = table(chrome, "The fastest settings as a table")
    assert [row["setting"] for row in finalists] == [one["setting"] for one in result["finalists"]]
    for row, one in zip(finalists, result["finalists"]):
        assert row["step ms"] == f"{one['with_noise']['step_ms']:.3f}", row
        assert row["order change"] == f"{100 * one['order_change']:.1f} %", row
    front = table(chrome, "The front as a table")
    assert [row["setting"] for row in front] == [one["setting"] for one in result["front"]]
    words = chrome.find_element(By.CSS_SELECTOR, "#space svg").get_attribute("aria-label")
    counts = [int(word.replace(",", "")) for word in re.findall(r"(?:^|; )([\d,]+), ", words)]
    assert sum(counts) == result["points"], (words, result["points"])
    assert {row["policy"] for row in table(chrome, "The tokens as a table")} == {
        "bucketing", "tuned " + result["finalists"][0]["policy"]}


def test_what_does_not_fit_is_neither_best_nor_the_baseline():
    chrome = opened(misfit_page())
    assert [row["policy"] for row in table(chrome, "The policies as a table")] == ["fixed", "large !"]
    assert len(chrome.find_elements(By.CSS_SELECTOR, "#policies .bar-mark.misfit")) == 2
    figures = chrome.find_element(By.ID, "figures").text
    assert "fixed" in figures and "against" not in figures, figures
    chrome = opened(misfits_page())
    assert [row["policy"] for row in table(chrome, "The policies as a table")] == ["fixed !", "large !"]
    assert "fastest if it did\nfixed\n" in chrome.find_element(By.ID, "figures").text.lower()
    chrome = opened(misfit_sweep_page())
    assert not chrome.find_elements(By.CSS_SELECTOR, "#valley .mark.best")
    assert len(chrome.find_elements(By.CSS_SELECTOR, "#valley figure:first-of-type .dot.misfit")) == 3
    assert "nothing fits" in chrome.find_element(By.ID, "figures").text.lower()


def test_one_run_does_not_show_what_is_real():
    page = validated_once()
    chrome = opened(page)
    text = chrome.find_element(By.ID, "validation").text
    assert "one run: not known how well it repeats" in text and "±0.0 %" not in text, text
    assert not chrome.find_elements(By.CSS_SELECTOR, "#validation .bar-mark.chosen")
    assert "too close to tell" in chrome.find_element(By.ID, "figures").text
    # The whole of each interval is on the axes.
    box = chrome.find_element(By.CSS_SELECTOR, "#scatter-clip rect")
    for line in chrome.find_elements(By.CSS_SELECTOR, "#validation .interval.faint"):
        ends = [float(end) for end in re.findall(r"[MV][\d.-]*,?(-?[\d.]+)", line.get_attribute("d"))[:2]]
        assert all(0 <= end <= float(box.get_attribute("height")) for end in ends), line.get_attribute("d")


def test_a_search_in_which_nothing_fits_says_so():
    chrome = opened(nothing_fits_page())
    assert chrome.find_element(By.ID, "headline").text == "No setting of this space fits into memory."
    words = chrome.find_element(By.CSS_SELECTOR, "#space svg").get_attribute("aria-label")
    assert "2, 100.0 % out of memory" in words, words


def test_the_front_has_a_point_for_each_setting_and_shows_what_is_clicked():
    page = tune_page()
    chrome = opened(page)
    front, priced = page["result"]["front"], page["result"]["priced"]
    dots = chrome.find_elements(By.CSS_SELECTOR, "#front .front-point:not(.kept-point)")
    assert len(dots) == len(front) >= 3
    assert len(dots) + len(chrome.find_elements(By.CSS_SELECTOR, ".priced-point")) == priced
    click = """const dot = document.querySelectorAll("#front .front-point")[arguments[0]]
        .getBoundingClientRect();
      const at = {clientX: dot.left + dot.width / 2, clientY: dot.top + dot.height / 2};
      const catcher = document.querySelector("#front .catch");
      for (const name of ["pointermove", "click"]) {
        catcher.dispatchEvent(new PointerEvent(name, Object.assign({bubbles: true}, at)));
      }
      return document.getElementById("tip").textContent;"""
    for measure in (0, 1):
        select = chrome.find_element(By.CSS_SELECTOR, "#front select")
        chrome.execute_script("arguments[0].selectedIndex = arguments[1];"
                              "arguments[0].dispatchEvent(new Event('change'))", select, measure)
        for i, point in enumerate(front):
            tip = chrome.execute_script(click, i)
            speed = f"{point['without_noise']['useful_tokens_per_s']:,.0f}"
            kept = chrome.find_element(By.CSS_SELECTOR, "#front .kept").text
            assert speed in tip and speed in kept, (i, tip, kept, point)
    command = chrome.find_element(By.CSS_SELECTOR, "#front .kept code").text
    assert all(setting in command.replace("'", "") for setting in front[-1]["set"]), command


def test_the_command_of_a_point_on_the_front_gives_its_figures():
    page = tune_page()
    opened(page)
    code = browser().find_element(By.CSS_SELECTOR, "#front .kept code").text
    words = shlex.split(code)
    assert words[:2] == ["stepsim", "run"], words
    file = os.path.join(FOLDER.name, "point.json")
    stepsim_program.run(*words[1:], "--json", file, "--quiet")
    summary = json.loads(pathlib.Path(file).read_text(encoding="utf-8"))["predictions"][0]["summary"]
    fastest = page["result"]["front"][0]["set"]
    with_noise = next(one["with_noise"] for one in page["result"]["finalists"] if one["set"] == fastest)
    assert math.isclose(summary["step_time_ms"]["mean"], with_noise["step_ms"], rel_tol=1e-9), (
        summary["step_time_ms"], with_noise)


def test_the_keyboard_reads_bars_and_zooms():
    chrome = opened(valley_page())
    timeline = chrome.find_element(By.CSS_SELECTOR, ".timeline")
    timeline.send_keys(Keys.ARROW_RIGHT)
    said = chrome.find_element(By.ID, "spoken").get_attribute("textContent")
    assert said.startswith("Rank 0: ") and " ms long" in said, said
    timeline.send_keys(Keys.ARROW_DOWN)
    said = chrome.find_element(By.ID, "spoken").get_attribute("textContent")
    assert said.startswith("Bucket ") and "transfer" in said, said
    before = bars(chrome)
    timeline.send_keys("+")
    time.sleep(0.1)
    assert bars(chrome) != before
    timeline.send_keys("0")
    time.sleep(0.1)
    assert bars(chrome) == before


def test_the_play_button_sweeps_and_says_what_runs():
    chrome = opened(valley_page())
    cursor = "return document.querySelector('.cursor').getAttribute('x1')"
    chrome.find_element(By.CSS_SELECTOR, ".play").click()
    time.sleep(0.4)
    first = float(chrome.execute_script(cursor))
    time.sleep(0.4)
    assert float(chrome.execute_script(cursor)) > first >= 0
    words = chrome.find_element(By.CSS_SELECTOR, ".moment").text
    assert re.search(r"ms: \d+ ranks? ", words) and "transfer" in words, words
    chrome.find_element(By.CSS_SELECTOR, ".play").click()
    stopped = chrome.execute_script(cursor)
    time.sleep(0.2)
    assert chrome.execute_script(cursor) == stopped


def test_less_motion_jumps_instead():
    with preferring("prefers-reduced-motion", "reduce") as chrome:
        opened(valley_page())
        chrome.find_element(By.CSS_SELECTOR, ".play").click()
        time.sleep(0.5)
        assert float(chrome.execute_script(
            "return document.querySelector('.cursor').getAttribute('x1')")) == 0
        slide(chrome, 4)
        assert not chrome.find_elements(By.CSS_SELECTOR, ".gliding")


def test_dark_and_light_follow_the_system():
    lightness = """return ["body", ".card", "h2", ".bar.forward"].map((name) => {
      const style = getComputedStyle(document.querySelector(name));
      const colour = name.startsWith(".bar") ? style.fill : name === "h2" ? style.color
        : style.backgroundColor;
      return colour.match(/[0-9.]+/g).slice(0, 3).map(Number).reduce((a, b) => a + b) / 3;
    });"""
    with preferring("prefers-color-scheme", "light"):
        body, card, ink, bar = opened(valley_page()).execute_script(lightness)
        assert ink < 60 and card > 240 and body > 240 and bar > 60, (body, card, ink, bar)
    with preferring("prefers-color-scheme", "dark"):
        body, card, ink, bar = opened(valley_page()).execute_script(lightness)
        assert ink > 200 and card < 60 and body < 60 and bar > 60, (body, card, ink, bar)


def test_short_tables_are_open_on_paper_and_closed_again():
    chrome = opened(compare_page())
    count = "return document.querySelectorAll('details[open]').length"
    assert chrome.execute_script(count) == 0
    chrome.execute_script("window.dispatchEvent(new Event('beforeprint'))")
    assert chrome.execute_script(count) >= 8
    rows = chrome.execute_script("return document.querySelectorAll('#policies td').length")
    assert rows > 40, rows
    chrome.execute_script("window.dispatchEvent(new Event('afterprint'))")
    assert chrome.execute_script(count) == 0


def test_the_command_makes_the_page_and_can_be_copied():
    chrome = opened(compare_page())
    command = chrome.find_element(By.ID, "command").text
    assert command.startswith(f"stepsim compare {SKEW} --html "), command
    button = chrome.find_element(By.CSS_SELECTOR, ".command button")
    button.click()
    time.sleep(0.2)
    assert button.text == "Copied", button.text


def test_nothing_sticks_out_on_a_phone():
    for page in pages():
        chrome = opened(page, width=360, height=740)
        open_all(chrome)
        wide = chrome.execute_script(
            """return [document.documentElement.scrollWidth, ...[...document.querySelectorAll(
                 "main *:not(.scroll *):not(pre *):not(svg *)")]
                 .filter((node) => node.getBoundingClientRect().right > 361)
                 .map((node) => node.outerHTML.slice(0, 99))];"""
        )
        assert wide == [360], (page["path"], wide)


def test_hostile_names_stay_text():
    evil = "</script><script>document.title='taken'</script><img src=x onerror=alert(1)>\"'&amp;"
    long = "x" * 10000
    text = pathlib.Path(PAIR).read_text(encoding="utf-8")
    profile = ROOT / "scenarios" / "profiles" / "cpu_epyc_2core_2ranks.json"
    text = text.replace("profiles/cpu_epyc_2core_2ranks.json", str(profile))
    text = re.sub(r'(?m)^name = "token_skew_2ranks"', lambda _: "name = " + json.dumps(evil), text)
    names = [evil, long, "a\u202eb\u0007\u001b[31m", "<!-- ${1} {{x}} -->"]
    for old in ("uniform", "variable_fixed", "bucketing", "token_budget"):
        new = json.dumps(names.pop(0), ensure_ascii=True)
        text = re.sub(rf'(?m)^name = "{old}"', lambda _, new=new: "name = " + new, text)
    assert not names
    path = os.path.join(FOLDER.name, "hostile.toml")
    pathlib.Path(path).write_text(text, encoding="utf-8")
    chrome = opened(made("hostile", "compare", path))
    assert not errors(chrome), errors(chrome)
    assert not requests(chrome), requests(chrome)
    assert chrome.execute_script("return document.scripts.length") <= 3
    assert not chrome.find_elements(By.TAG_NAME, "img")
    assert "taken" not in chrome.title.replace(evil, "")[:20] and "stepsim" in chrome.title
    body = chrome.find_element(By.TAG_NAME, "body").text
    assert "</script><script>" in body, body[:500]
    assert "\u202e" not in body and "\u001b" not in body and "\u0007" not in body
    assert all(len(row["policy"]) < 100 for row in table(chrome, "The policies as a table"))
    open_all(chrome)
    assert chrome.execute_script("return document.documentElement.scrollWidth") <= 1280


def test_a_page_of_8_ranks_200_steps_and_12_bucket_sizes_is_small_and_quick():
    options = ["--set", "scenario.steps=200", "--set", "data.samples=6400"]
    page = made("large", "run", str(ROOT / "scenarios" / "batching" / "squad.toml"), "--policy",
                "PyTorch", *options)
    size = os.path.getsize(page["path"])
    chrome = opened(page)
    ready = float(chrome.execute_script("return document.documentElement.dataset.readyMs"))
    drawn = float(chrome.execute_script("return document.documentElement.dataset.drawnMs"))
    print(f"8 ranks x 200 steps: {size / 1e6:.2f} MB, written in {page['seconds']:.1f} s with the "
          f"prediction, drawn in {drawn:.0f} ms, interactive after {ready:.0f} ms")
    moves = chrome.execute_script(
        """const slider = document.getElementById("timeline-selection");
           const began = performance.now();
           for (slider.value = 0; slider.value < Number(slider.max); slider.stepUp()) {
             slider.dispatchEvent(new Event("input"));
           }
           return (performance.now() - began) / Number(slider.max);"""
    )
    print(f"a move of the slider takes {moves:.0f} ms")
    assert size < 3e6 and ready < 1000


if __name__ == "__main__":
    sys.exit(run_tests(dict(globals())))
