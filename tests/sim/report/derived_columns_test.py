"""Every figure that is made of others is recomputed from them: text, JSON, CSV and the page.

usage: derived_columns_test.py PATH_OF_STEPSIM
The step time is one number everywhere, throughput and efficiency are made from it, and the same
command gives the same bytes, whatever the number of threads.
"""

import csv
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "sim" / "cli")]
import stepsim_program  # noqa: E402  (it takes the same argument)
import small_runner  # noqa: E402  (needs the path above)
import validate_test  # noqa: E402  (its live records)
from html_test import data_of  # noqa: E402

STEPSIM = os.path.abspath(sys.argv[1])
SCENARIOS = ROOT / "scenarios"
VALLEY = str(SCENARIOS / "bucket_valley.toml")
SKEW = str(SCENARIOS / "token_skew.toml")
CAPS = ["--over", "ddp.bucket_cap=1MiB..2GiB:x2"]
WARMUP = 1
SHORT = ["--steps", "5", "--set", f"scenario.warmup_steps={WARMUP}"]
ENVIRONMENT = {**os.environ, "SOURCE_DATE_EPOCH": "1795203445"}


def has_page():
    """Whether this build holds the report page, which needs d3."""
    done = subprocess.run([STEPSIM, "run", SKEW, *SHORT, "--html", "-"], capture_output=True,
                          text=True, check=False, timeout=120)
    return "this build holds no report page" not in done.stderr


PAGE = has_page()


def outputs(*arguments, one_core=False):
    """What one command makes: its text, its JSON, its CSV and, where there is one, its page."""
    with tempfile.TemporaryDirectory() as folder:
        command = [STEPSIM, *arguments, "--wide", "--json", "a.json", "--csv", "a.csv"]
        command += ["--html", "a.html"] if PAGE else []
        core = min(os.sched_getaffinity(0))
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=300, cwd=folder,
            env=ENVIRONMENT,
            preexec_fn=(lambda: os.sched_setaffinity(0, {core})) if one_core else None)
        said = [line for line in done.stderr.splitlines() if not line.startswith("planning on this host: ")]
        assert done.returncode in (0, 1) and not said, (arguments, done.stderr)
        files = [pathlib.Path(folder, name) for name in ("a.json", "a.csv", "a.html")]
        return [done.stdout] + [file.read_text("utf-8") if file.exists() else "" for file in files]


def close(got, wanted, slack=1e-9, what=""):
    assert abs(got - wanted) <= slack * max(abs(got), abs(wanted), 1e-6), (what, got, wanted)


def table(text, first):
    """The rows of the table whose header begins with this name: {column: cell}."""
    lines = text.splitlines()
    start = next(i for i, line in enumerate(lines) if re.split(r"  +", line.strip())[0] == first)
    header = re.split(r"  +", lines[start].strip())
    rows = []
    for line in lines[start + 1:]:
        cells = re.split(r"  +", line.strip())
        if len(cells) < len(header) - 1 or line.startswith(("*", "Use ")):
            break
        rows.append(dict(zip(header, cells)))
    return rows


def steady_rows(prediction):
    """[step][rank] rows after the warm-up."""
    steps = {}
    for row in prediction["steps"]:
        if row["step"] >= WARMUP:
            steps.setdefault(row["step"], []).append(row)
    return list(steps.values())


