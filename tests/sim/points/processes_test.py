"""Computes studies in one process, in threads, under mpirun, as shards, under GNU parallel, and with
--resume after kills: the bytes of the answer must be the same.

usage: processes_test.py PATH_OF_STEPSIM [--kills NUMBER]

--kills 100 is the whole check: that many SIGKILLs at random moments, of processes and of whole
jobs; a build's tests do with a few. Prints `N passed, N failed, N skipped`.
"""

import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests"))
import small_runner  # noqa: E402  (needs the path above)
from small_runner import in_new_folder  # noqa: E402

STEPSIM = os.path.abspath(sys.argv[1])
KILLS = int(sys.argv[sys.argv.index("--kills") + 1]) if "--kills" in sys.argv else 4
SCENARIOS = ROOT / "scenarios"
MPIRUN = shutil.which("mpirun")
PARALLEL = shutil.which("parallel")
LIMIT = 250  # Seconds for one command, on a busy machine.

SWEEP = ["sweep", str(SCENARIOS / "bucket_valley.toml"), "--over", "ddp.bucket_cap=1MiB..64MiB:x2"]
COMPARE = ["compare", str(SCENARIOS / "token_skew.toml")]
# Some seconds of points, so that a kill finds it at work.
LONG = ["sweep", str(SCENARIOS / "token_skew.toml"), "--policy", "token_budget", "--steps", "60",
        "--over", "policy.token_budget.max_tokens=512..2048:+16"]
OUTPUTS = ["--json", "answer.json", "--csv", "answer.csv", "--html", "answer.html"]


def environment(**more):
    """This test's, without what a launcher or a job may have left."""
    left = ("OMPI_", "PMI", "PMIX", "SLURM_")
    mine = {key: value for key, value in os.environ.items() if not key.startswith(left)}
    return {**mine, "SOURCE_DATE_EPOCH": "1", "PARALLEL_HOME": os.getcwd(), **more}


def run(command, status=0, **more):
    return small_runner.run(*command, status=status, env=environment(**more), timeout=LIMIT)


def stepsim(arguments, status=0, **more):
    return run([STEPSIM, *arguments], status, **more)


def under_mpirun(processes):
    """Its processes write what they print into files: Open MPI 5.0.7's mpirun loses a byte of it now and then."""
    root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    own_file = 'exec "$@" > printed-$OMPI_COMM_WORLD_RANK.txt'
    return [MPIRUN, "-n", str(processes), "--oversubscribe", *root, "sh", "-c", own_file, "sh", STEPSIM]


def answer_of(command, outputs=None):
    """All that a command writes, without standard error, where its comparison's planning time is of the clock."""
    outputs = OUTPUTS if outputs is None else outputs
    for name in [*outputs[1::2], *pathlib.Path().glob("printed-*.txt")]:
        pathlib.Path(name).unlink(missing_ok=True)
    done = run([*command, *outputs])
    printed = "".join(path.read_text(encoding="utf-8") for path in pathlib.Path().glob("printed-*.txt"))
    return [done.stdout + printed, *(pathlib.Path(name).read_bytes() for name in outputs[1::2])]


def has_mpi():
    """Whether this build deals out points under mpirun."""
    if MPIRUN is None:
        return False
    done = subprocess.run([*under_mpirun(2), *SWEEP, "--quiet"], env=environment(),
                          capture_output=True, text=True, timeout=LIMIT)
    assert done.returncode == 0 or "this build has no MPI" in done.stderr, done.stderr
    return done.returncode == 0


def outputs_here():
    """All outputs that this build has."""
    global OUTPUTS
    done = subprocess.run([STEPSIM, *COMPARE, "--html", "page.html"], env=environment(),
                          capture_output=True, text=True, timeout=LIMIT)
    if done.returncode != 0:
        print("pages: this build has none")
        OUTPUTS = OUTPUTS[:-2]


