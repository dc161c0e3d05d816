"""transformers' T5, of 2 and 2 layers x 128, for stepsim_calibrate.py. A length is that of the source;
targets have three quarters of it."""

import torch
import transformers

CONFIG = transformers.T5Config(
    num_layers=2, num_decoder_layers=2, d_model=128, d_kv=32, num_heads=4, d_ff=512, vocab_size=4096,
    decoder_start_token_id=0,
)  # fmt: skip


def make_model():
    torch.manual_seed(1)
    return transformers.T5ForConditionalGeneration(CONFIG)


def make_batch(samples, length, device, lengths):
    source = torch.randint(1, CONFIG.vocab_size, (samples, length), device=device)
    own = torch.tensor(lengths, device=device)[:, None]
    mask = (torch.arange(length, device=device)[None, :] < own).long()
    target = torch.randint(1, CONFIG.vocab_size, (samples, max(1, 3 * length // 4)), device=device)
    return {"input_ids": source, "attention_mask": mask, "labels": target}
