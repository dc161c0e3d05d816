"""Records of a training whose every time is known: what the profile made of one predicts for others.

A small step model (compute by samples, tokens and tokens x length; two buckets; all-reduces by
latency and bytes) is recorded with one policy, imported by `stepcal import run-record`, and three
policies are predicted. The truth is the same model's step time on the predicted policies' plans.

usage: planted_records_test.py STEPCAL STEPSIM
"""

import json
import os
import pathlib
import random
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
import small_runner  # noqa: E402  (needs the path above)

STEPCAL, STEPSIM = (os.path.abspath(path) for path in sys.argv[1:3])
TENSORS = [("embed", 1000 * 256), *((f"linear.{i}", 256 * 1024) for i in range(6)), ("head", 256 * 1000)]
BUCKETS = [sum(n for _, n in TENSORS[-2:]), sum(n for _, n in TENSORS[:-2])]  # Elements, in launch order.
STEPS = 60
SCENARIO = """
[scenario]
name = "planted"
steps = {steps}
warmup_steps = 0
[cluster]
ranks = {ranks}
profile = "profile.json"
[model]
kind = "recorded"
[ddp]
bucket_cap = "25 MiB"
accumulation_steps = {micro_batches}
no_sync = {no_sync}
[data]
samples = 20000
lengths = {{ uniform = [8, 256] }}
[[policy]]
name = "fixed"
kind = "fixed"
batch_size = 8
[[policy]]
name = "bucketed"
kind = "bucketed"
batch_size = 8
[[policy]]
name = "token_budget"
kind = "token_budget"
max_tokens = 1200
"""


class Training:
    """The planted model. `slow`: {rank: factor of its compute}. `clocks`: {rank: ms ahead}."""

    def __init__(self, ranks=2, gpu=False, data_ms=0.1, slow=None, clocks=None, micro_batches=1, no_sync=True,
                 ms_per_mb=0.4, cores=0):
        self.ranks, self.gpu, self.data_ms = ranks, gpu, data_ms
        self.slow, self.clocks = slow or {}, clocks or {}
        self.micro_batches, self.no_sync, self.ms_per_mb, self.cores = micro_batches, no_sync, ms_per_mb, cores
        self.random = random.Random(5)

    def pass_ms(self, lengths, longest):
        tokens = len(lengths) * longest
        return 1.0 + 0.02 * len(lengths) + 0.01 * tokens + 2e-5 * tokens * longest

    def header(self, policy):
        device = "NVIDIA H100" if self.gpu else "CPU"
        return {
            "format": "stepsim-run-record/1", "policy": policy, "world_size": self.ranks,
            "backend": "nccl" if self.gpu else "gloo", "device": device, "cores": self.cores,
            "versions": {"torch": "2.4.0", **({"cuda": "12.4"} if self.gpu else {})}, "warmup_steps": 0,
            "model": {"name": "Planted", "parameters": [
                {"name": name, "shape": [elements], "dtype": "f32"} for name, elements in TENSORS]},
        }  # fmt: skip

    def step(self, number, batches, start):
        """`batches`: [rank][micro-batch] lengths. Returns the ranks' rows and the step's milliseconds."""
        now = [self.data_ms] * self.ranks
        rows = [dict.fromkeys(("forward", "backward", "wait"), 0.0) | {"buckets": []} for _ in now]
        factors = [self.slow.get(r, 1) * (1 + 0.02 * self.random.gauss(0, 1)) for r in range(self.ranks)]
        for m in range(self.micro_batches):
            reduces = not self.no_sync or m + 1 == self.micro_batches
            launches = []
            for r, row in enumerate(rows):
                lengths = batches[r][m]
                forward = factors[r] * self.pass_ms(lengths, max(lengths))
                row["forward"] += forward
                row["backward"] += 2 * forward
                first = BUCKETS[0] / sum(BUCKETS)
                launches.append([now[r] + forward * (1 + 2 * first), now[r] + 3 * forward])
                now[r] += 3 * forward
            if not reduces:
                continue
            free = 0.0
            for b, elements in enumerate(BUCKETS):
                free = max(free, *(own[b] for own in launches)) + 0.05 + self.ms_per_mb * 4e-6 * elements
                for r, row in enumerate(rows):
                    row["buckets"].append({"bytes": 4 * elements, "launch_ms": launches[r][b], "end_ms": free})
            for r, row in enumerate(rows):
                row["wait"] += free - now[r]
                now[r] = free
        end = max(now) + 2
        return [self.row(number, r, batches[r], row, start, end) for r, row in enumerate(rows)], end

    def row(self, number, rank, batches, times, start, end):
        lengths = [one for batch in batches for one in batch]
        row = {
            "repeat": 0, "step": number, "rank": rank, "samples": len(lengths), "max_length": max(lengths),
            "useful_tokens": sum(lengths), "padded_tokens": sum(len(batch) * max(batch) for batch in batches),
            "start_ms": start + self.clocks.get(rank, 0), "data_ms": self.data_ms,
            "forward_ms": times["forward"], "backward_ms": times["backward"], "wait_ms": times["wait"],
            "optimizer_ms": 2, "step_ms": end, "lengths": lengths, "buckets": times["buckets"],
        }  # fmt: skip
        if self.micro_batches > 1:
            row |= {"micro_batches": self.micro_batches, "micro_batch_samples": [len(one) for one in batches],
                    "micro_batch_max_lengths": [max(one) for one in batches]}
        if not self.gpu:
            row |= {"thread_cpu_ms": end - times["wait"], "forward_cpu_ms": times["forward"],
                    "backward_cpu_ms": times["backward"]}
        return row

    def run(self, plan):
        """Trains a plan. Returns all rows and the mean step."""
        batches = {}
        for line in pathlib.Path(plan).read_text().splitlines()[1:]:
            micro = json.loads(line)
            batches.setdefault(micro["step"], [[] for _ in range(self.ranks)])[micro["rank"]].append(micro["lengths"])
        rows, now = [], 1e6
        for number, own in sorted(batches.items()):
            of_step, took = self.step(number, own, now)
            rows += of_step
            now += took
        return rows, (now - 1e6) / len(batches)


