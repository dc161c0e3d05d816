"""Runs the notebook scenarios/tour.ipynb from top to bottom, as a reader would.

usage: notebook_test.py
"""

import html
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))
import small_runner  # noqa: E402  (needs the path above)

NOTEBOOK = ROOT / "scenarios" / "tour.ipynb"


def test_the_tour_runs_and_shows_its_pages():
    version = [sys.executable, "-m", "nbconvert", "--version"]
    if subprocess.run(version, capture_output=True, check=False).returncode != 0:
        raise small_runner.Skip("nbconvert is not installed (Debian: jupyter-nbconvert)")
    with tempfile.TemporaryDirectory() as folder:
        here = pathlib.Path(folder)
        shutil.copy(NOTEBOOK, here)
        start = time.monotonic()
        command = [sys.executable, "-m", "nbconvert", "--to", "notebook", "--execute", "--inplace"]
        done = subprocess.run([*command, "tour.ipynb"], cwd=folder, capture_output=True, text=True,
                              check=False, timeout=250)
        assert done.returncode == 0, done.stderr[-3000:]
        print(f"the tour took {time.monotonic() - start:.0f} s")
        cells = json.loads((here / "tour.ipynb").read_text(encoding="utf-8"))["cells"]
    outputs = [one for cell in cells if cell["cell_type"] == "code" for one in cell["outputs"]]
    assert not any(one["output_type"] == "error" for one in outputs)
    shown = ["".join(one.get("data", {}).get("text/html", "")) for one in outputs]
    pages = [html.unescape(text) for text in shown if text.startswith("<iframe srcdoc=")]
    assert len(pages) == 2, len(pages)  # The comparison and the validation, which ask for them.
    plots = ["".join(one.get("data", {}).get("image/svg+xml", "")) for one in outputs]
    assert [text.startswith("<svg") for text in plots if text] == [True], plots  # The sweep.
    others = [len(text) for text in shown if text and not text.startswith("<iframe")]
    assert others and max(others) < 20_000, others
    # A notebook shows standard error in a red box.
    assert not any(one.get("name") == "stderr" for one in outputs), outputs
    for page in pages:
        loaded = re.findall(r"""<(?:script|link|img)[^>]*(?:src|href)=["']?http""", page)
        assert not loaded, loaded
    printed = "".join("".join(one.get("text", "")) for one in outputs)
    assert "verdict: " in printed and "Use " in printed, printed
    # The notebook in the repository has no outputs, which would hide what a reader's run says.
    clean = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    assert all(not cell["outputs"] for cell in clean if cell["cell_type"] == "code")


if __name__ == "__main__":
    sys.exit(small_runner.main(globals()))
