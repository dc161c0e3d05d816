"""Installs into a temporary folder and uses what is there: programs, library, scenarios.

usage: install_test.py BUILD_FOLDER PREFIX SANITIZERS COMPILER…
"""

import json
import os
import pathlib
import re
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))
import small_runner  # noqa: E402  (needs the path above)

BUILD, PREFIX, SANITIZERS, *COMPILER = sys.argv[1:]
FOLDER = tempfile.TemporaryDirectory()
# A folder without anything of the project.
ELSEWHERE = tempfile.TemporaryDirectory()
INSTALLED = pathlib.Path(FOLDER.name + PREFIX)
ENVIRONMENT = {k: v for k, v in os.environ.items() if not k.startswith(("MESON", "STEPSIM"))}


def run(*command, status=0, **keywords):
    environment = ENVIRONMENT | keywords.pop("env", {})
    done = small_runner.run(*command, status=status, cwd=ELSEWHERE.name, env=environment)
    return done.stdout


def stepsim(*arguments, **keywords):
    return run(INSTALLED / "bin" / "stepsim", *arguments, **keywords)


def pkg_config(*arguments):
    """Of the installed files, with the prefix where they are now."""
    folder = pathlib.Path(FOLDER.name) / "pkgconfig"
    folder.mkdir(exist_ok=True)
    for path in INSTALLED.rglob("stepsim.pc"):
        text = path.read_text(encoding="utf-8")
        assert f"prefix={PREFIX}\n" in text, text
        moved = text.replace(f"prefix={PREFIX}\n", f"prefix={INSTALLED}\n")
        (folder / path.name).write_text(moved, encoding="utf-8")
    return run("pkg-config", *arguments, env={"PKG_CONFIG_PATH": str(folder)}).split()


def test_it_installs():
    run("meson", "install", "-C", BUILD, "--no-rebuild", "--destdir", FOLDER.name, "--quiet")
    assert (INSTALLED / "bin" / "stepcal").exists()
    for source in (ROOT / "calibrate" / "torch").glob("stepsim_*.py"):
        assert (INSTALLED / "share" / "stepsim" / source.name).exists(), source.name
    for name in ("stepsim_recorder.py", "all_reduce.py"):
        assert (INSTALLED / "share" / "stepsim" / name).exists(), name
    assert not (INSTALLED / "share" / "stepsim" / "scenarios" / "quickstart").exists()


def test_the_python_package_finds_what_is_installed():
    package = next(INSTALLED.rglob("stepsim/_core.*.so"), None)
    if package is None:
        raise small_runner.Skip("this build makes no Python package (needs pybind11-dev)")
    code = """
import stepsim
scenario = stepsim.Scenario("token_skew")
assert scenario.file.endswith("/share/stepsim/scenarios/token_skew.toml"), scenario.file
print(scenario.compare().best)
"""
    python = "/usr/bin/python3" if os.path.exists("/usr/bin/python3") else sys.executable
    path = {"PYTHONPATH": str(package.parent.parent)}
    text = run(python, "-c", code, env=path)
    assert text == "bucketing\n", text


def test_one_header_is_installed_that_needs_no_other():
    headers = list((INSTALLED / "include").rglob("*.h"))
    assert [header.name for header in headers] == ["stepsim.h"], headers
    assert not re.findall(r'^#include "', headers[0].read_text(encoding="utf-8"), re.MULTILINE)


def test_version_and_flags_of_the_library():
    version = stepsim("--version").split()[1]
    assert pkg_config("--modversion", "stepsim") == [version]
    flags = pkg_config("--cflags", "--libs", "stepsim")
    assert f"-I{INSTALLED}/include" in flags and "-lstepsim" in flags, flags


