"""A point of a training that all ranks come to, or not."""

import time

_LEFT = 1 << 20  # More than there are ranks.
_DECIDED = 1 << 40
_POLL_S = 0.005


class Meeting:
    """All ranks come, or all learn that one did not. It needs no collective, so that a rank that
    never comes cannot hold the others, nor mix up the collectives of the training.

    Args:
        store: A torch.distributed.Store that all ranks share.
        rank, world_size: As torch.distributed has them.
        seconds: How long a rank waits for the others.
    """

    def __init__(self, store, rank, world_size, seconds):
        self._store = store
        self._rank, self._world_size = rank, world_size
        self._seconds = seconds

    def come(self, willing=True):
        """Returns whether all ranks came and were willing: the same on all that call it. Raises
        what the store raises where rank 0's process has gone."""
        deadline = time.monotonic() + self._seconds
        came = self._store.add("came", 1 if willing else _LEFT)
        if self._rank == 0:
            while came < self._world_size and time.monotonic() < deadline:
                time.sleep(_POLL_S)
                came = self._store.add("came", 0)
            all_came = self._store.add("came", _DECIDED) - _DECIDED == self._world_size
            self._store.add("decision", 2 if all_came else 1)
            return all_came
        if not willing:
            return False
        while True:
            decision = self._store.add("decision", 0)
            if decision:
                return decision == 2
            # Who leaves before rank 0 has decided is missed by it; who is too late for that stays.
            if time.monotonic() > deadline and self._store.add("came", _LEFT) < _DECIDED:
                return False
            time.sleep(_POLL_S)
