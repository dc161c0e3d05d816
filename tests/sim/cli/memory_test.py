"""Checks that the memory of a run is estimated before it is taken, and that too much is refused.

usage: memory_test.py PATH_OF_STEPSIM
"""

import os
import pathlib
import re
import resource
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
import small_runner  # noqa: E402  (needs the path above)

STEPSIM = os.path.abspath(sys.argv[1])
SCENARIOS = pathlib.Path(__file__).resolve().parents[3] / "scenarios"
SKEW = str(SCENARIOS / "token_skew.toml")
WIDE = str(SCENARIOS / "engines_step.toml")
UNITS = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
STATED_FACTOR = 2  # As MemoryNeed says.


def ask(arguments, **settings):
    return subprocess.run([STEPSIM, *arguments], capture_output=True, text=True, timeout=200, **settings)


def estimate(arguments):
    """The bytes that a refusal names."""
    result = ask([*arguments, "--memory-limit", "4 KiB"])
    assert result.returncode == 2, result.stderr
    number, unit = re.search(r"needs about ([\d.]+) (\w+) of memory", result.stderr).groups()
    return float(number) * UNITS[unit]


def measured_peak(arguments):
    """The most bytes that the program has in memory."""
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen([STEPSIM, *arguments], stdout=output, stderr=output)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, arguments
    return usage.ru_maxrss * 1024


def test_the_estimate_is_half_to_twice_the_measured_peak():
    policy = ["--policy", "variable_fixed"]
    cases = {
        "many samples": ["run", SKEW, *policy, "--set", "data.samples=4000000"],
        "many steps": ["run", SKEW, *policy, "--steps", "40000"],
        "many different batches": ["run", SKEW, "--policy", "token_budget", "--steps", "40000",
                                   "--set", "data.samples=2000000"],
        "one sample a batch": ["run", WIDE, "--set", "data.samples=2000000"],
        "many ranks": ["run", WIDE, "--set", "cluster.ranks=20000", "--set", "data.samples=40000"],
        "times of each kernel": ["run", SKEW, *policy, "--steps", "4", "--set", "scenario.warmup_steps=0", "--set",
                                 "noise.op_jitter=0.03", "--set", "cluster.ranks=512", "--set", "cluster.slow_ranks=[]",
                                 "--set", "data.samples=80000", "--set", "ddp.accumulation_steps=16", "--set",
                                 'cluster.topology={algorithm="ring",intra_latency="3 us",intra_bandwidth="9 GB/s"}'],
        "rows as CSV": ["run", SKEW, *policy, "--steps", "40000", "--csv", "-", "-q"],
        "rows as JSON": ["run", SKEW, *policy, "--steps", "20000", "--json", "-", "-q"],
        "training effects": ["compare", SKEW, "--threads", "1", "--set", "data.samples=1000000"],
        "a plan": ["plan", SKEW, *policy, "--steps", "50000", "--out", "-"],
    }
    wrong = {}
    for name, arguments in cases.items():
        # Under a limit: without one, stages are kept for jobs to come that are no part of what is needed.
        wanted = estimate(arguments)
        peak = measured_peak([*arguments, "--memory-limit", f"{STATED_FACTOR * wanted:.0f} B"])
        print(f"{name}: {wanted / 1e6:.0f} MB estimated, {peak / 1e6:.0f} MB measured")
        if not 1 / STATED_FACTOR <= wanted / peak <= STATED_FACTOR:
            wrong[name] = (wanted, peak)
    assert not wrong, wrong


def test_every_command_that_plans_refuses_what_needs_too_much():
    with tempfile.TemporaryDirectory() as folder:
        for command in (
            ["run", SKEW],
            ["compare", SKEW],
            ["sweep", SKEW, "--over", "ddp.bucket_cap=1MiB,2MiB"],
            ["tune", SKEW, "--over", "ddp.bucket_cap=1MiB,2MiB"],
            ["plan", SKEW, "--out-dir", folder],
            ["blame", SKEW],
            ["trace", SKEW, "--out", folder + "/trace.json"],
        ):
            result = ask([*command, "--set", "data.samples=134217728", "--memory-limit", "2 GiB"])
            words = ("needs about", "may take", "134217728 samples", "of 4 ranks in 12 steps", "--steps",
                     "--set data.samples=NUMBER", "--memory-limit")
            missing = [word for word in words if word not in result.stderr]
            assert result.returncode == 2 and not missing, (command, missing, result.stderr)
        assert not os.listdir(folder)


def test_many_plans_need_the_program_and_one_epoch_s_work_once():
    text = pathlib.Path(SKEW).read_text(encoding="utf-8")
    head = text[: text.index("[[policy]]")].replace('profile = "', f'profile = "{SCENARIOS}/')
    many = "".join(f'[[policy]]\nname = "p{i}"\nkind = "fixed"\nbatch_size = {i % 16 + 1}\n' for i in range(1600))
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "many.toml")
        pathlib.Path(file).write_text(head + many, encoding="utf-8")
        arguments = ["plan", file, "--out-dir", os.path.join(folder, "plans")]
        peak = measured_peak(arguments)
        limit = f"{STATED_FACTOR * peak // 2**20} MiB"
        result = ask([*arguments, "--memory-limit", limit])
        assert result.returncode == 0, (limit, result.stderr)
        assert ask([*arguments, "--memory-limit", f"{peak // 2**20 // 8} MiB"]).returncode == 2


def test_a_limit_of_the_shell_holds_and_a_stated_one_replaces_it():
    limit = 3 * 2**30

    def limited():
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))

    many = ["run", SKEW, "--steps", "1000000", "--csv", "-", "-q", "--set", "data.samples=100000000"]
    result = ask(many, preexec_fn=limited)
    assert result.returncode == 2 and "may take 3 GiB" in result.stderr, result.stderr
    result = ask([*many, "--memory-limit", "64 MiB"], preexec_fn=limited)
    assert result.returncode == 2 and "may take 64 MiB" in result.stderr, result.stderr
    assert ask(["run", SKEW, "--memory-limit", "1 GiB"], preexec_fn=limited).returncode == 0


def test_what_no_memory_holds_is_bad_input_as_before():
    for samples in (10**10, 10**18):
        result = ask(["run", SKEW, "--set", f"data.samples={samples}"])
        assert result.returncode == 2 and "expected at most 134217728" in result.stderr, result.stderr
    result = ask(["run", SKEW, "--memory-limit", "5 MB"])
    assert result.returncode == 2 and "--memory-limit: unknown unit 'MB'" in result.stderr, result.stderr


if __name__ == "__main__":
    sys.exit(small_runner.main(globals()))
