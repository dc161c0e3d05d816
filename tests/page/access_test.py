"""Everybody can read and use the pages: contrast, headers that explain themselves, the keyboard, narrow screens.

usage: access_test.py PATH_OF_STEPSIM

Contrast is that of WCAG 2.2, success criterion 1.4.3: (L1 + 0.05) / (L2 + 0.05) of the relative luminances
of a text and what is painted behind it, 4.5 at least, or 3 for text of 24 px, or bold of 18.66 px.
"""

import json
import sys

from pages import advise_page, browser, open_all, opened, pages, preferring, run_tests, training_page

import stepsim_program  # from a folder that pages names

try:
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.keys import Keys
except ImportError:
    pass  # The first page that is opened says so.

LEAST = 4.5
LEAST_LARGE = 3.0

# Returns [{text, where, ratio, large}] of every text that is shown. What is behind a text are the backgrounds
# of its ancestors, in a picture also the shapes under its middle, or its own outline where it has one.
CONTRASTS = """
const all = document.head.appendChild(document.createElement("style"));
all.textContent = "* { pointer-events: all !important; transition: none !important; }";
const rgba = (text) => {
  const [r, g, b, a] = (text.match(/[-0-9.]+/g) || [0, 0, 0, 0]).map(Number);
  return [r, g, b, a === undefined ? 1 : a];
};
const over = (top, below) => [0, 1, 2].map((i) => top[i] * top[3] + below[i] * (1 - top[3])).concat(1);
const linear = (c) => (c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4);
const luminance = ([r, g, b]) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
const ratio = (one, two) => {
  const [low, high] = [luminance(one), luminance(two)].sort((a, b) => a - b);
  return (high + 0.05) / (low + 0.05);
};
const opacity = (node) => {
  let share = 1;
  for (let at = node; at instanceof Element; at = at.parentNode) {
    share *= Number(getComputedStyle(at).opacity);
  }
  return share;
};
const behind = (node) => {
  const layers = [];
  const {width} = node.getBoundingClientRect();
  for (let at = node; at instanceof Element; at = at.parentNode) {
    if (at.getBoundingClientRect().width < width - 1) {
      continue;  // The text is placed beside it, as the words of a tick are.
    }
    layers.push(rgba(getComputedStyle(at).backgroundColor));
  }
  layers.push([255, 255, 255, 1]);
  return layers.reverse().reduce((below, top) => over(top, below));
};
/** [colour] that a shape paints: a pattern has several. */
const fills = (shape) => {
  const style = getComputedStyle(shape);
  const share = Number(style.fillOpacity) * opacity(shape);
  const named = /url\\("?#([^")]+)/.exec(style.fill);
  const parts = named ? [...document.getElementById(named[1]).querySelectorAll("*")] : [shape];
  return parts.map((part) => getComputedStyle(part).fill).filter((fill) => fill.startsWith("rgb"))
    .map((fill) => [...rgba(fill).slice(0, 3), rgba(fill)[3] * share]);
};
const behindInPicture = (node, below) => {
  const style = getComputedStyle(node);
  if (style.paintOrder.startsWith("stroke") && style.stroke.startsWith("rgb") && parseFloat(style.strokeWidth) >= 2) {
    return [rgba(style.stroke)];
  }
  node.scrollIntoView({block: "center", inline: "center"});
  const box = node.getBoundingClientRect();
  const under = document.elementsFromPoint(box.left + box.width / 2, box.top + box.height / 2)
    .filter((one) => node.ownerSVGElement.contains(one) && one !== node.ownerSVGElement &&
      ["rect", "path", "circle"].includes(one.tagName) && one.closest("pattern") === null);
  let grounds = [below];
  for (const shape of under.reverse()) {
    const tops = fills(shape).filter((fill) => fill[3] > 0);
    grounds = tops.length ? tops.flatMap((top) => grounds.map((ground) => over(top, ground))) : grounds;
  }
  return grounds;
};
const found = [];
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (walker.nextNode()) {
  const node = walker.currentNode.parentElement;
  const box = node.getBoundingClientRect();
  const style = getComputedStyle(node);
  if (!walker.currentNode.data.trim() || !node.checkVisibility({checkVisibilityCSS: true, checkOpacity: true}) ||
      box.width < 2 || box.height < 2 || node.closest(".spoken, .skip, script, style, option, title, desc")) {
    continue;
  }
  const picture = node.ownerSVGElement;
  const below = behind(picture || node);
  const ink = rgba(picture ? style.fill : style.color);
  ink[3] *= opacity(node);
  const size = parseFloat(style.fontSize);
  const grounds = picture ? behindInPicture(node.closest("text"), below) : [below];
  found.push({text: walker.currentNode.data.trim().slice(0, 40),
    where: [node.closest("section")?.id, node.tagName, node.getAttribute("class"), node.parentNode.getAttribute("class")].join(" "),
    ratio: Math.min(...grounds.map((ground) => ratio(over(ink, ground), ground))),
    large: size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700)});
}
all.remove();
return found;
"""

# Everything that does something: what a browser makes a control, and what has the mouse's pointing hand.
CONTROLS = """
const shown = (node) => node.checkVisibility({checkVisibilityCSS: true}) && node.getBoundingClientRect().width > 0;
// The words of a slider's ticks are a second way to what the slider does.
const native = "a[href], button:not(.ticks button), input, select, textarea, summary, [tabindex]:not(.ticks button)";
const controls = [...document.querySelectorAll(native)].filter((node) => shown(node) && !node.disabled);
controls.forEach((node, i) => { node.dataset.order = i; });
const name = (node) => node.outerHTML.slice(0, 90);
const hands = [...document.querySelectorAll("body *")].filter((node) => shown(node) &&
  getComputedStyle(node).cursor === "pointer" && !node.closest(native) && !node.closest("label, .ticks"));
return {controls: controls.map(name), hands: hands.map(name)};
"""


