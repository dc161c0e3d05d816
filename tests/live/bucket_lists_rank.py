"""One of two ranks of bucket_lists.py: what DDP puts into its buckets, seen by a communication hook.

usage: bucket_lists_rank.py CASES.json RANK PORT OUT.json

Nothing is reduced: the hook hands the bucket back. So only the buckets cost memory, beside weights and gradients.
"""

import json
import os
import pathlib
import sys
import time
import types
import warnings

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "calibrate" / "torch"))
warnings.filterwarnings("ignore")
import stepsim_transformers  # noqa: E402
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import transformers  # noqa: E402
from transformers import initialization  # noqa: E402

transformers.logging.set_verbosity_error()


class WithUnused(torch.nn.Module):
    """A model beside layers that no step uses: some registered before it, some after."""

    def __init__(self, model, before, after):
        super().__init__()
        self.first = torch.nn.ParameterList(torch.nn.Parameter(torch.zeros(size)) for size in before)
        self.model = model
        self.last = torch.nn.ParameterList(torch.nn.Parameter(torch.zeros(size)) for size in after)

    def forward(self, **inputs):
        """Returns what the model does."""
        return self.model(**inputs)


class OfSeveralTypes(torch.nn.Module):
    """Layers one after another, each with weights of a type of its own."""

    def __init__(self, layers):
        super().__init__()
        self.layers = torch.nn.ModuleList(
            torch.nn.Linear(wide, wide, dtype=getattr(torch, dtype)) for dtype, wide in layers)

    def forward(self, input_ids, labels):
        """Returns what has a loss, as models of transformers do."""
        x = input_ids.float().mean()
        for layer in self.layers:
            x = layer(x.mean().to(layer.weight.dtype).expand(2, layer.in_features))
        return types.SimpleNamespace(loss=x.float().mean() * labels.float().mean())


def build(case):
    """Returns the model of a case."""
    torch.manual_seed(0)
    if "types" in case:
        return OfSeveralTypes(case["types"])
    config = transformers.AutoConfig.for_model(case["config"]["model_type"]).from_dict(case["config"])
    config._attn_implementation = "eager"  # pylint: disable=protected-access
    config._experts_implementation = "eager"  # pylint: disable=protected-access
    with initialization.no_init_weights():  # Values do not matter, and take minutes.
        model = getattr(transformers, case["config"]["architectures"][0])(config)
    model.tie_weights()
    for parameter in model.parameters():
        parameter.data.zero_()
    if "frozen" in case:
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(not any(part in name for part in case["frozen"]))
    if "unused" in case:
        model = WithUnused(model, *case["unused"])
    return model.train()


def inputs_of(case, samples=1, length=8):
    """Returns a batch for the class of a case: token ids, images or spectrograms, with labels."""
    (architecture,) = case["config"]["architectures"]
    config = stepsim_transformers.configuration(json.dumps(case["config"]))
    return stepsim_transformers.make_batch(architecture, config, [length] * samples, length, "cpu")


def bucket_lists(case):
    """Returns the names of the parameters in each bucket, of each of three iterations."""
    model = build(case)
    names = {id(p): n for n, p in model.named_parameters()}
    listed = [[n, list(p.shape), str(p.dtype), p.requires_grad] for n, p in model.named_parameters()]
    ready = []
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            parameter.register_post_accumulate_grad_hook(lambda p: ready.append(names[id(p)]))
    ddp = torch.nn.parallel.DistributedDataParallel(model, init_sync=False, **case.get("ddp", {}))
    seen = []

    def hook(_, bucket):
        seen[-1].append([names[id(p)] for p in bucket.parameters()])
        future = torch.futures.Future()
        future.set_result(bucket.buffer())
        return future

    ddp.register_comm_hook(None, hook)
    batch = inputs_of(case, length=case.get("tokens", 8))
    orders = []
    for _ in range(3):
        seen.append([])
        ready.clear()
        ddp(**batch).loss.backward()
        orders.append(list(ready))
        ddp.zero_grad()
    return {"tensors": listed, "ready": orders[0], "iterations": seen}


def main(cases, rank, port, out):
    """Runs all cases, and writes what rank 0 saw."""
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=int(rank), world_size=2)
    results = {}
    if os.path.exists(out):
        with open(out, encoding="utf-8") as file:
            results = json.load(file)  # A run that was cut off goes on.
    for case in json.load(open(cases, encoding="utf-8")):
        begin = time.time()
        if "iterations" in results.get(case["name"], {}):
            continue
        try:
            results[case["name"]] = bucket_lists(case)
        except Exception as error:  # pylint: disable=broad-exception-caught
            results[case["name"]] = {"error": repr(error)[:400]}
        dist.barrier()
        if rank == "0":
            results[case["name"]]["seconds"] = round(time.time() - begin, 1)
            json.dump(results, open(out, "w", encoding="utf-8"))
            print(case["name"], results[case["name"]].get("error", ""), results[case["name"]]["seconds"], flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
