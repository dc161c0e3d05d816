"""Report pages (--html) as a user makes them: their data, their size, what hostile text does.

usage: html_test.py PATH_OF_STEPSIM
"""

import json
import os
import pathlib
import re
import resource
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "sim" / "cli")]
import stepsim_program  # noqa: E402  (it takes the same argument)
import small_runner  # noqa: E402  (needs the path above)
import validate_test  # noqa: E402  (its live records)

STEPSIM = os.path.abspath(sys.argv[1])
SKEW = str(ROOT / "scenarios" / "token_skew.toml")
VALLEY = str(ROOT / "scenarios" / "bucket_valley.toml")
CAPS = ["--over", "ddp.bucket_cap=1MiB..2GiB:x2"]
DATA = re.compile(r'<script type="application/json" id="stepsim-data">(.*?)</script>', re.DOTALL)


def run(*arguments, status=0, **keywords):
    """Runs stepsim, checks its exit status and returns the finished process."""
    environment = {**os.environ, "SOURCE_DATE_EPOCH": "1795203445"}
    done = subprocess.run(
        [STEPSIM, *arguments], capture_output=True, text=True, check=False, timeout=120,
        env=environment, **keywords,
    )
    if "this build holds no report page" in done.stderr:
        assert done.returncode == 3 and "node-d3" in done.stderr, done.stderr
        raise small_runner.Skip("this build holds no report page, for want of d3")
    assert done.returncode == status, (
        f"stepsim {' '.join(arguments)}: status {done.returncode}, not {status}\n"
        f"{done.stdout}{done.stderr}"
    )
    return done


def data_of(page):
    """The page's data; it is there once."""
    found = DATA.findall(page)
    assert len(found) == 1, len(found)
    return json.loads(found[0])


def page_of(*arguments, **keywords):
    return data_of(run(*arguments, "--html", "-", **keywords).stdout)


def test_the_page_of_a_run_holds_what_json_writes():
    with tempfile.TemporaryDirectory() as folder:
        file, page = os.path.join(folder, "run.json"), os.path.join(folder, "page.html")
        options = ["run", SKEW, "--policy", "bucketing"]
        text = run(*options, "--json", file, "--html", page).stdout
        data = data_of(pathlib.Path(page).read_text(encoding="utf-8"))
        assert data["result"] == json.loads(pathlib.Path(file).read_text(encoding="utf-8"))
        assert text == run(*options).stdout
        assert data["format"] == "stepsim-page/2" and data["kind"] == "run"
        assert data["made"] == "2026-11-20T19:37:25Z"
        assert data["scenario"]["text"] == pathlib.Path(SKEW).read_text(encoding="utf-8")
        assert data["command"] == f"stepsim {' '.join(options)} --json {file} --html {page}"


def test_the_page_of_a_comparison_holds_every_policy():
    data = page_of("compare", SKEW)
    result = json.loads(run("compare", SKEW, "--json", "-").stdout)
    assert data["result"] == result
    text = run("compare", SKEW, "--wide").stdout
    assert data["headline"] in text.splitlines(), data["headline"]
    assert data["recommended"] == "bucketing" and data["references"] == ["uniform"]
    policies = [p["policy"] for p in result["predictions"]]
    assert [series["policy"] for series in data["series"]] == policies
    timelines = [timeline["policy"] for timeline in data["timelines"]]
    assert [timelines.count(policy) for policy in policies] == [1, 1, 13, 1], timelines
    assert [entry["policy"] for entry in data["blame"]] == ["bucketing"]
    rows = {line.split()[0]: line for line in text.split("\n\n")[1].splitlines()}
    for prediction in result["predictions"]:
        mean = prediction["summary"]["step_time_ms"]["mean"]
        assert f" {mean:.3f} " in rows[prediction["policy"]], (mean, rows)


