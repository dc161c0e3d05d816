"""What pip calls: meson-python, with metadata before anything is built, and progress that shows."""

import contextlib
import os
import pathlib
import re
import select
import sys
import threading
import time

import mesonpy
import pyproject_metadata
from mesonpy import build_sdist, get_requires_for_build_wheel

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = [
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_wheel",
]

_PAUSE_S = 20.0  # Between two lines on the terminal.


def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    """Writes the METADATA that the wheel will have. meson-python has no such hook: without one pip
    builds everything to read it."""
    project = tomllib.loads(pathlib.Path("pyproject.toml").read_text(encoding="utf-8"))
    stated = re.search(r"version: '(.*)'", pathlib.Path("meson.build").read_text(encoding="utf-8"))
    project["project"].pop("dynamic")
    project["project"]["version"] = stated[1]
    metadata = pyproject_metadata.StandardMetadata.from_pyproject(project, os.curdir)
    folder = pathlib.Path(metadata_directory, f"{metadata.name}-{metadata.version}.dist-info")
    folder.mkdir()
    (folder / "METADATA").write_bytes(bytes(metadata.as_rfc822()))
    return folder.name


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    """Builds the wheel, and says on the terminal how far it is."""
    with _progress():
        return mesonpy.build_wheel(wheel_directory, config_settings, metadata_directory)


@contextlib.contextmanager
def _progress():
    """Tells the terminal of ninja's progress, since pip without -v keeps all output to itself."""
    terminal = None
    with contextlib.suppress(OSError):  # There is none, or pip runs in its background.
        terminal = os.open("/dev/tty", os.O_WRONLY | os.O_NOCTTY)
        if os.tcgetpgrp(terminal) != os.getpgrp():
            os.close(terminal)
            terminal = None
    if terminal is None or os.isatty(1):
        yield
        return
    sys.stdout.flush()
    stdout = os.dup(1)
    source, sink = os.pipe()
    os.dup2(sink, 1)
    os.close(sink)
    watcher = threading.Thread(target=_watch, args=(source, stdout, terminal))
    watcher.start()
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(stdout, 1)  # Closes the pipe, which ends the thread.
        watcher.join()
        for one in (source, stdout, terminal):
            os.close(one)


def _watch(source, stdout, terminal):
    """Passes the output on until it ends, and tells the terminal of it now and then."""
    begun = said = None
    done = steps = 0
    while True:
        if select.select([source], [], [], 1.0)[0]:
            data = os.read(source, 1 << 16)
            if not data:
                return
            _write(stdout, data)
            for found in re.finditer(rb"^\[(\d+)/(\d+)\]", data, re.MULTILINE):
                if done == steps > 0:
                    break  # meson-python counts its own files in the same way.
                done, steps = map(int, found.groups())
        now = time.monotonic()
        if done < steps and (said is None or now - said >= _PAUSE_S):
            begun = begun or now
            # pip's own line is not ended.
            start = "\n" if said is None else "\r"
            said = now
            _write(terminal, f"{start}  {_told(done, steps, now - begun)}\n".encode())


def _told(done, steps, seconds):
    text = f"stepsim: {done} of {steps} build steps done"
    if done * 10 >= steps and seconds > 0:
        minutes = max(1, round(seconds * (steps - done) / done / 60))
        text += f", about {minutes} minute{'s' if minutes > 1 else ''} left"
    return text


def _write(file, data):
    with contextlib.suppress(OSError):  # Its reader has gone.
        while data:
            data = data[os.write(file, data) :]
