"""A newcomer's flow: step times typed by hand, a profile, other placements, what training costs.

usage: step_times_test.py PATH_OF_STEPCAL PATH_OF_STEPSIM
"""

import csv
import io
import json
import os
import pathlib
import re
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests"))
import small_runner  # noqa: E402  (needs the path above)

STEPCAL = os.path.abspath(sys.argv[1])
STEPSIM = os.path.abspath(sys.argv[2])
FIVE_LINES = """placement,batch,step_ms
1,8,703
4,8,741
1+1,8,1399
1+1+1+1,8,1308
1,4,455
"""


# VGG-16 on A100, as ElasticFlow timed it (its throughputs are published): 64, 128 and 256 images over all GPUs.
IMAGES = (
    "placement,batch,step_ms\n"
    "1,64,197.901\n2,32,110.673\n4,16,67.7735\n8,8,51.7334\n8+8,4,38.62\n1,128,380.985\n2,64,205.186\n"
    "4,32,114.669\n8,16,73.6755\n8+8,8,55.3717\n1,256,761.234\n2,128,396.403\n4,64,215.431\n"
    "8,32,125.056\n8+8,16,79.2283\n"
)


def run(program, *arguments, folder, status=0):
    return small_runner.output(program, *arguments, cwd=folder, status=status)


def imported(folder, *arguments, table=FIVE_LINES):
    pathlib.Path(folder, "steps.csv").write_text(table)
    return run(
        STEPCAL, "import", "step-times", "steps.csv", *arguments, "--out", "job.json",
        "--scenario", "job.toml", folder=folder,
    )  # fmt: skip


def steps_of(folder, length):
    run(STEPSIM, "run", "job.toml", "--policy", "batch_4", "--set", "cluster.placement=2", "--set",
        f"data.lengths={{constant={length}}}", "--json", "run.json", folder=folder)
    (one,) = json.loads(pathlib.Path(folder, "run.json").read_text())["predictions"]
    return one["summary"]["step_time_ms"]


def test_one_row_of_two_ranks_does_not_tell_how_much_overlaps():
    # Two cards without peer access: 150.1 and 177.1 ms were measured at lengths 128 and 256.
    table = "placement,batch,length,step_ms\n1,4,128,48.9\n1,4,256,76.1\n1,4,512,145.2\n2,4,512,246.0\n"
    measured = {128: 150.1, 256: 177.1}
    with tempfile.TemporaryDirectory() as folder:
        text = imported(folder, "--preset", "gpt2-small", table=table)
        assert "do not tell how much of the communication the backward hides" in text, text
        for length, ms in measured.items():
            low, high = steps_of(folder, length)["interval90"]
            assert low < ms < high and high < 1.5 * ms, (length, low, high)
        text = imported(folder, "--preset", "gpt2-small", "--no-overlap", table=table)
        assert "do not tell how much" not in text, text
        assert "overlap = false" in pathlib.Path(folder, "job.toml").read_text()
        for length, ms in measured.items():
            step = steps_of(folder, length)
            assert abs(step["mean"] / ms - 1) < 0.02, (length, step)
            low, high = step["interval90"]
            assert low < ms < high, (length, low, high)


def test_five_lines_by_hand_predict_other_placements():
    with tempfile.TemporaryDirectory() as folder:
        text = imported(folder, "--preset", "bert-base")
        for said in ("time next:", "bus bandwidth between three nodes", "wrote job.json and job.toml"):
            assert said in text, text
        run(
            STEPSIM, "sweep", "job.toml", "--over", "cluster.placement=1,4,1+1,1+2+4,8x4",
            "--samples", "1e7", "--gpu-hour", "0.5", "--json", "sweep.json", folder=folder,
        )  # fmt: skip
        sweep = json.loads(pathlib.Path(folder, "sweep.json").read_text())
        costs = sweep["training"]["points"]
        assert [cost["ranks"] for cost in costs] == [1, 4, 2, 7, 32]
        for point, cost in zip(sweep["points"], costs):
            samples = cost["ranks"] * 4  # The scenario's first policy.
            assert abs(cost["samples_per_s"] - samples * 1e3 / point["step_ms"]) < 1e-6
            assert abs(cost["rank_hours"] - 1e7 / cost["samples_per_s"] / 3600 * cost["ranks"]) < 1e-6
            assert abs(cost["money"] - 0.5 * cost["rank_hours"]) < 1e-6
        assert abs(sweep["points"][0]["step_ms"] - 455) < 0.5
        far = sweep["points"][4]
        width = [far["interval90"][1] / far["step_ms"], far["step_ms"] / far["interval90"][0]]
        assert all(1.05 < side < 1.8 for side in width), width
        assert far["collective_source"] == "fitted, beyond"


