"""The profiler traces that stepsim writes, read as HTA, TensorBoard and stepcal read them.

usage: profiler_files_test.py PATH_OF_STEPSIM PATH_OF_STEPCAL
The rules are those of HTA's and TensorBoard's readers; the comments name the reader's reason.
"""

import collections
import gzip
import json
import pathlib
import re
import statistics
import sys

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "sim" / "report")]
import small_runner  # noqa: E402  (needs the path above)
from trace_rows import (  # noqa: E402
    EVERY,
    SCENARIOS,
    SKEW,
    STEPCAL,
    STEPSIM,
    TWO_NODES,
    VALLEY,
    check_nesting,
    chrome,
    path_of,
    predicted,
    profiler,
    profiler_files,
    read,
    run,
)


# -- HTA and TensorBoard ---------------------------------------------------------------------------

CPU = {"user_annotation", "cpu_op", "cuda_runtime"}
COMMUNICATION = re.compile(r"(^nccl.*)|(^hip)|(^hccl)|(.*ncclKernel.*)")
MEMORY = re.compile(r"^(hip)?Memcpy|^(hip)?Memset|^dma")


def ns(microseconds):
    return round(1000 * microseconds)


def end_ns(event):
    return ns(event["ts"]) + ns(event["dur"])


def rows_of(events):
    return [e for e in events if e["ph"] == "X"]


def each_rank():
    for name, arguments in EVERY.items():
        for rank, events in enumerate(profiler(*arguments)):
            yield f"{name}, rank {rank}", events


def test_one_file_a_rank_in_a_folder_of_nothing_else():
    files = profiler_files(*SKEW)
    # HTA takes *.json and *.json.gz, TensorBoard WORKER.pt.trace.json.gz.
    assert [path.name for path in files] == [f"rank{r}.pt.trace.json.gz" for r in range(4)]


def test_a_folder_with_other_traces_is_refused():
    folder = pathlib.Path(path_of("mixed"))
    run(STEPSIM, "trace", *SKEW, "--out-dir", str(folder))
    run(STEPSIM, "trace", *SKEW, "--out-dir", str(folder))
    done = run(STEPSIM, "trace", *SKEW, "--ranks", "0..1", "--out-dir", str(folder), status=2)
    assert "holds rank" in done.stderr and "choose another folder" in done.stderr, done.stderr


def test_the_first_match_for_the_rank_is_the_rank():
    # HTA reads the file line by line, and wants white space behind the colon.
    for name in ('skew', '"rank": 7'):
        scenario = SKEW + ["--set", f"scenario.name={json.dumps(name)}"]
        for rank, path in enumerate(profiler_files(*scenario)):
            with gzip.open(path, "rt", encoding="utf-8") as file:
                found = next(filter(None, (re.search(r'"rank":\s+(\d+)', line) for line in file)))
            assert int(found.group(1)) == rank, path


def test_the_header_says_which_rank_of_how_many_with_what():
    for rank, path in enumerate(profiler_files(*TWO_NODES)):
        trace = read(path)
        group = trace["distributedInfo"].pop("pg_config")
        assert trace["distributedInfo"] == {
            "backend": "nccl", "rank": rank, "world_size": 16, "pg_count": 1
        }
        assert [(g["pg_name"], g["ranks"]) for g in group] == [("0", list(range(16)))]
        assert trace["host_name"] == f"node{rank // 8}" and trace["baseTimeNanoseconds"] == 0
        assert trace["schemaVersion"] == 1
        # stepcal wants as many devices as a node has ranks.
        assert [device["id"] for device in trace["deviceProperties"]] == list(range(8))
        assert {e["pid"] for e in rows_of(trace["traceEvents"])} == {1000, rank % 8}


def test_rows_have_all_members():
    # HTA drops rows without dur or cat, and those of category Trace.
    for where, events in each_rank():
        for event in rows_of(events):
            assert {"ts", "dur", "name", "cat", "pid", "tid"} <= event.keys(), (where, event)
            assert event["cat"] in CPU | {"kernel"}, (where, event)
            assert event["ts"] >= 0 and event["dur"] > 0, (where, event)
        check_nesting(events)


