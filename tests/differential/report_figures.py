"""Recomputes every derived figure of a report from base figures alone, and reads it in the text.

Usage: report_figures.py STEPSIM
For shipped scenarios: `run`, `compare`, `sweep`, `blame` and `validate` are asked for text, JSON and
page. Base figures are the rows of single steps and ranks, and what noise alone makes (mean, quantiles
and intervals over draws); shares, ratios, rates, means, spreads, exposed communication, gains, savings,
errors and regret are computed here again. The page has to hold the JSON's own numbers.
Prints `N passed, N failed, N skipped`.
"""

import itertools
import json
import math
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))
import small_runner  # noqa: E402

STEPSIM = str(pathlib.Path(sys.argv[1]).resolve())
PAGE_DATA = re.compile(r'<script type="application/json" id="stepsim-data">(.*?)</script>', re.DOTALL)
# Without epochs or plans that take long; the last two have neither noise nor a profile.
SHIPPED = {"token_skew": [], "bucket_valley": [], "busy_cluster": [], "accumulation": [],
           "sst2_distilbert": ["--steps", "12"], "engines_step": [], "lm2b_2gpu": []}
NOISY = ("token_skew", "busy_cluster")
# Milliseconds. Means and quantiles are of runs that round a stretch of ops at once, rows of one that
# rounds every op to a nanosecond: hundreds of ops may differ by a nanosecond each.
ROUNDED = 5e-4
SKEW = "token_skew_2ranks"


def asked(*words, page=True):
    """The text, the JSON and the page's data of one command."""
    with tempfile.TemporaryDirectory() as folder:
        files = [str(pathlib.Path(folder, name)) for name in ("answer.json", "page.html")]
        command = [STEPSIM, words[0], str(ROOT / "scenarios" / f"{words[1]}.toml"), *words[2:], "--json", files[0]]
        made = subprocess.run(command + (["--html", files[1]] if page else []), capture_output=True, text=True)
        if page and "holds no report page" in made.stderr:
            return asked(*words, page=False)
        assert made.returncode in (0, 1), made.stderr
        data = PAGE_DATA.search(pathlib.Path(files[1]).read_text()) if page else None
        return made.stdout, json.loads(pathlib.Path(files[0]).read_text()), json.loads(data.group(1)) if data else None


def same(what, stated, computed, absolute=1e-9):
    assert math.isclose(stated, computed, rel_tol=1e-9, abs_tol=absolute), f"{what}: {stated}, computed {computed}"


def said(text, *figures):
    flat = " ".join(text.split())
    for figure in figures:
        assert figure in flat, f"the text does not say {figure!r}:\n{text}"


def numbers(value):
    """All numbers anywhere in a JSON value."""
    if isinstance(value, dict):
        return set().union(*map(numbers, value.values()), set())
    if isinstance(value, list):
        return set().union(*map(numbers, value), set())
    return {float(f"{value:.5g}")} if isinstance(value, (int, float)) and not isinstance(value, bool) else set()


def on_page(data, *values):
    """Checks that the page's data holds these numbers (to five digits)."""
    if data is not None:
        missing = numbers(list(values)) - numbers(data)
        assert not missing, f"the page's data lacks {sorted(missing)[:8]}"


def percent(share, sign=False):
    return f"{100 * share:+.1f} %" if sign else f"{100 * share:.1f} %"


def memory(mib):
    """As the table of a sweep prints it: three digits."""
    value, unit = (mib, "MiB") if mib < 1024 else (mib / 1024, "GiB")
    return f"{value:.{2 if value < 9.995 else 1 if value < 99.95 else 0}f} {unit}"


def interval(low, high):
    """As tables print it: the three digits that matter."""
    def digits(value):
        return f"{value:.{2 if value < 9.995 else 1 if value < 99.95 else 0}f}"
    return f"{digits(low)}-{digits(high)}"


def steps_of(prediction, warmup):
    """[step][rank] rows, without the warm-up."""
    rows = [row for row in prediction["steps"] if row["step"] >= warmup]
    return [list(group) for _, group in itertools.groupby(rows, key=lambda row: row["step"])]


def step_time(rows):
    return max(row["start_ms"] + row["step_ms"] for row in rows) - max(row["start_ms"] for row in rows)


def quantile(times, share):
    """The time that a share of the ascending times does not exceed, between two where just that share does not."""
    place = round(share * len(times), 9)
    if place == int(place):
        low, high = times[max(int(place) - 1, 0)], times[min(int(place), len(times) - 1)]
        return low + (1 - share) * (high - low)
    return times[int(place)]