def check_summary(prediction):
    """The figures of a summary, from each other and from the rows of its steps."""
    s, name = prediction["summary"], prediction["policy"]
    mean = s["step_time_ms"]["mean"]
    steps = steady_rows(prediction)
    over_steps = lambda of: statistics.fmean(of(step) for step in steps)  # noqa: E731
    total = lambda key: over_steps(lambda step: sum(row[key] for row in step))  # noqa: E731
    close(s["useful_tokens_per_step"], total("useful_tokens"), what=name)
    close(s["padded_tokens_per_step"], total("padded_tokens"), what=name)
    close(s["useful_tokens_per_s"], s["useful_tokens_per_step"] * 1e3 / mean, what=name)
    close(s["padded_tokens_per_s"], s["padded_tokens_per_step"] * 1e3 / mean, what=name)
    close(s["samples_per_s"], s["useful_tokens_per_s"] / s["tokens_per_sample"], what=name)
    close(s["padding_ratio"], 1 - s["useful_tokens_per_step"] / s["padded_tokens_per_step"], 1e-6)
    alone = s["data_ms"] + s["forward_ms"] + s["backward_ms"] + s["optimizer_ms"]
    close(s["scaling_efficiency"], alone / mean, what=name)
    spread = lambda key: over_steps(  # noqa: E731
        lambda step: max(row[key] for row in step) - min(row[key] for row in step))
    close(s["rank_token_spread"], spread("useful_tokens"), what=name)
    for key in ("padded_tokens", "peak_memory_mib"):
        std = over_steps(lambda step, key=key: statistics.pstdev(row[key] for row in step))
        close(s["std_over_ranks"][key], std, 1e-6, what=name)
    assert s["peak_memory_mib"] == max(row["peak_memory_mib"] for row in prediction["steps"])
    times = s["step_time_ms"]
    assert times["p50"] <= times["p95"] <= times["p99"], times
    assert times["interval90"][0] <= times["interval90"][1], times
    idle = s["exposed_transfer_ms"] + s["waiting_for_ranks_ms"]
    close(idle, s["exposed_communication_ms"], what=name)
    assert s["waiting_for_ranks_ms"] >= 0 and s["exposed_transfer_ms"] >= -1e-9, s
    # Ranks start the first and end the last of the few steps at different times.
    close(alone + s["exposed_communication_ms"], mean, 0.1, what=name)


def check_text(text, result):
    rows = {row["policy"].removesuffix(" *"): row for row in table(text, "policy")}
    assert set(rows) == {prediction["policy"] for prediction in result["predictions"]}, rows
    for prediction in result["predictions"]:
        s, row = prediction["summary"], rows[prediction["policy"]]
        assert row["step ms"] == f"{s['step_time_ms']['mean']:.3f}", row
        assert row["p95 ms"] == f"{s['step_time_ms']['p95']:.3f}", row
        assert row["useful tokens/s"] == f"{s['useful_tokens_per_s']:.0f}", row
        assert row["padding"] == f"{s['padding_ratio'] * 100:.1f} %", row
        assert row["exposed ms"] == f"{s['exposed_transfer_ms']:.3f}", row
        assert row["waiting ms"] == f"{s['waiting_for_ranks_ms']:.3f}", row
        assert row["efficiency"] == f"{s['scaling_efficiency'] * 100:.1f} %", row
        per_step = float(row["useful tokens/s"]) * float(row["step ms"]) / 1e3
        rounding = 0.0005 / float(row["step ms"]) + 0.5 / float(row["useful tokens/s"])
        close(per_step, s["useful_tokens_per_step"], 1.1 * rounding, what=row)
        for end, shown in zip(s["step_time_ms"]["interval90"], row["90 % interval"].split("-")):
            close(float(shown), end, 0.006, what=row)
    shown = [float(row["useful tokens/s"]) for row in table(text, "policy")]
    assert shown == sorted(shown, reverse=True), shown


def check_csv(text, result):
    rows = list(csv.DictReader(text.splitlines()))
    assert [row["policy"] for row in rows] == [p["policy"] for p in result["predictions"]]
    for row, prediction in zip(rows, result["predictions"]):
        s = prediction["summary"]
        figures = {key: value for key, value in s.items() if not isinstance(value, dict)}
        times = s["step_time_ms"]
        figures.update({f"step_ms_{key}": times[key] for key in ("mean", "p50", "p95", "p99")})
        figures["step_ms_longest_of_run"] = times["max"]
        figures["step_ms_low90"], figures["step_ms_high90"] = times["interval90"]
        hour = times["interval90_same_hour"]
        figures["step_ms_same_hour_low90"], figures["step_ms_same_hour_high90"] = hour
        assert hour[1] - hour[0] <= 1.0001 * (times["interval90"][1] - times["interval90"][0]), times
        spreads = s["std_over_ranks"]
        figures["step_ms_std_over_ranks"] = spreads["step_time_ms"]
        figures["padded_tokens_std_over_ranks"] = spreads["padded_tokens"]
        figures["peak_memory_mib_std_over_ranks"] = spreads["peak_memory_mib"]
        assert set(row) == {"policy", *figures}, set(row) ^ {"policy", *figures}
        for key, value in figures.items():
            assert float(row[key]) == value, (key, row[key], value)


