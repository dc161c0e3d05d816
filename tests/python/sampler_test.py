#!/usr/bin/env python3
"""stepsim.torch.BatchSampler and PlanSampler, as a training loop uses them.

usage: PYTHONPATH=BUILD/sim/python sampler_test.py
"""

import collections
import contextlib
import copy
import functools
import json
import os
import pathlib
import pickle
import re
import subprocess
import sys
import tempfile
import time
import warnings

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS), str(TESTS / "python")]

import policy_examples  # noqa: E402
import small_runner  # noqa: E402
import torch_ranks  # noqa: E402

try:
    import numpy as np  # noqa: E402
except ImportError as error:
    print(f"SKIPPED: all: NumPy is not installed (python3-numpy): {error}")
    sys.exit(0)

import stepsim  # noqa: E402
from stepsim import _core  # noqa: E402
from stepsim.torch import BatchSampler, Piece, PlanSampler  # noqa: E402
from stepsim.torch.visits import visits_of  # noqa: E402

LENGTHS = np.random.default_rng(5).integers(1, policy_examples.LONGEST + 1, 400)


def torch_data():
    try:
        import torch.utils.data
    except ImportError as error:
        raise small_runner.Skip(f"PyTorch is not installed (python3-torch): {error}") from error
    return torch.utils.data


def sampler(rank=0, world_size=2, policy="token_budget", lengths=LENGTHS, **options):
    if policy == "token_budget":
        options.setdefault("max_tokens", 400)
    return BatchSampler(lengths, policy, rank=rank, world_size=world_size, **options)


def raised(function, *arguments, kind=stepsim.InputError, **options):
    """Returns the message of the error that the call raises."""
    try:
        function(*arguments, **options)
    except kind as error:
        return str(error)
    raise AssertionError("no error was raised")


@contextlib.contextmanager
def warned():
    """A list that holds the texts of the warnings at the end."""
    texts = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield texts
    texts += [str(one.message) for one in caught]


def ids(batch):
    return [one.sample if isinstance(one, Piece) else one for one in batch]


def visits(batches):
    return collections.Counter(one for batch in batches for one in ids(batch))


class Data:
    """A dataset whose items are their ids."""

    def __len__(self):
        return len(LENGTHS)

    def __getitem__(self, index):
        return index


def loader(batches, **options):
    return torch_data().DataLoader(Data(), batch_sampler=batches, collate_fn=list, **options)


# ---- policies -----------------------------------------------------------------------------------


def all_steps(one):
    """[step] (ids, lengths) of all batches."""
    steps = [one._steps().step(number, number, 0) for number in range(len(one))]
    return [(ids(step.samples), step.lengths) for step in steps]


def scenario_of(kind, parameters, ranks, steps):
    policy = {"name": kind, "kind": kind, "weighting": "sample", **parameters}
    document = {
        "scenario": {"name": "test", "seed": 3, "steps": steps},
        "cluster": {"ranks": ranks},
        "model": {"kind": "blocks", "layers": 1, "block_elements": 1},
        "data": {"samples": len(LENGTHS), "lengths": {"constant": 1}},
        "policy": [policy],
    }
    return stepsim.Scenario(document, lengths=LENGTHS)


def test_every_kind_of_policy_has_an_example():
    kinds = {one["kind"] for one in json.loads(_core.ask("policies", [("all", True)]).json())}
    assert kinds - {"plan"} == {kind for kind, _ in policy_examples.EXAMPLES}, kinds


def test_ranks_have_equal_steps_by_every_kind():
    for kind, parameters in policy_examples.EXAMPLES:
        all_ranks = [sampler(rank, 3, kind, **parameters) for rank in range(3)]
        steps = {len(list(one)) for one in all_ranks} | {len(one) for one in all_ranks}
        assert len(steps) == 1 and steps.pop() > 0, (kind, parameters)


def test_batches_are_those_that_stepsim_plan_writes():
    for kind, parameters in policy_examples.EXAMPLES:
        own = [sampler(rank, 3, kind, seed=3, weighting="sample", **parameters)
               for rank in range(3)]
        plan = scenario_of(kind, parameters, 3, len(own[0])).plan()
        for rank, one in enumerate(own):
            played = PlanSampler(plan, rank, 3)
            assert all_steps(played) == all_steps(one), (kind, parameters, rank)
            assert np.allclose(played.loss_scales, one.loss_scales), (kind, parameters, rank)


def test_policies_that_keep_all_samples_visit_each():
    for kind, parameters in policy_examples.EXAMPLES:
        if kind not in policy_examples.KEEPS_ALL or not LENGTHS.max() <= policy_examples.LONGEST:
            continue
        found = visits(batch for rank in range(2) for batch in sampler(rank, 2, kind, **parameters))
        assert set(found) == set(range(len(LENGTHS))), (kind, parameters)


