"""Runs ranks of trainings with PyTorch, each a process of its own.

To import PyTorch takes most of a second. One process, this file as a program, does so once, and
every rank is a fork of it that runs a Python file as `python3 FILE ARGUMENT…` would.
"""

import atexit
import functools
import json
import os
import pathlib
import re
import runpy
import signal
import subprocess
import sys

import small_runner
import torch_store

SECONDS = 300


@functools.cache
def importer():
    """The process that has imported PyTorch. Raises Skip where there is none."""
    process = subprocess.Popen(
        [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},  # Ranks are forks: no threads.
    )  # fmt: skip
    if process.stdout.readline() != "ready\n":
        raise small_runner.Skip("PyTorch is not installed (python3-torch)")
    atexit.register(process.communicate)  # It ends when nobody asks any more.
    return process


def run(file, *arguments, ranks=2, **environment):
    """Runs a Python file on ranks that can meet. Returns [rank] (exit status, what it printed)."""
    request = {
        "command": [os.path.abspath(file), *arguments],
        "ranks": ranks,
        "folder": os.getcwd(),
        "environment": {
            "WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(torch_store.free_port()),
            **environment,
        },
    }  # fmt: skip
    process = importer()
    process.stdin.write(json.dumps(request) + "\n")
    process.stdin.flush()
    return json.loads(process.stdout.readline())


def next_rank():
    """Starts the ranks of each request and answers when all have ended. In a rank it returns: its
    number and the request."""
    for line in sys.stdin:
        request = json.loads(line)
        outputs = [os.memfd_create("output") for _ in range(request["ranks"])]
        children = []
        for rank, output in enumerate(outputs):
            children.append(os.fork())
            if children[-1] == 0:
                os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
                os.dup2(output, 1)
                os.dup2(output, 2)
                return rank, request
        answer = []
        for child, output in zip(children, outputs):
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            os.lseek(output, 0, os.SEEK_SET)
            with open(output, encoding="utf-8", errors="replace") as file:
                # What gloo itself tells on some versions, PyTorch 2.9 among them.
                answer.append((status, re.sub(r"^\[Gloo\] .*\n", "", file.read(), flags=re.MULTILINE)))
        print(json.dumps(answer), flush=True)
    sys.exit(0)


def main():
    try:
        import torch.distributed  # noqa: F401  (the ranks have it from here)
    except ImportError:
        sys.exit(0)
    os.environ.update(torch_store.settings())
    print("ready", flush=True)
    rank, request = next_rank()
    signal.alarm(SECONDS)
    os.chdir(request["folder"])
    os.environ.update(request["environment"], RANK=str(rank))
    sys.argv = request["command"]
    sys.path[0] = str(pathlib.Path(sys.argv[0]).parent)
    runpy.run_path(sys.argv[0], run_name="__main__")
    # What a program does at its end belongs to it. The teardown behind that does not: there gloo's
    # threads may end a process that has done its work, and PyTorch 2.6 waits for ever for a thread
    # that waits for Python's lock.
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
