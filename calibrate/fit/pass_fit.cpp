#include "calibrate/fit/pass_fit.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <random>
#include <utility>

#include <fmt/core.h>

#include "calibrate/fit/nnls.h"
#include "calibrate/fit/pass_forms.h"
#include "costmodel/base/index.h"
#include "costmodel/base/input_error.h"
#include "costmodel/base/mapped.h"
#include "costmodel/base/quantile.h"

namespace stepsim {
namespace {

constexpr int kDraws = 40;
constexpr int kBlock = 4;          ///< Steps in a row that are drawn together, at least;
constexpr int kMostBlocks = 2000;  ///< more where there would be more blocks than these.
/// Parts of so many observations are reduced one by one before they are put together, again and
/// again.
constexpr std::size_t kManyRows = 1024;
constexpr double kTellsApart = 1.25;  ///< Times the squared residuals of all features.
/// Batches of so many times the most tokens, and more, work in new memory.
constexpr double kNewMemoryFrom = 0.7;
constexpr double kBeyondMost = 1.4;
/// What new memory adds to the largest batch, and to one kBeyondMost times as large.
constexpr double kNewMemory = 0.15;
constexpr double kNewMemoryBeyond = 0.1;
constexpr double kNewMemorySpread = 0.8;  ///< Relative standard deviation of both.
constexpr std::string_view kTokenPart = "tokens:";

using Places = std::vector<std::size_t>;  ///< Indices of observations.

/// Observations as rows of features.
struct FeatureTable {
  DistinctRows rows;
  std::vector<double> seconds;  ///< [observation]

  [[nodiscard]] std::size_t size() const { return seconds.size(); }
};

/// Observations of one row of features.
struct EqualSteps {
  std::size_t row = 0;  ///< Its number.
  double seconds = 0;   ///< Of all of them.
  EqualRows sums;
};

/// Some of the observations.
struct Part {
  Places places;
  std::vector<EqualSteps> equal;  ///< The same, by row.
  RelativeRows rows;
};

/// Observations and what is known without them.
struct Known {
  FeatureTable steps;
  std::vector<ExpectedPass> prior;
  double residual = 0;  ///< Relative standard deviation of an observation.
};

double sum_of(const PassFeature& feature, const PassObservation& observation, bool varlen) {
  return sum_of(observation.batches,
                [&](const BatchShape& batch) { return feature.of(batch, varlen); });
}

/// Puts a part's observations of equal rows together. `found`: [row] the last part that has it, and
/// its place there.
void add_rows(const FeatureTable& table,
              std::vector<std::pair<const Part*, std::size_t>>& found,
              Part& part) {
  for (const std::size_t place : part.places) {
    const std::size_t row = table.rows.number(place);
    if (found[row].first != &part) {
      found[row] = {&part, part.equal.size()};
      part.equal.push_back({row, 0, {}});
    }
    EqualSteps& equal = part.equal[found[row].second];
    equal.seconds += table.seconds[place];
    equal.sums.add(table.seconds[place]);
  }
  for (const EqualSteps& equal : part.equal) {
    part.rows.add(table.rows.row(equal.row), equal.sums);
  }
}

/// Splits the observations into parts by their number: [part].
std::vector<Part> parts_of(const FeatureTable& table,
                           std::size_t count,
                           const std::function<std::size_t(std::size_t observation)>& number) {
  std::vector<Part> parts(count, {{}, {}, RelativeRows(table.rows.features())});
  for (std::size_t i = 0; i < table.size(); ++i) {
    parts[number(i)].places.push_back(i);
  }
  std::vector<std::pair<const Part*, std::size_t>> found(table.rows.distinct());
  for (Part& part : parts) {
    add_rows(table, found, part);
    if (table.size() >= kManyRows) {
      part.rows.reduce();
    }
  }
  return parts;
}

/// The steps of these parts with what is known without them, whatever features a fit may use.
class PassProblem {
 public:
  PassProblem(const Known& known, std::vector<const Part*> parts)
      : PassProblem(known.steps, std::move(parts), known.prior, known.residual) {}

  PassProblem(const FeatureTable& table,
              std::vector<const Part*> parts,
              std::span<const ExpectedPass> prior,
              double residual)
      : table_(table), parts_(std::move(parts)), steps_(table.rows.features()), all_(steps_) {
    for (const Part* part : parts_) {
      steps_.add(part->rows);
      count_ += static_cast<double>(part->places.size());
    }
    all_ = steps_;
    for (const ExpectedPass& expected : prior) {
      all_.add(expected.row, expected.seconds, residual / expected.spread);
    }
  }

