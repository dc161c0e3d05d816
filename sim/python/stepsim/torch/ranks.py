"""Which rank this process is."""

import os

from ..errors import InputError


def _torch_distributed():
    """torch.distributed where it is initialised, else None."""
    try:
        import torch.distributed as dist
    except ImportError:
        return None
    return dist if dist.is_available() and dist.is_initialized() else None


def _whole(name, value):
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise InputError(f"{name}: expected a whole number, not {value!r}")
    return value.__index__()


def _from_environment(name, default):
    text = os.environ.get(name)
    if text is None:
        return default
    try:
        return int(text)
    except ValueError:
        raise InputError(
            f"the environment variable {name} is '{text}', no whole number"
        ) from None


def current_rank():
    """Returns (rank, ranks): of torch.distributed where it is initialised, else RANK and
    WORLD_SIZE of the environment, else (0, 1). Raises InputError: these are no numbers."""
    dist = _torch_distributed()
    if dist is not None:
        return dist.get_rank(), dist.get_world_size()
    return _from_environment("RANK", 0), _from_environment("WORLD_SIZE", 1)


def checked_rank(rank, world_size):
    """Returns (rank, ranks), taking what is None from current_rank(). Raises InputError: the rank
    is not below the number of ranks."""
    own_rank, own_size = current_rank() if rank is None or world_size is None else (rank, world_size)
    rank = _whole("rank", own_rank if rank is None else rank)
    world_size = _whole("world_size", own_size if world_size is None else world_size)
    if world_size < 1:
        raise InputError(f"world_size: {world_size} ranks; expected at least 1")
    if not 0 <= rank < world_size:
        raise InputError(f"rank {rank} of {world_size} ranks: ranks count from 0 to {world_size - 1}")
    return rank, world_size


def gathered(item, group=None):
    """Returns [rank] the item of every rank of torch.distributed. Raises InputError: it is not
    initialised."""
    dist = _torch_distributed()
    if dist is None:
        raise InputError("torch.distributed is not initialised, so there are no ranks to compare")
    items = [None] * dist.get_world_size(group)
    dist.all_gather_object(items, item, group=group)
    return items