def warmup_of(text):
    found = re.search(r"; (\d+) steps(?:, the first (\d+) left out)?", text)
    return int(found.group(2) or 0)


def check_summary(prediction, warmup, noisy):
    """All of the summary that is made of other figures."""
    summary, steps = prediction["summary"], steps_of(prediction, warmup)
    mean = summary["step_time_ms"]["mean"]
    totals = {name: statistics.fmean(sum(row[name] for row in step) for step in steps)
              for name in ("samples", "useful_tokens", "padded_tokens")}
    for name in ("useful_tokens", "padded_tokens"):
        same(f"{name}_per_step", summary[f"{name}_per_step"], totals[name])
        same(f"{name}_per_s", summary[f"{name}_per_s"], totals[name] * 1e3 / mean)
    same("samples_per_s", summary["samples_per_s"], totals["useful_tokens"] * 1e3 / mean / summary["tokens_per_sample"])
    same("padding", summary["padding_ratio"], 1 - totals["useful_tokens"] / totals["padded_tokens"])
    same("spread", summary["rank_token_spread"], statistics.fmean(
        max(row["useful_tokens"] for row in step) - min(row["useful_tokens"] for row in step) for step in steps))
    for name, key in (("padded_tokens", "padded_tokens"), ("peak_memory_mib", "peak_memory_mib")):
        same(f"deviation of {name}", summary["std_over_ranks"][key], statistics.fmean(
            statistics.pstdev(row[name] for row in step) for step in steps))
    same("memory", summary["peak_memory_mib"], max(row["peak_memory_mib"] for row in prediction["steps"]))
    same("exposed", summary["exposed_communication_ms"],
         summary["exposed_transfer_ms"] + summary["waiting_for_ranks_ms"])
    alone = sum(summary[f"{part}_ms"] for part in ("data", "forward", "backward", "optimizer"))
    same("efficiency", summary["scaling_efficiency"], alone / mean)
    if noisy:  # Times are then of runs with noise, which nothing lists.
        return
    times = sorted(step_time(step) for step in steps)  # Each as often as there are draws.
    same("mean step", mean, statistics.fmean(times), ROUNDED)
    for share, key in ((0.5, "p50"), (0.95, "p95"), (0.99, "p99"), (1, "max")):
        same(key, summary["step_time_ms"][key], quantile(times, share), ROUNDED)
    for name in ("data_ms", "forward_ms", "backward_ms", "optimizer_ms", "exposed_communication_ms",
                 "waiting_for_ranks_ms"):
        same(name, summary[name], statistics.fmean(row[name] for step in steps for row in step), ROUNDED)


def run_test(name, options):
    def test():
        text, answer, page = asked("run", name, "--wide", *options)
        (prediction,) = answer["predictions"]
        summary = prediction["summary"]
        step, warmup = summary["step_time_ms"], warmup_of(text)
        noisy = name in NOISY
        check_summary(prediction, warmup, noisy)
        collectives = summary["communication_ms"]
        exposed = min(summary["exposed_transfer_ms"], collectives * (1 - summary["overlap_fraction"]))
        hidden = collectives - exposed
        said(text,
             f"step time {step['mean']:.3f} ms mean, 90 % interval {step['interval90'][0]:.3f} to {step['interval90'][1]:.3f}",
             f"{step['p50']:.3f} ms p50, {step['p95']:.3f} p95, {step['p99']:.3f} p99; longest of "
             f"{len(steps_of(prediction, warmup))} step{'s' if len(steps_of(prediction, warmup)) > 1 else ''} {step['max']:.3f}",
             f"throughput {summary['useful_tokens_per_s']:.0f} useful tokens/s, {summary['samples_per_s']:.1f} samples/s",
             f"padding ratio {percent(summary['padding_ratio'])}",
             f"rank token spread {summary['rank_token_spread']:.1f} useful tokens",
             f"communication {collectives:.3f} ms of collectives: {hidden:.3f} ms hidden "
             f"({percent(hidden / collectives if collectives > 0 else 0)}), {exposed:.3f} ms exposed",
             f"waiting {summary['waiting_for_ranks_ms']:.3f} ms for slower ranks",
             f"scaling efficiency {percent(summary['scaling_efficiency'])}",
             f"peak memory {summary['peak_memory_mib']:.1f} MiB")
        on_page(page, step["mean"], step["interval90"], summary["useful_tokens_per_s"], summary["padding_ratio"])
    return test


for shipped, given in SHIPPED.items():
    globals()[f"test_run_{shipped}"] = run_test(shipped, given)


