#!/usr/bin/env python3
"""What an epoch gains by the policy that the Advisor recommends inside Hugging Face's Trainer.

    torchrun --nproc_per_node 2 tests/live/adapter_gain.py WORK [EPOCHS]

A BERT classifier trains with Trainer's own random batches and the Advisor; then epochs of these and of the
recommended policy by turns, EPOCHS (8) of each, each timed from its first step to its last. The prediction is
printed before them. Needs torch, transformers and accelerate, and stepsim on the PYTHONPATH.
"""

import json
import pathlib
import random
import statistics
import sys
import time

import torch
import torch.distributed as dist
import transformers

from stepsim.integrations.transformers import BatchingMixin
from stepsim.torch import BatchSampler

SAMPLES, LONGEST, VOCABULARY = 600, 128, 1000
DRAW = random.Random(5)
LENGTHS = [min(LONGEST, max(4, int(DRAW.lognormvariate(3.3, 0.7)))) for _ in range(SAMPLES)]


class Trainer(BatchingMixin, transformers.Trainer):
    pass


class Samples(torch.utils.data.Dataset):
    def __len__(self):
        return SAMPLES

    def __getitem__(self, number):
        return {"input_ids": [1 + number % 97] * LENGTHS[number], "label": number % 2}


def collate(samples):
    rows = [torch.tensor(one["input_ids"]) for one in samples]
    ids = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
    labels = torch.tensor([one["label"] for one in samples])
    return {"input_ids": ids, "attention_mask": (ids > 0).long(), "labels": labels}


class Clock(transformers.TrainerCallback):
    """Times a training on this rank, from when all ranks begin until all have ended."""

    def on_train_begin(self, args, state, control, **others):
        dist.barrier()
        self.begun = time.perf_counter()

    def on_epoch_end(self, args, state, control, **others):
        dist.barrier()
        self.seconds = time.perf_counter() - self.begun


def trained(work, epochs, **options):
    """Returns (the Trainer, seconds)."""
    torch.manual_seed(1)
    model = transformers.BertForSequenceClassification(transformers.BertConfig(
        vocab_size=VOCABULARY, hidden_size=192, intermediate_size=768, num_hidden_layers=4, num_attention_heads=4,
        max_position_embeddings=LONGEST, num_labels=2))  # fmt: skip
    args = transformers.TrainingArguments(
        output_dir=str(work), num_train_epochs=epochs, per_device_train_batch_size=8, use_cpu=True, report_to="none",
        logging_strategy="no", save_strategy="no", disable_tqdm=True, seed=7, ddp_find_unused_parameters=False,
    )  # fmt: skip
    clock = Clock()
    trainer = Trainer(model, args, train_dataset=Samples(), data_collator=collate, callbacks=[clock], **options)
    trainer.train()
    return trainer, clock.seconds


def main():
    work, rounds = pathlib.Path(sys.argv[1]), int((sys.argv[2:] or ["8"])[0])
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    advised = work / "advice"
    trainer, _ = trained(work, 2, advisor={"out_dir": str(advised), "all_reduce_seconds": 2})
    best = [None]
    if dist.get_rank() == 0:
        advice = trainer.advice
        cap = advice.options[0].bucket_cap  # That of what runs now, which is kept.
        option = next(one for one in advice.options if (one.policy, one.bucket_cap) == (advice.policy, cap))
        best = [advice.policy]
        print(json.dumps({"predicted": vars(option)}, default=str), flush=True)
    dist.broadcast_object_list(best)

    def recommended(lengths):
        return BatchSampler.from_scenario(str(advised / "scenario.toml"), best[0], lengths)

    times = {"own": [], "recommended": []}
    for _ in range(rounds):
        times["own"].append(trained(work, 1)[1])
        times["recommended"].append(trained(work, 1, batching=recommended)[1])
    if dist.get_rank() == 0:
        ratios = sorted(own / other - 1 for own, other in zip(times["own"], times["recommended"]))
        print(json.dumps({"policy": best[0], "epochs_s": times, "gain_of_medians":
                          statistics.median(times["own"]) / statistics.median(times["recommended"]) - 1,
                          "gain_by_pair": ratios}), flush=True)  # fmt: skip
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
