#!/usr/bin/env python3
"""Kills trainings that batch by BatchSampler at random steps, and checks what they have visited.

    PYTHONPATH=BUILD/sim/python /usr/bin/python3 tests/live/sampler_kills.py --trials 200

A trial trains one epoch with DDP over gloo. SIGKILL ends all ranks at a random step, one to three
times; each time the training is started again from the last saved state, in some trials on another
number of ranks. Steps behind the last saved state are undone, as those of a model would be.

Then every sample must have been visited as the rule says:
- on the same number of ranks, the batches of each rank are those of an epoch without a kill;
- else every sample has been visited, and what a run visits on other ranks are samples that no run
  before it visited, but for parts of samples where the policy cuts.

Prints a line of JSON.
"""

import argparse
import collections
import json
import os
import pathlib
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "python"))

import numpy as np  # noqa: E402
import policy_examples  # noqa: E402
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch.utils.data import DataLoader  # noqa: E402

from stepsim.torch import BatchSampler, Piece  # noqa: E402

SAMPLES = 240  # They divide over 1 to 4 ranks.
LENGTHS = np.random.default_rng(8).integers(1, policy_examples.LONGEST + 1, SAMPLES)
EXAMPLES = [
    (kind, parameters)
    for kind, parameters in policy_examples.EXAMPLES
    if kind in (*policy_examples.KEEPS_ALL, "packed_bfd_split", "packed_wrapped")
]
LIMIT_S = 30
STEP_S = 0.002
SAVE_EVERY = 3


class Data:
    def __len__(self):
        return SAMPLES

    def __getitem__(self, item):
        if isinstance(item, Piece):
            return item, torch.ones(item.length)
        return item, torch.ones(int(LENGTHS[item]))


def collate(items):
    rows = torch.nn.utils.rnn.pad_sequence([row for _, row in items], batch_first=True)
    return [name for name, _ in items], rows.sum(dim=1, keepdim=True) / policy_examples.LONGEST


