#!/usr/bin/env python3
"""stepsim_measure.py and stepsim_live.py in real PyTorch over gloo on the CPU: from plans to a profile
and to run records.

usage: torch_measure_test.py PATH_OF_STEPCAL PATH_OF_STEPSIM
"""

import argparse
import collections
import contextlib
import io
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[3]
TORCH = ROOT / "calibrate" / "torch"
sys.path[:0] = [str(ROOT / "tests"), str(TORCH)]
import small_runner  # noqa: E402  (needs the path above)
import torch_ranks  # noqa: E402
from small_runner import output as run  # noqa: E402
from torch_store import torch_or_skip  # noqa: E402

STEPCAL, STEPSIM = (os.path.abspath(path) for path in sys.argv[1:3])
SCENARIO = """
[scenario]
name = "small"
steps = 6
warmup_steps = 2
[cluster]
ranks = 2
profile = "profile.json"
[model]
kind = "KIND"
layers = 2
hidden = 32
heads = 4
MORE
[ddp]
bucket_cap = "20 KiB"
first_bucket_cap = "20 KiB"
set_to_none = false
[data]
samples = 400
lengths = { uniform = [8, 48], seed = 1 }
[[policy]]
name = "fixed"
kind = "fixed"
batch_size = 4
[[policy]]
name = "token_budget"
kind = "token_budget"
max_tokens = 150
"""
SIZES = "ffn = 64\nvocab = 300\nmax_length = 64\n"
MODELS = {
    "token_classifier": SIZES + "classes = 3\n",
    "bert": SIZES + "classes = 2\n",
    "distilbert": SIZES + "classes = 2\nattention = \"flash\"\n",
    "gpt2": SIZES + "tied_embeddings = true\ncausal = true\n",
    "llama": SIZES + "kv_heads = 2\ncausal = true\nattention = \"flash\"\nwindow = 16\n",
    "nanochat": SIZES + "kv_heads = 4\ncausal = true\nattention = \"flash\"\n",
}


def in_folder(test):
    def with_torch():
        torch_or_skip()
        test()

    return small_runner.in_new_folder(with_torch)


def program(name, *arguments, status=0):
    return run(sys.executable, str(TORCH / f"stepsim_{name}.py"), *arguments, status=status)


def live_on_ranks(*arguments):
    """Runs stepsim_live.py on two ranks that a launcher has started."""
    done = torch_ranks.run(TORCH / "stepsim_live.py", *arguments, "--out-dir", "live", "--device", "cpu")
    assert not any(status for status, _ in done), done


def plan(kind="token_classifier", **changes):
    """Writes small.toml, plans/ and shapes.json. Returns what grid prints."""
    text = SCENARIO.replace("KIND", kind).replace("MORE", MODELS[kind])
    for old, new in changes.values():
        assert old in text, old
        text = text.replace(old, new)
    pathlib.Path("small.toml").write_text(text, encoding="utf-8")
    run(STEPSIM, "plan", "small.toml", "--out-dir", "plans", "--quiet")
    paths = sorted(map(str, pathlib.Path("plans").glob("*.jsonl")))
    return run(STEPCAL, "grid", *paths, "--out", "shapes.json", "--count", "6")


def lines_of(path):
    return [json.loads(line) for line in pathlib.Path(path).read_text(encoding="utf-8").splitlines()]


def plans():
    return sorted(map(str, pathlib.Path("plans").glob("*.jsonl")))


def in_process(module, *arguments):
    """Runs a module's program in this process, which has torch already. Returns status and text."""
    import stepsim_job  # pylint: disable=import-outside-toplevel

    program_of = {"stepsim_measure": "measure", "stepsim_live": "run"}[module.__name__]
    text = io.StringIO()
    with contextlib.redirect_stderr(text), contextlib.redirect_stdout(text):
        options = module.parse_arguments(list(map(str, arguments)))
        status = stepsim_job.outcome(getattr(module, program_of), options)
    return status, text.getvalue()