def test_each_sample_is_visited_once_where_ranks_get_equal_shares():
    found = visits(batch for rank in range(2) for batch in sampler(rank, policy="fixed",
                                                                   batch_size=4))
    assert set(found.values()) == {1} and len(found) == len(LENGTHS)


def test_a_fixed_batch_is_pytorchs_own():
    data = torch_data()
    import torch.utils.data.distributed as distributed

    for epoch in range(2):
        for rank in range(3):
            theirs = distributed.DistributedSampler(range(400), 3, rank, seed=7)
            theirs.set_epoch(epoch)
            own = sampler(rank, 3, "fixed", batch_size=8, seed=7)
            own.set_epoch(epoch)
            assert list(own) == list(data.BatchSampler(theirs, 8, False)), (epoch, rank)


def test_policies_that_may_cut_hand_out_pieces_even_of_whole_samples():
    own = sampler(policy="packed_bfd", capacity=256)
    assert own.cuts
    for piece in next(iter(own)):
        assert piece == Piece(piece.sample, 0, LENGTHS[piece.sample])


def test_cut_samples_come_as_pieces_that_cover_them():
    covered = np.zeros(len(LENGTHS), dtype=int)
    for rank in range(2):
        for batch in sampler(rank, policy="packed_wrapped", capacity=32, rows=2):
            for piece in batch:
                assert 0 <= piece.start and piece.start + piece.length <= LENGTHS[piece.sample]
                covered[piece.sample] += piece.length
    assert (covered >= LENGTHS).all()


def test_ranks_without_a_batch_repeat_a_sample():
    # Four batches of one sample for three ranks: the second step has one batch.
    for rank in range(3):
        own = sampler(rank, 3, "fairseq_max_tokens", [7, 8, 9, 10], max_tokens=10,
                      required_batch_size_multiple=1, weighting="token")
        assert [len(batch) for batch in own] == [1, 1], rank
        last = own._steps().step(1, 1, 0)
        assert (last.useful_tokens == 0) == (last.loss_scale == 0) == (rank > 0), (rank, last)


def test_loss_scales_make_the_mean_over_ranks_the_mean_over_units():
    for weighting, unit in (("sample", lambda batch: len(batch)),
                            ("token", lambda batch: sum(LENGTHS[batch]))):
        own = [sampler(rank, 3, weighting=weighting) for rank in range(3)]
        scales = [one.loss_scales for one in own]
        for step, batches in enumerate(zip(*own)):
            counts = [unit(batch) for batch in batches]
            for rank, count in enumerate(counts):
                assert np.isclose(scales[rank][step], 3 * count / sum(counts))


def test_uneven_idle_visits_every_sample_once():
    ranks = [sampler(rank, uneven="idle", weighting="sample") for rank in range(2)]
    assert len(ranks[0]) == len(ranks[1]) == len(sampler())
    last = len(ranks[0]) - 1
    counted = [[step for step in map(own.step_at, range(last + 1)) if step.useful_tokens] for own in ranks]
    assert sorted(sum((step.samples for own in counted for step in own), [])) == list(range(400))
    idle = [own.step_at(last) for own in ranks if own.step_at(last).useful_tokens == 0]
    assert len(idle) == 1 and idle[0].loss_scale == 0 and len(idle[0].samples) == 1, idle
    assert sum(own.step_at(last).loss_scale for own in ranks) == 2
    state = ranks[0].state_dict(steps=3)
    assert "other policy" in raised(sampler(weighting="sample").load_state_dict, state).replace("another", "other")


def test_accumulated_scales_make_the_mean_over_all_batches():
    for weighting in ("sample", "token"):
        ranks = [sampler(rank, weighting=weighting, uneven="idle") for rank in range(2)]
        steps = [[own.step_at(index) for index in range(len(own))] for own in ranks]
        scales = [own.accumulated_scales(3) for own in ranks]
        for begin in range(0, len(steps[0]), 3):
            units = [[(len(step.samples) if weighting == "sample" else step.useful_tokens)
                      if step.useful_tokens else 0 for step in own[begin : begin + 3]] for own in steps]
            expected = 2 * np.array(units) / np.sum(units)
            found = [own[begin : begin + 3] for own in scales]
            assert np.allclose(found, expected, rtol=1e-12), (found, expected)
    plain = sampler().accumulated_scales(3)
    assert plain[0] == 1 / 3 and plain[-1] == 1 / (1 + (len(plain) - 1) % 3), plain
    assert np.array_equal(ranks[0].accumulated_scales(1), ranks[0].loss_scales)
    assert "batches: expected a whole number from 1, not 0" in raised(ranks[0].accumulated_scales, 0)


