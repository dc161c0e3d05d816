#!/usr/bin/env python3
"""stepsim.torch.Advisor in real DDP training over gloo on the CPU.

usage: advisor_test.py FOLDER_OF_THE_PACKAGE

Run with RANK in the environment it is one rank of such a training: `advisor_test.py MODE`.
"""

import functools
import json
import os
import pathlib
import random
import resource
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests")]

import small_runner  # noqa: E402
import torch_ranks  # noqa: E402

STEPS = 10
QUICK = {"steps": STEPS, "all_reduce_seconds": 0.2}


# ---- one rank -------------------------------------------------------------------------------


def make_ddp():
    import torch

    torch.manual_seed(1)
    layers = [torch.nn.Linear(64, 512), torch.nn.ReLU(), torch.nn.Linear(512, 512)]
    model = torch.nn.Sequential(*layers, torch.nn.Linear(512, 1))
    if int(os.environ["WORLD_SIZE"]) == 1:
        return model
    return torch.nn.parallel.DistributedDataParallel(model, bucket_cap_mb=1)


def train(model, advisor, steps=STEPS + 4, before_step=lambda number: None):
    """Trains on batches of differing lengths. Returns the gradients of all steps as bytes."""
    import torch

    rank = int(os.environ["RANK"])
    draw = random.Random(rank)
    torch.manual_seed(100 + rank)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    gradients = []
    for number in range(steps):
        before_step(number)
        lengths = [draw.randint(2, 40) for _ in range(4)]
        with advisor.step(lengths=lengths):
            optimizer.zero_grad()
            loss = model(torch.randn(len(lengths), max(lengths), 64)).square().mean()
            advisor.backward(loss)
            optimizer.step()
        gradients += [one.grad.numpy().tobytes() for one in model.parameters()]
    return gradients


def advisor_of(model, **options):
    from stepsim.torch import Advisor

    return Advisor(model, **{**QUICK, **options})


def children():
    """Returns the processes that this one has started and not reaped."""
    files = pathlib.Path("/proc/self/task").glob("*/children")  # Of each thread.
    return " ".join(file.read_text(encoding="ascii") for file in files).split()


def rank_advises(rank):
    """Tells what the advisor gave, as JSON in rank0.json."""
    heard = []
    model = make_ddp()
    advisor = advisor_of(model, policy="mine", on_advice=heard.append)
    before = train(model, advisor)
    assert advisor.result() is None or rank == 0
    advisor.close()
    train(model, advisor, steps=2)
    # No process was started: none is there, and none has ended.
    assert children() == [], children()
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_minflt == 0
    if rank == 0:
        (advice,) = heard
        assert advice is advisor.advice is advisor.result()
        told = {"policy": advice.policy, "cap": advice.bucket_cap["best"], "lines": advice.lines,
                "options": [vars(one) for one in advice.options], "gradients": len(before)}
        pathlib.Path("rank0.json").write_text(json.dumps(told), encoding="utf-8")
    else:
        assert advisor.advice is None and not heard


def rank_keeps_gradients(_):
    from stepsim.torch import Recorder

    silent = Recorder(None)
    silent.recording = False
    plain = train(make_ddp(), silent)
    model = make_ddp()
    advisor = advisor_of(model, report=False)
    assert train(model, advisor) == plain
    advisor.close()


def rank_fails(rank):
    from stepsim.torch import advisor as module

    module._PATIENCE_S = 1e6  # Whoever waited for the other rank would wait until the test is killed.
    model = make_ddp()
    advisor = advisor_of(model)
    recorder = advisor._recorder

    def before_step(number):
        if rank == 1 and number == 0:
            recorder._open = lambda: 1 / 0

    assert len(train(model, advisor, before_step=before_step)) == 6 * (STEPS + 4)
    advisor.close()
    assert advisor.advice is None
    assert rank == 1 or "rank 1 recorded no step: ZeroDivisionError" in advisor.error, advisor.error


def rank_fails_midway(rank):
    model = make_ddp()
    advisor = advisor_of(model)
    recorder = advisor._recorder

    def before_step(number):
        if rank == 1 and number == STEPS - 2:
            recorder._clock.now = lambda: 1 / 0

    train(model, advisor, before_step=before_step)
    advisor.close()
    assert rank == 1 or advisor.advice.policy, advisor.error


