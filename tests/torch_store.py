"""What PyTorch's store of ranks needs here."""

import functools


@functools.cache
def settings():
    """Environment variables with which init_process_group() finds the other ranks: USE_LIBUV=0 where
    PyTorch was built without libuv, as Debian 13's, and asks for it all the same."""
    import torch.distributed as dist

    try:
        dist.TCPStore("127.0.0.1", 0, 1, True)
    except RuntimeError as error:
        if "libuv" in str(error):
            return {"USE_LIBUV": "0"}
        raise
    return {}
