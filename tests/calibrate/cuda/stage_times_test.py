"""Whether the stages of check_gpu fit into their limits on a GPU: a model of what their parts take.

usage: stage_times_test.py STEPSIM

check_gpu lists its parts with their limits; this plays them with assumed times, the real plans and
the real turns of stepsim_live.py. The assumptions are no measurements, and on the careful side:
steps take twice what the published profile predicts; a new shape of cuDNN's attention in PyTorch
costs 0.67 s, what compiling it took on one core.
"""

import ast
import collections
import itertools
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests"))
import small_runner  # noqa: E402  (needs the path above)

STEPSIM = os.path.abspath(sys.argv[1])
NEW_SHAPE_S = 0.67
# What a step takes over what is predicted: of GPT-2 with an H200's own profile, where the card may be an
# H100; of BERT with published figures, of which eager PyTorch took 2.4 times as long.
STEP_FACTORS = {"gpt2": 1.3, "bert": 2.4}
CONTACT_STEP_S = 0.15  # A step of first_contact.py, in the mean over its shapes.
CONTACT_ROUNDS = 6  # Three of the shapes, the warm-up, and the kernels' list.
FEWEST_STEPS = 20
MEASURE_MORE_S = 40  # Of stepsim_measure.py beyond its --seconds, as on an H200: three rounds of 24 shapes take 60 s.
WARM_UP_STEPS = 3
BLOCK = 4

# Seconds: of a short command; of a program that starts with CUDA and all kernels; with PyTorch; of
# the first import; of what the machine is asked.
Machine = collections.namedtuple("Machine", "short start torch first_import environment")
USUAL = Machine(2, 15, 12, 30, 10)
SLOW = Machine(3, 20, 18, 60, 20)

Part = collections.namedtuple("Part", "name limit reserved command")
Played = collections.namedtuple("Played", "name needed allowed steps")


class Plan:
    """The batches of a policy: their shapes, and what a step of each is assumed to take."""

    def __init__(self, path, predicted, factor):
        with open(path, encoding="utf-8") as lines:
            header = json.loads(next(lines))
            rows = [json.loads(line) for line in lines]
        self.policy = header["policy"]
        self.shapes = []
        for row in rows:
            lengths = row.get("sequences", row["lengths"])
            self.shapes.append((len(lengths), max(row["max_length"], *lengths)))
        self.seconds = [factor * 1e-3 * one for one in predicted[self.policy]]


def run(*command, **more):
    done = subprocess.run(command, capture_output=True, text=True, check=False, **more)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def plans_of(name, scenario, *more):
    """The plans of a scenario, in the order of their files' names."""
    with tempfile.TemporaryDirectory() as folder:
        prediction = os.path.join(folder, "prediction.json")
        run(STEPSIM, "compare", scenario, *more, "--json", prediction)
        run(STEPSIM, "plan", scenario, *more, "--out-dir", os.path.join(folder, "plans"))
        with open(prediction, encoding="utf-8") as file:
            predicted = {
                one["policy"]: [row["step_ms"] for row in one["steps"] if row["rank"] == 0]
                for one in json.load(file)["predictions"]
            }
        paths = sorted(pathlib.Path(folder, "plans").iterdir())
        return [Plan(path, predicted, STEP_FACTORS[name]) for path in paths]


def parts_of(stage):
    """The stage's limit, and its parts, as check_gpu lists them in a folder like the bundle."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for script in ("check_gpu", "check_gpu_stage.sh"):
            shutil.copy(ROOT / "calibrate/cuda" / script, folder)
        for part in ("calibrate", "scenarios"):
            (folder / part).symlink_to(ROOT / part)
        clean = {key: text for key, text in os.environ.items() if not key.startswith("CHECK_GPU")}
        listed = run(folder / "check_gpu", stage, "out", env={**clean, "CHECK_GPU_LIST": "1"}, cwd=folder)
    rows = [line.split("\t") for line in listed.splitlines()]
    parts = [Part(row[1], int(row[2]), int(row[3]), row[4]) for row in rows if row[0] == "part"]
    return int(next(row[2] for row in rows if row[0] == "stage")), parts


def option(command, name):
    return float(re.search(f"{name} ([0-9.]+)", command).group(1))


class Stage:
    """Plays a stage's parts on a machine."""

    def __init__(self, machine, plans):
        self.machine, self.plans = machine, plans

    def train(self, part):
        """stepsim_live.py: its seconds, and the steps of each policy in which cuDNN compiled nothing."""
        model = part.name.split(".")[0]
        plans = self.plans[model]
        by_cudnn = "TORCH_CUDNN_SDPA_DEPRIORITIZED=1" not in part.command
        met, steps, took = set(), collections.Counter(), 0.0

        def step(plan, number):
            is_new = by_cudnn and plan.shapes[number] not in met
            met.add(plan.shapes[number])
            return plan.seconds[number] + NEW_SHAPE_S * is_new, is_new

        for number in range(WARM_UP_STEPS):
            took += step(plans[0], number)[0]
        end = took + option(part.command, "--seconds")
        longest = max(len(plan.shapes) for plan in plans)
        for repeat in range(int(option(part.command, "--repeats"))):
            for turn, first in enumerate(range(0, longest, BLOCK)):
                shift = (turn + repeat) % len(plans)
                for plan in plans[shift:] + plans[:shift]:
                    if took > end:
                        return self.machine.torch + took, steps
                    for number in range(first, min(first + BLOCK, len(plan.shapes))):
                        seconds, is_new = step(plan, number)
                        took += seconds
                        steps[plan.policy] += not is_new
        return self.machine.torch + took, steps

    def needs(self, part):
        """Seconds that a part takes if nothing ends it, and its steps."""
        machine, command = self.machine, part.command
        if part.name == "environment":
            return machine.environment, {}
        if part.name == "import_torch":
            return machine.first_import, {}
        if "stepsim_live.py" in command:
            return self.train(part)
        if "stepsim_measure.py" in command:
            return machine.torch + MEASURE_MORE_S + option(command, "--seconds"), {}
        if "first_contact.py" in command:
            return option(command, "--seconds") + 5, {}
        if "calibrate --device" in command:
            # The shapes of the grid are compiled and run once; then it keeps to its budget.
            return machine.start + option(command, "--budget") + 25, {}
        if "measure --device" in command:
            return machine.start + option(command, "--budget") + 15, {}
        if "stepcal check" in command:
            return machine.start + 10, {}
        assert "./step" in command, command
        return machine.short, {}

    def play(self, limit, parts):
        """Returns what became of each part, as part() of check_gpu_stage.sh does it."""
        now, played = 0.0, []
        for part in parts:
            needed, steps = self.needs(part)
            left = limit - now - part.reserved
            allowed = min(part.limit, left) if left >= 3 else 0
            now += min(needed, allowed)
            played.append(Played(part.name, needed, allowed, steps))
        return now, played


