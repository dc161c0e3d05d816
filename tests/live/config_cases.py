"""Models of transformers by class and keys of their configuration: published sizes, and small ones of each kind.

A row is (name, class, keys). Keys that are left out have the defaults of transformers.
"""

# Published sizes, and heads of all kinds: their tensors are compared.
PUBLISHED = [
    ("llama-3.2-3b", "LlamaForCausalLM", {
        "hidden_size": 3072, "intermediate_size": 8192, "num_hidden_layers": 28, "num_attention_heads": 24,
        "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 128256, "tie_word_embeddings": True,
        "max_position_embeddings": 131072,
    }),
    ("llama-3.1-70b", "LlamaForCausalLM", {
        "hidden_size": 8192, "intermediate_size": 28672, "num_hidden_layers": 80, "num_attention_heads": 64,
        "num_key_value_heads": 8, "vocab_size": 128256, "max_position_embeddings": 131072,
    }),
    ("tinyllama", "LlamaForCausalLM", {
        "hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 22, "num_attention_heads": 32,
        "num_key_value_heads": 4, "vocab_size": 32000,
    }),
    ("smollm2-135m", "LlamaForCausalLM", {
        "hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30, "num_attention_heads": 9,
        "num_key_value_heads": 3, "vocab_size": 49152, "tie_word_embeddings": True,
    }),
    ("llama-seqcls", "LlamaForSequenceClassification", {"num_hidden_layers": 4, "num_labels": 3}),
    ("llama-tokcls", "LlamaForTokenClassification", {"num_hidden_layers": 4, "num_labels": 9}),
    ("llama-base", "LlamaModel", {"num_hidden_layers": 4}),
    ("llama-bias", "LlamaForCausalLM", {"num_hidden_layers": 3, "attention_bias": True, "mlp_bias": True}),
    ("llama4-scout", "Llama4ForCausalLM", {}),
    ("llama4-maverick", "Llama4ForCausalLM", {"num_local_experts": 128, "interleave_moe_layer_step": 2}),
    ("mistral-nemo", "MistralForCausalLM", {
        "hidden_size": 5120, "intermediate_size": 14336, "num_hidden_layers": 40, "num_attention_heads": 32,
        "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 131072, "sliding_window": None,
    }),
    ("mistral-default", "MistralForCausalLM", {}),
    ("mixtral-8x7b", "MixtralForCausalLM", {}),
    ("mixtral-8x22b", "MixtralForCausalLM", {
        "hidden_size": 6144, "intermediate_size": 16384, "num_hidden_layers": 56, "num_attention_heads": 48,
        "num_key_value_heads": 8, "vocab_size": 32768,
    }),
    ("qwen2.5-1.5b", "Qwen2ForCausalLM", {
        "hidden_size": 1536, "intermediate_size": 8960, "num_hidden_layers": 28, "num_attention_heads": 12,
        "num_key_value_heads": 2, "tie_word_embeddings": True,
    }),
    ("qwen2.5-7b", "Qwen2ForCausalLM", {
        "hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28, "num_attention_heads": 28,
        "num_key_value_heads": 4, "vocab_size": 152064,
    }),
    ("qwen2.5-72b", "Qwen2ForCausalLM", {
        "hidden_size": 8192, "intermediate_size": 29568, "num_hidden_layers": 80, "num_attention_heads": 64,
        "num_key_value_heads": 8, "vocab_size": 152064,
    }),
    ("qwen2-seqcls", "Qwen2ForSequenceClassification", {
        "hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24, "num_attention_heads": 14,
        "num_key_value_heads": 2,
    }),
    ("qwen3-4b", "Qwen3ForCausalLM", {
        "hidden_size": 2560, "intermediate_size": 9728, "num_hidden_layers": 36, "num_attention_heads": 32,
        "num_key_value_heads": 8, "head_dim": 128, "tie_word_embeddings": True,
    }),
    ("qwen3-32b", "Qwen3ForCausalLM", {
        "hidden_size": 5120, "intermediate_size": 25600, "num_hidden_layers": 64, "num_attention_heads": 64,
        "num_key_value_heads": 8, "head_dim": 128,
    }),
    ("qwen3-235b", "Qwen3MoeForCausalLM", {
        "hidden_size": 4096, "moe_intermediate_size": 1536, "num_hidden_layers": 94, "num_attention_heads": 64,
        "num_key_value_heads": 4, "head_dim": 128, "num_experts": 128,
    }),
    ("qwen3-moe-mixed", "Qwen3MoeForCausalLM", {
        "num_hidden_layers": 6, "mlp_only_layers": [0, 3], "decoder_sparse_step": 2,
    }),
    ("gemma-2b", "GemmaForCausalLM", {
        "hidden_size": 2048, "intermediate_size": 16384, "num_hidden_layers": 18, "num_attention_heads": 8,
        "num_key_value_heads": 1,
    }),
    ("gemma-7b", "GemmaForCausalLM", {}),
    ("gemma-2-2b", "Gemma2ForCausalLM", {}),
    ("gemma-2-9b", "Gemma2ForCausalLM", {
        "hidden_size": 3584, "intermediate_size": 14336, "num_hidden_layers": 42, "num_attention_heads": 16,
        "num_key_value_heads": 8,
    }),
    ("gemma-3-270m", "Gemma3ForCausalLM", {
        "hidden_size": 640, "intermediate_size": 2048, "num_hidden_layers": 18, "num_attention_heads": 4,
        "num_key_value_heads": 1, "head_dim": 256, "sliding_window": 512, "vocab_size": 262144,
    }),
    ("gemma-3-default", "Gemma3ForCausalLM", {}),
    ("phi-3-medium", "Phi3ForCausalLM", {
        "hidden_size": 5120, "intermediate_size": 17920, "num_hidden_layers": 40, "num_attention_heads": 40,
        "num_key_value_heads": 10,
    }),
    ("phi-4-mini", "Phi3ForCausalLM", {
        "hidden_size": 3072, "intermediate_size": 8192, "num_hidden_layers": 32, "num_attention_heads": 24,
        "num_key_value_heads": 8, "vocab_size": 200064, "tie_word_embeddings": True,
    }),
    ("phi-2", "PhiForCausalLM", {
        "hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 32, "num_attention_heads": 32,
    }),
    ("phi-1.5", "PhiForCausalLM", {}),
    ("phi-qk", "PhiForCausalLM", {"qk_layernorm": True, "num_hidden_layers": 3}),
    ("gpt2-large", "GPT2LMHeadModel", {"n_embd": 1280, "n_layer": 36, "n_head": 20}),
    ("gpt2-seqcls", "GPT2ForSequenceClassification", {}),
    ("gpt2-tokcls", "GPT2ForTokenClassification", {}),
    ("gpt2-qa", "GPT2ForQuestionAnswering", {}),
    ("gpt2-base", "GPT2Model", {}),
    ("gpt2-untied", "GPT2LMHeadModel", {"tie_word_embeddings": False, "n_inner": 2000}),
    ("pythia-160m", "GPTNeoXForCausalLM", {
        "hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12,
        "vocab_size": 50304,
    }),
    ("pythia-6.9b", "GPTNeoXForCausalLM", {
        "hidden_size": 4096, "intermediate_size": 16384, "num_hidden_layers": 32, "num_attention_heads": 32,
        "vocab_size": 50432,
    }),
    ("gpt-neox-20b", "GPTNeoXForCausalLM", {}),
    ("neox-seqcls", "GPTNeoXForSequenceClassification", {"num_hidden_layers": 3}),
    ("neox-tokcls", "GPTNeoXForTokenClassification", {"num_hidden_layers": 3}),
    ("neox-qa", "GPTNeoXForQuestionAnswering", {"num_hidden_layers": 3}),
    ("olmo-2-7b", "Olmo2ForCausalLM", {"vocab_size": 100352}),
    ("olmo-2-32b", "Olmo2ForCausalLM", {
        "vocab_size": 100352, "hidden_size": 5120, "intermediate_size": 27648, "num_hidden_layers": 64,
        "num_attention_heads": 40, "num_key_value_heads": 8,
    }),
    ("smollm3-3b", "SmolLM3ForCausalLM", {}),
    ("granite-2b", "GraniteForCausalLM", {
        "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 40, "num_attention_heads": 32,
        "num_key_value_heads": 8, "vocab_size": 49155, "tie_word_embeddings": True,
    }),
    ("bert-large-mlm", "BertForMaskedLM", {
        "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24, "num_attention_heads": 16,
    }),
    ("bert-seqcls3", "BertForSequenceClassification", {"num_labels": 3}),
    ("bert-tokcls9", "BertForTokenClassification", {"num_labels": 9}),
    ("bert-qa", "BertForQuestionAnswering", {}),
    ("bert-pretraining", "BertForPreTraining", {}),
    ("bert-mc", "BertForMultipleChoice", {}),
    ("bert-base-model", "BertModel", {}),
    ("bert-cased-mlm", "BertForMaskedLM", {"vocab_size": 28996}),
    ("bert-untied-mlm", "BertForMaskedLM", {"tie_word_embeddings": False}),
    ("roberta-base-mlm", "RobertaForMaskedLM", {"max_position_embeddings": 514, "type_vocab_size": 1}),
    ("roberta-large-seq", "RobertaForSequenceClassification", {
        "max_position_embeddings": 514, "type_vocab_size": 1, "hidden_size": 1024, "intermediate_size": 4096,
        "num_hidden_layers": 24, "num_attention_heads": 16, "num_labels": 3,
    }),
    ("roberta-tok", "RobertaForTokenClassification", {"max_position_embeddings": 514, "type_vocab_size": 1}),
    ("roberta-qa", "RobertaForQuestionAnswering", {"max_position_embeddings": 514, "type_vocab_size": 1}),
    ("roberta-mc", "RobertaForMultipleChoice", {}),
    ("roberta-model", "RobertaModel", {}),
    ("roberta-untied", "RobertaForMaskedLM", {"tie_word_embeddings": False}),
    ("xlm-roberta-base", "XLMRobertaForMaskedLM", {
        "max_position_embeddings": 514, "type_vocab_size": 1, "vocab_size": 250002,
    }),
    ("xlm-roberta-seq", "XLMRobertaForSequenceClassification", {
        "max_position_embeddings": 514, "type_vocab_size": 1, "vocab_size": 250002,
    }),
    ("camembert", "CamembertForMaskedLM", {
        "vocab_size": 32005, "max_position_embeddings": 514, "type_vocab_size": 1,
    }),
    ("electra-small-seq", "ElectraForSequenceClassification", {}),
    ("electra-base-tok", "ElectraForTokenClassification", {
        "embedding_size": 768, "hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072,
    }),
    ("electra-mlm", "ElectraForMaskedLM", {}),
    ("electra-qa", "ElectraForQuestionAnswering", {}),
    ("electra-model", "ElectraModel", {}),
    ("distilbert-mlm", "DistilBertForMaskedLM", {}),
    ("distilbert-untied", "DistilBertForMaskedLM", {"tie_word_embeddings": False}),
    ("distilbert-tok", "DistilBertForTokenClassification", {"num_labels": 5}),
    ("distilbert-qa", "DistilBertForQuestionAnswering", {}),
    ("distilbert-mc", "DistilBertForMultipleChoice", {}),
    ("distilbert-model", "DistilBertModel", {}),
    ("distilbert-sin", "DistilBertForSequenceClassification", {"sinusoidal_pos_embds": True}),
    ("deberta-v3-small", "DebertaV2ForSequenceClassification", {
        "hidden_size": 768, "num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 3072,
        "type_vocab_size": 0, "relative_attention": True, "position_buckets": 256, "norm_rel_ebd": "layer_norm",
        "share_att_key": True, "pos_att_type": "p2c|c2p", "position_biased_input": False,
        "max_relative_positions": -1,
    }),
    ("deberta-v3-large", "DebertaV2ForTokenClassification", {
        "hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096,
        "type_vocab_size": 0, "relative_attention": True, "position_buckets": 256, "norm_rel_ebd": "layer_norm",
        "share_att_key": True, "pos_att_type": "p2c|c2p", "position_biased_input": False,
        "max_relative_positions": -1,
    }),
    ("deberta-v2-xlarge", "DebertaV2ForSequenceClassification", {
        "relative_attention": True, "position_buckets": 256, "norm_rel_ebd": "layer_norm", "share_att_key": True,
        "pos_att_type": "p2c|c2p", "position_biased_input": False, "conv_kernel_size": 3, "conv_act": "gelu",
        "attention_head_size": 64, "max_relative_positions": -1,
    }),
    ("deberta-v3-mlm", "DebertaV2ForMaskedLM", {
        "hidden_size": 768, "num_hidden_layers": 3, "num_attention_heads": 12, "intermediate_size": 3072,
        "relative_attention": True, "position_buckets": 256, "norm_rel_ebd": "layer_norm", "share_att_key": True,
        "pos_att_type": ["p2c", "c2p"], "position_biased_input": False, "max_relative_positions": -1,
    }),
    ("deberta-v3-mlm-new", "DebertaV2ForMaskedLM", {
        "hidden_size": 768, "num_hidden_layers": 3, "num_attention_heads": 12, "intermediate_size": 3072,
        "legacy": False,
    }),
    ("deberta-own-pos", "DebertaV2ForQuestionAnswering", {
        "hidden_size": 768, "num_hidden_layers": 3, "num_attention_heads": 12, "intermediate_size": 3072,
        "relative_attention": True, "pos_att_type": ["p2c", "c2p"], "share_att_key": False, "type_vocab_size": 2,
    }),
    ("modernbert-large", "ModernBertForMaskedLM", {
        "hidden_size": 1024, "intermediate_size": 2624, "num_hidden_layers": 28, "num_attention_heads": 16,
    }),
    ("modernbert-tok", "ModernBertForTokenClassification", {"num_labels": 7}),
    ("modernbert-qa", "ModernBertForQuestionAnswering", {}),
    ("modernbert-model", "ModernBertModel", {}),
    ("vit-base", "ViTForImageClassification", {"num_labels": 1000}),
    ("vit-large-384", "ViTForImageClassification", {
        "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24, "num_attention_heads": 16,
        "image_size": 384, "num_labels": 21843,
    }),
    ("vit-model", "ViTModel", {}),
    ("whisper-tiny", "WhisperForConditionalGeneration", {}),
    ("whisper-large-v3", "WhisperForConditionalGeneration", {
        "d_model": 1280, "encoder_layers": 32, "decoder_layers": 32, "encoder_attention_heads": 20,
        "decoder_attention_heads": 20, "encoder_ffn_dim": 5120, "decoder_ffn_dim": 5120, "num_mel_bins": 128,
        "vocab_size": 51866,
    }),
    ("whisper-turbo", "WhisperForConditionalGeneration", {
        "d_model": 1280, "encoder_layers": 32, "decoder_layers": 4, "encoder_attention_heads": 20,
        "decoder_attention_heads": 20, "encoder_ffn_dim": 5120, "decoder_ffn_dim": 5120, "num_mel_bins": 128,
        "vocab_size": 51866,
    }),
    ("whisper-model", "WhisperModel", {}),
    ("t5-small", "T5ForConditionalGeneration", {}),
    ("t5-base", "T5ForConditionalGeneration", {"d_model": 768, "d_ff": 3072, "num_layers": 12, "num_heads": 12}),
    ("flan-t5-xl", "T5ForConditionalGeneration", {
        "d_model": 2048, "d_ff": 5120, "num_layers": 24, "num_heads": 32, "feed_forward_proj": "gated-gelu",
        "tie_word_embeddings": False,
    }),
    ("t5-model", "T5Model", {}),
    ("mt5-small", "MT5ForConditionalGeneration", {}),
]

