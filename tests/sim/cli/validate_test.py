"""Runs stepsim validate as a user would, on live runs made of a prediction's own times.

usage: validate_test.py PATH_OF_STEPSIM
"""

import csv
import io
import json
import os
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
import stepsim_program  # noqa: E402  (it takes the same argument)
import small_runner  # noqa: E402  (needs the path above)


def live_record(path, prediction, factors, started_at="2026-11-20T19:37:25Z"):
    """A run record that took `factor` times the predicted time in each pass."""
    header = {"format": "stepsim-run-record/1", "policy": prediction["policy"], "world_size": 2,
              "started_at": started_at, "device": "Intel(R) Xeon(R) Processor", "repeats": len(factors)}
    lines = [header]
    for repeat, factor in enumerate(factors):
        for row in prediction["steps"]:
            line = {k: row[k] for k in
                    ("step", "rank", "samples", "max_length", "useful_tokens", "padded_tokens")}
            for part in ("data", "forward", "backward", "optimizer", "step"):
                line[f"{part}_ms"] = row[f"{part}_ms"] * factor
            line["wait_ms"] = row["exposed_communication_ms"] * factor
            line["start_ms"] = row["start_ms"] * factor
            lines.append({"repeat": repeat, **line})
    pathlib.Path(path).write_text("\n".join(map(json.dumps, lines)) + "\n", encoding="utf-8")


def in_folder_with_prediction(test):
    def wrapped():
        with tempfile.TemporaryDirectory() as folder:
            file = os.path.join(folder, "prediction.json")
            stepsim_program.run("compare", stepsim_program.PAIR, "--json", file, "--quiet")
            made = 1795000000  # 2026-11-18T11:06:40Z, before the live runs.
            os.utime(file, (made, made))
            with open(file, encoding="utf-8") as text:
                predictions = {p["policy"]: p for p in json.load(text)["predictions"]}
            test(folder, file, predictions)

    return wrapped


@in_folder_with_prediction
def test_validate_reports_in_text_json_csv_and_markdown(folder, file, predictions):
    live = []
    for policy, prediction in predictions.items():
        live.append(os.path.join(folder, policy + ".jsonl"))
        live_record(live[-1], prediction, [0.98, 1.0, 1.02])
    report = os.path.join(folder, "report.md")
    options = ["validate", stepsim_program.PAIR, "--live", *live, "--predictions", file]
    text = stepsim_program.run(*options, "--report", report).stdout
    for line in ("order of the policies (useful tokens/s): Kendall tau 1.00",
                 "interval coverage: 100.0 % of the policies (4 of 4)",
                 "measured steps below the predicted p50: ",
                 "prediction: of 2026-11-18T11:06:40Z, before the live run",
                 "how sure: 4 of 4 measured means are in their 90 % interval; the recommended policy bucketing costs "):
        assert "\n" + line in text, (line, text)
    first = "verdict: every mean step is within 10.0 % of the measured one\nhow sure: "
    assert text.startswith(first), text
    assert "where the error is, in points of the measured step" in text
    assert all(len(line) <= 160 for line in text.splitlines()), text
    result = json.loads(stepsim_program.run(*options, "--json", "-").stdout)
    assert result["prediction"]["when"] == "before" and result["holds"], result
    for policy in result["policies"]:
        assert policy["repeats"] == 3 and abs(policy["repeatability"] - 0.02) < 1e-6, policy
        assert abs(policy["standard_error"] - 0.02 / 3**0.5) < 1e-6, policy
        parts = policy["error"]["mean_by_part"]
        assert abs(sum(parts.values()) - policy["error"]["mean"]) < 1e-9, policy
        for side in ("predicted_ms", "measured_ms"):
            assert abs(sum(policy[side]["parts"].values()) - policy[side]["mean"]) < 1e-9, policy
    rows = list(csv.DictReader(io.StringIO(stepsim_program.run(*options, "--csv", "-").stdout)))
    assert [float(row["error_mean"]) for row in rows] == [
        policy["error"]["mean"] for policy in result["policies"]]
    page = pathlib.Path(report).read_text(encoding="utf-8")
    assert page == stepsim_program.run(*options, "--report", "-").stdout.replace("--report -", f"--report {report}")
    assert page.startswith("# Prediction and live run: token_skew_2ranks\n\n**Verdict: ")
    tables = [line for line in page.splitlines() if line.startswith("|")]
    columns = {line.count("|") for line in tables}
    assert columns == {7, 10, 12}, columns
    assert "```\nstepsim blame " in page
    assert "only one of" in stepsim_program.run(*options, "--report", "-", "--json", "-", status=2).stderr


