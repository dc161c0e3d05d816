"""Has the workers of somebody else's engine compute the points of a study: the same bytes."""

import concurrent.futures
import multiprocessing
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import small_runner

import stepsim

CAPS = {"ddp.bucket_cap": [f"{mib} MiB" for mib in range(1, 41)]}


def forms(result):
    return result.to_json(), result.to_csv(), str(result)


def pool():
    return concurrent.futures.ProcessPoolExecutor(2, multiprocessing.get_context("spawn"))


def test_a_sweep_of_40_points_in_a_process_pool():
    scenario = stepsim.Scenario("bucket_valley")
    with pool() as executor:
        assert forms(scenario.sweep(CAPS, executor=executor)) == forms(scenario.sweep(CAPS))


def test_compare_and_tune_in_a_process_pool():
    scenario = stepsim.Scenario("token_skew").set("scenario.steps", 8)
    space = {"ddp.bucket_cap": ["1 MiB", "25 MiB"], "policy.token_budget.max_tokens": [1024, 1280]}
    with pool() as executor:
        assert forms(scenario.compare(executor=executor))[:2] == forms(scenario.compare())[:2]
        assert forms(scenario.tune(space, executor=executor)) == forms(scenario.tune(space))


def test_a_scenario_that_is_in_no_file():
    text = stepsim.Scenario("token_skew").text
    profile = stepsim.Profile("cpu_epyc_2core_4ranks").file
    scenario = stepsim.Scenario.from_text(text).set("cluster.profile", profile)
    with pool() as executor:
        assert forms(scenario.sweep(CAPS, executor=executor)) == forms(scenario.sweep(CAPS))


def test_an_error_of_a_worker_is_the_one_of_a_single_process():
    scenario = stepsim.Scenario("token_skew")
    for over in ({"ddp.bucket_cap": ["blue", "red"]}, {"ddp.bucket_cpa": ["1 MiB", "2 MiB"]}):
        errors = []
        for executor in (None, pool()):
            try:
                scenario.sweep(over, executor=executor)
            except stepsim.InputError as error:
                errors.append(str(error))
        assert len(errors) == 2 and errors[0] == errors[1], errors


def test_a_value_that_a_worker_refuses_is_a_row():
    over = {"ddp.bucket_cap": ["1 MiB", "red"]}
    scenario = stepsim.Scenario("token_skew")
    with pool() as executor:
        assert forms(scenario.sweep(over, executor=executor)) == forms(scenario.sweep(over))


def test_a_question_without_points_takes_no_executor():
    try:
        stepsim.Scenario("token_skew").blame(executor=None)
    except TypeError as error:
        assert "executor" in str(error)
        return
    raise AssertionError("blame() took an executor")


def test_a_sweep_of_40_points_with_dask():
    try:
        from dask.distributed import Client, LocalCluster
    except ImportError:
        raise small_runner.Skip("dask.distributed is not installed")
    scenario = stepsim.Scenario("bucket_valley")
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        with Client(cluster) as client:
            with client.get_executor() as executor:
                assert forms(scenario.sweep(CAPS, executor=executor)) == forms(scenario.sweep(CAPS))


if __name__ == "__main__":
    sys.exit(small_runner.main(globals()))
