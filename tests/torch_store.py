"""What the tests with PyTorch share: whether it is there, and what its store of ranks needs here."""

import functools
import os
import socket
import subprocess

import small_runner


def torch_or_skip():
    try:
        import torch  # noqa: F401  pylint: disable=unused-import
    except ImportError as error:
        raise small_runner.Skip(f"PyTorch is not installed (python3-torch): {error}") from error


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


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


def run_ranks(command, ranks=2, folder=None, timeout=300, **names):
    """Runs a command on ranks that can find each other, with one thread each and these environment
    variables. Returns the ranks' exit statuses and what they printed."""
    names = {**os.environ, "WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1",
             "MASTER_PORT": str(free_port()), "OMP_NUM_THREADS": "1", **names}
    processes = [
        subprocess.Popen(command, cwd=folder, env={**names, "RANK": str(rank)}, text=True,
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        for rank in range(ranks)
    ]
    return ended(processes, timeout)


def ended(processes, timeout=300):
    """Their exit statuses and what they printed, once all have ended."""
    try:
        outputs = [process.communicate(timeout=timeout)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    return [process.returncode for process in processes], outputs
