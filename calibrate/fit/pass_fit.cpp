#include "calibrate/fit/pass_fit.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <random>

#include <fmt/core.h>

#include "calibrate/fit/nnls.h"
#include "calibrate/fit/pass_forms.h"
#include "costmodel/base/input_error.h"
#include "costmodel/base/mapped.h"
#include "costmodel/base/quantile.h"

namespace stepsim {
namespace {

constexpr int kDraws = 40;
constexpr int kBlock = 4;
constexpr double kTellsApart = 1.25;  ///< Times the squared residuals of all features.
/// Batches of so many times the most tokens, and more, work in new memory.
constexpr double kNewMemoryFrom = 0.7;
constexpr double kBeyondMost = 1.4;
/// What new memory adds to the largest batch, and to one kBeyondMost times as large.
constexpr double kNewMemory = 0.15;
constexpr double kNewMemoryBeyond = 0.1;
constexpr double kNewMemorySpread = 0.8;  ///< Relative standard deviation of both.
constexpr std::string_view kTokenPart = "tokens:";

using FeatureRows = std::vector<std::vector<double>>;
using Places = std::vector<std::size_t>;  ///< Indices of observations.

/// Observations as rows of features.
struct FeatureTable {
  FeatureRows rows;
  std::vector<double> seconds;
};

/// Observations and what is known without them.
struct Known {
  FeatureTable steps;
  std::vector<ExpectedPass> prior;
  double residual = 0;  ///< Relative standard deviation of an observation.
};

double sum_of(std::string_view feature, const PassObservation& observation, bool varlen) {
  return sum_of(observation.batches,
                [&](const BatchShape& batch) { return pass_feature(feature, batch, varlen); });
}

/// Fits the rows at `places` with the features that `used` allows; the others get 0. Scaled so that
/// times are right in the mean: least relative residuals alone lean to the short ones.
std::vector<double> fit(const Known& known, const Places& places, const std::vector<bool>& used) {
  FeatureRows rows;
  std::vector<double> seconds;
  const auto add = [&](const std::vector<double>& row, double of_row) {
    rows.push_back(row);
    for (std::size_t i = 0; i < used.size(); ++i) {
      rows.back()[i] *= used[i] ? 1 : 0;
    }
    seconds.push_back(of_row);
  };
  for (const std::size_t place : places) {
    add(known.steps.rows[place], known.steps.seconds[place]);
  }
  std::vector<double> weights(places.size(), 1.0);
  for (const ExpectedPass& expected : known.prior) {
    add(expected.row, expected.seconds);
    weights.push_back(known.residual / expected.spread);
  }
  std::vector<double> coefficients = relative_nnls(rows, seconds, weights);
  double ratio = 0;
  for (std::size_t i = 0; i < places.size(); ++i) {
    const double fitted = dot(coefficients, rows[i]);
    ratio += fitted > 0 ? seconds[i] / fitted / static_cast<double>(places.size()) : 0;
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
  const std::vector<const Places*> blocks =
      mapped(by_block, [](const auto& block) { return &block.second; });
  Places drawn;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const Places& block = *blocks[generator() % blocks.size()];
    drawn.insert(drawn.end(), block.begin(), block.end());
  }
  return drawn;
}

/// Mean squared relative residual.
double residual(const FeatureTable& table,
                const Places& places,
                const std::vector<double>& coefficients) {
  double sum = 0;
  for (const std::size_t place : places) {
    const double error = dot(coefficients, table.rows[place]) / table.seconds[place] - 1;
    sum += error * error;
  }
  return sum / static_cast<double>(places.size());
}

/// One draw's fit: with the features drawn for it, or with all where the steps tell them apart.
std::vector<double> drawn_fit(const Known& known,
                              const Places& places,
                              const std::vector<bool>& used) {
  std::vector<double> few = fit(known, places, used);
  std::vector<double> all = fit(known, places, std::vector<bool>(used.size(), true));
  const FeatureTable& steps = known.steps;
  return residual(steps, places, few) > kTellsApart * residual(steps, places, all) ? all : few;
}

/// What is known by weight alone, without new memory.
std::vector<ExpectedPass> by_weight(std::vector<ExpectedPass> prior) {
  std::erase_if(prior, [](const ExpectedPass& known) { return known.spread != kPriorSpread; });
  return prior;
}

/// Where steps of fewer shapes than there are terms were recorded, every other draw becomes another
/// form that fits them as well.
void add_other_forms(std::span<const PassObservation> observations,
                     const Known& known,
                     PassCost& cost) {
  Places all(known.steps.rows.size());
  std::iota(all.begin(), all.end(), std::size_t{0});
  const Known alone{known.steps, {}, 0};
  const PassForms fits = {
      [&](const std::vector<bool>& used) { return fit(alone, all, used); },
      [&](const std::vector<double>& form) { return residual(known.steps, all, form); },
      by_weight(known.prior)};
  const auto forms = other_forms(observations, cost, fits);
  for (std::size_t draw = 1; !forms.empty() && draw < cost.draws.size(); draw += 2) {
    cost.draws[draw] = forms[draw / 2 % forms.size()];
  }
}

/// Every place that `held_out` does not hold, and the fit to them.
template <typename HeldOut>
std::vector<double> fit_without(const Known& known, const HeldOut& held_out) {
  Places places;
  for (std::size_t i = 0; i < known.steps.rows.size(); ++i) {
    if (!held_out(i)) {
      places.push_back(i);
    }
  }
  return fit(known, places, std::vector<bool>(known.steps.rows.front().size(), true));
}

double scattered_error(const Known& known, std::span<const PassObservation> observations) {
  constexpr int kFolds = 5;
  const FeatureTable& table = known.steps;
  double sum = 0;
  for (int fold = 0; fold < kFolds; ++fold) {
    const auto held_out = [&](std::size_t i) { return observations[i].step % kFolds == fold; };
    const auto coefficients = fit_without(known, held_out);
    for (std::size_t i = 0; i < table.rows.size(); ++i) {
      sum += held_out(i) ? std::abs(dot(coefficients, table.rows[i]) / table.seconds[i] - 1) : 0;
    }
  }
  return sum / static_cast<double>(table.rows.size());
}

/// The size of an observation is its time: what it holds most of decides.
double block_error(const Known& known) {
  constexpr std::size_t kParts = 5;
  const FeatureTable& table = known.steps;
  const std::size_t n = table.rows.size();
  Places order(n);
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto all = fit_without(known, [](std::size_t) { return false; });
  std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) {
    return dot(all, table.rows[a]) < dot(all, table.rows[b]);
  });
  std::vector<std::size_t> part(n);
  for (std::size_t i = 0; i < n; ++i) {
    part[order[i]] = i * kParts / n;
  }
  double sum = 0;
  for (std::size_t p = 0; p < kParts; ++p) {
    const auto coefficients = fit_without(known, [&](std::size_t i) { return part[i] == p; });
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

/// The batch in the middle of all, by tokens * length.
BatchShape middle_batch(std::span<const PassObservation> observations) {
  std::vector<std::pair<double, BatchShape>> batches;
  for (const PassObservation& observation : observations) {
    for (const BatchShape& batch : observation.batches) {
      batches.emplace_back(pass_feature("tokens*length", batch, false), batch);
    }
  }
  const auto middle = batches.begin() + static_cast<std::ptrdiff_t>(batches.size() / 2);
  std::nth_element(batches.begin(), middle, batches.end());
  return middle->second;
}

/// Multiplies a batch's samples, and the length of each.
BatchShape times(const BatchShape& batch, double samples, double length) {
  const auto whole = [](double value) { return std::max<std::int64_t>(1, std::llround(value)); };
  BatchShape result = batch;
  result.samples = whole(static_cast<double>(batch.samples) * samples);
  result.max_length = whole(static_cast<double>(batch.max_length) * length);
  const double real = static_cast<double>(result.samples) / static_cast<double>(batch.samples);
  result.useful_tokens = whole(static_cast<double>(batch.useful_tokens) * real * length);
  result.sum_squares = batch.sum_squares * real * length * length;
  result.window_pairs = batch.window_pairs * real * length;
  return result;
}

double seconds_of(const std::vector<double>& coefficients,
                  const std::vector<std::string>& features,
                  const BatchShape& batch,
                  bool varlen) {
  double seconds = 0;
  for (std::size_t i = 0; i < features.size(); ++i) {
    seconds += coefficients[i] * pass_feature(features[i], batch, varlen);
  }
  return seconds;
}

/// The batch of the most tokens.
BatchShape largest_batch(std::span<const PassObservation> observations, bool varlen) {
  BatchShape largest;
  for (const PassObservation& observation : observations) {
    for (const BatchShape& batch : observation.batches) {
      if (pass_feature("tokens", batch, varlen) > pass_feature("tokens", largest, varlen)) {
        largest = batch;
      }
    }
  }
  return largest;
}

/// Adds what new memory is expected to cost, `share` of `seconds`, to the feature's own rows alone.
void add_new_memory(const std::string& feature,
                    std::size_t place,
                    const BatchShape& batch,
                    bool varlen,
                    double seconds,
                    Known& known) {
  ExpectedPass expected{
      std::vector<double>(known.steps.rows.front().size()), seconds, kNewMemorySpread};
  expected.row[place] = pass_feature(feature, batch, varlen);
  if (expected.row[place] > 0 && seconds > 0) {
    known.prior.push_back(std::move(expected));
  }
}

/// Sets `known.prior`: the middle batch's time, carried to other sizes by weight, and what new
/// memory costs.
void add_prior(std::span<const PassObservation> observations,
               const std::vector<std::string>& features,
               bool varlen,
               const PassWeight& weight,
               Known& known) {
  const FeatureTable& steps = known.steps;
  Places places(steps.rows.size());
  std::iota(places.begin(), places.end(), std::size_t{0});
  const auto alone = fit(known, places, std::vector<bool>(features.size(), true));
  known.residual = std::sqrt(residual(steps, places, alone));
  const BatchShape middle = middle_batch(observations);
  const double seconds = seconds_of(alone, features, middle, varlen);
  for (const auto& [samples, length] : {std::pair(0.5, 1.0),
                                        std::pair(2.0, 1.0),
                                        std::pair(4.0, 1.0),
                                        std::pair(1.0, 0.25),
                                        std::pair(1.0, 0.5),
                                        std::pair(1.0, 2.0),
                                        std::pair(1.0, 4.0)}) {
    const BatchShape other = times(middle, samples, length);
    std::vector<double> row = mapped(
        features, [&](const std::string& feature) { return pass_feature(feature, other, varlen); });
    known.prior.push_back({std::move(row), seconds * weight(other) / weight(middle), kPriorSpread});
  }
  const BatchShape largest = largest_batch(observations, varlen);
  const double of_largest = seconds_of(alone, features, largest, varlen);
  for (std::size_t i = 0; i < features.size(); ++i) {
    if (!features[i].starts_with(kTokenPart)) {
      continue;
    }
    if (pass_feature(features[i], largest, varlen) > 0) {
      add_new_memory(features[i], i, largest, varlen, kNewMemory * of_largest, known);
    } else {
      const BatchShape beyond = times(largest, kBeyondMost, 1);
      const double share = kNewMemoryBeyond * kBeyondMost;
      add_new_memory(features[i], i, beyond, varlen, share * of_largest, known);
    }
  }
}

/// Draws what is not measured anew.
Known with_drawn_prior(const Known& known, std::mt19937_64& generator) {
  Known drawn = known;
  for (ExpectedPass& expected : drawn.prior) {
    // Uniform in the logarithm, with the standard deviation of the prior.
    const double uniform = static_cast<double>(generator() >> 11) * 0x1p-53;
    expected.seconds *= std::exp(expected.spread * std::sqrt(12.0) * (uniform - 0.5));
  }
  return drawn;
}

}  // namespace

std::vector<std::string> pass_features(std::span<const PassObservation> observations,
                                       AttentionKind attention,
                                       Memory memory) {
  std::vector<std::string> features = {"1", "samples", "tokens", "tokens*length"};
  const bool varlen = attention == AttentionKind::Varlen;
  const double most = pass_feature("tokens", largest_batch(observations, varlen), varlen);
  if (memory == Memory::OfProcessor && most > 1) {
    features.push_back(
        fmt::format("{}{:.0f}-{:.0f}", kTokenPart, std::floor(kNewMemoryFrom * most), most));
    features.push_back(
        fmt::format("{}{:.0f}-{:.0f}", kTokenPart, most, std::ceil(kBeyondMost * most)));
  }
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
    if (std::ranges::find(features, bend) == features.end()) {
      features.push_back(bend);
    }
  }
  return features;
}

