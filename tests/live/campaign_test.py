#!/usr/bin/env python3
"""Tests the campaign's parts on made-up data, without torch and network."""

import pathlib
import subprocess
import sys
import tempfile
import types

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "live")]

import campaign  # noqa: E402  (needs the path above)
import naive  # noqa: E402
import network  # noqa: E402
import own_model  # noqa: E402
import results  # noqa: E402
import small_runner  # noqa: E402
from configurations import CONFIGURATIONS  # noqa: E402


def close(got, expected, tolerance=1e-9):
    return abs(got - expected) <= tolerance * abs(expected)


def row(step, rank, samples, length, **more):
    shape = {"samples": samples, "max_length": length, "padded_tokens": samples * length}
    return {"step": step, "rank": rank, **shape, **more}


def recorded(step, start_ms):
    """Returns rows of two ranks, of which the second has more to do and starts 1 ms later."""
    length = 20 + 13 * (step * 7 % 11)
    tokens = 8 * length
    own_ms = 5 + 0.01 * tokens + 2e-5 * tokens * length
    return [
        row(step, 0, 8, length - 5, start_ms=start_ms, step_ms=own_ms + 1),
        row(step, 1, 8, length, start_ms=start_ms + 1, step_ms=own_ms),
    ]


def test_the_three_term_fit_finds_the_coefficients_of_the_rank_with_most_to_do():
    rows = [line for step in range(12) for line in recorded(step, 100.0 * step)]
    for line in rows[:4]:  # Warm-up steps must not count.
        line["step_ms"] += 1000
    a, b, c = naive.fit(rows, warmup_steps=2)
    assert close(a, 5, 1e-6) and close(b, 0.01, 1e-6) and close(c, 2e-5, 1e-6), (a, b, c)
    plan = [row(0, 0, 1, 1), row(1, 0, 4, 50), row(1, 1, 2, 60), row(2, 0, 3, 10)]
    expected = ((5 + 2 + 0.2) + (5 + 0.3 + 0.006)) / 2
    assert close(naive.predict_ms([a, b, c], plan, warmup_steps=1), expected, 1e-6)


def test_a_fit_of_one_shape_is_a_constant_and_repeats_count_apart():
    rows = [row(0, 0, 4, 10, repeat=r, start_ms=50 * r, step_ms=30.0 + r) for r in range(3)]
    assert len(naive.by_step(rows)) == 3
    coefficients = naive.fit(rows, warmup_steps=0)
    assert close(naive.predict_ms(coefficients, rows, warmup_steps=0), 31, 1e-6), coefficients


def test_drift_is_of_the_steps_that_both_trainings_ran():
    def steps(times):
        return [row(step, 0, 1, 1, start_ms=0.0, step_ms=ms) for step, ms in times.items()]

    before = steps({0: 99.0, 1: 10.0, 2: 20.0, 3: 70.0})
    after = steps({0: 1.0, 1: 11.0, 2: 24.0}) + steps({0: 1.0, 1: 13.0, 2: 24.0})
    for number, line in enumerate(after):
        line["repeat"] = number // 3
    assert close(naive.drift(before, after, warmup_steps=1), 36 / 30 - 1)


def test_the_widest_plan_calibrates():
    header = {"warmup_steps": 1}
    plans = {
        "fixed": (header, [row(0, 0, 8, 1), row(1, 0, 8, 100), row(2, 0, 8, 250)]),
        "sorted": (header, [row(1, 0, 8, 20), row(2, 0, 8, 250)]),
        "budget": (header, [row(1, 0, 10, 20), row(2, 0, 2, 90)]),
    }
    assert campaign.width(plans["fixed"][1], 1) == 2.5
    assert campaign.widest(plans) == "sorted"


def test_links_are_as_slow_as_the_share_asks():
    # 10 MB over 2 ranks: each sends 10 MB = 80 Mbit, in 30 ms beside 120 ms.
    assert close(campaign.link_rate(0.2, 10e6, 0.120, 2), 80e6 / 0.030)
    # 4 ranks send 1.5 times that each.
    assert close(campaign.link_rate(0.6, 10e6, 0.100, 4), 120e6 / 0.150)


def test_live_runs_fit_their_time():
    assert campaign.size_live(100, 0.05, runs=7) == (48, 5)
    assert campaign.size_live(100, 0.1, runs=7) == (32, 4)
    assert campaign.size_live(100, 1.0, runs=7) == (12, 4)  # the fewest
    assert campaign.size_live(1000, 0.01, runs=7) == (48, 12)  # the most
    assert campaign.size_live(100, 0.1, runs=7, passes=8) == (16, 8)


