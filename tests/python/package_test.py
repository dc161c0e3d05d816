"""The Python package as a user meets it: imports, errors, forms of results, long jobs, memory.

usage: package_test.py PATH_OF_STEPSIM
"""

import ast
import inspect
import os
import pathlib
import pickle
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))
import small_runner  # noqa: E402  (needs the path above)

import numpy  # noqa: E402

import stepsim  # noqa: E402  (PYTHONPATH has it)
from stepsim._arrays import check_arrays  # noqa: E402
from stepsim.lengths import checked_lengths  # noqa: E402

OWN = {
    "scenario": {"name": "own", "steps": 6, "warmup_steps": 1},
    "cluster": {"ranks": 4, "profile": "cpu_epyc_2core_4ranks"},
    "model": {"preset": "tiny-classifier"},
    "data": {"samples": 256, "lengths": {"uniform": [16, 128]}},
    "policy": [{"name": "plain", "kind": "fixed", "batch_size": 8}],
}


def error_of(function, kind=stepsim.InputError):
    try:
        function()
    except kind as error:
        return error
    raise AssertionError("no error")


def run_python(code, **keywords):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False,
                          timeout=600, **keywords)


def test_importing_loads_nothing_large():
    code = """
import sys, time
start = time.perf_counter()
import stepsim
print(f"import took {1e3 * (time.perf_counter() - start):.0f} ms")
large = {"pandas", "torch", "tqdm", "IPython"} & set(sys.modules)
sys.exit(f"loaded {large}" if large else 0)
"""
    done = run_python(code)
    assert done.returncode == 0, done.stderr
    print(done.stdout.strip())


class OlderThanNumpy:
    """The compiled part as it is under a NumPy that it does not know."""

    pybind11_version = "2.10"

    @staticmethod
    def copied(numbers):
        return numpy.full_like(numbers, numbers[0])


def test_a_binding_that_misreads_arrays_is_refused():
    check_arrays(stepsim._core)
    text = str(error_of(lambda: check_arrays(OlderThanNumpy), ImportError))
    for part in ("pybind11 2.10", f"NumPy {numpy.__version__}", "came back as [3, 3, 3]",
                 "pip install"):
        assert part in text, text