# Small enough to train on a processor: the order of readiness and the operations are compared, too.
SMALL = [
    ("llama", "LlamaForCausalLM", {
        "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4,
        "vocab_size": 101, "max_position_embeddings": 64, "num_key_value_heads": 2,
    }),
    ("llama-tied", "LlamaForCausalLM", {
        "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4,
        "vocab_size": 101, "max_position_embeddings": 64, "tie_word_embeddings": True, "attention_bias": True,
        "mlp_bias": True,
    }),
    ("llama-seq", "LlamaForSequenceClassification", {
        "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4,
        "vocab_size": 101, "max_position_embeddings": 64, "num_labels": 3, "pad_token_id": 0,
    }),
    ("llama-tok", "LlamaForTokenClassification", {
        "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4,
        "vocab_size": 101, "max_position_embeddings": 64, "num_labels": 3,
    }),
    ("mistral", "MistralForCausalLM", {
        "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4,
        "vocab_size": 101, "max_position_embeddings": 64, "num_key_value_heads": 2, "head_dim": 16,
        "sliding_window": 8,
    }),
    ("qwen2", "Qwen2ForCausalLM", {
        "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4,
        "vocab_size": 101, "max_position_embeddings": 64, "num_key_value_heads": 2, "tie_word_embeddings": True,
    }),
    ("qwen3", "Qwen3ForCausalLM", {
        "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4,
        "vocab_size": 101, "max_position_embeddings": 64, "num_key_value_heads": 2, "head_dim": 32,
    }),
    ("qwen3_moe", "Qwen3MoeForCausalLM", {
        "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4,
        "vocab_size": 101, "max_position_embeddings": 64, "num_key_value_heads": 2, "head_dim": 32,
        "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32,
    }),
    ("mixtral", "MixtralForCausalLM", {
        "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4,
        "vocab_size": 101, "max_position_embeddings": 64, "num_key_value_heads": 2, "num_local_experts": 4,
    }),
    ("llama4", "Llama4ForCausalLM", {
        "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4,
        "vocab_size": 101, "max_position_embeddings": 64, "num_key_value_heads": 2, "head_dim": 16,
        "num_local_experts": 2, "intermediate_size_mlp": 80, "moe_layers": [1], "pad_token_id": 0,
    }),
    ("gemma", "GemmaForCausalLM", {
        "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4,
        "vocab_size": 101, "max_position_embeddings": 64, "num_key_value_heads": 1, "head_dim": 32,
    }),
    ("gemma2", "Gemma2ForCausalLM", {
        "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4,
        "vocab_size": 101, "max_position_embeddings": 64, "num_key_value_heads": 2, "head_dim": 32,
        "sliding_window": 8,
    }),
    ("gemma3", "Gemma3ForCausalLM", {
        "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4,
        "vocab_size": 101, "max_position_embeddings": 64, "num_key_value_heads": 1, "head_dim": 32,
        "sliding_window": 8,
    }),
    ("phi3", "Phi3ForCausalLM", {
        "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4,
        "vocab_size": 101, "max_position_embeddings": 64, "num_key_value_heads": 2, "pad_token_id": 0,
    }),
    ("phi", "PhiForCausalLM", {
        "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4,
        "vocab_size": 101, "max_position_embeddings": 64, "resid_pdrop": 0.0,
    }),
    ("phi-qk", "PhiForCausalLM", {
        "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4,
        "vocab_size": 101, "max_position_embeddings": 64, "qk_layernorm": True,
    }),
    ("gpt2", "GPT2LMHeadModel", {"n_embd": 64, "n_layer": 3, "n_head": 4, "vocab_size": 101, "n_positions": 64}),
    ("gpt2-seq", "GPT2ForSequenceClassification", {
        "n_embd": 64, "n_layer": 3, "n_head": 4, "vocab_size": 101, "n_positions": 64, "pad_token_id": 0,
    }),
    ("gpt2-qa", "GPT2ForQuestionAnswering", {
        "n_embd": 64, "n_layer": 3, "n_head": 4, "vocab_size": 101, "n_positions": 64,
    }),
    ("gpt_neox", "GPTNeoXForCausalLM", {
        "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4,
        "vocab_size": 101, "max_position_embeddings": 64,
    }),
    ("gpt_neox-seq", "GPTNeoXForCausalLM", {
        "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4,
        "vocab_size": 101, "max_position_embeddings": 64, "use_parallel_residual": False,
    }),
    ("olmo2", "Olmo2ForCausalLM", {
        "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4,
        "vocab_size": 101, "max_position_embeddings": 64, "num_key_value_heads": 2, "pad_token_id": 0,
    }),
    ("smollm3", "SmolLM3ForCausalLM", {
        "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4,
        "vocab_size": 101, "max_position_embeddings": 64, "num_key_value_heads": 2, "pad_token_id": 0,
    }),
    ("granite", "GraniteForCausalLM", {
        "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4,
        "vocab_size": 101, "max_position_embeddings": 64,
    }),
    ("bert-mlm", "BertForMaskedLM", {
        "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4,
        "vocab_size": 101, "max_position_embeddings": 64,
    }),
    ("bert-seq", "BertForSequenceClassification", {
        "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4,
        "vocab_size": 101, "max_position_embeddings": 64,
    }),
    ("bert-tok", "BertForTokenClassification", {
        "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4,
        "vocab_size": 101, "max_position_embeddings": 64,
    }),
    ("bert-qa", "BertForQuestionAnswering", {
        "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4,
        "vocab_size": 101, "max_position_embeddings": 64,
    }),
    ("bert-pre", "BertForPreTraining", {
        "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4,
        "vocab_size": 101, "max_position_embeddings": 64,
    }),
    ("roberta-mlm", "RobertaForMaskedLM", {
        "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4,
        "vocab_size": 101, "max_position_embeddings": 64,
    }),
    ("roberta-seq", "RobertaForSequenceClassification", {
        "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4,
        "vocab_size": 101, "max_position_embeddings": 64,
    }),
    ("electra-seq", "ElectraForSequenceClassification", {
        "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4,
        "vocab_size": 101, "max_position_embeddings": 64, "embedding_size": 32,
    }),
    ("electra-mlm", "ElectraForMaskedLM", {
        "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4,
        "vocab_size": 101, "max_position_embeddings": 64, "embedding_size": 32,
    }),
    ("distilbert-seq", "DistilBertForSequenceClassification", {
        "dim": 64, "hidden_dim": 96, "n_layers": 3, "n_heads": 4, "vocab_size": 101, "max_position_embeddings": 64,
    }),
    ("distilbert-mlm", "DistilBertForMaskedLM", {
        "dim": 64, "hidden_dim": 96, "n_layers": 3, "n_heads": 4, "vocab_size": 101, "max_position_embeddings": 64,
    }),
    ("deberta-seq", "DebertaV2ForSequenceClassification", {
        "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4,
        "vocab_size": 101, "max_position_embeddings": 64, "relative_attention": True, "position_buckets": 8,
        "norm_rel_ebd": "layer_norm", "share_att_key": True, "pos_att_type": ["p2c", "c2p"],
        "position_biased_input": False, "max_relative_positions": -1,
    }),
    ("deberta-conv", "DebertaV2ForTokenClassification", {
        "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4,
        "vocab_size": 101, "max_position_embeddings": 64, "relative_attention": True, "position_buckets": 8,
        "norm_rel_ebd": "layer_norm", "share_att_key": True, "pos_att_type": ["p2c", "c2p"],
        "position_biased_input": False, "max_relative_positions": -1, "conv_kernel_size": 3, "conv_act": "gelu",
    }),
    ("deberta-own", "DebertaV2ForQuestionAnswering", {
        "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4,
        "vocab_size": 101, "max_position_embeddings": 64, "relative_attention": True, "position_buckets": 8,
        "norm_rel_ebd": "layer_norm", "share_att_key": False, "pos_att_type": ["p2c", "c2p"],
        "position_biased_input": True, "max_relative_positions": -1, "type_vocab_size": 2,
    }),
    ("deberta-mlm", "DebertaV2ForMaskedLM", {
        "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4,
        "vocab_size": 101, "max_position_embeddings": 64, "relative_attention": True, "position_buckets": 8,
        "norm_rel_ebd": "layer_norm", "share_att_key": True, "pos_att_type": ["p2c", "c2p"],
        "position_biased_input": False, "max_relative_positions": -1,
    }),
    ("deberta-plain", "DebertaV2ForSequenceClassification", {
        "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4,
        "vocab_size": 101, "max_position_embeddings": 64,
    }),
    ("modernbert-mlm", "ModernBertForMaskedLM", {
        "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4,
        "vocab_size": 101, "max_position_embeddings": 64, "local_attention": 8, "pad_token_id": 0,
        "bos_token_id": 1, "eos_token_id": 2, "cls_token_id": 1, "sep_token_id": 2,
    }),
    ("modernbert-seq", "ModernBertForSequenceClassification", {
        "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4,
        "vocab_size": 101, "max_position_embeddings": 64, "local_attention": 8, "pad_token_id": 0,
        "bos_token_id": 1, "eos_token_id": 2, "cls_token_id": 1, "sep_token_id": 2,
    }),
    ("vit", "ViTForImageClassification", {
        "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4,
        "image_size": 32, "patch_size": 8,
    }),
    ("whisper", "WhisperForConditionalGeneration", {
        "d_model": 64, "encoder_layers": 2, "decoder_layers": 3, "encoder_attention_heads": 4,
        "decoder_attention_heads": 4, "encoder_ffn_dim": 96, "decoder_ffn_dim": 80, "max_source_positions": 20,
        "max_target_positions": 32, "vocab_size": 101, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
        "decoder_start_token_id": 1,
    }),
    ("t5", "T5ForConditionalGeneration", {
        "d_model": 64, "d_ff": 96, "num_layers": 3, "num_heads": 4, "d_kv": 16, "vocab_size": 101,
        "decoder_start_token_id": 0,
    }),
    ("t5-gated", "T5ForConditionalGeneration", {
        "d_model": 64, "d_ff": 96, "num_layers": 2, "num_decoder_layers": 3, "num_heads": 4, "d_kv": 16,
        "vocab_size": 101, "decoder_start_token_id": 0, "feed_forward_proj": "gated-gelu",
        "tie_word_embeddings": False,
    }),
]
