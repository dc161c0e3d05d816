// The token-skew lab's plans, bit for bit: reference plans and aggregates against the policies.
#include <algorithm>
#include <fstream>
#include <iterator>
#include <map>
#include <numeric>
#include <sstream>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "costmodel/model/batch_shape.h"
#include "tests/approx.h"
#include "tests/sim/batching/fixtures.h"
#include "tests/sim/batching/make_policy.h"
#include "tests/sim/batching/plan_hash.h"
#include "tests/sim/batching/steps_of.h"
#include "tests/test_data.h"

using namespace stepsim;
using namespace stepsim::test;

namespace {

struct LabCase {
  PolicySpec policy;
  LengthSource lengths;
  std::uint64_t seed = 2026;
  std::int64_t samples = 3072;
  int ranks = 4;
  int steps = 12;
  int skip = 2;
};

LengthSource lab_lengths(std::uint64_t seed, std::int64_t min, std::int64_t max, double outliers) {
  LengthSource source;
  source.kind = LengthSource::Kind::LogUniform;
  source.min = min;
  source.max = max;
  source.outlier_probability = outliers;
  source.label_classes = 16;
  source.seed = seed;
  return source;
}

PolicySpec lab_policy(const std::string& kind, std::int64_t limit) {
  PolicySpec spec;
  spec.kind = kind;
  spec.parameters.set(kind == "token_budget" ? "max_tokens" : "batch_size", limit);
  return spec;
}

LabCase published_case(const std::string& name) {
  LabCase lab;
  lab.lengths = lab_lengths(lab.seed, 64, 256, 0.08);
  if (name == "uniform") {
    lab.lengths.kind = LengthSource::Kind::Constant;
    lab.lengths.constant = 128;
  }
  const std::map<std::string, PolicySpec> policies = {
      {"uniform", lab_policy("fixed", 8)},
      {"variable_fixed", lab_policy("fixed", 8)},
      {"bucketing", lab_policy("bucketed", 8)},
      {"token_budget", lab_policy("token_budget", 1280)}};
  lab.policy = policies.at(name);
  return lab;
}

struct LabRun {
  std::vector<std::int64_t> lengths;
  EpochBatches epoch;     ///< [rank][batch]
  EpochBatches executed;  ///< [rank][step]
};

LabRun run_lab(const LabCase& lab) {
  LabRun run;
  run.lengths = generate_lengths(lab.lengths, lab.samples);
  PolicyInput input;
  input.lengths = run.lengths;
  input.sampler.kind = SamplerSpec::Kind::Python;
  input.sampler.seed = lab.seed + 17;
  input.ranks = lab.ranks;
  const auto policy = make_policy(lab.policy);
  run.epoch = policy.epoch(input).batches;
  run.executed.resize(static_cast<std::size_t>(lab.ranks));
  for (const auto& step : steps_of(policy, input, lab.steps)) {
    for (std::size_t rank = 0; rank < step.size(); ++rank) {
      auto& batch = run.executed[rank].emplace_back();
      for (const Piece& piece : step[rank]) {
        batch.push_back(piece.sample);
      }
    }
  }
  return run;
}

BatchShape shape_of(const Ids& batch, const std::vector<std::int64_t>& lengths) {
  std::vector<std::int64_t> own;
  for (const auto id : batch) {
    own.push_back(lengths[static_cast<std::size_t>(id)]);
  }
  return batch_shape(own);
}

/// Means over the steps from..to-1: sums over the ranks, and max - min over the ranks.
struct Aggregate {
  double useful = 0;
  double padded = 0;
  double spread = 0;
  double padded_spread = 0;
};

Aggregate aggregate(const LabRun& run,
                    const EpochBatches& batches,
                    std::size_t from,
                    std::size_t to) {
  Aggregate sum;
  for (std::size_t step = from; step < to; ++step) {
    std::vector<double> useful;
    std::vector<double> padded;
    for (const auto& rank : batches) {
      const BatchShape shape = shape_of(rank[step], run.lengths);
      useful.push_back(static_cast<double>(shape.useful_tokens));
      padded.push_back(static_cast<double>(shape.padded_tokens()));
    }
    const auto [low, high] = std::minmax_element(useful.begin(), useful.end());
    const auto [padded_low, padded_high] = std::minmax_element(padded.begin(), padded.end());
    const auto steps = static_cast<double>(to - from);
    sum.useful += std::accumulate(useful.begin(), useful.end(), 0.0) / steps;
    sum.padded += std::accumulate(padded.begin(), padded.end(), 0.0) / steps;
    sum.spread += (*high - *low) / steps;
    sum.padded_spread += (*padded_high - *padded_low) / steps;
  }
  return sum;
}

/// Rows of a CSV file without quotes, by column name.
std::vector<std::map<std::string, std::string>> csv_rows(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::vector<std::string> columns;
  std::vector<std::map<std::string, std::string>> rows;
  while (std::getline(file, line)) {
    std::vector<std::string> cells;
    std::istringstream stream(line);
    for (std::string cell; std::getline(stream, cell, ',');) {
      cells.push_back(cell);
    }
    if (columns.empty()) {
      columns = cells;
      continue;
    }
    rows.emplace_back();
    for (std::size_t i = 0; i < cells.size(); ++i) {
      rows.back()[columns[i]] = cells[i];
    }
  }
  return rows;
}

Ids numbers(const std::string& text) {
  std::istringstream stream(text);
  return Ids(std::istream_iterator<std::int64_t>(stream), {});
}

doctest::Approx near(const std::string& text) {
  return Approx(std::stod(text)).epsilon(1e-9);
}

}  // namespace