@in_folder
def test_every_family_has_the_ops_and_parameters_that_it_is_predicted_with():
    import torch

    import stepsim_measure
    import stepsim_ranks
    import stepsim_step

    for kind in MODELS:
        assert "next: python3 -m stepsim.torch.measure shapes.json" in plan(kind)
        request = stepsim_measure.read_request("shapes.json")
        trainer = stepsim_step.Trainer(request, stepsim_ranks.Ranks(torch.device("cpu")))
        marks = stepsim_step.Marks(trainer.clock)
        lengths, width = request["shapes"][0]["lengths"], request["shapes"][0]["length"]
        whole = trainer.step(lengths, width, marks)
        step = stepsim_step.Step(request)
        step.check([name for name, _ in marks.forward])
        begun = [name for name, _ in marks.backward]
        assert sorted(begun) == sorted(step.forward), (kind, begun)
        copies = dict.fromkeys(
            [(op, one) for op in ("gradient_copy_in", "gradient_copy_out") for one in step.elements(op)], 1e-7
        )
        times = stepsim_step.op_times(step, whole, marks, copies, trainer.clock, False)
        sums = sum(one * kind_["count"] for one, kind_ in zip(step.by_kind(times), step.kinds))
        assert abs(sums - sum(whole.values())) < 1e-6, (kind, sums, whole)


@in_folder
def test_from_plans_to_a_profile_to_records_to_a_validation():
    plan()
    told = program("measure", "shapes.json", "--out", "samples.jsonl", "--seconds", "4", "--device", "cpu")
    assert "next: stepcal fit samples.jsonl --out profile.json" in told, told
    header, *lines = lines_of("samples.jsonl")
    assert header["versions"]["measured_by"] == "pytorch" and header["plan"]["ranks"] == 2, header
    kinds = {line["kind"] for line in lines}
    # A PyTorch that has fully_shard is asked what its hooks take, too.
    kinds.discard("unit_host")
    assert kinds == {"pass", "step", "sentinel", "collective", "pass_end"}, kinds
    rounds = 1 + max(line["pass"] for line in lines if line["kind"] == "pass_end")
    steps = [line for line in lines if line["kind"] == "step"]
    assert rounds >= 3 and len(steps) == rounds * 2 * 6, (rounds, len(steps))
    assert all(min(one) > 0 for line in steps for one in line["op_us"]), "an op without a time"
    # The job's own all-reduces were timed inside DDP's steps: the buckets that are planned, and no others.
    planned = json.loads(pathlib.Path("shapes.json").read_text(encoding="utf-8"))["bucket_bytes"]
    assert len(planned) > 2, planned
    timed = collections.Counter()
    for line in lines:
        if line["kind"] == "collective" and line["bytes"] in planned:
            timed[line["bytes"]] += len(line["us"])
            # One that waits for both of gloo's workers has no time of its own.
            assert min(line["us"]) >= 0 and sum(line["us"]) > 0, line
    inside = 12 * rounds
    assert timed == {size: inside * count for size, count in collections.Counter(planned).items()}, timed
    told = run(STEPCAL, "fit", "samples.jsonl", "--out", "profile.json")
    assert "all-reduce over 2 ranks" in told, told
    run(STEPSIM, "compare", "small.toml", "--json", "prediction.json", "--quiet")
    told = program("live", *plans(), "--out-dir", "live", "--repeats", "2", "--device", "cpu")
    assert "warning" not in told, told
    for policy in ("fixed", "token_budget"):
        record, *rows = lines_of(f"live/{policy}.jsonl")
        assert record["policy"] == policy and record["world_size"] == 2, record
        assert len(rows) == 2 * 2 * 6, len(rows)
        batches = [row["lengths"] for row in lines_of(f"plans/{policy}.jsonl")[1:] if row["rank"] == 1]
        assert [row["lengths"] for row in rows if row["rank"] == 1] == 2 * batches, policy
        # Before the first pass and behind both.
        assert len(record["sentinel_ms"]) == 3 and min(record["sentinel_ms"]) > 0, record["sentinel_ms"]
        assert record["sentinel_model"] == header["plan"]["model"], record["sentinel_model"]
    # The plans took turns of four steps.
    starts = {}
    for policy in ("fixed", "token_budget"):
        starts[policy] = [r["start_ms"] for r in lines_of(f"live/{policy}.jsonl")[1:] if r["rank"] == 0]
    assert starts["fixed"][0] < starts["token_budget"][0] < starts["fixed"][4], starts
    validation = run(STEPSIM, "validate", "small.toml", "--predictions", "prediction.json", "--bound", "100000",
                     "--live", "live/fixed.jsonl", "live/token_budget.jsonl")
    assert "token_budget" in validation and "machine: the sentinel took" in validation, validation
    told = program("live", *plans(), "--out-dir", "live", status=2)
    assert "live holds 2 records already" in told, told


