"""Imports profiler traces as a user would: stepcal import kineto, stepsim replay.

usage: kineto_test.py PATH_OF_STEPCAL PATH_OF_STEPSIM
"""

import csv
import gzip
import json
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests"))
import small_runner  # noqa: E402  (needs the path above)
from small_runner import run  # noqa: E402

STEPCAL = os.path.abspath(sys.argv[1])
STEPSIM = os.path.abspath(sys.argv[2])
DATA = pathlib.Path(os.environ.get("STEPSIM_DATA", ROOT / ".." / "shared" / "data"))
FOLDER = tempfile.TemporaryDirectory()


def path_of(name, text=None):
    """A path in the folder of this test, and the file when there is text for it."""
    path = pathlib.Path(FOLDER.name) / name
    if text is not None:
        path.write_text(text, encoding="utf-8")
    return str(path)


def import_traces(*arguments, **keywords):
    return run(STEPCAL, "import", "kineto", *arguments, **keywords)


def replayed(program):
    return json.loads(run(STEPSIM, "replay", program, "--json", "-").stdout)


def recorded(pattern):
    """Traces of the reference data."""
    found = sorted(str(path) for path in (DATA / "traces").glob(pattern))
    if not found:
        raise small_runner.Skip(f"no reference data at {DATA / 'traces' / pattern}")
    return found


