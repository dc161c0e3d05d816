#!/usr/bin/env python3
"""Compares what `stepsim models CONFIG` says with the models that transformers builds.

usage: python3 tests/live/config_models.py --build BUILD [--write TINY.json.gz]

Every model of config_cases.py: tensors (name, shape, requires_grad, order) of the published sizes, built on the
meta device, from a whole config.json and from one with its model_type, class and own keys alone; tensors, order of
readiness (hooks) and operations (FlopCounterMode, forward and backward, eager attention) of the small ones, which
run. --write keeps the small ones for tests/sim/cli/models_test.py. It needs transformers 5, and runs with it.
"""

import argparse
import gzip
import json
import pathlib
import subprocess
import sys
import tempfile

import bucket_lists_rank as ranks
import config_cases
import torch
import transformers
from torch.utils.flop_counter import FlopCounterMode

SAMPLES, LENGTH = 2, 16
transformers.logging.set_verbosity_error()


def configured(name, keys):
    """Returns a class of transformers and its configuration."""
    kind = getattr(transformers, name)
    config = kind.config_class(**keys)
    config.architectures = [name]
    return kind, config


def tensors_of(model):
    """Returns [[name, shape, requires_grad], ...] in the order of named_parameters()."""
    return [[name, list(p.shape), p.requires_grad] for name, p in model.named_parameters()]


def whole_and_brief(config, keys):
    """Returns the configuration as it is written, and with all that transformers fills in left out."""
    whole = json.loads(config.to_json_string(use_diff=False))
    brief = {"model_type": config.model_type, "architectures": config.architectures, **keys}
    if "num_labels" in brief:
        labels = brief.pop("num_labels")
        brief["id2label"] = {str(i): f"LABEL_{i}" for i in range(labels)}
    return whole, brief


def published():
    """Yields (name, config, expected) of the published sizes, two of each."""
    for name, kind, keys in config_cases.PUBLISHED:
        kind, config = configured(kind, keys)
        with torch.device("meta"):
            expected = {"tensors": tensors_of(kind(config))}
        for suffix, written in zip(("", ", brief"), whole_and_brief(config, keys)):
            yield name + suffix, written, expected


def small():
    """Yields (name, config, expected) of the small models, each trained one step."""
    for name, kind, keys in config_cases.SMALL:
        torch.manual_seed(0)
        kind, config = configured(kind, keys)
        config._attn_implementation = "eager"  # pylint: disable=protected-access
        config._experts_implementation = "eager"  # pylint: disable=protected-access
        model = kind(config).train()
        names = {id(p): n for n, p in model.named_parameters()}
        order = []
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.register_post_accumulate_grad_hook(lambda p, into=order, of=names: into.append(of[id(p)]))
        batch = ranks.inputs_of({"config": config.to_dict()}, SAMPLES, LENGTH)
        counter = FlopCounterMode(display=False)
        with counter:
            model(**batch).loss.backward()
        expected = {"tensors": tensors_of(model), "ready_order": order, "flops": counter.get_total_flops()}
        yield name, whole_and_brief(config, keys)[1], expected


def told(build, config, folder):
    """Returns what `stepsim models` says of a configuration."""
    path = pathlib.Path(folder) / "config.json"
    path.write_text(json.dumps(config), encoding="utf-8")
    command = [f"{build}/sim/stepsim", "models", path, "--json", "-", "--samples", SAMPLES, "--length", LENGTH]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    if done.returncode:
        return {"error": done.stderr}
    answer = json.loads(done.stdout)
    answer["tensors"] = [[t["name"], t["shape"], t["requires_grad"]] for t in answer["tensors"]]
    return answer


def main():
    """Compares all models, prints those that differ, and ends with 1 if any does."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", required=True)
    parser.add_argument("--write")
    options = parser.parse_args()
    equal, of = {}, {}
    kept = []
    with tempfile.TemporaryDirectory() as folder:
        for kind, cases in (("published", published()), ("small", small())):
            for name, config, expected in cases:
                answer = told(options.build, config, folder)
                if kind == "small":
                    kept.append({"name": name, "config": config, **expected})
                for part, value in expected.items():
                    key = f"{kind}: {part}"
                    of[key] = of.get(key, 0) + 1
                    equal[key] = equal.get(key, 0) + (answer.get(part) == value)
                    if answer.get(part) != value:
                        print(f"{name}: {part} differ {answer.get('error', '')}")
    for key, count in of.items():
        print(f"{key}: {equal[key]} of {count} equal")
    if options.write:
        with open(options.write, "wb") as raw, gzip.GzipFile("", "wb", fileobj=raw, mtime=0) as file:
            file.write(json.dumps(kept, separators=(",", ":")).encode())
    sys.exit(equal != of)


if __name__ == "__main__":
    main()
