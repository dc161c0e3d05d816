"""What is shipped with stepsim, found by its name from anywhere, and the lists of what there is.

usage: shipped_test.py PATH_OF_STEPSIM
"""

import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
import stepsim_program  # noqa: E402  (it takes the same argument)
import small_runner  # noqa: E402  (needs the path above)


def test_every_command_finds_a_shipped_scenario_by_its_name():
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        (root / "bin").mkdir()
        program = shutil.copy(stepsim_program.STEPSIM, root / "bin")
        shutil.copytree(stepsim_program.ROOT / "scenarios", root / "share/stepsim/scenarios")
        name = "scenarios/token_skew.toml"
        for command in (
            ["run", name],
            ["compare", name],
            ["sweep", name, "--over", "cluster.skew=0,1"],
            ["blame", name],
            ["solve", name, "--key", "cluster.skew=0..20", "--step-time", "80 ms"],
            ["ladder", name, "--shape-cost", "5 ms"],
            ["plan", name, "--out", "plan.jsonl"],
            ["buckets", name],
            ["trace", name, "--out", "trace.json"],
            ["lengths", name],
        ):
            done = subprocess.run(
                [program, *command],
                capture_output=True,
                text=True,
                check=False,
                cwd=folder,
            )
            said = [line for line in done.stderr.splitlines() if not line.startswith("planning on this host: ")]
            assert done.returncode in (0, 1) and not said, (command, done.stderr)


def test_a_shipped_profile_is_found_by_its_name_everywhere():
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        elsewhere = root / "elsewhere"
        for new in ("bin", "elsewhere"):
            (root / new).mkdir()
        program = shutil.copy(stepsim_program.STEPSIM, root / "bin")

        def stepsim(*command, status=0):
            done = subprocess.run(
                [program, *command], capture_output=True, text=True, check=False, cwd=elsewhere
            )
            assert done.returncode == status, (command, done.stdout, done.stderr)
            return done.stdout + done.stderr

        missing = stepsim("profiles", status=2)
        for place in ("scenarios/profiles", f"{folder}/share/stepsim/scenarios/profiles"):
            assert place in missing and "meson install" in missing, missing
        shutil.copytree(stepsim_program.ROOT / "scenarios", root / "share/stepsim/scenarios")
        assert "h100_8x_published" in stepsim("profiles")
        text = pathlib.Path(stepsim_program.VALLEY).read_text(encoding="utf-8")
        assert 'profile = "profiles/h100_8x_published.json"' in text
        named = elsewhere / "named.toml"
        for name in ("h100_8x_published", "h100_2x8_published"):
            written = text.replace("profiles/h100_8x_published.json", name)
            named.write_text(written, encoding="utf-8")
            assert f"profile {name};" in stepsim("run", "named.toml", "--steps", "4")
        for option in ("--profile=h100_8x_published", "--set=cluster.profile=h100_8x_published"):
            printed = stepsim("run", "named.toml", "--steps", "4", option)
            assert "profile h100_8x_published;" in printed, printed
        near = stepsim("run", "named.toml", "--profile", "h100_8x_publishd", status=2)
        assert "did you mean 'h100_8x_published'?" in near, near


def test_a_report_says_whose_prices_nobody_measured_and_what_costs_nothing():
    origin = "composed from published figures; nothing here was measured by this project"
    text = stepsim_program.run("run", stepsim_program.VALLEY, "--steps", "4").stdout
    assert f"warning: prices of compute: {origin}" in text, text
    nothing = "counted as free, since neither the profile nor the scenario says its cost: "
    assert f"{nothing}what compute and transfers cost each other" in text and "host.launch" not in text
    file = str(stepsim_program.ROOT / "scenarios" / "profiles" / "h100_2x8_published.json")
    based = stepsim_program.run("run", stepsim_program.VALLEY, "--steps", "4", "--profile", file).stdout
    assert f"warning: prices of compute: those of h100_8x_published, {origin}" in based, based
    stated = stepsim_program.run("run", stepsim_program.VALLEY, "--steps", "4", "--set", "interference.strength=0.1").stdout
    assert nothing not in stated
    assert f"h100_2x8_published: prices of compute: those of h100_8x_published, {origin}" in stepsim_program.run(
        "profiles", "--dir", str(stepsim_program.ROOT / "scenarios" / "profiles")).stdout
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "free.json"
        profile = json.loads((stepsim_program.ROOT / "scenarios/profiles/h100_8x_published.json").read_text("utf-8"))
        profile["host"]["launch_s"] = 0
        path.write_text(json.dumps(profile), encoding="utf-8")
        free = stepsim_program.run("run", stepsim_program.VALLEY, "--steps", "4", "--profile", str(path)).stdout
        assert f"{nothing}the host's kernel launches (host.launch); what compute" in free, free
    assert "prices of compute" not in stepsim_program.run("run", stepsim_program.SKEW).stdout  # Measured.


def test_the_catalogues_list_what_there_is():
    assert "gpt2-small" in stepsim_program.run("models").stdout and "124439808" in stepsim_program.run("models").stdout
    for kind in ("fixed", "bucketed", "token_budget"):
        assert f"{kind}\n" in stepsim_program.run("policies", "--all").stdout
    text = stepsim_program.run("profiles", "--dir", str(stepsim_program.ROOT / "scenarios" / "profiles")).stdout
    assert "h100_8x_published" in text
    assert "cannot read folder" in stepsim_program.run("profiles", "--dir", "/nowhere", status=2).stderr


if __name__ == "__main__":
    sys.exit(small_runner.main(globals()))
