"""What PyTorch and NCCL write themselves: each line of the README's table, and files made by hand.

usage: pytorch_records_test.py PATH_OF_STEPCAL
"""

import json
import os
import pathlib
import pickle
import re
import shlex
import statistics
import sys

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests"))
import small_runner  # noqa: E402  (needs the path above)

DATA = pathlib.Path(os.environ.get("STEPSIM_DATA", ROOT.parent / "shared" / "data")) / "pytorch_2_15"
README = ROOT / "calibrate" / "import" / "README.md"
STEPCAL = os.path.abspath(sys.argv[1])


def stepcal(*arguments, status=0):
    return small_runner.output(STEPCAL, "import", *arguments, status=status)


def documented():
    """(command, [what it prints]) of each line of the table."""
    text = README.read_text(encoding="utf-8")
    section = text.split("## What PyTorch and NCCL write themselves\n")[1].split("\n## ")[0]
    rows = [line.strip("|").split(" | ") for line in section.splitlines() if "| `stepcal import" in line]
    return [(row[1].strip().strip("`"), re.findall(r"`([^`]+)`", row[2])) for row in rows]


@small_runner.in_new_folder
def test_each_command_of_the_readme_prints_what_it_says():
    if not DATA.is_dir():
        raise small_runner.Skip(f"no records in {DATA}")
    lines = documented()
    assert len(lines) == 10, lines
    seen = set()
    for number, (command, parts) in enumerate(lines):
        words = []
        for word in shlex.split(command)[2:]:
            found = sorted(str(path) for path in DATA.glob(word)) if "." in word else []
            words += found or [f"out{number}.jsonl" if word == "OUT" else word]
            seen.update(pathlib.Path(path).name for path in found)
        text = stepcal(*words)
        for part in parts:
            known = part.startswith(("stepcal ", "[times]"))
            assert known or part in text, (command, part, text)
    left = {path.name for path in DATA.iterdir()} - seen - {"README.md"}
    assert not left, f"no command of the README takes {left}"


@small_runner.in_new_folder
def test_traces_of_compiled_steps_become_a_record():
    if not DATA.is_dir():
        raise small_runner.Skip(f"no records in {DATA}")
    stepcal("kineto", *sorted(DATA.glob("compile*.gz")), "--run-record", "run.jsonl")
    header, *rows = [json.loads(line) for line in pathlib.Path("run.jsonl").read_text().splitlines()]
    assert header["world_size"] == 2 and len(rows) == 6, header
    assert {(row["samples"], row["max_length"]) for row in rows} == {(8, 64)}, rows


@small_runner.in_new_folder
def test_rows_of_other_vendors_are_refused_by_name_and_those_of_rocm_are_read():
    case = DATA.parents[1] / "cases" / "xpu_trace_dropped" / "xpu.json"
    if not case.is_file():
        raise small_runner.Skip(f"no {case}")

    def written(runtime, kernels="kernel", reduces="oneccl_allreduce_pcie", launch="urEnqueueKernelLaunch"):
        trace = json.loads(case.read_text(encoding="utf-8"))
        for row in trace["traceEvents"]:
            row["cat"] = {"xpu_runtime": runtime, "kernel": kernels}.get(row["cat"], row["cat"])
            row["name"] = {"oneccl_allreduce_pcie": reduces, "urEnqueueKernelLaunch": launch}.get(row["name"], row["name"])
        pathlib.Path("trace.json").write_text(json.dumps(trace), encoding="utf-8")
        return "trace.json"

    for runtime, kernels in [("xpu_runtime", "kernel"), ("privateuse1_runtime", "kernel"), ("mtia_runtime", "mtia_ccp_events")]:
        text = stepcal("kineto", written(runtime, kernels), status=2)
        assert f"device rows launched by {runtime} are not read" in text, text
    # RCCL's kernels hide their kind; the call around them tells it.
    text = stepcal("kineto", written("hip_runtime", "kernel", "ncclDevKernel_Generic_1(args)", "hipExtModuleLaunchKernel"))
    assert re.search(r"all_reduce +1 MiB +float32 +3 ", text), text
    assert re.search(r"gemm +2\.0 ", text), text


