#!/usr/bin/env python3
"""stepsim_calibrate.py on real models over gloo on the CPU, up to the profile and a prediction.

usage: torch_calibrate_test.py PATH_OF_STEPCAL PATH_OF_STEPSIM
"""

import contextlib
import io
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[3]
TORCH = ROOT / "calibrate" / "torch"
sys.path.insert(0, str(ROOT / "tests"))
import small_runner  # noqa: E402  (needs the path above)
from torch_store import ended, free_port, torch_or_skip  # noqa: E402

STEPCAL, STEPSIM = (os.path.abspath(path) for path in sys.argv[1:3])
CALIBRATE = TORCH / "stepsim_calibrate.py"
SHAPES = [[16, 64], [8, 64], [24, 32], [8, 32], [16, 16], [4, 16], [2, 60], [12, 48]]
MODEL = """
import torch

def make_model():
    layers = [torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 64)]
    return torch.nn.Sequential(*layers, torch.nn.Linear(64, 1))

def make_batch(samples, length, device):
    return torch.randn(samples, length, 64, device=device)

def loss(model, batch):
    return model(batch).square().mean()
"""
SCENARIO = """
[scenario]
name = "mine"
steps = 8
warmup_steps = 2
[cluster]
ranks = RANKS
profile = "mine.json"
communicator = "gloo"
[model]
kind = "recorded"
[data]
samples = 200
lengths = { uniform = [8, 64], seed = 1 }
[[policy]]
name = "fixed"
kind = "fixed"
batch_size = 8
[[policy]]
name = "token_budget"
kind = "token_budget"
max_tokens = 300
"""


def start(ranks, *options, model=MODEL, shapes=None):
    """Starts all ranks; with one rank without torch.distributed."""
    torch_or_skip()
    pathlib.Path("my_model.py").write_text(model, encoding="utf-8")
    if shapes is not None:
        rows = [{"samples": samples, "length": length} for samples, length in shapes]
        text = json.dumps({"format": "stepsim-shapes/1", "shapes": rows})
        pathlib.Path("shapes.json").write_text(text, encoding="utf-8")
    address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    command = [sys.executable, str(CALIBRATE), "my_model.py", "--shapes", "shapes.json"]
    command += ["--out", "mine", "--device", "cpu", *options]
    processes = []
    for rank in range(ranks):
        names = {"RANK": str(rank), "WORLD_SIZE": str(ranks), **address} if ranks > 1 else {}
        processes.append(
            subprocess.Popen(
                command,
                env={**os.environ, **names, "OMP_NUM_THREADS": "1"},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
        )
    return processes


def run(ranks, *options, **more):
    return ended(start(ranks, *options, **more))


def shell(command):
    """Runs a command that was printed."""
    folders = [os.path.dirname(STEPCAL), os.path.dirname(STEPSIM), os.environ["PATH"]]
    done = subprocess.run(
        command,
        shell=True,
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, "PATH": os.pathsep.join(folders)},
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def next_command(output):
    last = output.strip().splitlines()[-1]
    assert last.startswith("next: "), output
    return last[len("next: ") :]


def read_record(path):
    lines = pathlib.Path(path).read_text(encoding="utf-8").splitlines()
    header, *rows = map(json.loads, lines)
    return header, rows


def wait_for_rows(processes, count):
    """Waits until rank 0 has recorded so many steps."""
    path = pathlib.Path("mine.rank0.jsonl")
    deadline = time.monotonic() + 600
    while not path.exists() or path.read_bytes().count(b"\n") < count:
        assert processes[0].poll() is None, processes[0].communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)


def size(row):
    return [row["samples"], row["max_length"]]


@small_runner.in_new_folder
def test_one_rank_from_a_scenario_to_its_predictions():
    torch_or_skip()
    pathlib.Path("mine.toml").write_text(SCENARIO.replace("RANKS", "1"), encoding="utf-8")
    shell("stepsim plan mine.toml --out-dir plans")
    told = shell("stepcal grid plans/*.jsonl --out shapes.json --count 12")
    assert "next: python3 -m stepsim.torch.calibrate my_model.py --shapes shapes.json" in told, told
    with open("shapes.json", encoding="utf-8") as file:
        chosen = json.load(file)["shapes"]
    shapes = [[one["samples"], one["length"]] for one in chosen]
    assert len(shapes) == 12, shapes
    a_round = sorted(pair for one, pair in zip(chosen, shapes) for _ in range(one["runs"]))
    (status,), (output,) = run(1, "--seconds", "1.5", "--target", "0.0001")
    assert status == 0, output
    header, rows = read_record("mine.jsonl")
    assert header["policy"] == "calibration" and header["world_size"] == 1, header
    assert header["calibration"] == {"shapes": shapes, "skipped": []}, header
    steady = rows[header["warmup_steps"] :]
    first_round = [size(row) for row in steady[: len(a_round)]]
    assert sorted(first_round) == a_round, first_round
    later = [size(row) for row in steady[len(a_round) : 2 * len(a_round)]]
    assert sorted(later) == a_round and later != first_round, later
    assert all(row["lengths"] == [row["max_length"]] * row["samples"] for row in rows)
    assert not any(row["buckets"] for row in rows)
    report = shell(next_command(output))
    assert "steps of 1 ranks" in report, report
    predicted = shell("stepsim compare mine.toml")
    assert "token_budget" in predicted, predicted


