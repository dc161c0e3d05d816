"""Models of transformers at the size of a GPU, on random tokens in bf16 autocast. STEPSIM_OWN_MODEL says which:
llama, gpt2 or qwen3; with STEPSIM_OWN_SMALL, three layers of each, for a rehearsal on a CPU."""

import os

import torch
import transformers

precision = "bf16"
SMALL = bool(os.environ.get("STEPSIM_OWN_SMALL"))


def llama():
    """A Llama of 0.4 billion parameters, the one of H100.md."""
    sizes = {"hidden_size": 1024, "intermediate_size": 3584, "num_hidden_layers": 24, "num_attention_heads": 16,
             "num_key_value_heads": 8, "vocab_size": 32000}  # fmt: skip
    if SMALL:
        sizes |= {"hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 3, "vocab_size": 512}
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(max_position_embeddings=2048, use_cache=False, **sizes))


def gpt2():
    """Hugging Face's GPT-2 of 124 million parameters, the one of H200.md and H100.md."""
    sizes = {"n_layer": 3, "n_head": 4, "n_embd": 128, "vocab_size": 512} if SMALL else {"n_layer": 12, "n_head": 12, "n_embd": 768}
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(use_cache=False, **sizes))


def qwen3():
    """Qwen3-0.6B's sizes (its config.json): 0.6 billion parameters, a quarter of them the embedding of 151,936 tokens."""
    sizes = {"hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 28, "num_attention_heads": 16,
             "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151936, "tie_word_embeddings": True}  # fmt: skip
    if SMALL:
        sizes |= {"hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 3, "vocab_size": 512}
    return transformers.Qwen3ForCausalLM(transformers.Qwen3Config(max_position_embeddings=2048, use_cache=False, **sizes))


MAKE = {"llama": llama, "gpt2": gpt2, "qwen3": qwen3}[os.environ.get("STEPSIM_OWN_MODEL", "llama")]
VOCAB = {llama: 32000, gpt2: 50257, qwen3: 151936}[MAKE] if not SMALL else 512


def make_model():
    torch.manual_seed(1)
    return MAKE()


def make_batch(samples, length, device, lengths):
    tokens = torch.randint(1, VOCAB, (samples, length))
    mask = (torch.arange(length) < torch.tensor(lengths)[:, None]).long()
    batch = {"input_ids": tokens, "attention_mask": mask, "labels": tokens.masked_fill(mask == 0, -100)}
    if device.type != "cuda":
        return batch
    return {name: one.pin_memory().to(device, non_blocking=True) for name, one in batch.items()}