def check_recommendation(text, result):
    choices = result["recommendation"]["choices"]
    speeds = {p["policy"]: p["summary"]["useful_tokens_per_s"] for p in result["predictions"]}
    for choice in choices:
        assert choice["useful_tokens_per_s"] == speeds[choice["policy"]], choice
    ranked = [choice["useful_tokens_per_s"] for choice in choices]
    assert ranked == sorted(ranked, reverse=True), ranked
    if ranked:
        assert f": {ranked[0]:.0f} useful tokens/s" in text, text
        assert result["recommendation"]["policy"] == choices[0]["policy"]
    if len(ranked) > 1:
        close(result["recommendation"]["gain"], ranked[0] / ranked[1] - 1, 1e-6)
        # Those within 1 % of the fastest are said to be as fast; the gain is over the first that is not.
        others = [speed for speed in ranked[1:] if ranked[0] / speed - 1 >= 0.01]
        assert (" within 1 %" in text) == (0 < len(others) < len(ranked) - 1), text
        assert not others or f"{(ranked[0] / others[0] - 1) * 100:+.1f} % over" in text, text


def check_page(data, result):
    without_steps = json.loads(json.dumps(result))
    if "steps" not in data["result"]["predictions"][0]:
        for prediction in without_steps["predictions"]:
            del prediction["steps"]
    assert data["result"] == without_steps
    assert data["recommended"] == (result["recommendation"]["policy"] or "")
    own = {line["policy"]: line for line in data["timelines"] if line["own"]}
    # Times with and without noise do not stand side by side.
    assert len({bool(line["interval90"]) for line in own.values()}) == 1, own.keys()
    without_noise = {}
    for series, prediction in zip(data["series"], result["predictions"], strict=True):
        policy = series["policy"]
        without_noise[policy] = statistics.fmean(series["step_ms"][series["warmup_steps"]:])
        times = prediction["summary"]["step_time_ms"]
        # A timeline says what the table does; where draws take long, it is without noise.
        drawn = own[policy]["interval90"]
        close(own[policy]["mean_ms"], times["mean"] if drawn else without_noise[policy], 1e-4, what=policy)
        for figure, end in zip(drawn or [], times["interval90"], strict=bool(drawn)):
            close(figure, end, 1e-4, what=(policy, "interval"))
        for step, ms in enumerate(series["step_ms"]):
            rows = [row for row in prediction["steps"] if row["step"] == step]
            last_start = max(row["start_ms"] for row in rows)
            last_end = max(row["start_ms"] + row["step_ms"] for row in rows)
            close(ms, last_end - last_start, 1e-4, what=(series["policy"], step))
    for blame in data["blame"]:
        close(blame["step_ms"], without_noise[blame["policy"]], 1e-4)


def scenario_test(path):
    def test():
        text, result, table_csv, page = outputs("compare", str(path), *SHORT)
        result = json.loads(result)
        for prediction in result["predictions"]:
            check_summary(prediction)
        check_text(text, result)
        check_csv(table_csv, result)
        check_recommendation(text, result)
        if page:
            check_page(data_of(page), result)

    return test


for scenario in sorted(SCENARIOS.rglob("*.toml")):
    if scenario.parent.name != "figures":  # These hold published figures and no policies.
        name = "_".join(scenario.relative_to(SCENARIOS).with_suffix("").parts)
        globals()[f"test_compare_{name}"] = scenario_test(scenario)


