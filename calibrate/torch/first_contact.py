#!/usr/bin/env python3
"""Calibrates known models with stepsim_calibrate.py on a GPU, within minutes and without network.

    timeout 300 python3 first_contact.py OUT              # one CUDA device, one NCCL rank
    python3 first_contact.py OUT --small                  # a rehearsal on the CPU

A GPT-2-medium-like decoder, a BERT-like classifier whose padding is a mask, and Hugging Face's
GPT-2 where transformers is installed, in bf16 autocast; the first two also with cuDNN's attention
turned off, since its plans are what a new shape costs. Each case is a process of its own, so that
none meets the shapes of another or can stop it. OUT gets, as it goes, for each case NAME.jsonl (run
record), NAME.log (what it printed) and NAME.kernels.txt, and summary.json: the import's command,
exit status (4: a shape ran less than three times; give more --seconds or fewer --shapes) and
seconds of each case, and the versions.
"""

import argparse
import collections
import contextlib
import importlib.util
import json
import math
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time
import traceback

import torch
from torch import nn
from torch.nn import functional as F

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import stepsim_calibrate  # noqa: E402  (beside this file)
import stepsim_job  # noqa: E402

# Cases in their order, and their parts of the time: cuDNN may take a second to meet a shape.
CASES = {
    "gpt2": 3,
    "bert": 3,
    "gpt2_without_cudnn": 2,
    "bert_without_cudnn": 2,
    "hugging_face": 3,
}
RESERVE_S = 15  # For a case's start and end.
FEWEST_STEPS = 3  # Of a shape, the first meeting among them.
RAN_RARELY = 4  # The exit status.
# Samples and lengths of batches up to 1024 tokens long; some aligned, most not. The first ones alone
# span sizes and lengths.
SHAPES = (
    (16, 1024), (12, 700), (8, 500), (32, 256), (8, 128), (24, 333), (8, 1024), (8, 777), (16, 512),
    (4, 1000), (8, 250), (40, 200), (16, 129), (64, 128), (32, 65), (2, 600), (1, 1000), (6, 900),
)  # fmt: skip


def attention(query, key, value, mask):
    """Causal where there is no mask. PyTorch 1.13, on which this is rehearsed, lacks the kernel."""
    if hasattr(F, "scaled_dot_product_attention"):
        return F.scaled_dot_product_attention(
            query, key, value, attn_mask=mask, is_causal=mask is None
        )
    scores = query @ key.transpose(2, 3) / math.sqrt(query.shape[-1])
    if mask is None:
        mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
    return scores.masked_fill(~mask, -1e9).softmax(dim=-1) @ value


