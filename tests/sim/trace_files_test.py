"""The traces that stepsim writes, read as their readers do: Perfetto, HTA, TensorBoard, stepcal.

usage: trace_files_test.py PATH_OF_STEPSIM PATH_OF_STEPCAL
The rules are those of the trace event format and of HTA's and TensorBoard's readers; the comments
name the reader's reason.
"""

import bisect
import collections
import functools
import gzip
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))
import small_runner  # noqa: E402  (needs the path above)

STEPSIM = os.path.abspath(sys.argv[1])
STEPCAL = os.path.abspath(sys.argv[2])
SCENARIOS = ROOT / "scenarios"
FOLDER = tempfile.TemporaryDirectory()

SKEW = [str(SCENARIOS / "token_skew.toml"), "--policy", "variable_fixed"]
VALLEY = [str(SCENARIOS / "bucket_valley.toml"), "--steps", "3", "--set", "cluster.ranks=4"]
SMALL = ["--set", "model.preset=gpt2-small", "--set", "model.layers=4", "--steps", "3"]
TWO_NODES = [str(SCENARIOS / "two_nodes.toml"), *SMALL]
ACCUMULATION = [str(SCENARIOS / "accumulation.toml"), *SMALL, "--set", "scenario.warmup_steps=1"]
EVERY = {"skew": SKEW, "valley": VALLEY, "two nodes": TWO_NODES, "accumulation": ACCUMULATION}


def run(program, *arguments, status=0):
    done = subprocess.run(
        [program, *arguments], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == status, (
        f"{' '.join(arguments)}: status {done.returncode}, not {status}\n{done.stdout}{done.stderr}"
    )
    return done


def path_of(name):
    return str(pathlib.Path(FOLDER.name) / name)


def read(path):
    opened = gzip.open if str(path).endswith(".gz") else open
    with opened(path, "rt", encoding="utf-8") as file:
        return json.load(file)


@functools.cache
def predicted(*arguments):
    """Rows of `stepsim run --json`, by (step, rank)."""
    (result,) = json.loads(run(STEPSIM, "run", *arguments, "--json", "-").stdout)["predictions"]
    return {(row["step"], row["rank"]): row for row in result["steps"]}


@functools.cache
def chrome(*arguments):
    path = path_of(f"{abs(hash(arguments))}.json")
    run(STEPSIM, "trace", *arguments, "--out", path)
    return read(path)["traceEvents"]


@functools.cache
def profiler_files(*arguments):
    folder = path_of(f"{abs(hash(arguments))}")
    run(STEPSIM, "trace", *arguments, "--out-dir", folder)
    files = pathlib.Path(folder).iterdir()
    return sorted(files, key=lambda path: int(re.sub(r"\D", "", path.name)))


@functools.cache
def profiler(*arguments):
    """[rank]: rows of its trace."""
    return [read(path)["traceEvents"] for path in profiler_files(*arguments)]


def slices_by_thread(events):
    threads = collections.defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            threads[event["pid"], event["tid"]].append(event)
    return threads


def check_nesting(events):
    """Slices of one thread nest or are apart: a viewer moves others to a thread of their own."""
    for thread, slices in slices_by_thread(events).items():
        # To the nanosecond; of one begin the longest first, and of one length in the file's order.
        spans = [(round(e["ts"] * 1e3), round((e["ts"] + e["dur"]) * 1e3)) for e in slices]
        spans.sort(key=lambda span: (span[0], -span[1]))
        open_ends = []
        for begin, end in spans:
            while open_ends and open_ends[-1] <= begin:
                open_ends.pop()
            assert not open_ends or end <= open_ends[-1], (thread, begin, end, open_ends[-1])
            open_ends.append(end)


# -- Perfetto --------------------------------------------------------------------------------------


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
        (["--ranks", "3..1"], "ranks '3..1': give numbers and ranges, as 0..3,8"),
        (["--ranks", "two"], "ranks 'two': give numbers and ranges, as 0..3,8"),
        (["--ranks", "1,"], "ranks '1,': give numbers and ranges, as 0..3,8"),
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


# -- HTA and TensorBoard ---------------------------------------------------------------------------

CPU = {"user_annotation", "cpu_op", "cuda_runtime"}
COMMUNICATION = re.compile(r"(^nccl.*)|(^hip)|(^hccl)|(.*ncclKernel.*)")
MEMORY = re.compile(r"^(hip)?Memcpy|^(hip)?Memset|^dma")


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
        assert trace["distributedInfo"] == {"backend": "nccl", "rank": rank, "world_size": 16}
        assert trace["schemaVersion"] == 1
        # stepcal wants as many devices as a node has ranks.
        assert [device["id"] for device in trace["deviceProperties"]] == list(range(8))
        assert {e["pid"] for e in rows_of(trace["traceEvents"])} == {1000, rank % 8}


def test_rows_have_all_members_and_whole_microseconds():
    # HTA drops rows without dur or cat, and those of category Trace; it rounds fractions inward.
    for where, events in each_rank():
        for event in rows_of(events):
            assert {"ts", "dur", "name", "cat", "pid", "tid"} <= event.keys(), (where, event)
            assert event["cat"] in CPU | {"kernel"}, (where, event)
            assert isinstance(event["ts"], int) and isinstance(event["dur"], int), (where, event)
            assert event["dur"] >= 1, (where, event)
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
            holding = [s for s in steps if s["ts"] <= launch["ts"] < s["ts"] + s["dur"]]
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
                assert before["ts"] + before["dur"] == after["ts"], name


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