TEST_CASE("every batch of the published token-skew plans is reproduced") {
  const auto path = data_file("seed_lab/plan.csv");
  if (!path) {
    return;
  }
  std::map<std::string, LabRun> runs;
  const auto rows = csv_rows(*path);
  CHECK(rows.size() == 192);
  for (const auto& row : rows) {
    const std::string name = row.at("case");
    if (!runs.contains(name)) {
      runs[name] = run_lab(published_case(name));
    }
    CAPTURE(name);
    CAPTURE(row.at("rank"));
    CAPTURE(row.at("step"));
    const LabRun& run = runs.at(name);
    const Ids& batch = run.executed[std::stoul(row.at("rank"))][std::stoul(row.at("step"))];
    CHECK(batch == numbers(row.at("sample_ids")));
    const BatchShape shape = shape_of(batch, run.lengths);
    CHECK(shape.samples == std::stoll(row.at("samples")));
    CHECK(shape.useful_tokens == std::stoll(row.at("useful_tokens")));
    CHECK(shape.padded_tokens() == std::stoll(row.at("padded_tokens")));
    CHECK(shape.max_length == std::stoll(row.at("max_length")));
    for (std::size_t i = 0; i < batch.size(); ++i) {
      CHECK(run.lengths[static_cast<std::size_t>(batch[i])] == numbers(row.at("lengths"))[i]);
    }
  }
}

TEST_CASE("the published token-skew summary is reproduced, executed steps and full epoch") {
  const auto path = data_file("seed_lab/plan_summary.csv");
  if (!path) {
    return;
  }
  const auto rows = csv_rows(*path);
  CHECK(rows.size() == 4);
  for (const auto& row : rows) {
    CAPTURE(row.at("case"));
    const LabRun run = run_lab(published_case(row.at("case")));
    CHECK(plan_hash(run.executed) == row.at("plan_hash_12_steps"));
    CHECK(std::accumulate(run.lengths.begin(), run.lengths.end(), std::int64_t{0}) ==
          std::stoll(row.at("sum_lengths")));
    std::size_t fewest = run.epoch[0].size();
    for (std::size_t rank = 0; rank < 4; ++rank) {
      CHECK(run.epoch[rank].size() == std::stoul(row.at("batches_rank" + std::to_string(rank))));
      fewest = std::min(fewest, run.epoch[rank].size());
    }
    const Aggregate steady = aggregate(run, run.executed, 2, 12);
    CHECK(steady.useful == near(row.at("useful_tokens_per_step")));
    CHECK(steady.padded == near(row.at("padded_tokens_per_step")));
    CHECK(1 - steady.useful / steady.padded == near(row.at("padding_ratio")));
    CHECK(steady.spread == near(row.at("rank_token_spread")));
    CHECK(steady.padded_spread == near(row.at("rank_padded_token_spread")));
    CHECK(fewest == std::stoul(row.at("full_epoch_steps")));
    const Aggregate whole = aggregate(run, run.epoch, 0, fewest);
    CHECK(whole.useful == near(row.at("full_epoch_useful_per_step")));
    CHECK(1 - whole.useful / whole.padded == near(row.at("full_epoch_padding_ratio")));
    CHECK(whole.spread == near(row.at("full_epoch_rank_token_spread")));
  }
}

TEST_CASE("token-skew cases with other ranks, steps, seeds and lengths are reproduced") {
  for (const auto& data : fixtures("seed_lab.")) {
    CAPTURE(data.at("id").get<std::string>());
    const Json& parameters = data.at("parameters");
    const Json& expected = data.at("expected");
    const auto strategy = parameters.at("strategy").get<std::string>();
    LabCase lab;
    lab.policy =
        strategy == "token"
            ? lab_policy("token_budget", parameters.at("max_tokens_per_batch"))
            : lab_policy(strategy == "bucket" ? "bucketed" : "fixed", parameters.at("batch_size"));
    lab.seed = parameters.at("seed");
    lab.lengths = lab_lengths(lab.seed,
                              parameters.value("min_seq_len", 64),
                              parameters.value("max_seq_len", 256),
                              parameters.value("outlier_prob", 0.08));
    lab.samples = expected.at("num_examples");
    lab.ranks = parameters.at("world_size");
    lab.steps = parameters.at("steps");
    const LabRun run = run_lab(lab);
    CHECK(Ids(run.lengths.begin(), run.lengths.begin() + 8) ==
          expected.at("first8_lengths").get<Ids>());
    CHECK(plan_hash(run.executed) == expected.at("plan_hash_executed_steps").get<std::string>());
    for (std::size_t i = 0; i < 4; ++i) {
      CHECK(run.executed[0][i] == expected.at("samples_rank0_first4")[i].get<Ids>());
    }
    for (std::size_t rank = 0; rank < run.epoch.size(); ++rank) {
      CHECK(run.epoch[rank].size() == expected.at("batches_per_rank")[rank].get<std::size_t>());
    }
    const Aggregate steady = aggregate(run, run.executed, 2, static_cast<std::size_t>(lab.steps));
    CHECK(steady.useful == Approx(expected.at("useful_mean_per_step").get<double>()));
    CHECK(steady.padded == Approx(expected.at("padded_mean_per_step").get<double>()));
    CHECK(steady.spread == Approx(expected.at("average_rank_token_spread").get<double>()));
  }
}