def test_the_table_of_ranks_adds_up():
    for path in (SKEW, str(SCENARIOS / "two_nodes.toml"), str(SCENARIOS / "accumulation.toml")):
        text, result, steps_csv, _ = outputs("run", path, *SHORT)
        (prediction,) = json.loads(result)["predictions"]
        check_summary(prediction)
        s = prediction["summary"]
        assert f"{s['step_time_ms']['mean']:.3f} ms mean" in text, text
        assert f"{s['useful_tokens_per_s']:.0f} useful tokens/s" in text, text
        assert f"scaling efficiency {s['scaling_efficiency'] * 100:.1f} %" in text, text
        ranks = table(text, "rank")
        parts = ["data", "forward", "backward", "exposed", "waiting", "optimizer"]
        for row in ranks:
            total = sum(float(row[part]) for part in parts)
            assert abs(total - float(row["step ms"])) < 0.004, row
        for part, key in zip(parts, ("data_ms", "forward_ms", "backward_ms", "exposed_transfer_ms",
                                     "waiting_for_ranks_ms", "optimizer_ms")):
            assert abs(statistics.fmean(float(row[part]) for row in ranks) - s[key]) < 0.001, part
        useful = sum(float(row["useful tokens"]) for row in ranks)
        assert abs(useful - s["useful_tokens_per_step"]) < 0.06 * len(ranks), useful
        rows = list(csv.DictReader(steps_csv.splitlines()))
        for row, step in zip(rows, prediction["steps"], strict=True):
            assert set(row) == {"policy", *step}, row
            assert all(float(row[key]) == value for key, value in step.items()), (row, step)


def check_sweep(*arguments):
    text, result, table_csv, page = outputs("sweep", *arguments)
    result = json.loads(result)
    points, best = result["points"], result["points"][result["best"]]
    fastest = best["useful_tokens_per_s"]
    rows = list(csv.DictReader(table_csv.splitlines()))
    for point, row, shown in zip(points, rows, table(text, next(iter(points[0]["values"]))),
                                 strict=True):
        close(point["useful_tokens_per_s"], point["useful_tokens_per_step"] * 1e3 / point["step_ms"])
        figures = {key: value for key, value in point.items()
                   if not isinstance(value, (dict, list))}
        figures["step_ms_low90"], figures["step_ms_high90"] = point["interval90"]
        figures["gain_of_best_low90"], figures["gain_of_best_high90"] = \
            point["gain_of_best_interval90"]
        assert set(row) == {*point["values"], *figures}, set(row) ^ {*point["values"], *figures}
        for key, value in figures.items():
            assert row[key] == value if isinstance(value, str) else float(row[key]) == value, key
        close(point["gain_of_best"], fastest / point["useful_tokens_per_s"] - 1, 1e-6)
        for end, part in zip(point["interval90"], shown["90 % interval"].split("-")):
            close(float(part), end, 0.006, what=shown)
        assert shown["costs of ops"] == point["op_source"], shown
        assert shown["of collectives"] == point["collective_source"], shown
        assert shown["step ms"] == f"{point['step_ms']:.3f}", shown
        assert shown["useful tokens/s"] == f"{point['useful_tokens_per_s']:.0f}", shown
        slower = (fastest / point["useful_tokens_per_s"] - 1) * 100
        assert shown["vs best"] == f"{slower:+.1f} %", (shown, slower)
        assert point["useful_tokens_per_s"] <= fastest or point["out_of_memory"], point
    reference = result["reference"]
    assert result["headline"] in text and text.count("warning: ") == len(result["warnings"])
    rate = reference["useful_tokens_per_step"] * 1e3 / reference["step_ms"]
    close(reference["gap"], fastest / rate - 1, 1e-6)
    if page:
        data = data_of(page)
        assert data["result"] == result
        for timeline in data["timelines"]:
            for point in points:
                if timeline["label"] in point["values"].values():
                    close(timeline["mean_ms"], point["step_ms"], 1e-5)


def test_a_sweep_of_bucket_caps():
    check_sweep(VALLEY, *SHORT, *CAPS)