SENTINEL = """
import sys, time
sys.path.insert(0, sys.argv.pop(1))
import stepsim_job, stepsim_live, stepsim_models, stepsim_ranks, stepsim_recorder, torch

def spread():
    sums = ranks.gathered([float(one.detach().double().sum()) for one in live.trainer.module.parameters()])
    return max(abs(one - other) for one, other in zip(*sums))

options = stepsim_live.parse_arguments([*sys.argv[1:], "--out-dir", "live"])
plans = stepsim_live.read_plans(options.plans)
ranks = stepsim_ranks.Ranks(torch.device("cpu"))
job = stepsim_job.job_of_family(plans[0].header["model"], plans[0].header["optimizer"], ranks.device)
live = stepsim_live.Live(plans, stepsim_job.Job(**job), ranks, options)
live.warm_up()
token = torch.get_rng_state()
live.sentinel.take()
assert torch.equal(token, torch.get_rng_state()), "the plans' tokens are the same with it"
trained = spread()
live.trainer.step(plans[0].rows(ranks.rank, 0), stepsim_live.Silent())
reduced = spread()
forward = live.trainer.module.forward
live.trainer.module.forward = lambda *batch: (time.sleep(0.2), forward(*batch))[1]
live.sentinel.take()
def full(*_):
    raise RuntimeError("CUDA out of memory. Tried to allocate")
if ranks.rank == 1:
    live.trainer.module.forward = full
live.sentinel.take()
live.trainer.module.forward = forward
live.sentinel.take()
if ranks.rank == 0:
    print(len(live.sentinel.ms), live.sentinel.ms[1], trained, reduced)
ranks.end(0)
"""


@in_folder
def test_the_sentinel_of_a_live_run_tells_a_slower_machine_and_changes_nothing():
    plan()
    pathlib.Path("sentinel.py").write_text(SENTINEL, encoding="utf-8")
    (status, said), (other, second) = torch_ranks.run("sentinel.py", str(TORCH), *plans())
    assert (status, other) == (0, 0), said + second
    taken, slower, trained, reduced = map(float, said.split())
    assert taken == 2, "it is left out where a rank has no memory for it, and from then on"
    assert slower >= 200, said
    assert trained == reduced == 0, "ranks have the same parameters behind it, and behind the step after"


class Stream:
    """Stands for a GPU's stream: events are numbers of its clock, which each launch and hold moves on."""

    def __init__(self, tick):
        self.seconds, self.tick = 0.0, tick  # Passes between two events.
        self.held, self.is_late, self.waits = [], False, 0

    def install(self):
        stream = self

        class Event:
            def __init__(self, enable_timing):
                assert enable_timing

            def record(self):
                stream.seconds += stream.tick
                self.at = stream.seconds

            def query(self):
                return stream.is_late

            def elapsed_time(self, other):
                return 1e3 * (other.at - self.at)

        return {"Event": Event, "_sleep": self.hold, "synchronize": self.wait}

    def wait(self):
        self.waits += 1

    def hold(self, cycles):
        self.held.append(cycles)
        self.seconds += 100.0  # Must be in no time.


@contextlib.contextmanager
def a_stream(stepsim_clocks, tick=0.0):
    stream, cuda = Stream(tick), stepsim_clocks.torch.cuda
    there = {name: getattr(cuda, name, None) for name in ("Event", "_sleep", "synchronize")}
    try:
        for name, value in stream.install().items():
            setattr(cuda, name, value)
        yield stream
    finally:
        for name, value in there.items():
            setattr(cuda, name, value)