def imported_in(folder, *paths):
    """Imports stepsim in a folder. Returns the process."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))}
    return run_python("import stepsim, stepsim.torch.ranks; print(stepsim.__file__)", cwd=folder,
                      env=environment)


def test_beside_a_clone_a_sentence_says_what_to_do():
    with tempfile.TemporaryDirectory() as folder:
        os.symlink(ROOT, os.path.join(folder, "stepsim"))
        done = imported_in(folder)
        said = done.stderr.strip().splitlines()[-1]
        assert said.startswith("ImportError: ") and "pip install" in said, done.stderr


def test_an_installed_package_comes_before_a_clone():
    package = pathlib.Path(stepsim.__file__).resolve()
    with tempfile.TemporaryDirectory() as folder:
        os.symlink(ROOT, os.path.join(folder, "stepsim"))
        done = imported_in(folder, package.parents[1])
        assert done.returncode == 0, done.stderr
        assert pathlib.Path(done.stdout.strip()).resolve() == package


def test_in_the_sources_of_the_package_a_sentence_says_what_to_do():
    done = imported_in(ROOT / "sim" / "python")
    said = done.stderr.strip().splitlines()[-1]
    assert said.startswith("ImportError: ") and "without its compiled part" in said, done.stderr


def test_the_first_lines_of_the_readme():
    code = 'import stepsim; print(stepsim.Scenario("token_skew").compare())'
    with tempfile.TemporaryDirectory() as folder:  # From any folder.
        text = run_python(code, cwd=folder).stdout
    program = subprocess.run([sys.argv[1], "compare", "token_skew"], capture_output=True, text=True,
                             check=True).stdout
    assert text.rstrip("\n") == program.rstrip("\n")


def test_the_examples_of_the_readme():
    text = (ROOT / "sim" / "python" / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(blocks) >= 2
    for block in blocks:
        done = run_python(block)
        assert done.returncode == 0 and done.stdout, (block, done.stderr)


def test_an_error_names_file_line_and_column():
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "own.toml"
        path.write_text('[scenario]\nname = "x"\nstep = 3\n', encoding="utf-8")
        error = error_of(stepsim.Scenario(path).compare)
    assert (error.file, error.line, error.column) == (str(path), 3, 1), vars(error)
    assert "did you mean 'steps'" in str(error) and "\nstep = 3\n^" in str(error), error
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.line) == (str(error), 3)


def test_an_error_in_a_dict_names_the_key_and_the_value():
    wrong = {**OWN, "cluster": {"ranks": 0}}
    text = str(error_of(stepsim.Scenario(wrong).compare))
    assert text == "scenario.toml: error: cluster.ranks: 0 is too small; expected at least 1", text
    text = str(error_of(stepsim.Scenario({**OWN, "clutser": {"ranks": 2}}).compare))
    assert text.startswith("scenario.toml: error: ") and "did you mean 'cluster'" in text, text


def test_errors_of_settings_files_and_names():
    skew = stepsim.Scenario("token_skew")
    assert "did you mean 'bucket_cap'" in str(error_of(skew.set("ddp.bucket_cp", 1).compare))
    assert "did you mean 'bucketing'" in str(error_of(lambda: skew.run("bucketin")))
    assert "did you mean 'token_skew'" in str(error_of(stepsim.Scenario("token_skw").compare))
    assert "nowhere.json" in str(error_of(lambda: stepsim.Profile("nowhere.json")))
    assert "nowhere.jsonl" in str(error_of(lambda: stepsim.Plan.read("nowhere.jsonl")))
    assert "nowhere.jsonl" in str(error_of(lambda: stepsim.RunRecord.read("nowhere.jsonl")))
    error_of(lambda: skew.set("ddp.bucket_cap", object()), TypeError)
    error_of(lambda: skew.set("cluster.jitter", float("nan")), ValueError)
    error_of(lambda: stepsim.Scenario({"cluster": 3}), TypeError)


def test_a_fault_of_the_machine_is_an_os_error():
    plan = stepsim.Scenario(OWN).plan()
    error = error_of(lambda: plan.write("/nowhere/plan.jsonl"), OSError)
    assert isinstance(error, stepsim.MachineError) and "/nowhere" in str(error)


def test_settings_make_another_scenario():
    one = stepsim.Scenario(OWN)
    other = one.set("policy.plain.batch_size", 16)
    measured = one.set("data.lengths", [8] * 64)
    assert one.settings == [] and one.copy().settings == []
    assert other.run()["samples"].max() == 16 and one.run()["samples"].max() == 8
    assert measured.lengths().data["longest"] == 8 and one.lengths().data["longest"] > 8


def test_arguments_are_those_of_the_rows():
    sweep = inspect.signature(stepsim.Scenario.sweep).parameters
    assert list(sweep)[1:12] == ["over", "policy", "samples", "tokens", "gpu_hour", "efficiency",
                                 "threads", "progress", "global_batch", "epochs", "resume"]
    assert sweep["epochs"].kind is inspect.Parameter.KEYWORD_ONLY  # Places stay those of older versions.
    assert sweep["efficiency"].default == 80 and sweep["policy"].default is None
    assert sweep["over"].default is inspect.Parameter.empty
    assert "gpu_hour: PRICE: Of a rank for an hour" in stepsim.Scenario.sweep.__doc__
    scenario = stepsim.Scenario(OWN)
    text = str(error_of(lambda: scenario.run(polcy="plain"), TypeError))
    assert "'polcy'" in text and "did you mean 'policy'?" in text, text
    assert "--bound must be above 0" in str(error_of(lambda: scenario.validate([], "x", bound=-1)))
    assert "'many'" in str(error_of(lambda: scenario.compare(threads="many")))
    for question in stepsim._core.questions():
        asks_scenario = any(one["name"] == "scenario" for one in question["options"])
        assert hasattr(stepsim.Scenario if asks_scenario else stepsim, question["name"]), question


def test_a_sweep_takes_a_dict_and_texts():
    scenario = stepsim.Scenario(OWN)
    wanted = scenario.sweep({"ddp.bucket_cap": ["1 MiB", "2 MiB"]}).to_json()
    assert scenario.sweep("ddp.bucket_cap=1MiB..2MiB:x2").to_json() == wanted
    assert scenario.sweep(["ddp.bucket_cap=1 MiB,2 MiB"]).to_json() == wanted
    both = scenario.sweep(("ddp.bucket_cap=1MiB,2MiB", "policy.plain.batch_size=8..16:+8"))
    assert len(both.points) == 4


def test_scenarios_and_results_say_what_they_are():
    scenario = stepsim.Scenario(OWN).set("scenario.seed", 3)
    assert repr(scenario) == "<stepsim.Scenario own: 4 ranks, policies plain, 1 keys set>"
    assert "scenario.toml" in repr(stepsim.Scenario({"cluster": {"ranks": 0}}))
    assert repr(scenario.run()).startswith("<stepsim.Run: plain, ")
    sweep = scenario.sweep("ddp.bucket_cap=1MiB,2MiB")
    assert sweep.headline in repr(sweep)
    assert "best is bucketing" in repr(stepsim.Scenario("token_skew").compare())
    assert "a step" in repr(scenario.blame()) and repr(stepsim.models()).startswith("<stepsim.Catalog")


def test_lengths_of_ones_own_data():
    lengths = numpy.arange(1, 129)
    scenario = stepsim.Scenario(OWN, lengths=lengths)
    summary = scenario.lengths().data
    assert (summary["samples"], summary["shortest"], summary["longest"]) == (128, 1, 128), summary
    plan = scenario.plan()
    ids = numpy.concatenate(plan.samples)
    assert (numpy.concatenate(plan.lengths) == lengths[ids]).all()


def test_lengths_in_every_form_become_the_same_array():
    wanted = numpy.array([3, 1, 2])
    forms = [[3, 1, 2], (3, 1, 2), wanted, wanted.astype("uint8"), wanted.astype("float32"),
             wanted[::-1][::-1], range(3, 6)]
    for form in forms[:-1]:
        assert (checked_lengths(form) == wanted).all() and checked_lengths(form).dtype == "int64"
    assert checked_lengths(forms[-1]).tolist() == [3, 4, 5]


def test_lengths_that_are_wrong_say_which_and_why():
    for wrong, words in (
        ([4, -1], "sample 1 has -1 tokens"),
        ([4, 0], "sample 1 has 0 tokens"),
        ([4.0, float("nan")], "sample 1 has nan"),
        ([4.5], "sample 0 has 4.5"),
        ([], "no samples"),
        ([[1, 2], [3, 4]], "one number a sample"),
        ([[1, 2], [3]], "number a sample"),
        (["a", "b"], "expected whole numbers"),
        ("lengths.txt", "a number a sample"),
        ([1 << 40], "expected 1 to"),
    ):
        message = str(error_of(lambda wrong=wrong: checked_lengths(wrong)))
        assert words in message, (wrong, message)


def test_ten_million_lengths():
    lengths = numpy.random.default_rng(1).integers(1, 4096, 10_000_000)
    start = time.perf_counter()
    assert checked_lengths(lengths).size == lengths.size
    print(f"10 million lengths checked in {1e3 * (time.perf_counter() - start):.0f} ms")


def test_results_as_columns_fields_and_frames():
    result = stepsim.Scenario("token_skew").compare()
    assert result["policy"].tolist() == list(result.predictions)
    one = result.predictions["bucketing"]
    row = result["policy"].tolist().index("bucketing")
    assert one.step_ms == result["step_ms_mean"][row]
    assert one.interval90_ms == (result["step_ms_low90"][row], result["step_ms_high90"][row])
    assert one.steps["step_ms"].shape == (12 * 4,) and one.steps["rank"][:4].tolist() == [0, 1, 2, 3]
    assert result.best == "bucketing" and result.gain_interval90[0] < result.gain
    assert "no column 'speed'" in str(error_of(lambda: result["speed"], KeyError))
    point = stepsim.Scenario(OWN).sweep({"ddp.bucket_cap": ["1 MiB", "2 MiB"]}).points[0]
    assert point.values == {"ddp.bucket_cap": 2**20} and point.step_ms > 0
    saving = stepsim.Scenario(OWN).blame().savings[0]
    assert saving.change == "free_communication" and saving.saves_ms > 0


def test_frames_of_pandas():
    try:
        import pandas  # noqa: F401
    except ImportError:
        raise small_runner.Skip("pandas is not installed (Debian: python3-pandas)") from None
    frame = stepsim.Scenario("token_skew").compare().to_pandas()
    assert frame.loc[frame.policy == "bucketing", "step_ms_mean"].item() > 0
    assert stepsim.Scenario(OWN).plan().to_pandas()["step"].max() == 5


def test_a_result_shows_its_report_in_a_notebook_and_its_page_when_asked():
    result = stepsim.Scenario("token_skew").compare()
    shown = result._repr_html_()
    assert shown.startswith("<pre>") and "plot() draws it" in shown and len(shown) < 20_000, len(shown)
    page = result.show()._repr_html_()
    assert page.startswith("<iframe srcdoc=") and "sandbox=" in page
    lengths = stepsim.Scenario("token_skew").lengths()
    assert lengths._repr_html_().startswith("<pre>") and "plot()" not in lengths._repr_html_()
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "page.html"
        result.page(path)
        assert path.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
        assert os.listdir(folder) == ["page.html"]


def test_results_are_drawn_with_their_figures():
    import xml.etree.ElementTree as tree

    ask = stepsim.Scenario("token_skew")
    comparison = ask.compare()
    names = [one.text for one in tree.fromstring(comparison.plot().svg).iter("{http://www.w3.org/2000/svg}text")]
    ranked = sorted(comparison.predictions.values(), key=lambda one: -one.useful_tokens_per_s)
    assert [name for name in names if name in comparison.predictions] == [one.policy for one in ranked], names
    assert f"{ranked[0].useful_tokens_per_s:.0f}" in names, names
    sweep = ask.sweep({"ddp.bucket_cap": ["1 MiB", "2 MiB", "4 MiB"]})
    drawn = tree.fromstring(sweep.plot()._repr_svg_())
    assert len(list(drawn.iter("{http://www.w3.org/2000/svg}circle"))) == 3
    assert "2 MiB" in [one.text for one in drawn.iter("{http://www.w3.org/2000/svg}text")]
    with tempfile.TemporaryDirectory() as folder:
        sweep.plot().save(pathlib.Path(folder) / "sweep.svg")
        assert (pathlib.Path(folder) / "sweep.svg").read_text(encoding="utf-8") == sweep.plot().svg
    assert "has no plot" in str(error_of(ask.lengths().plot, stepsim.InputError))
    two = ask.sweep({"ddp.bucket_cap": ["1 MiB"], "cluster.jitter": [0, 0.1]})
    assert "of 2 keys" in str(error_of(two.plot, stepsim.InputError))


def test_the_module_is_the_program():
    def said(*command):
        return subprocess.run([*command, "policies"], capture_output=True, text=True, check=False)

    module, program = said(sys.executable, "-m", "stepsim"), said(sys.argv[1])
    assert (module.returncode, module.stdout) == (0, program.stdout), module.stderr


def test_a_plan_written_and_read_is_the_same():
    plan = stepsim.Scenario(OWN).plan("plain")
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "plan.jsonl"
        plan.write(path)
        assert stepsim.Plan.read(path) == plan
    assert len(plan.batches(3)) == plan.steps == 6 and len(plan) == 24
    assert all(len(batch) == 8 for batch in plan.batches(0))


@small_runner.in_new_folder
def test_profiles_and_advice_start_no_process():
    code = f"""
