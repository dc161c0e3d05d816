"""Makes the mistakes that users make and checks that each message names the cause and the fix.

usage: mistakes_test.py PATH_OF_STEPSIM PATH_OF_STEPCAL
"""

import os
import pathlib
import re
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
import advise_test  # noqa: E402  (it takes the same argument)
import small_runner  # noqa: E402  (needs the path above)

STEPSIM = os.path.abspath(sys.argv[1])
STEPCAL = os.path.abspath(sys.argv[2])
ROOT = pathlib.Path(__file__).resolve().parents[3]
SCENARIOS = str(ROOT / "scenarios")
SCENARIO = SCENARIOS + "/token_skew_2ranks.toml"
BOTH = "run.rank0.jsonl run.rank1.jsonl"


def check(program, mistakes):
    """Each mistake: the arguments, then words of the message: the cause, and the fix or a hint."""
    failures = []
    for arguments, *words in mistakes:
        text, *blanks = arguments.split("|")  # Behind a bar stands an argument with blanks.
        own = [word.replace("SCENARIOS", SCENARIOS).replace("SCENARIO", SCENARIO) for word in text.split()]
        result = subprocess.run([program, *own, *blanks], capture_output=True, text=True, timeout=120)
        missing = [word for word in words if word not in result.stderr]
        crashed = "Traceback" in result.stderr or "terminate called" in result.stderr
        if result.returncode not in (2, 3) or missing or crashed or "Next:" in result.stdout:
            failures.append((arguments, result.returncode, missing, result.stderr[-400:]))
    assert not failures, "\n".join(map(str, failures))


@advise_test.in_folder_of_ranks
def test_names_that_are_nearly_right(_folder):
    check(
        STEPSIM,
        [
            ["advice run.rank0.jsonl", "unknown command 'advice'", "did you mean 'advise'?"],
            ["compare SCENARIO --josn x", "unknown option '--josn'", "did you mean '--json'?"],
            ["compare SCENARIOS/token_skew_2rank.toml", "no scenario file", "did you mean"],
            ["run SCENARIO --policy bucketting", "did you mean 'bucketing'?"],
            ["run SCENARIO --profile h100_8x_publishd", "did you mean", "next: stepsim profiles"],
            ["run SCENARIO --profile h100_8x_published", 'but of bf16: write model.dtype = "bf16" and model.attention = "flash", or'],
            ["run SCENARIO --profile h100_8x_published --set model.dtype=bf16", 'but of another kind of attention: write model.attention = "flash", or'],
            ["run SCENARIO --profile nothere.json", "cannot read nothere.json", "stepsim profiles"],
            ["run SCENARIO --set ddp.bucketcap=25MiB", "did you mean 'bucket_cap'?"],
            ["run SCENARIO --set policy.bucketing.batchsize=3", "did you mean 'batch_size'?"],
            ["run SCENARIO --set policy.bucketing=3", "name a key", "policy.bucketing.KEY=VALUE"],
            ["run SCENARIO --set policy.bucketing.kind=fixd", "did you mean 'fixed'?"],
            ["run SCENARIO --set optimizer.kind=adamx", "did you mean 'adamw'?"],
            ["run SCENARIO --set model.preset=gpt5", "unknown model preset", "next: stepsim models"],
            ["run SCENARIO --set model.preset=Qwen/Qwen3-0.6B", "is a name of Hugging Face", 'config = "config.json"', "to_json_file"],
            ["run SCENARIO --set model.config=config.json", "model.preset: give it or config, not both"],
            ["run SCENARIO --set model.hf=config.json", "unknown key 'hf'", 'kind = "recorded"'],
            ["plan SCENARIOS/lm2b_2gpu.toml --out x --set model.head_dim=128", "'head_dim': heads are hidden / heads wide in every kind of model", "any other model: kind"],
            ["plan SCENARIOS/lm2b_2gpu.toml --out x --set model.kind=qwen3", "unknown model family 'qwen3'", "blocks, transformers, recorded", "a model of transformers: config", "any other model: kind"],
            ["run SCENARIO --set policy.uniform.kind=speechbrain", "unknown policy kind", 'any other sampler: kind = "plan"', "stepsim policies --all"],
            ["sweep SCENARIO --over ddp.cap=1MiB..4MiB:x2", "unknown key 'cap'", "known: bucket_cap"],
            ["sweep SCENARIO --over bucket_cap=1MiB..4MiB:x2", "did you mean 'ddp.bucket_cap'?"],
            ["run SCENARIO --set max_tokens=512", "unknown key 'max_tokens'; did you mean 'policy.NAME.max_tokens'?"],
            ["run SCENARIO --over ddp.bucket_cap=1MiB,2MiB", "--over is an option of the commands sweep, tune, not of this", "stepsim run --help"],
            ["tune SCENARIO --best", "--best is an option of stepsim buckets, not of this command"],
            ["advise run.rank0.jsonl --policy bucketing", "--policy is an option of the commands run, "],
            ["sweep SCENARIO --key=ddp.bucket_cap=1MiB..4MiB", "--key is an option of the commands solve, ladder, not of this"],
            ["compare SCENARIO SCENARIO", "one file or word more than it takes", "compare --help"],
            ["keys bukcet", "like it: ", "ddp.bucket_cap"],
            ["policies tokn", "like it: ", "token_budget"],
        ],
    )


