// The token-skew lab's plans and their figures.
#include <algorithm>
#include <array>
#include <numeric>

#include <nlohmann/json.hpp>

#include "costmodel/model/batch_shape.h"
#include "sim/batching/lengths.h"
#include "tests/sim/batching/fixture_case.h"
#include "tests/sim/batching/make_policy.h"
#include "tests/sim/batching/plan_hash.h"
#include "tests/sim/batching/steps_of.h"

namespace stepsim::test {
namespace {

struct Lab {
  Ids lengths;
  EpochBatches epoch;     ///< [rank][batch]
  EpochBatches executed;  ///< [rank][step]
};

LengthSource lab_lengths(const FixtureCase& data) {
  LengthSource source;
  const bool varies = data.parameter("length_mode", std::string("variable")) == "variable";
  source.kind = varies ? LengthSource::Kind::LogUniform : LengthSource::Kind::Constant;
  source.constant = data.parameter("fixed_seq_len", std::int64_t{128});
  source.min = data.parameter("min_seq_len", std::int64_t{64});
  source.max = data.parameter("max_seq_len", std::int64_t{256});
  source.outlier_probability = data.parameter("outlier_prob", 0.08);
  source.label_classes = data.parameter("num_classes", std::int64_t{16});
  source.seed = data.parameters.at("seed");
  return source;
}

/// The lab's data set grows with its steps and ranks.
std::int64_t lab_samples(const FixtureCase& data) {
  const std::int64_t ranks = data.parameters.at("world_size");
  const std::int64_t steps = data.parameters.at("steps");
  return std::max(steps * data.parameters.at("batch_size").get<std::int64_t>() * ranks * 8,
                  data.parameters.at("max_tokens_per_batch").get<std::int64_t>() * ranks / 32);
}

PolicySpec lab_policy(const FixtureCase& data) {
  const auto strategy = data.parameters.at("strategy").get<std::string>();
  PolicySpec spec;
  spec.kind = strategy == "token" ? "token_budget" : strategy == "bucket" ? "bucketed" : "fixed";
  const bool by_tokens = strategy == "token";
  spec.parameters.set(
      by_tokens ? "max_tokens" : "batch_size",
      data.parameters.at(by_tokens ? "max_tokens_per_batch" : "batch_size").get<std::int64_t>());
  return spec;
}

Lab run_lab(const FixtureCase& data) {
  Lab lab;
  lab.lengths = generate_lengths(lab_lengths(data), lab_samples(data));
  PolicyInput input;
  input.lengths = lab.lengths;
  input.sampler.kind = SamplerSpec::Kind::Python;
  input.sampler.seed = data.parameters.at("seed").get<std::uint64_t>() + 17;
  input.ranks = data.parameters.at("world_size");
  const BatchingPolicy policy = make_policy(lab_policy(data));
  lab.epoch = policy.epoch(input).batches;
  lab.executed.resize(lab.epoch.size());
  for (const auto& step : steps_of(policy, input, data.parameters.at("steps"))) {
    for (std::size_t rank = 0; rank < step.size(); ++rank) {
      auto& batch = lab.executed[rank].emplace_back();
      for (const Piece& piece : step[rank]) {
        batch.push_back(piece.sample);
      }
    }
  }
  return lab;
}

/// Means over the steps behind `skip`.
Json lab_means(const Lab& lab, std::size_t skip) {
  double useful = 0;
  double padded = 0;
  double spread = 0;
  const std::size_t end = lab.executed.front().size();
  for (std::size_t step = skip; step < end; ++step) {
    Ids tokens;
    for (const Batches& rank : lab.executed) {
      const Json shape = batch_stats({rank[step]}, lab.lengths).front();
      tokens.push_back(shape.at("useful"));
      padded += shape.at("padded").get<double>();
    }
    useful += static_cast<double>(std::accumulate(tokens.begin(), tokens.end(), std::int64_t{0}));
    const auto [low, high] = std::minmax_element(tokens.begin(), tokens.end());
    spread += static_cast<double>(*high - *low);
  }
  const auto steps = static_cast<double>(end - skip);
  return {{"useful_mean_per_step", useful / steps},
          {"padded_mean_per_step", padded / steps},
          {"average_padding_ratio", 1 - useful / padded},
          {"average_rank_token_spread", spread / steps}};
}

Json seed_lab(const FixtureCase& data) {
  const Lab lab = run_lab(data);
  const std::int64_t steps = data.parameters.at("steps");
  const std::int64_t skip = std::min(data.parameter("skip_first_steps", std::int64_t{2}),
                                     std::max<std::int64_t>(steps - 1, 0));
  Json result = lab_means(lab, static_cast<std::size_t>(skip));
  result["num_examples"] = lab.lengths.size();
  result["sum_lengths"] = std::accumulate(lab.lengths.begin(), lab.lengths.end(), std::int64_t{0});
  result["first8_lengths"] = Ids(lab.lengths.begin(), lab.lengths.begin() + 8);
  for (const Batches& rank : lab.epoch) {
    result["batches_per_rank"].push_back(rank.size());
  }
  const Batches& first_rank = lab.executed.front();
  result["samples_rank0_first4"] = Batches(
      first_rank.begin(), first_rank.begin() + std::min<std::ptrdiff_t>(4, std::ssize(first_rank)));
  result["plan_hash_executed_steps"] = plan_hash(lab.executed);
  return result;
}

constexpr std::array kLabKinds = {CaseKind{"seed_lab.", seed_lab}};

}  // namespace

std::span<const CaseKind> lab_cases() {
  return kLabKinds;
}

}  // namespace stepsim::test