def test_the_errors_of_both_forms_are_told_with_the_one_that_the_profile_has():
    said = r"\neach placement predicted from the others: ([\d.]+) % off; ([\d.]+) % where collectives slow compute \((.*)\)\n"
    few = "".join(IMAGES.splitlines(keepends=True)[:6])  # They do not tell a slowdown.
    with tempfile.TemporaryDirectory() as folder:
        for table, words in ((IMAGES, "in the profile"), (few, "not in the profile")):
            text = imported(folder, "--gradient-bytes", "527.8 MiB", table=table)
            (plain, slowed, where), = re.findall(said, text)
            slowdown = json.loads(pathlib.Path(folder, "job.json").read_text())["interference"]["compute"]
            assert where == words and (slowdown > 0.01) == (words == "in the profile"), (text, slowdown)
            assert (float(slowed) < 0.95 * float(plain)) == (words == "in the profile"), text


def test_a_prediction_is_the_fits_own():
    placements = ("8x4", "4x4", "8x1", "3x1")
    with tempfile.TemporaryDirectory() as folder:
        asked = [word for placement in placements for word in ("--ask", placement + ":8")]
        lines = imported(folder, "--preset", "bert-base", *asked).splitlines()
        run(
            STEPSIM, "sweep", "job.toml", "--over", "cluster.placement=" + ",".join(placements),
            "--policy", "batch_8", "--json", "sweep.json", folder=folder,
        )  # fmt: skip
        points = json.loads(pathlib.Path(folder, "sweep.json").read_text())["points"]
        ends = ([], [])
        for placement, point in zip(placements, points):
            row = next(line for line in lines if line.startswith(placement + " "))
            # Without a batch the largest one is asked for.
            assert row in imported(folder, "--preset", "bert-base", "--ask", placement).splitlines(), row
            assert abs(point["step_ms"] / float(row.split()[2]) - 1) < 0.002, (row, point["step_ms"])
            for own, end, ratios in zip((row.split()[3], row.split()[5]), point["interval90"], ends):
                ratios.append(end / float(own))
        # The draws of links and passes make the interval: without them it is half as wide. The
        # sweep takes some of the draws at random, so that single ends differ.
        for ratios in ends:
            assert abs(sum(ratios) / len(ratios) - 1) < 0.03, ends


def test_answers_are_the_table_with_four_intervals():
    levels = (50, 80, 90, 95)
    with tempfile.TemporaryDirectory() as folder:
        asks = ("--ask", "8x4:8", "--ask", "2x1:4")
        lines = imported(folder, "--preset", "bert-base", *asks, "--answers", "answers.csv").splitlines()
        assert "wrote job.json and job.toml and answers.csv" in lines, lines
        rows = list(csv.DictReader(io.StringIO(pathlib.Path(folder, "answers.csv").read_text())))
        assert [(row["placement"], row["batch"], row["length"]) for row in rows] == [("8x4", "8", "1"), ("2x1", "4", "1")], rows
        pathlib.Path(folder, "far.csv").write_text("placement,batch,step_ms\n8x4,8,1800\n")
        run(STEPSIM, "validate", "job.toml", "--step-times", "far.csv", "--csv", "rows.csv", "--json", "rows.json",
            folder=folder, status=(0, 1))  # fmt: skip
        (checked,) = csv.DictReader(io.StringIO(pathlib.Path(folder, "rows.csv").read_text()))
        (point,) = json.loads(pathlib.Path(folder, "rows.json").read_text())["rows"]
        for level in levels:
            assert point[f"interval{level}_s"] == [float(checked[f"{end}{level}_s"]) for end in ("low", "high")], point
    for unit, row in (("ms", rows[0]), ("ms", rows[1]), ("s", checked)):
        ends = [float(row[f"low{level}_{unit}"]) for level in reversed(levels)] + [float(row[f"high{level}_{unit}"]) for level in levels]
        assert ends == sorted(ends) and len(set(ends)) == 8, ends
    for row in rows:
        said = next(line.split() for line in lines if line.startswith(row["placement"] + " "))
        figures = [float(row[name]) for name in ("step_ms", "low90_ms", "high90_ms", "exposed_ms")]
        assert [float(said[i]) for i in (2, 3, 5, 6)] == [round(one, 1) for one in figures], (said, row)


