"""From the records of a training to an answer."""

import os

from . import results
from ._ask import ask


def advise(records, out_dir="advice", lengths=None, base=None, plan=None, price_per_hour=None,
           progress=None, flops_per_token=None, config=None, peak_tflops=None) -> results.Advice:
    """Says what a training's steps are spent on, and the batching policy and bucket size that suit
    it, from the records of a few dozen of its steps.

    Args:
        records: The path of a run record, or the paths of all ranks' files.
        out_dir: A folder that keeps the profile, a scenario to edit and the predictions.
        lengths: A file with the tokens of each sample of the data set, one a line.
        base: A profile with all-reduce times.
        plan: What ran, for records without a model.
        price_per_hour: Of all ranks together.
        flops_per_token: Forward and backward of a useful token, for TFLOP/s and MFU; without it as
            the record's model says.
        config: The model's config.json, in place of that.
        peak_tflops: Of one device, dense, in the type that it computes in.

    Returns a results.Advice. Raises InputError where the records allow no answer.
    """
    paths = [records] if isinstance(records, (str, os.PathLike)) else list(records)
    options = {
        "records": [os.fspath(path) for path in paths],
        "out-dir": os.fspath(out_dir),
        "lengths": lengths and os.fspath(lengths),
        "base": base and os.fspath(base),
        "plan": plan and [os.fspath(plan)],
        "price-per-hour": price_per_hour,
        "flops-per-token": flops_per_token,
        "config": config and os.fspath(config),
        "peak-tflops": peak_tflops,
    }
    return results.Advice(ask("advise", options, None, progress))
