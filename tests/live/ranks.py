"""Runs all ranks of a training or measurement, each in a process of its own."""

import os
import pathlib
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import torch_store  # noqa: E402  (needs the path above)

# A second thread of OpenBLAS would take the other rank's core.
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


def environment(network, rank, port):
    """Returns the variables of one rank, to be added to the caller's environment. `port`: of rank 0's store."""
    return {
        **ONE_THREAD,
        **network.environment(),
        **torch_store.settings(),
        "RANK": str(rank),
        "WORLD_SIZE": str(network.ranks),
        "MASTER_PORT": str(port),
    }


def stop(processes):
    for process in processes:
        if process.poll() is None:
            process.kill()
    for process in processes:
        process.wait()


def run(network, program, arguments, log, limit_s):
    """Runs a Python program on all ranks; their output goes to the file `log`.
    Raises RuntimeError when one fails or the time is up, and leaves none running."""
    command = [sys.executable, str(program), *map(str, arguments)]
    log = pathlib.Path(log)
    processes = []
    port = torch_store.free_port()  # Two runs at a time do not meet.
    with open(log, "w", encoding="utf-8") as file:
        try:
            for rank in range(network.ranks):
                processes.append(
                    subprocess.Popen(
                        network.inside(rank, command),
                        env={**os.environ, **environment(network, rank, port)},
                        stdout=file,
                        stderr=subprocess.STDOUT,
                    )
                )
            wait(processes, time.monotonic() + limit_s)
        except RuntimeError as error:
            stop(processes)
            tail = log.read_text(encoding="utf-8").strip().splitlines()[-5:]
            raise RuntimeError("\n".join([f"{error} ({log})", *tail])) from error
        finally:
            stop(processes)


def wait(processes, deadline):
    while any(process.poll() is None for process in processes):
        failed = [rank for rank, process in enumerate(processes) if process.poll()]
        if failed:
            raise RuntimeError(f"rank {failed[0]} ended with status {processes[failed[0]].poll()}")
        if time.monotonic() > deadline:
            raise RuntimeError("the ranks took too long")
        time.sleep(0.05)
    for rank, process in enumerate(processes):
        if process.returncode:
            raise RuntimeError(f"rank {rank} ended with status {process.returncode}")