def test_a_gpu_is_held_piece_by_piece():
    import stepsim_clocks  # pylint: disable=import-outside-toplevel

    with a_stream(stepsim_clocks) as stream:
        clock = stepsim_clocks.CudaClock()
        clock.start()
        marks = [clock.mark()]
        for seconds, is_cut in ((1.0, False), (2.0, True), (4.0, False), (8.0, True), (16.0, True)):
            stream.seconds += seconds
            marks.append(clock.cut() if is_cut else clock.mark())
        assert clock.finish()
        assert [clock.seconds(*pair) for pair in zip(marks, marks[1:])] == [1, 2, 4, 8, 16]
        assert clock.seconds(marks[0], marks[-1]) == 31, "holds and what the host does between pieces"
        assert clock.seconds(marks[1], marks[4]) == 14
        assert len(stream.held) == 4 and stream.waits == 5, "each piece begins with an empty stream"
        # A stream that went on too early is told, and held longer, up to a bound; then it is taken as it is.
        first = clock.hold_s[0]
        stream.is_late = True
        clock.start()
        time.sleep(0.01)
        assert not clock.finish() and clock.hold_s[0] > max(first, 0.04)
        clock.start()
        time.sleep(0.01)
        assert clock.finish() and clock.hold_s[0] == clock.LONGEST_HOLD_S


@in_folder
def test_the_host_of_a_gpu_is_measured_by_itself():
    # pylint: disable=import-outside-toplevel
    import stepsim_clocks
    import stepsim_measure

    plan()
    options = stepsim_measure.parse_arguments(
        ["shapes.json", "--out", "samples.jsonl", "--device", "cpu", "--seconds", "0"]
    )
    request = stepsim_measure.read_request("shapes.json")
    ranks = stepsim_measure.stepsim_ranks.Ranks(stepsim_measure.torch.device("cpu"))
    with a_stream(stepsim_clocks, tick=1e-4):
        measurement = stepsim_measure.Measurement(request, ranks, options)
        measurement.clock = measurement.trainer.clock = stepsim_clocks.CudaClock()
        with contextlib.redirect_stdout(io.StringIO()):
            assert measurement.run() == 0
    lines = lines_of("samples.jsonl")[1:]
    hosts = [line for line in lines if line["kind"] == "host"]
    assert len(hosts) == 3 * 2 * len(request["shapes"]), "one behind each shape, by ops and as a whole"
    assert all(line["forward_us"] > 0 and line["backward_us"] > 0 for line in hosts)
    met = [(one["samples"], one["max_length"]) for one in lines if one["kind"] == "meeting"]
    known = {(len(one["lengths"]), one["length"]) for one in request["shapes"]}
    assert met and len(set(met)) == len(met) and not known & set(met), "they are new"
    output = run(STEPCAL, "fit", "samples.jsonl", "--out", "profile.json")
    total = [one["forward_us"] + one["backward_us"] + one["optimizer_us"] for one in hosts]
    most = 3 * statistics.quantiles(total, n=4, method="inclusive")[2]
    mean = statistics.fmean(one for one in total if one <= most)
    host = json.loads(pathlib.Path("profile.json").read_text(encoding="utf-8"))["host"]
    assert abs(host["launch_s"] * 1e6 * hosts[0]["ops"] - mean) < 0.01, (host, mean, output)
    assert host["launch_error"] > 0


def test_all_reduces_that_share_the_links_sum_to_the_time_in_which_any_is_on_its_way():
    import stepsim_step  # pylint: disable=import-outside-toplevel

    shared = stepsim_step.shared_times
    assert shared([(0, 2), (3, 4)]) == [2, 1], "one after another"
    assert shared([(0, 4), (1, 3)]) == [3, 1], "the second beside the first"
    assert shared([(0, 4), (0, 4), (0, 6)]) == [2, 2, 2], "the third waits for a worker"
    assert shared([]) == []


OUT_OF_MEMORY = """
import sys
sys.path.insert(0, sys.argv.pop(1))
import stepsim_job, stepsim_measure, stepsim_models
largest = int(sys.argv.pop(1))
gelu = stepsim_models.F.gelu

def planted(rows):
    def fails(_gradient):  # By then DDP has some gradients.
        raise RuntimeError("CUDA out of memory. Tried to allocate")
    rows = gelu(rows)
    if len(rows) == largest:
        rows.register_hook(fails)
    return rows

stepsim_models.F.gelu = planted
stepsim_job.main(stepsim_measure.measure, stepsim_measure.parse_arguments())
"""


