"""The folder of Stepsim's sources, which is no Python package.

Python takes it for one where it is called `stepsim` and stands beside what runs. An installed
stepsim comes first all the same; else this says what to do.
"""

import importlib.machinery
import importlib.util
import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))
_ELSEWHERE = [
    place for place in sys.path
    if os.path.realpath(os.path.join(place, __name__)) != os.path.realpath(_HERE)
]
_FOUND = importlib.machinery.PathFinder.find_spec(__name__, _ELSEWHERE)
if _FOUND is None or _FOUND.loader is None or _FOUND.origin is None:
    raise ImportError(
        f"{_HERE} holds the sources of Stepsim, and no package {__name__} is installed. Say "
        f"`python3 -m pip install {_HERE}`, or put a build into the PYTHONPATH: "
        f"{os.path.join(_HERE, 'build', 'sim', 'python')}"
    )
sys.modules[__name__] = importlib.util.module_from_spec(_FOUND)
_FOUND.loader.exec_module(sys.modules[__name__])
