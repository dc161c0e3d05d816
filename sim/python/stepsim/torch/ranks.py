"""Which rank this process is."""

import os

from ..errors import InputError

MOST_RANKS = (1 << 31) - 1


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


def _from_environment(name):
    text = os.environ[name]
    try:
        return int(text)
    except ValueError:
        raise InputError(
            f"the environment variable {name} is '{text}', no whole number"
        ) from None


def known_rank():
    """Returns (rank, ranks) of torch.distributed where it is initialised, else RANK and WORLD_SIZE
    of the environment, else None. Raises InputError: these are no numbers."""
    dist = _torch_distributed()
    if dist is not None:
        return dist.get_rank(), dist.get_world_size()
    if "RANK" in os.environ and "WORLD_SIZE" in os.environ:
        return _from_environment("RANK"), _from_environment("WORLD_SIZE")
    return None


def checked_rank(rank, world_size):
    """Returns (rank, ranks), taking what is None from known_rank(), else 0 and 1. Raises
    InputError: the rank is not below the number of ranks."""
    if rank is None or world_size is None:
        own_rank, own_size = known_rank() or (0, 1)
        rank = own_rank if rank is None else rank
        world_size = own_size if world_size is None else world_size
    rank, world_size = _whole("rank", rank), _whole("world_size", world_size)
    if not 1 <= world_size <= MOST_RANKS:
        raise InputError(f"world_size: {world_size} ranks; expected 1 to {MOST_RANKS}")
    if not 0 <= rank < world_size:
        raise InputError(
            f"rank {rank} of {world_size} ranks: ranks count from 0 to {world_size - 1}"
        )
    return rank, world_size


def check_process(rank, world_size):
    """Raises InputError where this process is known to be another one of them: a sampler that was
    made before init_process_group() would hand the same samples to all ranks."""
    known = known_rank()
    if known not in (None, (rank, world_size)):
        raise InputError(
            f"this sampler was made for rank {rank} of {world_size}, but this process is rank "
            f"{known[0]} of {known[1]}: make it after init_process_group(), or pass rank= and "
            "world_size="
        )


def gathered(item, group=None):
    """Returns [rank] the item of every rank of torch.distributed. Raises InputError: it is not
    initialised."""
    dist = _torch_distributed()
    if dist is None:
        raise InputError("torch.distributed is not initialised, so there are no ranks to compare")
    items = [None] * dist.get_world_size(group)
    dist.all_gather_object(items, item, group=group)
    return items


def compare_ranks(ranks):
    """Raises InputError where ranks disagree. `ranks`: [rank] facts; "rank" and "world size" are
    among them, and "error" where a rank has none of its own."""
    for number, facts in enumerate(ranks):
        if "error" in facts:
            raise InputError(f"rank {number} cannot plan: {facts['error']}")
        if facts["world size"] != len(ranks):
            raise InputError(
                f"rank {number} plans for {facts['world size']} ranks, but {len(ranks)} are here"
            )
        if facts["rank"] != number:
            raise InputError(f"rank {number} takes the batches of rank {facts['rank']}")
    for name, value in ranks[0].items():
        values = [facts[name] for facts in ranks]
        if name == "rank" or values.count(value) == len(values):
            continue
        usual = max(values, key=values.count)
        others = [str(number) for number, own in enumerate(values) if own != usual]
        held = ", ".join(sorted({str(own) for own in values if own != usual}))
        raise InputError(
            f"rank {', '.join(others)} has another {name} ({held}) than rank "
            f"{values.index(usual)} ({usual}): all ranks must be given the same"
        )