  /// Fits with the features that `used` allows; the others get 0. Scaled so that times are right in
  /// the mean: least relative residuals alone lean to the short ones.
  [[nodiscard]] std::vector<double> fit(const std::vector<bool>& used = {}) const {
    std::vector<double> coefficients = all_.solve(used);
    const std::vector<double> fitted = table_.rows.times(coefficients);
    double ratio = 0;
    for (const Part* part : parts_) {
      for (const EqualSteps& equal : part->equal) {
        ratio += fitted[equal.row] > 0 ? equal.seconds / fitted[equal.row] : 0;
      }
    }
    for (double& coefficient : coefficients) {
      coefficient *= count_ > 0 ? ratio / count_ : 0;
    }
    return coefficients;
  }

  /// Mean squared relative residual of the steps.
  [[nodiscard]] double residual(const std::vector<double>& coefficients) const {
    return steps_.squares(coefficients) / count_;
  }

  /// The fit with the features drawn for it, or with all where the steps tell them apart.
  [[nodiscard]] std::vector<double> drawn_fit(const std::vector<bool>& used) const {
    std::vector<double> few = fit(used);
    std::vector<double> all = fit();
    return residual(few) > kTellsApart * residual(all) ? all : few;
  }

 private:
  const FeatureTable& table_;
  std::vector<const Part*> parts_;
  RelativeRows steps_;
  RelativeRows all_;  ///< And the prior.
  double count_ = 0;
};

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

/// Blocks of steps in a row.
std::vector<Part> blocks_of(std::span<const PassObservation> observations,
                            const FeatureTable& table) {
  const std::vector<int> steps = mapped(observations, &PassObservation::step);
  const int first = std::ranges::min(steps);
  const int last = std::ranges::max(steps);
  const int length = std::max(kBlock, (last - first) / kMostBlocks + 1);
  const auto number = [&](int step) { return at(step / length - first / length); };
  std::vector<Part> blocks =
      parts_of(table, number(last) + 1, [&](std::size_t i) { return number(steps[i]); });
  std::erase_if(blocks, [](const Part& block) { return block.places.empty(); });
  return blocks;
}

/// Blocks drawn with replacement.
std::vector<const Part*> drawn_blocks(const std::vector<Part>& blocks, std::mt19937_64& generator) {
  std::vector<const Part*> drawn;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    drawn.push_back(&blocks[generator() % blocks.size()]);
  }
  return drawn;
}

/// All parts, or all but one.
std::vector<const Part*> parts_without(const std::vector<Part>& parts,
                                       const Part* without = nullptr) {
  std::vector<const Part*> others;
  for (const Part& part : parts) {
    if (&part != without) {
      others.push_back(&part);
    }
  }
  return others;
}

/// What is known by weight alone, without new memory.
std::vector<ExpectedPass> by_weight(std::vector<ExpectedPass> prior) {
  std::erase_if(prior, [](const ExpectedPass& known) { return known.spread == kNewMemorySpread; });
  return prior;
}

/// Where steps of fewer shapes than there are terms were recorded, every other draw becomes another
/// form that fits them as well.
void add_other_forms(std::span<const PassObservation> observations,
                     const std::vector<Part>& blocks,
                     const Known& known,
                     PassCost& cost) {
  const PassProblem steps(known.steps, parts_without(blocks), {}, 0);
  const PassForms fits = {[&](const std::vector<bool>& used) { return steps.fit(used); },
                          [&](const std::vector<double>& form) { return steps.residual(form); },
                          by_weight(known.prior)};
  const auto forms = other_forms(observations, cost, fits);
  for (std::size_t draw = 1; !forms.empty() && draw < cost.draws.size(); draw += 2) {
    cost.draws[draw] = forms[draw / 2 % forms.size()];
  }
}

double scattered_error(const Known& known, std::span<const PassObservation> observations) {
  constexpr int kFolds = 5;
  const FeatureTable& table = known.steps;
  const std::vector<Part> folds = parts_of(table, kFolds, [&](std::size_t i) {
    return static_cast<std::size_t>(observations[i].step % kFolds);
  });
  double sum = 0;
  for (const Part& fold : folds) {
    if (fold.places.empty()) {
      continue;
    }
    const std::vector<double> fitted =
        table.rows.times(PassProblem(known, parts_without(folds, &fold)).fit());
    for (const std::size_t i : fold.places) {
      sum += std::abs(fitted[table.rows.number(i)] / table.seconds[i] - 1);
    }
  }
  return sum / static_cast<double>(table.size());
}

/// The size of an observation is its time: what it holds most of decides.
double block_error(const Known& known, const std::vector<Part>& blocks) {
  constexpr std::size_t kParts = 5;
  const FeatureTable& table = known.steps;
  const std::size_t n = table.size();
  Places order(n);
  std::iota(order.begin(), order.end(), std::size_t{0});
  const std::vector<double> all = table.rows.times(PassProblem(known, parts_without(blocks)).fit());
  std::ranges::stable_sort(order, {}, [&](std::size_t i) { return all[table.rows.number(i)]; });
  std::vector<std::size_t> part(n);
  for (std::size_t i = 0; i < n; ++i) {
    part[order[i]] = i * kParts / n;
  }
  const std::vector<Part> parts = parts_of(table, kParts, [&](std::size_t i) { return part[i]; });
  double sum = 0;
  for (const Part& held_out : parts) {
    const std::vector<double> fitted =
        table.rows.times(PassProblem(known, parts_without(parts, &held_out)).fit());
    double predicted = 0;
    double measured = 0;
    for (const std::size_t i : held_out.places) {
      predicted += fitted[table.rows.number(i)];
      measured += table.seconds[i];
    }
    sum += std::abs(predicted / measured - 1) / kParts;
  }
  return sum;
}

/// The batch in the middle of all, by tokens * length.
BatchShape middle_batch(std::span<const PassObservation> observations) {
  const PassFeature term("tokens*length");
  std::vector<std::pair<double, BatchShape>> batches;
  for (const PassObservation& observation : observations) {
    for (const BatchShape& batch : observation.batches) {
      batches.emplace_back(term.of(batch, false), batch);
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
  const PassFeature term("tokens");
  BatchShape largest;
  for (const PassObservation& observation : observations) {
    for (const BatchShape& batch : observation.batches) {
      if (term.of(batch, varlen) > term.of(largest, varlen)) {
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
      std::vector<double>(known.steps.rows.features()), seconds, kNewMemorySpread};
  expected.row[place] = pass_feature(feature, batch, varlen);
  if (expected.row[place] > 0 && seconds > 0) {
    known.prior.push_back(std::move(expected));
  }
}

/// Sets `known.prior`: the middle batch's time, carried to other sizes by weight, and what new
/// memory costs.
void add_prior(std::span<const PassObservation> observations,
               const std::vector<Part>& blocks,
               const std::vector<std::string>& features,
               bool varlen,
               const PassWeight& weight,
               Known& known) {
  const PassProblem steps(known, parts_without(blocks));
  const auto alone = steps.fit();
  known.residual = std::sqrt(steps.residual(alone));
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
    known.prior.push_back({std::move(row),
                           seconds * weight(other) / weight(middle),
                           length > 1 ? kLongerSpread : kPriorSpread});
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
std::vector<ExpectedPass> drawn_prior(std::vector<ExpectedPass> prior, std::mt19937_64& generator) {
  for (ExpectedPass& expected : prior) {
    // Uniform in the logarithm, with the standard deviation of the prior.
    const double uniform = static_cast<double>(generator() >> 11) * 0x1p-53;
    expected.seconds *= std::exp(expected.spread * std::sqrt(12.0) * (uniform - 0.5));
  }
  return prior;
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
  const PassFeature term("tokens*length");
  std::vector<double> pairs;
  for (const PassObservation& observation : observations) {
    for (const BatchShape& batch : observation.batches) {
      pairs.push_back(term.of(batch, false));
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

void set_ranges(std::span<const PassObservation> observations,
                AttentionKind attention,
                PassCost& cost) {
  const bool varlen = attention == AttentionKind::Varlen;
  const PassFeature term("tokens");
  bool first = true;
  for (const PassObservation& observation : observations) {
    for (const BatchShape& batch : observation.batches) {
      const double tokens = term.of(batch, varlen);
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
  Known known{{DistinctRows(features.size(), observations.size()), {}}, {}, 0};
  FeatureTable& table = known.steps;
  const std::vector<PassFeature> terms =
      mapped(features, [](const std::string& name) { return PassFeature(name); });
  for (const PassObservation& observation : observations) {
    table.rows.add(
        mapped(terms, [&](const PassFeature& term) { return sum_of(term, observation, varlen); }));
    table.seconds.push_back(observation.seconds);
    if (!(observation.seconds > 0)) {
      throw InputError("step {}: a time of 0", observation.step);
    }
  }
  const std::vector<Part> blocks = blocks_of(observations, table);
  PassCost cost;
  cost.features = features;
  cost.coefficients.assign(features.size(), 0.0);
  cost.samples = static_cast<int>(observations.size());
  set_ranges(observations, attention, cost);
  if (weight) {
    add_prior(observations, blocks, features, varlen, weight, known);
  }
  std::mt19937_64 generator(1);
  for (int draw = 0; draw < kDraws; ++draw) {
    std::vector<const Part*> drawn = drawn_blocks(blocks, generator);
    const std::vector<bool> used = drawn_features(features, generator);
    const auto prior = drawn_prior(known.prior, generator);
    const PassProblem problem(table, std::move(drawn), prior, known.residual);
    cost.draws.push_back(problem.drawn_fit(used));
    for (std::size_t i = 0; i < features.size(); ++i) {
      cost.coefficients[i] += cost.draws.back()[i] / kDraws;
    }
  }
  add_other_forms(observations, blocks, known, cost);
  cost.errors.random = scattered_error(known, observations);
  cost.errors.block = block_error(known, blocks);
  return cost;
}

}  // namespace stepsim