def test_steps_of_epochs_are_what_they_have():
    own = sampler()
    counts = [own.steps_of(epoch) for epoch in range(4)]
    for epoch, count in enumerate(counts):
        own.set_epoch(epoch)
        assert len(own) == count == len(list(own))
    assert len(set(counts)) > 1, counts


def test_step_at_tells_what_the_loop_gets():
    own = sampler()
    own.load_state_dict(sampler().state_dict(steps=2))
    batches = list(own)
    for index, batch in enumerate(batches):
        step = own.step_at(index)
        assert step.samples == batch and step.number == index + 2, (index, step)
    assert "index: expected a whole number below" in raised(own.step_at, len(batches))


def test_uneven_drop_leaves_the_last_batches_out():
    repeat, drop = sampler(), sampler(uneven="drop")
    counts = drop._at_hand().part.planned.batches_by_rank()
    assert (len(repeat), len(drop)) == (max(counts), min(counts)) and min(counts) < max(counts)


def test_a_policy_may_be_a_dict():
    table = {"kind": "token_budget", "max_tokens": 400, "weighting": "token"}
    assert list(sampler(policy=table)) == list(sampler(weighting="token"))


def test_plans_by_says_what_the_batches_are_weighed_by():
    assert sampler().plans_by is None
    assert sampler(policy="planner", batch_size=4).plans_by == "tokens"
    own = sampler(policy="planner", batch_size=4, profile="cpu_epyc_2core_planner",
                  model="tiny-classifier")
    assert own.plans_by == "time"
    assert own.check_value != sampler(policy="planner", batch_size=4).check_value


# ---- scenarios and plans ------------------------------------------------------------------------


def test_from_scenario_takes_the_scenarios_sampler_and_lengths():
    scenario = stepsim.Scenario("token_skew_2ranks")
    plan = scenario.plan("token_budget")
    for rank in range(2):
        own = BatchSampler.from_scenario(scenario, "token_budget", rank=rank, world_size=2)
        assert list(own)[: plan.steps] == list(PlanSampler(plan, rank, 2))[: len(own)], rank


def test_from_scenario_takes_other_lengths_and_ranks():
    own = BatchSampler.from_scenario("token_skew_2ranks", "token_budget", LENGTHS, rank=2,
                                     world_size=5)
    assert max(max(batch) for batch in own) < len(LENGTHS)


def test_a_plan_is_played_from_its_file():
    plan = scenario_of("packed_wrapped", {"capacity": 32}, 2, 10).plan()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "plan.jsonl")
        plan.write(path)
        own = PlanSampler(path, 1, 2)
    first = next(row for row in range(len(plan)) if plan["rank"][row] == 1)
    assert own.cuts and len(own) == 10
    starts = plan.offsets[first] or [0] * len(plan.samples[first])
    assert next(iter(own)) == list(map(Piece, plan.samples[first], starts, plan.lengths[first]))


def test_a_plan_is_resumed_where_it_stopped():
    plan = scenario_of("fixed", {"batch_size": 4}, 2, 20).plan()
    own = PlanSampler(plan, 0, 2)
    state = own.state_dict(steps=7)
    again = PlanSampler(plan, 0, 2)
    again.load_state_dict(state)
    assert list(again) == list(own)[7:] and len(again) == 13
    for wrong in ({"epoch": 1 << 31}, {"epoch": 10**30}, {"epoch": True}, {"epoch": -1},
                  {"steps": 21}, {"steps": 10**30}, {"steps": True}):
        assert "state: it is damaged" in raised(again.load_state_dict, {**state, **wrong}), wrong


def test_a_plan_of_other_ranks_is_refused():
    plan = scenario_of("fixed", {"batch_size": 4}, 2, 3).plan()
    assert PlanSampler(plan, 1).world_size == 2
    assert "which of the plan's 2 ranks" in raised(PlanSampler, plan)
    assert "rank 2 of 2" in raised(PlanSampler, plan, 2)
    assert "for 2 ranks, but there are 3" in raised(PlanSampler, plan, 0, 3)


def test_a_policy_that_plays_a_file_is_refused():
    assert "PlanSampler" in raised(sampler, policy="plan", file="plan.jsonl")


# ---- epochs -------------------------------------------------------------------------------------


def test_epochs_differ_and_can_be_set_again():
    own = sampler()
    first = list(own)
    own.set_epoch(1)
    second = list(own)
    own.set_epoch(0)
    assert first == list(own) and first != second


def test_an_epoch_that_begins_twice_is_warned_of():
    own = sampler()
    list(own)
    with warned() as texts:
        list(own)
    assert any("call sampler.set_epoch" in text for text in texts), texts


