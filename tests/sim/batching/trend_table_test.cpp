// The published trend table: ten policies on seven sets of lengths, planned by the policies as a
// scenario names them, and the order in which the table puts them.
//
// The table is of one draw of 16,384 samples a set; its seeds and how it drew are not known. Here
// kDraws independent draws, so that a figure may differ from the printed one by the rounding of
// print and by the noise of one draw around the mean of kDraws. That noise is measured: the sample
// standard deviation of each cell. At four of them chance alone
// puts none of the 210 figures outside.
#include <algorithm>
#include <array>
#include <cmath>
#include <random>
#include <span>

#include <doctest/doctest.h>
#include <fmt/core.h>

#include "sim/batching/histogram.h"
#include "tests/approx.h"
#include "tests/sim/batching/make_policy.h"
#include "tests/test_data.h"

using namespace stepsim;
using namespace stepsim::test;

namespace {

constexpr int kRanks = 8;
constexpr std::int64_t kBatch = 8;
constexpr std::size_t kSamples = 16'384;
constexpr std::size_t kDraws = 50;
constexpr std::size_t kSets = 7;
constexpr double kDeviations = 4;

constexpr std::array<const char*, kSets> kSetNames = {
    "SST-2", "SQuAD", "Wiki512", "GSM8K", "OpenChat", "Wiki<=4096", "FineWeb<=2048"};

enum Row : std::size_t {
  Fixed,
  LocalSort,
  LocalShuffles,
  HfGrouped,
  HfStrided,
  Fairseq,
  FairseqGrouped,
  MinMax,
  Rebalance,
  PackedRows,
  kRows
};

/// Padding in percent; mean over the steps of max / mean of the ranks; ranks * sum of max padded /
/// all useful. Of packed rows max / mean is of the sums of squares, and there is no third.
using Cell = std::array<double, 3>;

struct TrendRow {
  const char* name;
  const char* kind;
  std::array<Cell, kSets> printed;
};

// clang-format off
constexpr std::array<TrendRow, kRows> kTable = {{
    {"fixed", "fixed",
     {{{54.9, 1.52, 3.37}, {37.7, 1.31, 2.10}, {48.4, 1.03, 1.99}, {37.3, 1.33, 2.12},
       {23.9, 1.00, 1.32}, {70.5, 1.61, 5.32}, {61.6, 1.33, 3.42}}}},
    {"local sort, monotone", "local_sort",
     {{{0.8, 1.03, 1.045}, {0.3, 1.02, 1.02}, {0.3, 1.04, 1.03}, {0.4, 1.01, 1.02},
       {0.2, 1.03, 1.02}, {0.9, 1.05, 1.05}, {0.6, 1.05, 1.05}}}},
    {"local sort, independent shuffles", "local_sort",
     {{{0.8, 2.24, 2.26}, {0.3, 1.61, 1.62}, {0.3, 2.05, 1.94}, {0.4, 1.60, 1.61},
       {0.2, 1.34, 1.32}, {0.9, 3.30, 3.39}, {0.6, 2.63, 2.61}}}},
    {"HF group_by_length", "hf_group_by_length",
     {{{3.6, 1.37, 1.53}, {1.6, 1.20, 1.24}, {1.7, 1.32, 1.25}, {1.9, 1.22, 1.27},
       {1.1, 1.20, 1.14}, {4.3, 1.47, 1.73}, {2.8, 1.38, 1.46}}}},
    {"HF legacy strided", "hf_length_grouped_sampler",
     {{{29.1, 1.04, 1.53}, {17.7, 1.02, 1.24}, {19.2, 1.02, 1.25}, {17.4, 1.03, 1.27},
       {11.8, 1.01, 1.14}, {40.4, 1.03, 1.73}, {29.9, 1.02, 1.46}}}},
    {"fairseq max_tokens", "fairseq_max_tokens",
     {{{0.3, 1.02, 1.02}, {0.1, 1.03, 1.03}, {0.2, 1.02, 1.02}, {0.1, 1.02, 1.02},
       {0.1, 1.01, 1.01}, {0.6, 1.02, 1.03}, {0.3, 1.02, 1.03}}}},
    {"fairseq grouped_shuffling", "fairseq_max_tokens",
     {{{0.3, 1.01, 1.01}, {0.1, 1.01, 1.01}, {0.2, 1.01, 1.01}, {0.1, 1.01, 1.01},
       {0.1, 1.00, 1.01}, {0.6, 1.02, 1.02}, {0.3, 1.01, 1.02}}}},
    {"min-max (K=64)", "min_max",
     {{{52.8, 1.12, 2.36}, {36.1, 1.09, 1.70}, {48.2, 1.03, 1.99}, {36.1, 1.08, 1.70},
       {24.0, 1.00, 1.32}, {67.5, 1.20, 3.64}, {60.0, 1.13, 2.81}}}},
    {"batch_rebalance", "batch_rebalance",
     {{{11.5, 1.09, 1.23}, {7.7, 1.07, 1.16}, {11.6, 1.09, 1.24}, {7.6, 1.07, 1.16},
       {7.3, 1.07, 1.15}, {16.9, 1.15, 1.38}, {14.2, 1.11, 1.30}}}},
    {"BFD rows (padding, sum of squares)", "packed_bfd",
     {{{0.5, 1.85}, {2.4, 1.48}, {0.1, 1.35}, {2.1, 1.46}, {0.8, 1.15}, {0.1, 1.91},
       {0.0, 1.79}}}},
}};
// clang-format on

/// 16,384 lengths of the set, drawn with replacement.
std::vector<std::int64_t> drawn_lengths(std::size_t set, std::uint64_t seed) {
  static const std::array<const char*, 6> kFiles = {"sst2_train",
                                                    "squad_1_1_384",
                                                    "wikipedia_mlperf_512",
                                                    "gsm8k_train_qa",
                                                    "openchat_v1",
                                                    "wikipedia_flexsp"};
  if (set == 6) {
    LengthSource fineweb;
    fineweb.kind = LengthSource::Kind::LogNormal;
    fineweb.mu = 5.999;
    fineweb.sigma = 1.037;
    fineweb.max = 2048;
    fineweb.seed = seed;
    return generate_lengths(fineweb, kSamples);
  }
  const LengthHistogram histogram =
      read_histogram(source_root() + "/scenarios/lengths/" + kFiles[set] + ".json");
  const std::int64_t cap = set == 5 ? 4096 : kMaxSampleLength;
  std::vector<std::pair<std::int64_t, std::int64_t>> upto;  // sequences so far, length
  std::int64_t total = 0;
  for (const auto& [length, count] : histogram.counts) {
    upto.emplace_back(total += count, std::min(length, cap));
  }
  std::mt19937_64 random(seed);
  std::vector<std::int64_t> lengths(kSamples);
  for (auto& length : lengths) {
    const auto place = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(total));
    length = std::upper_bound(upto.begin(), upto.end(), std::pair(place, kMaxSampleLength))->second;
  }
  return lengths;
}