def test_only_rows_of_the_device_have_a_stream_of_at_least_1():
    for where, events in each_rank():
        for event in rows_of(events):
            if event["cat"] == "kernel":
                assert event["args"]["stream"] >= 1, (where, event)
                assert event["args"]["stream"] == event["tid"], (where, event)
                assert event["args"]["device"] == event["pid"], (where, event)
            else:
                assert "stream" not in event["args"], (where, event)


def test_every_kernel_has_one_launch_inside_a_step():
    for where, events in each_rank():
        # A row of index 0 cannot be a partner.
        assert events[0]["ph"] == "M", where
        launches = collections.Counter()
        launch_of = {}
        for event in rows_of(events):
            if event["cat"] == "cuda_runtime":
                launches[event["args"]["correlation"]] += 1
                launch_of[event["args"]["correlation"]] = event
        assert set(launches.values()) == {1}, where
        steps = [e for e in rows_of(events) if e["name"].startswith("ProfilerStep#")]
        kernels = [e for e in rows_of(events) if e["cat"] == "kernel"]
        assert kernels, where
        for kernel in kernels:
            launch = launch_of[kernel["args"]["correlation"]]
            # "cudaLaunchKernel" also tells HTA that the device is NVIDIA's.
            assert launch["name"] == "cudaLaunchKernel", (where, launch)
            assert launch["args"]["External id"] == kernel["args"]["External id"], (where, kernel)
            assert launch["ts"] <= kernel["ts"], (where, launch, kernel)
            holding = [s for s in steps if ns(s["ts"]) <= ns(launch["ts"]) < end_ns(s)]
            assert len(holding) == 1, (where, launch)


def test_launches_are_as_far_apart_as_the_simulated_hosts():
    slow = [*TWO_NODES, "--set", "host.launch=200 us"]
    launches = [e["ts"] for e in rows_of(profiler(*slow)[0]) if e["name"] == "cudaLaunchKernel"]
    gaps = [b - a for a, b in zip(launches, launches[1:])]
    assert min(gaps) >= 1 and statistics.median(gaps) == 200, (min(gaps), statistics.median(gaps))


def test_steps_are_rows_of_the_host_and_follow_each_other():
    # With two or more HTA drops the last one, which the help says.
    assert "HTA leaves out the last" in run(STEPSIM, "trace", "--help").stdout
    for name, arguments in EVERY.items():
        count = max(step for step, _ in predicted(*arguments)) + 1
        for events in profiler(*arguments):
            steps = [e for e in rows_of(events) if e["name"].startswith("ProfilerStep#")]
            assert [e["name"] for e in steps] == [f"ProfilerStep#{i}" for i in range(count)], name
            assert {(e["cat"], e["pid"]) for e in steps} == {("user_annotation", 1000)}
            for before, after in zip(steps, steps[1:]):
                assert end_ns(before) == ns(after["ts"]), name


def test_names_tell_collectives_from_compute():
    for where, events in each_rank():
        for event in rows_of(events):
            if event["cat"] != "kernel":
                continue
            collective = "Collective name" in event["args"]
            assert bool(COMMUNICATION.match(event["name"])) == collective, (where, event)
            assert not MEMORY.match(event["name"]), (where, event)
            if not collective:
                assert "Sync" not in event["name"], (where, event)
                assert not re.search("cuda.*LaunchKernel", event["name"]), (where, event)


def test_names_of_tensors_cannot_pass_for_collectives():
    names = ["ncclKernel_x", "hipFoo", "deviceSync", "Memcpy HtoD", 'a"b<c>', "dma", "NCCL"]
    tensors = pathlib.Path(path_of("tensors.csv"))
    tensors.write_text(
        "name,shape,forward,backward\n" + "".join(f"{name},64x64,1,2\n" for name in names),
        encoding="utf-8",
    )
    text = pathlib.Path(SCENARIOS / "published" / "resnet50_v100.toml").read_text(encoding="utf-8")
    text = text.replace('tensors = "resnet50.csv"', 'tensors = "tensors.csv"')
    text = re.sub(r'profile = "[^"]*"', lambda m: m.group(0).replace("../", f"{SCENARIOS}/"), text)
    scenario = path_of("named.toml")
    pathlib.Path(scenario).write_text(text, encoding="utf-8")
    for events in profiler(scenario, "--steps", "2"):
        for event in rows_of(events):
            if event["cat"] == "kernel" and "Collective name" not in event["args"]:
                name = event["name"]
                assert not COMMUNICATION.match(name) and not MEMORY.match(name), name
                assert "Sync" not in name and "nccl" not in name.lower(), name