@in_folder_with_prediction
def test_validate_states_intervals_of_four_levels_of_the_recorded_steps(folder, file, predictions):
    levels = ("interval50", "interval80", "interval90", "interval95")
    record, ratios = os.path.join(folder, "live.jsonl"), []
    prediction = predictions["bucketing"]
    longest = sorted({(row["step_ms"], row["step"]) for row in prediction["steps"]})[-6:]
    for steps in (prediction["steps"], [row for row in prediction["steps"] if (row["step_ms"], row["step"]) in longest]):
        kept = {row["step"] for row in steps}
        live_record(record, {**prediction, "steps": [row for row in prediction["steps"] if row["step"] in kept]}, [1.0])
        result = stepsim_program.run("validate", stepsim_program.PAIR, "--live", record, "--json", "-", status=(0, 1))
        (policy,) = json.loads(result.stdout)["policies"]
        ms = policy["predicted_ms"]
        for inner, outer in zip(levels, levels[1:]):
            assert ms[outer][0] < ms[inner][0] < ms[inner][1] < ms[outer][1], ms
        ratios.append([ms["mean"], *(end / ms["mean"] for level in levels for end in ms[level])])
    (of_all, *of_all_ends), (of_longest, *ends) = ratios
    assert of_longest > 1.01 * of_all, ratios
    assert all(abs(a / b - 1) < 1e-9 for a, b in zip(of_all_ends, ends)), ratios


@in_folder_with_prediction
def test_predictions_of_a_file_have_the_intervals_of_those_made_now(folder, file, predictions):
    record = os.path.join(folder, "live.jsonl")
    live_record(record, predictions["bucketing"], [1.0])
    made = []
    for source in ([], ["--predictions", file]):
        options = ["validate", stepsim_program.PAIR, "--live", record, *source, "--json", "-"]
        (policy,) = json.loads(stepsim_program.run(*options, status=(0, 1)).stdout)["policies"]
        made.append({key: ends for key, ends in policy["predicted_ms"].items() if key.startswith("interval")})
    now, of_file = made
    assert set(now) == set(of_file) == {"interval50", "interval80", "interval90", "interval95"}, made
    for level, ends in now.items():
        assert all(abs(a / b - 1) < 1e-9 for a, b in zip(ends, of_file[level])), (level, made)
    # A file of before has that of 90 % alone.
    with open(file, encoding="utf-8") as text:
        content = json.load(text)
    for prediction in content["predictions"]:
        times = prediction["summary"]["step_time_ms"]
        assert "interval50_same_hour" in times, times
        prediction["summary"]["step_time_ms"] = {
            key: value for key, value in times.items() if not key.startswith("interval") or "90" in key}
    with open(file, "w", encoding="utf-8") as text:
        json.dump(content, text)
    options = ["validate", stepsim_program.PAIR, "--live", record, "--predictions", file, "--json", "-"]
    (policy,) = json.loads(stepsim_program.run(*options, status=(0, 1)).stdout)["policies"]
    assert policy["predicted_ms"]["interval90"] == of_file["interval90"] and "interval50" not in policy["predicted_ms"]


@in_folder_with_prediction
def test_validate_ends_with_1_and_says_which_policy_is_off_and_why(folder, file, predictions):
    live = os.path.join(folder, "live.jsonl")
    slow = json.loads(json.dumps(predictions["bucketing"]))
    for row in slow["steps"]:
        late = row["backward_ms"] * 0.5
        row["backward_ms"] += late
        row["step_ms"] += late
        row["start_ms"] *= 2
    live_record(live, slow, [1.0, 1.001, 0.999])
    options = ["validate", stepsim_program.PAIR, "--live", live, "--predictions", file]
    text = stepsim_program.run(*options, status=1).stdout
    verdict = next(line for line in text.splitlines() if line.startswith("verdict: "))
    assert "the mean step is off by more than 10.0 %: bucketing -" in verdict, verdict
    assert "; most of it in backward: -" in verdict, verdict
    assert "what to do: bucketing: backward is predicted too short: recalibrate" in text, text
    (command,) = (line for line in text.splitlines() if line.startswith("Next: "))
    assert text.splitlines()[-1].startswith("warning: ") and command.startswith("Next: stepcal grid plans/*.jsonl --out shapes.json && "), text
    assert "warning: no live run of uniform, variable_fixed, token_budget" in text, text
    assert "every mean step is within 60.0 %" in stepsim_program.run(*options, "--bound", "60").stdout


