// Balanced distribution over ranks, and exact partitions.
#include <algorithm>
#include <array>
#include <numeric>

#include <nlohmann/json.hpp>

#include "sim/batching/algorithms/packing_stream.h"
#include "sim/batching/algorithms/partition.h"
#include "sim/batching/policies/batch_forming.h"
#include "tests/oracles/published_batching.h"
#include "tests/sim/batching/fixture_case.h"
#include "tests/sim/batching/plan_hash.h"

namespace stepsim::test {
namespace {

IdLists values_of(const Parts& parts, const Ids& values) {
  IdLists result;
  for (const auto& part : parts) {
    Ids& own = result.emplace_back();
    for (const auto index : part) {
      own.push_back(values[static_cast<std::size_t>(index)]);
    }
  }
  return result;
}

Ids sums_of(const Parts& parts, const Ids& values) {
  Ids sums;
  for (const auto& own : values_of(parts, values)) {
    sums.push_back(std::accumulate(own.begin(), own.end(), std::int64_t{0}));
  }
  return sums;
}

Ids part_sizes(const Parts& parts) {
  Ids sizes;
  for (const auto& part : parts) {
    sizes.push_back(std::ssize(part));
  }
  return sizes;
}

Json verl_partition(const FixtureCase& data) {
  const Ids lengths = data.lengths();
  const auto parts = data.parameters.at("k_partitions").get<std::int64_t>();
  const bool equal_size = data.parameters.at("equal_size");
  Ids workloads;
  for (const auto length : lengths) {
    workloads.push_back(24576 * length + length * length);
  }
  const Parts by_length = karmarkar_karp(lengths, parts, equal_size);
  return {{"partitions", by_length},
          {"partitions_by_length", by_length},
          {"sums", sums_of(by_length, lengths)},
          {"sizes", part_sizes(by_length)},
          {"plan_hash", plan_hash({by_length})},
          {"partitions_by_workload", karmarkar_karp(workloads, parts, equal_size)}};
}

Json verl_micro_batches(const FixtureCase& data) {
  const Ids lengths = data.lengths();
  Ids order(lengths.size());
  std::iota(order.begin(), order.end(), 0);
  sort_descending(order, lengths);
  return {{"micro_batches", fill_padded(order, lengths, data.parameters.at("max_token_len"))}};
}

/// Samples in the order of a rank's micro-batches, and their places in that order.
Json slime(const FixtureCase& data) {
  SlimeSchedule options;
  options.ranks = data.parameters.at("dp_size");
  options.micro_batch_size = data.parameter("micro_batch_size", std::int64_t{1});
  if (data.parameter("use_dynamic_batch_size", false)) {
    options.max_tokens = data.parameters.at("max_tokens_per_gpu");
  }
  if (data.parameter("balance_data", false)) {
    const Json& model = data.parameters.at("model");
    DecoderSizes sizes;
    sizes.hidden = model.at("hidden_size");
    sizes.heads = model.at("num_attention_heads");
    sizes.query_groups = model.at("num_query_groups");
    sizes.head_size = model.at("kv_channels");
    sizes.feed_forward = model.at("ffn_hidden_size");
    sizes.layers = model.at("num_layers");
    sizes.vocabulary = model.at("vocab_size");
    options.balance = sizes;
  }
  const auto schedule = slime_schedule(data.lengths(), options);
  IdLists partitions;
  std::vector<IdLists> places;
  for (const auto& rank : schedule) {
    Ids& all = partitions.emplace_back();
    IdLists& own = places.emplace_back();
    for (const auto& batch : rank) {
      own.emplace_back();
      for (const auto sample : batch) {
        own.back().push_back(std::ssize(all));
        all.push_back(sample);
      }
    }
  }
  return {{"partitions", partitions},
          {"micro_batch_local_indices", places},
          {"num_microbatches", Ids{std::ssize(schedule.front())}}};
}

Json squared_lengths(const FixtureCase& data) {
  const Ids lengths = data.lengths();
  Ids squares;
  for (const auto length : lengths) {
    squares.push_back(length * length);
  }
  const Parts rows = longest_processing_time(squares, data.parameters.at("num_groups"));
  return {
      {"rows", rows}, {"sum_sq", sums_of(rows, squares)}, {"sum_tokens", sums_of(rows, lengths)}};
}

Json token_budget_rows(const FixtureCase& data) {
  const Ids lengths = data.lengths();
  Ids order(lengths.size());
  std::iota(order.begin(), order.end(), 0);
  const auto rows = stream_rows(
      order, lengths, data.parameters.at("num_processes"), data.parameters.at("token_budget"));
  return {{"micro_batches_rows", rows.steps},
          {"unfinished_rows_never_emitted", rows.unfinished},
          {"dropped_over_budget", rows.dropped}};
}

Json bagua(const FixtureCase& data) {
  const Ids complexities = data.input.at("complexities").get<Ids>();
  const auto ranks = data.parameters.at("num_replicas").get<std::int64_t>();
  IdLists indices(static_cast<std::size_t>(ranks));
  for (const auto& group : sorted_groups(complexities, ranks)) {
    for (std::size_t rank = 0; rank < indices.size(); ++rank) {
      indices[rank].push_back(group[rank]);
    }
  }
  return {{"indices_per_rank", indices}};
}

Json flexsp_buckets(const FixtureCase& data) {
  const Ids lengths = data.lengths();
  const Parts buckets = buckets_of_least_padding(lengths, data.parameters.at("B"));
  const IdLists own = values_of(buckets, lengths);
  Ids boundaries;
  std::int64_t padded = 0;
  for (const auto& bucket : own) {
    boundaries.push_back(bucket.back());
    padded += bucket.back() * std::ssize(bucket);
  }
  const auto useful = std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
  return {{"boundaries", boundaries},
          {"bucket_lengths", own},
          {"avg_padding_error",
           static_cast<double>(padded - useful) / static_cast<double>(lengths.size())}};
}

Json flexsp_chunks(const FixtureCase& data) {
  const Ids lengths = data.lengths();
  const Parts chunks = chunk_by_sum(lengths, data.parameters.at("mb_num"));
  return {{"chunks_of_lengths", values_of(chunks, lengths)}, {"sums", sums_of(chunks, lengths)}};
}

Json repartition(const FixtureCase& data) {
  const auto solved = repartition_padded(data.lengths(), data.parameters.at("G"));
  return {{"T_star", *std::max_element(solved.costs.begin(), solved.costs.end())},
          {"batches", solved.parts},
          {"sizes", part_sizes(solved.parts)},
          {"costs", solved.costs},
          {"plan_hash", plan_hash({solved.parts})}};
}

constexpr std::array kBalanceKinds = {
    CaseKind{"verl.kk", verl_partition},
    CaseKind{"verl.truncate_padding", verl_micro_batches},
    CaseKind{"slime.build_dp_schedule", slime},
    CaseKind{"trl.async_grpo.balance_by_squared_length", squared_lengths},
    CaseKind{"trl.async_grpo.TokenBudgetBatcher", token_budget_rows},
    CaseKind{"bagua.LoadBalancingDistributedSampler", bagua},
    CaseKind{"flexsp.bucketing_dp", flexsp_buckets},
    CaseKind{"flexsp.chunk_sort_consec", flexsp_chunks},
    CaseKind{"minmax.global_contiguous", repartition},
};

}  // namespace

std::span<const CaseKind> balance_cases() {
  return kBalanceKinds;
}

}  // namespace stepsim::test