def test_compare():
    for name in ("token_skew", SKEW):
        text, answer, page = asked("compare", name, "--wide")
        predictions = {one["policy"]: one for one in answer["predictions"]}
        shown = text.split("\n\n")[1].splitlines()[1:]
        speeds = []
        for line in shown:
            if line.startswith("*"):
                continue
            policy = re.match(r"(\S+)", line).group(1)
            summary = predictions[policy]["summary"]
            check_summary(predictions[policy], warmup_of(text), True)
            step = summary["step_time_ms"]
            said(line, f"{step['mean']:.3f}", interval(*step["interval90"]), f"{step['p95']:.3f}",
                 f"{summary['useful_tokens_per_s']:.0f}", percent(summary["padding_ratio"]),
                 f"{summary['rank_token_spread']:.1f}",
                 f"{summary['exposed_communication_ms'] - summary['waiting_for_ranks_ms']:.3f}",
                 f"{summary['waiting_for_ranks_ms']:.3f}", percent(summary["scaling_efficiency"]),
                 f"{predictions[policy].get('largest_memory_mib', summary['peak_memory_mib']):.1f}")
            speeds.append(summary["useful_tokens_per_s"])
            on_page(page, step["mean"], step["interval90"], summary["useful_tokens_per_s"])
        assert speeds == sorted(speeds, reverse=True), "not ranked by speed"
        advice = answer["recommendation"]
        choices = [predictions[one["policy"]]["summary"]["useful_tokens_per_s"] for one in advice["choices"]]
        assert advice["policy"] == advice["choices"][0]["policy"] and choices[0] == max(choices)
        same("gain", advice["gain"], choices[0] / choices[1] - 1)
        same("shares", sum(one["first_share"] for one in advice["choices"]), 1)
        said(text, f"{choices[0]:.0f} useful tokens/s, {percent(choices[0] / choices[1] - 1, True)} over",
             f"{percent(choices[0] / choices[-1] - 1, True)} over {advice['choices'][-1]['policy']}",
             f"{100 * advice['choices'][0]['first_share']:.0f} % likely to be the fastest")
        for policy, one in predictions.items():
            effects = one["training"]
            row = next(line for line in text.split("one epoch of training")[1].splitlines() if line.startswith(policy + " "))
            for count in ("lost_samples", "repeated_samples"):
                said(row, f"{effects[count]} ({percent(effects[count] / effects['samples'])})")


def test_sweep():
    for name, over in (("bucket_valley", "ddp.bucket_cap=1MiB,32MiB,256MiB"), (SKEW, "cluster.jitter=0,0.02,0.1")):
        text, answer, page = asked("sweep", name, "--over", over, "--wide")
        best = answer["points"][answer["best"]]
        speeds = [point["useful_tokens_per_step"] * 1e3 / point["step_ms"] for point in answer["points"]]
        assert max(speeds) == speeds[answer["best"]] or not answer["is_better"]
        lines = text.split("\n\n")[1].splitlines()[1:]
        for point, line, speed in zip(answer["points"], lines, speeds):
            same("speed", point["useful_tokens_per_s"], speed)
            gap = speeds[answer["best"]] / speed - 1
            same("gap", point["gain_of_best"], gap)
            same("exposed", point["exposed_communication_ms"], point["exposed_transfer_ms"] + point["waiting_for_ranks_ms"])
            said(line, f"{point['step_ms']:.3f}", percent(gap, True), f"{speed:.0f}", memory(point["peak_memory_mib"]),
                 f"{point['exposed_communication_ms'] - point['waiting_for_ranks_ms']:.3f}",
                 f"{point['communication_ms']:.3f}", percent(point["overlap_fraction"]))
            on_page(page, point["step_ms"], point["interval90"], speed)
        reference = answer["reference"]
        if reference.get("gap") is not None:
            same("gap of the reference", reference["gap"],
                 best["useful_tokens_per_step"] / best["step_ms"] * reference["step_ms"] / reference["useful_tokens_per_step"] - 1)


def test_blame():
    for name in ("token_skew", "bucket_valley", "busy_cluster"):
        text, answer, _ = asked("blame", name, page=False)
        for change in answer["changes"]:
            if "not_priced" in change:
                continue
            same("saving", change["saves_ms"], answer["step_ms"] - change["step_ms"])
            same("share", change["share"], change["saves_ms"] / answer["step_ms"])
            if change["change"] != "median_rank":
                said(text, f"{change['step_ms']:.3f} {answer['step_ms'] - change['step_ms']:+.3f} "
                           f"{percent(change['saves_ms'] / answer['step_ms'], True)}")
        savings = [change.get("saves_ms", 0) for change in answer["changes"]]
        assert savings == sorted(savings, reverse=True)
        same("who is last", sum(answer["last_share"]), 1)
        exposed = [one["exposed_ms"] for one in answer["collectives"]]
        if sum(exposed) > 0:
            said(text, f"after the last backward: {sum(exposed):.3f} ms of transfers, most in number "
                       f"{exposed.index(max(exposed)) + 1} of {len(exposed)}")
        said(text, f"forward and backward: {sum(op['ms'] for op in answer['ops']):.3f} ms a rank",
             f"{answer['mean_step_ms']:.3f} ms a step")
        _, run, _ = asked("run", name, page=False)
        same("the step of run", answer["mean_step_ms"], run["predictions"][0]["summary"]["step_time_ms"]["mean"])


