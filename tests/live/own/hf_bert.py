"""transformers' BERT for masked words, of 3 layers x 128, for stepsim_calibrate.py."""

import torch
import transformers

CONFIG = transformers.BertConfig(
    num_hidden_layers=3, hidden_size=128, num_attention_heads=4, intermediate_size=512, vocab_size=4096,
    max_position_embeddings=256,
)  # fmt: skip


def make_model():
    torch.manual_seed(1)
    return transformers.BertForMaskedLM(CONFIG)


def make_batch(samples, length, device, lengths):
    tokens = torch.randint(5, CONFIG.vocab_size, (samples, length), device=device)
    own = torch.tensor(lengths, device=device)[:, None]
    mask = (torch.arange(length, device=device)[None, :] < own).long()
    # The loss is over a seventh of the words, but the head is over all of them.
    chosen = (torch.rand(samples, length, device=device) < 0.15) & mask.bool()
    chosen[:, 0] = True
    return {
        "input_ids": tokens * mask,
        "attention_mask": mask,
        "labels": torch.where(chosen, tokens, -100),
    }
