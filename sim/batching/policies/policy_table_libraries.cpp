#include "sim/batching/policies/automodel.h"
#include "sim/batching/policies/deepspeed.h"
#include "sim/batching/policies/espnet.h"
#include "sim/batching/policies/fairseq.h"
#include "sim/batching/policies/hold_back.h"
#include "sim/batching/policies/hugging_face.h"
#include "sim/batching/policies/lhotse.h"
#include "sim/batching/policies/nemo.h"
#include "sim/batching/policies/policy_table.h"
#include "sim/batching/policies/rank_local.h"
#include "sim/batching/policies/tensorflow.h"

namespace stepsim {

std::vector<PolicyKind> library_policies() {
  return {
      {.name = "fixed",
       .summary = "the same number of samples in every batch, padded to the longest of the batch",
       .source =
           "PyTorch: DataLoader(batch_size=…, sampler=DistributedSampler(…)), padding collate_fn",
       .is_common = true,
       .parameters = {required_integer("batch_size")},
       .epoch = fixed_epoch},
      {.name = "bucketed",
       .summary = "each rank sorts its samples by length and cuts batches of equal count, then "
                  "shuffles them",
       .source = "stepsim plan; token-skew lab, strategy bucket",
       .is_common = true,
       .parameters = {required_integer("batch_size")},
       .epoch = bucketed_epoch},
      {.name = "token_budget",
       .summary = "each rank sorts its samples by length and fills batches up to a budget of "
                  "padded tokens",
       .source = "stepsim plan; token-skew lab, strategy token",
       .is_common = true,
       .parameters = {required_integer("max_tokens")},
       .epoch = token_budget_epoch,
       .token_budget = value_of("max_tokens")},
      {.name = "local_sort",
       .summary =
           "each rank sorts its samples by length and cuts batches of equal count; they stay in "
           "ascending order, or each rank shuffles its own, which undoes most of the gain",
       .source = "length bucketing in the data loader's own process",
       .parameters = {required_integer("batch_size"),
                      choice("order", {"ascending", "independent_shuffles"})},
       .epoch = local_sort_epoch},
      {.name = "local_token_budget",
       .summary = "each rank fills batches up to a budget of padded tokens, in ascending length or "
                  "(sort = false) in the sampler's order; a longer sample runs alone",
       .source = "token-budget batch samplers that are not shuffled again",
       .parameters = {required_integer("max_tokens"), flag_or("sort", true)},
       .epoch = local_token_budget_epoch,
       .token_budget = value_of("max_tokens")},
      {.name = "fairseq_max_tokens",
       .summary =
           "samples by length, batches up to max_tokens padded tokens or max_sentences samples, "
           "then shuffled (grouped_shuffling: in groups of one step), dealt to ranks in turn; with "
           "targets the longer of a sample's lengths counts; a step's missing batches are empty; "
           "the longest batch is dropped when the multiple does not divide it",
       .source = "fairseq-train --max-tokens, --batch-size (batch_by_size, EpochBatchIterator)",
       .is_common = true,
       .parameters = {optional_integer("max_tokens"),
                      optional_integer("max_sentences"),
                      integer_or("required_batch_size_multiple", 8),
                      flag_or("grouped_shuffling", false)},
       .epoch = fairseq_epoch,
       .check = check_fairseq,
       .token_budget = value_of("max_tokens")},
      {.name = "fairseq_fixed_shapes",
       .summary = "as fairseq_max_tokens, but a batch grows while one of the shapes "
                  "(shape_batch_sizes[i] samples of shape_lengths[i] tokens) holds it",
       .source = "fairseq batch_fixed_shapes",
       .parameters = {required_integers("shape_batch_sizes"),
                      required_integers("shape_lengths"),
                      flag_or("grouped_shuffling", false)},
       .epoch = fairseq_fixed_shapes_epoch,
       .check = check_fairseq_fixed_shapes},
      {.name = "opennmt",
       .summary = "each rank sorts buckets of bucket_size of its samples and fills batches of "
                  "batch_size samples or padded tokens that give samples back when they exceed it",
       .source = "OpenNMT-py DynamicDatasetIter",
       .parameters = {choice("batch_type", {"sents", "tokens"}),
                      integer_or("batch_size", 64),
                      integer_or("batch_size_multiple", 1),
                      integer_or("bucket_size", 262'144)},
       .epoch = opennmt_epoch,
       .token_budget = batch_size_in_tokens},
      {.name = "torchtext_pool",
       .summary = "each rank takes pools of 100 batches, sorted only with sort_within_batch "
                  "(without it there is no bucketing), and shuffles a pool's batches",
       .source = "torchtext legacy BucketIterator",
       .parameters = {choice("batch_type", {"sents", "tokens"}),
                      required_integer("batch_size"),
                      flag_or("sort_within_batch", false)},
       .epoch = torchtext_epoch,
       .token_budget = batch_size_in_tokens},
      {.name = "tf_bucket_by_sequence_length",
       .summary = "each rank sorts its samples into buckets by length and emits a bucket when it "
                  "holds its batch size",
       .source = "tf.data.Dataset.bucket_by_sequence_length(…)",
       .parameters = {required_integers("bucket_boundaries"),
                      required_integers("bucket_batch_sizes"),
                      flag_or("pad_to_bucket_boundary", false)},
       .epoch = tf_bucket_epoch,
       .check = check_tf_bucket,
       .padded_length = tf_padded_length},
      {.name = "tensor2tensor",
       .summary = "global batches from buckets in geometric steps, all ranks of a step in the same "
                  "bucket; what fills no batch waits for the next epoch",
       .source = "Tensor2Tensor batching_scheme with shard_multiplier",
       .parameters = {integer_or("batch_size", 4096),
                      optional_integer("max_length"),
                      integer_or("min_length_bucket", 8),
                      number_or("length_bucket_step", 1.1),
                      flag_or("drop_long_sequences", false)},
       .epoch = t2t_epoch,
       .check = check_t2t},
      {.name = "hf_group_by_length",
       .summary = "mega-batches of shuffled samples, each sorted by falling length, the longest "
                  "sample first of all; consecutive batches go to consecutive ranks, short ones "
                  "are filled with the epoch's first samples",
       .source = "Hugging Face: TrainingArguments(group_by_length=True), with accelerate",
       .is_common = true,
       .parameters = {required_integer("batch_size"),
                      optional_integer("group_batch_size"),
                      optional_integer("mega_batch_mult")},
       .epoch = hf_group_by_length_epoch,
       .sort_window = mega_batch},
      {.name = "hf_length_grouped_sampler",
       .summary = "the same order, but rank r takes every ranks-th sample of it",
       .source = "Hugging Face DistributedLengthGroupedSampler (legacy)",
       .parameters = {required_integer("batch_size"),
                      optional_integer("group_batch_size"),
                      optional_integer("mega_batch_mult")},
       .epoch = hf_length_grouped_sampler_epoch},
      {.name = "lhotse_dynamic",
       .summary = "batches in the sampler's order, closed when one more cut as long as the longest "
                  "would exceed max_duration; a longer cut can exceed it",
       .source = "Lhotse: DynamicCutSampler(…)",
       .parameters = {optional_number("max_duration"),
                      optional_integer("max_cuts"),
                      optional_number("quadratic_duration")},
       .epoch = lhotse_dynamic_epoch,
       .check = check_lhotse,
       .token_budget = value_of("max_duration")},
      {.name = "lhotse_dynamic_bucketing",
       .summary = "the same inside buckets of similar length; with sync_buckets all ranks of a "
                  "step draw from one bucket; without, the epoch can end with samples left over",
       .source = "Lhotse: DynamicBucketingSampler(…), also in NeMo",
       .is_common = true,
       .parameters = {optional_number("max_duration"),
                      optional_integer("max_cuts"),
                      optional_number("quadratic_duration"),
                      integer_or("num_buckets", 10, 2),
                      integer_or("buffer_size", 20'000),
                      integer_or("num_cuts_for_bins_estimate", 10'000),
                      flag_or("sync_buckets", true)},
       .epoch = lhotse_bucketing_epoch,
       .check = check_lhotse,
       .token_budget = value_of("max_duration")},
      {.name = "nemo_bucketing",
       .summary = "fixed buckets by length, or with bucket_token_bins by both lengths, each with "
                  "its own batch size (given, or as many samples as max_tokens holds), drawn as "
                  "lhotse_dynamic_bucketing does; samples that fit no bucket are left out",
       .source = "NeMo bucket_batch_size, as OOMptimizer finds it",
       .parameters = {required_integers("bucket_duration_bins"),
                      optional_integers("bucket_token_bins"),
                      optional_integers("bucket_batch_size"),
                      optional_integer("max_tokens"),
                      flag_or("bucketing_2d_strict_mode", true),
                      integer_or("buffer_size", 10'000),
                      flag_or("sync_buckets", true)},
       .epoch = nemo_bucketing_epoch,
       .check = check_nemo_bucketing,
       .token_budget = value_of("max_tokens")},
      {.name = "espnet_numel",
       .summary = "samples by length, a batch closes behind the sample that takes it above "
                  "batch_bins; rank r takes every ranks-th sample of each batch",
       .source = "ESPnet: batch_type: numel (NumElementsBatchSampler)",
       .parameters = {required_integer("batch_bins"),
                      integer_or("feature_dim", 1),
                      integer_or("min_batch_size", 1),
                      flag_or("padding", true),
                      choice("sort_in_batch", {"descending", "ascending"}),
                      choice("sort_batch", {"ascending", "descending"})},
       .epoch = espnet_epoch,
       .token_budget = value_of("batch_bins")},
      {.name = "deepspeed_variable_batch",
       .summary = "consecutive samples up to a sum of max_tokens; longer samples, the last sample "
                  "and micro-batches that do not divide by effective_batch_size are left out",
       .source = "DeepSpeed variable batch size and LR",
       .parameters = {required_integer("max_tokens"),
                      choice("sequence_picking_order", {"dataloader", "random", "seqlen"}),
                      optional_integer("effective_batch_size"),
                      flag_or("required_microbatches_of_same_size", false),
                      integer_or("min_batch_size", 1),
                      optional_integer("max_batch_size")},
       .epoch = deepspeed_epoch,
       .token_budget = value_of("max_tokens")},
      {.name = "automodel_dynamic_token",
       .summary = "windows of shuffled samples sorted by falling length, batches up to max_tokens "
                  "padded tokens, planned alike on every rank; batches that do not divide over the "
                  "ranks are left out",
       .source = "NeMo Automodel DynamicTokenBatchSampler",
       .parameters = {required_integer("max_tokens"),
                      optional_integer("max_batch_size"),
                      integer_or("sort_window", 2048)},
       .epoch = automodel_epoch,
       .token_budget = value_of("max_tokens"),
       .sort_window = automodel_window},
  };
}

}  // namespace stepsim
