#include "sim/batching/policies/policy_rows.h"

#include "sim/batching/policies/automodel.h"
#include "sim/batching/policies/deepspeed.h"
#include "sim/batching/policies/espnet.h"
#include "sim/batching/policies/fairseq.h"
#include "sim/batching/policies/hold_back.h"
#include "sim/batching/policies/hugging_face.h"
#include "sim/batching/policies/lhotse.h"
#include "sim/batching/policies/nemo.h"
#include "sim/batching/policies/policies.h"
#include "sim/batching/policies/tensorflow.h"

namespace stepsim {

const std::vector<PolicyRow>& policy_rows() {
  static const std::vector<PolicyRow> kTable = [] {
    std::vector<PolicyRow> rows = library_rows();
    for (auto& row : balancing_rows()) {
      rows.push_back(std::move(row));
    }
    return rows;
  }();
  return kTable;
}

std::vector<PolicyRow> library_rows() {
  return {
      {{"fixed",
        "the same number of samples in every batch, padded to the longest of the batch",
        {required_integer("batch_size")},
        "PyTorch BatchSampler with a padding collator"},
       fixed_epoch},
      {{"bucketed",
        "each rank sorts its samples by length and cuts batches of equal count, then shuffles them",
        {required_integer("batch_size")},
        "token-skew lab, strategy bucket"},
       bucketed_epoch},
      {{"token_budget",
        "each rank sorts its samples by length and fills batches up to a budget of padded tokens",
        {required_integer("max_tokens")},
        "token-skew lab, strategy token"},
       token_budget_epoch},
      {{"local_sort",
        "each rank sorts its samples by length and cuts batches of equal count; they stay in "
        "ascending order, or each rank shuffles its own, which undoes most of the gain",
        {required_integer("batch_size"), choice("order", {"ascending", "independent_shuffles"})},
        "length bucketing in the data loader's own process"},
       local_sort_epoch},
      {{"local_token_budget",
        "each rank fills batches up to a budget of padded tokens, in ascending length or (sort = "
        "false) in the sampler's order; a longer sample runs alone",
        {required_integer("max_tokens"), flag_or("sort", true)},
        "token-budget batch samplers that are not shuffled again"},
       local_token_budget_epoch},
      {{"fairseq_max_tokens",
        "samples by length, batches up to max_tokens padded tokens or max_sentences samples, then "
        "shuffled (grouped_shuffling: in groups of one step), dealt to ranks in turn; with targets "
        "the longer of a sample's lengths counts; a step's "
        "missing batches are empty; the longest batch is dropped when the multiple does not "
        "divide it",
        {optional_integer("max_tokens"),
         optional_integer("max_sentences"),
         integer_or("required_batch_size_multiple", 8),
         flag_or("grouped_shuffling", false)},
        "fairseq batch_by_size, EpochBatchIterator"},
       fairseq_epoch,
       check_fairseq},
      {{"fairseq_fixed_shapes",
        "as fairseq_max_tokens, but a batch grows while one of the shapes (shape_batch_sizes[i] "
        "samples of shape_lengths[i] tokens) holds it",
        {required_integers("shape_batch_sizes"),
         required_integers("shape_lengths"),
         flag_or("grouped_shuffling", false)},
        "fairseq batch_fixed_shapes"},
       fairseq_fixed_shapes_epoch,
       check_fairseq_fixed_shapes},
      {{"opennmt",
        "each rank sorts buckets of bucket_size of its samples and fills batches of batch_size "
        "samples or padded tokens that give samples back when they exceed it",
        {choice("batch_type", {"sents", "tokens"}),
         integer_or("batch_size", 64),
         integer_or("batch_size_multiple", 1),
         integer_or("bucket_size", 262'144)},
        "OpenNMT-py DynamicDatasetIter"},
       opennmt_epoch},
      {{"torchtext_pool",
        "each rank takes pools of 100 batches, sorted only with sort_within_batch (without it "
        "there is no bucketing), and shuffles a pool's batches",
        {choice("batch_type", {"sents", "tokens"}),
         required_integer("batch_size"),
         flag_or("sort_within_batch", false)},
        "torchtext legacy BucketIterator"},
       torchtext_epoch},
      {{"tf_bucket_by_sequence_length",
        "each rank sorts its samples into buckets by length and emits a bucket when it holds its "
        "batch size",
        {required_integers("bucket_boundaries"),
         required_integers("bucket_batch_sizes"),
         flag_or("pad_to_bucket_boundary", false)},
        "tf.data bucket_by_sequence_length"},
       tf_bucket_epoch,
       check_tf_bucket},
      {{"tensor2tensor",
        "global batches from buckets in geometric steps, all ranks of a step in the same bucket; "
        "what fills no batch waits for the next epoch",
        {integer_or("batch_size", 4096),
         optional_integer("max_length"),
         integer_or("min_length_bucket", 8),
         number_or("length_bucket_step", 1.1),
         flag_or("drop_long_sequences", false)},
        "Tensor2Tensor batching_scheme with shard_multiplier"},
       t2t_epoch,
       check_t2t},
      {{"hf_group_by_length",
        "mega-batches of shuffled samples, each sorted by falling length, the longest sample "
        "first of all; consecutive batches go to consecutive ranks, short ones are filled with "
        "the epoch's first samples",
        {required_integer("batch_size"),
         optional_integer("group_batch_size"),
         optional_integer("mega_batch_mult")},
        "Hugging Face Trainer group_by_length with accelerate"},
       hf_group_by_length_epoch},
      {{"hf_length_grouped_sampler",
        "the same order, but rank r takes every ranks-th sample of it",
        {required_integer("batch_size"),
         optional_integer("group_batch_size"),
         optional_integer("mega_batch_mult")},
        "Hugging Face DistributedLengthGroupedSampler (legacy)"},
       hf_length_grouped_sampler_epoch},
      {{"lhotse_dynamic",
        "batches in the sampler's order, closed when one more cut as long as the longest would "
        "exceed max_duration; a longer cut can exceed it",
        {optional_number("max_duration"),
         optional_integer("max_cuts"),
         optional_number("quadratic_duration")},
        "Lhotse DynamicCutSampler"},
       lhotse_dynamic_epoch,
       check_lhotse},
      {{"lhotse_dynamic_bucketing",
        "the same inside buckets of similar length; with sync_buckets all ranks of a step draw "
        "from one bucket; without, the epoch can end with samples left over",
        {optional_number("max_duration"),
         optional_integer("max_cuts"),
         optional_number("quadratic_duration"),
         integer_or("num_buckets", 10, 2),
         integer_or("buffer_size", 20'000),
         integer_or("num_cuts_for_bins_estimate", 10'000),
         flag_or("sync_buckets", true)},
        "Lhotse DynamicBucketingSampler; NeMo"},
       lhotse_bucketing_epoch,
       check_lhotse},
      {{"nemo_bucketing",
        "fixed buckets by length, or with bucket_token_bins by both lengths, each with its own "
        "batch size (given, or as many samples as max_tokens holds), drawn as "
        "lhotse_dynamic_bucketing does; samples that fit no bucket are left out",
        {required_integers("bucket_duration_bins"),
         optional_integers("bucket_token_bins"),
         optional_integers("bucket_batch_size"),
         optional_integer("max_tokens"),
         flag_or("bucketing_2d_strict_mode", true),
         integer_or("buffer_size", 10'000),
         flag_or("sync_buckets", true)},
        "NeMo bucket_batch_size, as OOMptimizer finds it"},
       nemo_bucketing_epoch,
       check_nemo_bucketing},
      {{"espnet_numel",
        "samples by length, a batch closes behind the sample that takes it above batch_bins; "
        "rank r takes every ranks-th sample of each batch",
        {required_integer("batch_bins"),
         integer_or("feature_dim", 1),
         integer_or("min_batch_size", 1),
         flag_or("padding", true),
         choice("sort_in_batch", {"descending", "ascending"}),
         choice("sort_batch", {"ascending", "descending"})},
        "ESPnet NumElementsBatchSampler"},
       espnet_epoch},
      {{"deepspeed_variable_batch",
        "consecutive samples up to a sum of max_tokens; longer samples, the last sample and "
        "micro-batches that do not divide by effective_batch_size are left out",
        {required_integer("max_tokens"),
         choice("sequence_picking_order", {"dataloader", "random", "seqlen"}),
         optional_integer("effective_batch_size"),
         flag_or("required_microbatches_of_same_size", false),
         integer_or("min_batch_size", 1),
         optional_integer("max_batch_size")},
        "DeepSpeed variable batch size and LR"},
       deepspeed_epoch},
      {{"automodel_dynamic_token",
        "windows of shuffled samples sorted by falling length, batches up to max_tokens padded "
        "tokens, planned alike on every rank; batches that do not divide over the ranks are left "
        "out",
        {required_integer("max_tokens"),
         optional_integer("max_batch_size"),
         integer_or("sort_window", 2048)},
        "NeMo Automodel DynamicTokenBatchSampler"},
       automodel_epoch},
  };
}

}  // namespace stepsim
