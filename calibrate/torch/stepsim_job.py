"""What a rank trains: your own model, as a file of functions gives it, a family that Stepsim knows,
or one of transformers.
stepsim_calibrate.py and stepsim_live.py import it; it needs only torch and, beside it, stepsim_ranks.py,
stepsim_recorder.py, stepsim_models.py and stepsim_transformers.py; for models of transformers also that.
"""

import collections
import contextlib
import importlib.util
import inspect
import os
import sys
import traceback
import types

if __package__:  # A module of the package stepsim …
    from . import stepsim_ranks  # First: it says so where there is no PyTorch.
    from . import stepsim_models, stepsim_transformers
else:  # … or a file by itself, with the others beside it.
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    import stepsim_ranks  # First: it says so where there is no PyTorch.
    import stepsim_models
    import stepsim_transformers

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

BadInput = stepsim_ranks.BadInput
MIB = 2**20
DEFAULT_CAP = 25 * MIB
DDP_FLAGS = {  # With DDP's defaults; only others are passed, since arguments come and go.
    **{"gradient_as_bucket_view": False, "find_unused_parameters": False},
    **{"static_graph": False, "broadcast_buffers": True},
}
SETTINGS = ("loss", "make_optimizer", "ddp", "comm_hook", "precision")  # What a file may define.


Shape = collections.namedtuple("Shape", "samples length lengths runs", defaults=(1,))


class UserError(Exception):
    """A function of the user failed; its traceback is in __cause__."""


class Job:
    """What the user gave: functions and settings."""

    def __init__(
        self,
        make_model,
        make_batch,
        loss=None,
        make_optimizer=None,
        ddp=types.MappingProxyType({}),
        comm_hook=None,
        precision="none",
        where="",
    ):
        if precision not in ("none", "bf16", "fp16"):
            raise BadInput(f"precision: expected none, bf16 or fp16, got {precision!r}")
        self.functions = {
            "make_model": make_model,
            "make_batch": make_batch,
            "loss": loss or default_loss,
            "make_optimizer": make_optimizer or default_optimizer,
        }
        self.ddp, self.comm_hook, self.precision, self.where = ddp, comm_hook, precision, where
        try:
            self.takes_lengths = "lengths" in inspect.signature(make_batch).parameters
        except ValueError:
            self.takes_lengths = False

    def call(self, name, *arguments, **named):
        """Calls a function of the user. Raises UserError, but running out of memory passes."""
        try:
            return self.functions[name](*arguments, **named)
        except Exception as error:
            if stepsim_ranks.is_out_of_memory(error):
                raise
            given = [repr(one) for one in arguments if isinstance(one, (int, torch.device))]
            text = f"{name}({', '.join(given)}){self.where} failed"
            raise UserError(f"{text}: {type(error).__name__}: {error}") from error

    def batch(self, shape, device):
        more = {"lengths": list(shape.lengths)} if self.takes_lengths else {}
        return self.call("make_batch", shape.samples, shape.length, device, **more)

    def loss(self, model, batch):
        value = self.call("loss", model, batch)
        if not (torch.is_tensor(value) and value.dim() == 0 and value.requires_grad):
            raise UserError(f"loss(){self.where}: expected one number with a gradient; got {value}")
        return value


def default_loss(model, batch):
    """Takes the model's output, its .loss or its "loss"."""
    if isinstance(batch, dict) or hasattr(batch, "keys"):
        output = model(**batch)
    else:
        output = model(*batch) if isinstance(batch, (tuple, list)) else model(batch)
    if not torch.is_tensor(output):
        output = output["loss"] if isinstance(output, dict) else output.loss
    return output


def default_optimizer(parameters):
    return torch.optim.AdamW(parameters, lr=1e-6)


def autocast(precision, device):
    """The context of forward and loss."""
    if precision == "none":
        return contextlib.nullcontext()
    dtype = torch.bfloat16 if precision == "bf16" else torch.float16
    return torch.autocast(device.type, dtype=dtype)


def make_scaler(precision, device):
    """The gradient scaler of a training in 16-bit floats on a GPU; None elsewhere."""
    if precision != "fp16" or device.type != "cuda":
        return None
    if hasattr(torch, "amp") and hasattr(torch.amp, "GradScaler"):
        return torch.amp.GradScaler("cuda")
    return torch.cuda.amp.GradScaler()