import resource, warnings
import stepsim
corpus = "{ROOT}/tests/fuzz/corpus"
record = "{ROOT}/scenarios/tour/random.jsonl"
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    run = stepsim.Profile.from_run_record(record, "run.json")
    link = stepsim.Profile.from_nccl_tests(corpus + "/nccl_log/plain.txt", run, "link.json")
warned = [str(one.message) for one in told]
assert warned and all("warning: " + one in run.report for one in warned[:1]), (warned, run.report)
assert {{one.filename for one in told}} == {{"<string>"}}, [one.filename for one in told]
steps = stepsim.Profile.from_step_times(corpus + "/tables/steps.csv", "steps.json",
                                        gradient_bytes="97 MiB")
for one in (run, link, steps):
    assert "\\nwrote " + one.file + "\\nnext: " in one.report, one.report
    assert one.provenance, one.file
assert stepsim.advise(record, base="link.json").lines
children = resource.getrusage(resource.RUSAGE_CHILDREN)
assert (children.ru_maxrss, children.ru_minflt) == (0, 0), children
"""
    done = run_python(code, env={**os.environ, "PATH": ""})
    assert done.returncode == 0, done.stderr


@small_runner.in_new_folder
def test_an_import_says_what_is_wrong():
    steps = ROOT / "tests" / "fuzz" / "corpus" / "tables" / "steps.csv"
    shutil.copy(ROOT / "scenarios" / "tour" / "random.jsonl", "run.jsonl")
    make = stepsim.Profile
    for function, message in (
        (lambda: make.from_run_record([], "out.json"), "no run record given"),
        (lambda: make.from_run_record("run.jsonl", "./run.jsonl"), "would overwrite an input"),
        (lambda: make.from_run_record("run.jsonl", "a.json", base="a.json"), "would overwrite"),
        (lambda: make.from_run_record("run.jsonl", "out.json", plan=steps), "steps.csv:1"),
        (lambda: make.from_step_times(steps, "out.json"), "say what is trained by one of"),
        (lambda: make.from_step_times(steps, "out.json", gradient_bytes="1 B"), "--gradient-bytes: "),
        (lambda: make.from_step_times(steps, "out.json", preset="bert"), "unknown model"),
        (lambda: make.from_nccl_tests("run.jsonl", "run.jsonl", "out.json"), "no table of nccl-tests"),
    ):
        error = error_of(function)
        assert message in str(error), (message, str(error))
    assert not os.path.exists("out.json")
    error = error_of(lambda: make.from_run_record("run.jsonl", "none/out.json"), stepsim.MachineError)
    assert "none/out.json" in str(error), error


def test_a_trace():
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "trace.json.gz"
        text = stepsim.Scenario(OWN).trace(path, steps="2..3")
        assert path.stat().st_size > 0 and "4 ranks x 2 steps" in text, text


def test_progress_is_told_and_other_threads_run():
    seen, ticks, done = [], [0], threading.Event()

    def tick():
        while not done.is_set():
            ticks[0] += 1
            time.sleep(0.001)

    thread = threading.Thread(target=tick)
    thread.start()
    scenario = stepsim.Scenario("busy_cluster").set("scenario.steps", 12)
    scenario.compare(progress=lambda what, share: seen.append((what, share)))
    done.set()
    thread.join()
    assert seen and all(0 <= share <= 1 for _, share in seen), seen[:3]
    assert "polic" in seen[0][0] and seen[-1][1] > seen[0][1]
    assert ticks[0] > 50, ticks


def test_an_error_in_the_progress_function_reaches_the_caller():
    def stop(what, share):
        raise RuntimeError("enough")

    skew = stepsim.Scenario("token_skew")
    assert str(error_of(lambda: skew.compare(progress=stop), RuntimeError)) == "enough"
    over = {"ddp.bucket_cap": ["1 MiB", "2 MiB", "4 MiB"]}
    assert str(error_of(lambda: skew.sweep(over, progress=stop), RuntimeError)) == "enough"


def test_ctrl_c_ends_a_long_job_and_leaves_the_package_usable():
    code = """