def test_the_next_epoch_is_planned_while_one_runs():
    own = sampler(lengths=np.random.default_rng(1).integers(1, 500, 200_000), max_tokens=8000)
    len(own)
    waited = own.wait_seconds
    for epoch in range(3):
        own.set_epoch(epoch)
        iter(own)
        own._ahead[epoch + 1].get()  # Training takes its time.
    assert own.wait_seconds == waited


def test_errors_of_the_thread_are_raised_in_the_loop():
    own = sampler(policy="fairseq_max_tokens", max_tokens=30)
    assert "30" in raised(len, own)
    assert "30" in raised(iter, own)


# ---- resuming -----------------------------------------------------------------------------------


def played(all_ranks, steps):
    """Plays steps of all ranks. Returns (the batches, a state)."""
    batches = [batch for one in all_ranks for batch in list(one)[:steps]]
    return batches, all_ranks[0].state_dict(steps=steps)


def test_a_resumed_epoch_goes_on_with_the_same_batches():
    for kind, parameters in policy_examples.EXAMPLES:
        own, again = (sampler(1, 2, kind, **parameters) for _ in range(2))
        own.set_epoch(2)
        again.load_state_dict(json.loads(json.dumps(own.state_dict(steps=len(own) // 2))))
        assert again.epoch == 2
        assert list(again) == list(own)[len(own) // 2 :], (kind, parameters)


def test_on_other_ranks_every_sample_is_still_visited():
    for sizes in ((2, 3), (4, 1), (2, 3, 2), (3, 2, 2, 5)):
        for kind in ("token_budget", "min_max", "packed_wrapped"):
            parameters = dict(policy_examples.EXAMPLES)[kind]
            found, state = [], None
            for number, size in enumerate(sizes):
                all_ranks = [sampler(rank, size, kind, **parameters) for rank in range(size)]
                if state is not None:
                    with warned():
                        for one in all_ranks:
                            one.load_state_dict(state)
                steps = 5 if number + 1 < len(sizes) else len(all_ranks[0])
                batches, state = played(all_ranks, steps)
                found += batches
            assert set(visits(found)) == set(range(len(LENGTHS))), (sizes, kind)


def test_on_other_ranks_no_sample_is_visited_twice():
    first, state = played([sampler(rank, 2, "fixed", batch_size=4) for rank in range(2)], 10)
    others = [sampler(rank, 4, "fixed", batch_size=4) for rank in range(4)]
    with warned():
        for one in others:
            one.load_state_dict(state)
    rest, _ = played(others, len(others[0]))
    assert set(visits(first + rest).values()) == {1}  # 320 samples are left for 4 ranks.


def test_other_ranks_are_warned_of_in_plain_words():
    state = sampler().state_dict(steps=5)
    other = sampler(0, 3)
    with warned() as texts:
        other.load_state_dict(state)
    assert len(texts) == 1 and "3 in place of 2 ranks after 5 steps" in texts[0], texts


def test_fewer_samples_than_ranks_may_be_left():
    own = [sampler(rank, 2, "fixed", batch_size=1) for rank in range(2)]
    _, state = played(own, 199)
    others = [sampler(rank, 5, "fixed", batch_size=1) for rank in range(5)]
    with warned() as texts:
        for one in others:
            one.load_state_dict(state)
    assert [len(one) for one in others] == [1] * 5
    left = set(range(400)) - set(visits(batch for one in own for batch in list(one)[:199]))
    assert {sample for one in others for batch in one for sample in batch} == left
    assert "visited once more" in texts[0], texts


def test_an_epoch_that_is_done_has_no_steps_left():
    own = sampler()
    again = sampler(0, 3)
    again.load_state_dict(own.state_dict(steps=len(own)))
    assert len(again) == 0 and list(again) == []
    again.set_epoch(1)
    assert len(again) > 0


def test_set_epoch_keeps_the_place_of_a_loaded_state():
    own = sampler()
    own.set_epoch(3)
    again = sampler()
    again.load_state_dict(own.state_dict(steps=4))
    again.set_epoch(3)
    assert list(again) == list(own)[4:]


def test_a_loop_that_leaves_the_loaded_place_is_warned():
    own = sampler()
    again = sampler()
    own.set_epoch(3)
    again.load_state_dict(own.state_dict(steps=4))
    with warned() as texts:
        again.set_epoch(0)
    assert "step 4 of epoch 3" in texts[0], texts


def test_states_of_others_are_refused():
    state = sampler().state_dict(steps=3)
    assert "lengths" in raised(sampler(lengths=LENGTHS[:-1]).load_state_dict, state)
    assert "policy" in raised(sampler(max_tokens=500).load_state_dict, state)
    assert "seed" in raised(sampler(seed=1).load_state_dict, state)
    changed = copy.deepcopy(state)
    changed["segments"][0][2] = "0" * 16
    assert "not planned as it was" in raised(sampler().load_state_dict, changed)
    for wrong in (None, {}, {"format": state["format"]}, {**state, "segments": [[2]]},
                  {**state, "epoch": "x"}, {**state, "epoch": 2**31}, {**state, "epoch": 10**30},
                  {**state, "segments": [[2, 2**31, "0"]]}, {**state, "segments": [[2**31, 1, "0"]]}):
        assert "state" in raised(sampler().load_state_dict, wrong)
    for epoch in (1 << 31, 10**30, -1, True):
        assert "state: epoch: expected a whole number from 0 up to 2^31" in raised(
            sampler().load_state_dict, {**state, "epoch": epoch}
        ), epoch
    for ranks in (1 << 31, 10**30):
        changed["segments"][0][0] = ranks
        assert f"state: world_size: {ranks} ranks; expected 1 to 2147483647" in raised(
            sampler().load_state_dict, changed
        ), ranks
        assert "world_size: " in raised(sampler, rank=0, world_size=ranks), ranks


# ---- loops --------------------------------------------------------------------------------------


def test_steps_counts_what_the_loop_used_and_not_what_workers_drew():
    for workers in (0, 2):
        own = sampler(weighting="sample")
        expected = list(own)
        own.set_epoch(0)
        for batch, step in own.steps(loader(own, num_workers=workers)):
            assert batch == expected[step.number] == step.samples
            assert step.lengths == LENGTHS[batch].tolist()
            assert step.padded_length == max(step.lengths)
            assert step.useful_tokens == sum(step.lengths)
            assert step.loss_scale == own.loss_scales[step.number]
            if step.number == 6:
                break
        again = sampler(weighting="sample")
        again.load_state_dict(own.state_dict())
        numbers = [step.number for _, step in again.steps(loader(again))]
        assert numbers == list(range(7, len(expected))), workers


def test_workers_that_stay_draw_the_next_epoch():
    own = sampler()
    stays = loader(own, num_workers=1, persistent_workers=True)
    for epoch in range(2):
        own.set_epoch(epoch)
        batches = [batch for batch, _ in own.steps(stays)]
        again = sampler()
        again.set_epoch(epoch)
        assert batches == list(again), epoch


class LooksAhead:
    """A loader around a loader that holds the next batch already, as Accelerate's do."""

    def __init__(self, inner):
        self.inner, self.batch_sampler = inner, inner.batch_sampler

    def __iter__(self):
        held = None
        for batch in self.inner:
            if held is not None:
                yield held
            held = batch
        yield held


def test_steps_counts_behind_a_loader_that_looks_ahead():
    own = sampler()
    expected = list(own)
    own.set_epoch(0)
    for batch, step in own.steps(LooksAhead(loader(own, num_workers=1))):
        assert batch == step.samples == expected[step.number]
        if step.number == 4:
            break
    assert own.state_dict()["segments"][0][1] == 5


def test_a_place_that_nobody_knows_is_refused():
    own = sampler()
    for _ in loader(own, num_workers=2):
        break
    assert "steps=k" in raised(own.state_dict)
    assert own.state_dict(steps=1)["segments"][0][1] == 1
    assert "had" in raised(own.state_dict, steps=10_000)


def test_a_loader_of_another_sampler_is_refused():
    assert "another batch sampler" in raised(list, sampler().steps(loader(sampler())))


def test_an_error_in_the_loop_is_the_trainings_own():
    own = sampler()
    try:
        for _, step in own.steps(loader(own, num_workers=1)):
            if step.number == 2:
                raise KeyError("the training's own")
    except KeyError as error:
        assert "the training's own" in str(error)
    assert own.state_dict()["segments"][0][1] == 3


class Deadly(Data):
    def __getitem__(self, index):
        os._exit(7)


def test_a_dead_worker_is_pytorchs_error():
    data = torch_data()
    own = sampler()
    dying = data.DataLoader(Deadly(), batch_sampler=own, collate_fn=list, num_workers=1)
    message = raised(list, own.steps(dying), kind=RuntimeError)
    assert "worker" in message, message


def test_a_process_that_fails_ends_with_its_own_error():
    """Even while the thread plans."""
    program = (
        "import numpy, stepsim.torch\n"
        "own = stepsim.torch.BatchSampler(numpy.arange(1, 300001) % 500 + 1, 'min_max',"
        " global_batch=64, rank=0, world_size=2)\n"
        "raise SystemError('the training is broken')\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True,
                          timeout=60, check=False)
    assert done.returncode == 1, done
    assert done.stderr.strip().endswith("SystemError: the training is broken"), done.stderr


def test_a_forked_process_plans_by_itself():
    own = sampler(lengths=np.random.default_rng(1).integers(1, 500, 300_000), max_tokens=8000)
    child = os.fork()
    if child == 0:
        os._exit(0 if len(own) > 0 and len(list(own)) == len(own) else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_a_copy_goes_on_at_the_same_place():
    own = sampler()
    own.load_state_dict(sampler(0, 2).state_dict(steps=4))
    again = pickle.loads(pickle.dumps(own))
    assert list(again) == list(own) and again.check_value == own.check_value
    other = sampler(0, 3)
    with warned():
        other.load_state_dict(sampler().state_dict(steps=4))
    assert list(pickle.loads(pickle.dumps(other))) == list(other)


# ---- ranks --------------------------------------------------------------------------------------


def with_environment(**variables):
    """Runs a test with these environment variables."""

    def wrap(test):
        @functools.wraps(test)
        def wrapped():
            before = dict(os.environ)
            os.environ.update(variables)
            try:
                test()
            finally:
                os.environ.clear()
                os.environ.update(before)

        return wrapped

    return wrap


@with_environment(RANK="1", WORLD_SIZE="3")
def test_the_rank_is_that_of_the_environment():
    own = BatchSampler(LENGTHS, "fixed", batch_size=4)
    assert (own.rank, own.world_size) == (1, 3)


@with_environment(RANK="0", WORLD_SIZE="1")
def test_a_sampler_of_another_process_is_refused():
    own = BatchSampler(LENGTHS, "fixed", batch_size=4)
    os.environ.update(RANK="1", WORLD_SIZE="2")
    assert "this process is rank 1 of 2" in raised(iter, own)


@with_environment(RANK="one", WORLD_SIZE="2")
def test_wrong_ranks_are_refused():
    assert "RANK is 'one'" in raised(BatchSampler, LENGTHS, "fixed", batch_size=4)
    assert "rank 2 of 2" in raised(sampler, 2, 2)
    assert "rank -1" in raised(sampler, -1, 2)
    assert "world_size" in raised(sampler, 0, 0)
    assert "whole number" in raised(sampler, "0", 2)


def on_ranks(program, folder, ranks):
    """Runs a Python program on ranks with gloo. Returns [rank] what each printed."""
    file = pathlib.Path(folder, "program.py")
    file.write_text(program, encoding="utf-8")
    before = os.getcwd()
    os.chdir(folder)
    try:
        statuses, texts = zip(*torch_ranks.run(file.name, ranks=ranks))
    finally:
        os.chdir(before)
    assert not any(statuses), (statuses, texts)
    return texts


def examples():
    """The Python blocks of the README of stepsim.torch."""
    readme = (TESTS.parent / "sim/python/stepsim/torch/README.md").read_text(encoding="utf-8")
    return re.findall(r"```python\n(.*?)```", readme, re.DOTALL)


def test_the_training_of_the_readme_runs_and_resumes():
    (training,) = (text for text in examples() if "CHECKPOINT" in text)
    with tempfile.TemporaryDirectory() as folder:
        whole = on_ranks(training, folder, 2)[0]
        assert re.findall(r"epoch (\d): (\d+) steps", whole)[0][0] == "0", whole
        assert len(re.findall("epoch", whole)) == 3, whole
        # The last checkpoint was made inside the last epoch.
        again = on_ranks(training, folder, 2)[0]
    steps = [int(text) for text in re.findall(r": (\d+) steps", whole)]
    assert re.findall(r"epoch (\d): (\d+) steps", again) == [("2", str(steps[2] % 10))], again


def test_all_python_of_the_readme_can_be_parsed():
    for number, text in enumerate(examples()):
        compile(text, f"example {number}", "exec")


VERIFY = """
import os
import numpy, torch.distributed as dist
import stepsim
from stepsim.torch import BatchSampler
rank = int(os.environ["RANK"])
dist.init_process_group("gloo")
lengths = numpy.arange(1, 301)
def told(**options):
    own = BatchSampler(options.pop("lengths", lengths), "token_budget",
                       **{"max_tokens": 900, **options})
    try:
        own.verify()
        return "agreed"
    except stepsim.InputError as error:
        return str(error)
odd = rank == 2
for text in (told(), told(seed=5 if odd else 4), told(lengths=lengths[:-1] if odd else lengths),
             told(max_tokens=950 if odd else 900),
             told(rank=rank, world_size=4 if odd else 3),
             told(rank=0 if odd else rank, world_size=3)):
    print(text)
own = BatchSampler(lengths, "token_budget", max_tokens=900)
own.set_epoch(4 if odd else 3)
try:
    own.verify()
except stepsim.InputError as error:
    print(error)
dist.barrier()
"""


def test_verify_names_the_rank_that_differs_on_all_ranks():
    with tempfile.TemporaryDirectory() as folder:
        texts = on_ranks(VERIFY, folder, 3)
    lines = texts[0].strip().splitlines()
    assert texts[1] == texts[2] == texts[0], texts
    assert lines[0] == "agreed", lines
    assert lines[1].startswith("rank 2 has another policy") or "seed" in lines[1], lines
    assert lines[2].startswith("rank 2 has another number of samples (299)"), lines
    assert lines[3].startswith("rank 2 has another policy"), lines
    assert lines[4].startswith("rank 2 plans for 4 ranks, but 3 are here"), lines
    assert lines[5].startswith("rank 2 takes the batches of rank 0"), lines
    assert lines[6].startswith("rank 2 has another epoch (4)"), lines


def test_visits_count_every_token():
    for seed in range(50):
        draw = np.random.default_rng(seed)
        lengths = draw.integers(1, 9, 12)
        rows, uses = [], collections.Counter()
        for sample in draw.integers(0, 12, draw.integers(0, 40)).tolist():
            whole = seed % 2 == 0
            start = 0 if whole else int(draw.integers(0, lengths[sample]))
            end = int(lengths[sample]) if whole else int(draw.integers(start, lengths[sample])) + 1
            rows.append((sample, start, end - start))
            uses.update((sample, token) for token in range(start, end))
        counts = [[uses[sample, token] for token in range(length)]
                  for sample, length in enumerate(lengths.tolist())]
        ids = np.arange(0, 12, 2)
        found = visits_of(np.array(rows, dtype=np.int64).reshape(-1, 3), ids, lengths)
        assert found.repeated.tolist() == [one for one in ids if max(counts[one]) > 1], seed
        assert found.left_out.tolist() == [one for one in ids if min(counts[one]) == 0], seed
        assert found.once == sum(set(counts[one]) == {1} for one in ids), seed


COUNT = """
import os
import numpy, torch.distributed as dist
import stepsim
from stepsim.torch import BatchSampler, PlanSampler
rank = int(os.environ["RANK"])
dist.init_process_group("gloo")
lengths = numpy.arange(1, 302)
def own(policy="token_budget", **options):
    return BatchSampler(lengths, policy, **(options or {"max_tokens": 900}))
def steps_of(sampler):
    return sampler._steps()
def duplicate(sampler):  # In place of its neighbour.
    steps_of(sampler)._samples[7] = steps_of(sampler)._samples[6]
def loss(sampler):
    steps_of(sampler)._offsets[-1] -= 1
def longer(sampler):
    whole = steps_of(sampler).batch
    steps_of(sampler).batch = lambda step: whole(step) + whole(0)[:1] * (step == 2)
def moved(sampler):
    steps_of(sampler)._starts[3] += 1
def told(sampler, plant=None):
    first = [int(one) for one in steps_of(sampler)._samples[6:8]]
    last = int(steps_of(sampler)._samples[-1])
    if plant is not None and rank == 1:
        plant(sampler)
    try:
        text = str(sampler.verify())
    except stepsim.InputError as error:
        text = str(error)
    if rank == 1:
        print(first, last)
    print(text)
plan = stepsim.Scenario("token_skew_2ranks").plan("variable_fixed")
told(own())
told(own(policy="fixed", batch_size=4))
told(own(policy="fixed", batch_size=4, drop_last=True))
told(PlanSampler(plan))
for plant in (duplicate, loss, longer):
    told(own(), plant)
    told(PlanSampler(plan), plant)
told(own(policy="packed_wrapped", capacity=64), moved)
resumed = own(policy="fixed", batch_size=4)
resumed.load_state_dict(resumed.state_dict(steps=3))
told(resumed)
dist.barrier()
"""


def test_verify_counts_every_sample_on_all_ranks():
    with tempfile.TemporaryDirectory() as folder:
        told, planted = (text.strip().splitlines() for text in on_ranks(COUNT, folder, 2))
    own = [line for line in planted if not line.startswith("[")]
    assert own == told, (own, told)  # All ranks hear the same.
    clean, faults, resumed = told[:4], told[4:-1], told[-1]
    assert clean[0].startswith("301 samples: ") and clean[0].endswith(" 0 left out or cropped")
    assert clean[1] == "301 samples: 300 visited once, 1 more often, 0 left out or cropped"
    assert clean[2] == "301 samples: 296 visited once, 0 more often, 5 left out or cropped"
    assert "0 left out" in clean[3] and resumed == clean[1], (clean, resumed)
    places = [json.loads(line.replace("] ", ", ") + "]") for line in planted if line[0] == "["]
    samples, planned, last = zip(*places[4:])
    for place in (0, 1):  # BatchSampler and PlanSampler.
        double, lost, more = faults[place:6:2]
        missing = f"missing: sample {planned[place]} on rank 1; visited too often: sample "
        assert f"{missing}{samples[place]} on rank 1." in double, double
        assert f"missing: sample {last[2 + place]} on rank 1." in lost and "often" not in lost, lost
        assert "too often: sample " in more and "missing" not in more, more
    assert faults[6].count("(tokens ") == 2, faults[6]


# ---- wrong input --------------------------------------------------------------------------------


def test_wrong_lengths_are_refused():
    for lengths, expected in (
        ([], "no samples"),
        ([3, -1, 2], "sample 1 has -1 tokens"),
        ([3, 0], "sample 1 has 0 tokens"),
        ([1.0, float("nan")], "sample 1 has nan"),
        ([1.5, 2.0], "no whole number"),
        ([1, 1 << 40], "expected 1 to"),
        (["12", "13"], "expected whole numbers"),
        ([[1, 2], [3, 4]], "shape"),
        ([[1, 2], [3]], "a number a sample"),
        ([True, False], "whole numbers"),
        ([1, None], "whole numbers"),
        (7, "shape"),
        (None, "shape"),
        ("lengths.txt", "not a str"),
        ({"a": 1}, "not a dict"),
    ):
        message = raised(sampler, lengths=lengths)
        assert expected in message, (lengths, message)


def test_lengths_may_be_held_in_anything():
    expected = list(sampler())
    held = [LENGTHS.tolist(), tuple(LENGTHS), LENGTHS.astype(np.float32), LENGTHS.astype(np.uint16)]
    try:
        import torch

        held += [torch.tensor(LENGTHS), torch.tensor(LENGTHS, dtype=torch.int32)]
    except ImportError:
        pass
    for lengths in held:
        assert list(sampler(lengths=lengths)) == expected, type(lengths)


def test_lengths_that_change_later_do_not_change_the_plan():
    held = LENGTHS.copy()
    own = sampler(lengths=held)
    held[:] = 1
    own.set_epoch(1)
    again = sampler()
    again.set_epoch(1)
    assert list(own) == list(again)


class Column(collections.abc.Sequence):
    """As a lazy column of a Hugging Face dataset."""

    def __len__(self):
        return len(LENGTHS)

    def __getitem__(self, index):
        return int(LENGTHS[index]) if isinstance(index, int) else [int(x) for x in LENGTHS[index]]


def test_lengths_may_be_a_column_of_a_dataset():
    assert list(sampler(lengths=Column())) == list(sampler())


def test_ten_million_lengths_are_taken():
    lengths = np.random.default_rng(0).integers(1, 500, 10_000_000, dtype=np.int32)
    own = sampler(lengths=lengths, policy="fixed", batch_size=64)
    assert len(own) == 78125


def test_wrong_policies_are_refused():
    for kind, parameters, expected in (
        ("token_budgt", {}, "did you mean 'token_budget'?"),
        ("token_budget", {"max_token": 3}, "did you mean 'max_tokens'?"),
        ("fixed", {}, "needs batch_size"),
        ("fixed", {"batch_size": -1}, "too small"),
        ("fixed", {"batch_size": "four"}, "expected an integer"),
        ("fixed", {"batch_size": float("nan")}, "finite"),
        ("fixed", {"batch_size": object()}, "texts, numbers"),
        ("fixed", {"batch_size": 4, "weighting": "tokens"}, "weighting"),
        ("fixed", {"batch_size": 4, "uneven": "cut"}, "uneven"),
        ("fixed", {"batch_size": 4, "seed": -1}, "seed"),
        ("fixed", {"batch_size": 4, "shuffle": "yes"}, "shuffle"),
        ("min_max", {"global_batch": 8, "cost": "step_time"}, "no profile"),
        (3, {}, "from_scenario"),
        ({"batch_size": 4}, {}, "kind"),
    ):
        message = raised(sampler, policy=kind, **parameters)
        assert expected in message and "BatchSampler:" not in message, (kind, message)


def test_a_profile_needs_a_model_that_it_prices():
    options = {"policy": "planner", "batch_size": 4, "profile": "cpu_epyc_2core_planner"}
    assert "say which with model=" in raised(sampler, **options)
    assert "no-such-model" in raised(sampler, model="no-such-model", **options)
    assert "nowhere.json" in raised(sampler, policy="fixed", batch_size=4, profile="nowhere.json")


def test_more_ranks_than_samples_are_refused():
    assert "at least one a rank" in raised(sampler, 0, 500)


if __name__ == "__main__":
    sys.exit(small_runner.main(dict(globals())))
