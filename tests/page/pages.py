"""Pages of --html, made once and opened in a real headless Chromium, for the tests of pages.

Skips with a reason where python3-selenium, chromium or chromium-driver is absent.
"""

import contextlib
import json
import os
import pathlib
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "sim" / "cli"), str(ROOT / "tests" / "page")]
import stepsim_program  # noqa: E402  (needs the path above)
import small_runner  # noqa: E402
import diff_test  # noqa: E402  (its made records)
import validate_test  # noqa: E402  (its live records)

from browser import resized, start  # noqa: E402

FOLDER = tempfile.TemporaryDirectory()
SKEW = str(ROOT / "scenarios" / "token_skew.toml")
PAIR = str(ROOT / "scenarios" / "token_skew_2ranks.toml")
VALLEY = str(ROOT / "scenarios" / "bucket_valley.toml")
BROWSERS = {}
PAGES = {}


def browser(width=1280, height=1000):
    """The browser, started once, with a window of that size."""
    if "one" not in BROWSERS:
        BROWSERS["one"] = start()
    return resized(BROWSERS["one"], width, height)


def made(name, *arguments, status=0):
    """The page of a command: {path, seconds, result of --json}; made once."""
    if name not in PAGES:
        page = os.path.join(FOLDER.name, name + ".html")
        result = os.path.join(FOLDER.name, name + ".json")
        browser()  # Skips before anything is computed.
        began = time.monotonic()
        try:
            stepsim_program.run(*arguments, "--html", page, "--json", result, "--quiet", status=status)
        except AssertionError as error:
            if "holds no report page" in str(error):
                raise small_runner.Skip("this build holds no report page: no node-d3") from error
            raise
        seconds = time.monotonic() - began
        text = pathlib.Path(result).read_text(encoding="utf-8")
        PAGES[name] = {"path": page, "seconds": seconds, "result": json.loads(text)}
    return PAGES[name]


def validated():
    """The page of a validation against a made-up live run."""
    if "validate" not in PAGES:
        file = os.path.join(FOLDER.name, "prediction.json")
        stepsim_program.run("compare", PAIR, "--json", file, "--quiet")
        os.utime(file, (1795000000, 1795000000))
        predictions = json.loads(pathlib.Path(file).read_text(encoding="utf-8"))["predictions"]
        live = []
        for prediction in predictions:
            live.append(os.path.join(FOLDER.name, prediction["policy"] + ".jsonl"))
            validate_test.live_record(live[-1], prediction, [0.985, 1.015, 1.075])
        made("validate", "validate", PAIR, "--live", *live, "--predictions", file)
    return PAGES["validate"]


def validated_once():
    """The page of a validation against one pass of two policies."""
    if "validate_once" not in PAGES:
        validated()
        file = os.path.join(FOLDER.name, "prediction.json")
        predictions = json.loads(pathlib.Path(file).read_text(encoding="utf-8"))["predictions"][:2]
        live = []
        for prediction in predictions:
            live.append(os.path.join(FOLDER.name, prediction["policy"] + "_once.jsonl"))
            validate_test.live_record(live[-1], prediction, [1.0])
        made("validate_once", "validate", PAIR, "--live", *live, "--predictions", file)
    return PAGES["validate_once"]


def pages():
    return (run_page(), compare_page(), valley_page(), sweep_page(), training_page(), tune_page(),
            nothing_fits_page(), misfit_page(), misfit_sweep_page(), validated(), sharded_page(), diff_page())


def diff_page():
    """Two records of a made training: the forward of rank 1 became slower, and the batches are others."""
    diff_test.write(pathlib.Path(FOLDER.name, "before.jsonl"), diff_test.training(1))
    diff_test.write(pathlib.Path(FOLDER.name, "after.jsonl"),
                    diff_test.training(2, factors={("forward", 1): 1.1}, batches=3))
    return made("diff", "diff", os.path.join(FOLDER.name, "before.jsonl"), os.path.join(FOLDER.name, "after.jsonl"))


def sharded_page():
    """A run whose ranks hold shards, and whole units for a while."""
    return made("sharded", "run", SKEW, "--policy", "uniform", "--set", "parallel.kind=\"fsdp2\"")


def run_page():
    return made("run", "run", SKEW, "--policy", "variable_fixed")


def compare_page():
    return made("compare", "compare", SKEW)


def valley_page():
    """Thirteen bucket sizes: 12 powers of two and the default, which is the sixth."""
    return made("valley", "run", VALLEY)


def training_page():
    return made(
        "training", "sweep", str(ROOT / "scenarios" / "two_nodes.toml"), "--over",
        "cluster.placement=4,8,2x8,8+4", "--samples", "1e9", "--gpu-hour", "2.5", "--set",
        "scenario.steps=6",
    )  # fmt: skip


