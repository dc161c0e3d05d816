"""Makes the advice of stepsim.torch.Advisor in a process of its own: `python -m stepsim._background
FOLDER`, where FOLDER holds request.json, the ranks' lines and all_reduce.log, if there is one.

It writes to the request's "out_dir": run.jsonl, what `stepsim advise` keeps, advice.html and, last,
advice.json and advice.txt. What is wrong goes to standard error; the exit status is then 2.
"""

import importlib.util
import json
import os
import pathlib
import shutil
import sys
import warnings

from . import _core, advise
from .errors import InputError, MachineError
from .records import Profile


def _merge(paths, out):
    """Calls the recorder's merge(); stepsim.torch would import torch, which takes seconds."""
    file = pathlib.Path(__file__).with_name("torch") / "stepsim_recorder.py"
    spec = importlib.util.spec_from_file_location("stepsim_recorder", file)
    recorder = importlib.util.module_from_spec(spec)
    sys.modules["torch"] = None  # It merges without.
    spec.loader.exec_module(recorder)
    recorder.merge(paths, out)


def _make(folder):
    request = json.loads((folder / "request.json").read_text(encoding="utf-8"))
    out = pathlib.Path(request["out_dir"])
    out.mkdir(parents=True, exist_ok=True)
    for name in ("advice.html", "advice.json", "advice.txt"):  # Of a run before.
        (out / name).unlink(missing_ok=True)
    record = out / "run.jsonl"
    _merge([folder / name for name in request["rank_files"]], record)
    base = request["base"]
    log = folder / "all_reduce.log"
    if log.exists():
        shutil.copyfile(log, out / "all_reduce.log")
        base = out / "all_reduce.json"
        Profile._imported("nccl-tests", [os.fspath(log)], "--profile", base)
    answer = advise(record, out_dir=out, lengths=request["lengths"], base=base,
                    price_per_hour=request["price_per_hour"], progress=False)
    try:
        answer.page(out / "advice.html")
    except MachineError as error:
        print(f"no page: {error}", file=sys.stderr)
    _core.write_text(os.fspath(out / "advice.json"), answer.to_json())
    _core.write_text(os.fspath(out / "advice.txt"), answer.report())


def main():
    folder = pathlib.Path(sys.argv[1])
    os.nice(19)
    warnings.formatwarning = lambda message, *_, **__: f"warning: {message}\n"
    try:
        _make(folder)
    except (InputError, MachineError, ValueError, KeyError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    finally:
        shutil.rmtree(folder, ignore_errors=True)  # The training may have ended meanwhile.
    return 0


if __name__ == "__main__":
    sys.exit(main())