def ddp_arguments(ddp):
    """DistributedDataParallel's arguments that make the planned buckets. Since PyTorch 2.11, and in Debian's
    2.6, a stated cap limits the first bucket, too; check_buckets() tells where another one was planned
    and no list of caps is known."""
    told = {name: ddp.get(name, default) for name, default in DDP_FLAGS.items()}
    arguments = {name: value for name, value in told.items() if value != DDP_FLAGS[name]}
    limits = ddp.get("bucket_limits", [MIB, DEFAULT_CAP])
    first, cap = limits[0], limits[-1]
    if len(limits) <= 2:
        dist._DEFAULT_FIRST_BUCKET_BYTES = first  # pylint: disable=protected-access
        if cap == DEFAULT_CAP:
            return arguments
        version = tuple(int(one) for one in torch.__version__.split("+")[0].split(".")[:2])
        if version < (2, 11) or first == cap:
            return {**arguments, "bucket_cap_mb": cap / MIB}
    if "bucket_cap_mb_list" not in torch.nn.parallel.DistributedDataParallel.__init__.__code__.co_varnames:
        raise BadInput(
            f"PyTorch {torch.__version__} has no bucket_cap_mb_list, which the plans' buckets need "
            f"(limits in bytes: {', '.join(map(str, limits))})"
        )
    return {**arguments, "bucket_cap_mb_list": [limit / MIB for limit in limits]}


def load_module(path):
    """Runs the user's file. Raises UserError, and BadInput where a function is missing."""
    if not os.path.isfile(path):
        raise BadInput(f"{path}: no such file")
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    spec = importlib.util.spec_from_file_location("user_model", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["user_model"] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise UserError(f"{path}: {type(error).__name__}: {error}") from error
    for name in ("make_model()", "make_batch(samples, length, device)"):
        if not callable(getattr(module, name.split("(", maxsplit=1)[0], None)):
            raise BadInput(f"{path}: defines no {name}")
    return module


def job_of_file(path):
    """The job that a user's file describes, as Job takes it. Raises UserError, BadInput."""
    module = load_module(path)
    settings = {name: getattr(module, name) for name in SETTINGS if hasattr(module, name)}
    settings.update(make_model=module.make_model, make_batch=module.make_batch)
    return {**settings, "where": f" of {path}"}


def job_of_family(config, optimizer, device):
    """The job of a plan's "model" and "optimizer", as Job takes it. Raises CannotTrain."""
    short = {"bf16": "bf16", "f16": "fp16"}.get(config["dtype"], "none")
    job = {
        "make_optimizer": lambda parameters: stepsim_models.make_optimizer(optimizer, parameters),
        "precision": "none" if config["parameter_dtype"] == config["dtype"] else short,
    }
    return {**job, **(of_transformers if config["family"] == "transformers" else of_family)(config, device)}


def of_family(config, device):
    """What job_of_family() takes of a family that Stepsim knows itself."""
    stepsim_models.check(config, device)

    def make_batch(samples, length, device, lengths):  # pylint: disable=unused-argument
        return stepsim_models.make_batch(config, lengths, length, device)

    return {
        "make_model": lambda: stepsim_models.make_model(config, device),
        "make_batch": make_batch,
        "loss": lambda model, batch: model(*batch),
    }


def of_transformers(config, device):
    """The same of a model of transformers, by its config.json."""
    stepsim_transformers.check()
    own = stepsim_transformers.configuration(config["config"])
    dtype = stepsim_models.DTYPES[config["parameter_dtype"]]

    def make_batch(samples, length, device, lengths):  # pylint: disable=unused-argument
        return stepsim_transformers.make_batch(config["architecture"], own, lengths, length, device, dtype)

    return {
        "make_model": lambda: stepsim_transformers.make_model(config, device),
        "make_batch": make_batch,
        "loss": stepsim_transformers.loss,
    }


def main(run, options):
    """Ends the process with the exit status of outcome()."""
    stepsim_ranks.leave(outcome(run, options))


def outcome(run, options):
    """Calls run(options) and prints what goes wrong. Returns the exit status: 2 for bad input, 3 where a
    rank failed."""
    try:
        return run(options)
    except UserError as error:
        if error.__cause__ is not None:
            traceback.print_exception(
                type(error.__cause__), error.__cause__, error.__cause__.__traceback__
            )
        print(f"error: {error}", file=sys.stderr, flush=True)
    except (BadInput, stepsim_models.CannotTrain) as error:
        if os.environ.get("RANK", "0") == "0":  # All ranks find the same.
            print(f"error: {error}", file=sys.stderr, flush=True)
    except stepsim_ranks.RankFailed as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        return 3
    return 2
