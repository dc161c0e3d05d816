"""Steps of a training as numbers for W&B, trackio, MLflow, TensorBoard or Prometheus, while it runs.

    recorder = Recorder("run", model=ddp, loader=loader, on_row=StepLog(wandb.log))

Every ten steps rank 0 hands a dict to each sink, a function of one dict:

    stepsim/step                  the last step of the ten
    stepsim/useful_tokens_per_s   of all ranks, without padding
    stepsim/useful_share          useful tokens over padded ones
    stepsim/step_ms               of the slowest rank, mean of the steps
    stepsim/loading_ms, forward_ms, backward_ms, optimizer_ms    mean of ranks and steps
    stepsim/waiting_ms            of that rank's wait, for slower ranks; mean of the ranks
    stepsim/exposed_ms            the wait that even the last rank has, for the reduction itself
    stepsim/token_skew            padded tokens of the fullest rank over the mean
    stepsim/tflops, stepsim/mfu   of a rank; where flops_per_token and peak_tflops are given

Needs torch alone. Ranks tell each other their sums through the key-value store of the process group:
no collective is used, nobody waits, and what has not arrived yet is logged later.
"""

import contextlib
import json
import os
import sys
import tempfile

import torch.distributed as dist

_PARTS = ("data_ms", "forward_ms", "backward_ms", "optimizer_ms")
_NAMES = {"data_ms": "loading_ms"}
_runs = 0  # StepLogs of this process: each has keys of its own in the store.


class StepLog:
    """Takes a recorder's rows (`on_row`) and hands sums of them to sinks.

    Args:
        sinks: Functions of one dict: wandb.log, trackio.log, or what mlflow_sink(),
            tensorboard_sink() and prometheus_sink() return. An error in one is printed once and ends
            the log, not the training.
        every: Steps that are taken together.
        flops_per_token: Of the model, forward and backward of one token: 6 for each parameter that is
            multiplied with it, beside attention. `stepsim run` prints TFLOP/s by the whole formula.
        peak_tflops: Of one device in the type that it computes in, dense: 989 for an H100 in bf16.
    """

    def __init__(self, *sinks, every=10, flops_per_token=None, peak_tflops=None):
        global _runs
        _runs += 1
        self._sinks, self._every = sinks, max(1, int(every))
        self._flops, self._peak = flops_per_token, peak_tflops
        self._rows, self._told, self._failed = [], [], False
        self._number, self._run = 0, _runs

    def __call__(self, row):
        """Takes one row, as Recorder writes it."""
        if self._failed:
            return
        try:
            self._rows.append(row)
            if len(self._rows) == self._every:
                self._tell()
            if self._told:
                self._log()
        except Exception as error:  # pylint: disable=broad-except
            self._failed = True
            print(f"stepsim log: nothing more is logged: {type(error).__name__}: {error}", file=sys.stderr, flush=True)

    def _tell(self):
        """Hands this rank's sums to rank 0."""
        rows, self._rows = self._rows, []
        sums = {
            "step": rows[-1]["step"],
            "useful": [row["useful_tokens"] for row in rows],
            "padded": [row["padded_tokens"] for row in rows],
            "step_ms": [row["step_ms"] for row in rows],
            "wait_ms": [row.get("wait_ms", 0.0) for row in rows],
            "parts": {part: sum(row[part] for row in rows) / len(rows) for part in _PARTS},
        }
        rank, ranks, store = _group()
        if rank == 0:
            self._told.append(sums)
        else:
            store.set(self._key(self._number, rank), json.dumps(sums))
            store.add(self._key(self._number, "told"), 1)
        self._number += 1

    def _key(self, number, what):
        return f"stepsim_log/{self._run}/{number}/{what}"

    def _log(self):
        """Logs what all ranks have told, the oldest first; the rest waits for a later row."""
        _, ranks, store = _group()
        while self._told:
            number = self._number - len(self._told)
            if ranks > 1 and store.add(self._key(number, "told"), 0) < ranks - 1:
                return
            told = [self._told.pop(0)]
            for rank in range(1, ranks):
                key = self._key(number, rank)
                told.append(json.loads(store.get(key)))
                with contextlib.suppress(Exception):  # Not every store can.
                    store.delete_key(key)
            values = self._values(told)
            for sink in self._sinks:
                sink(values)

    def _values(self, told):
        steps, ranks = len(told[0]["step_ms"]), len(told)
        longest = [max(sums["step_ms"][i] for sums in told) for i in range(steps)]
        useful = sum(sum(sums["useful"]) for sums in told)
        padded = [[sums["padded"][i] for sums in told] for i in range(steps)]
        # All ranks' reductions end together, so the last rank waits for the transfer alone.
        shortest = [min(sums["wait_ms"][i] for sums in told) for i in range(steps)]
        wait = sum(sum(sums["wait_ms"]) for sums in told) / ranks
        values = {
            "step": told[0]["step"],
            "useful_tokens_per_s": 1e3 * useful / max(sum(longest), 1e-9),
            "useful_share": useful / max(sum(map(sum, padded)), 1),
            "step_ms": sum(longest) / steps,
            "waiting_ms": (wait - sum(shortest)) / steps,
            "exposed_ms": sum(shortest) / steps,
            "token_skew": sum(max(one) * ranks / max(sum(one), 1) for one in padded) / steps,
        }
        for part in _PARTS:
            values[_NAMES.get(part, part)] = sum(sums["parts"][part] for sums in told) / ranks
        if self._flops is not None:
            values["tflops"] = self._flops * values["useful_tokens_per_s"] / ranks / 1e12
            if self._peak is not None:
                values["mfu"] = values["tflops"] / self._peak
        return {f"stepsim/{name}": value for name, value in values.items()}