@advise_test.in_folder_of_ranks
def test_values_that_cannot_be_meant(_folder):
    check(
        STEPSIM,
        [
            ["run SCENARIO --set ddp.bucket_cap=25", "counts bytes", 'did you mean "25 MiB"?'],
            ["run SCENARIO --set|ddp.bucket_cap=25 MB/s", "unknown unit 'MB/s'", "use KiB, MiB"],
            ["run SCENARIO --set cluster.ranks=two", "expected an integer"],
            ["run SCENARIO --set cluster.ranks=0", "expected at least 1"],
            ["run SCENARIO --set cluster.ranks=64", "no all_reduce of 64 ranks", "measure it with"],
            ["run SCENARIO --set|host.launch=1e7 s", "too long", "expected at most 1 hour"],
            ["run SCENARIO --set policy.bucketing.batch_size=-4", "batch_size", "at least 1"],
            ["run SCENARIO --set policy.bucketing.pad_to_lengths=[64,32]", "32 follows 64", "ascending"],
            ["run SCENARIO --set policy.bucketing.pad_to_lengths=[64,64]", "64 follows 64", "once"],
            ["run SCENARIO --set policy.bucketing.pad_to_lengths=[]", "the list is empty"],
            ["run SCENARIO --set policy.bucketing.pad_to_lengths=[0,64]", "integers from 1 to"],
            ["run SCENARIO --set policy.bucketing.pad_to_lengths=[64] --set policy.bucketing.pad_to_multiple_of=8",
             "pad_to_lengths", "does not go with pad_to_multiple_of"],
            ["ladder SCENARIO --shape-cost 0ms", "--shape-cost 0ms", "costs more than nothing"],
            ["ladder SCENARIO --shape-cost|-5 ms", "--shape-cost", "-5 ms"],
            ["ladder SCENARIO --shape-cost 5", "--shape-cost 5"],
            ["ladder SCENARIO --shape-cost 5ms --rungs 8,0", "--rungs 8,0", "'0' is no whole number from 1"],
            ["ladder SCENARIO --shape-cost 5ms --multiples 8,x", "'x' is no whole number"],
            ["ladder SCENARIO --shape-cost 5ms --step 0", "--step 0", "'0' is no whole number"],
            ["ladder SCENARIO --shape-cost 5ms --key size", "expected samples-length or length"],
            ["ladder SCENARIO --shape-cost 5ms --policy bucketting", "did you mean 'bucketing'?"],
            ["run SCENARIO --steps 2", "2 warm-up steps of 2 steps", "expected less than 2"],
            ["run SCENARIO --seed -1", "expected at least 0"],
            ["sweep SCENARIO --over ddp.bucket_cap", "expected key=LOW..HIGH:x2"],
            ["sweep SCENARIO --over ddp.bucket_cap=1..4", "a range ends in its step"],
            ["sweep SCENARIO --over ddp.bucket_cap=4MiB..1MiB:x2", "starts above its end"],
            [f"advise {BOTH} --price-per-hour free", "--price-per-hour takes a number, as 2.5, not 'free'", "advise --help"],
            ["run SCENARIO --gpu-hour 2,50", "--gpu-hour takes a number, as 2.5, not '2,50'"],
            ["sweep SCENARIO --over ddp.bucket_cap=1MiB,2MiB --threads two", "--threads takes a whole number, as 8, not 'two'"],
        ],
    )