@small_runner.in_new_folder
def test_two_ranks_with_bucket_times_and_a_sweep():
    model = MODEL + "ddp = {'bucket_cap_mb': 0.05}\n"
    statuses, outputs = run(2, "--seconds", "15", "--target", "1", model=model, shapes=SHAPES)
    assert statuses == [0, 0], "\n".join(outputs)
    assert "next:" not in outputs[1], outputs[1]
    header, rows = read_record("mine.jsonl")
    assert header["world_size"] == 2 and header["backend"] == "gloo", header
    assert header["ddp"]["bucket_cap_bytes"] == int(0.05 * 2**20), header
    warmup = header["warmup_steps"]
    pairs = [
        [size(row) for row in rows if row["step"] == step]
        for step in range(warmup, 1 + rows[-1]["step"])
    ]
    differ = [sum(a != b for a, b in pairs[n : n + 8]) for n in range(0, len(pairs), 8)]
    assert differ[:2] == [8, 0], differ  # Different shapes on the ranks, then the same.
    _, watched = read_record("mine.buckets.jsonl")
    gradients = 4 * (64 * 256 + 256 + 256 * 64 + 64 + 64 + 1)
    assert {sum(one["bytes"] for one in row["buckets"]) for row in watched} == {gradients}
    starts = [row["start_ms"] for row in watched]
    assert rows[0]["start_ms"] < min(starts) and max(starts) < rows[-1]["start_ms"]
    report = shell(next_command(outputs[0]))
    assert "all-reduce of" in report and "steps of 2 ranks" in report, report
    profile = json.loads(pathlib.Path("mine.json").read_text(encoding="utf-8"))
    assert profile["collectives"], profile
    pathlib.Path("mine.toml").write_text(SCENARIO.replace("RANKS", "2"), encoding="utf-8")
    assert "token_budget" in shell("stepsim compare mine.toml")


@small_runner.in_new_folder
def test_without_ddp_a_shape_without_memory_is_skipped_on_all_ranks_and_said():
    model = MODEL.replace(
        "    return model(",
        """    if torch.distributed.get_rank() == 1 and batch.shape[0] * batch.shape[1] > 600:
        raise RuntimeError("CUDA out of memory. Tried to allocate 9 GiB")
    return model(""",
    )
    options = ["--seconds", "3", "--target", "1", "--no-ddp"]
    statuses, outputs = run(2, *options, model=model, shapes=SHAPES)
    assert statuses == [0, 0], "\n".join(outputs)
    header, rows = read_record("mine.jsonl")
    gone = [[16, 64], [24, 32]]
    skipped = header["calibration"]["skipped"]
    assert [[one["samples"], one["length"]] for one in skipped] == gone, skipped
    assert not [row for row in rows if size(row) in gone]
    assert "skipped: 16 x 64: out of memory on another rank" in outputs[0], outputs[0]
    assert "ddp" not in header and not os.path.exists("mine.buckets.jsonl")
    report = shell(next_command(outputs[0]))
    assert "warning: mine.jsonl: skipped 24 samples x 32: out of memory" in report, report


@small_runner.in_new_folder
def test_an_interrupt_keeps_what_was_measured():
    processes = start(2, "--seconds", "20", "--target", "0", model=MODEL, shapes=SHAPES)
    wait_for_rows(processes, 60)
    processes[1].send_signal(signal.SIGINT)  # One rank tells the others.
    statuses, outputs = ended(processes)
    assert statuses == [130, 130], (statuses, outputs)
    assert "interrupted (another rank): what was measured is kept" in outputs[0], outputs[0]
    _, rows = read_record("mine.jsonl")
    assert len(rows) >= 50 * 2
    shell(next_command(outputs[0]))


@small_runner.in_new_folder
def test_a_rank_that_dies_leaves_the_files_of_the_ranks():
    processes = start(2, "--seconds", "20", "--target", "0", model=MODEL, shapes=SHAPES)
    wait_for_rows(processes, 40)
    processes[1].kill()
    statuses, outputs = ended(processes)
    assert statuses == [3, -signal.SIGKILL], (statuses, outputs)
    assert "Traceback" in outputs[0], outputs[0]
    shell(next_command(outputs[0]))


