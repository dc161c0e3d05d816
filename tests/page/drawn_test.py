"""What the page draws is where its figures say, and its figures are those of the command's JSON.

usage: drawn_test.py PATH_OF_STEPSIM
"""

import math
import re
import statistics
import sys

from pages import (
    advise_page, compare_page, opened, run_page, run_tests, slide, sweep_page, table, validated, valley_page,
)  # fmt: skip


def data_of(chrome):
    return chrome.execute_script("return JSON.parse(document.getElementById('stepsim-data').textContent)")


def ms(value):
    """Milliseconds as the page writes them: to four digits or five."""
    digits = 1 if abs(value) >= 100 else 2 if abs(value) >= 10 else 3
    return "0 ms" if value == 0 else f"{value:.{digits}f} ms"


def percent(fraction, sign=""):
    return f"{100 * fraction:{sign}.1f} %"


def is_size(text, value):
    """Whether the text is those bytes, to three digits, in a unit that leaves 1 to 1,023 of it."""
    amount, unit = text.split(" ")
    of_unit = 1024 ** ["B", "KiB", "MiB", "GiB", "TiB"].index(unit)
    return 1 <= float(amount) < 1024 and abs(float(amount) * of_unit - value) <= 0.005 * value


def figures(chrome, name):
    """{what: value} of the large figures in that list."""
    return chrome.execute_script(
        """return Object.fromEntries([...document.querySelectorAll(arguments[0] + " > div")].map((one) =>
             [one.querySelector("dt").textContent, one.querySelector("dd").textContent]));""",
        name,
    )


def attributes(chrome, selector, *names):
    """The numbers, or the text, of these attributes of all elements."""
    found = chrome.execute_script(
        """return [...document.querySelectorAll(arguments[0])].map((one) =>
             arguments[1].map((name) => one.getAttribute(name)));""",
        selector, names,
    )  # fmt: skip
    return [[number(text) for text in one] for one in found]


def attributes_of(chrome, selector, *names):
    """[element] the values of its properties, as JavaScript has them."""
    return chrome.execute_script(
        "return [...document.querySelectorAll(arguments[0])].map((one) => arguments[1].map((name) => one[name]))",
        selector, list(names))


def number(text):
    try:
        return float(text)
    except (TypeError, ValueError):
        return text


def points_of(path):
    """[(x, y)] of a path of straight lines."""
    return [tuple(map(float, pair.split(","))) for pair in re.findall(r"[-0-9.e]+,[-0-9.e]+", path)]


def near(got, wanted, slack=0.06):
    """Pixels, which the page rounds."""
    assert len(got) == len(wanted) > 0, (len(got), len(wanted))
    off = [pair for pair in zip(got, wanted) if abs(pair[0] - pair[1]) > slack]
    assert not off, f"{len(off)} of {len(got)}: {off[:5]}"


def scale_through(values, pixels):
    """The linear scale on which the first and the last of these values have those pixels."""
    low, high = min(range(len(values)), key=values.__getitem__), max(range(len(values)), key=values.__getitem__)
    slope = (pixels[high] - pixels[low]) / (values[high] - values[low])
    return lambda value: pixels[low] + slope * (value - values[low])


def test_the_figures_beside_the_timeline_are_those_of_its_setting():
    chrome = opened(valley_page())
    timelines = data_of(chrome)["timelines"]
    (default,) = [i for i, one in enumerate(timelines) if one.get("default")]
    (best,) = [i for i, one in enumerate(timelines) if one.get("best")]
    assert default != best
    for index in (None, 0, best, 12):
        if index is not None:
            slide(chrome, index)
        one = timelines[default if index is None else index]
        shown = figures(chrome, "#timeline-figures")
        idle = statistics.fmean(sum(span[1] for span in rank["exposed"]) for rank in one["ranks"])
        waiting = statistics.fmean(sum(span[1] for span in rank["waiting"]) for rank in one["ranks"])
        gap = one["mean_ms"] / timelines[best]["mean_ms"] - 1
        assert shown == {
            "this step": ms(one["shown_us"] / 1000),
            "mean of all steps": ms(one["mean_ms"]),
            "against the best": "the best" if index == best else percent(gap, "+"),
            "idle for transfers, mean of the ranks": ms(idle / 1000),
            "waiting for slower ranks": ms(waiting / 1000),
            "buckets": str(len(one["buckets"])),
        }, (index, shown)
        rows = table(chrome, "The buckets as a table")
        assert len(rows) == len(one["buckets"])
        for row, (size, *_) in zip(rows, one["buckets"]):
            assert is_size(row["size"], size), (row, size)
        (end,) = chrome.execute_script(
            "return [...document.querySelectorAll('.end.now text')].map((one) => one.textContent)")
        assert end == "step: " + ms(one["shown_us"] / 1000), end