def every_page():
    return (*pages(), advise_page())


def test_text_stands_out_from_what_is_behind_it_in_light_and_dark():
    for scheme in ("light", "dark"):
        with preferring("prefers-color-scheme", scheme):
            faint, texts = {}, 0
            for page in every_page():
                chrome = opened(page)
                open_all(chrome)
                for one in chrome.execute_script(CONTRASTS):
                    texts += 1
                    if one["ratio"] < (LEAST_LARGE if one["large"] else LEAST):
                        faint.setdefault(one["where"], (round(one["ratio"], 2), one["text"], page["path"][-20:]))
            assert texts > 2000, texts
            assert not faint, (scheme, faint)


def test_the_formula_of_contrast_finds_faint_text():
    chrome = opened(every_page()[0])
    for colour, wanted in (("#767676", 4.54), ("#777777", 4.48), ("#000000", 21)):
        chrome.execute_script("""document.querySelector("h2").style.color = arguments[0];
          document.querySelector(".card").style.background = "#ffffff";""", colour)
        heading = chrome.execute_script("return document.querySelector('h2').textContent").strip()[:40]
        (got,) = {round(one["ratio"], 2) for one in chrome.execute_script(CONTRASTS) if one["text"] == heading and " H2 " in one["where"]}
        assert got == wanted, (colour, got)


def test_a_header_under_the_mouse_says_what_the_glossary_says():
    meanings = {}
    for term in json.loads(stepsim_program.run("glossary", "--json", "-").stdout):
        for word in (term["word"], *term["also"]):
            meanings[word.lower()] = term["meaning"]
    hovered = 0
    for page in every_page():
        chrome = opened(page)
        open_all(chrome)
        for head in chrome.find_elements("css selector", "thead th.explained"):
            chrome.execute_script("arguments[0].scrollIntoView({block: 'center', inline: 'center'})", head)
            ActionChains(chrome).move_to_element(head).perform()
            # The browser shows the title of the element that is under the mouse.
            title = chrome.execute_script("return [...document.querySelectorAll(':hover')].pop().closest('[title]')?.title")
            word = head.get_attribute("textContent").lower()
            known = [meanings[one] for one in (word, *(word.removesuffix(end) for end in (" ms", " mib", " s"))) if one in meanings]
            assert known and title == known[0], (page["path"], word, title)
            hovered += 1
    assert hovered > 60, hovered


def test_the_tabulator_reaches_every_control_in_its_order():
    for page in every_page():
        chrome = opened(page)
        found = chrome.execute_script(CONTROLS)
        assert not found["hands"], (page["path"], found["hands"][:3])
        assert len(found["controls"]) > 5, page["path"]
        reached = []
        for _ in found["controls"]:
            ActionChains(chrome).send_keys(Keys.TAB).perform()
            at, outlined = chrome.execute_script(
                "const node = document.activeElement; return [node.dataset.order, getComputedStyle(node).outlineStyle];")
            reached.append(at)
            assert at is not None and outlined != "none", (page["path"], reached)
        missed = [name for i, name in enumerate(found["controls"]) if str(i) not in reached]
        assert not missed, (page["path"], missed)
        assert reached == [str(i) for i in range(len(reached))], (page["path"], reached)


def test_regions_of_a_page_have_names_of_their_own():
    for page in every_page():
        names = opened(page).execute_script("""
            return [...document.querySelectorAll("section[aria-labelledby], [role=region]")].map((region) =>
              region.getAttribute("aria-label") ||
              document.getElementById(region.getAttribute("aria-labelledby")).textContent);""")
        twice = sorted({name for name in names if names.count(name) > 1})
        assert names and not twice, (page["path"], twice)


def test_names_of_clusters_do_not_overlap_on_a_narrow_screen():
    chrome = opened(training_page(), width=420)
    boxes = chrome.execute_script("""
        return [...document.querySelectorAll("#training .cluster-name")].map((name) => {
          const {left, right, top, bottom} = name.getBoundingClientRect();
          return {name: name.textContent, left, right, top, bottom};
        });""")
    assert [box["name"] for box in boxes], boxes
    for i, one in enumerate(boxes):
        for other in boxes[:i]:
            apart = (one["right"] <= other["left"] or other["right"] <= one["left"] or
                     one["bottom"] <= other["top"] or other["bottom"] <= one["top"])
            assert apart, (one, other)


def test_nothing_is_wider_than_a_screen_of_420_pixels():
    for page in every_page():
        chrome = opened(page, width=420, height=900)
        open_all(chrome)
        wide = chrome.execute_script(
            """return [document.documentElement.scrollWidth, ...[...document.querySelectorAll(
                 "main *:not(.scroll *):not(pre *):not(.timeline *):not(pattern *)")]
                 .filter((node) => node.checkVisibility() && (node.getBoundingClientRect().right > 421 ||
                   (node.tagName === "text" && node.getBoundingClientRect().left < -1)))
                 .map((node) => node.outerHTML.slice(0, 120))];"""
        )
        assert wide == [420], (page["path"], wide[:6])
    browser()


if __name__ == "__main__":
    sys.exit(run_tests(dict(globals())))