def test_steps_are_scaled_by_their_largest_batches():
    rows = [row(0, 0, 8, 10), row(0, 1, 8, 20), row(1, 0, 8, 30), row(1, 1, 8, 30)]
    assert campaign.mean_tokens(rows) == (160 + 240) / 2
    assert close(campaign.mean_step_s(recorded(3, 0.0)), naive.step_ms(recorded(3, 0.0)) / 1e3)


def test_load_of_others_is_what_the_ranks_did_not_use():
    assert close(campaign.other_load((100, 10, 5), (130, 35, 15)), 0.5)
    assert campaign.other_load((100, 10, 5), (110, 21, 15)) == 0


def test_namespaces_are_joined_limited_and_removed():
    net = network.Network(2, 2.5e8, name="test")
    commands = [" ".join(command) for command in net.commands()]
    assert commands.count("ip netns add stepsimtest-hub") == 1
    for rank in (0, 1):
        space = f"stepsimtest-{rank}"
        expected = [
            f"ip netns add {space}",
            f"ip -n stepsimtest-hub link add port{rank} type veth peer name eth0 netns {space}",
            f"ip -n stepsimtest-hub link set port{rank} master switch up",
            f"ip -n {space} address add 10.213.0.{rank + 1}/24 dev eth0",
            f"ip -n {space} link set eth0 up",
            f"tc -n {space} qdisc add dev eth0 root tbf rate 250000000bit burst 65536"
            " latency 200ms",
        ]
        places = [commands.index(command) for command in expected]
        assert places == sorted(places), commands
    assert not [c for c in network.Network(2, None, name="test").commands() if c[0] == "tc"]
    added = [command[3] for command in net.commands() if command[:3] == ["ip", "netns", "add"]]
    removed = [command[3] for command in net.remove_commands()]
    assert sorted(added) == sorted(removed)
    assert net.inside(1, ["x"]) == ["ip", "netns", "exec", "stepsimtest-1", "x"]
    assert net.environment() == {"MASTER_ADDR": "10.213.0.1", "GLOO_SOCKET_IFNAME": "eth0"}


def test_a_network_that_fails_halfway_leaves_nothing():
    seen = []

    def run(command, check, **_):
        seen.append(command)
        if check and "tbf" in command:
            raise subprocess.CalledProcessError(1, command, stderr="no such qdisc")

    kept = network.subprocess
    network.subprocess = types.SimpleNamespace(
        run=run, CalledProcessError=subprocess.CalledProcessError
    )
    try:
        with network.Network(2, 1e9, name="test"):
            raise AssertionError("entered")
    except RuntimeError as error:
        assert "no such qdisc" in str(error)
    finally:
        network.subprocess = kept
    assert seen[-3:] == list(network.Network(2, 1e9, name="test").remove_commands())


def validation(policies):
    """Makes a validation of {policy: (predicted, measured)}."""
    return {
        "policies": [
            {
                "policy": name,
                "predicted_ms": {"mean": predicted, "interval90": [predicted - 1, predicted + 1]},
                "measured_ms": {"mean": measured},
                "error": {"mean": predicted / measured - 1, "per_step": 0.04},
                "repeatability": 0.01,
                "in_interval": abs(predicted - measured) <= 1,
            }
            for name, (predicted, measured) in policies.items()
        ],
        "kendall_tau": 0.5,
        "recommended": "a",
        "truly_best": "b",
        "regret": 0.02,
        "interval_coverage": 0.5,
    }


def result(cells, caps_mib=()):
    return {
        "name": "made_up",
        "scenario": "distilbert_tiny",
        "share": 0.2,
        "caps_mib": list(caps_mib),
        "ranks": 2,
        "gradient_bytes": 8_200_000,
        "bits_per_second": 5e8,
        "namespaces": True,
        "calibration_policy": "a",
        "steps": 48,
        "passes": 4,
        "other_load": 0.25,
        "drift": 0.05,
        "predictions_written": "2026-01-01T10:00:00Z",
        "live_started": "2026-01-01T10:00:03Z",
        **cells,
    }


def report(found, left_out):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "RESULTS.md"
        results.write_report(path, found, left_out)
        return path.read_text(encoding="utf-8")


