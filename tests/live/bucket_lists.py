#!/usr/bin/env python3
"""Asks real DDP what it puts into its buckets, and compares that with `stepsim buckets`.

usage: python3 tests/live/bucket_lists.py --build BUILD --work FOLDER [--out REPORT.md] [--only TEXT]

Two ranks of gloo build each model of bucket_cases.py and run three iterations; a communication hook sees
GradBucket.parameters(). For MODELS ours is told by the config.json alone, for LISTED by a list of parameters with the
true order of readiness (`--params`). Lists are equal when all buckets have the same tensors in the same order. It
needs transformers 5 and a PyTorch that has DDP's bucket_cap_mb_list (2.11), and runs with both. A run that was cut off goes on where
it was, in the same folder.
"""

import argparse
import json
import pathlib
import subprocess
import sys

LIVE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(LIVE), str(LIVE.parent)]

import bucket_cases  # noqa: E402
import torch  # noqa: E402
import torch_store  # noqa: E402
import transformers  # noqa: E402

MIB = 1 << 20


def cases():
    """Returns all cases as their ranks read them, by name."""
    rows = {}
    for listed, models in ((False, bucket_cases.MODELS), (True, bucket_cases.LISTED)):
        for name, kind, keys, more in models:
            model_type = getattr(transformers, kind).config_class.model_type
            config = {"model_type": model_type, "architectures": [kind], **keys}
            rows[name] = {"name": name, "config": config, "listed": listed, **more}
    return rows


def ask_ddp(build_cases, work):
    """Runs two ranks, and returns what rank 0 saw."""
    path, out = work / "cases.json", work / "ddp.json"
    path.write_text(json.dumps(build_cases), encoding="utf-8")
    port = str(torch_store.free_port())
    ranks = [
        subprocess.Popen([sys.executable, LIVE / "bucket_lists_rank.py", path, str(rank), port, out])
        for rank in range(2)
    ]
    for rank in ranks:
        rank.wait()
    return json.loads(out.read_text(encoding="utf-8"))