@advise_test.in_folder_of_ranks
def test_something_is_missing(_folder):
    check(
        STEPSIM,
        [
            ["compare", "no scenario file given", "see: stepsim compare --help"],
            ["advise", "stepsim advise --help"],
            ["plan SCENARIO", "give either --out FILE or --out-dir FOLDER"],
            ["trace SCENARIO", "give --out FILE or --out-dir FOLDER"],
            ["solve SCENARIO", "give --key KEY=LOW..HIGH and --step-time TIME"],
            ["ladder SCENARIO", "give --shape-cost TIME", "ladder --help"],
            ["validate SCENARIO", "give --live FILE"],
            ["plan SCENARIO --policy bucketing --out /nothere/p.jsonl", "cannot write /nothere"],
            ["compare SCENARIO --json out --csv out", "--json out would overwrite the file of --csv", "a name of its own"],
            ["compare SCENARIO --json - --csv -", "cannot both go to standard output"],
        ],
    )


@advise_test.in_folder_of_ranks
def test_the_wrong_file(folder):
    (folder / "empty.jsonl").write_text("", encoding="utf-8")
    (folder / "page").write_text("<!DOCTYPE html><title>404</title>", encoding="utf-8")
    (folder / "numbers.txt").write_text("12\n30\n", encoding="utf-8")
    (folder / "words.txt").write_text("12\nthree\n", encoding="utf-8")
    scenario = pathlib.Path(SCENARIO).read_text(encoding="utf-8")
    (folder / "unpriced.toml").write_text(re.sub("(?m)^profile = .*", "", scenario), encoding="utf-8")
    (folder / "open.toml").write_text('[scenario]\nname = "x\n', encoding="utf-8")
    record = (folder / "run.rank0.jsonl").read_text(encoding="utf-8")
    (folder / "twice.jsonl").write_text(record + record, encoding="utf-8")
    (folder / "broken.jsonl").write_text(record[:5000] + "\n" + record[5000:], encoding="utf-8")
    for arguments in ["plan SCENARIO --policy bucketing --out p.jsonl", "compare SCENARIO --json pred.json"]:
        own = arguments.replace("SCENARIO", SCENARIO).split()
        subprocess.run([STEPSIM, *own, "--quiet"], check=True)
    check(
        STEPSIM,
        [
            ["run run.rank0.jsonl", "is JSON, not a scenario", "stepsim advise"],
            ["run unpriced.toml", "unpriced.toml: error: cluster.profile: no profile is named",
             "give --profile NAME or --profile FILE", "python3 -m stepsim.torch.calibrate", "next: stepsim profiles"],
            ["run open.toml", "open.toml:2", "not valid TOML"],
            ["lengths numbers.txt", "is a list of numbers, not a scenario", "stepsim lengths --file"],
            ["advise numbers.txt", "not a file of JSON lines", "stepsim-run-record/1"],
            ["validate SCENARIO --live numbers.txt", "not a file of JSON lines", "stepsim-run-record/1"],
            ["models SCENARIO", "is a scenario (TOML)", "takes a config.json of transformers or a preset"],
            ["run SCENARIO --profile SCENARIO", "not JSON"],
            ["run SCENARIO --profile run.rank0.jsonl", "this is a run record, not a profile",
             "stepcal import run-record run.rank0.jsonl --out profile.json"],
            ["run SCENARIO --steps 1e3", "--steps takes a whole number, as 20, not '1e3'"],
            ["run SCENARIO --steps 2..3", "--steps takes a whole number, as 20, not '2..3'"],
            ["compare SCENARIO --seed now", "--seed takes a whole number, as 20, not 'now'"],
            ["run SCENARIO --profile pred.json", "wrong file type: expected stepsim-profile"],
            ["run SCENARIO --profile page", "page: error: this is a web page (HTML)"],
            ["advise page", "page: error: this is a web page (HTML)"],
            ["run SCENARIO --profile h100_gpt3", "unknown profile 'h100_gpt3'", "or the path of a profile: python3 -m stepsim.torch.calibrate"],
            ["advise twice.jsonl", "a second header: several files in one"],
            ["advise SCENARIO", "a scenario (TOML), not a file of JSON lines", "stepsim-run-record/1"],
            ["diff SCENARIO run.rank0.jsonl", "a scenario (TOML), not a file of JSON lines"],
            ["run SCENARIO --profile empty.jsonl", "the file is empty"],
            ["run SCENARIOS", "it is a folder; name a file in it"],
            ["advise SCENARIOS", "it is a folder; name a file in it"],
            ["run SCENARIO --json SCENARIOS", "it is a folder; give a file a name in it"],
            ["advise empty.jsonl", "empty.jsonl:1", "no header"],
            ["advise broken.jsonl", "broken.jsonl:"],
            ["advise run.rank0.jsonl", "holds rank 0 of 2 ranks", "give the files of all ranks"],
            ["advise run.rank0.jsonl run.rank0.jsonl", "holds rank 0, as run.rank0.jsonl does"],
            [f"advise {BOTH} --lengths words.txt", "words.txt:2", "write one whole number a line"],
            [f"advise {BOTH} --lengths nothere.txt", "cannot read nothere.txt"],
            [f"advise {BOTH} --base nothere.json", "cannot read nothere.json"],
            ["validate SCENARIO --live p.jsonl", "expected stepsim-run-record/1, got 'stepsim-plan/1'"],
            [f"validate SCENARIO --live {BOTH}", "bytes of gradients", "recorded with another model?"],
            ["replay run.rank0.jsonl", "is JSON, not a table"],
        ],
    )
    check(
        STEPCAL,
        [
            ["import run-record run.rank0.jsonl --profile x.json", "holds rank 0 of 2 ranks"],
            ["import nccl-tests run.rank0.jsonl --profile x.json", "no table of nccl-tests"],
            ["measure --plan run.rank0.jsonl --out x", "expected stepsim-plan/1, got 'stepsim-run-record/1'"],
            ["measure --plan nothere.jsonl --out x", "cannot read nothere.jsonl"],
            ["check pred.json", "expected stepsim-profile/1, got 'stepsim-prediction/2'"],
            ["fit nothere.jsonl", "no profile to write (--out) given"],
            ["calibrate --backend tpu", "unknown option '--backend'", "--device"],
        ],
    )
    assert not (folder / "x.json").exists()


