// Batches filled in one pass: a fixed count, or up to a budget of tokens.
#include <algorithm>
#include <array>
#include <numeric>

#include <nlohmann/json.hpp>

#include "sim/batching/algorithms/samples.h"
#include "sim/batching/policies/batch_forming.h"
#include "sim/batching/policies/deepspeed.h"
#include "sim/batching/policies/espnet.h"
#include "sim/batching/policies/fairseq.h"
#include "sim/batching/policies/hold_back.h"
#include "sim/batching/policy.h"
#include "sim/batching/sharding.h"
#include "tests/sim/batching/fixture_case.h"
#include "tests/sim/batching/make_policy.h"
#include "tests/sim/batching/plan_hash.h"

namespace stepsim::test {
namespace {

Ids ascending_order(const Ids& lengths) {
  Ids order = all_samples(lengths.size());
  sort_by_length(order, lengths);
  return order;
}

PolicyInput policy_input(const FixtureCase& data, const Ids& lengths) {
  PolicyInput input;
  input.lengths = lengths;
  input.ranks = data.parameters.at("num_replicas");
  input.epoch = data.parameter("epoch", 0);
  input.sampler.seed = data.parameter("seed", std::uint64_t{0});
  input.sampler.drop_last = data.parameter("drop_last", false);
  input.sampler.shuffle = data.parameter("shuffle", data.parameter("sampler_shuffle", true));
  return input;
}

Json ranks_result(const EpochBatches& ranks, const Ids& lengths) {
  Json stats = Json::array();
  Json padded = Json::array();
  for (const Batches& batches : ranks) {
    Json of_rank = batch_stats(batches, lengths);
    Json tokens = Json::array();
    for (const auto& batch : of_rank) {
      tokens.push_back(batch.at("padded"));
    }
    stats.push_back(std::move(of_rank));
    padded.push_back(std::move(tokens));
  }
  return {{"batches_per_rank", ranks}, {"stats_per_rank", stats}, {"padded_per_rank", padded}};
}

Json basic(const FixtureCase& data, const std::string& kind, PolicyParameters parameters) {
  const Ids lengths = data.lengths();
  PolicySpec spec;
  spec.kind = kind;
  spec.parameters = std::move(parameters);
  return ranks_result(make_policy(spec).epoch(policy_input(data, lengths)).batches, lengths);
}

Json basic_fixed_count(const FixtureCase& data) {
  return basic(
      data, "fixed", {{"batch_size", data.parameters.at("batch_size").get<std::int64_t>()}});
}

Json basic_length_bucketing(const FixtureCase& data) {
  return basic(
      data, "local_sort", {{"batch_size", data.parameters.at("batch_size").get<std::int64_t>()}});
}

/// Some cases say only in their id whether samples are sorted.
Json basic_token_budget(const FixtureCase& data) {
  const bool in_id = data.id.find(".sorted.") != std::string::npos;
  const bool sorted =
      data.parameter("order", std::string(in_id ? "sorted" : "unsorted")) == "sorted";
  return basic(data,
               "local_token_budget",
               {{"max_tokens", data.parameters.at("max_tokens_per_batch").get<std::int64_t>()},
                {"sort", sorted}});
}

Json collator(const FixtureCase& data) {
  const Ids lengths = data.lengths();
  const auto longest = *std::max_element(lengths.begin(), lengths.end());
  Ids padded_length;
  Ids padded_tokens;
  for (const auto& multiple : data.input.at("pad_to_multiple_of")) {
    padded_length.push_back(
        padded_to_multiple(longest, multiple.is_null() ? 1 : multiple.get<std::int64_t>()));
    padded_tokens.push_back(padded_length.back() * static_cast<std::int64_t>(lengths.size()));
  }
  return {{"padded_len", padded_length}, {"padded_tokens", padded_tokens}};
}

FairseqBatching fairseq_options(const FixtureCase& data) {
  FairseqBatching options;
  options.multiple = data.parameter("required_batch_size_multiple", std::int64_t{1});
  for (const auto& [name, limit] :
       {std::pair("max_tokens", &options.max_tokens), {"max_sentences", &options.max_sentences}}) {
    if (data.parameters.contains(name) && !data.parameters.at(name).is_null()) {
      *limit = data.parameters.at(name).get<std::int64_t>();
    }
  }
  return options;
}

/// "indices": a list, a name, or words that mean ascending length.
Ids indices(const FixtureCase& data, const Ids& lengths) {
  const Json& given = data.input.at("indices");
  const bool in_words = given.is_string() && !given.get<std::string>().starts_with("@");
  return in_words ? ascending_order(lengths) : data.file.numbers(given);
}

Ids sizes_of(const Batches& batches) {
  Ids sizes;
  for (const auto& batch : batches) {
    sizes.push_back(static_cast<std::int64_t>(batch.size()));
  }
  return sizes;
}

Json fairseq_batch_by_size_case(const FixtureCase& data) {
  const Ids lengths = data.lengths();
  const FairseqBatching options = fairseq_options(data);
  Batches batches = fairseq_batch_by_size(indices(data, lengths), lengths, options);
  Json result = {{"batches_before_tail_drop", batches},
                 {"num_batches_before_tail_drop", batches.size()}};
  const auto count_samples = [](const Batches& all) {
    const Ids sizes = sizes_of(all);
    return std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0});
  };
  const std::int64_t before = count_samples(batches);
  drop_ragged_batch(batches, options.multiple);
  result["batches"] = batches;
  result["num_batches"] = batches.size();
  result["batch_sizes"] = sizes_of(batches);
  result["plan_hash"] = plan_hash({batches});
  result["dropped_samples"] = before - count_samples(batches);
  return result;
}

