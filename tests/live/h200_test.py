#!/usr/bin/env python3
"""Fits and validates the records of real PyTorch on an H200 (live/H200.md, live/OWN_GPU.md) and an H100
(live/H100.md): known models op by op, and models of one's own by whole steps.

usage: h200_test.py STEPCAL STEPSIM
"""

import json
import os
import pathlib
import sys
import tarfile
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "live")]
import own_gpu  # noqa: E402  (needs the path above)
import small_runner  # noqa: E402
from small_runner import run  # noqa: E402

STEPCAL, STEPSIM = (os.path.abspath(path) for path in sys.argv[1:3])
SCENARIO = ROOT / "scenarios" / "gpt2_medium_1gpu.toml"
OWN = own_gpu.SCENARIO
BERT = ROOT / "calibrate" / "cuda" / "bert_1gpu.toml"
LENGTHS = ROOT / "scenarios" / "lengths"
DEVICE_BOUND = ("packed", "max_tokens", "fixed")
HOST_BOUND = ("group_by_length", "small_fixed")


def unpacked(name, folder):
    with tarfile.open(ROOT / "tests" / "live" / "records" / f"{name}.tar.xz") as archive:
        archive.extractall(folder)
    return pathlib.Path(folder) / name


def errors(scenario, live, *options):
    """Relative errors of the mean steps, and whether the interval holds them, by policy."""
    report = live / "validation.json"
    records = sorted(live.glob("*.jsonl"))
    run(STEPSIM, "validate", scenario, "--live", *records, "--json", report, *options, status=(0, 1))
    rows = json.loads(report.read_text(encoding="utf-8"))["policies"]
    return {row["policy"]: (row["error"]["mean"], row["in_interval"]) for row in rows}


def profile_of(records):
    """Fitted to what was measured, but for first meetings: they were taken on a process's first shapes."""
    run(STEPCAL, "fit", records / "h200_gpt2_medium.samples.jsonl", "--out", records / "profile.json")
    return records / "profile.json"


def test_the_samples_that_are_fitted_are_those_of_the_run():
    with tempfile.TemporaryDirectory() as folder:
        records = unpacked("h200_gpt2_medium", folder)
        of_run = (records / "flash" / "samples.jsonl").read_text(encoding="utf-8").splitlines()[1:]
        fitted = (records / "h200_gpt2_medium.samples.jsonl").read_text(encoding="utf-8").splitlines()[1:]
        assert fitted == [line for line in of_run if '"kind":"meeting"' not in line]


def test_steps_with_flash_attention_are_predicted_from_ops():
    with tempfile.TemporaryDirectory() as folder:
        records = unpacked("h200_gpt2_medium", folder)
        profile = profile_of(records)
        for run_of in ("flash", "flash_earlier"):
            found = errors(SCENARIO, records / run_of / "live", "--profile", profile)
            assert set(found) == {*DEVICE_BOUND, *HOST_BOUND}
            for policy in DEVICE_BOUND:
                assert abs(found[policy][0]) < 0.005, (run_of, policy, found[policy])
            for policy in HOST_BOUND:
                assert abs(found[policy][0]) < 0.10, (run_of, policy, found[policy])
            assert all(inside for _, inside in found.values()), found


def test_the_shipped_profile_is_of_these_measurements():
    with tempfile.TemporaryDirectory() as folder:
        records = unpacked("h200_gpt2_medium", folder)
        fitted = json.loads(profile_of(records).read_text(encoding="utf-8"))
        shipped = ROOT / "scenarios" / "profiles" / "h200_gpt2_medium.json"
        kept = json.loads(shipped.read_text(encoding="utf-8"))
        for member in ("ops", "host", "noise", "device"):
            assert kept[member] == fitted[member], member


def test_the_policies_of_the_sixth_visit_are_predicted_from_ops():
    with tempfile.TemporaryDirectory() as folder:
        records = unpacked("h200_host", folder) / "visit3"
        for model, scenario, worst in (("cudnn", SCENARIO, 0.07), ("bert", BERT, 0.04)):
            profile = records / f"{model}.json"
            run(STEPCAL, "fit", records / model / "samples.jsonl", "--out", profile)
            found = errors(scenario, records / model / "live", "--profile", profile)
            assert all(abs(error) < worst for error, _ in found.values()), (model, found)
            assert sum(inside for _, inside in found.values()) >= len(found) - 1, (model, found)