@in_new_folder
def test_threads_and_resume():
    for study in (SWEEP, COMPARE):
        whole = answer_of([STEPSIM, *study])
        assert answer_of([STEPSIM, *study, "--threads", "2"]) == whole
        assert answer_of([STEPSIM, *study, "--threads", "1"]) == whole
        pathlib.Path("points.jsonl").unlink(missing_ok=True)
        resumed = [STEPSIM, *study, "--resume", "points.jsonl"]
        assert answer_of(resumed) == whole
        size = os.path.getsize("points.jsonl")
        assert answer_of(resumed) == whole
        assert os.path.getsize("points.jsonl") == size, "a point was computed again"


@in_new_folder
def test_shards():
    for study in (SWEEP, COMPARE):
        whole = answer_of([STEPSIM, *study])
        for number in (1, 2):
            done = stepsim([*study, "--shard", f"{number}/2", "--resume", f"{number}.jsonl"])
            assert f"shard {number}/2: " in done.stdout, done.stdout
        parts = ["2.jsonl", "1.jsonl"]
        before = [pathlib.Path(part).read_bytes() for part in parts]
        assert answer_of([STEPSIM, "merge", *parts]) == whole
        assert [pathlib.Path(part).read_bytes() for part in parts] == before
        for part in parts:
            os.unlink(part)


@in_new_folder
def test_a_job_array():
    """Slurm's variables name the part, and {shard} its file."""
    whole = answer_of([STEPSIM, *SWEEP])
    for task in (3, 5, 7):
        stepsim([*SWEEP, "--shard", "auto", "--resume", "part-{shard}.jsonl"],
                SLURM_ARRAY_TASK_ID=str(task), SLURM_ARRAY_TASK_COUNT="3",
                SLURM_ARRAY_TASK_MIN="3", SLURM_ARRAY_TASK_STEP="2")
    parts = sorted(str(path) for path in pathlib.Path().glob("part-*.jsonl"))
    assert parts == ["part-1.jsonl", "part-2.jsonl", "part-3.jsonl"], parts
    assert answer_of([STEPSIM, "merge", *parts]) == whole


@in_new_folder
def test_gnu_parallel():
    if PARALLEL is None:
        raise small_runner.Skip("GNU parallel: not installed (Debian: parallel)")
    whole = answer_of([STEPSIM, *SWEEP])
    words = " ".join(SWEEP)
    run([PARALLEL, "-j2", f"{STEPSIM} {words} --shard {{}}/4 --resume part-{{}}.jsonl",
         ":::", "1", "2", "3", "4"])
    assert answer_of([STEPSIM, "merge", *[f"part-{k}.jsonl" for k in range(1, 5)]]) == whole


@in_new_folder
def test_mpirun():
    if not has_mpi():
        raise small_runner.Skip("mpirun: there is none, or this build has no MPI")
    for study in (SWEEP, COMPARE):
        whole = answer_of([STEPSIM, *study])
        assert answer_of([*under_mpirun(2), *study]) == whole
        assert answer_of([*under_mpirun(3), *study, "--threads", "2"]) == whole
        assert answer_of([*under_mpirun(2), *study, "--resume", "mpi.jsonl"]) == whole
        assert answer_of([STEPSIM, *study, "--resume", "mpi.jsonl"]) == whole
        os.unlink("mpi.jsonl")
    # Process 0 alone says what is wrong, and its status is mpirun's.
    wrong = ["sweep", SWEEP[1], "--over", "ddp.bucket_cap=1,0"]
    done = run([*under_mpirun(3), *wrong], status=2)
    alone = stepsim(wrong, status=2).stderr
    assert done.stderr.count(alone.splitlines()[0]) == 1, done.stderr
    # Each process is a shard of its own.
    run([*under_mpirun(2), *SWEEP, "--shard", "auto", "--resume", "part-{shard}.jsonl"])
    assert answer_of([STEPSIM, "merge", "part-1.jsonl", "part-2.jsonl"]) == answer_of(
        [STEPSIM, *SWEEP])


