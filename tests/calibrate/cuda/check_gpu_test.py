"""All stages of check_gpu on devices emulated on the host: each ends with its archive.

usage: check_gpu_test.py STEPCAL_EMULATED STEPSIM TEST_CUDA_EMULATED
"""

import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time

import rehearsal

sys.path.insert(0, str(rehearsal.ROOT / "calibrate/cuda"))
import torch_libraries  # noqa: E402  (needs the path above)

failures = []


def check(condition, text):
    print(("ok    " if condition else "FAIL  ") + text, flush=True)
    if not condition:
        failures.append(text)


def has_torch():
    return subprocess.run([rehearsal.PYTHON, "-c", "import torch"], check=False, capture_output=True).returncode == 0


def contents(archive):
    """Returns the text of each file by its name in the stage's folder."""
    with tarfile.open(archive) as packed:
        return {
            member.name.split("/", 1)[1]: packed.extractfile(member).read().decode(errors="replace")
            for member in packed
            if member.isfile()
        }


def parts_of(files):
    """Returns (name, status, seconds) of each part, in order."""
    return [tuple(line.split("\t")[:3]) for line in files["parts.tsv"].splitlines()[1:]]


def cases_that_hold_a_stream():
    """The test cases of tests/gpu that hold a stream until they have launched."""
    for path in (rehearsal.ROOT / "tests/gpu").glob("*_test.cpp"):
        for case in path.read_text(encoding="utf-8").split("TEST_CASE(")[1:]:
            if re.search(r"StreamHold|CollectiveTimer|probe_overlaps", case):
                yield case.split('"')[1]


# Files that a stage's archive must hold.
EXPECTED = {
    "smoke": ["environment.txt", "devices.txt", "hold.txt", "product.txt", "masked_attention.txt", "samples.jsonl"],
    "kernels": ["cases.txt", "case_04.txt", "sanitizer.txt"],
    "steps": ["samples.jsonl", "profile.json", "prediction.json", "check.txt"],
    "torch": ["gpt2/samples.jsonl", "gpt2/profile.json", "gpt2/live/fixed.jsonl", "gpt2.validate.txt", "bert/prediction.json", "bert.validate.txt",
              "user_models.txt"],
    "speeds": ["gpu_bench.txt"],
}  # fmt: skip
# Planted: a case that fails is explained, one that hangs is stopped, and both stop nothing.
PLANTED = [f"case_0{number}{what}" for number in (1, 2, 3) for what in ("", ".explained")]
# An error outside its bound is an answer, not a failure: on emulated devices, times mean nothing.
MAY_FAIL = ("check", "gpt2.validate", "bert.validate")


def smoke_without_a_gpu():
    """The parts of stage smoke where the driver is too old for the libraries: every test is skipped."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for script in ("check_gpu", "check_gpu_stage.sh"):
            shutil.copy(rehearsal.ROOT / "calibrate/cuda" / script, folder)
        for program, text in (
            ("stepcal", "echo 'cuda    none: CUDA driver version is insufficient'"),
            ("test_gpu", "exit 77"),
            ("stepsim", "exit 0"),
            ("with_cuda", 'exec "$@"'),
        ):
            rehearsal.write_script(folder / program, f"#!/bin/sh\n{text}\n")
        environment = {**rehearsal.environment(folder / "work", 5), "PYTHON": "false"}
        subprocess.run([folder / "check_gpu", "smoke", folder / "out"],
                       env=environment, capture_output=True, check=False, timeout=60)  # fmt: skip
        return parts_of(contents(folder / "out/smoke.tar.gz"))


# What PyTorch gives to cuBLASLt is in the library's log.
LOG = "[Api][cublasLtSSSMatmulAlgoGetHeuristic] Adesc=[type=R_16BF] preference=[maxWavesCount=0.0 " \
      "maxWorkspaceSizeinBytes=1048576 minBytesAlignmentA=16] computeDesc=[]\n"  # fmt: skip
check(torch_libraries.workspace_of("nothing") is None and torch_libraries.workspace_of(LOG) == 2**20,
      "cuBLASLt's log tells its workspace")  # fmt: skip
check(("devices", "failed", "0") in smoke_without_a_gpu(), "no GPU in the list of devices is a failure")

# check_gpu knows by these words which cases launches must not block.
nameless = [case for case in cases_that_hold_a_stream() if not re.search("held|timed", case)]
check(not nameless, f"cases that hold a stream say so {nameless or ''}")

with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
    rehearsal.make_bundle(folder / "bundle", *sys.argv[1:4])
    # Of this machine's own build, which is linked with Debian's libraries.
    lacks = subprocess.run(
        [rehearsal.ROOT / "calibrate/cuda/check_bundle", folder / "bundle", "--libraries-only"],
        capture_output=True, text=True, check=False)  # fmt: skip
    check(lacks.returncode == 1 and "stepsim needs " in lacks.stderr,
          f"libraries that a GPU machine may lack are noticed {lacks.stderr.splitlines()[:1]}")
    environment = rehearsal.environment(folder / "work", 2)
    for stage, expected in EXPECTED.items():
        if stage == "torch" and not has_torch():
            print(f"SKIPPED: stage torch: {rehearsal.PYTHON} has no torch")
            continue
        begin = time.monotonic()
        done = subprocess.run(
            [folder / "bundle/check_gpu", stage, folder / "out"],
            env=environment, capture_output=True, text=True, check=False, timeout=250)  # fmt: skip
        took = time.monotonic() - begin
        archive = folder / f"out/{stage}.tar.gz"
        check(archive.exists(), f"{stage}: an archive")
        files = contents(archive) if archive.exists() else {"parts.tsv": ""}
        slow = ", ".join(f"{name} {seconds} s" for name, _, seconds in parts_of(files) if float(seconds) >= 1)
        print(f"stage {stage}: {took:.1f} s ({slow})")
        lacking = [file for file in expected if file not in files]
        check(not lacking, f"{stage}: everything is in it {lacking or ''}")
        failed = [part for part in parts_of(files)
                  if part[1] not in ("0", "skipped") and part[0] not in MAY_FAIL]  # fmt: skip
        if stage == "kernels":
            statuses = [part[1] for part in failed if part[0] in PLANTED]
            expected = ["1", "1", "1", "1", "124", "124"]
            check(statuses == expected, f"planted cases fail, and are stopped {statuses}")
            for case, blocks in (("case_01", 1), ("case_02", 0)):
                explained = files.get(f"{case}.explained.txt", "")
                check(f"launches block: {blocks}" in explained, f"{case} runs again with logs")
            failed = [part for part in failed if part[0] not in PLANTED]
        check(not failed, f"{stage}: every part succeeded {failed or ''}")
        for part, *_ in failed:
            print(files.get(part + ".txt", "")[-3000:])
        if failed or lacking:
            print(done.stdout[-3000:], done.stderr[-3000:])
        check("ended" in files.get("stage.txt", ""), f"{stage}: the archive is of its end")
    left = sorted(file.name for file in (folder / "out").iterdir())
    check(all(file.endswith(".tar.gz") for file in left), f"nothing but archives comes back: {left}")

print(f"{len(failures)} failed")
sys.exit(1 if failures else 0)