PolicySpec spec_of(std::size_t row, std::int64_t longest) {
  PolicySpec spec;
  spec.kind = kTable[row].kind;
  PolicyParameters& parameters = spec.parameters;
  if (row == MinMax) {
    parameters.set("global_batch", kRanks * kBatch);
  } else if (row == PackedRows) {
    parameters.set("capacity", longest);
  } else if (row == Fairseq || row == FairseqGrouped) {
    parameters.set("max_tokens", kBatch * longest);
    parameters.set("required_batch_size_multiple", std::int64_t{1});
    parameters.set("grouped_shuffling", row == FairseqGrouped);
  } else {
    parameters.set("batch_size", kBatch);
  }
  if (row == LocalShuffles) {
    parameters.set("order", std::string("independent_shuffles"));
  }
  return spec;
}

EpochBatches planned(std::size_t row, std::span<const std::int64_t> lengths, std::uint64_t seed) {
  PolicyInput input;
  input.lengths = lengths;
  input.ranks = kRanks;
  input.sampler.seed = seed;
  // The table's steps are whole: no rank runs an empty batch.
  input.sampler.drop_last = row == Fairseq;
  return make_policy(spec_of(row, *std::max_element(lengths.begin(), lengths.end())))
      .epoch(input)
      .batches;
}