def test_lost_overlap_is_what_hides_at_the_speed_of_the_draw():
    # Three rows tell neither overlap nor more nodes: half of the draws hide nothing and have faster links.
    table = "placement,batch,step_ms\n1,32,252\n8,32,276\n2x8,32,451\n"
    with tempfile.TemporaryDirectory() as folder:
        lines = imported(folder, "--preset", "bert-base", "--ask", "8x8:32", table=table).splitlines()
        low = float(next(line for line in lines if line.startswith("8x8 ")).split()[3])
        lows = []
        for seed in (1, 2, 3):
            run(STEPSIM, "run", "job.toml", "--set", "cluster.placement=8x8", "--seed", str(seed), "--json",
                "run.json", folder=folder)  # fmt: skip
            (one,) = json.loads(pathlib.Path(folder, "run.json").read_text())["predictions"]
            lows.append(one["summary"]["step_time_ms"]["interval90"][0])
        assert abs(sum(lows) / len(lows) / low - 1) < 0.05, (low, lows)


def test_a_table_is_validated():
    with tempfile.TemporaryDirectory() as folder:
        imported(folder, "--preset", "bert-base")
        text = run(STEPSIM, "validate", "job.toml", "--step-times", "steps.csv", folder=folder)
        assert "mean |error|" in text and "3 to 4 nodes" in text, text
        twice = FIVE_LINES.replace("1+1,8,1399", "1+1,8,2798")
        pathlib.Path(folder, "twice.csv").write_text(twice)
        run(
            STEPSIM, "validate", "job.toml", "--step-times", "twice.csv", "--csv", "rows.csv",
            "--bound", "5", folder=folder, status=1,
        )  # fmt: skip
        rows = pathlib.Path(folder, "rows.csv").read_text().splitlines()
        assert len(rows) == 6 and rows[3].startswith("2x1,8,1,2.798,"), rows
        for row in rows[1:]:
            predicted, low, high = map(float, row.split(",")[4:7])
            assert low < predicted < high < 2 * predicted, row


def test_micro_batches_are_the_accumulation_of_the_scenario():
    table = "placement,batch,micro_batches,step_ms\n8,12,8,231\n2x8,12,4,117\n"
    with tempfile.TemporaryDirectory() as folder:
        imported(folder, "--preset", "gpt2-small", table=table)
        rows = table + "2x8,12,1,30\n2x8,12,2,60\n"
        pathlib.Path(folder, "rows.csv").write_text(rows)
        run(STEPSIM, "validate", "job.toml", "--step-times", "rows.csv", "--csv", "out.csv", "--bound", "50", folder=folder)
        checked = [*csv.DictReader(io.StringIO(pathlib.Path(folder, "out.csv").read_text()))]
        assert [row["micro_batches"] for row in checked] == ["8", "4", "1", "2"], checked
        steps = [float(row["predicted_s"]) for row in checked]
        assert abs(steps[0] / 0.231 - 1) < 0.03 and abs(steps[1] / 0.117 - 1) < 0.03, steps
        # Each micro-batch more has its passes, and sends nothing.
        assert abs((steps[1] - steps[3]) / 2 / (steps[3] - steps[2]) - 1) < 0.02, steps


