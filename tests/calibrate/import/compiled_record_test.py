"""Records of models under torch.compile: the steps that compile are found, named and priced.

usage: compiled_record_test.py PATH_OF_STEPCAL PATH_OF_STEPSIM
"""

import gzip
import json
import os
import pathlib
import random
import sys

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests"))
import small_runner  # noqa: E402  (needs the path above)

CASES = pathlib.Path(os.environ.get("STEPSIM_DATA", ROOT.parent / "shared" / "data")).parent / "cases"
STEPCAL, STEPSIM = (os.path.abspath(path) for path in sys.argv[1:3])
RANKS, STEPS = 2, 40
GRAPH_S = {"forward": 3.0, "backward": 1.0}  # Of a planted graph.
PARAMETERS = [{"name": f"layer{i}", "shape": [256, 256], "dtype": "f32"} for i in range(6)]


def passes_ms(length):
    """What a forward and a backward of 8 samples of a length take."""
    return 4 + 0.02 * 8 * length, 8 + 0.05 * 8 * length


def record(compiling, marked=True, wrappers=("OptimizedModule", "DistributedDataParallel"), warmup=2,
           lengths=lambda generator: generator.randint(20, 90)):  # fmt: skip
    """A run whose steps compile on all ranks where `compiling(step, rank, shapes met before, shape)`."""
    generator = random.Random(3)
    header = {
        "format": "stepsim-run-record/1", "policy": "fixed", "warmup_steps": warmup, "world_size": RANKS,
        "backend": "gloo", "device": "made", "cores": 8,
        "model": {"name": "Made", "parameters": PARAMETERS, "buffers": {}}, "wrappers": list(wrappers),
        "ddp": {"bucket_cap_bytes": 26214400, "first_bucket_bytes": 1048576},
    }  # fmt: skip
    if not wrappers:
        del header["wrappers"]
    lines, met, now = [header], [[] for _ in range(RANKS)], 1000.0
    for step in range(STEPS):
        rows = []
        for rank in range(RANKS):
            length = lengths(generator)
            forward, backward = (ms * generator.uniform(0.99, 1.01) for ms in passes_ms(length))
            compiles = compiling(step, rank, met[rank], length)
            met[rank].append(length)
            cpu = forward, backward
            if compiles:
                forward, backward = forward + 1e3 * GRAPH_S["forward"], backward + 1e3 * GRAPH_S["backward"]
            rows.append({
                "repeat": 0, "step": step, "rank": rank, "samples": 8, "max_length": length,
                "useful_tokens": 8 * length, "padded_tokens": 8 * length, "start_ms": now, "data_ms": 0.1,
                "forward_ms": forward, "backward_ms": backward, "optimizer_ms": 1.0,
                "forward_cpu_ms": cpu[0], "backward_cpu_ms": cpu[1],
                "lengths": [length] * 8, "buckets": [],
            } | ({"compiled_graphs": 1} if compiles and marked else {}))  # fmt: skip
        end = max(row["forward_ms"] + row["backward_ms"] for row in rows)
        for row in rows:  # All wait for the last gradient.
            row["backward_ms"] = end - row["forward_ms"] + 0.5
            row["step_ms"] = row["thread_cpu_ms"] = 1.1 + end + 0.5
        now += rows[0]["step_ms"]
        lines += rows
    text = "".join(json.dumps(line) + "\n" for line in lines)
    pathlib.Path("run.jsonl").write_text(text, encoding="utf-8")


def imported():
    """What the import says, the costs of new shapes and the passes for 8 samples of 50."""
    text = small_runner.output(STEPCAL, "import", "run-record", "run.jsonl", "--profile", "mine.json")
    profile = json.loads(pathlib.Path("mine.json").read_text(encoding="utf-8"))
    return text, profile


def automatic(step, rank, met, length):
    return step == 0 or (len(set(met)) == 1 and length != met[0])


def step_of_fixed():
    """The predicted mean step, steps that meet a new shape, and what these lose in milliseconds."""
    pathlib.Path("run.toml").write_text(
        "[scenario]\nname = \"t\"\nsteps = 30\nwarmup_steps = 3\n[cluster]\nranks = 2\nprofile = \"mine.json\"\n"
        "[model]\nkind = \"recorded\"\n[data]\nsamples = 480\nlengths = { uniform = [20, 90] }\n"
        "[[policy]]\nname = \"fixed\"\nkind = \"fixed\"\nbatch_size = 8\n", encoding="utf-8")  # fmt: skip
    small_runner.run(STEPSIM, "run", "run.toml", "--policy", "fixed", "--json", "run.json", "--quiet")
    (one,) = json.loads(pathlib.Path("run.json").read_text(encoding="utf-8"))["predictions"]
    shapes = one.get("new_shapes", {"stalled_steps": 0, "lost_ms": 0})
    return one["summary"]["step_time_ms"]["mean"], shapes["stalled_steps"], shapes["lost_ms"]