def whole_steps(records, model="hf_gpt2"):
    """Imports the record of a calibration. Returns the seconds of a new shape, and errors by policy."""
    profile = records / f"{model}.json"
    run(STEPCAL, "import", "run-record", records / "mine.jsonl", "--profile", profile)
    (cost,) = json.loads(profile.read_text(encoding="utf-8"))["new_shapes"]
    scenario = records / f"{model}.toml"
    text = scenario.read_text(encoding="utf-8").replace('"lengths/', f'"{LENGTHS}/')
    scenario.write_text(text, encoding="utf-8")
    return cost["forward_s"] + cost["backward_s"], errors(scenario, records / "live")


def test_the_host_s_times_tell_what_new_shapes_cost():
    with tempfile.TemporaryDirectory() as folder:
        records = unpacked("h200_host", folder)
        inside = 0
        for visit in ("visit2", "visit3"):
            seconds, found = whole_steps(records / visit / "own")
            # What steps of shapes met first took the host more in the live runs of small batches: 135 ms.
            assert 0.13 < seconds < 0.17, seconds
            assert all(abs(error) < 0.14 for error, _ in found.values()), found
            inside += sum(inside for _, inside in found.values())
        assert inside >= 7, inside


def test_a_host_that_waits_for_its_queue_is_no_slower_host():
    with tempfile.TemporaryDirectory() as folder:
        records = unpacked("h100", folder)
        # The rule was made on the first visit's record; the second's was predicted with it. The first
        # visit's host took 137 ms a step in the live run and 109 in the record, so that `fixed`, which
        # either may decide, is 5.5 % too fast; with waits for the host in the device's times it was 0.7.
        for visit, mean, worst in (("visit1", 0.041, 0.09), ("visit2", 0.02, 0.05)):
            seconds, found = whole_steps(records / visit / "llama", "llama")
            assert seconds < 0.03, seconds
            sizes = [abs(error) for error, _ in found.values()]
            assert sum(sizes) / len(sizes) < mean and max(sizes) < worst, (visit, found)
            assert all(inside for _, inside in found.values()), (visit, found)


def test_the_page_of_own_models_has_the_tables_of_the_records():
    page = (ROOT / "tests" / "live" / "OWN_GPU.md").read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        records = unpacked("own_gpu", folder)
        for model in own_gpu.TITLES:
            lines = list(own_gpu.text_of(records / model))
            assert sum(line.startswith("|") for line in lines) == 12, lines
            assert all(line in page for line in lines), [line for line in lines if line not in page][:1]


def test_kernels_loaded_for_the_first_shapes_do_not_come_again():
    with tempfile.TemporaryDirectory() as folder:
        records = unpacked("own_gpu", folder) / "gpt2"
        profile = records / "profile.json"
        said = run(STEPCAL, "import", "run-record", records / "whole.jsonl", "--profile", profile).stdout
        assert "2 first meetings of shapes were held up by 2.605 s" in said, said
        assert "stalls:" not in said, said
        found = errors(OWN, records / "live", "--profile", profile)
        assert all(abs(error) < 0.14 for error, _ in found.values()), found  # +11 to +27 % with them.
        assert all(inside for _, inside in found.values()), found  # 1 of 4 with them.


def test_the_shipped_profile_of_the_h100_is_of_its_first_visit():
    with tempfile.TemporaryDirectory() as folder:
        records = unpacked("h100", folder) / "visit1"
        profile = records / "profile.json"
        run(STEPCAL, "fit", records / "flash" / "samples.jsonl", "--out", profile)
        fitted = json.loads(profile.read_text(encoding="utf-8"))
        kept = json.loads((ROOT / "scenarios" / "profiles" / "h100_gpt2_medium.json").read_text(encoding="utf-8"))
        for member in ("ops", "host", "noise", "device", "new_shapes"):
            assert kept[member] == fitted[member], member
        found = errors(SCENARIO, records / "flash" / "live", "--profile", profile)
        for policy in DEVICE_BOUND:
            assert abs(found[policy][0]) < 0.02, found


def test_the_device_s_times_hide_a_part_of_what_new_shapes_cost():
    with tempfile.TemporaryDirectory() as folder:
        seconds, found = whole_steps(unpacked("h200_hf_gpt2", folder))
        # What steps of shapes met first took more than others in the live run: 157 ms.
        assert 0.10 < seconds < 0.17, seconds
        assert all(abs(found[policy][0]) < 0.05 for policy in ("fixed", "max_tokens")), found
        assert all(abs(error) < 0.25 for error, _ in found.values()), found


if __name__ == "__main__":
    sys.exit(small_runner.main(globals()))
