"""The traces that stepsim writes, read as Perfetto reads them.

usage: trace_files_test.py PATH_OF_STEPSIM PATH_OF_STEPCAL
The rules are those of the trace event format; the comments name the reader's reason.
"""

import bisect
import collections
import gzip
import json
import os
import pathlib
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "sim" / "report")]
import small_runner  # noqa: E402  (needs the path above)
from trace_rows import (  # noqa: E402
    EVERY,
    FOLDER,
    SKEW,
    STEPSIM,
    TWO_NODES,
    VALLEY,
    check_nesting,
    chrome,
    path_of,
    predicted,
    read,
    run,
    slices_by_thread,
)


def check_rows(events):
    """The rows of the trace event format: which members each phase has, and their types."""
    number = (int, float)
    for event in events:
        phase = event["ph"]
        assert phase in ("X", "M", "C", "s", "f"), event
        assert isinstance(event["name"], str) and event["name"], event
        assert isinstance(event["pid"], int) and event["pid"] >= 0, event
        if phase != "M":
            assert isinstance(event["ts"], number) and event["ts"] >= 0, event
        if phase == "X":
            assert event["cat"] and isinstance(event["tid"], int), event
            assert isinstance(event["dur"], number) and event["dur"] > 0, event
            assert isinstance(event["args"], dict), event
        elif phase == "C":
            assert event["args"] and all(isinstance(v, number) for v in event["args"].values())
        elif phase == "M":
            kinds = {"process_name", "process_labels", "process_sort_index", "thread_name"}
            assert event["name"] in kinds | {"thread_sort_index"}, event
        else:
            assert isinstance(event["id"], int) and event["cat"], event
            assert phase == "s" or event["bp"] == "e", event


def test_every_row_has_what_the_format_asks_for():
    for arguments in EVERY.values():
        check_rows(chrome(*arguments))
        check_nesting(chrome(*arguments))


def check_arrows(events):
    """Both ends lie in slices of their threads: a viewer draws the arrow between those."""
    threads = {
        thread: sorted(slices, key=lambda e: e["ts"])
        for thread, slices in slices_by_thread(events).items()
    }
    begins = {thread: [e["ts"] for e in slices] for thread, slices in threads.items()}
    ends = collections.defaultdict(dict)
    for event in events:
        if event["ph"] in "sf":
            assert event["ph"] not in ends[event["id"]], event
            ends[event["id"]][event["ph"]] = event
    found = {}
    for number, arrow in ends.items():
        start, end = arrow["s"], arrow["f"]
        assert start["ts"] < end["ts"] + 1e-9 and start["pid"] == end["pid"], arrow
        for side in (start, end):
            thread = (side["pid"], side["tid"])
            place = bisect.bisect(begins[thread], side["ts"] + 1e-6) - 1
            holding = threads[thread][place]
            assert place >= 0, side
            assert side["ts"] < holding["ts"] + holding["dur"] - 1e-6, (side, holding)
            found[number, side["ph"]] = holding
    return found


def test_an_arrow_leads_from_the_work_that_fills_a_bucket_to_its_collective():
    for arguments in (SKEW, TWO_NODES):
        events = chrome(*arguments)
        found = check_arrows(events)
        buckets = {
            (e["pid"], e["args"]["step"], e["args"]["bucket"])
            for e in events
            if e["ph"] == "X" and "bucket" in e["args"]
        }
        led_to = {
            (e["pid"], e["args"]["step"], e["args"]["bucket"])
            for (_, side), e in found.items()
            if side == "f"
        }
        assert led_to == buckets and buckets, (len(led_to), len(buckets))
        assert {e["cat"] for (_, side), e in found.items() if side == "s"} == {"compute"}


def test_counters_and_steps_are_those_of_the_prediction():
    for arguments in EVERY.values():
        rows = predicted(*arguments)
        values = collections.defaultdict(list)
        steps = {}
        for event in chrome(*arguments):
            if event["ph"] == "C":
                (value,) = event["args"].values()
                values[event["name"], event["pid"]].append(value)
            elif event["name"].startswith("ProfilerStep#"):
                steps[int(event["name"].split("#")[1]), event["pid"]] = event["dur"] / 1e3
        names = {"useful tokens": "useful_tokens", "padded tokens": "padded_tokens"}
        names["peak memory"] = "peak_memory_mib"
        for (name, rank), series in values.items():
            expected = [rows[step, rank][names[name]] for step in range(len(series))]
            assert all(abs(a - b) < 1e-6 * b for a, b in zip(series, expected)), (name, rank)
        assert {name for name, _ in values} == set(names)
        assert steps.keys() == rows.keys()
        assert all(abs(steps[key] - rows[key]["step_ms"]) < 1e-5 for key in rows)


def test_the_waiting_is_the_predicted_one():
    for name, arguments in EVERY.items():
        parts = collections.Counter()
        for event in chrome(*arguments):
            if event["ph"] == "X" and event["cat"] == "compute":
                parts[event["args"]["step"], event["pid"], event["name"]] += event["dur"] / 1e3
        for (step, rank), row in predicted(*arguments).items():
            shown = parts[step, rank, "exposed communication"]
            exposed = row["exposed_communication_ms"]
            assert abs(shown - exposed) < 1e-4, (name, step, rank, shown, exposed)