@advise_test.in_folder_of_ranks
def test_an_output_that_is_an_input(folder):
    """What was measured cannot be measured again: no command writes over what it reads."""
    run = folder / "run.jsonl"
    advise_test.write(run, advise_test.header(), advise_test.training())
    os.link(run, folder / "linked.jsonl")
    (folder / "mine.toml").write_bytes(pathlib.Path(SCENARIO).read_bytes())
    subprocess.run([STEPSIM, "plan", SCENARIO, "--out-dir", "plans", "--quiet"], check=True)
    (folder / "lengths.txt").write_text("\n".join(map(str, range(10, 400))), encoding="utf-8")
    (folder / "caps.json").write_bytes(pathlib.Path(SCENARIO).with_name("profiles").joinpath("cpu_epyc_2core_2ranks.json").read_bytes())
    played = """
[[policy]]
name = "uniform"
kind = "plan"
file = "plans/uniform.jsonl"
"""
    own = (folder / "mine.toml").read_text(encoding="utf-8")
    (folder / "played.toml").write_text(own[: own.index("[[policy]]")] + played, encoding="utf-8")
    for name in ("tuned", "profiles", "advice"):
        (folder / name).mkdir()
    (folder / "profiles" / "mine.json").write_bytes((folder / "caps.json").read_bytes())
    (folder / "advice" / "recorded.jsonl").write_bytes((folder / "plans" / "uniform.jsonl").read_bytes())
    (folder / "tuned" / "1.toml").write_text(own, encoding="utf-8")
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    check(
        STEPCAL,
        [
            ["import run-record run.jsonl --profile run.jsonl", "would overwrite an input"],
            ["import run-record run.jsonl --profile ./plans/../run.jsonl", "would overwrite an input"],
            ["import run-record run.jsonl --profile linked.jsonl", "would overwrite an input"],
            ["import nccl-tests run.jsonl --out a --profile a", "--out a would overwrite the file of --profile"],
            ["fit run.jsonl --out run.jsonl", "would overwrite an input"],
            ["grid plans/uniform.jsonl --out plans/uniform.jsonl", "would overwrite an input"],
            ["import step-times run.jsonl --out x --base run.jsonl --scenario run.jsonl", "would overwrite"],
        ],
    )
    check(
        STEPSIM,
        [
            ["compare mine.toml --json mine.toml", "--json mine.toml would overwrite an input"],
            ["compare mine.toml --html mine.toml", "would overwrite an input"],
            ["advise run.jsonl --json run.jsonl", "would overwrite an input"],
            ["plan mine.toml --policy uniform --out mine.toml", "would overwrite an input"],
            # Files that the scenario names, whoever names them.
            ["run mine.toml --json profiles/mine.json --set cluster.profile=profiles/mine.json", "--json would overwrite profiles/mine.json, an input"],
            ["run mine.toml --set data.lengths={file=\"lengths.txt\"} --csv lengths.txt", "--csv would overwrite lengths.txt"],
            ["plan played.toml --out-dir plans", "--out-dir would overwrite plans/uniform.jsonl"],
            ["plan played.toml --out plans/../plans/uniform.jsonl", "an input that the scenario reads"],
            ["trace played.toml --out plans/uniform.jsonl", "an input that the scenario reads"],
            ["run played.toml --trace plans/uniform.jsonl", "--trace would overwrite plans/uniform.jsonl"],
            ["sweep mine.toml --over cluster.profile=caps.json --json caps.json", "--json would overwrite caps.json"],
            ["tune tuned/1.toml --verify 1 --out-dir tuned", "--out-dir would overwrite tuned/1.toml"],
            ["advise run.jsonl --plan advice/recorded.jsonl", "recorded.jsonl would overwrite an input"],
        ],
    )
    assert before == {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    # A policy's name is no file, and devices have nothing to lose.
    for command, *options in (
        ("plan", "--policy", "uniform", "--out", "uniform"),
        ("compare", "--json", "/dev/null", "--csv", "/dev/null"),
    ):
        for _ in range(2):
            subprocess.run([STEPSIM, command, SCENARIO, *options, "--quiet"], check=True)


EVIL = "\\u001b]0;x\\u0007\\u001b[2J\\u009b5m\\u007f\\r"
EVIL_SCENARIO = f"""
[scenario]
name = "{EVIL}scenario"
question = "{EVIL}"
steps = 3
[cluster]
ranks = 2
topology = {{ algorithm = "ring", intra_latency = "2 us", intra_bandwidth = "50 GB/s" }}
[model]
kind = "blocks"
name = "{EVIL}model"
layers = 2
block_elements = 1000
[times]
forward = "10 ms"
backward = "20 ms"
[data]
samples = 40
lengths = {{ constant = 10 }}
[[policy]]
name = "{EVIL}policy"
kind = "fixed"
batch_size = 4
"""


@advise_test.in_folder_of_ranks
def test_no_control_character_of_a_file_is_printed(folder):
    (folder / "evil.toml").write_text(EVIL_SCENARIO, encoding="utf-8")
    run = folder / "evil.jsonl"
    advise_test.write(run, advise_test.header(policy=EVIL.encode().decode("unicode_escape")), advise_test.training())
    profile = (pathlib.Path(SCENARIOS) / "profiles" / "cpu_epyc_2core_2ranks.json").read_text(encoding="utf-8")
    (folder / "evil.json").write_text(profile.replace('"name": "', f'"name": "{EVIL}'), encoding="utf-8")
    forms = ["", " --json -", " --csv -"]
    commands = [
        *(STEPSIM + " run evil.toml" + form for form in forms),
        *(STEPSIM + " compare evil.toml" + form for form in forms),
        *(STEPSIM + " sweep evil.toml --over ddp.bucket_cap=1MiB,2MiB" + form for form in forms),
        *(STEPSIM + " blame evil.toml" + form for form in forms),
        *(STEPSIM + " ladder evil.toml --shape-cost 5ms" + form for form in forms),
        *(STEPSIM + " buckets evil.toml" + form for form in forms),
        STEPSIM + " lengths evil.toml",
        STEPSIM + " tune evil.toml",
        STEPSIM + " run evil.toml --policy x",
        STEPSIM + " plan evil.toml --out-dir plans",
        STEPSIM + " trace evil.toml --out trace.json",
        STEPSIM + " validate evil.toml --live evil.jsonl",
        STEPSIM + f" run {SCENARIO} --profile evil.json",
        STEPSIM + " advise evil.jsonl",
        STEPCAL + " import run-record evil.jsonl --profile mine.json",
        STEPCAL + " check --profile evil.json",
    ]
    shown = 0
    for command in commands:
        for colour in ("0", "1"):
            environment = {**os.environ, "CLICOLOR_FORCE": colour, "PYTHONUTF8": "1"}
            result = subprocess.run(command.split(), capture_output=True, env=environment, timeout=120)
            text = (result.stdout + result.stderr).decode("utf-8")
            shown += "\\x1b]0;x" in text
            left = re.sub("\x1b\\[(0|1|2|3[1-6])m", "", text) if colour == "1" else text
            controls = re.findall("[\x00-\x08\x0b-\x1f\x7f-\x9f]", left)
            assert not controls, (command, controls, text)
    assert shown > len(commands) / 2  # The names are there, as text.


if __name__ == "__main__":
    sys.exit(small_runner.main(dict(globals())))
