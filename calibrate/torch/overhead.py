#!/usr/bin/env python3
"""Measures what the recorder costs: it runs the same steps with and without it, in alternating
short blocks.

    /usr/bin/python3 calibrate/torch/overhead.py [STEPS] [STEP_MS]

It prints the medians of both, their difference over pairs of blocks, and the recorder's own CPU
time per step, which depends less on a noisy machine.
"""

import contextlib
import statistics
import sys
import tempfile
import time

import torch
from stepsim_recorder import Recorder

BLOCK = 10  # steps in a block


def median_ms(values):
    return 1e3 * statistics.median(values)


def run_block(train, recorder):
    """Returns the seconds of each step, measured from the end of the previous one."""
    seconds = []
    begin = time.perf_counter()
    for _ in range(BLOCK):
        with recorder.step(lengths=[128] * 32) if recorder else contextlib.nullcontext():
            train(recorder)
        end = time.perf_counter()
        seconds.append(end - begin)
        begin = end
    return seconds


def own_cpu_ms(recorder, steps):
    """Returns the recorder's CPU time per step, measured on steps that train nothing."""
    zero = torch.zeros(1, requires_grad=True)
    begin = time.thread_time()
    for _ in range(steps):
        zero.sum().backward()
    plain = time.thread_time() - begin
    begin = time.thread_time()
    for _ in range(steps):
        with recorder.step(lengths=[128] * 32):
            recorder.backward(zero.sum())
    return 1e3 * (time.thread_time() - begin - plain) / steps


def main():
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 300
    step_ms = float(sys.argv[2]) if len(sys.argv) > 2 else 50.0
    torch.set_num_threads(1)
    model = torch.nn.Linear(512, 512)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    batch = torch.randn(256, 512)

    def train(recorder, layers=1):
        optimizer.zero_grad()
        output = batch
        for _ in range(layers):
            output = model(output)
        loss = output.square().mean()
        if recorder:
            recorder.backward(loss)
        else:
            loss.backward()
        optimizer.step()

    train(None, 100)  # warm-up
    begin = time.perf_counter()
    for _ in range(20):
        train(None, 10)
    layer_ms = 1e3 * (time.perf_counter() - begin) / (20 * 10)
    layers = max(1, round(step_ms / layer_ms))
    with tempfile.TemporaryDirectory() as folder:
        recorder = Recorder(f"{folder}/run")
        blocks = {True: [], False: []}
        for pair in range(-1, steps // BLOCK):
            for on in (True, False) if pair % 2 else (False, True):
                seconds = run_block(lambda rec: train(rec, layers), recorder if on else None)
                if pair >= 0:
                    blocks[on].append(seconds)
        cpu = own_cpu_ms(recorder, 1000)
        assert recorder.recording
        recorder.close()
    without, with_it = (median_ms(sum(blocks[on], [])) for on in (False, True))
    ratios = [
        100 * (median_ms(a) / median_ms(b) - 1) for a, b in zip(blocks[True], blocks[False])
    ]
    low, middle, high = statistics.quantiles(ratios, n=4)
    print(f"{len(ratios) * BLOCK} steps each: {without:.3f} ms without, {with_it:.3f} ms with")
    print(f"difference over {len(ratios)} pairs of blocks: median {middle:+.2f} %, "
          f"quartiles {low:+.2f} to {high:+.2f} %")
    print(f"the recorder's own CPU time: {cpu:.4f} ms a step, {100 * cpu / without:.3f} %")


if __name__ == "__main__":
    main()