/// What one rank runs in a step: padded and useful tokens, sum of squared lengths.
std::array<double, 3> sums(const std::vector<std::int64_t>& batch,
                           std::span<const std::int64_t> lengths) {
  std::array<double, 3> result = {};
  double longest = 0;
  for (const auto sample : batch) {
    const auto length = static_cast<double>(lengths[static_cast<std::size_t>(sample)]);
    longest = std::max(longest, length);
    result[1] += length;
    result[2] += length * length;
  }
  result[0] = longest * static_cast<double>(batch.size());
  return result;
}

Cell figures(std::size_t row, const EpochBatches& epoch, std::span<const std::int64_t> lengths) {
  const std::size_t balanced = row == PackedRows ? 2 : 0;
  const std::size_t steps = epoch.front().size();
  double padded = 0;
  double useful = 0;
  double ratios = 0;
  double highest = 0;
  for (std::size_t step = 0; step < steps; ++step) {
    double all = 0;
    double largest = 0;
    for (const Batches& rank : epoch) {
      const auto own = sums(rank.at(step), lengths);
      padded += own[0];
      useful += own[1];
      all += own[balanced];
      largest = std::max(largest, own[balanced]);
    }
    ratios += largest * kRanks / all;
    highest += largest;
  }
  if (row == PackedRows) {
    padded = static_cast<double>(*std::max_element(lengths.begin(), lengths.end())) *
             static_cast<double>(steps * kRanks);
  }
  return {100 * (1 - useful / padded),
          ratios / static_cast<double>(steps),
          row == PackedRows ? 0 : highest * kRanks / useful};
}

/// Means over the draws, and the sample standard deviation of one draw.
struct Measured {
  std::array<std::array<Cell, kSets>, kRows> mean = {};
  std::array<std::array<Cell, kSets>, kRows> deviation = {};
  std::array<std::array<std::array<double, kSets>, kRows>, kDraws> multiple = {};
};

Measured measured() {
  Measured result;
  for (std::size_t set = 0; set < kSets; ++set) {
    for (std::size_t draw = 0; draw < kDraws; ++draw) {
      const auto lengths = drawn_lengths(set, 100 + draw);
      for (std::size_t row = 0; row < kRows; ++row) {
        const Cell cell = figures(row, planned(row, lengths, draw), lengths);
        result.multiple[draw][row][set] = cell[2];
        for (std::size_t i = 0; i < 3; ++i) {
          result.mean[row][set][i] += cell[i] / kDraws;
          result.deviation[row][set][i] += cell[i] * cell[i] / (kDraws - 1);
        }
      }
    }
    for (std::size_t row = 0; row < kRows; ++row) {
      for (std::size_t i = 0; i < 3; ++i) {
        double& deviation = result.deviation[row][set][i];
        const double mean = result.mean[row][set][i];
        deviation = std::sqrt(std::max(0., deviation - mean * mean * kDraws / (kDraws - 1)));
      }
    }
  }
  return result;
}

const Measured& trend() {
  static const Measured kResult = measured();
  return kResult;
}

/// Digits behind the point of the third number: three in one cell, else two.
int digits(const Cell& printed) {
  return std::abs(std::remainder(printed[2], 0.01)) < 1e-6 ? 2 : 3;
}

std::string text(const Cell& cell, std::size_t row, std::size_t set) {
  const std::string two = fmt::format("{:.1f} {:.2f}", cell[0], cell[1]);
  const int third = digits(kTable[row].printed[set]);
  return row == PackedRows ? two : fmt::format("{} {:.{}f}", two, cell[2], third);
}

std::string table() {
  std::string result = fmt::format("\n{:<36}", "padding %, max/mean, step multiple");
  for (const char* name : kSetNames) {
    result += fmt::format("{:<16}", name);
  }
  for (std::size_t row = 0; row < kRows; ++row) {
    result += fmt::format("\n{:<36}", kTable[row].name);
    for (std::size_t set = 0; set < kSets; ++set) {
      result += fmt::format("{:<16}", text(trend().mean[row][set], row, set));
    }
    result += fmt::format("\n{:<36}", "  as printed");
    for (std::size_t set = 0; set < kSets; ++set) {
      result += fmt::format("{:<16}", text(kTable[row].printed[set], row, set));
    }
  }
  return result;
}

