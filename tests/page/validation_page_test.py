"""The validation page as HTML: it names the row under the pointer, fits a narrow screen and can be read in the dark.

usage: validation_page_test.py PATH_OF_STEPSIM
"""

import pathlib
import sys
import tempfile

from pages import ROOT, browser, errors, preferring, requests, run_tests

sys.path.insert(0, str(ROOT / "tests" / "published" / "suite"))
import access_test  # noqa: E402  (its formula of contrast)
import html_page  # noqa: E402  (needs the path above)
import suite_files  # noqa: E402

FOLDER = tempfile.TemporaryDirectory()
PAGE = pathlib.Path(FOLDER.name) / "validation.html"
# Points at a row in the first or the second panel, and returns what the page says then.
POINT_AT = """
const [layout, name, second] = arguments;
const svg = document.querySelector(`svg[data-layout=${layout}]`);
const point = at(layouts[layout][second], rows.find((row) => row.row === name));
svg.scrollIntoView();
const box = svg.getBoundingClientRect();
const scale = box.width / svg.viewBox.baseVal.width;
svg.dispatchEvent(new PointerEvent("pointermove", {clientX: box.left + scale * point.x, clientY: box.top + scale * point.y}));
const drawn = [...svg.querySelectorAll("path.dot")].map((path) => path.getAttribute("d")).join("");
return [drawn.includes(`M${point.x.toFixed(1)} ${point.y.toFixed(1)}h0`), tip.hidden, tip.innerText, svg.querySelectorAll(".mark-of-row .found").length, tip.getBoundingClientRect().right];
"""


def opened(**size):
    chrome = browser(**size)
    if not PAGE.exists():
        PAGE.write_text(html_page.text(*suite_files.kept()), encoding="utf-8")
    chrome.get("about:blank")
    chrome.get_log("browser"), chrome.get_log("performance")
    chrome.get(f"file://{PAGE}")
    return chrome


def test_the_row_under_the_pointer_is_named():
    # The largest error of the published rows that are counted stands apart from all others.
    (row,) = [one for one in suite_files.kept()[0] if one.row == "64 GPUs (pr27)"]
    for layout, width in (("wide", 1400), ("narrow", 420)):
        for second in (0, 1):
            chrome = opened(width=width, height=900)
            drawn, hidden, said, marked, right = chrome.execute_script(POINT_AT, layout, row.row, second)
            assert drawn and not hidden and marked == 1 and right <= width, (layout, drawn, hidden, marked, right)
            for words in (f"{row.job}: {row.row}", f"measured {row.measured:g} ms", f"+{100 * row.error():.1f}\u00a0%", f"interval {row.low:.4g} ms", row.group):
                assert words in said, (words, said)
            chrome.execute_script("dispatchEvent(new Event('scroll'))")
            assert chrome.execute_script("return tip.hidden && !document.querySelector('.mark-of-row')")
    assert not errors(chrome) and not [url for url in requests(chrome) if url != f"file://{PAGE}"]
    browser()


def test_it_fits_a_screen_of_420_pixels_and_text_stands_out():
    chrome = opened(width=420, height=900)
    wide = chrome.execute_script(
        """return [document.documentElement.scrollWidth, ...[...document.querySelectorAll("main *:not(.scroll *)")]
             .filter((node) => node.checkVisibility() && node.getBoundingClientRect().right > 421)
             .map((node) => node.outerHTML.slice(0, 120))];"""
    )
    assert wide == [420], wide[:6]
    for scheme in ("light", "dark"):
        with preferring("prefers-color-scheme", scheme):
            found = opened().execute_script(access_test.CONTRASTS)
            faint = [one for one in found if one["ratio"] < (access_test.LEAST_LARGE if one["large"] else access_test.LEAST)]
            assert len(found) > 500 and not faint, (scheme, len(found), faint[:5])


if __name__ == "__main__":
    sys.exit(run_tests(dict(globals())))