Json fairseq_fixed_shapes_case(const FixtureCase& data) {
  const Ids lengths = data.lengths();
  const auto shapes =
      data.parameters.at("fixed_shapes").get<std::vector<std::pair<std::int64_t, std::int64_t>>>();
  return {{"batches", fairseq_fixed_shapes(indices(data, lengths), lengths, shapes)}};
}

Json fairseq_epoch_batches(const FixtureCase& data) {
  const Ids lengths = data.lengths();
  Batches batches;
  if (data.input.contains("batches_in_size_order")) {
    batches = data.input.at("batches_in_size_order").get<Batches>();
  } else {
    batches = fairseq_batch_by_size(ascending_order(lengths), lengths, fairseq_options(data));
  }
  const int ranks = data.parameters.at("num_shards");
  const std::uint64_t seed = data.parameters.at("seed").get<std::uint64_t>() +
                             data.parameters.at("epoch").get<std::uint64_t>();
  const Batches shuffled =
      fairseq_shuffled(batches, ranks, seed, data.parameters.at("grouped_shuffling"));
  Ids order;
  for (const auto& batch : shuffled) {
    order.push_back(std::find(batches.begin(), batches.end(), batch) - batches.begin());
  }
  const EpochBatches dealt = fairseq_shards(shuffled, ranks);
  return {{"shuffled", shuffled},
          {"batches_per_rank", dealt},
          {"num_batches", batches.size()},
          {"batch_ids_in_shuffled_order", order},
          {"plan_hash_per_rank", plan_hash(dealt)}};
}

Json opennmt(const FixtureCase& data) {
  const Ids lengths = data.lengths();
  const HoldBack options = {data.parameters.at("batch_size"),
                            data.parameters.at("batch_type") == "tokens",
                            data.parameter("batch_size_multiple", std::int64_t{1})};
  const bool sorted = data.parameter("sort", std::string()) == "ascending";
  const Ids order = sorted ? ascending_order(lengths) : all_samples(lengths.size());
  const Batches batches = fill_holding_back(order, lengths, options);
  return {{"batches_before_shuffle", batches},
          {"num_batches", batches.size()},
          {"batch_sizes", sizes_of(batches)},
          {"plan_hash", plan_hash({batches})}};
}

Json torchtext_batch(const FixtureCase& data) {
  const bool by_tokens = data.parameters.contains("batch_size_fn");
  const Ids lengths = by_tokens ? data.lengths() : Ids(data.input.at("n").get<std::size_t>(), 1);
  const HoldBack options = {data.parameters.at("batch_size"), by_tokens, 1};
  return {{"batches", fill_holding_back(all_samples(lengths.size()), lengths, options)}};
}

Json torchtext_pool(const FixtureCase& data) {
  const Ids lengths = data.lengths();
  const HoldBack options = {data.parameters.at("batch_size"), false, 1};
  Batches batches;
  for (const Batches& pool : torchtext_pools(all_samples(lengths.size()),
                                             lengths,
                                             options,
                                             data.parameters.at("sort_within_batch"))) {
    batches.insert(batches.end(), pool.begin(), pool.end());
  }
  return {{"batches", batches}};
}

Json espnet(const FixtureCase& data) {
  EspnetNumel options;
  options.batch_bins = data.parameters.at("batch_bins");
  options.feature_dim = data.input.value("feature_dim", std::int64_t{1});
  options.min_batch_size = data.parameter("min_batch_size", std::int64_t{1});
  options.padding = data.parameter("padding", true);
  options.drop_last = data.parameter("drop_last", false);
  options.descending_in_batch =
      data.parameter("sort_in_batch", std::string("descending")) == "descending";
  options.descending_batches =
      data.parameter("sort_batch", std::string("ascending")) == "descending";
  return {{"batches", espnet_numel(data.lengths(), options)}};
}

Json deepspeed(const FixtureCase& data) {
  const Ids lengths = data.lengths();
  DeepspeedBatching options;
  options.max_tokens = data.parameters.at("max_tokens");
  options.effective_batch_size = data.parameter("effective_batch_size", std::int64_t{1});
  options.same_size = data.parameter("same", false);
  options.min_batch_size = data.parameter("min_batch_size", std::int64_t{1});
  if (data.parameters.contains("max_batch_size")) {
    options.max_batch_size = data.parameters.at("max_batch_size").get<std::int64_t>();
  }
  const Ids order = data.parameters.at("order") == "seqlen" ? deepspeed_seqlen_order(lengths)
                                                            : all_samples(lengths.size());
  return {{"microbatches", deepspeed_batch_by_seqlens(order, lengths, options)}};
}

constexpr std::array kBudgetKinds = {
    CaseKind{"basic.fixed_count", basic_fixed_count},
    CaseKind{"basic.length_bucketing", basic_length_bucketing},
    CaseKind{"basic.token_budget", basic_token_budget},
    CaseKind{"hf.DataCollatorWithPadding", collator},
    CaseKind{"fairseq.batch_by_size", fairseq_batch_by_size_case},
    CaseKind{"fairseq.batch_fixed_shapes", fairseq_fixed_shapes_case},
    CaseKind{"fairseq.EpochBatchIterator", fairseq_epoch_batches},
    CaseKind{"onmt.batch_iter", opennmt},
    CaseKind{"torchtext.batch", torchtext_batch},
    CaseKind{"torchtext.pool", torchtext_pool},
    CaseKind{"espnet.numel", espnet},
    CaseKind{"deepspeed.batch_by_seqlens", deepspeed},
};

}  // namespace

std::span<const CaseKind> budget_cases() {
  return kBudgetKinds;
}

}  // namespace stepsim::test