def test_micro_batches_that_all_rows_have_are_those_of_the_answers():
    with tempfile.TemporaryDirectory() as folder:
        # 8 of the 220 ms are waiting for data.
        table = "placement,batch,micro_batches,step_ms,data_ms\n1,12,8,220,8\n8,12,8,231,8\n2x8,12,8,240,8\n"
        lines = imported(folder, "--preset", "gpt2-small", "--answers", "a.csv", "--ask", "2x8", table=table).splitlines()
        (header,) = (line.split() for line in lines if line.startswith("predicted "))
        assert header[:3] == ["predicted", "batch", "micro-batches"], header
        (said,) = (line.split() for line in lines if line.startswith("2x8 "))
        assert said[2] == "8" and abs(float(said[3]) / 240 - 1) < 0.02, said
        assert any(line.startswith("time next: ") and ", 8 micro-batches:" in line for line in lines), lines
        (answer,) = csv.DictReader(io.StringIO(pathlib.Path(folder, "a.csv").read_text()))
        assert answer["micro_batches"] == "8" and round(float(answer["step_ms"]), 1) == float(said[3]), answer
        assert "accumulation_steps = 8\n" in pathlib.Path(folder, "job.toml").read_text()
        for placement, ms in (("2x8", 240), ("1", 220)):
            run(STEPSIM, "run", "job.toml", "--set", "cluster.placement=" + placement, "--json", "run.json", folder=folder)
            (one,) = json.loads(pathlib.Path(folder, "run.json").read_text())["predictions"]
            assert abs(one["summary"]["step_time_ms"]["mean"] / ms - 1) < 0.02, one["summary"]["step_time_ms"]
        # Where rows differ, one is asked for, and the table and the scenario say so.
        lines = imported(folder, "--preset", "gpt2-small", "--ask", "2x8", table=table + "2x8,12,1,38,8\n").splitlines()
        (said,) = (line.split() for line in lines if line.startswith("2x8 "))
        assert said[2] == "1" and abs(float(said[3]) / 38 - 1) < 0.1, said
        assert "accumulation_steps = 1  # rows have 1 to 8 micro-batches" in pathlib.Path(folder, "job.toml").read_text()
        # One micro-batch each: nothing to say of them.
        text = imported(folder, "--preset", "gpt2-small")
        assert "micro-batch" not in text and "accumulation" not in pathlib.Path(folder, "job.toml").read_text(), text


def test_a_row_has_its_own_micro_batches_and_not_the_scenarios():
    table = "placement,batch,micro_batches,step_ms\n1,8,1,1000\n4,8,1,1060\n4+4,8,1,1200\n4,8,2,2010\n4+4,8,,1200\n"
    with tempfile.TemporaryDirectory() as folder:
        imported(folder, "--preset", "bert-base", table=table)
        scenario = pathlib.Path(folder, "job.toml")
        scenario.write_text(re.sub("accumulation_steps = 1.*", "accumulation_steps = 2", scenario.read_text()))

        def checked():
            run(STEPSIM, "validate", "job.toml", "--step-times", "steps.csv", "--csv", "out.csv", folder=folder)
            return [*csv.DictReader(io.StringIO(pathlib.Path(folder, "out.csv").read_text()))]

        rows = checked()
        assert [row["micro_batches"] for row in rows] == ["1", "1", "1", "2", "1"], rows
        assert all(abs(float(row["error"])) < 0.03 for row in rows), rows
        # A table that does not say is of the scenario's own.
        pathlib.Path(folder, "steps.csv").write_text("placement,batch,step_ms\n4,8,2010\n")
        (row,) = checked()
        assert row["micro_batches"] == "2" and abs(float(row["error"])) < 0.03, row
        pathlib.Path(folder, "steps.csv").write_text(
            "placement,batch,micro_batches,step_ms\n1,8,1,1000\n64,1000000000000,65536,50\n"
        )
        text = run(STEPSIM, "validate", "job.toml", "--step-times", "steps.csv", folder=folder, status=2)
        assert "steps.csv:3: error: 64, batch 1000000000000, 65536 micro-batches: 6 steps take" in text, text


