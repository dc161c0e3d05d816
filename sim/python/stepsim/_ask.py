"""Asks questions inside this process, with a progress bar for long ones."""

import os
import sys
import time
import warnings

from . import _core

_SILENT_SECONDS = 1.0


def _in_notebook():
    shell = sys.modules.get("IPython")
    shell = shell.get_ipython() if shell is not None else None
    return shell is not None and hasattr(shell, "kernel")


class _Bar:
    """A bar of tqdm that appears after a second; nothing where tqdm is not installed."""

    def __init__(self):
        self._start = time.monotonic()
        self._bar = None
        self._missing = False

    def __call__(self, what, share):
        waited = time.monotonic() - self._start
        if self._missing or (self._bar is None and waited < _SILENT_SECONDS):
            return
        if self._bar is None:
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # About widgets that a notebook lacks.
                    from tqdm.auto import tqdm
                form = "{desc} {percentage:3.0f}%|{bar}| {remaining} left"
                # A notebook shows what goes to standard error in a red box.
                out = sys.stdout if _in_notebook() else None
                self._bar = tqdm(total=1.0, desc=what, leave=False, bar_format=form, file=out)
            except ImportError:
                self._missing = True
                return
        self._bar.n = share
        self._bar.refresh()

    def close(self):
        if self._bar is not None:
            self._bar.close()


def _given(scenario):
    return None if scenario is None else scenario._given


def _serve(question, given, scenario, axes, points):
    return _core.serve_points(question, given, _given(scenario), axes, points)


def _served_by(executor, question, given, scenario, axes):
    """Returns a function that has an executor compute points: [point] in, [point] results out."""
    if not hasattr(executor, "submit"):
        raise TypeError(f"executor is a concurrent.futures.Executor, not {executor!r}")
    alone = [(name, value) for name, value in given if name != "threads"] + [("threads", 1)]
    workers = getattr(executor, "_max_workers", None) or os.cpu_count() or 1

    def serve(points):
        size = max(1, -(-len(points) // (2 * workers)))  # A worker shares what its points share.
        futures = [
            executor.submit(_serve, question, alone, scenario, axes, points[first:first + size])
            for first in range(0, len(points), size)
        ]
        return [result for future in futures for result in future.result()]

    return serve


def ask(question, options, scenario=None, progress=None, executor=None, axes=()):
    """Returns the _core.Answer of a question.

    Args:
        options: {name with dashes: value}: texts, numbers, lists, or True; None and False are left
            out.
        progress: True or False; None: where a person looks at the output, a terminal or a
            notebook. Or a function that is called as progress(what, share), share from 0 to 1.
        executor: Computes the points of a study, where the question has points.
        axes: [(key, values)] to vary.
    """
    if progress is None:
        progress = _in_notebook() or (sys.stderr is not None and sys.stderr.isatty())
    bar = _Bar() if progress is True else None
    given = [(name, value) for name, value in options.items() if value is not None and value is not False]
    try:
        elsewhere = executor and _served_by(executor, question, given, scenario, axes)
        answer = _core.ask(question, given, _given(scenario), axes, bar or progress or None, elsewhere)
    finally:
        if bar is not None:
            bar.close()
    if not _in_notebook():  # There the result shows them.
        tell(answer.warnings, stacklevel=5)
    return answer


def tell(notes, stacklevel):
    """Warns of each of them, or says it in a notebook, which shows what is warned of in a red box."""
    for note in notes:
        if _in_notebook():
            print(f"warning: {note}")
        else:
            warnings.warn(note, stacklevel=stacklevel)
