#include "calibrate/fit/pass_fit.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <random>

#include <fmt/core.h>

#include "calibrate/fit/nnls.h"
#include "calibrate/statistics.h"
#include "costmodel/input_error.h"

namespace stepsim {
namespace {

constexpr int kDraws = 40;
constexpr int kBlock = 4;
constexpr std::size_t kFewest = 10;
constexpr double kTellsApart = 1.25;  ///< Times the squared residuals of all features.

using Rows = std::vector<std::vector<double>>;
using Places = std::vector<std::size_t>;  ///< Indices of observations.

/// Observations as rows of features.
struct Table {
  Rows rows;
  std::vector<double> seconds;
};

double sum_of(std::string_view feature, const PassObservation& observation, bool varlen) {
  double sum = 0;
  for (const BatchShape& batch : observation.batches) {
    sum += pass_feature(feature, batch, varlen);
  }
  return sum;
}

/// Fits the rows at `places` with the features that `used` allows; the others get 0. Scaled so that
/// times are right in the mean: least relative residuals alone lean to the short ones.
std::vector<double> fit(const Table& table, const Places& places, const std::vector<bool>& used) {
  Rows rows;
  std::vector<double> seconds;
  for (const std::size_t place : places) {
    rows.push_back(table.rows[place]);
    for (std::size_t i = 0; i < used.size(); ++i) {
      rows.back()[i] *= used[i] ? 1 : 0;
    }
    seconds.push_back(table.seconds[place]);
  }
  std::vector<double> coefficients = relative_nnls(rows, seconds);
  double ratio = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const double fitted = dot(coefficients, rows[i]);
    ratio += fitted > 0 ? seconds[i] / fitted / static_cast<double>(rows.size()) : 0;
  }
  for (double& coefficient : coefficients) {
    coefficient *= ratio;
  }
  return coefficients;
}

/// Which features one draw may use. Always tokens and tokens * length.
std::vector<bool> drawn_features(const std::vector<std::string>& features,
                                 std::mt19937_64& generator) {
  std::vector<bool> used(features.size(), true);
  // What a batch costs beside its tokens is mostly one launch an op, whatever the batch holds;
  // where all batches have as many samples, one draw in eight still takes it as a cost of each
  // sample.
  const auto share = generator() % 8;
  for (std::size_t i = 0; i < features.size(); ++i) {
    const bool bend = features[i].find('>') != std::string::npos;
    if (features[i] == "1") {
      used[i] = share != 0;
    } else if (features[i] == "samples") {
      used[i] = share < 4;
    } else if (bend) {
      used[i] = generator() % 2 == 0;
    }
  }
  return used;
}

/// Places of blocks of steps in a row, drawn with replacement.
Places drawn_places(const std::map<int, Places>& by_block, std::mt19937_64& generator) {
  std::vector<const Places*> blocks;
  for (const auto& [block, places] : by_block) {
    blocks.push_back(&places);
  }
  Places drawn;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const Places& block = *blocks[generator() % blocks.size()];
    drawn.insert(drawn.end(), block.begin(), block.end());
  }
  return drawn;
}

/// Mean squared relative residual.
double residual(const Table& table, const Places& places, const std::vector<double>& coefficients) {
  double sum = 0;
  for (const std::size_t place : places) {
    const double error = dot(coefficients, table.rows[place]) / table.seconds[place] - 1;
    sum += error * error;
  }
  return sum / static_cast<double>(places.size());
}

/// One draw's fit: with the features drawn for it, or with all where the steps tell them apart.
std::vector<double> drawn_fit(const Table& table,
                              const Places& places,
                              const std::vector<bool>& used) {
  std::vector<double> few = fit(table, places, used);
  std::vector<double> all = fit(table, places, std::vector<bool>(used.size(), true));
  return residual(table, places, few) > kTellsApart * residual(table, places, all) ? all : few;
}

/// Every place that `held_out` does not hold, and the fit to them.
template <typename HeldOut>
std::vector<double> fit_without(const Table& table, const HeldOut& held_out) {
  Places places;
  for (std::size_t i = 0; i < table.rows.size(); ++i) {
    if (!held_out(i)) {
      places.push_back(i);
    }
  }
  return fit(table, places, std::vector<bool>(table.rows.front().size(), true));
}