def test_the_page_agrees_with_the_text_reports():
    run_text = run("run", VALLEY, "--wide").stdout
    data = page_of("run", VALLEY)
    times = data["result"]["predictions"][0]["summary"]["step_time_ms"]
    assert f"step time          {times['mean']:.3f} ms mean" in run_text, run_text
    blame_text = run("blame", VALLEY).stdout
    blame = data["blame"][0]
    assert f"\n{blame['step_ms']:.3f} ms a step\n" in blame_text, blame
    shown = [re.split(r"  +", line.strip()) for line in blame_text.split("\n\n")[1].splitlines()]
    rows = {row[0]: row[2] for row in shown if len(row) == 4}
    for words, saved in blame["rows"]:
        assert rows[words] == f"{saved:+.3f}", (words, saved, rows)
    # The scenario as it stands, among the bucket caps and alone, and every step of its series.
    own = [timeline for timeline in data["timelines"] if timeline["own"]]
    assert [timeline["mean_ms"] for timeline in own] == [blame["step_ms"]]
    steady = data["series"][0]["step_ms"][data["series"][0]["warmup_steps"]:]
    assert abs(sum(steady) / len(steady) - own[0]["mean_ms"]) < 1e-3
    assert abs(own[0]["shown_us"] / 1e3 - data["series"][0]["step_ms"][own[0]["step"]]) < 1e-3
    rows = [row for row in data["result"]["predictions"][0]["steps"] if row["step"] == own[0]["step"]]
    for rank, row in zip(own[0]["ranks"], rows):
        idle = sum(duration for kind in ("exposed", "waiting") for _, duration in rank[kind])
        assert abs(idle / 1e3 - row["exposed_communication_ms"]) < 1e-3, (idle, row)
        waiting = sum(duration for _, duration in rank["waiting"])
        assert abs(waiting / 1e3 - row["waiting_for_ranks_ms"]) < 1e-3, (waiting, row)
        forward = sum(duration for _, duration, kind in rank["compute"] if kind == 1)
        assert abs(forward / 1e3 - row["forward_ms"]) < 1e-3, (forward, row)
        backward = sum(duration for _, duration, kind in rank["compute"] if kind == 2)
        assert abs(backward / 1e3 - row["backward_ms"]) < 1e-3, (backward, row)


def test_a_rank_does_one_thing_at_a_time():
    nodes = str(ROOT / "scenarios" / "two_nodes.toml")
    data = page_of("run", nodes, "--steps", "4")
    copies = 0
    for timeline in data["timelines"]:
        for rank in timeline["ranks"]:
            pieces = [piece[:2] for piece in rank["compute"] + rank["exposed"] + rank["waiting"]]
            pieces.sort()
            copies += sum(kind == 4 for _, _, kind in rank["compute"])
            for (start, duration), (after, _) in zip(pieces, pieces[1:]):
                assert start + duration < after + 0.15, (timeline["label"], rank["rank"], start)
    assert copies > 0  # Gradients are copied out of the buckets between the waits.


def test_bucket_caps_of_the_page_are_those_of_a_sweep():
    data = page_of("run", VALLEY)
    sweep = json.loads(run("sweep", VALLEY, *CAPS, "--json", "-").stdout)
    labels = sweep["axes"][0]["labels"]
    caps = {timeline["label"]: timeline for timeline in data["timelines"]}
    assert list(caps) == labels[:5] + ["25 MiB"] + labels[5:], list(caps)
    assert caps["25 MiB"]["default"] and caps["25 MiB"]["own"]
    for label, point in zip(labels, sweep["points"]):
        # Every rank does the same, so that the slowest rank's step is the step.
        assert abs(caps[label]["mean_ms"] - point["step_ms"]) < 1e-3, label
        assert len(caps[label]["buckets"]) == point["buckets"], label
    assert [label for label in labels if caps[label]["best"]] == [labels[sweep["best"]]]


def test_the_page_of_a_sweep_holds_a_timeline_a_point():
    text = run("sweep", VALLEY, *CAPS, "--wide").stdout
    result = json.loads(run("sweep", VALLEY, *CAPS, "--json", "-").stdout)
    data = page_of("sweep", VALLEY, *CAPS)
    assert data["result"] == result and data["kind"] == "sweep"
    timelines = {timeline["label"]: timeline for timeline in data["timelines"]}
    default = timelines.pop("25 MiB")
    assert default["default"] and default["own"]
    assert abs(default["mean_ms"] - result["reference"]["step_ms"]) < 1e-3
    (axis,) = result["axes"]
    assert axis["key"] == "ddp.bucket_cap" and axis["unit"] == "B"
    assert axis["values"] == [timeline["cap_bytes"] for timeline in timelines.values()]
    for i, ((label, timeline), point) in enumerate(
        zip(timelines.items(), result["points"], strict=True)
    ):
        assert label == axis["labels"][i] and timeline["point"] == i and point["place"] == [i]
        assert point["values"] == {"ddp.bucket_cap": axis["values"][i]}
        assert abs(timeline["mean_ms"] - point["step_ms"]) < 1e-3
        assert f"{label} " in text and f"  {timeline['mean_ms']:.3f}  " in text, text
    assert [t["label"] for t in data["timelines"] if t["best"]] == ["128 MiB"]
    best = next(line for line in text.splitlines() if line.startswith("Best: "))
    assert best.startswith("Best: ddp.bucket_cap = 128 MiB, 114 ms a step; "), best
    assert data["headline"] == result["headline"] == best
    header = text.splitlines()[2]
    places = [header.index(column["heading"]) for column in data["sweep_columns"]]
    assert places == sorted(places), "the page has the terminal's columns, in its order"
    assert all(column["key"] in result["points"][0] for column in data["sweep_columns"])