import os, signal, threading, stepsim
over = {"ddp.bucket_cap": [f"{n} KiB" for n in range(1024, 4024)]}
threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    stepsim.Scenario("busy_cluster").sweep(over)
except KeyboardInterrupt:
    print("stopped", stepsim.Scenario("token_skew").compare().best)
"""
    # run_python() gives up long before 3,000 points are computed, which takes hours.
    done = run_python(code)
    assert done.stdout.startswith("stopped bucketing"), (done.stdout, done.stderr)


def test_two_threads_ask_at_once():
    answers = []

    def ask():
        answers.append(stepsim.Scenario("token_skew").compare().to_json())

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 4 and len(set(answers)) == 1


def test_threads_that_ask_at_once_hold_a_progress_function_no_longer_than_they_ask():
    def told(what, share):
        raise AssertionError("nothing is computed")

    def ask():
        for _ in range(1000):
            error_of(lambda: skew.run("no such policy", progress=told), stepsim.InputError)

    skew = stepsim.Scenario("token_skew_2ranks")
    before = sys.getrefcount(told)
    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sys.getrefcount(told) == before, (sys.getrefcount(told), before)


def resident_mib():
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def test_a_thousand_scenarios_do_not_grow_the_process():
    def ask(number):
        scenario = stepsim.Scenario(OWN).set("scenario.seed", number)
        scenario.run().prediction.steps["step_ms"].sum()
        scenario.plan().columns["samples"].sum()
        error_of(scenario.set("ddp.no_such_key", 1).run)

    for number in range(100):
        ask(number)
    before = resident_mib()
    for number in range(100, 1100):
        ask(number)
    grown = resident_mib() - before
    print(f"1,000 scenarios: resident memory {before:.0f} MiB, {grown:+.1f} MiB")
    assert grown < 4, grown


def test_the_stub_lists_what_the_extension_has():
    stub = ast.parse((ROOT / "sim/python/stepsim/_core.pyi").read_text(encoding="utf-8"))
    stated = {}
    for node in stub.body:
        if isinstance(node, ast.ClassDef):
            names = {n.name if isinstance(n, ast.FunctionDef) else n.target.id for n in node.body}
            stated[node.name] = names - {"__init__"}
        elif isinstance(node, ast.FunctionDef):
            stated[node.name] = None
        elif isinstance(node, ast.AnnAssign) and not node.target.id.startswith("__"):
            stated[node.target.id] = None
    found = {}
    for name, member in vars(stepsim._core).items():
        if isinstance(member, type):
            found[name] = {one for one in vars(member) if not one.startswith("_")}
        elif not name.startswith("__"):
            found[name] = None
    assert stated == found, (set(stated) ^ set(found), stated, found)


def test_a_job_predicts_as_its_scenario_does():
    scenario = stepsim.Scenario("token_skew").set("scenario.steps", 6)
    job = stepsim.Job(scenario)
    for settings in ({}, {"ddp.bucket_cap": 1 << 20}, {"ddp.set_to_none": True}, {"cluster.skew": 0.2}):
        changed = scenario
        for key, value in settings.items():
            changed = changed.set(key, value)
        for policy in ("uniform", "token_budget"):
            alone = changed.run(policy).prediction
            assert job.predict(settings, policy, steps=True) == alone
            assert job.predict(settings, policy, noise=False).interval90_ms[0] <= alone.step_ms_max
    assert job.predict(steps=True).steps["step_ms"].size == 6 * 4
    assert "token_skew" in repr(job)
    for wrong in ({"ddp.bucket_cpa": 1}, {"cluster.ranks": 0}):
        try:
            job.predict(wrong)
        except stepsim.InputError as error:
            assert next(iter(wrong)) in str(error)
            continue
        raise AssertionError(wrong)


def test_values_of_a_sweep_may_be_lists_and_tables():
    scenario = stepsim.Scenario("token_skew").set("scenario.steps", 4)
    swept = scenario.sweep({"cluster.slow_ranks": [[], [{"rank": 1, "factor": 2.0}]]}, policy="uniform")
    alone = [scenario.set("cluster.slow_ranks", value).run("uniform").prediction.step_ms
             for value in ([], [{"rank": 1, "factor": 2.0}])]
    assert [point.step_ms for point in swept.points] == alone and alone[0] < alone[1]
    assert len(scenario.sweep({"policy.token_budget.max_tokens": 1024}).points) == 1


def test_a_dict_may_hold_lengths_as_an_array():
    own = {**OWN, "data": {**OWN.get("data", {}), "lengths": [12, 250, 77, 31] * 64}}
    found = stepsim.Scenario(own).run().to_json()
    assert found == stepsim.Scenario(OWN, lengths=[12, 250, 77, 31] * 64).run().to_json()
    try:
        stepsim.Scenario(OWN).set("ddp.bucket_cap", None)
    except TypeError as error:
        assert "ddp.bucket_cap" in str(error)
    else:
        raise AssertionError("None is taken")


def test_a_job_takes_lengths_as_an_array():
    lengths = numpy.arange(1, 200)
    job = stepsim.Job("token_skew")
    scenario = stepsim.Scenario("token_skew").set("data.lengths", lengths)
    found = job.predict({"data.lengths": lengths}, "variable_fixed", steps=True)
    assert found == scenario.run("variable_fixed").prediction
    for wrong in (["ddp.bucket_cap=1MiB"], "ddp.bucket_cap=1MiB"):
        try:
            job.predict(wrong)
        except TypeError as error:
            assert "settings" in str(error)
            continue
        raise AssertionError(wrong)


def test_jobs_and_scenarios_with_lengths_pickle():
    scenario = stepsim.Scenario(OWN, lengths=[12, 250, 77, 31] * 64)
    same = pickle.loads(pickle.dumps(scenario))
    del scenario
    assert same.run().to_json() == stepsim.Scenario(OWN, lengths=[12, 250, 77, 31] * 64).run().to_json()
    job = pickle.loads(pickle.dumps(stepsim.Job(same)))
    assert job.predict() == stepsim.Job(same).predict()


if __name__ == "__main__":
    sys.exit(small_runner.main(globals()))
