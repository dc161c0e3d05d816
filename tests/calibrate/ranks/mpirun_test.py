"""Starts stepcal with a real mpirun, two ranks on this machine: measure, and what goes wrong.

usage: mpirun_test.py PATH_OF_STEPCAL
"""

import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

STEPCAL = os.path.abspath(sys.argv[1])
MPIRUN = shutil.which("mpirun")
SKIPPED = 77
LIMIT = 280  # Seconds for all, on a busy machine.

MODEL = ["--model", "tiny-classifier", "--max-length", "32", "--max-tokens", "64"]
LITTLE = [*MODEL, "--budget", "1"]
# In the place of ssh: drops its options and the host's name, and runs the command here.
AGENT = """#!/bin/sh
while [ "${1#-}" != "$1" ]; do shift; done
shift
exec sh -c "$*"
"""


def command(arguments, options=()):
    root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    return [MPIRUN, "-n", "2", "--oversubscribe", *root, *options, STEPCAL, *arguments]


def environment():
    """This test's, without what another launcher may have left."""
    port = 20000 + os.getpid() % 20000
    left = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    mine = {key: value for key, value in os.environ.items() if key not in left}
    return {**mine, "STEPSIM_PORT": str(port)}


def run(arguments, options=(), status=0):
    done = subprocess.run(
        command(arguments, options),
        env=environment(),
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )
    assert done.returncode == status, (arguments, done.returncode, done.stdout, done.stderr)
    return done


def lines_of(path):
    return [json.loads(line) for line in pathlib.Path(path).read_text().splitlines()]


def test_measure():
    done = run(["measure", *LITTLE, "--out", "samples.jsonl"])
    assert done.stdout.count("measuring tiny-classifier on 2 ranks (cpu)") == 1, done.stdout
    header, *samples = lines_of("samples.jsonl")
    assert header["plan"]["ranks"] == 2 and header["plan"]["nodes"] == 1, header["plan"]
    assert any(sample["kind"] == "collective" for sample in samples)
    again = run(["measure", *LITTLE, "--out", "samples.jsonl"])
    assert again.stdout.startswith("going on with tiny-classifier on 2 ranks"), again.stdout


def test_fit():
    run(["measure", *LITTLE, "--out", "fitted.jsonl"])
    fit = [STEPCAL, "fit", "fitted.jsonl", "--out", "here.json"]
    subprocess.run(fit, check=True, capture_output=True, timeout=LIMIT)
    tables = json.loads(pathlib.Path("here.json").read_text())["collectives"]
    assert {table["kind"] for table in tables} == {"all_reduce", "reduce_scatter", "all_gather"}
    assert all(table["ranks"] == 2 for table in tables), tables


def test_refusals():
    """Rank 0 alone says what is wrong, and mpirun returns its status."""
    done = run(["measure", *LITTLE, "--ranks", "3", "--out", "three.jsonl"], status=2)
    message = "stepcal: error: 3 ranks are asked for, but mpirun has started 2\n"
    assert done.stderr.count(message) == 1, done.stderr
    # Two machines, as far as mpirun knows.
    agent = pathlib.Path("agent")
    agent.write_text(AGENT)
    agent.chmod(0o755)
    hosts = ["--mca", "plm_rsh_agent", str(agent.absolute()), "--host", "localhost:1,elsewhere:1"]
    hosts += ["--map-by", "node"]  # Else Open MPI 5 fills the first one beyond its slots.
    here = ["-x", "MASTER_ADDR=" + socket.gethostname()]
    done = run(["measure", *LITTLE, "--out", "two.jsonl"], [*hosts, *here], status=2)
    message = "stepcal: error: the CPU backend works on one machine; its ranks are on 2\n"
    assert done.stderr.count(message) == 1, done.stderr
    done = run(["measure", *LITTLE, "--out", "two.jsonl"], hosts, status=2)
    assert "MASTER_ADDR is not set: the ranks of mpirun are on several machines" in done.stderr


def test_interrupt():
    """Ctrl-C reaches all ranks; what was measured by then is kept."""
    arguments = ["measure", *MODEL, "--budget", "1000", "--out", "cut.jsonl"]
    # Not through mpirun, which may drop what a rank prints at its very end.
    patient = ["--mca", "odls_base_sigkill_timeout", "5"]  # By default one second.
    to_file = ["bash", "-c", 'exec "$0" "$@" 2>errors.$OMPI_COMM_WORLD_RANK']
    process = subprocess.Popen(
        command(arguments, [*patient, *to_file]), env=environment(), stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    samples = pathlib.Path("cut.jsonl")
    deadline = time.monotonic() + LIMIT
    while not samples.exists() or samples.read_text().count("\n") < 5:
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=LIMIT)
    errors = pathlib.Path("errors.0").read_text()
    assert process.returncode != 0, errors
    version = subprocess.run([MPIRUN, "--version"], capture_output=True, text=True).stdout
    # Version 5 kills a fifth of a second after the signal: too soon for a rank to say anything.
    if "(Open MPI) 5" not in version:
        assert "interrupted" in errors and "kept" in errors, errors
    assert len(lines_of("cut.jsonl")) >= 5


if MPIRUN is None:
    print("skipped: there is no mpirun here (Debian: openmpi-bin)")
    sys.exit(SKIPPED)
with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    for test in (test_measure, test_fit, test_refusals, test_interrupt):
        test()
        print(test.__name__, "passed", flush=True)
    os.chdir("/")