# ---- NCCL Inspector, by hand after its source -----------------------------------------------------

SIZES = [65536, 1 << 20, 26214400]
TIMES = {65536: 31, 1 << 20: 70, 26214400: 410}


def inspector_lines(rank, version, ranks=4, times=5):
    """What a rank writes of all-reduces of all SIZES, `times` each, and one reduce-scatter: rank 3 comes
    last in all but each first, where rank 1 does; the others wait 100 us for them."""
    header = {"id": "0xabc", "comm_name": "default_pg", "rank": rank, "n_ranks": ranks, "nnodes": 1}
    metadata = {"inspector_output_format_version": version, "git_rev": "", "hostname": "node0", "pid": 40 + rank}
    lines = []
    if version >= "v4.2":
        stats = {"coll_records": 1, "coll_dropped_total": 2, "coll_dropped_since_last_dump": 2}
        lines.append({"header": header, "metadata": metadata, "dump_stats": stats})
    lead = {} if version >= "v4.3" else {"header": header, "metadata": metadata}
    number = 0
    for size in SIZES:
        for one in range(times):
            last = 1 if one == 0 else 3
            perf = {"coll": "AllReduce", "coll_sn": number, "coll_msg_size_bytes": size,
                    "coll_exec_time_us": TIMES[size] + (0 if rank == last else 100),
                    "coll_timing_source": "kernel_gpu", "coll_algobw_gbs": 1.0, "coll_busbw_gbs": 1.0}  # fmt: skip
            lines.append(lead | {"coll_perf": perf})
            number += 1
    perf = {"coll": "ReduceScatter", "coll_sn": 0, "coll_msg_size_bytes": 1 << 20, "coll_exec_time_us": 200 + rank,
            "coll_timing_source": "kernel_gpu"}  # fmt: skip
    lines.append(lead | {"coll_perf": perf})
    lines.append(lead | {"p2p_perf": {"p2p": "Send", "p2p_sn": 0}})
    return lines


def write_lines(path, lines):
    pathlib.Path(path).write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


@small_runner.in_new_folder
def test_the_least_of_all_ranks_is_the_transfer_and_the_rest_is_waiting():
    for version in ["v4.0", "v4.1", "v4.2", "v4.3"]:
        files = [write_lines(f"{version}.{rank}.log", inspector_lines(rank, version)) for rank in range(4)]
        text = stepcal("nccl-inspector", *files, "--json", f"{version}.json")
        assert ("Inspector dropped 8 collectives" in text) == (version >= "v4.2"), text
        assert "sends and receives are left out, 4 of them" in text, text
        with open(f"{version}.json", encoding="utf-8") as file:
            found = json.load(file)
        reduces = [one for one in found["collectives"] if one["op"] == "all_reduce"]
        assert len(reduces) == 15 and all(one["complete"] for one in reduces), reduces
        for one in reduces:
            assert one["transfer_us"] == TIMES[one["bytes"]], one
            last = "1" if one["number"] % 5 == 0 else "3"
            assert one["waiting_us"] == {rank: 0 if rank == last else 100 for rank in "0123"}, one
        (scatter,) = [one for one in found["collectives"] if one["op"] == "reduce_scatter"]
        assert (scatter["bytes"], scatter["transfer_us"]) == (4 << 20, 200), scatter
        rows = [line.split() for line in text.splitlines() if line.startswith("0xabc")]
        # Rank 0 waits in all of its 15 all-reduces, rank 1 in 12, rank 3 in 3 and in the reduce-scatter.
        assert [(row[1], row[2], row[3], row[-1]) for row in rows] == [
            ("0", "16", "1.500", "1"), ("1", "16", "1.201", "3"), ("2", "16", "1.502", "0"), ("3", "16", "0.303", "12"),
        ], text  # fmt: skip


