"""Every preset on every shipped GPU profile: it is predicted, or an error says what to write, which then is.

usage: presets_test.py PATH_OF_STEPSIM
"""

import json
import os
import pathlib
import re
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests"))
import small_runner  # noqa: E402  (needs the path above)

STEPSIM = os.path.abspath(sys.argv[1])
GPUS = ("h100_8x_published", "a100_8x_published")
SCENARIO = """
[scenario]
name = "preset"
steps = 3
warmup_steps = 1
[cluster]
ranks = 8
profile = "{profile}"
[model]
preset = "{preset}"
[optimizer]
kind = "adamw"
[data]
samples = 256
lengths = {{ uniform = [20, 100] }}
[[policy]]
name = "fixed"
kind = "fixed"
batch_size = 2
"""


def presets():
    return json.loads(small_runner.run(STEPSIM, "models", "--json", "-").stdout)


def predicted(file, rounds=3):
    """Runs a scenario, with what its errors say to write. Returns the answer and those settings."""
    settings = []
    for _ in range(rounds + 1):
        options = [word for key in settings for word in ("--set", key)]
        done = small_runner.run(STEPSIM, "run", str(file), "--json", "-", *options, status=(0, 1, 2))
        if done.returncode in (0, 1):  # 1: it is predicted, and does not fit into memory.
            return json.loads(done.stdout), settings
        if "times is refused: " in done.stderr:  # A size that no published figure reaches.
            return None, settings
        told = re.findall(r'(model\.\w+) = "(\w+)"', done.stderr)
        assert told, done.stderr
        settings += [f"{key}={value}" for key, value in told]
    raise AssertionError(f"{file}: not even with {settings}")


def test_presets_are_predicted_as_they_stand_or_as_errors_say():
    as_it_stands = refused = 0
    with tempfile.TemporaryDirectory() as folder:
        for preset in presets():
            for profile in GPUS:
                file = pathlib.Path(folder) / "preset.toml"
                file.write_text(SCENARIO.format(profile=profile, preset=preset["name"]), encoding="utf-8")
                answer, settings = predicted(file)
                refused += answer is None
                if answer is None:
                    continue
                summary = answer["predictions"][0]["summary"]
                assert summary["step_time_ms"]["mean"] > 0 and summary["peak_memory_mib"] > 0, (preset, summary)
                parts = answer["memory_parts"]["mib"]
                assert abs(sum(parts.values()) / summary["peak_memory_mib"] - 1) < 1e-9, (preset["name"], parts, summary)
                as_it_stands += not settings
    print(f"{as_it_stands} as they stand, {refused} too large for a profile's figures")
    assert as_it_stands >= 10 and refused <= 26, (as_it_stands, refused)


def test_a_preset_of_a_config_json_keeps_its_sizes():
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "preset.toml"
        file.write_text(SCENARIO.format(profile=GPUS[0], preset="qwen3-4b"), encoding="utf-8")
        done = small_runner.run(STEPSIM, "run", str(file), "--set", "model.layers=3", status=2)
        assert "the preset is a config.json of transformers" in done.stderr, done.stderr
        small = small_runner.run(STEPSIM, "run", str(file), "--set", "model.dtype=bf16", "--set", "model.name=mine")
        assert "model mine" in small.stdout, small.stdout + small.stderr


if __name__ == "__main__":
    sys.exit(small_runner.main(dict(globals())))