double scattered_error(const Table& table, std::span<const PassObservation> observations) {
  constexpr int kFolds = 5;
  double sum = 0;
  for (int fold = 0; fold < kFolds; ++fold) {
    const auto held_out = [&](std::size_t i) { return observations[i].step % kFolds == fold; };
    const auto coefficients = fit_without(table, held_out);
    for (std::size_t i = 0; i < table.rows.size(); ++i) {
      sum += held_out(i) ? std::abs(dot(coefficients, table.rows[i]) / table.seconds[i] - 1) : 0;
    }
  }
  return sum / static_cast<double>(table.rows.size());
}

/// The size of an observation is its time: what it holds most of decides.
double block_error(const Table& table) {
  constexpr std::size_t kParts = 5;
  const std::size_t n = table.rows.size();
  Places order(n);
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto all = fit_without(table, [](std::size_t) { return false; });
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return dot(all, table.rows[a]) < dot(all, table.rows[b]);
  });
  std::vector<std::size_t> part(n);
  for (std::size_t i = 0; i < n; ++i) {
    part[order[i]] = i * kParts / n;
  }
  double sum = 0;
  for (std::size_t p = 0; p < kParts; ++p) {
    const auto coefficients = fit_without(table, [&](std::size_t i) { return part[i] == p; });
    double predicted = 0;
    double measured = 0;
    for (std::size_t i = 0; i < n; ++i) {
      if (part[i] == p) {
        predicted += dot(coefficients, table.rows[i]);
        measured += table.seconds[i];
      }
    }
    sum += std::abs(predicted / measured - 1) / kParts;
  }
  return sum;
}

void set_ranges(std::span<const PassObservation> observations, bool varlen, PassCost& cost) {
  bool first = true;
  for (const PassObservation& observation : observations) {
    for (const BatchShape& batch : observation.batches) {
      const double tokens = pass_feature("tokens", batch, varlen);
      const auto length = static_cast<double>(batch.max_length);
      if (tokens == 0) {
        continue;
      }
      if (first) {
        cost.tokens = {tokens, tokens};
        cost.length = {length, length};
        first = false;
      }
      cost.tokens = {std::min(cost.tokens.first, tokens), std::max(cost.tokens.second, tokens)};
      cost.length = {std::min(cost.length.first, length), std::max(cost.length.second, length)};
    }
  }
}

}  // namespace

std::vector<std::string> pass_features(std::span<const PassObservation> observations,
                                       AttentionKind attention) {
  std::vector<std::string> features = {"1", "samples", "tokens", "tokens*length"};
  if (attention != AttentionKind::Dense) {
    return features;
  }
  std::vector<double> pairs;
  for (const PassObservation& observation : observations) {
    for (const BatchShape& batch : observation.batches) {
      pairs.push_back(pass_feature("tokens*length", batch, false));
    }
  }
  if (pairs.empty()) {
    return features;
  }
  for (const double decile : {0.1, 0.3, 0.5, 0.7, 0.9}) {
    const std::string bend = fmt::format("tokens*length>{:.0f}", quantile(pairs, decile));
    if (std::find(features.begin(), features.end(), bend) == features.end()) {
      features.push_back(bend);
    }
  }
  return features;
}

PassCost fit_pass(std::span<const PassObservation> observations,
                  const std::vector<std::string>& features,
                  AttentionKind attention) {
  const bool varlen = attention == AttentionKind::Varlen;
  if (observations.size() < kFewest) {
    throw InputError(fmt::format("{} steps and ranks are too few for a fit; record at least {}",
                                 observations.size(),
                                 kFewest));
  }
  Table table;
  std::map<int, Places> by_block;
  for (const PassObservation& observation : observations) {
    by_block[observation.step / kBlock].push_back(table.rows.size());
    table.rows.emplace_back();
    for (const std::string& feature : features) {
      table.rows.back().push_back(sum_of(feature, observation, varlen));
    }
    table.seconds.push_back(observation.seconds);
    if (!(observation.seconds > 0)) {
      throw InputError(fmt::format("step {}: a time of 0", observation.step));
    }
  }
  PassCost cost;
  cost.features = features;
  cost.coefficients.assign(features.size(), 0.0);
  cost.samples = static_cast<int>(observations.size());
  set_ranges(observations, varlen, cost);
  std::mt19937_64 generator(1);
  for (int draw = 0; draw < kDraws; ++draw) {
    const Places places = drawn_places(by_block, generator);
    cost.draws.push_back(drawn_fit(table, places, drawn_features(features, generator)));
    for (std::size_t i = 0; i < features.size(); ++i) {
      cost.coefficients[i] += cost.draws.back()[i] / kDraws;
    }
  }
  cost.errors.random = scattered_error(table, observations);
  cost.errors.block = block_error(table);
  return cost;
}

}  // namespace stepsim