@in_folder
def test_a_shape_that_runs_out_of_memory_in_the_backward_is_skipped():
    plan(RANKS=("ranks = 2", "ranks = 1"))
    shapes = json.loads(pathlib.Path("shapes.json").read_text(encoding="utf-8"))["shapes"]
    most = max(len(one["lengths"]) for one in shapes)
    pathlib.Path("out_of_memory.py").write_text(OUT_OF_MEMORY, encoding="utf-8")
    told = run(sys.executable, "out_of_memory.py", str(TORCH), str(most), "shapes.json",
               "--out", "samples.jsonl", "--seconds", "0", "--device", "cpu")  # fmt: skip
    refused = [line for line in lines_of("samples.jsonl")[1:] if line["kind"] == "refused"]
    assert {line["samples"] for line in refused} == {most}, told
    assert "skipped" in told and "CUDA out of memory" in refused[0]["why"], told
    run(STEPCAL, "fit", "samples.jsonl", "--out", "profile.json")


@in_folder
def test_a_measurement_that_is_killed_goes_on():
    plan()
    command = [sys.executable, str(TORCH / "stepsim_measure.py"), "shapes.json", "--out", "samples.jsonl"]
    command += ["--device", "cpu", "--ranks", "1", "--target", "0"]
    process = subprocess.Popen([*command, "--seconds", "60"], stdout=subprocess.PIPE, text=True)
    path = pathlib.Path("samples.jsonl")
    deadline = time.monotonic() + 60
    while not path.exists() or path.read_text(encoding="utf-8").count("pass_end") < 3:
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.05)
    process.kill()
    process.communicate()
    with open(path, "a", encoding="utf-8") as file:
        file.write('{"kind":"step","pa')  # Cut off.
    before = path.read_text(encoding="utf-8").rsplit("\n", 1)[0] + "\n"
    process = subprocess.Popen([*command, "--seconds", "60"], stdout=subprocess.PIPE, text=True)
    while path.read_text(encoding="utf-8").count("pass_end") < 5:
        assert time.monotonic() < deadline + 60 and process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate()
    assert process.returncode == 130 and "interrupted (SIGINT)" in said, said
    text = path.read_text(encoding="utf-8")
    assert text.startswith(before), "lines were lost"
    assert "all-reduces" in run(STEPCAL, "fit", "samples.jsonl", "--out", "p.json") + said
    # Another PyTorch is another request.
    header = json.loads(text.splitlines()[0])
    header["versions"]["torch"] = "1.0"
    path.write_text(json.dumps(header) + "\n" + text.split("\n", 1)[1], encoding="utf-8")
    kept = path.read_bytes()
    told = run(*command, status=2)
    assert "PyTorch 1.0 there" in told and "choose another --out" in told, told
    assert path.read_bytes() == kept


@in_folder
def test_a_rank_that_dies_in_live_is_named_and_its_steps_are_kept():
    plan()
    command = [sys.executable, str(TORCH / "stepsim_live.py"), *plans(), "--out-dir", "live"]
    process = subprocess.Popen([*command, "--repeats", "100000", "--device", "cpu"],
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    path = pathlib.Path("live/fixed.rank1.jsonl")
    deadline = time.monotonic() + 60
    while not path.exists() or path.read_bytes().count(b"\n") < 20:
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.05)
    children = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    ranks = {}
    for child in children:
        names = pathlib.Path(f"/proc/{child}/environ").read_bytes().decode().split("\0")
        ranks.update({name: int(child) for name in names if name.startswith("RANK=")})
    os.kill(ranks["RANK=1"], signal.SIGKILL)
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 3 and "rank 1 was killed by signal 9" in said, said
    assert not any(pathlib.Path(f"/proc/{child}").exists() for child in children)
    parts = sorted(map(str, pathlib.Path("live").glob("fixed.rank*.jsonl")))
    told = run(sys.executable, str(TORCH / "stepsim_recorder.py"), "merge", *parts, "--out", "merged.jsonl")
    assert len(lines_of("merged.jsonl")) > 20, told


