"""transformers' GPT-2, of 3 layers x 128, for stepsim_calibrate.py."""

import torch
import transformers

CONFIG = transformers.GPT2Config(
    n_layer=3, n_embd=128, n_head=4, vocab_size=4096, n_positions=256, bos_token_id=1, eos_token_id=2,
)  # fmt: skip


def make_model():
    torch.manual_seed(1)
    return transformers.GPT2LMHeadModel(CONFIG)


def make_batch(samples, length, device, lengths):
    tokens = torch.randint(1, CONFIG.vocab_size, (samples, length), device=device)
    own = torch.tensor(lengths, device=device)[:, None]
    mask = (torch.arange(length, device=device)[None, :] < own).long()
    return {
        "input_ids": tokens,
        "attention_mask": mask,
        "labels": torch.where(mask.bool(), tokens, -100),
    }