class Ours:
    """What our program says."""

    def __init__(self, build, work):
        self.program, self.work = f"{build}/sim/stepsim", work

    def ask(self, *words):
        """Returns the JSON of an answer."""
        done = subprocess.run([self.program, *map(str, words), "--json", "-"], capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(done.stderr)
        return json.loads(done.stdout)

    def by_config(self, case):
        """Returns the initial and the rebuilt lists of a config.json."""
        (self.work / "config.json").write_text(json.dumps(case["config"]), encoding="utf-8")
        ddp = case.get("ddp", {})
        keys = ['torch = "newest"']
        keys += [f"{key} = true" for key in ("static_graph", "find_unused_parameters") if ddp.get(key)]
        if "bucket_cap_mb" in ddp:
            keys.append(f'bucket_cap = "{ddp["bucket_cap_mb"]} MiB"')
        if "bucket_cap_mb_list" in ddp:
            caps = ", ".join(f'"{cap} MiB"' for cap in ddp["bucket_cap_mb_list"])
            keys.append(f"bucket_caps = [{caps}]")
        scenario = self.work / "scenario.toml"
        scenario.write_text("\n".join([
            '[scenario]\nname = "buckets"\nsteps = 4\n[cluster]\nranks = 2\n[model]\nconfig = "config.json"',
            "[ddp]", *keys,
            "[data]\nsamples = 64\nlengths = { constant = 8 }\n[[policy]]\nname = \"fixed\"\nkind = \"fixed\"\nbatch_size = 1\n",
        ]), encoding="utf-8")
        names = [t["name"] for t in self.ask("models", self.work / "config.json")["tensors"] if t["requires_grad"]]
        answer = self.ask("buckets", scenario)
        return [[[names[i] for i in bucket] for bucket in answer[key]] for key in ("initial", "rebuilt")]

    def by_list(self, case, seen):
        """Returns both lists of parameters whose order of readiness was seen."""
        trained = [(name, shape, dtype) for name, shape, dtype, grad in seen["tensors"] if grad]
        names = [name for name, _, _ in trained]
        sizes = {"torch.float64": 8, "torch.float32": 4, "torch.bfloat16": 2, "torch.float16": 2}
        params = []
        for _, shape, dtype in trained:
            elements = 1
            for size in shape:
                elements *= size
            params.append({"bytes": elements * sizes[dtype], "dtype": dtype})
        ready = [names.index(name) for name in seen["ready"]]
        ddp = case.get("ddp", {})
        one = {"name": "case", "params": params, "ready_order": ready,
               "unused": sorted(set(range(len(names))) - set(ready))}
        cap = ddp.get("bucket_cap_mb", 25) * MIB
        one["limits"] = [m * MIB for m in ddp["bucket_cap_mb_list"]] if "bucket_cap_mb_list" in ddp else [
            cap if "bucket_cap_mb" in ddp else MIB, cap]
        if "bucket_cap_mb_list" not in ddp:
            one["first_bucket_bytes"], one["cap_bytes"] = one.pop("limits")
        path = self.work / "params.json"
        path.write_text(json.dumps({"cases": [one]}), encoding="utf-8")
        answer = self.ask("buckets", "--params", path)["case"]
        looks = ddp.get("find_unused_parameters") and not ddp.get("static_graph")
        initial = answer["initial_find_unused" if looks else "initial"]
        rebuilt = initial if looks else answer["rebuilt"]
        return [[[names[i] for i in bucket] for bucket in buckets] for buckets in (initial, rebuilt)]


def report(rows):
    """Returns the table of all cases."""
    def equal(place):
        return sum(1 for row in rows if row[place] == "equal")
    lines = [
        "# Bucket lists beside those of real DDP",
        "",
        f"Made by `tests/live/bucket_lists.py`: PyTorch {torch.__version__}, transformers {transformers.__version__}, "
        "two ranks of gloo. A communication hook saw `GradBucket.parameters()` of three iterations; a list is equal when "
        "every bucket has the same tensors in the same order. *config.json*: ours knows the file and nothing of the "
        "run; *list*: a list of parameters with the order of readiness that was seen. Widths are published ones "
        "unless the row says half or quarter; layers are few, and vocabularies cut, so that two ranks fit into memory "
        "(`tests/live/bucket_cases.py` has the keys of each).",
        "",
        f"{len(rows)} models: initial lists equal: {equal('initial')}, rebuilt ones: {equal('rebuilt')}.",
        "",
        "| model | class | told by | DDP | tensors | buckets at first, rebuilt | initial | rebuilt |",
        "|---|---|---|---|---|---|---|---|",
    ]
    lines += ["| " + " | ".join(str(row[key]) for key in (
        "name", "class", "by", "ddp", "tensors", "buckets", "initial", "rebuilt")) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def main():
    """Asks DDP, compares, and writes the report; 1 where any list differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", required=True)
    parser.add_argument("--work", required=True, type=pathlib.Path)
    parser.add_argument("--out")
    parser.add_argument("--only", default="")
    parser.add_argument("--ask-only", action="store_true", help="ask DDP, compare nothing")
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    chosen = {name: case for name, case in cases().items() if options.only in name}
    seen = ask_ddp(list(chosen.values()), options.work)
    if options.ask_only:
        return
    ours = Ours(options.build, options.work)
    rows = []
    for name, case in chosen.items():
        row = {"name": name, "class": "of its own" if "types" in case else f"`{case['config']['architectures'][0]}`",
               "by": "list" if case["listed"] else "config.json",
               "ddp": ", ".join(f"`{key}={value}`" for key, value in case.get("ddp", {}).items())}
        truth = seen[name]
        if "error" in truth:
            rows.append({**row, "tensors": "", "buckets": "", "initial": "failed", "rebuilt": truth["error"][:80]})
            continue
        true_lists = [truth["iterations"][0], truth["iterations"][-1]]
        row["tensors"] = sum(1 for tensor in truth["tensors"] if tensor[3])
        row["buckets"] = ", ".join(str(len(buckets)) for buckets in true_lists)
        lists = ours.by_list(case, truth) if case["listed"] else ours.by_config(case)
        for place, mine, true in zip(("initial", "rebuilt"), lists, true_lists):
            row[place] = "equal" if mine == true else "differs"
        rows.append(row)
    text = report(rows)
    if options.out:
        pathlib.Path(options.out).write_text(text, encoding="utf-8")
    print(text)
    sys.exit(any(row["initial"] != "equal" or row["rebuilt"] != "equal" for row in rows))


if __name__ == "__main__":
    main()