def rank_is_alone(rank):
    """Rank 1 has no advisor."""
    from stepsim.torch import Recorder, advisor

    advisor._PATIENCE_S = 0.5
    model = make_ddp()
    own = advisor_of(model, bucket_times=False) if rank == 0 else Recorder(None)
    assert len(train(model, own)) == 6 * (STEPS + 4)
    own.close()
    assert rank == 1 or "not all 2 ranks" in own.error, own.error


def rank_cannot_write(rank):
    model = make_ddp()
    advisor = advisor_of(model, out_dir="/dev/null/advice")
    assert len(train(model, advisor)) == 6 * (STEPS + 4)
    advisor.close()
    assert advisor.advice is None
    assert rank == 1 or "NotADirectoryError" in advisor.error, advisor.error


def rank_measures_too_little(rank):
    """The pause ended before all-reduces of which a bandwidth could be told."""
    model = make_ddp()
    advisor = advisor_of(model)
    advisor._all_reduces = lambda: "no table"
    train(model, advisor)
    advisor.close()
    assert rank == 1 or advisor.advice.policy, advisor.error


def rank_ends_early(_):
    """It ends without close(), while the advice is made."""
    model = make_ddp()
    advisor = advisor_of(model, steps=40)
    train(model, advisor, steps=44)
    while not os.path.exists("advice/run.jsonl"):
        time.sleep(0.001)
    assert advisor.advice is None and advisor._thread.is_alive()


def rank_raises(_):
    """Whatever the training raises reaches it, while steps are recorded and afterwards."""
    model = make_ddp()
    advisor = advisor_of(model, report=False, steps=8)
    for steps in (2, 8):
        for error in (KeyError("own"), StopIteration(3), KeyboardInterrupt(), SystemExit(4)):
            try:
                with advisor.step(lengths=[3]):
                    raise error
            except BaseException as caught:  # pylint: disable=broad-except
                assert caught is error and caught.__cause__ is None, repr(caught)
            else:
                raise AssertionError(f"{error!r} was swallowed")
        train(model, advisor, steps=steps)
    advisor.close()


def rank_is_single(_):
    """One rank without DDP that ends before all steps are recorded."""
    model = make_ddp()
    advisor = advisor_of(model, steps=1000)
    train(model, advisor, steps=12)
    advisor.resume()
    advisor.close()
    assert advisor.advice.policy, advisor.error
    assert any("one rank reduces nothing" in line for line in advisor.advice.lines)


def rank_accumulates(rank):
    import torch

    model = make_ddp()
    advisor = advisor_of(model)
    draw = random.Random(rank)
    for _ in range(STEPS):
        with advisor.step():
            for last in (False, True):
                lengths = [draw.randint(2, 40) for _ in range(4)]
                advisor.batch(lengths=lengths)
                model.require_backward_grad_sync = last  # As no_sync() does.
                advisor.backward(model(torch.randn(4, max(lengths), 64)).square().mean())
    advisor.close()
    if rank == 0:
        text = pathlib.Path("advice/scenario.toml").read_text(encoding="utf-8")
        assert "accumulation_steps = 2\n" in text, text


def rank_main(mode):
    import torch

    torch.set_num_threads(1)
    rank = int(os.environ["RANK"])
    if int(os.environ["WORLD_SIZE"]) > 1:
        torch.distributed.init_process_group("gloo")
    globals()["rank_" + mode](rank)
    if torch.distributed.is_initialized():
        torch.distributed.barrier()


# ---- the tests ------------------------------------------------------------------------------


@functools.lru_cache(maxsize=None)
def check_package():
    done = subprocess.run([sys.executable, "-c", "import stepsim"], env=environment(),
                          capture_output=True, text=True, check=False)
    if "_core" in done.stderr:
        raise small_runner.Skip(f"the package was built for another Python than {sys.executable}")
    assert done.returncode == 0, done.stderr


def environment():
    return {**os.environ, "PYTHONPATH": PACKAGE, "OMP_NUM_THREADS": "1"}


def left_behind():
    """Temporary files, without the folder that newer versions of PyTorch make for their compiler."""
    return [name for name in os.listdir("tmp") if not name.startswith("torchinductor_")]


