"""The scenario that `stepsim advise` makes of a record has the buckets that the record has.

For each recorded run the rebuilt buckets of the made scenario must be the recorded ones, bytes in
order. The header alone does not tell: recorders of before did not know of bucket_cap_mb_list, nor
that a stated cap limits the first bucket since PyTorch 2.11.

usage: recorded_buckets_test.py STEPSIM [RECORD.jsonl[.gz] …]

Without records: those of scenarios/tour, made ones, and those of the reference data's cases.
"""

import gzip
import json
import os
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
import small_runner  # noqa: E402  (needs the path above)

ROOT = pathlib.Path(__file__).resolve().parents[3]
CASES = pathlib.Path(os.environ.get("STEPSIM_DATA", ROOT.parent / "shared" / "data")).parent / "cases"
STEPSIM = os.path.abspath(sys.argv[1])
GIVEN = [pathlib.Path(path) for path in sys.argv[2:]]
MIB = 1 << 20


def read(path):
    with gzip.open(path, "rt") if path.suffix == ".gz" else open(path) as file:
        return [json.loads(line) for line in file]


def recorded_sizes(lines):
    header, *rows = lines
    for row in rows:
        if row["step"] > 0 and row["step"] >= header["warmup_steps"] and row["buckets"]:
            return [bucket["bytes"] for bucket in row["buckets"]]
    return None


def run(*words):
    return subprocess.run([STEPSIM, *words], capture_output=True, text=True, check=False)


def advised(lines):
    """The text of the made scenario and its rebuilt buckets."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "run.jsonl"
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        scenario = pathlib.Path(folder) / "advice" / "scenario.toml"
        made = run("advise", path, "--out-dir", scenario.parent, "--quiet")
        assert scenario.exists(), made.stderr  # A prediction may be refused; it is not the question here.
        done = run("buckets", scenario, "--json", "-", "--quiet")
        assert done.returncode == 0, done.stderr
        return scenario.read_text(), json.loads(done.stdout)["rebuilt_bytes"]


def made(torch, buckets, cap=25 * MIB, first=MIB, **ddp):
    """A recorded run of the tour under another version, whose DDP made buckets of these bytes."""
    header, *rows = read(ROOT / "scenarios" / "tour" / "random.jsonl")
    header["versions"]["torch"] = torch
    header["ddp"] = {**header["ddp"], "bucket_cap_bytes": cap, "first_bucket_bytes": first, **ddp}
    for row in rows:
        launch, end = row["buckets"][0]["launch_ms"], row["buckets"][-1]["end_ms"]
        part = (end - launch) / (len(buckets) + 1)
        row["buckets"] = [
            {"bytes": size, "launch_ms": launch + i * part, "end_ms": launch + (i + 2) * part}
            for i, size in enumerate(buckets)
        ]
    return [header, *rows]


def gradient_bytes(lines):
    """Of each tensor, in reverse order of registration."""
    sizes = []
    for parameter in lines[0]["model"]["parameters"]:
        size = 4
        for extent in parameter["shape"]:
            size *= extent
        sizes.append(size)
    return sizes[::-1]


def filled(limits):
    """Buckets of the tour's model that close at these limits, the last of which repeats."""
    buckets = [0]
    for size in gradient_bytes(read(ROOT / "scenarios" / "tour" / "random.jsonl")):
        if buckets[-1] >= limits[min(len(buckets), len(limits)) - 1]:
            buckets.append(0)
        buckets[-1] += size
    return buckets


def check(name, lines):
    sizes = recorded_sizes(lines)
    assert sizes, f"{name}: no buckets recorded"
    text, buckets = advised(lines)
    limits = text.split("[ddp]")[1].split("[optimizer]")[0]
    assert buckets == sizes, f"{name}: recorded {sizes}, the scenario has {buckets}: [ddp]{limits}"
    return text


def test_recorded_runs_at_hand():
    paths = GIVEN or [
        *sorted((ROOT / "scenarios" / "tour").glob("*.jsonl")),
        *sorted(CASES.glob("default_first_bucket/*.jsonl.gz")),
        *sorted(CASES.glob("one_stall/*.jsonl.gz")),
    ]
    equal = []
    wrong = []
    for path in paths:
        lines = read(path)
        if recorded_sizes(lines) is None:
            print(f"{path.name}: no buckets recorded")
            continue
        try:
            check(path.name, lines)
            equal.append(path.name)
        except AssertionError as error:
            wrong.append(str(error))
    print(f"buckets equal: {len(equal)} of {len(equal) + len(wrong)}: {', '.join(equal)}")
    assert not wrong, "\n".join(wrong)
    if not GIVEN and not CASES.exists():
        raise small_runner.Skip(f"the {len(equal)} runs of the tour are right; no reference cases at {CASES}")


def test_a_default_cap_keeps_its_first_bucket_of_1_mib():
    text = check("default", made("2.15.0", filled([MIB, 25 * MIB])))
    assert "\nbucket_cap" not in text, text


def test_a_stated_cap_limits_the_first_bucket_since_2_11():
    cap = 2 * MIB
    text = check("newest", made("2.12.0", filled([cap]), cap=cap))
    assert 'bucket_cap = "2 MiB"\n' in text and "first_bucket_cap" not in text, text
    text = check("before", made("2.9.0", filled([MIB, cap]), cap=cap))
    assert 'first_bucket_cap = "1 MiB"' in text, text
    # A recorder that knows says what the first limit was.
    text = check("said", made("2.15.0", filled([cap]), cap=cap, first=cap, bucket_cap_list_bytes=None))
    assert 'bucket_cap = "2 MiB"\n' in text, text


def test_lists_of_caps():
    limits = [MIB // 4, 3 * MIB // 2, MIB]
    for said in ({}, {"bucket_cap_list_bytes": limits}):
        text = check("list", made("2.15.0", filled(limits), cap=max(limits), **said))
        assert "bucket_caps = [" in text, text
    assert '"256 KiB", "1.50 MiB", "1 MiB"' in text, text


def test_caps_are_written_exactly():
    cap = 1234567
    text = check("odd", made("2.9.0", filled([MIB, cap]), cap=cap))
    assert 'bucket_cap = "1234567 B"' in text, text


def test_without_bucket_times_the_header_is_believed():
    def caps(torch, **ddp):
        lines = made(torch, [1], **ddp)
        for row in lines[1:]:
            row["buckets"] = []
        return advised(lines)[0]

    assert "\nbucket_cap" not in caps("2.15.0")
    assert 'bucket_cap = "4 MiB"\n' in caps("2.15.0", cap=4 * MIB)
    assert "first_bucket_cap" not in caps("2.15.0", cap=4 * MIB)
    assert 'bucket_caps = ["1 MiB", "2 MiB"]' in caps("2.15.0", bucket_cap_list_bytes=[MIB, 2 * MIB])


def test_newer_switches_are_carried_over_or_told():
    buckets = filled([MIB, 25 * MIB])
    names = ("batched_grad_copy", "lazy_bucket_allocation", "skip_all_reduce_unused_params")
    text, _ = advised(made("2.15.0", buckets, **{name: True for name in names}))
    assert "batched_grad_copy = true" in text, text
    assert "# lazy_bucket_allocation: no effect on times" in text, text
    assert "# skip_all_reduce_unused_params: " in text, text
    text, _ = advised(made("2.15.0", buckets, **{name: False for name in names}))
    assert not any(name in text for name in names), text


if __name__ == "__main__":
    sys.exit(small_runner.main(globals()))