def test_a_sweep_of_many_points_draws_some_and_one_of_two_keys_none():
    jitter = ["--over", "cluster.skew=0..1:+0.01"]
    data = page_of("sweep", VALLEY, *jitter)
    labels = [timeline["label"] for timeline in data["timelines"]]
    assert len(data["result"]["points"]) == 101 and len(labels) == 24, labels
    assert labels[0] == "0" and labels[-1] == "1" and data["timelines"][0]["best"], labels
    two = page_of("sweep", VALLEY, *CAPS, "--over", "cluster.skew=0,0.1")
    assert two["timelines"] == [] and len(two["result"]["points"]) == 24


def test_the_page_of_a_validation_holds_what_was_measured():
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "prediction.json")
        run("compare", stepsim_program.PAIR, "--json", file, "--quiet")
        with open(file, encoding="utf-8") as text:
            predictions = json.load(text)["predictions"]
        live = []
        for prediction in predictions:
            live.append(os.path.join(folder, prediction["policy"] + ".jsonl"))
            validate_test.live_record(live[-1], prediction, [0.98, 1.04])
        options = ["validate", stepsim_program.PAIR, "--live", *live, "--predictions", file]
        data = page_of(*options)
        assert data["result"] == json.loads(run(*options, "--json", "-").stdout)
        assert f"verdict: {data['headline']}\n" in run(*options).stdout
        assert data["timelines"] == [] and data["warnings"] == data["result"]["warnings"]
        policies = data["result"]["policies"]
        for series, policy in zip(data["series"], policies, strict=True):
            assert series["policy"] == policy["policy"]
            warmup = series["warmup_steps"]
            measured = series["measured_ms"]
            assert measured[:warmup] == [None] * warmup and len(measured) == 12, measured
            steady = measured[warmup:]
            assert abs(sum(steady) / len(steady) - policy["measured_ms"]["mean"]) < 1e-3
            for predicted, step in zip(series["step_ms"][warmup:], steady):
                assert abs(step / predicted - 1.01) < 1e-4, (predicted, step)
            assert "memory_bytes" not in series  # The file of predictions is not asked for it.
        message = run(*options, "--html", "-", "--report", "-", status=2).stderr
        assert "only one of" in message, message


def test_a_scenario_from_standard_input_has_a_page_too():
    text = pathlib.Path(VALLEY).read_text(encoding="utf-8")
    text = text.replace('"profiles/', f'"{ROOT}/scenarios/profiles/')
    for options in (["run", "-"], ["sweep", "-", *CAPS]):
        data = page_of(*options, input=text)
        assert len(data["timelines"]) == 13, options
        assert data["scenario"]["text"] == text


def test_rows_of_single_steps_are_left_out_where_there_are_many():
    for steps, holds in (("250", True), ("251", False)):
        options = ["--steps", steps, "--set", "data.samples=3000"]
        entry = page_of("run", VALLEY, *options)["result"]["predictions"][0]
        assert ("steps" in entry) == holds, steps


def test_the_command_on_the_page_makes_the_same_page_again():
    with tempfile.TemporaryDirectory() as folder:
        page = pathlib.Path(folder) / "a page's name.html"
        run("run", SKEW, "--set", "policy.bucketing.batch_size=4", "--policy", "bucketing",
            "--html", str(page))
        first = page.read_bytes()
        page.unlink()
        command = data_of(first.decode())["command"]
        assert command.startswith("stepsim run ")
        again = f"{STEPSIM} {command.removeprefix('stepsim ')}"
        environment = {**os.environ, "SOURCE_DATE_EPOCH": "1795203445"}
        subprocess.run(["sh", "-c", again], check=True, capture_output=True, env=environment)
        assert page.read_bytes() == first


def test_hostile_text_stays_text():
    name = "</script><script>alert(1)</script>\"'`&<!--\u2028\u2029\u00e9" + "x<" * 5000
    scenario = pathlib.Path(SKEW).read_text(encoding="utf-8")
    assert scenario.count('"bucketing"') == 1 and scenario.count('"token_skew"') == 1
    quoted = json.dumps(name + "\x01\x7f\t\n")  # TOML reads JSON's escapes.
    scenario = scenario.replace('name = "bucketing"', f"name = {quoted}")
    scenario = scenario.replace('name = "token_skew"', f"name = {quoted}")
    scenario = scenario.replace('"profiles/', f'"{ROOT}/scenarios/profiles/')
    scenario += "# </script><img src=x onerror=alert(1)>\n"
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "<b>scenario.toml"
        file.write_text(scenario, encoding="utf-8")
        page = run("compare", str(file), "--html", "-").stdout
        data = data_of(page)
        assert data["scenario"]["text"] == scenario
        assert data["scenario"]["name"] == name + "\x01\x7f\t\n"
        assert name + "\x01\x7f\t\n" in [series["policy"] for series in data["series"]]
        for text in ("alert(1)</script>", "<img", "\u2028", "\x01", "<b>scenario"):
            assert text not in page, text