@small_runner.in_new_folder
def test_marked_steps_are_priced_and_not_fitted():
    record(lambda *_: False, wrappers=())
    plain_text, plain = imported()
    assert "compilation" not in plain_text and "new_shapes" not in plain, plain_text
    expected = step_of_fixed()[0]
    for warmup in [0, 5]:
        record(automatic, warmup=warmup)
        text, profile = imported()
        assert "compilation: 2 of 40 steps took 4." in text, text
        assert "while torch.compile made graphs, for batches of 8 x " in text, text
        assert profile["format"] == "stepsim-profile/14", profile["format"]
        (cost,) = profile["new_shapes"]
        assert (cost["mechanism"], cost["mode"]) == ("compile", "automatic"), cost
        assert abs(cost["forward_s"] - GRAPH_S["forward"]) < 0.05, cost
        assert abs(cost["backward_s"] - GRAPH_S["backward"]) < 0.05, cost
        mean, stalled, lost = step_of_fixed()
        assert abs(mean - expected) < 0.04 * expected, (mean, expected)
        assert stalled == 2 and abs(lost - 8000) < 500, (stalled, lost)


@small_runner.in_new_folder
def test_steps_without_marks_are_taken_for_compilation_where_they_are_tens_of_times_longer():
    for wrappers, warmup in [(("OptimizedModule",), 3), ((), 0)]:
        record(automatic, marked=False, wrappers=wrappers, warmup=warmup)
        text, profile = imported()
        assert "compilation: 2 of 40 steps" in text, text
        assert "and are taken for those in which torch.compile made graphs" in text, text
        (cost,) = profile["new_shapes"]
        assert abs(cost["forward_s"] + cost["backward_s"] - 4) < 0.1, cost
    # Without a hint a slow warm-up is none: a GPU's first steps are slow for other reasons.
    record(automatic, marked=False, wrappers=(), warmup=3)
    text, profile = imported()
    assert "compilation: " not in text and "new_shapes" not in profile, text


@small_runner.in_new_folder
def test_the_mode_is_what_was_said_or_what_explains_most_steps():
    few = [30, 40, 50, 60, 70]
    record(lambda _step, _rank, met, length: length not in met, lengths=lambda g: g.choice(few))
    text, profile = imported()
    assert profile["new_shapes"][0]["mode"] == "static", (text, profile["new_shapes"])
    assert "a graph for each shape" in text, text
    record(lambda step, *_: step == 0, lengths=lambda g: g.choice(few))
    assert imported()[1]["new_shapes"][0]["mode"] == "dynamic"
    record(automatic, wrappers=["OptimizedModule(dynamic=False)"])
    assert imported()[1]["new_shapes"][0]["mode"] == "static"
    record(lambda step, *_: step in (0, 20))
    text, _ = imported()
    assert "shapes alone do not explain" in text, text


@small_runner.in_new_folder
def test_recorded_compilations():
    folder = CASES / "compiled_ddp_recorded"
    if not folder.is_dir():
        raise small_runner.Skip(f"no recorded ones in {CASES}")
    for name, says in [
        ("compiled", ["compilation: 2 of 14 steps took 1.2", "for batches of 6 x 56, 6 x 59, 6 x 58",
                      "an older recorder did not find DDP inside of torch.compile"]),
        ("compile_steps", ["compilation: 2 of 42 steps took 70.2 s to 177.5 s (others 138.4 ms in the median)",
                           "for batches of 8 x 73, 8 x 80, 8 x 82, 8 x 91"]),
    ]:  # fmt: skip
        with gzip.open(folder / f"{name}.jsonl.gz", "rt") as file:
            pathlib.Path("run.jsonl").write_text(file.read(), encoding="utf-8")
        text, profile = imported()
        assert all(one in text for one in says), text
        assert "allocator" not in text, text
        assert profile["new_shapes"][0]["mode"] == "automatic", profile["new_shapes"]
        advice = small_runner.output(STEPSIM, "advise", "run.jsonl", "--out-dir", f"{name}.advice")
        (step,) = [line for line in advice.splitlines() if line.startswith("your step:")]
        predicted, recorded = float(step.split()[2]), float(step.split("recorded ")[1].split()[0])
        assert abs(predicted - recorded) < 0.15 * recorded, step


if __name__ == "__main__":
    sys.exit(small_runner.main(dict(globals())))
