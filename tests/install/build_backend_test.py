"""What pip asks of sim/python/build_backend.py before and while it builds, without building.

usage: build_backend_test.py
"""

import email
import importlib.util
import os
import pathlib
import re
import sys
import tempfile
import threading
import types

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "sim" / "python")]
import small_runner  # noqa: E402  (needs the path above)

HAS_METADATA = importlib.util.find_spec("pyproject_metadata") is not None
for name in ("mesonpy", "pyproject_metadata"):  # What is called here needs neither, but for one.
    if importlib.util.find_spec(name) is None:
        sys.modules[name] = types.SimpleNamespace(
            build_sdist=None, get_requires_for_build_wheel=None
        )
import build_backend  # noqa: E402


def test_metadata_come_from_pyproject_alone():
    if not HAS_METADATA:
        raise small_runner.Skip("pyproject-metadata is not installed (python3-mesonpy)")
    before = os.getcwd()
    os.chdir(ROOT)
    try:
        with tempfile.TemporaryDirectory() as folder:
            name = build_backend.prepare_metadata_for_build_wheel(folder)
            text = pathlib.Path(folder, name, "METADATA").read_text(encoding="utf-8")
    finally:
        os.chdir(before)
    found = email.message_from_string(text)
    version = re.search(r"version: '(.*)'", (ROOT / "meson.build").read_text(encoding="utf-8"))[1]
    assert name == f"stepsim-{version}.dist-info", name
    assert (found["Name"], found["Version"]) == ("stepsim", version), text
    assert found["License"] == "Apache-2.0", found["License"]
    assert "numpy" in found.get_all("Requires-Dist"), text


def watched(*pieces):
    """Lets the backend watch what a build prints. Returns what went on to pip, and the lines on
    the terminal."""
    source, sink = os.pipe()
    with tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as terminal:
        arguments = (source, stdout.fileno(), terminal.fileno())
        watcher = threading.Thread(target=build_backend._watch, args=arguments)
        watcher.start()
        for piece in pieces:
            os.write(sink, piece)
        os.close(sink)
        watcher.join()
        os.close(source)
        texts = []
        for file in (stdout, terminal):
            file.seek(0)
            texts.append(file.read())
    return texts[0], texts[1].decode().split("\n")


def test_the_terminal_is_told_and_all_output_goes_on():
    pieces = [b"The Meson build system\n", b"[1/64] Compiling a.cpp\n", b"[2/64] Comp", b"iling\n"]
    passed, told = watched(*pieces)
    assert passed == b"".join(pieces), passed
    assert told[0] == told[2] == "" and len(told) == 3, told
    assert re.fullmatch("  stepsim: [12] of 64 build steps done", told[1]), told


def test_a_build_that_prints_no_step_says_nothing():
    passed, told = watched(b"ninja: no work to do.\n")
    assert passed == b"ninja: no work to do.\n" and told == [""], (passed, told)


def test_files_that_are_packed_are_no_build_steps():
    done = b"".join(b"[%d/9] Compiling\n" % number for number in range(1, 10))
    assert watched(done, b"[1/145] stepsim/table.py\n")[1] == [""]


def test_the_time_that_is_left():
    told = build_backend._told
    assert told(3, 64, 100) == "stepsim: 3 of 64 build steps done"  # Too early to tell.
    assert told(16, 64, 100) == "stepsim: 16 of 64 build steps done, about 5 minutes left"
    assert told(60, 64, 100) == "stepsim: 60 of 64 build steps done, about 1 minute left"


if __name__ == "__main__":
    sys.exit(small_runner.main(globals()))
