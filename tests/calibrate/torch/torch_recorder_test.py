#!/usr/bin/env python3
"""The recorder for PyTorch, in real DDP training over gloo on the CPU.

Run with RANK in the environment it is one rank of such a training: `torch_recorder_test.py MODE`.
"""

import itertools
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "calibrate" / "torch")]

import small_runner  # noqa: E402
import torch_ranks  # noqa: E402
from torch_store import torch_or_skip  # noqa: E402
import stepsim_recorder  # noqa: E402

SCENARIO = ROOT / "scenarios" / "token_skew_2ranks.toml"
POLICY = "bucketing"
STEPS = 10
MODEL_BYTES = 4 * ((64 * 512 + 512) + (512 * 512 + 512) + (512 + 1))


# ---- one rank -------------------------------------------------------------------------------


def plan_lengths(rank):
    """Lengths of each step as planned, [step][sample]."""
    with open("plan.jsonl", encoding="utf-8") as lines:
        next(lines)
        rows = [json.loads(line) for line in lines]
    return [row["lengths"] for row in rows if row["rank"] == rank][:STEPS]


def make_model():
    import torch

    torch.manual_seed(1)
    layers = [torch.nn.Linear(64, 512), torch.nn.ReLU(), torch.nn.Linear(512, 512)]
    return torch.nn.Sequential(*layers, torch.nn.Linear(512, 1))


def train(recorder, rank, watch=None, before_step=None):
    """Ten steps on the planned lengths (two ranks'). Returns each step's gradients as bytes."""
    import torch

    ddp = torch.nn.parallel.DistributedDataParallel(make_model(), bucket_cap_mb=1)
    if watch is not None:
        watch(ddp)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.01)
    torch.manual_seed(100 + rank)
    gradients = []
    for number, lengths in enumerate(plan_lengths(rank % 2)):
        if before_step:
            before_step(number)
        with recorder.step(lengths=torch.tensor(lengths)):
            optimizer.zero_grad()
            loss = ddp(torch.randn(len(lengths), max(lengths), 64)).square().mean()
            recorder.backward(loss)
            optimizer.step()
        gradients += [parameter.grad.numpy().tobytes() for parameter in ddp.parameters()]
    return gradients


def rank_records(rank):
    recorder = stepsim_recorder.Recorder("run", policy=POLICY, scenario="token_skew_2ranks")
    train(recorder, rank, watch=recorder.watch)
    recorder.close()