SCENARIOS = {
    "gpt2": [str(ROOT / "scenarios/gpt2_medium_1gpu.toml")],
    "bert": [str(ROOT / "calibrate/cuda/bert_1gpu.toml")],
}
PLANS = {name: plans_of(name, *scenario) for name, scenario in SCENARIOS.items()}


def play(stage, machine, change=lambda part: part):
    limit, parts = parts_of(stage)
    now, played = Stage(machine, PLANS).play(limit, [change(part) for part in parts])
    for part in played:
        counts = ", ".join(f"{policy} {steps}" for policy, steps in part.steps.items())
        print(f"  {part.name}: needs {part.needed:.0f} s, has {part.allowed:.0f} s  {counts}")
    print(f"  {stage}: {now:.0f} s of {limit} s")
    return played


def cut(played):
    return [part.name for part in played if part.needed > part.allowed]


def check_steps(played, name):
    live = next(part for part in played if part.name == f"{name}.live")
    few = {plan.policy: live.steps[plan.policy] for plan in PLANS[name]}
    assert min(few.values()) >= FEWEST_STEPS, few


def test_the_torch_stage_has_time_for_every_part_and_steps_of_every_policy():
    played = play("torch", USUAL)
    assert not cut(played), cut(played)
    check_steps(played, "gpt2")
    check_steps(played, "bert")


def test_on_a_slow_machine_every_run_is_validated_all_the_same():
    played = play("torch", SLOW)
    assert set(cut(played)) <= {"gpt2.live", "bert.live", "user_models"}, cut(played)
    check_steps(played, "gpt2")
    check_steps(played, "bert")


def test_new_shapes_of_cudnn_would_take_the_time_of_the_torch_stage():
    def with_cudnn(part):
        return part._replace(command=part.command.replace("TORCH_CUDNN_SDPA_DEPRIORITIZED=1", ""))

    played = play("torch", USUAL, with_cudnn)
    live = next(part for part in played if part.name == "gpt2.live")
    assert min(live.steps[plan.policy] for plan in PLANS["gpt2"]) < FEWEST_STEPS


def test_the_steps_stage_has_time_for_every_part():
    for machine in (USUAL, SLOW):
        played = play("steps", machine)
        assert not cut(played), cut(played)


def constants_of(path):
    """The literals that a Python file assigns to names."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found = {}
    for node in tree.body:
        if isinstance(node, ast.Assign):
            try:
                found[node.targets[0].id] = ast.literal_eval(node.value)
            except ValueError:
                pass
    return found


def test_every_shape_runs_often_enough_at_first_contact():
    known = constants_of(ROOT / "calibrate/torch/first_contact.py")
    _, parts = parts_of("torch")
    command = next(part.command for part in parts if part.name == "user_models")
    shapes = option(command, "--shapes")
    cases = re.search("--cases ([a-z0-9_,]+)", command).group(1).split(",")
    left = option(command, "--seconds")
    for number, case in enumerate(cases):
        weights = [known["CASES"][one] for one in cases[number:]]
        share = left * weights[0] / sum(weights)
        steps = CONTACT_ROUNDS * shapes * CONTACT_STEP_S
        plans = 0 if case.endswith("without_cudnn") else shapes * NEW_SHAPE_S
        needed = known["RESERVE_S"] + plans + steps
        print(f"  {case}: needs {needed:.0f} s, has {share:.0f} s")
        assert needed <= share, case
        left -= share


def test_the_stages_take_29_minutes_at_most():
    limits = {stage: parts_of(stage)[0] for stage in ("smoke", "steps", "torch", "kernels", "speeds")}
    print("  " + ", ".join(itertools.starmap("{} {} s".format, limits.items())))
    assert sum(limits.values()) <= 29 * 60
    assert max(limits.values()) < 10 * 60


if __name__ == "__main__":
    sys.exit(small_runner.main(dict(globals())))
