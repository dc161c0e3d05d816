#include "tests/sim/batching/policy_examples.h"

#include <algorithm>

namespace stepsim::test {
namespace {

using Repeats = PolicyExample::Repeats;
using Steps = PolicyExample::Steps;

PolicyExample example(const std::string& kind, PolicyParameters parameters) {
  PolicyExample result;
  result.spec.kind = kind;
  result.spec.parameters = std::move(parameters);
  return result;
}

/// A policy that deals batches of the whole data set out.
PolicyExample dealt(const std::string& kind, PolicyParameters parameters, bool loses) {
  PolicyExample result = example(kind, std::move(parameters));
  result.loses = loses;
  result.repeats = Repeats::None;
  result.steps = Steps::Equal;
  return result;
}

PolicyExample padded(PolicyExample example, std::int64_t max_padded) {
  example.max_padded = max_padded;
  return example;
}

PolicyExample counted(PolicyExample example, std::int64_t max_samples) {
  example.max_samples = max_samples;
  return example;
}

PolicyExample with_steps(PolicyExample example, Steps steps) {
  example.steps = steps;
  return example;
}

PolicyExample repeating(PolicyExample example) {
  example.repeats = Repeats::Own;
  return example;
}

PolicyExample filling_steps(PolicyExample example) {
  example.repeats = Repeats::Steps;
  return example;
}

PolicyExample drawing(PolicyExample example, bool draws) {
  example.draws = draws;
  return example;
}

/// Eight bins of equal width, fewer for short samples.
std::vector<std::int64_t> nemo_bins(std::int64_t longest) {
  std::vector<std::int64_t> bins;
  for (std::int64_t i = 1; i <= 8; ++i) {
    const std::int64_t bin = std::max<std::int64_t>(1, longest * i / 8);
    if (bins.empty() || bin > bins.back()) {
      bins.push_back(bin);
    }
  }
  return bins;
}

/// Two buckets for each of nemo_bins, by the second length; the last holds the longest.
PolicyParameters two_dimensional(std::int64_t batch, std::int64_t longest) {
  std::vector<std::int64_t> durations;
  std::vector<std::int64_t> tokens;
  for (const std::int64_t bin : nemo_bins(longest)) {
    for (const std::int64_t most : {(longest + 1) / 2, longest + 1}) {
      durations.push_back(bin);
      tokens.push_back(most);
    }
  }
  return {{"bucket_duration_bins", durations},
          {"bucket_token_bins", tokens},
          {"max_tokens", 3 * batch * longest}};
}

/// Each rank batches its own share.
void add_rank_local(std::int64_t batch, std::int64_t longest, std::vector<PolicyExample>& all) {
  const std::int64_t tokens = batch * longest;
  const std::vector<std::int64_t> half = {(longest + 1) / 2};
  all.push_back(counted(example("fixed", {{"batch_size", batch}}), batch));
  all.push_back(counted(example("bucketed", {{"batch_size", batch}}), batch));
  all.push_back(counted(example("local_sort", {{"batch_size", batch}}), batch));
  all.push_back(
      counted(example("local_sort",
                      {{"batch_size", batch}, {"order", std::string("independent_shuffles")}}),
              batch));
  all.push_back(counted(
      example("torchtext_pool", {{"batch_size", batch}, {"sort_within_batch", true}}), batch));
  all.push_back(counted(example("opennmt", {{"batch_size", batch}, {"bucket_size", 50}}), batch));
  for (PolicyExample& one : std::vector{
           example("token_budget", {{"max_tokens", tokens}}),
           example("local_token_budget", {{"max_tokens", tokens}}),
           example("local_token_budget", {{"max_tokens", tokens}, {"sort", false}}),
           example("opennmt", {{"batch_size", tokens}, {"batch_type", std::string("tokens")}}),
           example("torchtext_pool",
                   {{"batch_size", tokens}, {"batch_type", std::string("tokens")}})}) {
    all.push_back(with_steps(padded(one, tokens), Steps::Unequal));
  }
  all.push_back(with_steps(
      counted(example("tf_bucket_by_sequence_length",
                      {{"bucket_boundaries", half},
                       {"bucket_batch_sizes", std::vector<std::int64_t>{2 * batch, batch}}}),
              2 * batch),
      Steps::Unequal));
}

void add_dealt(std::int64_t batch, std::int64_t longest, std::vector<PolicyExample>& all) {
  const std::int64_t tokens = batch * longest;
  const std::int64_t one = 1;
  const std::int64_t window = 4;
  all.push_back(repeating(dealt("planner", {{"batch_size", batch}, {"window", window}}, false)));
  all.push_back(padded(
      repeating(dealt("planner", {{"batch_size", batch}, {"max_tokens", tokens}}, false)), tokens));
  all.push_back(padded(repeating(dealt("planner",
                                       {{"batch_size", batch},
                                        {"max_tokens", tokens},
                                        {"window", window},
                                        {"steps", "equal_time"}},
                                       false)),
                       tokens));
  all.push_back(filling_steps(dealt("planned_shapes", {{"batch_size", batch}}, false)));
  all.push_back(
      padded(filling_steps(dealt("planned_shapes",
                                 {{"batch_size", batch}, {"max_tokens", tokens}, {"shapes", one}},
                                 false)),
             tokens));
  all.push_back(padded(dealt("fairseq_max_tokens",
                             {{"max_tokens", tokens}, {"required_batch_size_multiple", one}},
                             false),
                       tokens));
  all.push_back(padded(dealt("fairseq_max_tokens", {{"max_tokens", tokens}}, true), tokens));
  all.push_back(counted(
      dealt("fairseq_max_tokens", {{"max_sentences", batch}, {"grouped_shuffling", true}}, true),
      batch));
  all.push_back(
      counted(dealt("fairseq_fixed_shapes",
                    {{"shape_batch_sizes", std::vector<std::int64_t>{2 * batch, batch}},
                     {"shape_lengths", std::vector<std::int64_t>{(longest + 1) / 2, longest}}},
                    false),
              2 * batch));
  all.push_back(dealt("tensor2tensor", {{"batch_size", tokens}, {"max_length", longest}}, true));
  all.push_back(
      counted(repeating(dealt("hf_group_by_length", {{"batch_size", batch}}, false)), batch));
  all.push_back(counted(
      repeating(dealt("hf_length_grouped_sampler", {{"batch_size", batch}}, false)), batch));
  // A tail of fewer cuts than ranks is repeated, and one of more makes parts of any size.
  all.push_back(repeating(dealt("lhotse_dynamic", {{"max_duration", tokens}}, false)));
  all.push_back(repeating(
      dealt("lhotse_dynamic_bucketing", {{"max_duration", tokens}, {"buffer_size", 40}}, false)));
  all.push_back(repeating(
      dealt("lhotse_dynamic_bucketing",
            {{"max_duration", tokens}, {"quadratic_duration", longest}, {"sync_buckets", false}},
            true)));
  all.push_back(repeating(
      dealt("nemo_bucketing",
            {{"bucket_duration_bins", nemo_bins(longest)},
             {"bucket_batch_size", std::vector<std::int64_t>(nemo_bins(longest).size(), batch)}},
            false)));
  all.push_back(repeating(dealt("nemo_bucketing", two_dimensional(batch, longest), false)));
  all.back().targets = true;
  all.push_back(dealt("espnet_numel", {{"batch_bins", tokens}}, false));
  all.push_back(drawing(dealt("deepspeed_variable_batch", {{"max_tokens", tokens}}, true), false));
  all.push_back(dealt("deepspeed_variable_batch",
                      {{"max_tokens", tokens}, {"sequence_picking_order", std::string("random")}},
                      true));
  all.push_back(
      padded(dealt("automodel_dynamic_token", {{"max_tokens", tokens}, {"sort_window", 64}}, true),
             tokens));
}

/// Any sample to any rank.
void add_balanced(std::int64_t batch, std::int64_t longest, std::vector<PolicyExample>& all) {
  for (const std::string cost : {"tokens", "tokens_sq"}) {
    all.push_back(counted(
        repeating(dealt("min_max",
                        {{"global_batch", 5 * batch}, {"buffer", 6 * batch}, {"cost", cost}},
                        false)),
        6 * batch));
  }
  const PolicyExample within = repeating(
      dealt("min_max",
            {{"global_batch", 5 * batch}, {"buffer", 6 * batch}, {"max_tokens", batch * longest}},
            false));
  all.push_back(padded(counted(within, 6 * batch), batch * longest));
  all.push_back(repeating(dealt("batch_rebalance", {{"batch_size", batch}}, false)));
  all.push_back(repeating(dealt("karmarkar_karp", {{"batch_size", batch}}, false)));
  all.push_back(repeating(dealt("lpt", {{"batch_size", batch}}, false)));
  all.push_back(
      repeating(dealt("dynapipe", {{"batch_size", batch}, {"overhead_tokens", 4 * batch}}, false)));
  all.push_back(counted(repeating(dealt("load_balancing", {{"batch_size", batch}}, false)), batch));
}

/// One row a batch, with room for `batch` samples of the longest.
void add_packed(std::int64_t batch, std::int64_t longest, std::vector<PolicyExample>& all) {
  const std::int64_t capacity = batch * longest;
  for (const char* kind : {"packed_bfd",
                           "packed_bfd_split",
                           "packed_wrapped",
                           "packed_first_fit",
                           "packed_next_fit",
                           "packed_knapsack",
                           "packed_histogram"}) {
    all.push_back(repeating(dealt(kind, {{"capacity", capacity}}, false)));
    all.back().max_tokens = capacity;
  }
  all.push_back(counted(repeating(dealt("packed_histogram",
                                        {{"capacity", capacity},
                                         {"max_sequences_per_pack", batch},
                                         {"algorithm", std::string("spfhp")}},
                                        false)),
                        batch));
  all.push_back(counted(repeating(dealt("packed_histogram",
                                        {{"capacity", capacity},
                                         {"max_sequences_per_pack", std::int64_t{2}},
                                         {"algorithm", std::string("nnlshp")}},
                                        false)),
                        2));
  all.push_back(repeating(dealt("packed_longalign", {{"capacity", capacity}}, true)));
  all.back().max_tokens = capacity - 1;
  all.push_back(dealt("multipack", {{"capacity", capacity}}, true));
  all.back().max_tokens = capacity;
  all.push_back(
      dealt("multipack", {{"capacity", capacity}, {"algorithm", std::string("linear")}}, true));
  all.back().max_tokens = capacity;
  all.push_back(dealt("streamed_rows", {{"token_budget", capacity}}, true));
  all.back().max_tokens = capacity;
}

PolicyExample cropping(PolicyExample example, std::int64_t max_tokens) {
  example.crops = true;
  example.max_tokens = max_tokens;
  return example;
}

/// Rows of the longest sample, or half of it, so that samples are cut.
void add_cutting(std::int64_t batch, std::int64_t longest, std::vector<PolicyExample>& all) {
  const std::int64_t half = (longest + 1) / 2;
  const std::int64_t rows = 2;
  for (const char* kind : {"packed_bfd_split", "packed_wrapped"}) {
    all.push_back(repeating(dealt(kind, {{"capacity", half}, {"rows", rows}}, false)));
    all.back().max_tokens = rows * half;
  }
  all.push_back(cropping(repeating(dealt("packed_bfd", {{"capacity", half}}, false)), half));
  for (const char* kind : {"packed_first_fit", "packed_next_fit"}) {
    all.push_back(repeating(dealt(kind, {{"capacity", half}}, true)));
    all.back().max_tokens = half;
    all.push_back(cropping(
        repeating(dealt(kind,
                        {{"capacity", half}, {"excess_length_strategy", std::string("truncate")}},
                        false)),
        half));
  }
  all.push_back(cropping(
      dealt("packed_stream", {{"num_tokens_local", batch * longest}, {"max_seq_len", half}}, true),
      batch * longest + 1));
  const auto add_streamed = [&](const char* kind, std::int64_t capacity, PolicyParameters more) {
    more.set("capacity", capacity);
    more.set("rows", rows);
    all.push_back(cropping(dealt(kind, std::move(more), true), rows * capacity));
    all.back().repeats = Repeats::Sampler;
  };
  const std::int64_t few = 20;
  add_streamed("packed_best_fit_crop", longest + 1, {});
  add_streamed(
      "packed_best_fit_crop", half, {{"buffer_size", few}, {"tokenizer_batch_size", batch}});
  add_streamed("packed_bins", longest, {{"packing_ratio", 2.5}});
  add_streamed("packed_bins",
               half,
               {{"packing_ratio", 4.0}, {"max_leftover_bins_to_keep", std::int64_t{0}}});
}

}  // namespace

std::vector<PolicyExample> policy_examples(std::int64_t batch, std::int64_t longest) {
  std::vector<PolicyExample> all;
  add_rank_local(batch, longest, all);
  add_dealt(batch, longest, all);
  add_balanced(batch, longest, all);
  add_packed(batch, longest, all);
  add_cutting(batch, longest, all);
  for (PolicyExample& one : all) {
    one.spec.name = one.spec.kind;
  }
  return all;
}

}  // namespace stepsim::test