def test_the_report_of_policies():
    checked = {25: validation({"a": (10.1, 10.0), "b": (12.0, 15.0)})}
    cells = results.cells(checked, {"a": 9.0, "b": 18.0}, ())
    text = report([result(cells)], {"gone": "limited links: needs root\nmore"})
    assert "| a | 10.10 | 9.10-11.10 | 10.00 | +1.0 % | 4.0 % | -10.0 % | 1.0 % | yes |" in text
    assert "| b | 12.00 | 11.00-13.00 | 15.00 | -20.0 % | 4.0 % | +20.0 % | 1.0 % | no |" in text
    assert "| all | 2 | 10.5 % | -20.0 % | 11.0 % | 15.0 % | 1 of 2 | 1 of 2 |" in text
    assert "other work kept 0.25 processors busy" in text
    assert "own steps took 1.050 times as long" in text
    assert "links of 500 Mbit/s" in text and "take 20 % of a step" in text
    assert "Kendall tau of the useful tokens/s 0.50; recommended policy a, truly best b" in text
    assert "- gone: limited links: needs root\n" in text and "more" not in text.split("- gone")[1]


def test_the_report_of_bucket_sizes():
    times = {1: (30.0, 29.0), 5: (20.0, 22.0), 25: (21.0, 20.0)}
    checked = {cap: validation({"fixed": pair}) for cap, pair in times.items()}
    cells = results.cells(checked, {"fixed": 25.0}, (1, 5, 25))
    assert cells["recommended"] == "5 MiB" and cells["truly_best"] == "25 MiB"
    assert close(cells["regret"], 0.1) and close(cells["kendall_tau"], 1 / 3)
    assert close(cells["interval_coverage"], 2 / 3)
    text = report([result(cells, caps_mib=times)], {})
    assert "| 5 MiB | 20.00 | 19.00-21.00 | 22.00 | -9.1 % |" in text
    assert "recommended bucket size 5 MiB, truly best 25 MiB: regret 10.0 %" in text
    assert "Left out" not in text


def test_the_report_of_own_models():
    made = {
        "took": {"own": 64.2, "recorded": 60},
        "predicted_at": "2026-01-01T10:00:00Z",
        "live_at": "2026-01-01T10:00:03Z",
        "passes": 4,
        "other_load": [0.1, 0.25],
        "refused": {"measured": "measure larger batches"},
        "naive_ms": {"a": 11.0, "b": 15.0},
        "drift": 0.02,
        "validations": {
            "own": validation({"a": (10.1, 10.0), "b": (12.0, 15.0)}),
            "recorded": validation({"a": (9.0, 10.0), "b": (15.0, 15.0)}),
        },
    }
    text = own_model.report({"images": made})
    tail = "10.5 % | 1 of 2 | 0.50 | 2.0 % |"
    assert f"| stepsim_calibrate.py | 64 s | +1.0 % | -20.0 % | {tail}" in text, text
    tail = "10.5 % | 20.0 % | 10.7 % | 1 of 2 | 0.50 | 2.0 % and 2.0 % |"
    assert f"| stepsim_calibrate.py | 2 | 10.5 % | {tail}" in text, text
    assert "| three-term fit | 2 | 5.0 % | 5.0 % | 10.0 % | 7.1 % |" in text, text
    assert "| three-term fit |  | +10.0 % | +0.0 % | 5.0 % |" in text, text
    assert "| one recorded policy (bucketed) | 60 s | -10.0 % | +0.0 % | 5.0 %" in text, text
    assert "| measured |  | 10.00 ms | 15.00 ms |" in text, text
    assert "stepsim_measure.py: measure larger batches" in text, text


def test_every_own_model_has_its_files():
    for kind, policies in (("own", 4), ("today", 6)):
        for name, job in own_model.SETS[kind].items():
            assert (own_model.LIVE / "own" / f"{job.source}.py").exists(), name
            kinds = results.scenario_policies(own_model.LIVE / "scenarios" / job.scenario)
            assert len(kinds) == policies and own_model.RECORDED in [one["name"] for one in kinds]


def test_records_are_packed_without_the_plans():
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder) / "work"
        (work / "made_up" / "plans").mkdir(parents=True)
        (work / "made_up" / "plans" / "a.jsonl").write_text("{}\n", encoding="utf-8")
        (work / "made_up" / "live_all_a.jsonl").write_text("{}\n", encoding="utf-8")
        out = pathlib.Path(folder) / "records"
        size = results.pack_records(work, out, ["made_up"])
        assert size == (out / "made_up.tar.xz").stat().st_size
        with results.tarfile.open(out / "made_up.tar.xz") as tar:
            assert tar.getnames() == ["made_up/live_all_a.jsonl"]


def test_every_configuration_has_its_scenario():
    for configuration in CONFIGURATIONS:
        policies = results.scenario_policies(configuration.path)
        assert len(policies) >= 6 or configuration.caps_mib, configuration.name
    assert {c.share for c in CONFIGURATIONS} == {None, 0.2, 0.4, 0.6}


if __name__ == "__main__":
    sys.exit(small_runner.main(globals()))