def test_ranks_and_threads_have_names_and_an_order():
    events = [e for e in chrome(*TWO_NODES) if e["ph"] == "M"]
    ranks = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert ranks == {rank: f"rank {rank}" for rank in range(16)}
    order = {e["pid"]: e["args"]["sort_index"] for e in events if e["name"] == "process_sort_index"}
    assert order == {rank: rank for rank in range(16)}
    labels = {e["pid"]: e["args"]["labels"] for e in events if e["name"] == "process_labels"}
    assert labels == {rank: f"node {rank // 8}" for rank in range(16)}
    names = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    places = {
        (e["pid"], e["tid"]): e["args"]["sort_index"]
        for e in events
        if e["name"] == "thread_sort_index"
    }
    assert names.keys() == places.keys() and len(names) == 16 * 3
    in_order = sorted((places[thread], names[thread]) for thread in names if thread[0] == 0)
    assert [name for _, name in in_order] == ["steps", "compute", "communicator"]


def test_a_file_named_gz_is_packed_and_holds_the_same():
    path = path_of("skew.json.gz")
    text = run(STEPSIM, "trace", *SKEW, "--out", path).stdout
    assert "MB packed" in text and "ui.perfetto.dev" in text, text
    assert pathlib.Path(path).read_bytes()[:2] == b"\x1f\x8b"
    assert read(path)["traceEvents"] == chrome(*SKEW)
    again = path_of("again.json.gz")
    run(STEPSIM, "trace", *SKEW, "--out", again)
    assert pathlib.Path(again).read_bytes() == pathlib.Path(path).read_bytes()
    piped = json.loads(run(STEPSIM, "trace", *SKEW, "--out", "-").stdout)
    assert piped["traceEvents"] == chrome(*SKEW)


def test_a_selection_shows_what_the_whole_trace_does():
    chosen = chrome(*SKEW, "--ranks", "0,2..3", "--steps", "4..5,9")
    slices = [e for e in chosen if e["ph"] == "X"]
    whole = [
        e
        for e in chrome(*SKEW)
        if e["ph"] == "X" and e["pid"] != 1 and e["args"]["step"] in (4, 5, 9)
    ]
    assert slices == whole and slices
    assert len(chrome(*SKEW, "--steps", "0..1")) < len(chrome(*SKEW)) / 3


def test_a_wrong_selection_says_what_there_is():
    for arguments, message in (
        (["--ranks", "0..4"], "ranks '0..4': there are 4 ranks, 0 to 3"),
        (["--steps", "11..12"], "steps '11..12': there are 12 steps, 0 to 11"),
        (["--ranks", "3..1"], "ranks '3..1': give numbers and ranges, such as 0..3,8"),
        (["--ranks", "two"], "ranks 'two': give numbers and ranges, such as 0..3,8"),
        (["--ranks", "1,"], "ranks '1,': give numbers and ranges, such as 0..3,8"),
    ):
        out = path_of("never.json")
        done = run(STEPSIM, "trace", *SKEW, *arguments, "--out", out, status=2)
        assert message in done.stderr, done.stderr
        assert not os.path.exists(out)
    done = run(STEPSIM, "trace", *SKEW, status=2)
    assert "give --out FILE or --out-dir FOLDER" in done.stderr
    done = run(STEPSIM, "trace", *SKEW, "--out", path_of("x"), "--csv", path_of("y"), status=2)
    assert "use --out FILE" in done.stderr


def test_a_trace_too_large_is_refused_before_it_is_made():
    out = path_of("never.json")
    done = run(STEPSIM, "trace", VALLEY[0], "--steps", "2000", "--out", out, status=2)
    assert "million slices" in done.stderr and "--parts" in done.stderr, done.stderr
    assert not os.path.exists(out)


def test_parts_in_place_of_ops():
    events = chrome(*SKEW, "--parts")
    names = {e["name"] for e in events if e["ph"] == "X" and e["cat"] == "compute"}
    assert {"forward", "backward", "optimizer"} <= names, names
    assert not any("layer" in name for name in names), names
    assert len(events) < len(chrome(*SKEW)) / 2
    check_nesting(events)
    check_arrows(events)


def measured_run(*arguments):
    """Seconds and peak MiB of a process."""
    begin = time.monotonic()
    process = subprocess.Popen([STEPSIM, *arguments], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, arguments
    return time.monotonic() - begin, usage.ru_maxrss / 1024


def test_64_ranks_and_20_steps():
    """Printed: what it takes. Valid JSON by the rules above."""
    scenario = [TWO_NODES[0], "--set", "model.preset=gpt2-small", "--set", "cluster.ranks=64"]
    scenario += ["--set", "scenario.steps=20"]
    path = path_of("large.json.gz")
    seconds, mib = measured_run("trace", *scenario, "--out", path)
    events = read(path)["traceEvents"]
    check_rows(events)
    check_nesting(events)
    check_arrows(events)
    assert {e["pid"] for e in events} == set(range(64))
    steps = {e["name"] for e in events if e["name"].startswith("ProfilerStep#")}
    assert steps == {f"ProfilerStep#{i}" for i in range(20)}
    with gzip.open(path) as file:
        size = len(file.read())
    print(
        f"64 ranks x 20 steps: {len(events)} rows, {size / 1e6:.1f} MB, "
        f"{os.path.getsize(path) / 1e6:.1f} MB packed, {seconds:.2f} s, {mib:.0f} MiB of memory"
    )
    # Rows are written as they are made: less memory than the text takes.
    _, few = measured_run("trace", *scenario, "--steps", "0..0", "--out", path_of("few.json"))
    assert mib - few < size / 4 / 2**20, (mib, few, size)


if __name__ == "__main__":
    sys.exit(small_runner.main(globals()))