def test_no_mirrors_of_annotations_on_the_device():
    for _, events in each_rank():
        assert not any(e.get("cat") == "gpu_user_annotation" for e in events)


def test_collectives_are_called_alike_on_all_ranks():
    # TensorBoard's distributed view.
    allowed = {f"nccl:{k}" for k in "broadcast reduce all_reduce all_gather reduce_scatter".split()}
    for name, arguments in EVERY.items():
        by_rank = []
        for events in profiler(*arguments):
            rows = rows_of(events)
            assert any(e["name"] == "DistributedDataParallel.forward" for e in rows), name
            kernels = {e["args"]["External id"]: e for e in rows if e["cat"] == "kernel"}
            calls = []
            for event in rows:
                if event["name"].startswith("nccl:"):
                    kernel = kernels[event["args"]["External id"]]
                    ((elements,),) = event["args"]["Input Dims"]
                    assert len(event["args"]["Input type"]) == 1
                    assert kernel["args"]["In msg nelems"] == elements, (event, kernel)
                    calls.append((event["name"], elements))
            assert calls and {call for call, _ in calls} <= allowed, (name, calls[:3])
            by_rank.append(calls)
        assert all(calls == by_rank[0] for calls in by_rank), name


# -- Round trips -----------------------------------------------------------------------------------


def imported(*arguments):
    paths = [str(path) for path in profiler_files(*arguments)]
    return json.loads(run(STEPCAL, "import", "kineto", *paths, "--json", "-").stdout)


def test_stepcal_reads_the_predicted_collectives():
    for name, arguments in EVERY.items():
        result = imported(*arguments)
        assert not result.get("unmatched"), (name, result["unmatched"])
        whole = [e for e in chrome(*arguments) if e.get("cat") == "communication" and e["pid"] == 0]
        transfers = [
            (e["args"]["step"], e["args"]["bytes"], e["dur"])
            for e in whole
            if e["name"] != "wait for ranks"
        ]
        found = [(m["step"], m["bytes"], m["transfer_us"]) for m in result["matches"]]
        key = lambda row: row[:2]
        transfers.sort(key=key)
        found.sort(key=key)
        assert [key(t) for t in transfers] == [key(f) for f in found], name
        for (_, _, expected), (_, _, transfer) in zip(transfers, found):
            assert abs(expected - transfer) <= 2, (name, expected, transfer)  # Whole microseconds.


def test_stepcal_reads_ddp_buckets():
    buckets = json.loads(run(STEPSIM, "buckets", VALLEY[0], "--json", "-").stdout)
    result = imported(*VALLEY)
    by_step = collections.defaultdict(list)
    for match in result["matches"]:
        if match["bucket"]:
            by_step[match["step"]].append(match["bytes"])
    assert by_step[0] == buckets["initial_bytes"] and by_step[1] == by_step[2]
    assert by_step[1] == buckets["rebuilt_bytes"], (by_step[1], buckets["rebuilt_bytes"])


def replayed_error(arguments, step):
    """Largest error of a rank's replayed step against the predicted one."""
    program = path_of(f"program{abs(hash((*arguments, step)))}")
    paths = [str(path) for path in profiler_files(*arguments)]
    chosen = ["--program", program, "--step", str(step)]
    text = run(STEPCAL, "import", "kineto", *paths, *chosen).stdout
    assert "proves nothing" not in text and "upper bounds" not in text, text
    result = json.loads(run(STEPSIM, "replay", program, "--json", "-").stdout)
    rows = predicted(*arguments)
    errors = []
    for rank, row in enumerate(result["ranks"]):
        expected = rows[step, rank]["step_ms"]
        errors.append((row["replayed_us"] / 1e3 - expected) / expected)
    return max(errors, key=abs)


def test_a_replayed_step_takes_as_long_as_predicted():
    for name, arguments in EVERY.items():
        error = replayed_error(arguments, 1)
        print(f"{name}: replayed step {100 * error:+.2f} % off the prediction")
        assert abs(error) < 0.01, (name, error)


if __name__ == "__main__":
    sys.exit(small_runner.main(globals()))