@small_runner.in_new_folder
def test_a_profile_takes_the_transfers_of_all_ranks():
    files = [write_lines(f"{rank}.log", inspector_lines(rank, "v4.3")) for rank in range(4)]
    stepcal("nccl-inspector", *files, "--profile", "mine.json")
    with open("mine.json", encoding="utf-8") as file:
        collectives = {one["kind"]: one for one in json.load(file)["collectives"]}
    knots = dict(collectives["all_reduce"]["knots_s"])
    for size, us in TIMES.items():
        assert abs(knots[size] - us * 1e-6) < 1e-7, (size, knots)
    assert collectives["reduce_scatter"]["ranks"] == 4, collectives
    stepcal("nccl-inspector", *files, "--out", "samples.jsonl")
    rows = [json.loads(line) for line in pathlib.Path("samples.jsonl").read_text().splitlines()]
    assert {row["source"] for row in rows if row.get("kind") == "import"} == {"nccl-inspector v4.3"}, rows
    some = stepcal("nccl-inspector", *files[:2], "--profile", "some.json", status=2)
    assert "lines of some ranks are missing" in some and "--accept missing_ranks" in some, some
    text = stepcal("nccl-inspector", *files[:1], "--profile", "some.json", "--accept", "missing_ranks")
    assert "which is an upper bound" in text, text


@small_runner.in_new_folder
def test_what_is_no_file_of_inspector_is_refused_with_the_reason():
    lines = inspector_lines(0, "v4.0")
    other = json.loads(json.dumps(lines[0]).replace("v4.0", "v5.0"))
    for bad, says in [
        ([other], "bad.log:1: error: metadata.inspector_output_format_version: 'v5.0' is not read; expected v4.0 to v4.3"),
        ([{"coll_perf": lines[0]["coll_perf"]}], "a collective before any line with"),
        ([{"event": 1}], "is this a file of NCCL Inspector?"),
        ([lines[0] | {"header": lines[0]["header"] | {"rank": 9}}], "header.rank"),
        ([], "no collective"),
    ]:  # fmt: skip
        write_lines("bad.log", bad)
        text = stepcal("nccl-inspector", "bad.log", status=2)
        assert says in text, (says, text)
    smaller = [json.loads(json.dumps(line).replace("26214400", "26214404")) for line in inspector_lines(1, "v4.0")]
    files = [write_lines("0.log", lines), write_lines("1.log", smaller)]
    assert "the files are not of one run" in stepcal("nccl-inspector", *files, status=2)
    twice = stepcal("nccl-inspector", "0.log", "0.log")
    assert "16 lines repeat a collective of their rank" in twice, twice


# ---- Flight Recorder and DDP's logger ----------------------------------------------------------


def flight_dump(rank, steps=6, late_ms=0.0, first=0):
    """Three warm-up broadcasts, then steps of 100 ms: an all-reduce at 0 and one at 40 ms, rank 1 later."""
    entries, number = [], 0

    def add(kind, elements, at_ms):
        nonlocal number
        number += 1
        entries.append({
            "record_id": number - 1, "collective_seq_id": number, "is_p2p": False, "process_group": ["0", "default_pg"],
            "profiling_name": f"gloo:{kind}", "state": "scheduled", "time_created_ns": round(1e18 + 1e6 * at_ms),
            "input_sizes": [[elements]], "input_dtypes": ["Float"], "output_sizes": [[elements]], "output_dtypes": ["Float"],
        })  # fmt: skip

    for i in range(3):
        add("broadcast", 10 + i, 5 * i)
    for step in range(steps):
        add("all_reduce", 1000, 300 + 100 * step + late_ms)
        add("all_reduce", 500, 340 + 100 * step + late_ms)
    return {"version": "2.10", "entries": entries[first:]}