def train(folder, number, rank, size, kind, parameters, workers):
    """One run of a rank: goes on from the saved state, if there is one, to the end of the epoch."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store{number}", rank=rank,
                            world_size=size)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    sampler = BatchSampler(LENGTHS, kind, weighting="sample", seed=5, **parameters)
    saved = folder / "state.json"
    if saved.exists():
        state = json.loads(saved.read_text())["sampler"]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Of another number of ranks.
            sampler.load_state_dict(state)
    sampler.set_epoch(sampler.epoch)
    loader = DataLoader(Data(), batch_sampler=sampler, collate_fn=collate, num_workers=workers)
    log = os.open(folder / f"log{number}.rank{rank}", os.O_CREAT | os.O_APPEND | os.O_WRONLY)
    for (names, rows), step in sampler.steps(loader):
        # Before the all-reduce, so that no rank's state counts a step that another has not logged.
        os.write(log, (json.dumps([step.number, names]) + "\n").encode())
        optimizer.zero_grad()
        (model(rows).mean() * step.loss_scale).backward()
        optimizer.step()
        time.sleep(STEP_S)
        if rank == 0 and step.number % SAVE_EVERY == SAVE_EVERY - 1:
            new = folder / "state.new"
            new.write_text(json.dumps({"run": number, "next": step.number + 1,
                                       "sampler": sampler.state_dict()}))
            new.rename(saved)
    dist.barrier()


def start(folder, number, size, *training):
    """Forks the ranks of one run. Returns their process ids."""
    ranks = []
    for rank in range(size):
        child = os.fork()
        if child == 0:
            status = 1
            try:
                train(folder, number, rank, size, *training)
                status = 0
            except BaseException:  # pylint: disable=broad-except  (the parent hears of it)
                with open(folder / f"error{number}.rank{rank}", "w", encoding="utf-8") as file:
                    traceback.print_exc(file=file)
            finally:
                sys.stdout.flush()
                os._exit(status)
        ranks.append(child)
    return ranks


def lines_of(path):
    try:
        return path.read_bytes().count(b"\n")
    except FileNotFoundError:
        return 0


def end(ranks, folder, number, kill_after):
    """Kills the ranks once rank 0 has done so many steps; None: waits for them. Returns whether
    they ended by themselves."""
    deadline = time.monotonic() + LIMIT_S
    statuses = {}
    while len(statuses) < len(ranks):
        for child in ranks:
            if child not in statuses:
                done, status = os.waitpid(child, os.WNOHANG)
                if done:
                    statuses[child] = status
        if time.monotonic() > deadline:
            kill_after = 0
        if kill_after is not None and lines_of(folder / f"log{number}.rank0") >= kill_after:
            break
        time.sleep(0.001)
    for child in ranks:
        if child not in statuses:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
    if time.monotonic() > deadline:
        raise AssertionError("the ranks hang")
    if len(statuses) == len(ranks) and any(statuses.values()):
        raise AssertionError("".join(path.read_text() for path in folder.glob(f"error{number}*")))
    return len(statuses) == len(ranks)


def visited(folder, number, size):
    """[step] {number: [rank] names} of the steps that all ranks finished."""
    steps = collections.defaultdict(dict)
    for rank in range(size):
        path = folder / f"log{number}.rank{rank}"
        for line in path.read_text().splitlines() if path.exists() else []:
            step, names = json.loads(line)
            steps[step][rank] = [tuple(name) if isinstance(name, list) else name for name in names]
    return {step: own for step, own in steps.items() if len(own) == size}


def sample(name):
    return name[0] if isinstance(name, tuple) else name


def check(runs, kind, parameters):
    """`runs`: [(ranks, {step: [rank] names})] in order, without what was undone."""
    sizes = {size for size, _ in runs}
    epoch = [
        list(BatchSampler(LENGTHS, kind, weighting="sample", seed=5, rank=rank,
                          world_size=runs[0][0], **parameters))
        for rank in range(runs[0][0])
    ]
    if len(sizes) == 1:
        done = {step: names for _, steps in runs for step, names in steps.items()}
        assert sum(len(steps) for _, steps in runs) == len(done) == len(epoch[0]), "steps"
        for rank, batches in enumerate(epoch):
            assert [done[step][rank] for step in range(len(done))] == batches, "batches"
        return
    cuts = isinstance(epoch[0][0][0], Piece)
    seen, before = set(), None
    names_before = collections.Counter()
    for size, steps in runs:
        names = [name for own in steps.values() for batch in own.values() for name in batch]
        if before not in (None, size) and not cuts:
            again = seen & {sample(name) for name in names}
            assert not again, f"visited again on other ranks: {sorted(again)[:5]}"
        before = size
        seen |= {sample(name) for name in names}
        names_before.update(names)
    assert seen == set(range(SAMPLES)), f"never visited: {sorted(set(range(SAMPLES)) - seen)[:5]}"
    if kind == "fixed":  # It has nothing to repeat here.
        assert set(names_before.values()) == {1}, "visited twice"


def trial(draw):
    """Returns (kills, whether the number of ranks changed)."""
    kind, parameters = draw.choice(EXAMPLES)
    changes = draw.random() < 0.4
    size, workers = 2, draw.choice((0, 0, 2))
    folder = pathlib.Path(tempfile.mkdtemp(prefix="stepsim-kills-"))
    try:
        wanted, kills, number, runs = draw.randint(1, 3), 0, 0, []
        while True:
            kill_after = draw.randint(1, 12) if kills < wanted else None
            ranks = start(folder, number, size, kind, parameters, workers)
            ended = end(ranks, folder, number, kill_after)
            steps = visited(folder, number, size)
            if ended:
                runs.append((size, steps))
                break
            kills += 1
            saved = folder / "state.json"
            place = json.loads(saved.read_text()) if saved.exists() else {"run": -1, "next": 0}
            # What the run did up to the state counts; all of it is undone without a state of it.
            kept = {step: own for step, own in steps.items()
                    if place["run"] == number and step < place["next"]}
            if place["run"] == number:
                assert len(kept) == place["next"] - min(steps), "the state counts undone steps"
            runs.append((size, kept))
            number += 1
            if changes:
                size = draw.choice([ranks for ranks in (1, 2, 3, 4) if ranks != size])
        check([run for run in runs if run[1]], kind, parameters)
    except AssertionError as error:
        what = f"{kind} {parameters}, {workers} workers, {folder}"
        raise AssertionError(f"{what}: {error}") from error
    shutil.rmtree(folder)
    return kills, len({size for size, steps in runs if steps}) > 1


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    begun = time.monotonic()
    kills = changed = 0
    for number in range(options.trials):
        try:
            own_kills, is_changed = trial(random.Random(f"{options.seed} {number}"))
        except AssertionError as error:
            print(json.dumps({"failed": str(error), "trial": number}))
            return 1
        kills += own_kills
        changed += is_changed
    print(json.dumps({"trials": options.trials, "kills": kills, "on_other_ranks": changed,
                      "seconds": round(time.monotonic() - begun, 1)}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