def test_the_example_predicts_what_the_program_does():
    program = pathlib.Path(ELSEWHERE.name) / "two_policies"
    flags = pkg_config("--cflags", "--libs", "stepsim")
    sanitize = [] if SANITIZERS == "none" else [f"-fsanitize={SANITIZERS}"]
    source = ROOT / "tests" / "install" / "two_policies.cpp"
    run(*COMPILER, "-std=c++20", *sanitize, source, *flags, "-o", program)
    scenario = INSTALLED / "share" / "stepsim" / "scenarios" / "token_skew.toml"
    text = run(program, scenario, "variable_fixed", "bucketing")
    print(text, end="")
    predicted = json.loads(stepsim("compare", scenario, "--json", "-"))["predictions"]
    expected = ""
    for name in ("variable_fixed", "bucketing"):
        (summary,) = [p["summary"] for p in predicted if p["policy"] == name]
        step = summary["step_time_ms"]
        low, high = step["interval90"]
        expected += f"{name}: {step['mean']:.3f} ms a step ({low:.3f} to {high:.3f}), "
        expected += f"{summary['useful_tokens_per_s']:.0f} useful tokens/s\n"
    assert text == expected, (text, expected)
    run(program, "nowhere.toml", "a", "b", status=2)


def test_a_program_asks_plans_and_meets_errors():
    source = pathlib.Path(ELSEWHERE.name) / "asks.cpp"
    source.write_text(
        """
#include <stepsim.h>
#include <cstdio>
using namespace stepsim;
int main(int, char** arguments) {
  const Scenario scenario = Scenario::read(arguments[1]).with({{"scenario.steps", "4"}});
  const Job job(scenario);
  std::printf("%s %d %zu\\n", scenario.name().c_str(), scenario.ranks(), scenario.policies().size());
  const std::vector<std::string> over = {"ddp.bucket_cap=1 MiB,25 MiB"};
  const Answer answer = job.ask("sweep", {{"over", over}});
  std::printf("%d %d\\n", answer.status(), answer.json().find("stepsim-sweep/2") != std::string::npos);
  const Plan plan = Job(scenario.with_lengths(std::vector<std::int64_t>(3072, 7))).plan("variable_fixed");
  std::printf("%d %ld\\n", plan.batches().back().step, plan.batches().back().lengths.front());
  for (const auto& wrong : {Setting{"ddp.bucket_cp", "1"}, Setting{"cluster.profile", "no.json"}}) {
    try {
      (void)Job(scenario.with({wrong}));
    } catch (const InputError& error) {
      std::printf("%s\\n", error.what());
    }
  }
}
"""
    )
    program = source.with_suffix("")
    sanitize = [] if SANITIZERS == "none" else [f"-fsanitize={SANITIZERS}"]
    flags = pkg_config("--cflags", "--libs", "stepsim")
    run(*COMPILER, "-std=c++20", *sanitize, source, *flags, "-o", program)
    lines = run(program, INSTALLED / "share" / "stepsim" / "scenarios" / "token_skew.toml").splitlines()
    assert lines[0] == "token_skew 4 4", lines
    assert lines[1:3] == ["0 1", "3 7"], lines
    assert "did you mean 'bucket_cap'" in lines[3] and "no.json" in lines[4], lines


def test_names_of_the_documentation_work_in_any_folder():
    assert "bucketing" in stepsim("compare", "scenarios/token_skew.toml")
    assert "h100_8x_published" in stepsim("profiles")
    profile = "scenarios/profiles/h100_2x8_published.json"
    assert "token_budget" in stepsim("compare", "scenarios/two_nodes.toml", "--profile", profile)
    assert "rank" in stepsim("replay", "scenarios/replay")
    run(INSTALLED / "bin" / "stepsim", "compare", "scenarios/no_such.toml", status=2)


def test_a_file_of_ones_own_comes_first():
    own = pathlib.Path(ELSEWHERE.name) / "scenarios" / "token_skew.toml"
    own.parent.mkdir()
    own.write_text("[scenario]\nname = 3\n")
    run(INSTALLED / "bin" / "stepsim", "compare", "scenarios/token_skew.toml", status=2)


if __name__ == "__main__":
    sys.exit(small_runner.main(globals()))