def live_record(path, prediction, factors):
    lines = [{"format": "stepsim-run-record/1", "policy": prediction["policy"], "world_size": 2,
              "started_at": "2026-11-20T19:37:25Z", "device": "test", "repeats": len(factors)}]
    for repeat, factor in enumerate(factors):
        for row in prediction["steps"]:
            times = {f"{part}_ms": row[f"{part}_ms"] * factor
                     for part in ("data", "forward", "backward", "optimizer", "step", "start")}
            kept = {key: row[key] for key in ("step", "rank", "samples", "max_length", "useful_tokens", "padded_tokens")}
            lines.append({"repeat": repeat, **kept, **times, "wait_ms": row["exposed_communication_ms"] * factor})
    pathlib.Path(path).write_text("\n".join(map(json.dumps, lines)) + "\n")


def test_validate():
    compared, answer, _ = asked("compare", SKEW)
    warmup = warmup_of(compared)
    predictions = {one["policy"]: one for one in answer["predictions"]}
    factors = {policy: [0.9 + 0.17 * i, 0.93 + 0.17 * i, 1.01 + 0.17 * i] for i, policy in enumerate(predictions)}
    with tempfile.TemporaryDirectory() as folder:
        live = [str(pathlib.Path(folder, policy + ".jsonl")) for policy in predictions]
        for path, (policy, prediction) in zip(live, predictions.items()):
            live_record(path, prediction, factors[policy])
        text, result, page = asked("validate", SKEW, "--live", *live)
    measured, speed, covered = {}, {}, 0
    for policy in result["policies"]:
        name = policy["policy"]
        prediction = predictions[name]
        base = statistics.fmean(step_time(step) for step in steps_of(prediction, warmup))
        means = [factor * base for factor in factors[name]]
        measured[name] = statistics.fmean(means)
        tokens = statistics.fmean(sum(row["useful_tokens"] for row in step) for step in steps_of(prediction, warmup))
        speed[name] = tokens * 1e3 / measured[name]
        same("measured mean", policy["measured_ms"]["mean"], measured[name])
        step = policy["predicted_ms"]
        same("predicted mean", step["mean"], prediction["summary"]["step_time_ms"]["mean"])
        error = step["mean"] / measured[name] - 1
        same("error", policy["error"]["mean"], error)
        same("parts of the error", sum(policy["error"]["mean_by_part"].values()), error)
        same("measured speed", policy["useful_tokens_per_s"]["measured"], speed[name])
        low, high = step["interval90"]
        assert policy["in_interval"] == (low <= measured[name] <= high)
        covered += policy["in_interval"]
        row = next(line for line in text.splitlines() if line.startswith(name + " "))
        said(row, f"{step['mean']:.3f}", f"{measured[name]:.3f}", percent(error, True))
        on_page(page, measured[name], step["mean"], error)
    same("coverage", result["interval_coverage"], covered / len(predictions))
    said(text, f"interval coverage: {percent(covered / len(predictions))} of the policies ({covered} of {len(predictions)})")
    reference = [name for name in predictions if name not in {one["policy"] for one in answer["recommendation"]["choices"]}]
    choices = [name for name in predictions if name not in reference]
    best, chosen = max(choices, key=speed.get), answer["recommendation"]["policy"]
    assert result["truly_best"] == best and result["recommended"] == chosen
    same("regret", result["regret"], speed[best] / speed[chosen] - 1)
    pairs = list(itertools.combinations(predictions, 2))
    predicted = {name: one["summary"]["useful_tokens_per_s"] for name, one in predictions.items()}
    agree = sum(1 if (predicted[a] - predicted[b]) * (speed[a] - speed[b]) > 0 else -1 for a, b in pairs)
    same("Kendall's tau", result["kendall_tau"], agree / len(pairs))
    said(text, f"Kendall tau {agree / len(pairs):.2f}")


if __name__ == "__main__":
    sys.exit(small_runner.main(globals()))
