"""Makes the README's pictures of report pages: sim/report/html/pictures/*.png.

usage: pictures.py PATH_OF_STEPSIM
Needs python3-selenium, chromium and chromium-driver.
"""

import base64
import os
import pathlib
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
COMPARE = ["compare", "scenarios/batching/squad.toml", "--steps", "104"]
# {name: (command, first and last element of the picture, place of the slider)}
SHOTS = {
    "timeline": (SWEEP, ".head", "#timeline .timeline", 10),
    "valley": (SWEEP, "#valley", "#valley", 8),
    "policies": (COMPARE, "#policies", "#policies", None),
    "steps": (COMPARE, "#series", "#series", None),
}

BOX = """
const boxes = arguments[0].map((name) => document.querySelector(name).getBoundingClientRect());
const [first, last] = boxes;
return {x: 0, width: document.documentElement.clientWidth, y: Math.max(0, first.top + scrollY - 14),
  height: last.bottom - Math.max(first.top, 14) + 22, scale: 1};
"""
SLIDE = """
const slider = document.getElementById("setting");
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
    finally:
        chrome.quit()


if __name__ == "__main__":
    main()
