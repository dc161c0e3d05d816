"""`python3 -m stepsim …` is the program `stepsim …` of the same installation."""

import importlib.metadata
import os
import pathlib
import shutil
import sys
import sysconfig


def _installed():
    """Where the files of this package's installation say that the program is."""
    try:
        files = importlib.metadata.distribution("stepsim").files or []
    except importlib.metadata.PackageNotFoundError:
        return
    for file in files:
        if file.name in ("stepsim", "stepsim.exe") and file.parent.name in ("bin", "Scripts"):
            yield pathlib.Path(file.locate())


def program():
    """Returns the path of the program; None where there is none."""
    built = pathlib.Path(__file__).resolve().parents[2] / "stepsim"  # Of a build folder.
    scripts = pathlib.Path(sysconfig.get_path("scripts")) / "stepsim"
    for path in (built, *_installed(), scripts):
        if path.is_file() and os.access(path, os.X_OK):
            return str(path)
    return shutil.which("stepsim")


def main():
    path = program()
    if path is None:
        sys.exit("stepsim: error: this installation has the Python package without the program; `python3 -m pip "
                 "install --force-reinstall .` in the folder of Stepsim installs both")
    os.execv(path, [path, *sys.argv[1:]])


if __name__ == "__main__":
    main()
