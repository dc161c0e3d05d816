#!/usr/bin/env python3
"""The recorder with a model to which fully_shard was applied, on the CPU; PyTorch 2.8 or newer for most of it.

Run with RANK in the environment it is one rank of such a training: `torch_sharded_test.py CASE`.
"""

import json
import os
import pathlib
import sys
import types

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "calibrate" / "torch")]
import small_runner  # noqa: E402  (needs the path above)
import torch_store  # noqa: E402
import stepsim_recorder  # noqa: E402

STEPS = 4
BLOCKS, WIDTH = 2, 7  # Rows that do not divide: the last rank's shards are smaller.
SHARDS_ON_A_CPU = (2, 8)


# ---- one rank -------------------------------------------------------------------------------


def make_model():
    import torch

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = torch.nn.Embedding(11, WIDTH)
            self.layers = torch.nn.ModuleList(torch.nn.Linear(WIDTH, WIDTH) for _ in range(BLOCKS))
            self.norm = torch.nn.LayerNorm(WIDTH)
            self.head = torch.nn.Linear(WIDTH, 3)

        def forward(self, tokens):
            rows = self.embed(tokens)
            for layer in self.layers:
                rows = torch.relu(layer(rows))
            return self.head(self.norm(rows)).square().mean()

    torch.manual_seed(1)
    return Model()


def shard_blocks(model, mesh):
    from torch.distributed.fsdp import fully_shard

    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)


def shard_lists(model, mesh):
    import torch
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    types_of = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for layer in model.layers:
        fully_shard(layer, mesh=mesh, mp_policy=types_of)
    fully_shard([model.norm, model.head], mesh=mesh, mp_policy=types_of, reshard_after_forward=False)
    fully_shard(model, mesh=mesh, mp_policy=types_of)


def shard_whole(model, mesh):
    from torch.distributed.fsdp import fully_shard

    fully_shard(model, mesh=mesh, reshard_after_forward=True)


def train(model, recorder, inside=None):
    import torch

    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for number in range(STEPS):
        with recorder.step(lengths=[5, 3]):
            optimizer.zero_grad()
            tokens = torch.randint(0, 11, (2, 5))
            if inside is None:
                loss = model(tokens)
            else:
                with inside(number):
                    loss = model(tokens)
            recorder.backward(loss)
            optimizer.step()


