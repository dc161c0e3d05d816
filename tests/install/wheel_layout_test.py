"""Where the files of a wheel go: what Meson tells meson-python, without building anything.

usage: wheel_layout_test.py
"""

import json
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))
import small_runner  # noqa: E402  (needs the path above)

# What meson-python puts into a wheel; it leaves out or refuses other places. A wheel's data are
# unpacked into the environment's own folder.
PLACES = ("{bindir}", "{py_platlib}", "{datadir}")


def options():
    """The setup options of pyproject.toml."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    return re.findall(r'"(.*?)"', re.search(r"^setup = \[(.*?)\]", text, re.M | re.S)[1])


def installed():
    """Returns where Meson would install each file or folder, with its names for places."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(["meson", "setup", folder, ROOT, *options()], capture_output=True,
                              text=True, check=False)
        if "pybind11" in done.stdout and done.returncode != 0:
            raise small_runner.Skip("there is no pybind11 for this Python (pybind11-dev)")
        assert done.returncode == 0, done.stdout + done.stderr
        plan = pathlib.Path(folder, "meson-info", "intro-install_plan.json")
        groups = json.loads(plan.read_text(encoding="utf-8")).values()
    return {one["destination"] for group in groups for one in group.values()}


def test_every_file_has_its_place_in_a_wheel():
    found = installed()
    wrong = [one for one in found if not one.startswith(PLACES)]
    assert not wrong, wrong
    loose = [one for one in found if one.startswith("{datadir}") and "}/share/" not in one]
    assert not loose, loose
    for one in ("{bindir}/stepsim", "{bindir}/stepcal", "{datadir}/share/man/man1/stepsim.1",
                "{datadir}/share/man/man1/stepcal-fit.1", "{datadir}/share/stepsim/scenarios",
                "{datadir}/share/stepsim/stepsim_recorder.py",
                "{datadir}/share/bash-completion/completions/stepsim.bash",
                "{datadir}/share/zsh/site-functions/_stepsim",
                "{py_platlib}/stepsim/torch/measure.py", "{py_platlib}/stepsim/torch/live.py",
                "{py_platlib}/stepsim/torch/stepsim_measure.py",
                "{py_platlib}/stepsim/torch/stepsim_calibrate.py"):
        assert one in found, (one, sorted(found))
    assert [one for one in found if one.endswith(".dist-info/licenses/LICENSE")], sorted(found)


if __name__ == "__main__":
    sys.exit(small_runner.main(globals()))