@in_folder
def test_gradients_are_accumulated_as_planned():
    plan(accumulation=("[data]", "accumulation_steps = 2\n[data]"))
    live_on_ranks("plans/fixed.jsonl")
    _, *rows = lines_of("live/fixed.jsonl")
    assert len(rows) == 2 * 6 and all(row["micro_batches"] == 2 for row in rows), rows[0]
    planned = lines_of("plans/fixed.jsonl")[1:]
    tokens = sum(one["padded_tokens"] for one in planned)
    assert sum(row["padded_tokens"] for row in rows) == tokens


@in_folder
def test_all_micro_batches_but_the_last_run_without_reducing():
    import torch

    import stepsim_live

    said = []

    class Model(torch.nn.Linear):
        @contextlib.contextmanager
        def no_sync(self):
            said.append("no_sync")
            yield

    trainer = object.__new__(stepsim_live.Trainer)
    trainer.model, trainer.scaler, trainer.set_to_none = Model(4, 1), None, True
    trainer.optimizer = torch.optim.SGD(trainer.model.parameters(), lr=0.1)
    trainer.ranks = argparse.Namespace(device=torch.device("cpu"))
    trainer.job = argparse.Namespace(
        precision="none",
        batch=lambda shape, _device: said.append(shape.samples) or torch.ones(shape.samples, 4),
        loss=lambda model, batch: model(batch).sum(),
    )
    rows = [{"lengths": [3] * count, "max_length": 3, "padded_tokens": 3 * count, "loss_scale": 1}
            for count in (1, 2, 3)]
    trainer.step(rows, stepsim_live.Silent())
    assert said == [1, "no_sync", 2, "no_sync", 3], said


@in_folder
def test_a_model_of_the_users_own_trains_the_plans():
    plan()
    model = """
import torch

def make_model():
    return torch.nn.Linear(16, 1)

def make_batch(samples, length, device):
    return torch.randn(samples, length, 16, device=device)

def loss(model, batch):
    return model(batch).square().mean()
"""
    pathlib.Path("my_model.py").write_text(model, encoding="utf-8")
    live_on_ranks("plans/fixed.jsonl", "--model", "my_model.py")
    record, *rows = lines_of("live/fixed.jsonl")
    assert record["model"]["name"] == "Linear" and len(rows) == 2 * 6, record


