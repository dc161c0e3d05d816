#!/usr/bin/env python3
"""Tunes a scenario on a profile of this machine, then trains what was found: is the order true?

    /usr/bin/python3 tests/live/tuned.py --build build --out tests/live/TUNED.md

Needs build/quickstart/profile.json, which scenarios/quickstart measures. The settings that
`stepsim tune --verify 3` writes, and the best policy as it stands, are predicted, then trained by
`stepcal live` on two processes, by turns. Writes a table of both.
"""

import argparse
import datetime
import json
import pathlib
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SCENARIO = ROOT / "scenarios" / "token_skew_2ranks.toml"
# What `stepcal live` can train.
SPACE = [
    "policy.bucketing.batch_size=4..16:+2",
    "policy.token_budget.max_tokens=768..2048:+128",
    "policy.variable_fixed.batch_size=4..16:+2",
    "ddp.bucket_cap=1MiB,25MiB",
]
REPEATS = 60


def measured(stepsim, folder, name):
    """The validation of one setting: its row of `stepsim validate --json`."""
    file = folder / f"{name}.validation.json"
    done = subprocess.run(
        [stepsim, "validate", folder / f"{name}.toml", "--predictions",
         folder / f"{name}.prediction.json", "--live", folder / "live" / f"{name}.plan.jsonl",
         "--json", file, "--quiet"],
        check=False,
    )  # fmt: skip
    assert done.returncode in (0, 1), done
    return json.loads(file.read_text(encoding="utf-8"))["policies"][0]


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--build", default=ROOT / "build", type=pathlib.Path)
    parser.add_argument("--profile", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path)
    options = parser.parse_args()
    stepsim = options.build / "sim" / "stepsim"
    profile = options.profile or options.build / "quickstart" / "profile.json"
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        found = folder / "tune.json"
        over = [word for axis in SPACE for word in ("--over", axis)]
        subprocess.run(
            [stepsim, "tune", SCENARIO, "--profile", profile, *over, "--samples", "8..40",
             "--verify", "3", "--out-dir", folder, "--json", found, "--quiet"],
            check=True,
        )  # fmt: skip
        predicted_at = datetime.datetime.now(datetime.timezone.utc)
        plans = sorted(folder.glob("*.plan.jsonl"))
        subprocess.run(
            [options.build / "calibrate" / "stepcal", "live", *plans, "--repeat", str(REPEATS),
             "--out-dir", folder / "live"],
            check=True,
        )  # fmt: skip
        tuned = json.loads(found.read_text(encoding="utf-8"))
        names = [str(i + 1) for i in range(len(plans) - 1)] + ["own"]
        rows = []
        for one in names:
            row = measured(stepsim, folder, one)
            tokens = json.loads((folder / f"{one}.prediction.json").read_text(encoding="utf-8"))[
                "predictions"][0]["summary"]["useful_tokens_per_step"]
            rows.append((one, tokens, row))
    settings = [one["setting"] for one in tuned["finalists"]] + ["the best policy as it stands"]
    text = [
        "# What `stepsim tune` found, trained",
        "",
        f"`tests/live/tuned.py`, {predicted_at:%Y-%m-%d}: {SCENARIO.name}, 2 ranks over gloo on this "
        f"machine's own profile; {tuned['points']} points, {tuned['priced']} priced. Predicted at "
        f"{predicted_at:%H:%M:%S} UTC, then trained, {REPEATS} repeats by turns.",
        "",
        "| setting | predicted ms | 90 % interval | measured ms | error | predicted useful tokens/s "
        "| measured | ± 2 standard errors |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for setting, (_, tokens, row) in zip(settings, rows):
        predicted, real = row["predicted_ms"], row["measured_ms"]["mean"]
        low, high = predicted["interval90"]
        text.append(
            f"| {setting} | {predicted['mean']:.3f} | {low:.2f} to {high:.2f} | {real:.3f} "
            f"| {100 * row['error']['mean']:+.1f} % | {1e3 * tokens / predicted['mean']:,.0f} "
            f"| {1e3 * tokens / real:,.0f} | {200 * row['standard_error']:.1f} % |"
        )
    speeds = [tokens / row["measured_ms"]["mean"] for _, tokens, row in rows]
    gains = [100 * (speeds[0] / speed - 1) for speed in speeds[1:]]
    foreseen = [one[1] / one[2]["predicted_ms"]["mean"] for one in rows]
    expected = [100 * (foreseen[0] / speed - 1) for speed in foreseen[1:]]
    text += ["", "Gain of the first over each of the others, predicted and measured: " + "; ".join(
        f"{a:+.1f} % and {b:+.1f} %" for a, b in zip(expected, gains)) + "."]
    print("\n".join(text))
    if options.out:
        options.out.write_text("\n".join(text) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
