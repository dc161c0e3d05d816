"""Work that is done ahead of time in a thread."""

import atexit
import threading
import weakref

_LONGEST_EXIT_S = 30.0
_running = weakref.WeakSet()  # Of threads.


class Ahead:
    """The result of a function that runs in a daemon thread.

    Args:
        make: The function, without arguments.
        turn: A lock that is held while it runs: of several, one runs at a time.
    """

    def __init__(self, make, turn):
        self._make = make
        self._turn = turn
        self._result = self._error = None
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, name="stepsim plans", daemon=True)
        _running.add(self._thread)
        self._thread.start()

    def _run(self):
        try:
            with self._turn:
                self._result = self._make()
        except BaseException as error:  # pylint: disable=broad-except  (raised again by get)
            self._error = error
        finally:
            self._done.set()

    @property
    def is_done(self):
        return self._done.is_set()

    def get(self):
        """Waits for the result and returns it; raises what the function raised."""
        self._done.wait()
        if self._error is not None:
            raise self._error
        return self._result


def _wait_at_exit():
    """Waits for threads that compute: Python ends a process badly under a thread that comes back
    from C++ when the interpreter is gone."""
    for thread in list(_running):
        thread.join(_LONGEST_EXIT_S)


atexit.register(_wait_at_exit)
