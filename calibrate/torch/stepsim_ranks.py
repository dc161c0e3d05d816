"""Starts the ranks of a measurement or a training on this machine, where no launcher (torchrun, srun,
mpirun) has done so, and lets them agree. stepsim_measure.py, stepsim_live.py and stepsim_calibrate.py
import it; it needs only torch and stepsim_recorder.py beside it.
"""

import contextlib
import ctypes
import json
import os
import platform
import signal
import socket
import subprocess
import sys
import time

# A process that trains the shapes of many batches makes more kernels than oneDNN's cache holds (1,024), and
# convolutions then take half as long again; a training of one policy makes fewer. oneDNN reads it once.
os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "16384")

try:
    import torch
    import torch.distributed as dist
except ImportError as missing:
    print(
        f"error: {sys.executable} has no PyTorch ({missing}): pip install torch, or run the python3 that "
        "has it",
        file=sys.stderr,
    )
    raise SystemExit(2) from None

if __package__:  # A module of the package stepsim …
    from . import stepsim_recorder
else:  # … or a file by itself, with the others beside it.
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    import stepsim_recorder

GRACE_S = 5.0  # After one rank has failed, the others get so long to end by themselves.
OLDEST_TORCH = (1, 13)
INTERRUPTED = 130  # The exit status where a signal stopped it.


class BadInput(Exception):
    """The message says what is wrong with a file, an argument or this PyTorch, and what to do."""


class RankFailed(Exception):
    """The message names the rank and how it ended."""


def check_torch(ranks, device):
    """Raises BadInput: this PyTorch cannot do it."""
    version = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
    if version < OLDEST_TORCH:
        raise BadInput(f"PyTorch {torch.__version__} is older than 1.13: install a newer one")
    try:
        import numpy  # noqa: F401  pylint: disable=import-outside-toplevel,unused-import
    except ImportError as error:
        raise BadInput("NumPy is not installed beside PyTorch: pip install numpy") from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise BadInput("--device cuda: this PyTorch finds no GPU here; --device cpu runs on the CPU")
    if ranks < 2:
        return
    backend = backend_for(device)
    found = dist.is_available() and getattr(dist, f"is_{backend}_available", lambda: True)()
    if not found:
        raise BadInput(f"this PyTorch was built without {backend}, by which {ranks} ranks reduce")


def backend_for(device):
    return "nccl" if device.type == "cuda" else "gloo"


def pick_device(name=None):
    """The device of this rank: by default CUDA where there is one. Raises BadInput."""
    if name is None:
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise BadInput(f"--device {name}: expected cpu, cuda or cuda:NUMBER") from error
    if device.type not in ("cpu", "cuda"):
        raise BadInput(f"--device {name}: expected cpu, cuda or cuda:NUMBER")
    if device.type == "cuda" and torch.cuda.is_available():
        if device.index is None:
            device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)))
        torch.cuda.set_device(device)
    return device


def read_json(path):
    """Raises BadInput."""
    try:
        with open(path, encoding="utf-8") as file:
            content = json.load(file)
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise BadInput(f"{path}: no JSON: {error}") from error
    if not isinstance(content, dict):
        raise BadInput(f"{path}: expected a JSON object")
    return content


def ranks_wanted(asked, planned, device):
    """How many ranks to start here: as asked, else as planned, but no more than there are GPUs.
    Raises BadInput."""
    if asked is not None and asked < 1:
        raise BadInput("--ranks: at least 1")
    wanted = asked or planned
    if device.type != "cuda" or not torch.cuda.is_available():
        return wanted
    found = torch.cuda.device_count()
    if wanted > found:
        if asked:
            raise BadInput(f"--ranks {asked}: there are {found} GPUs here")
        print(f"the plans are of {planned} ranks; measuring on the GPUs here: {found}", flush=True)
    return min(wanted, found)


def is_launched():
    """Whether this process is a rank already."""
    return "WORLD_SIZE" in os.environ


def host():
    """What tells this host from others, also where several have one name."""
    with contextlib.suppress(OSError), open("/proc/sys/kernel/random/boot_id", encoding="utf-8") as file:
        return platform.node(), file.read().strip()
    return platform.node(), ""


def start_alone(device):
    """Makes this process the only rank of a group, so that it trains as ranks do; without one where this
    PyTorch has none."""
    backend = backend_for(device)
    if dist.is_available() and getattr(dist, f"is_{backend}_available", lambda: True)():
        os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE="1", LOCAL_WORLD_SIZE="1")
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free_port()))


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def end_with_parent():
    """Asks Linux to end this process when the one that started it is gone, however it went."""
    with contextlib.suppress(Exception):
        ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG


def launch(ranks):
    """Runs this program once more on each rank and waits. Returns the exit status that all ended
    with; the first rank's where they differ. Raises RankFailed."""
    command = [sys.executable, *getattr(sys, "orig_argv", [sys.executable, *sys.argv])[1:]]
    common = {"WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks)}
    common.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free_port()))
    # As torchrun: with more threads the ranks would take each other's cores.
    common["OMP_NUM_THREADS"] = os.environ.get("OMP_NUM_THREADS", "1")
    processes = []
    stopped = []

    def stop(number, _frame):
        stopped.append(number)
        for process in processes:
            with contextlib.suppress(OSError):
                process.send_signal(number)

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        for rank in range(ranks):
            own = {"RANK": str(rank), "LOCAL_RANK": str(rank), "STEPSIM_STARTED_RANKS": "1"}
            processes.append(subprocess.Popen(command, env={**os.environ, **common, **own}))
        return wait(processes, stopped)
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
            process.wait()
        for number, handler in before.items():
            signal.signal(number, handler)


def wait(processes, stopped):
    """Waits for all ranks. A rank that fails ends the others, too."""
    failed, since = None, 0.0
    while any(process.poll() is None for process in processes):
        for rank, process in enumerate(processes):
            if failed is None and process.poll():
                failed, since = rank, time.monotonic()
        if failed is not None and time.monotonic() - since > GRACE_S:
            break
        time.sleep(0.02)
    if failed is None:
        ended = [rank for rank, process in enumerate(processes) if process.returncode]
        failed = ended[0] if ended else None
    if failed is None:
        return 0
    status = processes[failed].returncode
    if status in (2, 3, INTERRUPTED) or stopped:
        return status  # It has said why.
    how = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
    raise RankFailed(f"rank {failed} {how}; the others were ended")


class Progress:
    """Says on standard error how far a measurement is: "measuring: shape 7 of 24, 31 s of 60". On a
    terminal it is one line, written anew; elsewhere a line every 10 seconds.

    Args:
        seconds: What the measurement may take.
        speaks: False on all ranks but one.
    """

    EVERY_S = 10.0

    def __init__(self, seconds, speaks=True, file=None, now=time.monotonic):
        self.seconds, self.speaks, self.now = seconds, speaks, now
        self.file = sys.stderr if file is None else file
        self.begun = self.said = now()
        self.width = 0  # Of the line that stands on the terminal.

    def at(self, place):
        """place: "shape 7 of 24"."""
        now, live = self.now(), self.file.isatty()
        if not self.speaks or now - self.said < (0.2 if live else self.EVERY_S):
            return
        self.said = now
        line = f"measuring: {place}, {now - self.begun:.0f} s of {self.seconds:.0f}"
        self.file.write("\r" + line.ljust(self.width) if live else line + "\n")
        self.file.flush()
        self.width = len(line)

    def done(self):
        """Takes the line off the terminal."""
        if self.speaks and self.width > 0 and self.file.isatty():
            self.file.write("\r" + " " * self.width + "\r")
            self.file.flush()
        self.width = 0


class Ranks:
    """This process among all ranks, and what they agree on."""

    def __init__(self, device, backend=None):
        self.device = device
        self.started = False
        if os.environ.get("STEPSIM_STARTED_RANKS"):
            end_with_parent()
        if is_launched() and not dist.is_initialized():
            stepsim_recorder.start_ranks(backend or backend_for(device))
            self.started = True
        self.distributed = dist.is_available() and dist.is_initialized()
        self.count = dist.get_world_size() if self.distributed else 1
        self.rank = dist.get_rank() if self.distributed else 0

    def largest(self, value):
        """Returns the largest of the ranks' numbers."""
        if self.count == 1:
            return value
        device = "cpu" if dist.get_backend() == "gloo" else self.device
        number = torch.tensor([float(value)], device=device)
        dist.all_reduce(number, dist.ReduceOp.MAX)
        return float(number)

    def any(self, claim):
        return self.largest(bool(claim)) > 0

    def gathered(self, value):
        """Returns the ranks' values in order, on every rank."""
        if self.count == 1:
            return [value]
        values = [None] * self.count
        dist.all_gather_object(values, value)
        return values

    def barrier(self):
        self.largest(0)

    def say(self, text):
        if self.rank == 0:
            print(text, flush=True)

    def end(self, status):
        """Leaves the group that began here, and returns `status`. gloo aborts a rank that ends while
        another one still talks to it; after a fault the others may be gone."""
        if self.started:
            if status in (0, INTERRUPTED):
                self.barrier()
            stepsim_recorder.end_ranks()
        return status


def leave(status):
    """Ends a rank's process. The interpreter is not taken down: threads of PyTorch's groups sometimes
    abort the process then (pytorch#190489)."""
    sys.stdout.flush()
    sys.stderr.flush()
    if is_launched():
        os._exit(status)
    sys.exit(status)


def is_out_of_memory(error):
    text = str(error)
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError)
        and ("out of memory" in text or "can't allocate memory" in text)
    )
