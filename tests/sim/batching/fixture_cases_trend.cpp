// The trend table: figures of several policies on the same lengths, nothing shuffled.
#include <algorithm>
#include <array>
#include <numeric>

#include <nlohmann/json.hpp>

#include "sim/batching/algorithms/partition.h"
#include "sim/batching/policies/batch_forming.h"
#include "sim/batching/policies/fairseq.h"
#include "sim/batching/policies/min_max.h"
#include "sim/batching/sharding.h"
#include "tests/sim/batching/fixture_case.h"
#include "tests/sim/batching/make_policy.h"
#include "tests/sim/batching/step_figures.h"

namespace stepsim::test {
namespace {

/// What a case gives: ranks, samples a rank and step, and the lengths in data order.
struct Trend {
  Ids lengths;
  Ids order;
  std::int64_t ranks = 1;
  std::int64_t batch_size = 1;
};

std::int64_t length_of(const Trend& trend, std::int64_t sample) {
  return trend.lengths[static_cast<std::size_t>(sample)];
}

EpochBatches planned(const Trend& trend, const std::string& kind, PolicyParameters parameters) {
  PolicySpec spec;
  spec.kind = kind;
  spec.parameters = std::move(parameters);
  PolicyInput input;
  input.lengths = trend.lengths;
  input.sampler.shuffle = false;
  input.ranks = static_cast<int>(trend.ranks);
  return make_policy(spec).epoch(input).batches;
}

EpochBatches fairseq_groups(const Trend& trend) {
  Ids ascending = trend.order;
  sort_by_length(ascending, trend.lengths);
  FairseqBatching options;
  options.max_tokens = trend.batch_size * length_of(trend, ascending.back());
  options.multiple = 1;
  return truncated_shards(fairseq_batch_by_size(ascending, trend.lengths, options),
                          static_cast<int>(trend.ranks));
}

EpochBatches min_max(const Trend& trend, std::int64_t buffer) {
  IdLists orders = strided(trend.order, static_cast<int>(trend.ranks));
  MinMaxBatching options;
  options.global_batch = trend.ranks * trend.batch_size;
  options.buffer = buffer;
  return min_max_steps(orders, trend.lengths, options);
}

/// Every global batch in the order of the data, dealt out anew so that its largest rank is least.
EpochBatches rebalanced(const Trend& trend) {
  EpochBatches result(static_cast<std::size_t>(trend.ranks));
  for (const Ids& global : chunk(trend.order, trend.ranks * trend.batch_size, true)) {
    Ids lengths;
    for (const auto sample : global) {
      lengths.push_back(length_of(trend, sample));
    }
    const Parts parts = repartition_padded(lengths, trend.ranks).parts;
    for (std::size_t rank = 0; rank < parts.size(); ++rank) {
      Ids& batch = result[rank].emplace_back();
      for (const auto index : parts[rank]) {
        batch.push_back(global[static_cast<std::size_t>(index)]);
      }
    }
  }
  return result;
}

/// [steps, padding ratio, mean over the steps of max / mean of the ranks' padded tokens,
/// ranks * sum of max padded / all useful].
Json columns(const Trend& trend, const EpochBatches& epoch) {
  double useful = 0;
  double padded = 0;
  double largest = 0;
  double ratios = 0;
  const std::size_t steps = epoch.front().size();
  for (std::size_t step = 0; step < steps; ++step) {
    double step_padded = 0;
    double step_largest = 0;
    for (const Batches& rank : epoch) {
      const Json shape = batch_stats({rank[step]}, trend.lengths).front();
      const auto tokens = shape.at("padded").get<double>();
      useful += shape.at("useful").get<double>();
      step_padded += tokens;
      step_largest = std::max(step_largest, tokens);
    }
    padded += step_padded;
    largest += step_largest;
    ratios += step_largest * static_cast<double>(trend.ranks) / step_padded;
  }
  return {steps,
          rounded(1 - useful / padded, 5),
          rounded(ratios / static_cast<double>(steps), 5),
          rounded(static_cast<double>(trend.ranks) * largest / useful, 5)};
}

Json trend_table(const FixtureCase& data) {
  Trend trend;
  trend.lengths = data.lengths();
  trend.order.resize(trend.lengths.size());
  std::iota(trend.order.begin(), trend.order.end(), std::int64_t{0});
  trend.ranks = data.parameters.at("W");
  trend.batch_size = data.parameters.at("b");
  const std::int64_t mult = data.parameters.at("mega_batch").get<std::int64_t>() / trend.batch_size;
  const PolicyParameters counted = {{"batch_size", trend.batch_size}};
  const PolicyParameters grouped = {{"batch_size", trend.batch_size}, {"mega_batch_mult", mult}};
  const auto of = [&trend](const EpochBatches& epoch) { return columns(trend, epoch); };
  return {{"fixed", of(planned(trend, "fixed", counted))},
          {"local_sort", of(planned(trend, "local_sort", counted))},
          {"hf_group_by_length", of(planned(trend, "hf_group_by_length", grouped))},
          {"hf_strided", of(planned(trend, "hf_length_grouped_sampler", grouped))},
          {"fairseq_max_tokens_grouped", of(fairseq_groups(trend))},
          {"minmax", of(min_max(trend, data.parameters.at("K")))},
          {"batch_rebalance_contiguous", of(rebalanced(trend))}};
}

constexpr std::array kTrendKinds = {CaseKind{"trend.", trend_table}};

}  // namespace

std::span<const CaseKind> trend_cases() {
  return kTrendKinds;
}

}  // namespace stepsim::test
