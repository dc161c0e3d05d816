"""Models whose bucket lists real DDP is asked for, and how it is told to make them.

A row is (name, class, keys of its configuration, more). Widths are published ones; layers are few, and vocabularies
cut where two ranks would not fit into memory.
"""

LLAMA_1B = {"hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 2, "num_attention_heads": 32,
            "num_key_value_heads": 8, "head_dim": 64, "vocab_size": 16384}
QWEN_05B = {"hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 4, "num_attention_heads": 14,
            "num_key_value_heads": 2, "vocab_size": 16384, "tie_word_embeddings": True}
QWEN3_06B = {"hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 4, "num_attention_heads": 16,
             "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 16384, "tie_word_embeddings": True}
GEMMA3_1B = {"hidden_size": 1152, "intermediate_size": 6912, "num_hidden_layers": 6, "num_attention_heads": 4,
             "num_key_value_heads": 1, "head_dim": 256, "vocab_size": 16384, "sliding_window": 512}
DEBERTA_V3 = {"hidden_size": 768, "num_hidden_layers": 4, "num_attention_heads": 12, "intermediate_size": 3072,
              "vocab_size": 16384, "type_vocab_size": 0, "relative_attention": True, "position_buckets": 256,
              "norm_rel_ebd": "layer_norm", "share_att_key": True, "pos_att_type": ["p2c", "c2p"],
              "position_biased_input": False, "max_relative_positions": -1}
WHISPER_SMALL = {"d_model": 768, "encoder_layers": 3, "decoder_layers": 3, "encoder_attention_heads": 12,
                 "decoder_attention_heads": 12, "encoder_ffn_dim": 3072, "decoder_ffn_dim": 3072,
                 "vocab_size": 16384, "max_source_positions": 100, "pad_token_id": 0, "bos_token_id": 1,
                 "eos_token_id": 2, "decoder_start_token_id": 1}
T5_BASE = {"d_model": 768, "d_ff": 3072, "num_layers": 3, "num_heads": 12, "decoder_start_token_id": 0}
UNUSED = {"find_unused_parameters": True}
STATIC = {"static_graph": True}

MODELS = [
    ("Llama 3.2 1B, 2 layers", "LlamaForCausalLM", LLAMA_1B, {}),
    ("Llama 3.2 1B, tied", "LlamaForCausalLM", {**LLAMA_1B, "tie_word_embeddings": True}, {}),
    ("Llama, classes of sequences", "LlamaForSequenceClassification", {**LLAMA_1B, "pad_token_id": 0}, {}),
    ("SmolLM2 135M", "LlamaForCausalLM", {
        "hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30, "num_attention_heads": 9,
        "num_key_value_heads": 3, "vocab_size": 49152, "tie_word_embeddings": True}, {}),
    ("Mistral, half width", "MistralForCausalLM", {
        "hidden_size": 2048, "intermediate_size": 7168, "num_hidden_layers": 2, "num_attention_heads": 16,
        "num_key_value_heads": 4, "head_dim": 128, "vocab_size": 16384}, {}),
    ("Mixtral, quarter width", "MixtralForCausalLM", {
        "hidden_size": 1024, "intermediate_size": 3584, "num_hidden_layers": 2, "num_attention_heads": 8,
        "num_key_value_heads": 2, "vocab_size": 16384, "num_local_experts": 4}, {"tokens": 64}),
    ("Qwen 2.5 0.5B", "Qwen2ForCausalLM", QWEN_05B, {}),
    ("Qwen 2.5 0.5B, 5 MiB", "Qwen2ForCausalLM", QWEN_05B, {"ddp": {"bucket_cap_mb": 5}}),
    ("Qwen 3 0.6B", "Qwen3ForCausalLM", QWEN3_06B, {}),
    ("Qwen 3 0.6B, static graph", "Qwen3ForCausalLM", QWEN3_06B, {"ddp": STATIC}),
    ("Qwen 3 0.6B, unused looked for", "Qwen3ForCausalLM", QWEN3_06B, {"ddp": UNUSED}),
    ("Qwen 3 0.6B, list of caps", "Qwen3ForCausalLM", QWEN3_06B, {"ddp": {"bucket_cap_mb_list": [1, 8, 2, 30]}}),
    ("Qwen 3 MoE, half width", "Qwen3MoeForCausalLM", {
        "hidden_size": 1024, "moe_intermediate_size": 384, "num_hidden_layers": 2, "num_attention_heads": 16,
        "num_key_value_heads": 4, "head_dim": 128, "num_experts": 16, "num_experts_per_tok": 8,
        "vocab_size": 16384}, {"tokens": 64}),
    ("Gemma 2B, 2 layers", "GemmaForCausalLM", {
        "hidden_size": 2048, "intermediate_size": 16384, "num_hidden_layers": 1, "num_attention_heads": 8,
        "num_key_value_heads": 1, "vocab_size": 8192}, {}),
    ("Gemma 2, half width", "Gemma2ForCausalLM", {
        "hidden_size": 1152, "intermediate_size": 4608, "num_hidden_layers": 3, "num_attention_heads": 4,
        "num_key_value_heads": 2, "vocab_size": 16384}, {}),
    ("Gemma 3 1B", "Gemma3ForCausalLM", GEMMA3_1B, {}),
    ("Gemma 3 1B, list of caps", "Gemma3ForCausalLM", GEMMA3_1B, {"ddp": {"bucket_cap_mb_list": [4, 16]}}),
    ("Phi 3, half width", "Phi3ForCausalLM", {
        "hidden_size": 1536, "intermediate_size": 4096, "num_hidden_layers": 3, "num_attention_heads": 16,
        "vocab_size": 16384, "pad_token_id": 0}, {}),
    ("Phi 1.5, 3 layers", "PhiForCausalLM", {"num_hidden_layers": 3, "vocab_size": 16384}, {}),
    ("OLMo 2 1B, 2 layers", "Olmo2ForCausalLM", {
        "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 2, "num_attention_heads": 16,
        "vocab_size": 16384, "pad_token_id": 0}, {}),
    ("SmolLM3, half width", "SmolLM3ForCausalLM", {
        "hidden_size": 1024, "intermediate_size": 5504, "num_hidden_layers": 3, "num_attention_heads": 8,
        "num_key_value_heads": 2, "vocab_size": 16384, "pad_token_id": 0}, {}),
    ("Granite 2B, 2 layers", "GraniteForCausalLM", {
        "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 2, "num_attention_heads": 32,
        "num_key_value_heads": 8, "vocab_size": 16384, "tie_word_embeddings": True}, {}),
    ("GPT-2 small", "GPT2LMHeadModel", {}, {}),
    ("GPT-2 small, 1 MiB", "GPT2LMHeadModel", {}, {"ddp": {"bucket_cap_mb": 1}}),
    ("GPT-2 small, list of caps", "GPT2LMHeadModel", {}, {"ddp": {"bucket_cap_mb_list": [1, 5, 25]}}),
    ("GPT-2 medium, 6 layers", "GPT2LMHeadModel", {"n_embd": 1024, "n_layer": 6, "n_head": 16}, {}),
    ("GPT-2, classes of sequences", "GPT2ForSequenceClassification", {"pad_token_id": 0}, {}),
    ("Pythia 160M", "GPTNeoXForCausalLM", {
        "hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12,
        "vocab_size": 50304}, {}),
    ("Pythia 1B, 2 layers", "GPTNeoXForCausalLM", {
        "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 2, "num_attention_heads": 8,
        "vocab_size": 16384}, {}),
    ("BERT base, masked tokens", "BertForMaskedLM", {}, {}),
    ("BERT base, classes", "BertForSequenceClassification", {}, {}),
    ("BERT base, static graph", "BertForSequenceClassification", {}, {"ddp": STATIC}),
    ("BERT base, list of caps", "BertForSequenceClassification", {}, {"ddp": {"bucket_cap_mb_list": [2, 20, 10]}}),
    ("BERT base, tokens", "BertForTokenClassification", {}, {}),
    ("BERT base, questions", "BertForQuestionAnswering", {}, {}),
    ("BERT large, 6 layers", "BertForMaskedLM", {
        "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 6, "num_attention_heads": 16}, {}),
    ("RoBERTa base, masked tokens", "RobertaForMaskedLM", {
        "max_position_embeddings": 514, "type_vocab_size": 1}, {}),
    ("RoBERTa base, classes", "RobertaForSequenceClassification", {
        "max_position_embeddings": 514, "type_vocab_size": 1}, {}),
    ("XLM-R base, classes", "XLMRobertaForSequenceClassification", {
        "max_position_embeddings": 514, "type_vocab_size": 1, "num_hidden_layers": 6, "vocab_size": 30000}, {}),
    ("ELECTRA small, classes", "ElectraForSequenceClassification", {}, {}),
    ("ELECTRA base, tokens", "ElectraForTokenClassification", {
        "embedding_size": 768, "hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072}, {}),
    ("DistilBERT, classes", "DistilBertForSequenceClassification", {}, {}),
    ("DistilBERT, masked tokens", "DistilBertForMaskedLM", {}, {}),
    ("DistilBERT, 10 MiB", "DistilBertForMaskedLM", {}, {"ddp": {"bucket_cap_mb": 10}}),
    ("DeBERTa v3 base, classes", "DebertaV2ForSequenceClassification", DEBERTA_V3, {}),
    ("DeBERTa v3 base, masked tokens", "DebertaV2ForMaskedLM", DEBERTA_V3, {}),
    ("DeBERTa v2 with convolution", "DebertaV2ForTokenClassification", {
        **DEBERTA_V3, "conv_kernel_size": 3, "conv_act": "gelu"}, {}),
    ("ModernBERT base, masked tokens", "ModernBertForMaskedLM", {"num_hidden_layers": 12}, {}),
    ("ModernBERT base, classes", "ModernBertForSequenceClassification", {"num_hidden_layers": 12}, {}),
    ("ViT base", "ViTForImageClassification", {}, {}),
    ("ViT base, 4 MiB", "ViTForImageClassification", {}, {"ddp": {"bucket_cap_mb": 4}}),
    ("Whisper small, 3 + 3 layers", "WhisperForConditionalGeneration", WHISPER_SMALL, {}),
    ("Whisper small, list of caps", "WhisperForConditionalGeneration", WHISPER_SMALL, {
        "ddp": {"bucket_cap_mb_list": [1, 12]}}),
    ("T5 small", "T5ForConditionalGeneration", {"decoder_start_token_id": 0}, {}),
    ("T5 base, 3 + 3 layers", "T5ForConditionalGeneration", T5_BASE, {}),
    ("T5 base, 2 MiB", "T5ForConditionalGeneration", T5_BASE, {"ddp": {"bucket_cap_mb": 2}}),
    ("Flan-T5 base, 3 + 3 layers", "T5ForConditionalGeneration", {**T5_BASE, "feed_forward_proj": "gated-gelu"}, {}),
]

# What a config.json does not say: these go by a list of parameters and their order of readiness.
LISTED = [
    ("BERT base, embeddings frozen", "BertForSequenceClassification", {"num_hidden_layers": 4}, {
        "frozen": ["embeddings"]}),
    ("Llama 1B, one layer in 4 trained", "LlamaForCausalLM", {**LLAMA_1B, "num_hidden_layers": 4}, {
        "frozen": ["embed", "layers.0", "layers.1", "layers.2", "lm_head"]}),
    ("GPT-2 small, unused, static graph", "GPT2LMHeadModel", {"n_layer": 4}, {
        "unused": [[70000, 300000], [200000, 50000, 900000]], "ddp": STATIC}),
    ("T5 small, unused, static graph, 4 MiB", "T5ForConditionalGeneration", {"decoder_start_token_id": 0}, {
        "unused": [[70000], [200000, 50000]], "ddp": {**STATIC, "bucket_cap_mb": 4}}),
    ("BERT large, unused, static graph", "BertForMaskedLM", {
        "hidden_size": 256, "intermediate_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16}, {
        "unused": [[70000] * 9, [200000, 50000] * 5], "ddp": {**STATIC, "bucket_cap_mb": 1}}),
    ("DistilBERT, unused looked for", "DistilBertForMaskedLM", {}, {
        "unused": [[70000], [200000]], "ddp": UNUSED}),
    ("layers of three types", "LlamaForCausalLM", {}, {
        "types": [["float32", 700], ["float64", 300], ["bfloat16", 900], ["float32", 400], ["bfloat16", 500],
                  ["float64", 800], ["float32", 600]]}),
    ("layers of three types, list of caps", "LlamaForCausalLM", {}, {
        "types": [["float32", 700], ["float64", 300], ["bfloat16", 900], ["float32", 400], ["bfloat16", 500],
                  ["float64", 800], ["float32", 600]], "ddp": {"bucket_cap_mb_list": [1, 2, 4]}}),
]