def rank_describes(rank):
    import torch

    model = make_model()
    model[0].bias.requires_grad_(False)
    model.register_buffer("steps", torch.zeros(3, dtype=torch.int64))
    ddp = torch.nn.parallel.DistributedDataParallel(model, bucket_cap_mb=1, broadcast_buffers=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    loader = torch.utils.data.DataLoader(range(16), batch_size=4, drop_last=True)
    recorder = stepsim_recorder.Recorder(
        "described", model=ddp, optimizer=optimizer, loader=loader
    )
    for lengths in plan_lengths(rank):
        with recorder.step(lengths=lengths):
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = ddp(torch.randn(len(lengths), max(lengths), 64)).square().mean()
            recorder.backward(loss)
            optimizer.step()
    recorder.close()


def wrapping(module):
    """A module that holds another one as torch.compile's OptimizedModule does, also before 2.0."""
    import torch

    class OptimizedModule(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self._orig_mod = module

        def forward(self, inputs):
            return self._orig_mod(inputs)

    return OptimizedModule()


def rank_wraps(rank):
    """DDP in a wrapper, a wrapper in DDP, both; a wrapped layer; an optimizer in an optimizer."""
    import torch

    class AcceleratedOptimizer(torch.optim.Optimizer):
        def __init__(self, optimizer):
            super().__init__(optimizer.param_groups, {})
            self.optimizer = optimizer

        def step(self, closure=None):
            return self.optimizer.step(closure)

    parallel = torch.nn.parallel.DistributedDataParallel
    inner = make_model()
    inner[2] = wrapping(inner[2])
    models = {
        "plain": parallel(make_model()),
        "around": wrapping(parallel(make_model())),
        "inside": parallel(wrapping(make_model())),
        "both": wrapping(parallel(wrapping(make_model()))),
        "layer": parallel(inner),
        "alone": wrapping(make_model()),
    }
    gradients = {}
    for name, model in models.items():
        torch.manual_seed(100 + rank)
        optimizer = AcceleratedOptimizer(torch.optim.SGD(model.parameters(), lr=0.01))
        recorder = stepsim_recorder.Recorder(name, model=model, optimizer=optimizer)
        for _ in range(3):
            with recorder.step(lengths=[5]):
                optimizer.zero_grad()
                with torch.autocast("cpu", dtype=torch.bfloat16):
                    loss = model(torch.randn(1, 5, 64)).square().mean()
                recorder.backward(loss)
                optimizer.step()
        assert recorder.recording, recorder.error
        recorder.close()
        gradients[name] = [one.grad.numpy().tobytes() for one in model.parameters()]
    assert all(gradients[name] == gradients["plain"] for name in models if name != "alone")


def rank_compiles(rank):
    """A compiled model, DDP inside of that and around it, and compiled in place."""
    import torch

    class Net(torch.nn.Module):  # PyTorch's own modules are not compiled by themselves.
        def __init__(self):
            super().__init__()
            self.layers = make_model()

        def forward(self, inputs):
            return self.layers(inputs).square().sum()

    parallel = torch.nn.parallel.DistributedDataParallel
    in_place = parallel(Net())
    in_place.compile(backend="eager")
    models = {
        "around": torch.compile(parallel(Net()), backend="eager"),
        "inside": parallel(torch.compile(Net(), backend="eager", dynamic=False)),
        "in_place": in_place,
    }
    for name, model in models.items():
        torch._dynamo.reset()  # Or one model's graphs serve the next one.
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        recorder = stepsim_recorder.Recorder(name, model=model, optimizer=optimizer)
        for length in [5, 5, 7, 9, 7, 5]:
            with recorder.step(lengths=[length, length]):
                recorder.backward(model(torch.ones(2, length, 64)))
                optimizer.step()
        assert recorder.recording, recorder.error
        recorder.close()


def rank_is_killed(rank):
    recorder = stepsim_recorder.Recorder("run", policy=POLICY)

    def before_step(number):
        if rank == 1 and number == 6:
            os.kill(os.getpid(), signal.SIGKILL)

    train(recorder, rank, before_step=before_step)


def rank_accumulates(rank):
    """Two micro-batches a step, the first without communication; a step without backward."""
    import torch

    ddp = torch.nn.parallel.DistributedDataParallel(make_model())
    recorder = stepsim_recorder.Recorder("run")
    recorder.watch(ddp)
    for number in range(3):
        with recorder.step():
            if number == 1:
                continue
            recorder.batch(lengths=[3, 5])
            with ddp.no_sync():
                recorder.backward(ddp(torch.ones(2, 5, 64)).sum())
            time.sleep(0.02)
            recorder.batch(lengths=[7], padded_tokens=8)
            recorder.backward(ddp(torch.ones(1, 8, 64)).sum())
            recorder.loss(float("nan"))
            time.sleep(0.03)
        time.sleep(1)  # Of no step.
        if number == 1:
            recorder.resume()
    recorder.close()


def last_of_two(rank, ddp):
    """Returns what each rank calls between forward and backward. It holds rank 1 until 0.1 s after
    rank 0's backward is through, so that rank 0 waits, however busy the machine is."""
    seen, calls = itertools.count(1), itertools.count()

    def mark(_):
        number = next(seen)
        if number % 2 == 0:  # A weight and a bias in each backward.
            pathlib.Path(f"backward{number // 2 - 1}").touch()

    def hold():
        of_rank_0 = f"backward{next(calls)}"
        while rank == 1 and not os.path.exists(of_rank_0):
            time.sleep(0.001)
        time.sleep(0.1 * rank)

    for parameter in ddp.module[0].parameters():
        if rank == 0:
            parameter.register_hook(mark)
    return hold


def rank_is_odd(rank):
    """Steps with two backwards: of all micro-batches with communication, and of two models. A
    backward that fails in the middle."""
    import torch

    def recorded(name, *models):
        return stepsim_recorder.Recorder(name, model=models[0])

    parallel = torch.nn.parallel.DistributedDataParallel
    ddp, other = parallel(make_model()), parallel(make_model())
    recorder = recorded("all", ddp)
    hold = last_of_two(rank, ddp)
    for _ in range(6):
        with recorder.step():
            for _ in range(2):
                recorder.batch(lengths=[5])
                loss = ddp(torch.ones(1, 5, 64)).sum()
                hold()
                recorder.backward(loss)
    recorder.close()
    ddp = parallel(make_model())
    recorder = recorded("two", ddp)
    for _ in range(3):
        with recorder.step(lengths=[5]):
            recorder.backward(ddp(torch.ones(1, 5, 64)).sum())
            for _ in range(5):
                loss = other(torch.ones(60, 50, 64)).sum()
            recorder.backward(loss)
    recorder.close()
    ddp = parallel(make_model())
    recorder = recorded("fails", ddp)
    for number in range(4):
        with recorder.step(lengths=[5]):
            loss = ddp(torch.ones(1, 5, 64)).sum()
            try:
                recorder.backward(loss.detach() if number == 1 else loss)
            except RuntimeError:
                assert number == 1
            else:
                assert number != 1
    assert recorder.recording and recorder.error is None
    recorder.close()


def rank_joins(rank):
    """Ranks with unequal numbers of batches: the parameters after them, with and without hook."""
    import torch

    def trained(watch, by_initial):
        ddp = torch.nn.parallel.DistributedDataParallel(make_model(), bucket_cap_mb=1)
        recorder = stepsim_recorder.Recorder("join", model=ddp if watch else None)
        optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
        torch.manual_seed(100 + rank)
        with ddp.join(divide_by_initial_world_size=by_initial):
            for _ in range(2 + 2 * rank):
                with recorder.step(lengths=[5]):
                    optimizer.zero_grad()
                    recorder.backward(ddp(torch.randn(3, 5, 64)).square().mean())
                    optimizer.step()
        recorder.end()
        return [parameter.detach().numpy().tobytes() for parameter in ddp.parameters()]

    by_initial = trained(False, True)
    assert by_initial == trained(True, True)
    by_active = trained(False, False)
    assert by_active == trained(True, False)
    assert by_active != by_initial


def rank_compares_hooks(rank):
    """The recorder's hook, around nothing and around a user's, gives the same gradients."""
    import torch
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

    def recorder(name):
        return stepsim_recorder.Recorder(name)

    def user_hook(ddp):
        ddp.register_comm_hook(None, default_hooks.fp16_compress_hook)

    plain = train(recorder("a"), rank)
    own = recorder("b")
    assert plain == train(own, rank, watch=own.watch)
    with_hook = train(recorder("c"), rank, watch=user_hook)
    own = recorder("d")
    hook = default_hooks.fp16_compress_hook
    assert with_hook == train(own, rank, watch=lambda ddp: own.watch(ddp, hook=hook))
    assert with_hook != plain
    assert os.path.getsize(f"d.rank{rank}.jsonl") > 0
    assert torch.distributed.get_world_size() == 3


def rank_fails(rank):
    """Whatever goes wrong in the recorder, the training gives what it gives without."""
    plain = train(stepsim_recorder.Recorder("good"), rank)
    for path in ["no/such/folder", "full"]:  # full.rankN.jsonl is /dev/full.
        recorder = stepsim_recorder.Recorder(path)
        assert plain == train(recorder, rank, watch=recorder.watch), path
        assert not recorder.recording
        recorder.close()
    recorder = stepsim_recorder.Recorder("odd")
    with recorder.step(lengths=["many"]):
        pass
    assert not recorder.recording
    assert plain == train(recorder, rank, watch=recorder.watch)
    # It breaks in the middle of a run, inside the communication hook, on one rank.
    recorder = stepsim_recorder.Recorder("hook")

    def before_step(number):
        if number == 5 and rank == 1:
            recorder._clock.now = lambda: 1 / 0

    assert plain == train(recorder, rank, watch=recorder.watch, before_step=before_step)
    assert recorder.recording == (rank == 0)
    recorder.close()
    try:
        with stepsim_recorder.Recorder("user").step(lengths=[1]):
            raise KeyError("the user's own error")
    except KeyError:
        return
    raise AssertionError("the user's error was swallowed")


def rank_main(mode):
    import torch

    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo")
    rank = torch.distributed.get_rank()
    globals()["rank_" + mode](rank)
    torch.distributed.barrier()


# ---- the tests ------------------------------------------------------------------------------


def run_ranks(mode, ranks=2):
    """Each rank's exit status and what it printed."""
    return zip(*torch_ranks.run(__file__, mode, ranks=ranks))


def run_good_ranks(mode, ranks=2):
    statuses, outputs = run_ranks(mode, ranks)
    assert not any(statuses), f"{statuses}\n" + "\n".join(outputs)
    return outputs


def stepsim(*arguments, status=0):
    done = subprocess.run([STEPSIM, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout + done.stderr


def in_folder_with_plan(test):
    def with_plan():
        stepsim("plan", SCENARIO, "--policy", POLICY, "--out", "plan.jsonl", "--quiet")
        test()

    return small_runner.in_new_folder(with_plan)


def read_lines(path):
    lines = pathlib.Path(path).read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def validated(*options, status=0):
    return stepsim("validate", SCENARIO, "--live", "run.jsonl", "--bound", "1e9", *options,
                   status=status)


@in_folder_with_plan
def test_two_ranks_are_recorded_and_read_back():
    outputs = run_good_ranks("records")
    assert not any("stepsim_recorder" in output for output in outputs), outputs
    header, *rows = read_lines("run.jsonl")
    assert (header["world_size"], header["backend"], header["policy"]) == (2, "gloo", POLICY)
    assert header["cores"] == os.cpu_count()
    assert [(row["step"], row["rank"]) for row in rows] == [
        (step, rank) for step in range(STEPS) for rank in range(2)
    ]
    for rank in range(2):
        of_rank = [row for row in rows if row["rank"] == rank]
        for row, after, lengths in zip(of_rank, of_rank[1:] + [None], plan_lengths(rank)):
            check_row(row, lengths)
            end = row["start_ms"] + row["step_ms"]
            assert after is None or abs(after["start_ms"] - end) < 1e-3, (row, after)
    # The buckets tell that another model trained than the scenario's.
    assert "was it recorded with another model?" in validated(status=2)
    # The project's own reader: same batches as planned, and the same step times.
    pathlib.Path("run.jsonl").write_text(
        "".join(json.dumps({**line, "buckets": []}) + "\n" for line in [header, *rows]),
        encoding="utf-8",
    )
    validated("--json", "report.json")
    report = json.loads(pathlib.Path("report.json").read_text(encoding="utf-8"))
    measured = report["policies"][0]["measured_ms"]["mean"]
    times = [step_time(rows, step) for step in range(2, STEPS)]
    assert abs(measured - sum(times) / len(times)) < 1e-6 * measured, (measured, times)


@in_folder_with_plan
def test_the_record_describes_what_trains():
    outputs = run_good_ranks("describes")
    assert not any("stepsim_recorder" in output for output in outputs), outputs
    header, *rows = read_lines("described.jsonl")
    model = header["model"]
    assert (model["name"], model["buffers"]) == ("Sequential", {"i64": 3}), model
    assert [(one["name"], one["shape"], one.get("frozen")) for one in model["parameters"]] == [
        ("0.weight", [512, 64], None),
        ("0.bias", [512], True),
        ("2.weight", [512, 512], None),
        ("2.bias", [512], None),
        ("3.weight", [1, 512], None),
        ("3.bias", [1], None),
    ]
    assert all(one["dtype"] == "f32" for one in model["parameters"]), model
    assert not any("lookup" in one for one in model["parameters"]) and "config" not in model, model
    assert header["ddp"]["bucket_cap_bytes"] == 1 << 20, header
    assert header["ddp"]["broadcast_buffers"] is False, header
    assert header["autocast"] == "bf16", header
    assert header["optimizer"]["kind"] == "SGD", header
    assert header["optimizer"]["settings"]["momentum"] == 0.9, header
    loader = header["loader"]
    assert (loader["samples"], loader["batch_size"], loader["drop_last"]) == (16, 4, True), loader
    assert loader["sampler"] == "SequentialSampler", loader
    assert all(row["buckets"] for row in rows), "bucket times are on by default"


def test_what_flops_are_counted_by_is_told():
    """Tables that are only looked up, a tied one that is not, and a config as transformers have it."""
    import torch

    class Config:
        num_hidden_layers, num_attention_heads, hidden_size, head_dim = 3, 4, 8, None

        def to_json_string(self):
            return json.dumps({"model_type": "own", "_name_or_path": "/home/somebody", "hidden_size": 8})

    model = torch.nn.Module()
    model.tokens, model.positions = torch.nn.Embedding(10, 8), torch.nn.Embedding(5, 8)
    model.head = torch.nn.Linear(8, 10, bias=False)
    model.head.weight = model.tokens.weight
    model.config = Config()
    told = stepsim_recorder._described_model(model)
    assert [(one["name"], one.get("lookup")) for one in told["parameters"]] == [
        ("tokens.weight", None), ("positions.weight", True)], told
    assert told["config"] == {"model_type": "own", "hidden_size": 8}, told
    assert told["attention"] == {"layers": 3, "width": 8}, told
    model.config = {"hidden_size": 8}  # Somebody's own.
    assert "attention" not in stepsim_recorder._described_model(model)


@small_runner.in_new_folder
def test_wrappers_of_the_model_are_looked_through():
    outputs = run_good_ranks("wraps")
    found = {"around": ["OptimizedModule", "DistributedDataParallel"],
             "inside": ["DistributedDataParallel", "OptimizedModule"],
             "both": ["OptimizedModule", "DistributedDataParallel", "OptimizedModule"],
             "alone": ["OptimizedModule"]}
    for names in found.values():
        assert f"the model was found inside of {' > '.join(names)}\n" in outputs[0], outputs[0]
    plain, *_ = read_lines("plain.jsonl")
    assert plain["ddp"]["bucket_cap_bytes"] == 25 << 20, plain
    for name in ["around", "inside", "both", "layer", "alone"]:
        header, *rows = read_lines(f"{name}.jsonl")
        assert header.get("wrappers") == found.get(name), header
        assert header["model"] == plain["model"], (name, header["model"])
        assert header["autocast"] == "bf16", name
        assert header["optimizer"]["kind"] == "SGD", header["optimizer"]
        assert header.get("ddp") == (None if name == "alone" else plain["ddp"]), (name, header)
        assert all(bool(row["buckets"]) == (name != "alone") for row in rows), name
    assert "model= is a Sequential without DistributedDataParallel" in outputs[0], outputs[0]


@small_runner.in_new_folder
def test_compiled_models_are_recorded_and_the_steps_that_compile_are_marked():
    torch_or_skip()
    import torch

    if not hasattr(torch, "compile") or not hasattr(torch.nn.Module, "compile"):
        raise small_runner.Skip(f"PyTorch {torch.__version__} has no torch.compile of modules")
    run_good_ranks("compiles")
    for name, compiling in [("around", [0, 2]), ("inside", [0, 2, 3]), ("in_place", [0, 2])]:
        header, *rows = read_lines(f"{name}.jsonl")
        assert header["model"]["parameters"][0]["name"] == "layers.0.weight", (name, header)
        assert header["ddp"]["first_bucket_bytes"] == 1 << 20, (name, header)
        assert all(row["buckets"] for row in rows), name
        marked = sorted({row["step"] for row in rows if row.get("compiled_graphs", 0) > 0})
        assert marked == compiling, (name, marked)
    assert read_lines("inside.jsonl")[0]["wrappers"][1] == "OptimizedModule(dynamic=False)"


def step_time(rows, step):
    """Last rank's start to last rank's end."""
    rows = [row for row in rows if row["step"] == step]
    end = max(row["start_ms"] + row["step_ms"] for row in rows)
    return end - max(row["start_ms"] for row in rows)


def check_row(row, lengths):
    assert row["lengths"] == lengths
    assert (row["samples"], row["max_length"]) == (len(lengths), max(lengths)), row
    assert row["useful_tokens"] == sum(lengths), row
    assert row["padded_tokens"] == len(lengths) * max(lengths), row
    parts = ["data_ms", "forward_ms", "backward_ms", "wait_ms", "optimizer_ms"]
    assert abs(sum(row[part] for part in parts) - row["step_ms"]) < 1e-3, row
    assert all(row[part] > 0 for part in parts[1:]), row
    assert 0 < row["thread_cpu_ms"] <= row["step_ms"] * 1.01 + 0.1, row
    for part in ["data", "forward", "backward", "optimizer"]:
        limit = row[f"{part}_ms"] + (row["wait_ms"] if part == "backward" else 0)
        assert 0 <= row[f"{part}_cpu_ms"] <= limit * 1.01 + 0.1, (part, row)
    cpu = [row[f"{part}_cpu_ms"] for part in ["data", "forward", "backward", "optimizer"]]
    assert abs(sum(cpu) - row["thread_cpu_ms"]) < 1e-3, row
    assert sum(bucket["bytes"] for bucket in row["buckets"]) == MODEL_BYTES, row
    assert len(row["buckets"]) == (1 if row["step"] == 0 else 2), row  # DDP rebuilds them once.
    begin = row["data_ms"] + row["forward_ms"]
    end = row["step_ms"] - row["optimizer_ms"]
    for bucket in row["buckets"]:
        assert begin < bucket["launch_ms"] < bucket["end_ms"] < end + 1e-3, row
    assert abs(row["buckets"][-1]["launch_ms"] - begin - row["backward_ms"]) < 1e-3, row


@in_folder_with_plan
def test_the_example_of_the_readme():
    torch_or_skip()
    readme = (ROOT / "calibrate" / "torch" / "README.md").read_text(encoding="utf-8")
    exec(re.search(r"```python\n(.*?)```", readme, re.DOTALL).group(1), {})
    header, *rows = read_lines("run.jsonl")
    assert (header["world_size"], header["backend"]) == (1, "none")
    assert [row["padded_tokens"] for row in rows] == [240, 180, 400]


@in_folder_with_plan
def test_a_killed_rank_leaves_files_that_can_be_merged():
    statuses, _ = run_ranks("is_killed")
    assert statuses[1] == -signal.SIGKILL and statuses[0] != 0, statuses
    assert not os.path.exists("run.jsonl")
    assert len(read_lines("run.rank1.jsonl")) == 1 + 6
    with open("run.rank1.jsonl", "r+", encoding="utf-8") as file:
        file.truncate(os.path.getsize("run.rank1.jsonl") - 9)
    command = [sys.executable, stepsim_recorder.__file__, "merge", "run.rank0.jsonl"]
    done = subprocess.run([*command, "run.rank1.jsonl", "--out", "run.jsonl"],
                          capture_output=True, text=True, check=True)
    assert "run.rank1.jsonl:7: the last line is cut off" in done.stderr, done.stderr
    assert "left out 1 lines of steps that not all ranks finished" in done.stderr, done.stderr
    assert [row["step"] for row in read_lines("run.jsonl")[1:]] == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    validated()
    done = subprocess.run([*command, "--out", "half.jsonl"],
                          capture_output=True, text=True, check=False)
    assert done.returncode == 2, done
    assert "error: no step has all 2 ranks; found 1 files" in done.stderr, done.stderr
    assert not os.path.exists("half.jsonl")


@in_folder_with_plan
def test_micro_batches_are_one_step():
    outputs = run_good_ranks("accumulates")
    assert "step 1 called no backward()" in outputs[0], outputs
    _, *rows = read_lines("run.jsonl")
    assert [row["step"] for row in rows] == [0, 0, 2, 2]
    for row in rows:
        assert (row["samples"], row["micro_batches"], row["lengths"]) == (3, 2, [3, 5, 7]), row
        assert (row["max_length"], row["useful_tokens"], row["padded_tokens"]) == (7, 15, 18), row
        assert (row["micro_batch_samples"], row["micro_batch_max_lengths"]) == ([2, 1], [5, 7]), row
        assert sum(bucket["bytes"] for bucket in row["buckets"]) == MODEL_BYTES, row
        assert row["forward_ms"] > 20 and row["optimizer_ms"] > 30, row
        assert row["loss"] is None and row["data_ms"] < 999, row
        assert row["thread_cpu_ms"] < row["step_ms"] - 49, row


def in_thread(function):
    thread = threading.Thread(target=function)
    thread.start()
    thread.join()


@in_folder_with_plan
def test_marks_of_two_threads_leave_processor_times_out():
    torch_or_skip()
    loss = stepsim_recorder.torch.zeros(1, requires_grad=True).sum()

    def own_backward(recorder):
        recorder.backward(loss, retain_graph=True)

    def steps(name, one_step, count=4):
        recorder = stepsim_recorder.Recorder(name)
        for _ in range(count):
            sum(range(100_000))  # So that the threads' processor times differ.
            one_step(recorder)
        recorder.close()
        rows = read_lines(f"{name}.jsonl")[1:]
        assert len(rows) == count, rows
        for row in rows:
            assert row["step_ms"] > 0 and min(row["forward_ms"], row["backward_ms"]) >= 0, row
        return [sorted(name for name in row if name.endswith("_cpu_ms")) for row in rows]

    def with_backward(call):
        def step(recorder):
            with recorder.step(lengths=[4]):
                call(recorder)
        return step

    def begins_elsewhere(recorder):
        in_thread(recorder.forward_done)
        loss.backward(retain_graph=True)
        recorder.backward_done()

    of_one = [["backward_cpu_ms", "data_cpu_ms", "forward_cpu_ms", "optimizer_cpu_ms",
               "thread_cpu_ms"]] * 4
    plain = with_backward(own_backward)
    assert steps("one", plain) == of_one
    assert steps("backward", with_backward(lambda one: in_thread(lambda: own_backward(one)))) == (
        [[]] * 4
    )
    assert steps("forward", with_backward(begins_elsewhere)) == [[]] * 4
    # A step begins where the one before has ended: in another thread, though each has but one, and
    # the number of a thread that has ended is soon that of the next.
    whole = steps("whole", lambda one: in_thread(lambda: plain(one)))
    assert whole == of_one[:1] + [[]] * 3, whole


@in_folder_with_plan
def test_each_backward_has_its_own_wait_and_one_that_fails_costs_its_step_only():
    run_good_ranks("is_odd")
    header, *rows = read_lines("all.jsonl")
    assert header["model"]["name"] == "Sequential"
    for row in rows:
        assert row["micro_batches"] == 2, row
        assert sum(bucket["bytes"] for bucket in row["buckets"]) == 2 * MODEL_BYTES, row

    def shortest(part, rank):
        return min(row[part] for row in rows if row["rank"] == rank)

    # Rank 0 waits in both micro-batches, and no backward of its own counts that.
    assert shortest("wait_ms", 0) > 190, rows
    assert shortest("wait_ms", 1) < shortest("wait_ms", 0), rows
    for rank in (0, 1):
        assert shortest("backward_ms", rank) < shortest("wait_ms", 0), rows
    _, *rows = read_lines("two.jsonl")
    for row in rows:
        parts = ["data_ms", "forward_ms", "backward_ms", "wait_ms", "optimizer_ms"]
        assert abs(sum(row[part] for part in parts) - row["step_ms"]) < 1e-3, row
    # The second model's backward is no wait for the first one's gradients.
    assert any(row["backward_ms"] > row["wait_ms"] for row in rows), rows
    _, *rows = read_lines("fails.jsonl")
    assert [row["step"] for row in rows] == [0, 0, 2, 2, 3, 3], rows


@in_folder_with_plan
def test_ranks_that_join_divide_as_without_the_recorder():
    run_good_ranks("joins")


@in_folder_with_plan
def test_cores_are_those_that_the_ranks_share():
    cores = os.cpu_count()
    shared = stepsim_recorder._shared_cores
    before = os.environ.pop("LOCAL_WORLD_SIZE", None)
    try:
        assert shared(4) == cores
        os.environ["LOCAL_WORLD_SIZE"] = "2"
        assert (shared(2), shared(4)) == (cores, 0)
    finally:
        os.environ.pop("LOCAL_WORLD_SIZE")
        if before is not None:
            os.environ["LOCAL_WORLD_SIZE"] = before
    allowed = os.sched_getaffinity(0)
    if cores > 1:
        os.sched_setaffinity(0, {min(allowed)})
        assert shared(1) == 0
        os.sched_setaffinity(0, allowed)


def write_rank(rank, **members):
    header = {
        "format": "stepsim-run-record/1", "world_size": 2, "policy": "p", "warmup_steps": 0,
        "backend": "gloo", "device": "d", "host": "one", "cores": 4,
        "started_at": "2026-11-25T10:00:00Z", "model": {"name": "M"}, **members,
    }  # fmt: skip
    row = {"repeat": 0, "step": 0, "rank": rank}
    path = f"part.rank{rank}.jsonl"
    pathlib.Path(path).write_text(json.dumps(header) + "\n" + json.dumps(row) + "\n")
    return path


@in_folder_with_plan
def test_files_of_other_hosts_are_merged_and_those_of_other_runs_are_not():
    first = write_rank(0)
    stepsim_recorder.merge([first, write_rank(1, host="two")], "part.jsonl")
    assert read_lines("part.jsonl")[0]["cores"] == 0
    stepsim_recorder.merge([first, write_rank(1, started_at="2026-11-25T10:40:00Z")], "part.jsonl")
    assert read_lines("part.jsonl")[0]["cores"] == 4
    for wrong, said in [
        ({"model": {"name": "Other"}}, "its model differs"),
        ({"policy": "q"}, "its policy differs"),
        ({"started_at": "2026-11-22T10:00:00Z"}, "another run"),
    ]:
        try:
            stepsim_recorder.merge([first, write_rank(1, **wrong)], "wrong.jsonl")
        except ValueError as error:
            assert said in str(error) and "part.rank1.jsonl" in str(error), error
        else:
            raise AssertionError(f"merged in spite of {wrong}")
    assert not os.path.exists("wrong.jsonl")


@in_folder_with_plan
def test_a_merge_spares_its_inputs_and_read_only_files():
    parts = [write_rank(0), write_rank(1)]
    before = [pathlib.Path(part).read_bytes() for part in parts]
    os.link(parts[1], "linked.jsonl")
    for out in (parts[0], "linked.jsonl", f"../{os.path.basename(os.getcwd())}/{parts[1]}"):
        try:
            stepsim_recorder.merge(parts, out)
        except ValueError as error:
            assert "would overwrite an input" in str(error), error
        else:
            raise AssertionError(f"merged into {out}")
    assert before == [pathlib.Path(part).read_bytes() for part in parts]
    pathlib.Path("kept.jsonl").write_text("x")
    os.chmod("kept.jsonl", 0o444)
    command = [sys.executable, stepsim_recorder.__file__, "merge", *parts, "--out", "kept.jsonl"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "kept.jsonl: is read-only" in done.stderr, done
    assert pathlib.Path("kept.jsonl").read_text() == "x"
    os.chmod("kept.jsonl", 0o644)
    subprocess.run(command, check=True)
    assert len(read_lines("kept.jsonl")) == 3


class FakeCuda:
    """A device that runs an event when the test lets it: `finished` events of those recorded."""

    finished = 0
    recorded = 0
    waits = 0
    times_ms = []

    class Event:
        def __init__(self, enable_timing):
            assert enable_timing

        def record(self):
            self.number = FakeCuda.recorded
            FakeCuda.recorded += 1

        def query(self):
            return self.number < FakeCuda.finished

        def synchronize(self):
            FakeCuda.waits += 1
            FakeCuda.finished = max(FakeCuda.finished, self.number + 1)

        def elapsed_time(self, end):
            assert end.query() and self.query(), "elapsed_time() of an event not done raises"
            return FakeCuda.times_ms[end.number] - FakeCuda.times_ms[self.number]


@in_folder_with_plan
def test_on_a_device_times_are_read_when_they_are_there():
    torch_or_skip()
    torch = stepsim_recorder.torch
    fake, real = FakeCuda, torch.cuda
    fake.is_available = fake.is_initialized = staticmethod(lambda: True)
    fake.get_device_name = staticmethod(lambda: "fake")
    fake.max_memory_allocated = staticmethod(lambda: 7)
    fake.synchronize = staticmethod(lambda: None)
    # Anchor; then begin, forward, backward and end of each step. The device is an hour late.
    fake.times_ms = [0] + [3.6e6 + 10 * at for at in range(12)]
    loss = torch.zeros(1, requires_grad=True).sum()
    torch.cuda = fake
    try:
        recorder = stepsim_recorder.Recorder("run")
        for done, lines in [(0, 1), (5, 2), (8, 2)]:  # The second step ends with event 8.
            fake.finished = done
            with recorder.step(lengths=[4]):
                recorder.forward_done()
                loss.backward(retain_graph=True)
                recorder.backward_done()
            assert len(read_lines("run.rank0.jsonl")) == lines
        assert fake.waits == 0
        recorder.close()
    finally:
        torch.cuda = real
    assert fake.waits == 2
    _, *rows = read_lines("run.jsonl")
    assert [row["step_ms"] for row in rows] == [30, 40, 40], rows
    assert [row["data_ms"] for row in rows] == [0, 10, 10], rows
    phases = [(row["forward_ms"], row["backward_ms"], row["optimizer_ms"]) for row in rows]
    assert phases == [(10, 10, 10)] * 3, phases
    starts = [row["start_ms"] - rows[0]["start_ms"] for row in rows]
    assert [round(start, 3) for start in starts] == [0, 30, 70], starts
    assert rows[0]["start_ms"] > 1e3 * time.perf_counter() + 3.5e6
    assert rows[0]["peak_memory_bytes"] == 7 and "thread_cpu_ms" not in rows[0]
    for row in rows:  # The host is no later than it is, and the device an hour behind it.
        host = [row[f"{part}_host_ms"] for part in ("data", "forward", "backward", "optimizer")]
        assert all(0 <= one < 1e3 for one in host) and 0 < sum(host), host
        assert 3.5e6 < row["lag_ms"] < 3.7e6, row["lag_ms"]


@in_folder_with_plan
def test_the_hook_changes_no_bit_of_a_gradient():
    run_good_ranks("compares_hooks", ranks=3)


@in_folder_with_plan
def test_a_failing_recorder_does_not_touch_the_training():
    for rank in range(2):
        os.symlink("/dev/full", f"full.rank{rank}.jsonl")
    outputs = run_good_ranks("fails")
    for output, reasons in zip(outputs, [(), ("ZeroDivisionError",)]):
        said = [line for line in output.splitlines() if "no further steps" in line]
        expected = ("FileNotFoundError", "No space left", "ValueError", *reasons)
        assert len(said) == len(expected), output
        for line, reason in zip(said, expected):
            assert reason in line, output
        assert "Traceback" not in output, output
    assert "not merged: rank 1 has no complete file" in outputs[0], outputs[0]
    assert len(read_lines("hook.rank1.jsonl")) == 1 + 5


if __name__ == "__main__":
    if "RANK" in os.environ:
        rank_main(sys.argv[1])
    else:
        STEPSIM = os.path.abspath(sys.argv[1])
        sys.exit(small_runner.main(dict(globals())))