def test_without_lengths_nothing_is_said_of_activations_and_operations():
    with_length = FIVE_LINES.replace("batch,step", "batch,length,step").replace(",8,", ",8,128,").replace(",4,455", ",4,128,455")
    with tempfile.TemporaryDirectory() as folder:
        for table, model, known in (
            (FIVE_LINES, "bert-base", False),
            (with_length, "bert-base", True),
            (FIVE_LINES, "vit-base", True),  # An image has tokens of its own.
        ):
            imported(folder, "--preset", model, table=table)
            text = run(STEPSIM, "run", "job.toml", folder=folder)
            assert ("FLOP/s of each rank" in text) == known, text
            assert ("peak memory is without activations, since the profile's table of steps has no lengths" in text) != known, text
            (memory,) = (line for line in text.splitlines() if line.startswith("peak memory"))
            assert memory.endswith(" without activations") != known, memory
            assert (" useful tokens/s" in text) == known and " samples/s" in text, text
            comment = "# the table has no lengths: memory without activations, no GFLOP/s"
            assert (comment in pathlib.Path(folder, "job.toml").read_text()) == (table == FIVE_LINES)
        # The parallel forms are compared by what is known.
        imported(folder, "--preset", "bert-base")
        text = run(STEPSIM, "sweep", "job.toml", "--over", "parallel=ddp,zero1", folder=folder)
        assert "peak memory is without activations" in text, text


def test_bytes_and_tensors_are_models_too_and_links_serve_another_job():
    with tempfile.TemporaryDirectory() as folder:
        imported(folder, "--gradient-bytes", "415 MiB")
        pathlib.Path(folder, "alone.csv").write_text("placement,batch,step_ms\n1,20,147\n1,40,253\n")
        tensors = ROOT / "scenarios" / "published" / "resnet50.csv"
        run(
            STEPCAL, "import", "step-times", "alone.csv", "--tensors", tensors, "--links",
            "job.json", "--out", "other.json", "--scenario", "other.toml", folder=folder,
        )  # fmt: skip
        text = run(
            STEPSIM, "sweep", "other.toml", "--wide", "--over", "cluster.placement=1,1+1", folder=folder
        )
        assert "fitted" in text, text


def test_mistakes_are_said():
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "steps.csv").write_text(FIVE_LINES)
        command = ("import", "step-times", "steps.csv")
        for arguments, said in (
            (("--out", "p.json"), "say what is trained by one of"),
            (("--preset", "bert-base"), "give --out PROFILE"),
            (("--preset", "bert", "--out", "p.json"), "bert-base"),
            (("--preset", "bert-base", "--gradient-bytes", "4 MiB", "--out", "p.json"), "one of"),
            (("--gradient-bytes", "much", "--out", "p.json"), "--gradient-bytes"),
            (("--preset", "bert-base", "--out", "p.json", "--ask", "8y4"), "no placement"),
            (("--preset", "bert-base", "--out", "p.json", "--ask", "8x4:5"), "batches of the table"),
        ):
            text = run(STEPCAL, *command, *arguments, folder=folder, status=2)
            assert said in text, text
            assert not pathlib.Path(folder, "p.json").exists()


def test_tables_that_contradict_themselves_or_their_unit_are_refused():
    with tempfile.TemporaryDirectory() as folder:
        for rows, said in (
            (("placement,batch,local_batch,step_ms", "1,8,8,90", "4,32,8,102"),
             "has the columns 'batch' and 'local_batch', which say the same"),
            (("placement,batch,step_s,step_ms", "1,8,0.1,500", "4,8,0.1,500"), "'step_s' and 'step_ms'"),
            (("placement,nodes,ranks,batch,step_ms", "1,1,1,8,90", "2x4,2,4,8,102"), "placement 2x4 has 8 ranks"),
            (("placement,nodes,batch,step_ms", "1,1,8,90", "2x4,1,8,102"), "placement 2x4 has 2 nodes"),
            (("placement;batch;step_ms", "1;8;90,5", "4;8;102"), "separated by ';', where commas are wanted"),
            (("placement,batch,step_s", "1,8,50", "4,8,51", "1+1,8,55"), "which no link does"),
            (("placement,batch,step_ms", "1,8,0.100", "4,8,0.102", "1+1,8,0.110"), "which no link does"),
        ):
            pathlib.Path(folder, "steps.csv").write_text("\n".join(rows) + "\n")
            text = run(STEPCAL, "import", "step-times", "steps.csv", "--gradient-bytes", "97 MiB", "--out",
                       "p.json", folder=folder, status=2)
            assert said in text, (rows, text)
            assert not pathlib.Path(folder, "p.json").exists()


if __name__ == "__main__":
    sys.exit(small_runner.main(globals()))