def of_advice(advice):
    """Returns an advice (of Advisor or stepsim.advise) as numbers for the same sinks."""
    now, *others = advice.options
    values = {"now_step_ms": now.step_ms, "now_useful_tokens_per_s": now.useful_tokens_per_s}
    if others:
        best = max(others, key=lambda one: one.gain)
        values.update(best_gain=best.gain, best_gain_low=best.gain_interval90[0], best_gain_high=best.gain_interval90[1])
    return {f"stepsim/{name}": value for name, value in values.items()}


def mlflow_sink(log_metrics):
    """Args: log_metrics: mlflow.log_metrics."""
    return lambda values: log_metrics(values, step=int(values.get("stepsim/step", 0)))


def tensorboard_sink(writer):
    """Args: writer: A SummaryWriter."""

    def sink(values):
        step = int(values.get("stepsim/step", 0))
        for name, value in values.items():
            writer.add_scalar(name, value, step)

    return sink


def prometheus_sink(path, **labels):
    """Keeps the latest values in a text file, for the textfile collector of Prometheus' node_exporter.

    Args:
        path: A file that ends with .prom, in the collector's folder. It is replaced as a whole.
        labels: Of every value: job="llama-1b".
    """
    quoted = {key: str(value).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") for key, value in labels.items()}
    inside = ",".join(f'{key}="{value}"' for key, value in quoted.items())
    inside = "{" + inside + "}" if inside else ""

    def sink(values):
        lines = []
        for name, value in values.items():
            metric = name.replace("/", "_")
            lines += [f"# TYPE {metric} gauge", f"{metric}{inside} {float(value)!r}"]
        folder = os.path.dirname(os.path.abspath(path))
        with tempfile.NamedTemporaryFile("w", dir=folder, suffix=".tmp", delete=False, encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")
        os.chmod(file.name, 0o644)
        os.replace(file.name, path)

    return sink


def _group():
    """Returns (rank, ranks, the key-value store)."""
    if not (dist.is_available() and dist.is_initialized()) or dist.get_world_size() == 1:
        return 0, 1, None
    return dist.get_rank(), dist.get_world_size(), dist.distributed_c10d._get_default_store()
