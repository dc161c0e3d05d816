"""One scenario, read once, for many predictions."""

import functools
from typing import Any, Dict, Optional

from . import _core, results
from .scenario import Scenario, settings_of


class Job:
    """A scenario that is read once, with its profile, for many predictions of other settings.

    >>> job = Job("bucket_valley")
    >>> for cap in ("1 MiB", "25 MiB", "100 MiB"):
    ...     print(job.predict({"ddp.bucket_cap": cap}).step_ms)

    Predictions whose settings leave the batches as they are share the plan, and those that leave
    the ops as they are their prices: see sim/README.md. Jobs can be pickled, and be used by several
    threads at once.

    Args:
        scenario: A Scenario, or what Scenario() is made of.
    """

    def __init__(self, scenario):
        self.scenario = scenario if isinstance(scenario, Scenario) else Scenario(scenario)
        _ = self._jobs  # What is wrong with it is said now.

    @functools.cached_property
    def _jobs(self):
        return _core.Jobs(self.scenario._given)

    def predict(self, settings: Optional[Dict[str, Any]] = None, policy: Optional[str] = None,
                noise: bool = True, steps: bool = False) -> results.Prediction:
        """Predicts one policy, as Scenario.run() does.

        Args:
            settings: {key: value}, as Scenario.set() takes them one by one; "data.lengths" may be an
                array.
            policy: The first one, without a name.
            noise: False: without jitter and errors; the interval is then the mean itself.
            steps: Whether Prediction.steps has every step and rank.

        Raises InputError and MachineError, as all questions do.
        """
        if not isinstance(settings, (dict, type(None))):
            raise TypeError(f"settings are a dict of keys and values, not {settings!r}")
        given = [one for key, value in (settings or {}).items() for one in settings_of(key, value)]
        return results.Prediction._of(self._jobs.predict(given, policy or "", noise, steps))

    def __reduce__(self):
        return type(self), (self.scenario,)

    def __repr__(self):
        return f"<stepsim.Job of {self.scenario!r}>"