@small_runner.in_new_folder
def test_a_dump_tells_step_time_and_skew():
    for rank, late in [(0, 0.0), (1, 7.0)]:
        pathlib.Path(f"dump_rank{rank}.json").write_text(json.dumps(flight_dump(rank, late_ms=late, first=rank)))
    text = stepcal("flight-recorder", "dump_rank1.json", "dump_rank0.json", "--json", "flight.json")
    with open("flight.json", encoding="utf-8") as file:
        found = json.load(file)
    for rank in found["ranks"]:
        assert [(one["kind"], one["bytes"], one["after_ms"]) for one in rank["step"]] == [
            ("all_reduce", 4000, 0), ("all_reduce", 2000, 40)], rank  # fmt: skip
        assert len(rank["step_ms"]) == 5 and abs(statistics.mean(rank["step_ms"]) - 100) < 1e-6, rank
    assert abs(found["skew"]["median_ms"] - 7) < 1e-3 and found["skew"]["last"] == {"1": 12}, found["skew"]
    assert "next: a dump holds no batch" in text, text


@small_runner.in_new_folder
def test_dumps_that_part_or_are_no_json_are_named():
    good, other = flight_dump(0), flight_dump(1)
    other["entries"][-1]["input_sizes"] = [[501]]
    pathlib.Path("rank0.json").write_text(json.dumps(good))
    pathlib.Path("rank1.json").write_text(json.dumps(other))
    text = stepcal("flight-recorder", "rank0.json", "rank1.json")
    assert "the ranks part at collective 15 of group 0: all_reduce of 2000 bytes on rank 0" in text, text
    pathlib.Path("rank2.pkl").write_bytes(pickle.dumps(good))
    assert "a pickle, which only Python reads" in stepcal("flight-recorder", "rank2.pkl", status=2)
    pathlib.Path("rank0b.json").write_text("{}")
    assert "an object with \"entries\"" in stepcal("flight-recorder", "rank0b.json", status=2)
    assert "a second dump of rank 0" in stepcal("flight-recorder", "rank0.json", "rank0.json", status=2)
    pathlib.Path("short.json").write_text(json.dumps({"entries": good["entries"][:4]}))
    assert "steps are not told" in stepcal("flight-recorder", "short.json")


@small_runner.in_new_folder
def test_what_ddp_logs():
    logged = {
        "world_size": 2, "rank": 1, "backend_name": "nccl", "module_name": "Net", "iteration": 9, "bucket_sizes": "3000",
        "rebuilt_bucket_sizes": "1000, 2000", "has_rebuilt_buckets": 1, "bucket_cap_bytes": 1500, "num_parameter_tensors": 4,
        "forward_compute_time": 4000000, "backward_compute_time": 9000000, "backward_comm_time": 5000000,
        "backward_compute_comm_overlap_time": 3000000,
    }  # fmt: skip
    pathlib.Path("a.json").write_text(json.dumps(logged))
    stepcal("ddp-logging", "a.json", "--json", "out.json")
    with open("out.json", encoding="utf-8") as file:
        (rank,) = json.load(file)["ranks"]
    assert rank["last"] == {"forward_ms": 4, "backward_ms": 9, "communication_ms": 5, "overlap_ms": 3, "exposed_ms": 2}, rank
    assert (rank["mean"], rank["buckets"], rank["rank"]) == (None, [1000, 2000], 1), rank
    none = {name: value for name, value in logged.items() if not name.endswith("_time")}
    pathlib.Path("b.json").write_text(json.dumps(none | {"has_rebuilt_buckets": 0, "rank": 0}))
    text = stepcal("ddp-logging", "b.json")
    assert "no step was measured" in text and "_set_ddp_runtime_logging_sample_rate(1)" in text, text
    assert "these are the buckets of the first step" in text, text
    assert "not of one run" in stepcal("ddp-logging", "a.json", "b.json", status=2)
    pathlib.Path("c.json").write_text(json.dumps(logged | {"rebuilt_bucket_sizes": "1000, many"}))
    assert "'many' is no size in bytes" in stepcal("ddp-logging", "c.json", status=2)
    pathlib.Path("d.json").write_text("[1]")
    assert "expected what json.dump(ddp._get_ddp_logging_data(), file) writes" in stepcal("ddp-logging", "d.json", status=2)


if __name__ == "__main__":
    sys.exit(small_runner.main(dict(globals())))