def test_transfers_are_as_long_as_the_data_says():
    chrome = opened(valley_page())
    timelines = data_of(chrome)["timelines"]
    for index in (3, 10):
        slide(chrome, index)
        one = timelines[index]
        (place,) = attributes(chrome, ".end.now", "transform")
        per_us = float(re.search("[0-9.]+", place[0])[0]) / one["shown_us"]
        buckets = [bucket for rank in one["ranks"] for bucket in rank["buckets"]]
        widths = [width for (width,) in attributes(chrome, "rect.bar.transfer", "width")]
        assert len(widths) == len(buckets)
        # A narrow bar is widened until it can be seen; a wide one leaves a pixel to the next.
        wide = [pair for pair in zip(widths, [(end - start) * per_us for _, start, end, *_ in buckets]) if pair[1] > 3]
        near([got for got, _ in wide], [wanted - 0.5 for _, wanted in wide], 0.56)


def test_the_curve_of_a_sweep_lies_where_its_points_are():
    page = sweep_page()
    chrome = opened(page)
    points = page["result"]["points"]
    dots = attributes(chrome, "#valley figure:first-of-type circle", "cx", "cy")
    # The dot of the setting that the timeline shows is drawn last; DDP's default is no point of the sweep.
    dots.sort()
    caps = [2.0**20 * 2**i for i in range(12)]
    xs = scale_through([math.log(caps[0]), math.log(caps[-1])], [dots[0][0], dots[-1][0]])
    own = [dot for dot in dots if any(abs(dot[0] - xs(math.log(cap))) < 0.06 for cap in caps)]
    near([x for x, _ in own], [xs(math.log(cap)) for cap in caps])
    steps = [point["step_ms"] for point in points]
    y = scale_through(steps, [y for _, y in own])
    near([y for _, y in own], [y(step) for step in steps])
    ((area,),) = attributes(chrome, "#valley path.exposed-area", "d")
    exposed = [point["exposed_transfer_ms"] for point in points]
    upper, lower = points_of(area)[:12], points_of(area)[:11:-1]
    near([at for _, at in upper], [y(step) for step in steps])
    near([at for _, at in lower], [y(step - part) for step, part in zip(steps, exposed)])
    ((band,),) = attributes(chrome, "#valley path.band", "d")
    ends = points_of(band)
    lows, highs = (ends[len(ends) // 2:][::-1], ends[: len(ends) // 2])
    at_caps = lambda side: [at for x, at in side if any(abs(x - dot[0]) < 0.06 for dot in own)]  # noqa: E731
    near(at_caps(highs), [y(point["interval90"][1]) for point in points])
    near(at_caps(lows), [y(point["interval90"][0]) for point in points])
    assert "the axis does not start at zero" in chrome.find_element("css selector", "#valley figcaption").text
    assert "surer than the band is wide" in chrome.find_element("css selector", "#valley .hint:not(header *)").text
    # Memory stands below the card's limit, on an axis from zero.
    limit, bottom, *held = chrome.execute_script(
        """const box = [...document.querySelectorAll("#valley figure")][1];
           return [Number(box.querySelector(".mark.reference line").getAttribute("y1")),
             Number(/,([0-9.]+)/.exec(box.querySelector("g.axis:not(.grid)").getAttribute("transform"))[1]),
             ...[...box.querySelectorAll("circle")].map((dot) => Number(dot.getAttribute("cy")))]""")
    capacity = page["result"]["memory_capacity_mib"]
    wanted = [bottom - (bottom - limit) * point["peak_memory_mib"] / capacity for point in points]
    assert len(held) >= 12 and all(min(abs(one - at) for at in wanted) < 0.06 for one in held), (held, wanted)


def test_policies_are_ranked_and_drawn_by_their_useful_tokens():
    page = compare_page()
    chrome = opened(page)
    summaries = {one["policy"]: one["summary"] for one in page["result"]["predictions"]}
    ranked = sorted(summaries, key=lambda name: -summaries[name]["useful_tokens_per_s"])
    named = [row["policy"].rstrip(" *") for row in table(chrome, "The policies as a table")]
    assert named == ranked, named
    charts = chrome.execute_script(
        """return [...document.querySelectorAll("#policies figure")].map((figure) =>
             [...figure.querySelectorAll("g.row")].map((row) => ({
               name: row.querySelector(".row-name").firstChild.textContent,
               value: row.querySelector(".row-value").textContent,
               bar: [...row.querySelectorAll("rect")].map((bar) => Number(bar.getAttribute("width")))[0],
               circle: [...row.querySelectorAll("circle")].map((dot) => Number(dot.getAttribute("cx")))[0],
               p95: [...row.querySelectorAll("line.p95")].map((tick) => Number(tick.getAttribute("x1")))[0],
               interval: row.querySelector(".interval").getAttribute("d")})));"""
    )
    speeds, times = charts
    per_token = [row["bar"] / summaries[name]["useful_tokens_per_s"] for row, name in zip(speeds, ranked)]
    near(per_token, [per_token[0]] * 4, 1e-3 * per_token[0])
    for row, name in zip(speeds, ranked):
        summary = summaries[name]
        assert row["name"].rstrip(" *") == name
        assert row["value"] == f"{summary['useful_tokens_per_s']:,.0f}", row
        low, high = (summary["useful_tokens_per_step"] / end * 1000 * per_token[0]
                     for end in reversed(summary["step_time_ms"]["interval90"]))
        start, end = re.fullmatch(r"M([0-9.]+),2.5v8M[0-9.]+,6.5H([0-9.]+)M[0-9.]+,2.5v8", row["interval"]).groups()
        near([float(start), float(end)], [low, high], 0.5)
    means = [summaries[name]["step_time_ms"]["mean"] for name in ranked]
    x = scale_through(means, [row["circle"] for row in times])
    for row, name in zip(times, ranked):
        step = summaries[name]["step_time_ms"]
        start, end = re.search(r"M([0-9.]+),2.5.*H([0-9.]+)M", row["interval"]).groups()
        near([row["circle"], row["p95"], float(start), float(end)],
             [x(step["mean"]), x(step["p95"]), *map(x, step["interval90"])])


def test_the_head_has_the_figures_of_the_recommended_policy():
    page = compare_page()
    chrome = opened(page)
    shown = figures(chrome, "#figures")
    name = page["result"]["recommendation"]["policy"]
    (summary,) = [one["summary"] for one in page["result"]["predictions"] if one["policy"] == name]
    wanted = {
        "recommended": name,
        "step time": ms(summary["step_time_ms"]["mean"]),
        "useful tokens/s": f"{summary['useful_tokens_per_s']:,.0f}",
        "padding": percent(summary["padding_ratio"]),
        "exposed communication": ms(summary["exposed_transfer_ms"]),
        "waiting for slower ranks": ms(summary["waiting_for_ranks_ms"]),
    }
    assert {key: shown.get(key) for key in wanted} == wanted, shown


def test_no_figure_of_the_head_is_alone_in_its_row():
    """Eight figures were seven and one."""
    for width in (1400, 1100, 900):
        chrome = opened(compare_page(), width=width)
        tops = [top for (top,) in attributes_of(chrome, "#figures > div", "offsetTop")]
        rows = [tops.count(top) for top in sorted(set(tops))]
        assert len(tops) == 8 and min(rows) > 1, (width, rows)


def test_the_page_of_an_advice_begins_with_what_runs_now_and_says_what_gains_first():
    page = advise_page()
    chrome = opened(page, width=420, height=900)
    now = page["result"]["options"][0]["policy"]
    headline = chrome.find_element("css selector", ".headline").text
    assert headline.startswith(("Use ", "Nothing ")) and f"useful tokens/s over {now}" in headline, headline
    heads = attributes_of(chrome, "#advice thead th", "textContent")[:3]
    assert heads == [["train with"], ["verdict"], ["gain"]], heads
    ends = chrome.execute_script(
        "return [...document.querySelectorAll('#advice thead th')].map((one) => one.getBoundingClientRect().right)")
    assert max(ends[:3]) <= 420, ends


def test_what_differs_by_a_percent_looks_flat():
    chrome = opened(compare_page())
    low, high = chrome.execute_script("return airyDomain([919, 928])")
    assert high - low >= 92 and low < 919 and high > 928, (low, high)
    low, high = chrome.execute_script("return airyDomain([400, 900])")
    assert 400 - low < 100 and high - 900 < 100, (low, high)


def test_the_head_of_a_validation_has_its_largest_error_on_either_side():
    page = validated()
    chrome = opened(page)
    errors = [policy["error"]["mean"] for policy in page["result"]["policies"]]
    assert -min(errors) > max(errors) > 0, errors
    assert figures(chrome, "#figures")["largest error of a mean"] == percent(max(map(abs, errors)))
    bars = chrome.execute_script(
        """return [...document.querySelectorAll("#validation g.row")].map((row) =>
             [row.querySelector(".row-name").firstChild.textContent,
              row.querySelector("rect:not(.band)").getAttribute("class").split(" ").pop()]);"""
    )
    by_name = {policy["policy"]: policy for policy in page["result"]["policies"]}
    assert [name for name, _ in bars] == list(by_name)
    for name, kind in bars:
        real = abs(by_name[name]["error"]["mean"]) > 2 * by_name[name]["standard_error"]
        assert kind == ("chosen" if real else "baseline"), (name, kind, by_name[name])


def test_the_steps_in_figures_and_pictures_are_those_of_the_json():
    page = compare_page()
    chrome = opened(page)
    drawn = {series["policy"]: series for series in data_of(chrome)["series"]}
    rows = table(chrome, "The steps in figures")
    assert [row["policy"] for row in rows] == list(drawn)
    for row in rows:
        series = drawn[row["policy"]]
        kept = sorted(series["step_ms"][series["warmup_steps"]:])
        at = round(0.95 * len(kept), 9)  # Between two steps where just these steps take no longer.
        p95 = kept[int(at)] if at != int(at) else 0.95 * kept[int(at) - 1] + 0.05 * kept[int(at)]
        assert row["mean ms"] == f"{statistics.fmean(kept):.3f}", row
        assert row["median ms"] == f"{statistics.median(kept):.3f}", row
        assert row["p95 ms"] == f"{p95:.3f}", row
        assert row["longest ms"] == f"{kept[-1]:.3f}", row
        most = max(one["peak_memory_mib"] for prediction in page["result"]["predictions"]
                   if prediction["policy"] == row["policy"] for one in prediction["steps"])
        assert is_size(row["most memory"], most * 1024**2), (row, most)
    assert any(row["p95 ms"] != row["median ms"] for row in rows), rows
    pictures = attributes(chrome, "#series svg[role=img]", "aria-label")
    (label,) = [text for (text,) in pictures if ", in MiB." in text]
    means = dict(re.findall(r"(\w+): mean ([0-9.]+) MiB", label))
    assert len(means) == 2, label
    for policy, mean in means.items():
        (prediction,) = [one for one in page["result"]["predictions"] if one["policy"] == policy]
        most = {}  # Of the ranks, in each step after the warm-up.
        for one in prediction["steps"]:
            if one["step"] >= drawn[policy]["warmup_steps"]:
                most[one["step"]] = max(most.get(one["step"], 0), one["peak_memory_mib"])
        assert mean == ms(statistics.fmean(most.values()))[:-3], (label, policy)


def test_shares_in_tables_are_of_the_whole():
    chrome = opened(run_page())
    for row in table(chrome, "The tokens as a table"):
        useful, padded = (float(row[f"{kind} tokens a step"]) for kind in ("useful", "padded"))
        assert row["padding"] == percent(1 - useful / padded), row
    (blame,) = data_of(chrome)["blame"]
    rows = table(chrome, "What would save most, as a table")
    assert len(rows) == len(blame["rows"]) > 3
    priced = 0
    for row, (_, saved, *_) in zip(rows, blame["rows"]):
        if saved is not None:
            priced += 1
            assert row["saves ms"] == f"{saved:.3f}", row
            share = percent(saved / blame["step_ms"], "+")
            assert row["of the step"] in (share, share.replace("+-", "-")), (row, share)
    assert priced > 2


if __name__ == "__main__":
    sys.exit(run_tests(dict(globals())))