def advise_page():
    record = str(ROOT / "scenarios" / "tour" / "random.jsonl")
    return made("advise", "advise", record, "--out-dir", os.path.join(FOLDER.name, "advice"))


def tune_page():
    return made("tune", "tune", SKEW)


def nothing_fits_page():
    return made("nothing_fits", "tune", VALLEY, "--over", "policy.fixed.batch_size=7,8", "--samples", "0..99", status=1)


def misfit_page():
    """Of two policies the one with more tokens a second does not fit."""
    text = pathlib.Path(VALLEY).read_text(encoding="utf-8")
    own = '[[policy]]\nkind = "fixed"\nname = "large"\nbatch_size = 8\n\n[[policy]]'
    folder = os.path.dirname(VALLEY)
    text = text.replace("[[policy]]", own, 1).replace('profile = "', f'profile = "{folder}/', 1)
    file = os.path.join(FOLDER.name, "misfit.toml")
    pathlib.Path(file).write_text(text, encoding="utf-8")
    return made("misfit", "compare", file)


def misfits_page():
    """Of two policies, none of which fits, the second one has more tokens a second."""
    misfit_page()
    text = pathlib.Path(FOLDER.name, "misfit.toml").read_text(encoding="utf-8")
    text = text.replace("batch_size = 8\n", "batch_size = 7\n").replace("batch_size = 1\n", "batch_size = 9\n")
    file = os.path.join(FOLDER.name, "misfits.toml")
    pathlib.Path(file).write_text(text, encoding="utf-8")
    return made("misfits", "compare", file, status=1)


def misfit_sweep_page():
    return made("misfit_sweep", "sweep", VALLEY, "--over", "policy.fixed.batch_size=7,8,9", status=1)


def partly_fitting_page():
    """Of five sizes of batch the three largest do not fit, and their steps are much longer."""
    return made("partly", "sweep", VALLEY, "--over", "policy.fixed.batch_size=1,2,7,8,9")


def sweep_page():
    return made("sweep", "sweep", VALLEY, "--over", "ddp.bucket_cap=1MiB..2GiB:x2")


def opened(page, **size):
    """The browser with the page drawn, and its logs empty of what came before."""
    chrome = browser(**size)
    chrome.get("about:blank")
    chrome.get_log("browser"), chrome.get_log("performance")
    chrome.get("file://" + page["path"])
    assert chrome.execute_script("return document.documentElement.dataset.readyMs"), "not drawn"
    return chrome


@contextlib.contextmanager
def preferring(name, value):
    """The browser as for a user whose system has that preference."""
    chrome = browser()
    features = [{"name": name, "value": value}]
    chrome.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    try:
        yield chrome
    finally:
        chrome.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def requests(chrome):
    """URLs that the browser asked for since the last look, the page itself left out."""
    urls = []
    for entry in chrome.get_log("performance"):
        message = json.loads(entry["message"])["message"]
        if message["method"] in ("Network.requestWillBeSent", "Network.webSocketCreated"):
            parameters = message["params"]
            urls.append(parameters.get("request", parameters)["url"])
    return [url for url in urls if not url.startswith(("file://" + FOLDER.name, "data:", "about:"))]


def errors(chrome):
    return [entry for entry in chrome.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]


def table(chrome, title):
    """{column: text} of every row of the table under that heading."""
    return chrome.execute_script(
        """
        const details = [...document.querySelectorAll("details")].find(
          (one) => one.querySelector("summary").textContent === arguments[0]);
        details.fill();
        const text = (cells) => [...cells].map((cell) => cell.textContent);
        const names = text(details.querySelectorAll("thead th"));
        return [...details.querySelectorAll("tbody tr")].map((row) =>
          Object.fromEntries(text(row.children).map((value, i) => [names[i], value])));
        """,
        title,
    )


def open_all(chrome):
    chrome.execute_script(
        """for (const details of document.querySelectorAll("details")) {
             details.open = true;
             details.fill && details.fill();
           }"""
    )


def bars(chrome):
    """[x, width] of every all-reduce that the timeline shows."""
    return chrome.execute_script(
        """return [...document.querySelectorAll("rect.bar.transfer")].map((bar) =>
             [Number(bar.getAttribute("x")), Number(bar.getAttribute("width"))]);"""
    )


def slide(chrome, index):
    chrome.execute_script(
        """const slider = document.getElementById("timeline-selection");
           slider.value = arguments[0];
           slider.dispatchEvent(new Event("input"));""",
        index,
    )


def run_tests(names):
    """Runs the test_… functions; the status to exit with."""
    try:
        return small_runner.main(names)
    finally:
        for chrome in BROWSERS.values():
            chrome.quit()
        FOLDER.cleanup()
