"""Makes the README's pictures of report pages and of a terminal: sim/report/html/pictures/*.png.

usage: pictures.py PATH_OF_STEPSIM
Needs python3-selenium, chromium and chromium-driver.
"""

import base64
import html
import os
import pathlib
import pty
import re
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "page")]
from browser import resized, start  # noqa: E402  (needs the path above)

STEPSIM = os.path.abspath(sys.argv[1])
PICTURES = ROOT / "sim" / "report" / "html" / "pictures"
MOST_BYTES = 200_000

SWEEP = ["sweep", "scenarios/bucket_valley.toml", "--over", "ddp.bucket_cap=1MiB..2GiB:x2"]
TUNE = ["tune", "scenarios/token_skew.toml"]
COMPARE = ["compare", "scenarios/batching/squad.toml", "--steps", "104"]
# {name: (command, first and last element of the picture, place of the slider)}
SHOTS = {
    "timeline": (SWEEP, ".head", "#timeline .timeline", 10),
    "valley": (SWEEP, "#valley", "#valley", 8),
    "policies": (COMPARE, "#policies", "#policies", None),
    "front": (TUNE, "#front", "#front", None),
    "steps": (COMPARE, "#series", "#series", None),
}

# The terminal's command and its columns.
TYPED = (["compare", "scenarios/token_skew.toml"], 100)
TERMINAL = """<!doctype html><meta charset="utf-8"><style>
body { margin: 0; background: #1c1f26; }
pre { margin: 0; padding: 18px 20px; color: #d8dee9; font: 13px/1.35 "DejaVu Sans Mono", monospace;
  display: inline-block; }
.p1 { font-weight: bold; color: #fff } .p2 { color: #8a93a6 } .p31 { color: #ff7b72 }
.p32 { color: #7ee787 } .p33 { color: #e3b341 } .p36 { color: #79c0ff }
</style><pre>%s</pre>"""

BOX = """
const boxes = arguments[0].map((name) => document.querySelector(name).getBoundingClientRect());
const [first, last] = boxes;
return {x: 0, width: document.documentElement.clientWidth, y: Math.max(0, first.top + scrollY - 14),
  height: last.bottom - Math.max(first.top, 14) + 22, scale: 1};
"""
SLIDE = """
const slider = document.getElementById("timeline-selection");
slider.value = arguments[0];
slider.dispatchEvent(new Event("input"));
"""


def shoot(chrome, path, first, last, place):
    if place is not None:
        chrome.execute_script(SLIDE, place)
        time.sleep(0.6)  # The bars glide.
    clip = chrome.execute_script(BOX, [first, last])
    picture = chrome.execute_cdp_cmd(
        "Page.captureScreenshot", {"format": "png", "clip": clip, "captureBeyondViewport": True})
    path.write_bytes(base64.b64decode(picture["data"]))
    assert path.stat().st_size < MOST_BYTES, f"{path} has {path.stat().st_size} bytes"
    print(f"{path.relative_to(ROOT)}: {path.stat().st_size} bytes")


def typed(arguments, columns):
    """What a terminal of so many columns shows."""
    screen, program = pty.openpty()
    environment = {**os.environ, "COLUMNS": str(columns), "TERM": "xterm-256color"}
    environment.pop("NO_COLOR", None)
    shown = b""
    with subprocess.Popen([STEPSIM, *arguments], stdout=program, stderr=subprocess.DEVNULL,
                          stdin=program, cwd=ROOT, env=environment) as child:
        os.close(program)
        try:
            while part := os.read(screen, 65536):
                shown += part
        except OSError:  # The program has ended.
            pass
        assert child.wait() == 0
    os.close(screen)
    return shown.decode().replace("\r\n", "\n")


def terminal_page(arguments, columns):
    """The same as HTML, its colours as classes."""
    text = html.escape(f"$ stepsim {' '.join(arguments)}\n{typed(arguments, columns)}")
    text = text.replace("\x1b[0m", "</span>")
    return TERMINAL % re.sub("\x1b\\[(\\d+)m", r'<span class="p\1">', text)


def main():
    PICTURES.mkdir(exist_ok=True)
    chrome = resized(start(), 1100, 900)
    try:
        with tempfile.TemporaryDirectory() as folder:
            for name, (command, first, last, place) in SHOTS.items():
                page = os.path.join(folder, command[0] + ".html")
                if not os.path.exists(page):
                    subprocess.run([STEPSIM, *command, "--html", page, "--quiet"], check=True,
                                   cwd=ROOT)
                chrome.get("file://" + page)
                shoot(chrome, PICTURES / f"{name}.png", first, last, place)
            page = pathlib.Path(folder, "terminal.html")
            page.write_text(terminal_page(*TYPED), encoding="utf-8")
            chrome.get(page.as_uri())
            width = chrome.execute_script("return document.querySelector('pre').offsetWidth")
            resized(chrome, width, 900)
            shoot(chrome, PICTURES / "terminal.png", "pre", "pre", None)
    finally:
        chrome.quit()


if __name__ == "__main__":
    main()