/// How far the mean of the draws may be from what one other draw printed.
double noise(std::size_t row, std::size_t set, std::size_t figure) {
  return kDeviations * std::sqrt(1 + 1.0 / kDraws) * trend().deviation[row][set][figure];
}

}  // namespace

TEST_CASE(
    "the trend table: every figure as printed, but for its rounding and the noise of a draw") {
  MESSAGE(table());
  for (std::size_t row = 0; row < kRows; ++row) {
    for (std::size_t set = 0; set < kSets; ++set) {
      CAPTURE(kTable[row].name);
      CAPTURE(kSetNames[set]);
      for (std::size_t i = 0; i < 3; ++i) {
        CAPTURE(i);
        const bool long_third = i == 2 && digits(kTable[row].printed[set]) == 3;
        const double rounding = i == 0 ? 0.05 : long_third ? 0.0005 : 0.005;
        const double mean = trend().mean[row][set][i];
        CAPTURE(trend().deviation[row][set][i]);
        CAPTURE(mean);
        CAPTURE(kTable[row].printed[set][i]);
        CHECK(std::abs(mean - kTable[row].printed[set][i]) <= rounding + noise(row, set, i));
      }
    }
  }
}

TEST_CASE(
    "the trend table: policies of one length a step are ahead, then the balanced, then fixed") {
  for (std::size_t set = 0; set < kSets; ++set) {
    CAPTURE(kSetNames[set]);
    for (const auto& multiple : trend().multiple) {
      const auto of = [&](Row row) { return multiple[row][set]; };
      CHECK(std::max(of(Fairseq), of(LocalSort)) < std::min(of(Rebalance), of(HfGrouped)));
      CHECK(std::max(of(Rebalance), of(HfGrouped)) < of(MinMax));
      // Both are governed by 64 neighbours in length, whoever holds them.
      CHECK(of(HfStrided) == Approx(of(HfGrouped)).epsilon(1e-12));
    }
    for (const Row row : {Fairseq, LocalSort}) {
      CHECK(trend().mean[row][set][2] >= 1.005 - noise(row, set, 2));
      CHECK(trend().mean[row][set][2] <= 1.055 + noise(row, set, 2));
    }
    // Equal where every rank holds a sample at the cap; half a printed digit is no difference.
    CHECK(trend().mean[MinMax][set][2] <= trend().mean[Fixed][set][2] + 0.005);
  }
}

TEST_CASE("the trend table: rebalancing beats grouping on six sets of seven") {
  for (std::size_t set = 0; set < kSets; ++set) {
    CAPTURE(kSetNames[set]);
    const bool beats = trend().mean[Rebalance][set][2] < trend().mean[HfGrouped][set][2];
    CHECK(beats == (std::string(kSetNames[set]) != "OpenChat"));
  }
}

TEST_CASE("the trend table: min-max helps unless every rank holds a sample at the cap") {
  for (std::size_t set = 0; set < kSets; ++set) {
    CAPTURE(kSetNames[set]);
    const double ratio = trend().mean[MinMax][set][2] / trend().mean[Fixed][set][2];
    const std::string name = kSetNames[set];
    if (name == "OpenChat" || name == "Wiki512") {
      CHECK(ratio == Approx(1).epsilon(0.01));
    } else {
      CHECK(ratio < 0.9);
    }
  }
}

TEST_CASE("the trend table: shuffles of each rank's own undo more than half of a local sort") {
  for (std::size_t set = 0; set < kSets; ++set) {
    CAPTURE(kSetNames[set]);
    const auto of = [set](Row row) { return trend().mean[row][set][2]; };
    CHECK(of(LocalShuffles) - of(LocalSort) > 0.5 * (of(Fixed) - of(LocalSort)));
  }
}

TEST_CASE("the trend table: rows of equal tokens are not equal attention") {
  for (std::size_t set = 0; set < kSets; ++set) {
    CAPTURE(kSetNames[set]);
    CHECK(trend().mean[PackedRows][set][0] < 3);
    CHECK(trend().mean[PackedRows][set][1] > 1.1);
  }
}
