"""transformers' Llama, of 3 layers x 128 with two key heads for four, for stepsim_calibrate.py."""

import torch
import transformers

CONFIG = transformers.LlamaConfig(
    num_hidden_layers=3, hidden_size=128, num_attention_heads=4, num_key_value_heads=2, intermediate_size=384,
    vocab_size=4096, max_position_embeddings=256,
)  # fmt: skip


def make_model():
    torch.manual_seed(1)
    return transformers.LlamaForCausalLM(CONFIG)


def make_batch(samples, length, device, lengths):
    tokens = torch.randint(1, CONFIG.vocab_size, (samples, length), device=device)
    own = torch.tensor(lengths, device=device)[:, None]
    mask = (torch.arange(length, device=device)[None, :] < own).long()
    return {
        "input_ids": tokens,
        "attention_mask": mask,
        "labels": torch.where(mask.bool(), tokens, -100),
    }