def check(training, recorded="bucketed", limit=0.025):
    """Records `recorded`, predicts all three. Returns what the import said, and the predictions."""
    before = os.getcwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            scenario = SCENARIO.format(steps=STEPS, ranks=training.ranks, micro_batches=training.micro_batches,
                                       no_sync=str(training.no_sync).lower())
            pathlib.Path("scenario.toml").write_text(scenario)
            small_runner.output(STEPSIM, "plan", "scenario.toml", "--out-dir", "plans", "--quiet")
            rows, _ = training.run(f"plans/{recorded}.jsonl")
            lines = [training.header(recorded), *rows]
            pathlib.Path("run.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
            said = small_runner.output(STEPCAL, "import", "run-record", "run.jsonl", "--profile", "profile.json")
            small_runner.output(STEPSIM, "compare", "scenario.toml", "--json", "answer.json", "--quiet")
            predictions = json.loads(pathlib.Path("answer.json").read_text())["predictions"]
            for prediction in predictions:
                _, true = training.run(f"plans/{prediction['policy']}.jsonl")
                step = prediction["summary"]["step_time_ms"]
                low, high = step["interval90"]
                text = f"{prediction['policy']}: {step['mean']:.2f} ({low:.2f} to {high:.2f}), true {true:.2f}\n{said}"
                assert abs(step["mean"] / true - 1) < limit, text
                assert low * 0.995 <= true <= high * 1.005, text
            return said, predictions
        finally:
            os.chdir(before)


def test_on_processors():
    check(Training())
    check(Training(ranks=4, ms_per_mb=2))


def test_on_gpus():
    check(Training(gpu=True, ranks=8))


def test_a_gpu_that_waits_for_its_data_is_not_helped_by_the_host():
    _, predictions = check(Training(gpu=True, data_ms=20))
    for prediction in predictions:
        assert abs(prediction["summary"]["data_ms"] - 20) < 0.1, prediction["summary"]


def test_hosts_with_clocks_of_their_own():
    said, _ = check(Training(gpu=True, ranks=4, ms_per_mb=1, clocks={2: -3.1e8, 3: -3.1e8}))
    assert "clocks are up to 3.1e+05 s apart" in said, said


def test_a_rank_that_is_slower_all_along():
    said, _ = check(Training(gpu=True, ranks=4, slow={2: 1.2}))
    assert "rank 2 1.20 times the usual rank" in " ".join(said.split()), said
    said, _ = check(Training(ranks=2, slow={1: 1.3}))
    assert "rank 1 1.30 times the usual rank" in " ".join(said.split()), said


def test_gradients_that_every_micro_batch_reduces():
    check(Training(gpu=True, micro_batches=3, no_sync=False, ms_per_mb=2), limit=0.04)
    check(Training(gpu=True, micro_batches=3))


def test_cores_that_the_record_says_are_few_but_nobody_shared():
    check(Training(ranks=4, cores=2))


if __name__ == "__main__":
    sys.exit(small_runner.main(globals()))
