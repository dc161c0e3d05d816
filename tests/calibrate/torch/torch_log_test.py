#!/usr/bin/env python3
"""Steps of a real training on two ranks of gloo, as StepLog hands them to sinks that stand for W&B and
the others: same calls, no network.

Run with RANK in the environment it is one rank of that training.
"""

import json
import os
import pathlib
import re
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "calibrate" / "torch")]

import small_runner  # noqa: E402
import torch_ranks  # noqa: E402
import stepsim_log  # noqa: E402

STEPS, EVERY = 23, 5
LENGTHS = [[4, 9, 6], [12, 3]]  # [rank]


class Writer:
    """Stands for torch.utils.tensorboard.SummaryWriter."""

    def __init__(self):
        self.scalars = []

    def add_scalar(self, tag, scalar_value, global_step=None):
        self.scalars.append((tag, scalar_value, global_step))


def rank_main():
    import torch
    import torch.distributed as dist
    from stepsim_recorder import Recorder

    rank = int(os.environ["RANK"])
    dist.init_process_group("gloo")
    ddp = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(32, 32))
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.01)
    logged, writer, metrics = [], Writer(), []
    log = stepsim_log.StepLog(
        logged.append, stepsim_log.tensorboard_sink(writer),
        stepsim_log.mlflow_sink(lambda values, step: metrics.append((step, values))),
        stepsim_log.prometheus_sink("steps.prom", job='a "b"'), every=EVERY, flops_per_token=6e9, peak_tflops=2)
    recorder = Recorder("run", model=ddp, on_row=log)
    for _ in range(STEPS):
        with recorder.step(lengths=LENGTHS[rank]):
            optimizer.zero_grad()
            loss = ddp(torch.randn(len(LENGTHS[rank]), max(LENGTHS[rank]), 32)).square().mean()
            recorder.backward(loss)
            optimizer.step()
    recorder.close()
    dist.barrier()
    with open(f"logged{rank}.json", "w", encoding="utf-8") as file:
        json.dump([logged, writer.scalars, metrics], file)


def in_folder(check):
    def test():
        before = os.getcwd()
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            try:
                check(pathlib.Path(folder))
            finally:
                os.chdir(before)

    test.__doc__ = check.__doc__
    return test


@in_folder
def test_all_sinks_get_the_same_sums_of_all_ranks(folder):
    for status, output in torch_ranks.run(__file__):
        assert status == 0, output
    logged, scalars, metrics = json.loads((folder / "logged0.json").read_text(encoding="utf-8"))
    assert json.loads((folder / "logged1.json").read_text(encoding="utf-8")) == [[], [], []]
    assert 1 <= len(logged) <= STEPS // EVERY, logged  # What rank 1 tells late may miss the end.
    rows = [json.loads(line) for line in (folder / "run.jsonl").read_text(encoding="utf-8").splitlines()[1:]]
    for number, values in enumerate(logged):
        steps = range(number * EVERY, (number + 1) * EVERY)
        own = [[row for row in rows if row["rank"] == rank and row["step"] in steps] for rank in range(2)]
        longest = [max(row["step_ms"] for row in pair) for pair in zip(*own)]
        shortest = [min(row["wait_ms"] for row in pair) for pair in zip(*own)]
        wait = sum(row["wait_ms"] for rank in own for row in rank) / 2
        expected = {
            "step": steps[-1],
            "useful_tokens_per_s": 1e3 * 34 * EVERY / sum(longest),
            "useful_share": 34 / (27 + 24),
            "step_ms": sum(longest) / EVERY,
            "waiting_ms": (wait - sum(shortest)) / EVERY,
            "exposed_ms": sum(shortest) / EVERY,
            "token_skew": 27 / 25.5,
            "loading_ms": sum(row["data_ms"] for rank in own for row in rank) / 2 / EVERY,
            **{part: sum(row[part] for rank in own for row in rank) / 2 / EVERY
               for part in ("forward_ms", "backward_ms", "optimizer_ms")},
        }
        expected["tflops"] = 6e9 * expected["useful_tokens_per_s"] / 2 / 1e12
        expected["mfu"] = expected["tflops"] / 2
        assert set(values) == {f"stepsim/{name}" for name in expected}, values
        for name, value in expected.items():
            assert abs(values[f"stepsim/{name}"] - value) <= 1e-6 * abs(value) + 1e-9, (name, values, value)
        assert metrics[number] == [steps[-1], values]
    assert scalars == [[name, value, values["stepsim/step"]] for values in logged for name, value in values.items()]
    text = (folder / "steps.prom").read_text(encoding="utf-8")
    last = dict(re.findall(r'^(stepsim_\w+)\{job="a \\"b\\""\} (\S+)$', text, re.MULTILINE))
    assert {name.replace("/", "_"): value for name, value in logged[-1].items()} == {
        name: float(value) for name, value in last.items()}, text
    assert text.count("# TYPE ") == len(last) and [p.name for p in folder.glob("*.tmp")] == []


ROW = {"step": 0, "useful_tokens": 8, "padded_tokens": 10, "step_ms": 4.0, "data_ms": 0.0,
       "forward_ms": 1.0, "backward_ms": 2.0, "optimizer_ms": 1.0}


def test_one_process_without_a_group_and_without_waits():
    logged = []
    log = stepsim_log.StepLog(logged.append, every=2)
    for step in range(5):
        log({**ROW, "step": step})
    assert [values["stepsim/step"] for values in logged] == [1, 3], logged
    assert logged[0]["stepsim/useful_tokens_per_s"] == 2000 and logged[0]["stepsim/useful_share"] == 0.8
    assert logged[0]["stepsim/waiting_ms"] == logged[0]["stepsim/exposed_ms"] == 0
    assert "stepsim/mfu" not in logged[0]


def test_an_error_in_a_sink_ends_the_log_and_not_the_training():
    calls = []

    def broken(values):
        calls.append(values)
        raise OSError("no route to host")

    log = stepsim_log.StepLog(broken, every=1)
    for step in range(3):
        log({**ROW, "step": step})
    assert len(calls) == 1, calls


def test_an_advice_becomes_numbers():
    class Option:
        def __init__(self, gain, interval, step_ms=10.0):
            self.gain, self.gain_interval90, self.step_ms, self.useful_tokens_per_s = gain, interval, step_ms, 100.0

    class Advice:
        options = [Option(0.0, (0, 0)), Option(0.1, (0.0, 0.2)), Option(0.3, (0.2, 0.4))]

    assert stepsim_log.of_advice(Advice) == {
        "stepsim/now_step_ms": 10.0, "stepsim/now_useful_tokens_per_s": 100.0,
        "stepsim/best_gain": 0.3, "stepsim/best_gain_low": 0.2, "stepsim/best_gain_high": 0.4}


if __name__ == "__main__":
    if "RANK" in os.environ:
        rank_main()
    else:
        sys.exit(small_runner.main(dict(globals())))