@in_folder
def test_bad_input_is_said_in_a_sentence_and_nothing_is_left():
    import torch

    import stepsim_live
    import stepsim_measure

    plan()
    header, *rows = pathlib.Path("plans/fixed.jsonl").read_text(encoding="utf-8").splitlines()

    def changed(path, **members):
        pathlib.Path(path).write_text("\n".join([json.dumps({**json.loads(header), **members}), *rows]) + "\n",
                                      encoding="utf-8")
        return path

    def live(text, *arguments):
        status, said = in_process(stepsim_live, *arguments, "--out-dir", "none", "--device", "cpu")
        assert status == 2 and text in said, (status, said)
        assert not os.path.exists("none"), os.listdir("none")

    ddp = json.loads(header)["ddp"]
    other = changed("other.jsonl", model={**json.loads(header)["model"], "hidden": 64})
    live("other.jsonl is of another model than plans/fixed.jsonl", "plans/fixed.jsonl", other)
    live("zero_stage", changed("zero.jsonl", ddp={**ddp, "other_keys": ["zero_stage"]}))
    live("communication_hook = 'power_sgd'", changed("hook.jsonl", ddp={**ddp, "communication_hook": "power_sgd"}))
    live("it ends early", changed("short.jsonl", steps=9))
    live("expected 'stepsim-plan/1'", changed("format.jsonl", format="stepsim-run-record/1"))
    blocks = {**json.loads(header)["model"], "family": "blocks"}
    live("stepsim_calibrate.py", changed("blocks.jsonl", model=blocks))
    live("no such file", "plans/fixed.jsonl", "--model", "nothing.py")
    live("--block: at least 1", "plans/fixed.jsonl", "--block", "0")
    if not torch.cuda.is_available():
        status, said = in_process(stepsim_live, "plans/fixed.jsonl", "--out-dir", "none", "--device", "cuda")
        assert status == 2 and "finds no GPU here" in said, said

    def measure(text, path="shapes.json", **changes):
        request = json.loads(pathlib.Path("shapes.json").read_text(encoding="utf-8"))
        if changes:
            pathlib.Path("changed.json").write_text(json.dumps({**request, **changes}), encoding="utf-8")
            path = "changed.json"
        status, said = in_process(stepsim_measure, path, "--out", "none.jsonl", "--device", "cpu")
        assert status == 2 and text in said, (status, said)
        assert not os.path.exists("none.jsonl")

    request = json.loads(pathlib.Path("shapes.json").read_text(encoding="utf-8"))
    varlen = {**request["plan"], "model": {**request["plan"]["model"], "attention": "varlen"}}
    measure("CUDA devices", plan=varlen)
    measure("family 'blocks' are not known", plan={**request["plan"], "model": blocks})
    measure("expected 'stepsim-shapes/1'", format="stepsim-plan/1")
    measure("No such file", path="nothing.json")
    pathlib.Path("own.json").write_text(
        json.dumps({"format": "stepsim-shapes/1", "shapes": request["shapes"]}), encoding="utf-8"
    )
    measure("does not say what is trained", path="own.json")
    status, said = in_process(stepsim_measure, "shapes.json", "--out", "no/such.jsonl", "--device", "tpu")
    assert status == 2 and "--device tpu: expected cpu, cuda" in said, said
    status, said = in_process(stepsim_measure, "shapes.json", "--out", "no/such.jsonl", "--device", "cpu")
    assert status == 2 and "no folder no" in said, said


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_measurement_says_how_far_it_is():
    torch_or_skip()
    import stepsim_ranks  # pylint: disable=import-outside-toplevel

    clock, plain, live, silent = [100.0], io.StringIO(), Terminal(), Terminal()
    all_of = [stepsim_ranks.Progress(60, speaks, file, lambda: clock[0])
              for speaks, file in ((True, plain), (True, live), (False, silent))]
    for second in range(25):
        clock[0] = 100.0 + second
        for one in all_of:
            one.at(f"shape {second % 24 + 1} of 24")
    assert plain.getvalue().splitlines() == ["measuring: shape 11 of 24, 10 s of 60",
                                             "measuring: shape 21 of 24, 20 s of 60"], plain.getvalue()
    lines = live.getvalue().split("\r")
    assert len(lines) == 25 and lines[7] == "measuring: shape 8 of 24, 7 s of 60", lines
    assert all(len(line) >= len(before) - 2 for before, line in zip(lines[1:], lines[2:]))
    all_of[1].done()
    assert live.getvalue().endswith("\r" + " " * len("measuring: shape 1 of 24, 24 s of 60") + "\r")
    assert silent.getvalue() == ""


def test_a_python_without_pytorch_is_told_what_to_do():
    for name in ("measure", "live", "calibrate"):
        hidden = f"""
import runpy, sys
sys.modules["torch"] = None
sys.argv = ["{name}", "x", "--out", "y"]
runpy.run_path({str(TORCH / f"stepsim_{name}.py")!r}, run_name="__main__")
"""
        assert "has no PyTorch" in run(sys.executable, "-c", hidden, status=2), name


def test_a_pytorch_that_cannot_do_it_is_told_what_to_do():
    torch_or_skip()
    import torch

    import stepsim_ranks

    def refused(text, **changed):
        kept = {name: getattr(torch, name) for name in ("__version__",)}
        gloo = getattr(torch.distributed, "is_gloo_available", None)
        try:
            if "version" in changed:
                torch.__version__ = changed["version"]
            if "gloo" in changed:
                torch.distributed.is_gloo_available = lambda: False
            if "numpy" in changed:
                sys.modules["numpy"] = None
            try:
                stepsim_ranks.check_torch(2, torch.device("cpu"))
            except stepsim_ranks.BadInput as error:
                assert text in str(error), error
            else:
                raise AssertionError(f"not refused: {text}")
        finally:
            torch.__version__ = kept["__version__"]
            if gloo is None:
                torch.distributed.__dict__.pop("is_gloo_available", None)
            else:
                torch.distributed.is_gloo_available = gloo
            if sys.modules.get("numpy", 0) is None:
                del sys.modules["numpy"]

    refused("older than 1.13: install a newer one", version="1.12.1")
    refused("built without gloo", gloo=False)
    refused("NumPy is not installed", numpy=None)


if __name__ == "__main__":
    sys.exit(small_runner.main(dict(globals())))