class Block(nn.Module):
    """A transformer block with the norms before attention and MLP."""

    def __init__(self, hidden, heads):
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(hidden)
        self.qkv = nn.Linear(hidden, 3 * hidden)
        self.proj = nn.Linear(hidden, hidden)
        self.norm2 = nn.LayerNorm(hidden)
        self.fc1 = nn.Linear(hidden, 4 * hidden)
        self.fc2 = nn.Linear(4 * hidden, hidden)

    def forward(self, rows, mask):
        batch, length, hidden = rows.shape
        parts = self.qkv(self.norm1(rows)).view(batch, length, 3, self.heads, hidden // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        context = attention(query, key, value, mask).transpose(1, 2)
        rows = rows + self.proj(context.reshape(batch, length, hidden))
        return rows + self.fc2(F.gelu(self.fc1(self.norm2(rows)), approximate="tanh"))


class Transformer(nn.Module):
    """Blocks between embeddings and a head. A decoder is causal; a classifier takes a mask."""

    def __init__(self, sizes, classes=None):
        super().__init__()
        layers, hidden, heads, vocab, positions = sizes
        self.tokens = nn.Embedding(vocab, hidden)
        self.positions = nn.Embedding(positions, hidden)
        self.blocks = nn.ModuleList(Block(hidden, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(hidden)
        self.classifier = nn.Linear(hidden, classes) if classes else None
        for table in (self.tokens, self.positions):
            nn.init.normal_(table.weight, std=0.02)

    def forward(self, tokens, mask, labels):
        places = torch.arange(tokens.shape[1], device=tokens.device)
        rows = self.tokens(tokens) + self.positions(places)
        for block in self.blocks:
            rows = block(rows, mask)
        if self.classifier is not None:
            return F.cross_entropy(self.classifier(self.norm(rows[:, 0])).float(), labels)
        logits = F.linear(self.norm(rows), self.tokens.weight)
        return F.cross_entropy(logits.float().flatten(0, 1), labels.flatten())


def random_tokens(samples, length, device, vocab):
    return torch.randint(1, vocab, (samples, length), device=device)


def decoder_case(small):
    sizes = (2, 64, 4, 512, 1024) if small else (24, 1024, 16, 50257, 1024)

    def make_batch(samples, length, device):
        tokens = random_tokens(samples, length, device, sizes[3])
        return tokens, None, tokens.roll(-1, dims=1)

    return lambda: Transformer(sizes), make_batch, 1024


def classifier_case(small):
    sizes = (2, 64, 4, 512, 512) if small else (12, 768, 12, 30522, 512)

    def make_batch(samples, length, device, lengths):
        own = torch.tensor(lengths, device=device)[:, None]
        mask = (torch.arange(length, device=device)[None, :] < own)[:, None, None, :]
        labels = torch.randint(0, 2, (samples,), device=device)
        return random_tokens(samples, length, device, sizes[3]), mask, labels

    return lambda: Transformer(sizes, classes=2), make_batch, 512


def hugging_face_case(small):
    from transformers import GPT2Config, GPT2LMHeadModel  # pylint: disable=import-outside-toplevel

    sizes = {"n_layer": 2, "n_embd": 64, "n_head": 4, "vocab_size": 512}
    if not small:
        sizes = {"n_layer": 24, "n_embd": 1024, "n_head": 16, "vocab_size": 50257}
    config = GPT2Config(n_positions=1024, use_cache=False, **sizes)

    def make_batch(samples, length, device, lengths):
        tokens = random_tokens(samples, length, device, sizes["vocab_size"])
        own = torch.tensor(lengths, device=device)[:, None]
        mask = (torch.arange(length, device=device)[None, :] < own).long()
        labels = torch.where(mask > 0, tokens, -100)
        return {"input_ids": tokens, "attention_mask": mask, "labels": labels}

    return lambda: GPT2LMHeadModel(config), make_batch, 1024


def shapes_of(longest, count, small):
    """Shapes with samples of unequal lengths, up to `longest`."""
    shapes = []
    for samples, length in SHAPES[:count]:
        length = max(2, length * longest // 1024 // (16 if small else 1))
        samples = max(1, samples // (4 if small else 1))
        lengths = [max(1, length - length * number // (2 * samples)) for number in range(samples)]
        shapes.append({"samples": samples, "length": length, "lengths": lengths})
    return list({(one["samples"], one["length"]): one for one in shapes}.values())


# ---- one case, in a process of its own ----------------------------------------------------------


def write_kernels(path, model, make_batch, shape, precision):
    """Lists what one step runs, by time: which attention the library chose."""
    device = next(model.parameters()).device
    job = stepsim_job.Job(lambda: model, make_batch)
    batch = job.batch(stepsim_calibrate.check_shapes([shape])[0], device)
    dtype = torch.bfloat16
    activities = [torch.profiler.ProfilerActivity.CPU]
    if device.type == "cuda":
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    for _ in range(2):  # The second step has met the shape.
        with torch.profiler.profile(activities=activities) as profiler:
            with torch.autocast(device.type, dtype=dtype, enabled=precision == "bf16"):
                loss = stepsim_job.default_loss(model, batch)
            loss.backward()
            if device.type == "cuda":
                torch.cuda.synchronize()
    averages = profiler.key_averages()
    orders = ["device_time_total", "cuda_time_total"] if device.type == "cuda" else []
    for order in [*orders, "cpu_time_total"]:  # The names differ between versions.
        if hasattr(averages[0], order):
            table = averages.table(sort_by=order, row_limit=60, max_name_column_width=100)
            path.write_text(table, encoding="utf-8")
            return


def rarely_run(record):
    """The shapes of a calibration's record that have too few steps in it."""
    with open(record, encoding="utf-8") as lines:
        header = json.loads(next(lines))
        rows = [json.loads(line) for line in lines]
    steps = collections.Counter((row["samples"], row["max_length"]) for row in rows)
    wanted = header["calibration"]["shapes"]
    return [shape for shape in map(tuple, wanted) if steps[shape] < FEWEST_STEPS]


def run_case(name, out, seconds, count, small):
    make = {"gpt2": decoder_case, "bert": classifier_case, "hugging": hugging_face_case}
    make_model, make_batch, longest = make[name.split("_")[0]](small)
    if name.endswith("without_cudnn"):
        torch.backends.cuda.enable_cudnn_sdp(False)
    device = torch.device("cpu" if small else "cuda")
    precision = "none" if small else "bf16"
    made = []

    def make_on_device():
        """Random numbers for so many parameters take a CPU seconds."""
        with device if hasattr(device, "__enter__") else contextlib.nullcontext():
            made.append(make_model())
        return made[-1]

    shapes = shapes_of(longest, count, small)
    status = stepsim_calibrate.calibrate(
        make_on_device,
        make_batch,
        shapes,
        out / name,
        device=device.type,
        seconds=seconds,
        precision=precision,
    )
    for part in out.glob(f"{name}*.rank*.jsonl"):
        if (out / f"{name}.jsonl").exists():
            part.unlink()
    try:
        shape = shapes[min(2, len(shapes) - 1)]
        write_kernels(out / f"{name}.kernels.txt", made[-1], make_batch, shape, precision)
    except Exception:  # pylint: disable=broad-except  (the calibration is done)
        traceback.print_exc()
    # A rehearsal has a few seconds on whatever machine.
    rare = rarely_run(out / f"{name}.jsonl") if status == 0 and not small else []
    for samples, length in rare:
        print(f"{samples} x {length} ran less than {FEWEST_STEPS} times")
    return RAN_RARELY if rare else status


# ---- all cases ----------------------------------------------------------------------------------


def environment():
    found = {
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "python": sys.version.split()[0],
        "variables": {
            key: value
            for key, value in os.environ.items()
            if key.startswith(("TORCH", "CUDA", "CUDNN", "NCCL", "PYTORCH"))
        },
    }
    if torch.cuda.is_available():
        found["device"] = torch.cuda.get_device_name()
        found["compute_capability"] = torch.cuda.get_device_capability()
        found["cudnn"] = torch.backends.cudnn.version()
        found["nccl"] = str(torch.cuda.nccl.version())
        enabled = getattr(torch.backends.cuda, "cudnn_sdp_enabled", None)
        found["cudnn_attention"] = enabled() if enabled else None
    return found


def reason_to_leave_out(name, small):
    if name == "hugging_face" and importlib.util.find_spec("transformers") is None:
        return "transformers is not installed"
    if name.endswith("without_cudnn"):
        if small or not hasattr(torch.backends.cuda, "enable_cudnn_sdp"):
            return "attention has no cuDNN to turn off here"
    return None


class Visit:
    """All cases one after the other; what has ended is on disk."""

    def __init__(self, options):
        self.options, self.out = options, pathlib.Path(options.out)
        self.deadline = time.monotonic() + options.seconds
        self.summary = {"environment": environment(), "cases": {}}
        self.process = None

    def write(self):
        temporary = self.out / "summary.json.tmp"
        temporary.write_text(json.dumps(self.summary, indent=1) + "\n", encoding="utf-8")
        temporary.replace(self.out / "summary.json")

    def end_process(self):
        """Asks for an end, at which the case still writes what it has."""
        self.process.terminate()
        try:
            self.process.wait(timeout=8)
        except subprocess.TimeoutExpired:
            self.process.kill()

    def stop(self, *_):
        """The time that was given from outside is over."""
        if self.process is not None:
            self.end_process()
        self.summary["stopped"] = True
        self.write()
        os._exit(stepsim_calibrate.INTERRUPTED)

    def run(self):
        self.out.mkdir(parents=True, exist_ok=True)
        signal.signal(signal.SIGTERM, self.stop)
        signal.signal(signal.SIGINT, self.stop)
        self.write()
        names = self.options.cases.split(",")
        kept = []
        for name in names:
            why = reason_to_leave_out(name, self.options.small)
            if why:
                self.summary["cases"][name] = {"left_out": why}
            else:
                kept.append(name)
        for number, name in enumerate(kept):
            left = self.deadline - time.monotonic()
            share = left * CASES[name] / sum(CASES[one] for one in kept[number:])
            reserve = 0 if self.options.small else RESERVE_S
            self.case(name, max(2.0, share - reserve), left)
        self.write()
        failed = [name for name, case in self.summary["cases"].items() if case.get("status", 0)]
        print(f"wrote {self.out}: {len(kept) - len(failed)} of {len(kept)} cases", flush=True)
        return 1 if failed else 0

    def case(self, name, seconds, most):
        command = [sys.executable, os.path.abspath(__file__), str(self.out), "--case", name]
        command += ["--seconds", f"{seconds:.1f}", "--shapes", str(self.options.shapes)]
        command += ["--small"] * self.options.small
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            port = listener.getsockname()[1]
        one_rank = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}
        if self.options.small:
            # On busy cores, threads that wait for each other take a hundred times as long.
            one_rank["OMP_NUM_THREADS"] = "1"
        address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        print(f"{name}: {seconds:.0f} s", flush=True)
        limit = max(60, seconds + 2 * RESERVE_S)
        if not self.options.small:  # A rehearsal may take longer than it says.
            limit = min(limit, most + 5)
        begun = time.monotonic()
        with open(self.out / f"{name}.log", "w", encoding="utf-8") as log:
            self.process = subprocess.Popen(
                command, stdout=log, stderr=log, env={**os.environ, **one_rank, **address}
            )
            try:
                status = self.process.wait(timeout=limit)
            except subprocess.TimeoutExpired:
                self.end_process()
                status = "took too long"
        text = (self.out / f"{name}.log").read_text(encoding="utf-8", errors="replace")
        lines = text.splitlines()
        commands = [line[len("next: ") :] for line in lines if line.startswith("next: ")]
        self.summary["cases"][name] = {
            "status": status,
            "seconds": round(time.monotonic() - begun, 1),
            "import": commands[-1] if commands else None,
        }
        self.write()


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", help="folder for everything")
    parser.add_argument("--seconds", type=float, help="for all cases; default: 280, small: 10")
    parser.add_argument("--small", action="store_true", help="rehearse on the CPU")
    parser.add_argument("--shapes", type=int, help="how many; default: 18, small: 10")
    parser.add_argument("--cases", default=",".join(CASES), help="which, by commas")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.seconds is None:
        options.seconds = 10 if options.small else 280
    if options.shapes is None:
        options.shapes = 10 if options.small else len(SHAPES)
    if options.case:
        out = pathlib.Path(options.out)
        return run_case(options.case, out, options.seconds, options.shapes, options.small)
    unknown = [name for name in options.cases.split(",") if name not in CASES]
    if unknown:
        parser.error(f"--cases: unknown {unknown[0]}; known: {', '.join(CASES)}")
    if not options.small and not torch.cuda.is_available():
        parser.error("no CUDA device; --small rehearses on the CPU")
    return Visit(options).run()


if __name__ == "__main__":
    sys.exit(main())