def test_refusals():
    @in_new_folder
    def body():
        def refused(arguments, *parts):
            message = stepsim(arguments, status=2).stderr
            assert all(part in message for part in parts), (arguments, message)

        kept = ["--resume", "points.jsonl"]
        stepsim([*SWEEP, *kept])
        refused([*COMPARE, *kept], "points.jsonl: error: holds the points of another command",
                "stepsim sweep ", "stepsim compare ")
        refused([*SWEEP, "--seed", "7", *kept], "holds the points of another command")
        refused([*SWEEP, "--shard", "1/2", *kept], "holds shard 1/1, this is 1/2")
        refused([*SWEEP, "--shard", "1/2"], "--shard goes with --resume FILE")
        refused([*SWEEP, "--shard", "1/2", "--resume", "a", "--json", "b"],
                "a shard is no answer: leave out --json")
        refused([*SWEEP, "--shard", "3/2", *kept], "--shard 3/2: expected K/N")
        refused([*SWEEP, "--shard", "auto", *kept], "this is no Slurm job array")
        refused([*SWEEP, "--resume", SWEEP[1]], "not a file of a study's points")
        refused(["merge"], "name the files of the shards")
        refused(["merge", "nowhere.jsonl"], "nowhere.jsonl")

        # Its scenario, its profile or the program's version has changed since.
        scenario = pathlib.Path("mine.toml")
        text = (SCENARIOS / "token_skew.toml").read_text()
        shutil.copytree(SCENARIOS / "profiles", "profiles")
        if (SCENARIOS / "lengths").exists():
            shutil.copytree(SCENARIOS / "lengths", "lengths")
        scenario.write_text(text)
        mine = ["compare", "mine.toml", "--resume", "mine.jsonl"]
        stepsim(mine)
        scenario.write_text(text.replace("[scenario]", "[scenario]\n# A word more.", 1))
        refused(mine, "mine.jsonl: error: the scenario, or a file that it names, has changed")
        refused(["merge", "mine.jsonl"], "the scenario, or a file that it names, has changed")
        scenario.write_text(text)
        stepsim(mine)
        profile = pathlib.Path(re.search(r'^profile = "(.*?)"', text, re.MULTILINE)[1])
        profile.write_text(profile.read_text() + "\n")
        refused(mine, "its points were computed with another profile")
        header, *rest = pathlib.Path("mine.jsonl").read_text().splitlines(keepends=True)
        newer = json.loads(header) | {"version": "99"}
        pathlib.Path("mine.jsonl").write_text(json.dumps(newer) + "\n" + "".join(rest))
        refused(mine, "written by stepsim 99, this is ")

        # Shards that are missing, there twice, not finished, or of another study.
        for number in (1, 2):
            stepsim([*SWEEP, "--shard", f"{number}/3", "--resume", f"{number}.jsonl"])
        refused(["merge", "1.jsonl", "2.jsonl"], "shard 3/3 of the study: missing",
                "--shard 3/3 --resume FILE")
        refused(["merge", "1.jsonl", "1.jsonl"], "shard 1/3 is in 1.jsonl already")
        stepsim([*COMPARE, "--shard", "3/3", "--resume", "3.jsonl"])
        refused(["merge", "1.jsonl", "2.jsonl", "3.jsonl"],
                "3.jsonl: error: holds the points of another command")
        os.unlink("3.jsonl")
        stepsim([*SWEEP, "--shard", "3/3", "--resume", "3.jsonl"])
        lines = pathlib.Path("2.jsonl").read_text().splitlines(keepends=True)
        pathlib.Path("2.jsonl").write_text("".join(lines[:-1]) + lines[-1][:40])
        refused(["merge", "1.jsonl", "2.jsonl", "3.jsonl"],
                "1 of its 3 points are not there yet; finish it:", "--shard 2/3 --resume 2.jsonl")
    body()


@in_new_folder
def test_two_processes_cannot_write_one_file():
    first = subprocess.Popen([STEPSIM, *LONG, "--resume", "points.jsonl", "--quiet"],
                             env=environment())
    try:
        deadline = time.monotonic() + LIMIT
        while not os.path.exists("points.jsonl") or os.path.getsize("points.jsonl") == 0:
            assert first.poll() is None and time.monotonic() < deadline
            time.sleep(0.01)
        message = stepsim([*LONG, "--resume", "points.jsonl"], status=2).stderr
        assert "points.jsonl: error: another process is writing it" in message, message
    finally:
        first.kill()
        first.wait()