def rank_main(case):
    import torch
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.debug import CommDebugMode

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    world = dist.get_world_size()
    sizes, names = ((2, world // 2), ("replicas", "shards")) if case == "hsdp" else ((world,), ("shards",))
    mesh = init_device_mesh("cpu", sizes, mesh_dim_names=names)
    model = make_model()
    {"lists": shard_lists, "whole": shard_whole}.get(case, shard_blocks)(model, mesh)
    if case == "hidden":  # As a PyTorch whose private parts have other names.
        del type(model.layers[0]).__mro__[1]._get_fsdp_state
    optimizer = torch.optim.AdamW(model.parameters())
    recorder = stepsim_recorder.Recorder(case, policy="fixed", model=model, optimizer=optimizer)
    train(model, recorder, (lambda _: CommDebugMode()) if case == "debug" else None)
    recorder.close()
    dist.barrier()
    dist.destroy_process_group()


# ---- tests ----------------------------------------------------------------------------------


def can_shard():
    import torch

    return tuple(int(one) for one in torch.__version__.split("+")[0].split(".")[:2]) >= SHARDS_ON_A_CPU


def recorded(case, ranks=2):
    """Returns the header and the rows that ranks made."""
    torch_store.torch_or_skip()
    if not can_shard():
        raise small_runner.Skip("this PyTorch has no fully_shard for CPUs")
    statuses, outputs = torch_store.run_ranks([sys.executable, os.path.abspath(__file__), case], ranks)
    assert statuses == [0] * ranks, outputs
    path = pathlib.Path(f"{case}.jsonl")
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    header, *rows = map(json.loads, lines or ["{}"])
    return header, rows, outputs


@small_runner.in_new_folder
def test_units_and_gathers_of_blocks():
    header, rows, _ = recorded("blocks")
    sharding = header["parallel"]
    expected = {
        "kind": "fsdp2", "units": "layers.0; layers.1", "replicas": 1, "shards": 2,
        "reshard_after_forward": "default", "param_dtype": "own", "reduce_dtype": "own",
        "reshard_by_unit": [None, None, None], "offload": False,
        "unit_modules": [[""], ["layers.0"], ["layers.1"]],
    }  # fmt: skip
    assert sharding == expected, sharding
    # Whole parameters and not this rank's rows of them.
    shapes = {one["name"]: one["shape"] for one in header["model"]["parameters"]}
    assert shapes["embed.weight"] == [11, WIDTH] and shapes["layers.1.weight"] == [WIDTH, WIDTH], shapes
    assert header["model"]["name"] == "Model" and "ddp" not in header, header
    assert len(rows) == 2 * STEPS
    for row in rows:
        assert [one["unit"] for one in row["gathers"]] == [0, 1, 2], row
        at = 0
        for one in row["gathers"]:
            assert at <= one["launch_ms"] < one["end_ms"], row
            assert 0 < one["cpu_ms"] <= one["end_ms"] - one["launch_ms"] + 0.2, row
            at = one["end_ms"]
        assert at <= row["data_ms"] + row["forward_ms"] + 1e-3, row


@small_runner.in_new_folder
def test_lists_types_and_kept_units():
    header, rows, _ = recorded("lists")
    sharding = header["parallel"]
    assert sharding["units"] == "layers.0; layers.1; norm + head", sharding
    assert sharding["kept_units"] == "norm + head" and sharding["reshard_after_forward"] == "default", sharding
    assert (sharding["param_dtype"], sharding["reduce_dtype"]) == ("bf16", "f32"), sharding
    assert all([one["unit"] for one in row["gathers"]] == [0, 1, 2, 3] for row in rows), rows


@small_runner.in_new_folder
def test_one_unit_and_replicas():
    sharding = recorded("whole")[0]["parallel"]
    assert (sharding["units"], sharding["reshard_after_forward"]) == ("model", "true"), sharding
    sharding = recorded("hsdp", ranks=4)[0]["parallel"]
    assert (sharding["replicas"], sharding["shards"], sharding["units"]) == (2, 2, "layers.0; layers.1"), sharding


@small_runner.in_new_folder
def test_what_pytorch_hides_is_a_note():
    sharding = recorded("hidden")[0]["parallel"]
    assert sharding["units"] == "layers.0; layers.1" and (sharding["replicas"], sharding["shards"]) == (1, 2)
    assert "reshard_after_forward" not in sharding, sharding
    assert "defaults and a unit for each module are assumed" in " ".join(sharding["notes"]), sharding


@small_runner.in_new_folder
def test_nothing_is_recorded_under_comm_debug_mode():
    _, rows, outputs = recorded("debug")
    assert rows == []
    for output in outputs:
        assert "CommDebugMode is on, under which fully_shard's hooks run in another order" in output, output


def told(names, kinds):
    """What the keys say of units with these settings; the root is named ""."""
    units = [([(name, None) for name in unit], None) for unit in names]
    settings = [{"reshard_after_forward": kind} for kind in kinds]
    return stepsim_recorder._reshard_keys(units, settings)  # pylint: disable=protected-access


def test_settings_of_units_become_keys():
    names = [[""], ["a"], ["b", "c"]]
    assert told(names, [None, None, None]) == {"reshard_after_forward": "default"}
    assert told(names, [True, True, True]) == {"reshard_after_forward": "true"}
    assert told(names, [False, False, False]) == {"reshard_after_forward": "false"}
    assert told(names, [4, 4, 4]) == {"reshard_after_forward": 4}
    assert told(names, [None, 4, 4]) is None and told(names, [4, 4, 2]) is None
    assert told(names, [None, True, False]) == {"reshard_after_forward": "default", "kept_units": "b + c"}
    assert told(names, [False, True, None]) == {"reshard_after_forward": "default"}
    assert told(names, [True, None, False]) == {"reshard_after_forward": "true", "kept_units": "b + c"}
    assert told(names, [False, True, False]) == {"reshard_after_forward": "true", "kept_units": "b + c; root"}
    assert told([[""]], [None]) == {"reshard_after_forward": "default"}
    assert told([[""]], [False]) == {"reshard_after_forward": "false"}
    assert told([[""]], [8]) == {"reshard_after_forward": 8}


def test_names_of_units_are_a_key():
    def text(*names):
        units = [([(name, None) for name in unit], None) for unit in names]
        return stepsim_recorder._units_text(units)  # pylint: disable=protected-access

    assert text([""], ["layers.0"], ["norm", "head"]) == "layers.0; norm + head"
    assert text([""]) == "model" and text(["model"]) == "mode[l]"


def test_without_fully_shard_there_are_no_units():
    module = types.SimpleNamespace(named_modules=lambda: [("", object())])
    assert stepsim_recorder._fsdp_units(module) == []  # pylint: disable=protected-access


if __name__ == "__main__":
    if "RANK" in os.environ:
        rank_main(sys.argv[1])
    else:
        sys.exit(small_runner.main(dict(globals())))