PassCost fit_pass(std::span<const PassObservation> observations,
                  const std::vector<std::string>& features,
                  AttentionKind attention,
                  const PassWeight& weight) {
  const bool varlen = attention == AttentionKind::Varlen;
  if (observations.size() < kFewestPassSamples) {
    throw InputError("{} steps and ranks are too few for a fit; record at least {}",
                     observations.size(),
                     kFewestPassSamples);
  }
  Known known;
  FeatureTable& table = known.steps;
  std::map<int, Places> by_block;
  for (const PassObservation& observation : observations) {
    by_block[observation.step / kBlock].push_back(table.rows.size());
    table.rows.push_back(mapped(features, [&](const std::string& feature) {
      return sum_of(feature, observation, varlen);
    }));
    table.seconds.push_back(observation.seconds);
    if (!(observation.seconds > 0)) {
      throw InputError("step {}: a time of 0", observation.step);
    }
  }
  PassCost cost;
  cost.features = features;
  cost.coefficients.assign(features.size(), 0.0);
  cost.samples = static_cast<int>(observations.size());
  set_ranges(observations, varlen, cost);
  if (weight) {
    add_prior(observations, features, varlen, weight, known);
  }
  std::mt19937_64 generator(1);
  for (int draw = 0; draw < kDraws; ++draw) {
    const Places places = drawn_places(by_block, generator);
    const std::vector<bool> used = drawn_features(features, generator);
    cost.draws.push_back(drawn_fit(with_drawn_prior(known, generator), places, used));
    for (std::size_t i = 0; i < features.size(); ++i) {
      cost.coefficients[i] += cost.draws.back()[i] / kDraws;
    }
  }
  add_other_forms(observations, known, cost);
  cost.errors.random = scattered_error(known, observations);
  cost.errors.block = block_error(known);
  return cost;
}

}  // namespace stepsim