def event(cat, name, ts, dur, **args):
    return {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": 1, "ts": ts, "dur": dur, "args": args}


def trace_text(events, rank=0, world_size=1):
    header = {"rank": rank, "world_size": world_size, "backend": "nccl"}
    return json.dumps({"distributedInfo": header, "traceEvents": events})


def rank_events(late, elements=250):
    """A kernel, an all-reduce of floats that ends at 350 us on all ranks, one that waits for it."""
    return [
        event("user_annotation", "ProfilerStep#2", 0, 1000),
        event("cuda_runtime", "cudaLaunchKernel", late, 5, correlation=1),
        event("kernel", "gemm", late + 7, 40, correlation=1, stream=7),
        event("cuda_runtime", "cudaLaunchKernel", late + 10, 5, correlation=2),
        event(
            "kernel",
            "ncclDevKernel_AllReduce_Sum_f32",
            late + 47,
            303 - late,
            **{"correlation": 2, "stream": 9, "In msg nelems": elements, "dtype": "Float"},
        ),
        event("cuda_runtime", "cudaLaunchKernel", late + 20, 5, correlation=3),
        event("kernel", "sgd", 351, 100, correlation=3, stream=7),
        event("cuda_runtime", "cudaStreamSynchronize", late + 30, 426 - late),
    ]


def test_a_profiler_trace_becomes_a_table_and_json():
    kernel = {"correlation": 1, "stream": 7, "Collective name": "allreduce"}
    kernel |= {"In msg nelems": 250, "dtype": "Float"}
    rows = [
        ("user_annotation", "ProfilerStep#2", 0, 100, {}),
        ("cuda_runtime", "cudaLaunchKernel", 10, 5, {"correlation": 1}),
        ("kernel", "ncclDevKernel_AllReduce_Sum_f32", 20, 30, kernel),
    ]
    events = [
        {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": 1, "ts": ts, "dur": dur, "args": args}
        for cat, name, ts, dur, args in rows
    ]
    text = json.dumps({"traceEvents": events})
    trace = path_of("trace.json", text)
    assert "<= 30.0" in import_traces(trace).stdout
    found = json.loads(import_traces(trace, "--json", "-").stdout)
    assert found["matches"][0]["bytes"] == 1000, found
    assert found["ranks"][0]["collectives"][0]["start_us"] == 20, found
    cut = path_of("cut.json", text[:100])
    done = import_traces(cut, status=2)
    assert f"{cut}: error: byte 100: " in done.stderr, done.stderr


def test_two_ranks_become_a_program_that_replays_in_their_time():
    traces = [path_of(f"{r}.json", trace_text(rank_events(late), r, 2)) for r, late in ((0, 10), (1, 250))]
    program = path_of("two")
    text = import_traces(*traces, "--program", program).stdout
    assert "step 2 of rank 0, 1" in text and f"next: stepsim replay {program}" in text, text
    assert "upper bounds" not in text and "proves nothing" not in text, text
    result = replayed(program)
    # The last rank arrives at 297 us, the transfer takes 53 us, and the kernel behind it 100.
    assert result["collectives"][0]["replayed"]["transfer_us"] == 53, result
    assert [rank["replayed_us"] for rank in result["ranks"]] == [1000, 1000], result
    slower = run(STEPSIM, "replay", program, "--transfer-scale", "3", "--json", "-").stdout
    assert json.loads(slower)["ranks"][0]["replayed_us"] == 1106, slower
    one = path_of("one")
    text = import_traces(traces[1], "--program", one).stdout
    assert "1 of 1 transfer times are upper bounds" in text, text
    with open(os.path.join(one, "ranks.csv"), encoding="utf-8") as file:
        assert [row["trace_rank"] for row in csv.DictReader(file)] == ["1"]


def busy_gpu(steps, stall=0):
    """A host that runs ahead of its GPU, reads the loss in the middle of each step, and leaves half of
    the step's kernels to do. Launches take 10 us of the host, kernels 50 us of the GPU, which stands
    still for `stall` us before the eleventh of each step."""
    events, now, free = [], 0, 0

    def launch(name, **more):
        nonlocal now, free
        correlation = len(events)
        events.append(event("cuda_runtime", name, now, 10, correlation=correlation, **more))
        start = max(now + 7, free) + more.pop("held", 0)
        kind = ("gpu_memcpy", "Memcpy DtoH (Device -> Pageable)") if "Memcpy" in name else ("kernel", "gemm")
        events.append(event(*kind, start, 50, correlation=correlation, stream=7))
        now, free = now + 12, start + 50

    for step in range(steps):
        begin = now
        for i in range(20):
            launch("cudaLaunchKernel", held=stall if i == 10 else 0)
        copy = len(events)
        launch("cudaMemcpyAsync")
        now = free + 6
        events[copy]["dur"] = now - events[copy]["ts"]
        for _ in range(40):
            launch("cudaLaunchKernel")
        events.append(event("user_annotation", f"ProfilerStep#{step}", begin, now - begin))
    return events


def test_a_step_that_waits_for_its_gpu_replays():
    trace = path_of("busy.json", trace_text(busy_gpu(3)))
    program = path_of("busy")
    text = import_traces(trace, "--program", program).stdout
    assert "step 2 of rank 0" in text and "streams had work of the step before" in text, text
    result = replayed(program)
    # 61 kernels of 50 us, 7 us until the first one behind the copy, and 6 us for the return of the
    # copy: the rules say 7.
    assert result["ranks"][0]["measured_us"] == 3063, result
    assert abs(result["ranks"][0]["replayed_us"] - 3064) < 1e-6, result
    first = import_traces(trace, "--program", program, "--step", "0").stdout
    assert "had work of the step before" not in first, first


def test_a_gpu_that_stood_still_with_work_launched_does_so_in_the_replay():
    trace = path_of("stalled.json", trace_text(busy_gpu(3, stall=400)))
    program = path_of("stalled")
    text = import_traces(trace, "--program", program).stdout
    assert "its GPU stood still for 0.400 ms with work launched" in text, text
    with open(os.path.join(program, "program.csv"), encoding="utf-8") as file:
        held = [row["held_us"] for row in csv.DictReader(file) if row["held_us"]]
    assert held == ["400"], held
    rank = replayed(program)["ranks"][0]
    assert rank["measured_us"] == 3463 and abs(rank["replayed_us"] - 3464) < 1e-6, rank


def test_a_trace_that_begins_while_the_gpu_is_at_work_replays():
    events = busy_gpu(2)
    second = next(e["ts"] for e in events if e["name"] == "ProfilerStep#1")
    # Recording began with the second step: the first one's kernels are there, its calls are not.
    kept = [e for e in events if e["cat"] in ("kernel", "gpu_memcpy") or e["ts"] >= second]
    program = path_of("begun")
    text = import_traces(path_of("begun.json", trace_text(kept)), "--program", program).stdout
    assert "61 GPU operations were launched before: as far as they reach into the step" in text, text
    rank = replayed(program)["ranks"][0]
    # Without the 2 ms that the GPU had still to do it took half of the time.
    assert abs(rank["error"]) < 0.001, rank


def test_a_trace_that_ends_inside_a_step_counts_in_no_mean():
    events = busy_gpu(2)
    last = max(e["ts"] for e in events if e["cat"] == "kernel")
    trace = path_of("ended.json", trace_text([e for e in events if e["ts"] < last or e["cat"] != "kernel"]))
    program = path_of("ended")
    text = import_traces(trace, "--program", program, "--step", "1").stdout
    assert "1 kernels that step 1 launched are not in the traces: the step is cut" in text, text
    result = replayed(program)
    assert result["ranks"][0]["cut"] and result["error"] is None, result
    text = run(STEPSIM, "replay", program).stdout
    assert "% (cut)" in text and "not in the mean" in text and "mean |error|" not in text, text


class BusyRank:
    """A rank whose GPU is the limit: forward, a backward pass with an all-reduce after every five
    kernels, an optimizer that waits for all of them, and the loss read at the end."""

    def __init__(self, factor):
        self.events = []
        self.now = 0
        self.free = 0  # Of the compute stream.
        self.factor = factor
        self.ready = []  # [bucket]
        self.kernels = []  # [bucket] Their rows.

    def call(self, name, length=5):
        row = event("cuda_runtime", name, self.now, length, correlation=len(self.events))
        self.events.append(row)
        self.now += length + 3
        return row

    def work(self, row, length, after=0, cat="kernel", name="gemm"):
        start = max(row["ts"] + 7, self.free, after)
        correlation = row["args"]["correlation"]
        self.events.append(event(cat, name, start, length, correlation=correlation, stream=7))
        self.free = start + length

    def kernel(self, length):
        self.work(self.call("cudaLaunchKernel"), length * self.factor)

    def bucket(self):
        begin = self.now
        self.call("cudaStreamWaitEvent", 1)
        row = self.call("cudaLaunchKernel")
        self.events.append(event("cpu_op", "record_param_comms", begin, self.now - begin))
        self.ready.append(max(row["ts"] + 10, self.free))
        size = {"In msg nelems": 2**20, "dtype": "Float", "stream": 9, **row["args"]}
        self.kernels.append(event("kernel", "ncclDevKernel_AllReduce_Sum_f32", 0, 0, **size))

    def until_backward_ends(self):
        for _ in range(10):
            self.kernel(100)
        for i in range(20):
            self.kernel(100)
            if i % 5 == 4:
                self.bucket()
        for _ in self.ready:
            self.call("cudaStreamWaitEvent", 1)

    def after(self, ends, rank):
        for row, ready, end in zip(self.kernels, self.ready, ends):
            row.update(ts=ready, dur=end - ready)
        self.work(self.call("cudaLaunchKernel"), 50, after=ends[-1] + 1)
        copy = self.call("cudaMemcpyAsync")
        self.work(copy, 2, cat="gpu_memcpy", name="Memcpy DtoH (Device -> Pageable)")
        self.now = self.free + 7
        copy["dur"] = self.now - copy["ts"]
        self.events += [*self.kernels, event("user_annotation", "ProfilerStep#0", 0, self.now + 10)]
        return trace_text(self.events, rank, 2)


def busy_ranks(transfer):
    """Traces of two ranks, the second 1.2 times slower, and the length of the step."""
    ranks = [BusyRank(1), BusyRank(1.2)]
    for rank in ranks:
        rank.until_backward_ends()
    ends = []
    for bucket in range(4):
        for rank in ranks:  # The communication stream is free 1 us after the bucket before.
            rank.ready[bucket] = max(rank.ready[bucket], ends[-1] + 1 if ends else 0)
        ends.append(max(rank.ready[bucket] for rank in ranks) + transfer)
    texts = [one.after(ends, number) for number, one in enumerate(ranks)]
    traces = [path_of(f"ddp{transfer}_{number}.json", text) for number, text in enumerate(texts)]
    return traces, ranks[1].now + 10


def test_a_recorded_step_tells_what_another_link_would_do():
    traces, step = busy_ranks(200)
    program = path_of("ddp")
    text = import_traces(*traces, "--program", program).stdout
    assert "4 collectives" in text and "note: the replay" not in text, text
    for factor in (0, 1, 2, 3, 8):
        _, wanted = busy_ranks(200 * factor)
        result = run(STEPSIM, "replay", program, "--transfer-scale", str(factor), "--json", "-").stdout
        got = json.loads(result)["ranks"][1]["replayed_us"]
        assert abs(got - wanted) < 0.01, (factor, got, wanted)
    assert wanted > 1.5 * step, (wanted, step)


def two_steps(rank, arrivals, ends):
    """Two steps with an all-reduce of 1 MiB and one of 4 MiB each, and a broadcast."""
    events = []
    for step in (0, 1):
        zero = 1000 * step
        events.append(event("user_annotation", f"ProfilerStep#{step}", zero, 1000))
        for i, (kind, elements) in enumerate((("AllReduce", 2**18), ("AllReduce", 2**20), ("Broadcast", 64))):
            correlation = 10 * step + i
            at = zero + 300 * i
            events.append(event("cuda_runtime", "cudaLaunchKernel", at, 5, correlation=correlation))
            start, end = at + arrivals[i], at + ends[step][i]
            size = {"correlation": correlation, "stream": 9, "In msg nelems": elements, "dtype": "Float"}
            events.append(event("kernel", f"ncclDevKernel_{kind}_Sum_f32", start, end - start, **size))
    return trace_text(events, rank, 2)


def test_complete_collectives_become_samples_and_a_profile():
    ends = ((130, 250, 120), (140, 250, 120))
    traces = [
        path_of("s0.json", two_steps(0, (20, 100, 20), ends)),
        path_of("s1.json", two_steps(1, (100, 50, 121), ((130, 250, 130), (140, 250, 130)))),
    ]
    samples, profile = path_of("samples.jsonl"), path_of("profile.json")
    text = import_traces(*traces, "--out", samples, "--profile", profile).stdout
    assert "all_reduce of 2 ranks on 1 node: 4 times, 2 sizes" in text, text
    assert "left out: 2 broadcast: ends on one rank before it starts on another" in text, text
    assert "compute goes into no profile" in text, text
    with open(samples, encoding="utf-8") as file:
        lines = [json.loads(line) for line in file]
    assert lines[1]["source"] == "kineto" and lines[1]["file"] == "s0.json, s1.json", lines[1]
    assert [(row["bytes"], row["in_place_us"]) for row in lines[2:]] == [
        (2**20, 30), (2**22, 150), (2**20, 40), (2**22, 150),
    ], lines
    with open(profile, encoding="utf-8") as file:
        table = json.load(file)["collectives"][0]
    assert (table["kind"], table["ranks"]) == ("all_reduce", 2), table
    for knot, wanted in zip(table["knots_s"], ((2**20, 35e-6), (2**22, 150e-6))):
        assert knot[0] == wanted[0] and abs(knot[1] / wanted[1] - 1) < 1e-9, table
    refit = path_of("refit.json")
    run(STEPCAL, "fit", samples, "--out", refit)
    with open(refit, encoding="utf-8") as file:
        assert json.load(file)["collectives"][0]["knots_s"] == table["knots_s"]
    again = import_traces(*traces, "--out", samples, status=2)
    assert "a second all_reduce of 2 ranks" in again.stderr, again.stderr
    base = str(ROOT / "scenarios" / "profiles" / "h100_8x_published.json")
    import_traces(*traces, "--base", base, "--profile", profile)
    with open(profile, encoding="utf-8") as file:
        mine = json.load(file)
    assert len(mine["ops"]) > 0 and [t for t in mine["collectives"] if t["ranks"] == 2], mine["name"]
    missing = import_traces(traces[0], "--out", path_of("none.jsonl"), status=2)
    assert "4 all_reduce: traces of other ranks are missing" in missing.stderr, missing.stderr
    assert not os.path.exists(path_of("none.jsonl"))


def test_a_program_takes_transfer_times_of_a_profile():
    small, large = (
        path_of(f"{elements}.json", trace_text(rank_events(10, elements), 0, 2)) for elements in (2**14, 2**18)
    )
    ends = ((130, 250, 120), (140, 250, 120))
    table = [
        path_of(f"t{r}.json", two_steps(r, arrivals, ends))
        for r, arrivals in ((0, (20, 100, 20)), (1, (100, 50, 100)))
    ]
    profile, program = path_of("link.json"), path_of("priced")
    import_traces(*table, "--profile", profile)
    done = import_traces(small, "--program", program, "--transfers", profile, status=2)
    assert "64 KiB is 16.00 times below" in done.stderr, done.stderr
    text = import_traces(large, "--program", program, "--transfers", profile).stdout
    assert "1 transfer times are of the profile: all_reduce, measured table, 2 ranks" in text, text
    assert "transfer times are upper bounds, because traces of other ranks" not in text, text
    assert replayed(program)["collectives"][0]["replayed"]["transfer_us"] == 35, text
    done = import_traces(large, "--transfers", profile, status=2)
    assert "--transfers goes with --program" in done.stderr, done.stderr


def test_nodes_are_asked_for_where_a_host_has_fewer_devices():
    ends = ((130, 250, 120), (140, 250, 120))
    traces = []
    for rank, arrivals in ((0, (20, 100, 20)), (1, (100, 50, 100))):
        text = two_steps(rank, arrivals, ends)
        devices = '{"deviceProperties": [{"id": 0, "name": "NVIDIA X"}], '
        traces.append(path_of(f"n{rank}.json", devices + text[1:]))
    samples = path_of("nodes.jsonl")
    done = import_traces(*traces, "--out", samples, status=2)
    assert "2 ranks, and 1 devices where this one ran" in done.stderr, done.stderr
    import_traces(*traces, "--out", samples, "--nodes", "2")
    with open(samples, encoding="utf-8") as file:
        header, line = json.loads(next(file)), json.loads(next(file))
    assert header["device"] == "NVIDIA X" and line["nodes"] == 2, (header, line)
    assert "--base goes with --profile" in import_traces(*traces, "--base", "x", status=2).stderr


def test_a_step_that_is_not_there_and_a_folder_that_cannot_be():
    trace = path_of("trace.json", trace_text(rank_events(10)))
    done = import_traces(trace, "--program", path_of("p"), "--step", "7", status=2)
    assert "no step 7 in all traces; there are 2" in done.stderr, done.stderr
    done = import_traces(trace, "--step", "2", status=2)
    assert "--step goes with --program" in done.stderr, done.stderr
    done = import_traces(trace, "--program", path_of("file", "x") + "/p", status=3)
    assert "cannot make the folder" in done.stderr, done.stderr


def peak_mib(*arguments):
    """Runs stepcal; its output and the most memory it had."""
    output = path_of("output")
    with open(output, "w", encoding="utf-8") as file:
        child = subprocess.Popen([STEPCAL, *arguments], stdout=file, stderr=subprocess.STDOUT)
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    with open(output, encoding="utf-8") as file:
        text = file.read()
    assert child.returncode == 0, text
    return text, usage.ru_maxrss / 1024


def large_trace(blocks):
    """A packed trace of 100 kB a block, most of it ops of the host, with 20 kernels each."""
    path = path_of("large.json.gz")
    filler = json.dumps(event("cpu_op", "aten::" + "x" * 120, 1, 2, **{"Ev Idx": 7})) + ",\n"
    filler = (filler * (100_000 // len(filler))).encode()
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(b'{"traceEvents":[\n')
        for block in range(blocks):
            file.write(filler)
            for i in range(20):
                id, ts = 20 * block + i, 10 * (20 * block + i)
                launch = event("cuda_runtime", "cudaLaunchKernel", ts, 2, correlation=id)
                kernel = event("kernel", "gemm", ts + 7, 2, correlation=id, stream=7)
                file.write(f"{json.dumps(launch)},\n{json.dumps(kernel)},\n".encode())
        step = event("user_annotation", "ProfilerStep#1", 0, 10 * 20 * blocks)
        file.write(json.dumps(step).encode() + b"]}")
    return path


def test_a_trace_of_200_mb_takes_little_memory():
    if b"__asan_init" in pathlib.Path(STEPCAL).read_bytes():
        raise small_runner.Skip("the address sanitizer keeps freed memory")
    _, empty = peak_mib("import", "kineto", path_of("small.json", trace_text(rank_events(10))))
    program = path_of("large")
    text, peak = peak_mib("import", "kineto", large_trace(2000), "--program", program)
    assert "step 1 of rank 0 (in the program from 0 on), 40001 rows" in text, text
    # 8 MB of calls and kernels, twice while they are sorted; the text of the program; one chunk.
    assert peak - empty < 64, (peak, empty)


def test_damaged_traces_are_refused_or_read():
    packed = pathlib.Path(recorded("dlrm_8xV100/kineto/worker7*.gz")[0]).read_bytes()
    text = gzip.decompress(packed)
    name = path_of("damaged.json")
    for part in range(1, 12):
        for data in (packed[: len(packed) * part // 12], text[: len(text) * part // 12]):
            pathlib.Path(name).write_bytes(data)
            done = import_traces(name, "--program", path_of("damaged"), status=2)
            assert f"{name}: error: " in done.stderr, done.stderr
    random = 1
    for _ in range(30):
        damaged = bytearray(text)
        for _ in range(20):
            random = random * 6364136223846793005 % 2**64
            damaged[(random >> 20) % len(damaged)] = random >> 56
        pathlib.Path(name).write_bytes(damaged)
        import_traces(name, "--program", path_of("damaged"), status=(0, 2), text=False, timeout=60)


def test_the_recorded_step_of_three_of_eight_ranks():
    program = path_of("dlrm")
    text = import_traces(*recorded("dlrm_8xV100/kineto/*.gz"), "--program", program).stdout
    assert "8 of 8 transfer times are upper bounds" in text, text
    text = run(STEPSIM, "replay", program).stdout
    assert "mean |error| 0.15 %, worst 0.19 %, bias -0.15 % (early)" in text, text
    error = json.loads(run(STEPSIM, "replay", program, "--no-barrier", "--json", "-").stdout)["error"]
    assert error["mean_absolute"] > 0.15, error


def test_the_recorded_steps_of_one_rank_of_two():
    trace = recorded("resnet50_2xA100_rank0/*.json.gz")[0]
    for step in (4, 5, 6):
        program = path_of(f"resnet{step}")
        text = import_traces(trace, "--program", program, "--step", str(step)).stdout
        assert "7 of 7 transfer times are upper bounds" in text, text
        assert "never waits for the GPU" in text, text
        wanted = '[times] of a scenario with this batch, medians: forward = "12.879 ms", backward = "25.802 ms"'
        assert wanted in text, text
        result = replayed(program)
        assert result["error"]["mean_absolute"] < 1e-4, result["error"]
        for collective in result["collectives"]:
            assert abs(collective["worst_end_error_us"]) < 50, collective


if __name__ == "__main__":
    sys.exit(small_runner.main(globals()))
