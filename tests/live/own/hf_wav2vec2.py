"""transformers' wav2vec 2.0 with a CTC head, of 3 layers x 128, for stepsim_calibrate.py. A length is a
number of frames of 20 ms; a transcript has a character every 8 frames. Nothing is masked or left
out at random, as either leaves parameters unused."""

import torch
import transformers

FRAME = 320  # Samples of sound at 16 kHz.
CONFIG = transformers.Wav2Vec2Config(
    hidden_size=128, num_hidden_layers=3, num_attention_heads=4, intermediate_size=512, conv_dim=[16] * 7,
    num_conv_pos_embeddings=32, num_conv_pos_embedding_groups=4, vocab_size=32, layerdrop=0.0, mask_time_prob=0.0,
    feat_extract_norm="layer", ctc_loss_reduction="mean",
)  # fmt: skip


def make_model():
    torch.manual_seed(1)
    return transformers.Wav2Vec2ForCTC(CONFIG)


def make_batch(samples, length, device, lengths):
    sound = torch.randn(samples, FRAME * length + 80, device=device)
    own = torch.tensor([FRAME * frames + 80 for frames in lengths], device=device)[:, None]
    mask = (torch.arange(sound.shape[1], device=device)[None, :] < own).long()
    letters = torch.randint(1, CONFIG.vocab_size, (samples, max(1, length // 8)), device=device)
    said = torch.tensor([max(1, frames // 8) for frames in lengths], device=device)[:, None]
    after = torch.arange(letters.shape[1], device=device)[None, :] >= said
    return {"input_values": sound, "attention_mask": mask, "labels": letters.masked_fill(after, -100)}
