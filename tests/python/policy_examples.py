"""Parameters for every kind of policy, on samples of 1 to 64 tokens: about four samples a batch."""

BATCH, LONGEST = 4, 64
TOKENS = BATCH * LONGEST
HALF = LONGEST // 2
BINS = [LONGEST * (i + 1) // 8 for i in range(8)]

EXAMPLES = [
    ("fixed", {"batch_size": BATCH}),
    ("bucketed", {"batch_size": BATCH}),
    ("token_budget", {"max_tokens": TOKENS}),
    ("local_sort", {"batch_size": BATCH}),
    ("local_sort", {"batch_size": BATCH, "order": "independent_shuffles"}),
    ("local_token_budget", {"max_tokens": TOKENS}),
    ("local_token_budget", {"max_tokens": TOKENS, "sort": False}),
    ("fairseq_max_tokens", {"max_tokens": TOKENS}),
    ("fairseq_max_tokens", {"max_sentences": BATCH, "grouped_shuffling": True}),
    ("fairseq_fixed_shapes",
     {"shape_batch_sizes": [2 * BATCH, BATCH], "shape_lengths": [HALF, LONGEST]}),
    ("opennmt", {"batch_size": BATCH, "bucket_size": 50}),
    ("opennmt", {"batch_size": TOKENS, "batch_type": "tokens"}),
    ("torchtext_pool", {"batch_size": BATCH, "sort_within_batch": True}),
    ("tf_bucket_by_sequence_length",
     {"bucket_boundaries": [HALF], "bucket_batch_sizes": [2 * BATCH, BATCH]}),
    ("tensor2tensor", {"batch_size": TOKENS, "max_length": LONGEST}),
    ("hf_group_by_length", {"batch_size": BATCH}),
    ("hf_length_grouped_sampler", {"batch_size": BATCH}),
    ("lhotse_dynamic", {"max_duration": TOKENS}),
    ("lhotse_dynamic_bucketing", {"max_duration": TOKENS, "buffer_size": 40}),
    ("nemo_bucketing", {"bucket_duration_bins": BINS, "bucket_batch_size": [BATCH] * 8}),
    ("espnet_numel", {"batch_bins": TOKENS}),
    ("deepspeed_variable_batch", {"max_tokens": TOKENS}),
    ("automodel_dynamic_token", {"max_tokens": TOKENS, "sort_window": 64}),
    ("planner", {"batch_size": BATCH, "window": 4}),
    ("planner", {"batch_size": BATCH, "max_tokens": TOKENS, "steps": "equal_time"}),
    ("planned_shapes", {"batch_size": BATCH}),
    ("min_max", {"global_batch": 5 * BATCH, "buffer": 6 * BATCH}),
    ("batch_rebalance", {"batch_size": BATCH}),
    ("karmarkar_karp", {"batch_size": BATCH}),
    ("lpt", {"batch_size": BATCH}),
    ("load_balancing", {"batch_size": BATCH}),
    ("dynapipe", {"batch_size": BATCH, "overhead_tokens": 16}),
    ("packed_bfd", {"capacity": TOKENS}),
    ("packed_bfd", {"capacity": HALF}),
    ("packed_bfd_split", {"capacity": HALF, "rows": 2}),
    ("packed_wrapped", {"capacity": HALF, "rows": 2}),
    ("packed_best_fit_crop", {"capacity": LONGEST + 1, "rows": 2}),
    ("packed_stream", {"num_tokens_local": TOKENS, "max_seq_len": HALF}),
    ("packed_bins", {"capacity": LONGEST, "packing_ratio": 2.5, "rows": 2}),
    ("packed_first_fit", {"capacity": HALF, "excess_length_strategy": "truncate"}),
    ("packed_next_fit", {"capacity": TOKENS}),
    ("packed_knapsack", {"capacity": TOKENS}),
    ("packed_longalign", {"capacity": TOKENS}),
    ("packed_histogram", {"capacity": TOKENS}),
    ("multipack", {"capacity": TOKENS}),
    ("streamed_rows", {"token_budget": TOKENS}),
]

# These form batches whole, keep every sample and repeat one only to fill a step.
KEEPS_ALL = [
    "fixed", "bucketed", "token_budget", "local_sort", "local_token_budget", "opennmt",
    "torchtext_pool", "tf_bucket_by_sequence_length", "fairseq_fixed_shapes", "hf_group_by_length",
    "hf_length_grouped_sampler", "lhotse_dynamic", "nemo_bucketing", "espnet_numel", "planner",
    "planned_shapes", "min_max", "batch_rebalance", "karmarkar_karp", "lpt", "load_balancing",
    "dynapipe", "packed_knapsack", "packed_histogram",
]