def test_a_name_that_is_not_utf8_is_replaced():
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(os.fsencode(folder), b"\xff\xfe.html")
        done = subprocess.run([STEPSIM, "run", SKEW, "--quiet", b"--html", file],
                              capture_output=True, check=False, timeout=120)
        if b"holds no report page" in done.stderr:
            raise small_runner.Skip("this build holds no report page, for want of d3")
        assert done.returncode == 0, done.stderr
        with open(file, encoding="utf-8") as page:
            assert data_of(page.read())["command"].endswith("/\ufffd\ufffd.html'")


def embed(folder, template, script):
    """Runs embed.py on these texts; its error message, or the source that it wrote."""
    for name, text in (("t.html", template), ("s.css", "body {}"), ("s.js", script)):
        pathlib.Path(folder, name).write_text(text, encoding="utf-8")
    program = ROOT / "sim" / "report" / "html" / "embed.py"
    done = subprocess.run(
        [sys.executable, str(program), "out.cpp", "t.html", "s.css", "s.js"],
        capture_output=True, text=True, check=False, cwd=folder,
    )
    return done.stderr if done.returncode else pathlib.Path(folder, "out.cpp").read_text("utf-8")


def test_what_would_break_the_page_is_refused_when_it_is_built():
    element = '<script type="application/json" id="stepsim-data">DATA</script>'
    template = f"<style>\n/*STYLE*/\n</style>{element}<script>\n/*SCRIPT*/\n</script>"
    with tempfile.TemporaryDirectory() as folder:
        source = embed(folder, template, "const long = '" + "é" * 20000 + "';")
        literals = re.findall(r'R"page\((.*?)\)page"sv,', source, re.DOTALL)
        joined = "".join(literals)
        assert joined.count("é") == 20000 and "DATA" not in joined and "body {}" in joined
        assert max(map(len, literals)) < 65536 / 4, "longer than every compiler takes"
        for script in ("x = '</SCRIPT>'", "x = '<!--'"):
            assert "s.js holds <" in embed(folder, template, script), script
        assert 'holds )page"' in embed(folder, template, "')page\"'")
        assert "must hold /*STYLE*/ once" in embed(folder, element + "/*SCRIPT*/", "")
        assert "stepsim-data with DATA once" in embed(folder, template.replace(element, ""), "")
        assert "stepsim-data with DATA once" in embed(folder, template + element, "")


def test_standard_output_takes_one_format():
    for other in ("--json", "--csv"):
        message = run("run", SKEW, "--html", "-", other, "-", status=2).stderr
        assert "only one of" in message, message
    assert run("run", SKEW, "--html", "-").stdout.startswith("<!DOCTYPE html>")


def test_a_page_that_cannot_be_written_is_a_fault_of_the_machine():
    message = run("run", SKEW, "--html", "/nowhere/page.html", status=3).stderr
    assert "cannot write /nowhere/page.html: No such file or directory" in message, message
    with tempfile.TemporaryDirectory() as folder:
        assert "cannot write" in run("run", SKEW, "--html", folder, status=3).stderr
        path = pathlib.Path(folder) / "page.html"
        path.write_text("old", encoding="utf-8")
        # A file size limit of one block stands for the full disk.
        done = subprocess.run(
            ["bash", "-c", 'trap "" XFSZ; ulimit -f 1; exec "$@"', "-", STEPSIM, "run", SKEW,
             "--html", str(path)],
            capture_output=True, text=True, check=False, timeout=120,
        )
        assert done.returncode == 3 and "cannot write" in done.stderr, done.stderr
        assert path.read_text(encoding="utf-8") == "old"


def processor_seconds():
    """Of all finished runs: other work on the machine does not count."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def test_a_page_of_8_ranks_200_steps_and_12_bucket_sizes_is_small():
    with tempfile.TemporaryDirectory() as folder:
        page = os.path.join(folder, "page.html")
        options = ["--steps", "200", "--set", "data.samples=2000", "--quiet"]
        start = processor_seconds()
        run("run", VALLEY, *options)
        without = processor_seconds() - start
        run("run", VALLEY, *options, "--html", page)
        seconds = processor_seconds() - start - 2 * without
        size = os.path.getsize(page)
        data = data_of(pathlib.Path(page).read_text(encoding="utf-8"))
        assert len(data["timelines"]) == 13, len(data["timelines"])
        assert len(data["timelines"][0]["ranks"]) == 8
        assert len(data["series"][0]["step_ms"]) == 200
        print(f"page of 8 ranks, 200 steps, 12 bucket sizes: {size} bytes, {seconds:.2f} s of "
              f"processor time beside the prediction's {without:.2f} s")
        assert size < 3e6, size


if __name__ == "__main__":
    sys.exit(small_runner.main(globals()))