def points_in(path):
    """The points of whole lines."""
    if not os.path.exists(path):
        return []
    text = pathlib.Path(path).read_text()
    return [json.loads(line)["point"] for line in text[:text.rfind("\n") + 1].splitlines()[1:]]


def processes_of(group):
    """The ids of stepsim's processes in a process group or its session, by /proc."""
    found = []
    for folder in pathlib.Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            name = os.readlink(folder / "exe")
            session = int((folder / "stat").read_text().rpartition(")")[2].split()[3])
        except (OSError, ValueError):
            continue
        if name == STEPSIM and session == group:
            found.append(int(folder.name))
    return found


def kill_at_random(command, chance, longest):
    """Starts the command, kills one of its processes, or all of them, and waits for its end."""
    process = subprocess.Popen(command, env=environment(), start_new_session=True,
                               stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        process.wait(chance.uniform(0, longest))
        return False  # It had ended before.
    except subprocess.TimeoutExpired:
        pass
    workers = processes_of(process.pid)
    if workers and chance.random() < 0.5:
        victim = chance.choice(workers)
        try:
            os.kill(victim, signal.SIGKILL)
        except ProcessLookupError:
            pass
    else:
        os.killpg(process.pid, signal.SIGKILL)
        for worker in workers:  # mpirun gives its processes groups of their own.
            try:
                os.kill(worker, signal.SIGKILL)
            except ProcessLookupError:
                pass
    _, errors = process.communicate(timeout=LIMIT)
    deadline = time.monotonic() + LIMIT
    while processes_of(process.pid):
        assert time.monotonic() < deadline, "processes are left"
        time.sleep(0.01)
    assert process.returncode != 0 or not errors, (process.returncode, errors)
    return process.returncode != 0


def check_kills(command, processes, wanted, seed):
    """Kills the command until that has happened so often, then lets it end."""
    whole = answer_of([STEPSIM, *LONG])
    chance = random.Random(seed)
    path = "points.jsonl"
    kills = lost = finished = 0
    while kills < wanted:
        before = points_in(path)
        if kill_at_random([*command, *LONG, "--resume", path, "--quiet"], chance, 1.5):
            kills += 1
        after = points_in(path)
        assert after[: len(before)] == before, "a finished point was lost"
        assert len(set(after)) == len(after), "a point was computed again"
        if len(after) == 98:  # All points and the reference: begin again.
            assert answer_of([STEPSIM, *LONG, "--resume", path]) == whole
            os.unlink(path)
            finished += 1
    done = points_in(path)
    assert answer_of([*command, *LONG, "--resume", path]) == whole
    assert points_in(path)[: len(done)] == done
    assert len(points_in(path)) == 98
    print(f"    {kills} kills of {processes} processes: {finished + 1} studies finished, "
          "each with the bytes of one process; no finished point lost or computed twice")


@in_new_folder
def test_kills():
    check_kills([STEPSIM], 1, (KILLS + 1) // 2, seed=KILLS)


@in_new_folder
def test_kills_under_mpirun():
    if not has_mpi():
        raise small_runner.Skip("mpirun: there is none, or this build has no MPI")
    check_kills(under_mpirun(3), 3, KILLS // 2, seed=KILLS + 1)


@in_new_folder
def test_a_dead_process_ends_the_job():
    if not has_mpi():
        raise small_runner.Skip("mpirun: there is none, or this build has no MPI")
    process = subprocess.Popen([*under_mpirun(2), *LONG, "--resume", "points.jsonl"],
                               env=environment(), start_new_session=True, text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    deadline = time.monotonic() + LIMIT
    while len(points_in("points.jsonl")) < 3:
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.01)
    os.kill(max(processes_of(process.pid)), signal.SIGKILL)
    _, errors = process.communicate(timeout=LIMIT)
    assert process.returncode != 0
    assert "exited on signal 9" in " ".join(errors.split()), errors  # Open MPI 5 breaks the line.


if __name__ == "__main__":
    in_new_folder(outputs_here)()
    sys.exit(small_runner.main(dict(globals())))