def test_a_sweep_states_what_run_states():
    point = json.loads(outputs("sweep", SKEW, *SHORT, "--policy", "bucketing", "--over",
                               "ddp.static_graph=false")[1])["points"][0]
    run = json.loads(outputs("run", SKEW, *SHORT, "--policy", "bucketing")[1])
    summary = run["predictions"][0]["summary"]
    assert point["step_ms"] == summary["step_time_ms"]["mean"], point
    assert point["interval90"] == summary["step_time_ms"]["interval90"], point
    for key in ("useful_tokens_per_s", "exposed_communication_ms", "communication_ms"):
        assert point[key] == summary[key], (key, point)


def test_a_sweep_that_changes_the_work_of_a_step():
    check_sweep(SKEW, *SHORT, "--policy", "token_budget", "--over",
                "policy.token_budget.max_tokens=512..2048:+256")


def test_a_validation_ranks_by_the_numbers_of_the_comparison():
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "prediction.json")
        made = json.loads(outputs("compare", stepsim_program.PAIR)[1])
        pathlib.Path(file).write_text(json.dumps(made), encoding="utf-8")
        live = []
        for prediction in made["predictions"]:
            live.append(os.path.join(folder, prediction["policy"] + ".jsonl"))
            validate_test.live_record(live[-1], prediction, [0.98, 1.04])
        for source in ([], ["--predictions", file]):
            text, result, table_csv, page = outputs(
                "validate", stepsim_program.PAIR, "--live", *live, *source)
            result = json.loads(result)
            summaries = {p["policy"]: p["summary"] for p in made["predictions"]}
            rows = {row["policy"]: row for row in csv.DictReader(table_csv.splitlines())}
            for row in result["policies"]:
                summary, predicted = summaries[row["policy"]], row["predicted_ms"]
                measured = row["measured_ms"]["mean"]
                assert predicted["mean"] == summary["step_time_ms"]["mean"], row
                assert predicted["interval90"] == summary["step_time_ms"]["interval90"], row
                rates = row["useful_tokens_per_s"]
                assert rates["predicted"] == summary["useful_tokens_per_s"], row
                close(rates["measured"], summary["useful_tokens_per_step"] * 1e3 / measured)
                close(row["error"]["mean"], (predicted["mean"] - measured) / measured, 1e-6)
                for times in (predicted, row["measured_ms"]):
                    parts = [part for part in times["parts"].values() if part is not None]
                    close(sum(parts), times["mean"], 1e-6)
                by_part = [e for e in row["error"]["mean_by_part"].values() if e is not None]
                close(sum(by_part), row["error"]["mean"], 1e-6)
                low, high = predicted["interval90"]
                assert row["in_interval"] == (low <= measured <= high), row
                line = rows[row["policy"]]
                assert float(line["predicted_ms"]) == predicted["mean"], line
                assert float(line["error_mean"]) == row["error"]["mean"], line
            chosen = result["recommended"]
            assert chosen == made["recommendation"]["policy"], chosen
            measured = {row["policy"]: row["useful_tokens_per_s"]["measured"]
                        for row in result["policies"]}
            best = measured[result["truly_best"]]
            close(result["regret"], best / measured[chosen] - 1, 1e-6)
            assert f"recommended {chosen}, truly best {result['truly_best']}" in text, text
            if page:
                assert data_of(page)["result"] == result


def test_the_same_command_gives_the_same_bytes():
    commands = [["compare", SKEW, *SHORT], ["run", VALLEY, *SHORT], ["sweep", VALLEY, *SHORT, *CAPS]]
    for command in commands:
        first, second = outputs(*command), outputs(*command, one_core=True)
        for once, again, what in zip(first[1:], second[1:], ("JSON", "CSV", "page")):
            assert once == again, (command, what)
    text = lambda made: [made[0], made[1], made[2]] + [  # noqa: E731
        made[3].replace("--threads 2", "--threads 1")]
    sweep = commands[-1]
    assert text(outputs(*sweep, "--threads", "1")) == text(outputs(*sweep, "--threads", "2"))


if __name__ == "__main__":
    sys.exit(small_runner.main(globals()))