@in_folder_with_prediction
def test_validate_joins_records_of_one_policy(folder, file, predictions):
    live = [os.path.join(folder, name) for name in ("first.jsonl", "second.jsonl")]
    live_record(live[0], predictions["bucketing"], [0.99, 1.01])
    live_record(live[1], predictions["bucketing"], [1.09, 1.11], "2026-11-21T19:37:25Z")
    options = ["validate", stepsim_program.PAIR, "--predictions", file, "--json", "-", "--live"]
    result = json.loads(stepsim_program.run(*options, *live).stdout)["policies"][0]
    assert result["repeats"] == 4 and result["files"] == 2, result
    # The files' means 1 and 1.1: 0.0707 / sqrt(2) of 1.05.
    assert abs(result["standard_error"] - 0.05 / 1.05) < 1e-6, result
    assert result["within_repeatability"]
    message = stepsim_program.run(*options, live[0], live[0], status=2).stderr
    assert "policy 'bucketing': the same live run is given twice" in message, message


@in_folder_with_prediction
def test_validate_says_that_the_machine_was_busier_than_in_the_recording(folder, file, predictions):
    def live_run(name, share, factor):
        """A live run in which the ranks had a processor for so much of their passes."""
        path = os.path.join(folder, name)
        live_record(path, predictions["bucketing"], [factor, factor * 1.01])
        header, *rows = map(json.loads, pathlib.Path(path).read_text(encoding="utf-8").splitlines())
        for row in rows:
            row["forward_cpu_ms"] = row["forward_ms"] * share
            row["backward_cpu_ms"] = row["backward_ms"] * share
        pathlib.Path(path).write_text("\n".join(map(json.dumps, [header, *rows])) + "\n", encoding="utf-8")
        return path

    profile = os.path.join(folder, "profile.json")
    pair = stepsim_program.ROOT / "scenarios" / "profiles" / "cpu_epyc_2core_2ranks.json"
    with open(pair, encoding="utf-8") as text:
        content = json.load(text)
    content["provenance"]["recorded"] = {"command": "stepcal import run-record run.jsonl"}
    content["format"] = "stepsim-profile/14"
    content["noise"]["crowded"] = {"slowed": 1.25, "run_spread": 0}
    pathlib.Path(profile).write_text(json.dumps(content), encoding="utf-8")
    options = ["validate", stepsim_program.PAIR, "--profile", profile, "--predictions", file, "--live"]
    busy = live_run("busy.jsonl", 0.5, 1.5)
    text = stepsim_program.run(*options, busy, status=1).stdout
    assert text.splitlines()[2] == (
        "machine: more busy: forwards took 2.00 times their processor time in the live run, 1.25 times when the "
        "costs were recorded; run it again while nothing else runs, or record and run right after one another"), text
    assert "recalibrate" not in text and "\nNext: stepsim plan " in text, text
    result = json.loads(stepsim_program.run(*options, busy, "--json", "-", status=1).stdout)
    assert result["wall_over_processor_time"] == {"live": 2, "recorded": 1.25}, result
    quiet = live_run("quiet.jsonl", 1, 1.0)
    assert "machine: less busy: forwards took 1.00 times" in stepsim_program.run(*options, quiet).stdout
    as_busy = live_run("as_busy.jsonl", 0.8, 1.0)
    assert "machine: " not in stepsim_program.run(*options, as_busy).stdout


@in_folder_with_prediction
def test_validate_says_when_the_prediction_came_after_the_live_run(folder, file, predictions):
    live = os.path.join(folder, "live.jsonl")
    live_record(live, predictions["bucketing"], [1.0, 1.01])
    options = ["validate", stepsim_program.PAIR, "--live", live]
    os.utime(file, (1795203445, 1795203445))  # The second in which the live run began.
    assert "before the live run" in stepsim_program.run(*options, "--predictions", file).stdout
    os.utime(file, (1795203446, 1795203446))
    done = stepsim_program.run(*options, "--predictions", file, "--json", os.path.join(folder, "result.json"))
    assert "was written at 2026-11-20T19:37:26Z, after the live run" in done.stdout, done.stdout
    assert "verdict: prediction made after the live run: every mean step is" in done.stdout
    result = json.loads(pathlib.Path(folder, "result.json").read_text(encoding="utf-8"))
    assert result["prediction"]["when"] == "after", result["prediction"]
    assert "prediction: computed now" in stepsim_program.run(*options).stdout


if __name__ == "__main__":
    sys.exit(small_runner.main(globals()))