def run_ranks(mode, ranks=2):
    """Runs all ranks in the current folder, with temporary files in `tmp`. Returns what each
    printed."""
    check_package()
    os.mkdir("tmp")
    done = torch_ranks.run(__file__, mode, ranks=ranks, PYTHONPATH=PACKAGE, TMPDIR=os.path.abspath("tmp"))
    statuses, outputs = zip(*done)
    assert not any(statuses), f"{statuses}\n" + "\n".join(outputs)
    assert not any("Traceback" in output for output in outputs), "\n".join(outputs)
    return outputs


@small_runner.in_new_folder
def test_advice_arrives_and_names_a_policy_and_a_bucket_cap():
    outputs = run_ranks("advises")
    told = json.loads(pathlib.Path("rank0.json").read_text(encoding="utf-8"))
    now = told["options"][0]
    assert (now["policy"], now["bucket_cap"], now["verdict"]) == ("mine", 1 << 20, "now"), now
    assert told["policy"] and told["cap"] >= 1 << 20, told
    # On a busy machine the first line says so, and a last one what held up a step.
    lines = [line for line in told["lines"] if not line.startswith("check first:")]
    assert lines[2].startswith("bucket cap:"), told
    assert all(line.startswith("stalls:") for line in lines[5:]), told
    assert len(lines) in (5, 6), told
    assert "train with" in outputs[0] and lines[1] in outputs[0], outputs[0]
    assert "stepsim" not in outputs[1], outputs[1]
    rows = pathlib.Path("advice/run.jsonl").read_text(encoding="utf-8").splitlines()[1:]
    assert len(rows) == 2 * STEPS
    assert "no all-reduce times" not in lines[2], told  # They were measured.
    # Nothing is left but the folder of the advice; the ranks looked for processes themselves.
    assert left_behind() == [], left_behind()
    assert sorted(os.listdir(".")) == ["advice", "rank0.json", "tmp"], os.listdir(".")


@small_runner.in_new_folder
def test_gradients_are_the_same_bit_for_bit():
    run_ranks("keeps_gradients")


@small_runner.in_new_folder
def test_an_error_of_the_training_reaches_the_caller_unchanged():
    run_ranks("raises", ranks=1)


@small_runner.in_new_folder
def test_a_rank_that_records_nothing_does_not_hold_the_others():
    outputs = run_ranks("fails")
    assert outputs[0].count("no advice: ValueError: rank 1 recorded no step") == 1, outputs[0]
    assert left_behind() == [], left_behind()


@small_runner.in_new_folder
def test_steps_before_a_failure_make_an_advice():
    outputs = run_ranks("fails_midway")
    assert "rank 1 stopped recording too early: ZeroDivisionError" in outputs[0], outputs[0]


@small_runner.in_new_folder
def test_a_rank_without_an_advisor_does_not_hold_the_others():
    outputs = run_ranks("is_alone")
    assert "all-reduces are not measured: not all ranks take part" in outputs[0], outputs[0]


@small_runner.in_new_folder
def test_a_folder_that_cannot_be_written_costs_only_the_advice():
    outputs = run_ranks("cannot_write")
    assert outputs[0].count("stepsim advisor: no advice: NotADirectoryError") == 1, outputs[0]
    assert left_behind() == [], left_behind()


@small_runner.in_new_folder
def test_all_reduces_that_tell_nothing_cost_only_the_bucket_sizes():
    outputs = run_ranks("measures_too_little")
    assert outputs[0].count("stepsim advisor: other bucket sizes are not compared: ") == 1, outputs[0]
    assert "train with" in outputs[0], outputs[0]


@small_runner.in_new_folder
def test_a_training_that_ends_without_close_leaves_no_file():
    run_ranks("ends_early", ranks=1)
    assert left_behind() == [], left_behind()
    assert not os.path.exists("advice/advice.json")


@small_runner.in_new_folder
def test_one_rank_gets_advice_on_batches():
    run_ranks("is_single", ranks=1)


@small_runner.in_new_folder
def test_accumulated_gradients_are_advised_on():
    run_ranks("accumulates")


def test_a_missing_torch_is_named():
    check_package()
    code = "import sys; sys.modules['torch'] = None; import stepsim.torch; stepsim.torch.Advisor"
    done = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True,
                          text=True, check=False)
    assert done.stderr.splitlines()[-1].startswith("ImportError: the Advisor needs PyTorch")


if __name__ == "__main__":
    if "RANK" in os.environ:
        rank_main(sys.argv[1])
    else:
        PACKAGE = os.path.abspath(sys.argv[1])
        sys.exit(small_runner.main(dict(globals())))