@small_runner.in_new_folder
def test_wrong_input_names_what_is_wrong():
    torch_or_skip()
    sys.path.insert(0, str(TORCH))
    import stepsim_calibrate  # pylint: disable=import-outside-toplevel
    import stepsim_job  # pylint: disable=import-outside-toplevel

    def said(*texts, shapes=SHAPES, model=MODEL, out="mine"):
        """In this process, which has torch already."""
        pathlib.Path("my_model.py").write_text(model, encoding="utf-8")
        pathlib.Path("shapes.json").write_text(json.dumps({"shapes": shapes}), encoding="utf-8")
        arguments = ["my_model.py", "--shapes", "shapes.json", "--out", out, "--device", "cpu"]
        options = stepsim_calibrate.parse_arguments(arguments)
        error = io.StringIO()
        with contextlib.redirect_stderr(error):
            assert stepsim_job.outcome(stepsim_calibrate.run, options) == 2
        for text in texts:
            assert text in error.getvalue(), error.getvalue()

    only_model = "def make_model(): pass\n"
    said("my_model.py: defines no make_batch(samples, length, device)", model=only_model)
    said("Traceback", "error: my_model.py: ZeroDivisionError", model="1 / 0\n")
    said("shape 1: expected sizes of 1 or more", shapes=[[4, 8], [0, 8]])
    said("shapes.json: no shapes", shapes=[])
    said("expected one number with a gradient", model=MODEL.replace(".mean()", ""))
    said("precision: expected none, bf16 or fp16, got 'fp8'", model=MODEL + "precision = 'fp8'")
    said("--out: no folder no/such", out="no/such/file")


@small_runner.in_new_folder
def test_an_error_of_one_rank_ends_all_of_them():
    model = MODEL.replace(
        "    return torch.randn",
        "    if torch.distributed.get_rank() == 1:\n        1 / 0\n    return torch.randn",
    )
    statuses, outputs = run(2, model=model, shapes=SHAPES)
    assert statuses == [2, 2], outputs
    assert "error: another rank failed" in outputs[0] and "Traceback" not in outputs[0], outputs[0]
    for text in (
        "line 10, in make_batch",
        "error: make_batch(16, 64, device(type='cpu')) of my_model.py failed: ZeroDivisionError",
    ):
        assert text in outputs[1], outputs[1]


@small_runner.in_new_folder
def test_first_contact_with_a_gpu_is_rehearsed():
    """Two cases of first_contact.py with small models: through calibrate(), one rank with DDP."""
    torch_or_skip()
    program = [sys.executable, str(TORCH / "first_contact.py"), "out", "--small", "--seconds", "6"]
    done = subprocess.run(program, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    summary = json.loads(pathlib.Path("out/summary.json").read_text(encoding="utf-8"))
    assert "out: 2 of 2 cases" in done.stdout or "hugging" in done.stdout, done.stdout
    assert "no cuDNN" in summary["cases"]["gpt2_without_cudnn"]["left_out"], summary
    for name in ("gpt2", "bert"):
        case = summary["cases"][name]
        assert case["status"] == 0, summary
        header, rows = read_record(f"out/{name}.jsonl")
        assert header["world_size"] == 1 and header["backend"] == "gloo", header
        assert "ddp" in header and len(rows) > 12, len(rows)
        assert os.path.getsize(f"out/{name}.kernels.txt") > 1000
        shell(case["import"])


@small_runner.in_new_folder
def test_shapes_that_ran_too_rarely_at_first_contact_are_told():
    torch_or_skip()
    sys.path.insert(0, str(TORCH))
    import first_contact

    rows = [{"samples": 2, "max_length": 8}] * 3 + [{"samples": 4, "max_length": 8}] * 2
    header = {"calibration": {"shapes": [[2, 8], [4, 8], [1, 9]]}}
    with open("record.jsonl", "w", encoding="utf-8") as file:
        file.writelines(json.dumps(line) + "\n" for line in [header, *rows])
    assert first_contact.rarely_run("record.jsonl") == [(4, 8), (1, 9)]


@small_runner.in_new_folder
def test_the_example_of_the_readme():
    torch_or_skip()
    text = (TORCH / "README.md").read_text(encoding="utf-8")
    part = text[text.index("## Calibrating your own") : text.index("## All-reduces, gathers and scatters by size")]
    (model,) = re.findall(r"```python\n(.*?)```", part, re.DOTALL)
    (scenario,) = re.findall(r"```toml\n(.*?)```", part, re.DOTALL)
    pathlib.Path("mine.toml").write_text(scenario, encoding="utf-8")
    commands = re.search(r"```sh\n(.*?)```", part, re.DOTALL).group(1)
    plan, grid, calibrate, nccl, record, compare = [
        line.partition("#")[0] for line in commands.replace("\\\n", "").strip().splitlines()
    ]
    shell(plan)
    shell(grid)
    assert calibrate.strip() == (
        "python3 stepsim_calibrate.py my_model.py --shapes shapes.json --out mine"
    ), calibrate
    statuses, outputs = run(2, "--seconds", "60", "--target", "1", model=model)
    assert statuses == [0, 0], "\n".join(outputs)
    # A PyTorch with fully_shard measured these, too, which the example's comment says.
    sharded = " mine.all_gather.log mine.reduce_scatter.log"
    told = next_command(outputs[0])
    assert told.replace(sharded, "") == f"{nccl.strip()} && {record.strip()}", outputs[0]
    assert (sharded in told) == pathlib.Path("mine.all_gather.log").exists(), told
    shell(told)
    assert "token_budget" in shell(compare)


if __name__ == "__main__":
    sys.exit(small_runner.main(dict(globals())))
