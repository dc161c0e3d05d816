#include "sim/study/diff/effect.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "costmodel/base/input_error.h"
#include "costmodel/base/mapped.h"
#include "costmodel/base/quantile.h"

namespace stepsim {
namespace {

constexpr std::size_t kFewestBlocks = 6;
constexpr std::size_t kMostBlocks = 32;
constexpr std::size_t kStepsOfBlock = 4;

double dot_of(std::span<const double> a, std::span<const double> b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

double square(double value) {
  return value * value;
}

/// Blocks of one run of so many steps.
std::size_t block_count(std::size_t steps) {
  return std::clamp(steps / kStepsOfBlock, kFewestBlocks, kMostBlocks);
}

double mean_of(std::span<const double> values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

/// With n - 1; of two values at least.
double variance_of(std::span<const double> values) {
  const double centre = mean_of(values);
  double sum = 0;
  for (const double value : values) {
    sum += square(value - centre);
  }
  return sum / static_cast<double>(values.size() - 1);
}

}  // namespace

std::pair<double, double> Effect::interval(double alarm) const {
  const double wide = error * student_quantile(freedom, 1 - alarm / 2);
  return {change - wide, change + wide};
}

bool Effect::is_real(double alarm) const {
  const auto [low, high] = interval(alarm);
  return low > 0 || high < 0;
}

StepComparison::StepComparison(std::vector<DiffMark> marks, bool by_turns)
    : marks_(std::move(marks)), by_turns_(by_turns) {
  prepare();
}

void StepComparison::prepare() {
  const auto after = static_cast<std::size_t>(std::ranges::count_if(marks_, &DiffMark::after));
  for (const auto& [steps, name] :
       {std::pair(marks_.size() - after, "BEFORE"), std::pair(after, "AFTER")}) {
    if (steps < kFewestCompared) {
      throw InputError("{} comparable steps of {}; a comparison takes {} at least",
                       steps,
                       name,
                       kFewestCompared);
    }
  }
  for (const DiffMark& mark : marks_) {
    group_count_ = std::max(group_count_, mark.group + 1);
    runs_ = std::max(runs_, mark.run + 1);
  }
  constexpr double kNothingLeft = 1e-7;  // Of a column's length, beside rounding.
  const std::size_t features = marks_.front().features.size();
  for (std::size_t f = 0; f < features; ++f) {
    std::vector<double> axis =
        within(mapped(marks_, [&](const DiffMark& mark) { return mark.features[f]; }));
    const double whole = std::sqrt(dot_of(axis, axis));
    axis = without_features(without_features(std::move(axis)));  // Twice, against rounding.
    const double left = std::sqrt(dot_of(axis, axis));
    if (left > kNothingLeft * whole) {
      for (double& value : axis) {
        value /= left;
      }
      axes_.push_back(std::move(axis));
    }
  }
  side_ = without_features(
      within(mapped(marks_, [](const DiffMark& mark) { return mark.after ? 1.0 : 0.0; })));
  side_square_ = dot_of(side_, side_);
  make_blocks();
}

void StepComparison::make_blocks() {
  order_.resize(marks_.size());
  std::iota(order_.begin(), order_.end(), std::size_t{0});
  std::ranges::stable_sort(order_, {}, [&](std::size_t i) {
    return std::pair(by_turns_ ? 0 : marks_[i].run, marks_[i].time);
  });
  block_.resize(marks_.size());
  for (std::size_t first = 0; first < order_.size();) {
    std::size_t last = first;
    while (last < order_.size() &&
           (by_turns_ || marks_[order_[last]].run == marks_[order_[first]].run)) {
      ++last;
    }
    const std::size_t steps = last - first;
    const std::size_t blocks = std::min(steps, block_count(by_turns_ ? steps / 2 : steps));
    for (std::size_t i = 0; i < steps; ++i) {
      block_[order_[first + i]] = blocks_ + i * blocks / steps;
    }
    blocks_ += blocks;
    first = last;
  }
}

std::vector<double> StepComparison::within(std::span<const double> values) const {
  std::vector<double> sums(group_count_);
  std::vector<double> counts(group_count_);
  for (std::size_t i = 0; i < marks_.size(); ++i) {
    sums[marks_[i].group] += values[i];
    counts[marks_[i].group] += 1;
  }
  std::vector<double> result(values.begin(), values.end());
  for (std::size_t i = 0; i < marks_.size(); ++i) {
    result[i] -= sums[marks_[i].group] / counts[marks_[i].group];
  }
  return result;
}

std::vector<double> StepComparison::without_features(std::vector<double> values) const {
  for (const std::vector<double>& axis : axes_) {
    const double along = dot_of(axis, values);
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] -= along * axis[i];
    }
  }
  return values;
}

std::vector<double> StepComparison::residuals(std::span<const double> times) const {
  std::vector<double> left = without_features(within(times));
  const double change = dot_of(side_, left) / side_square_;
  for (std::size_t i = 0; i < left.size(); ++i) {
    left[i] -= change * side_[i];
  }
  return left;
}

StepComparison::ClippedTimes StepComparison::clip(std::span<const double> times) const {
  constexpr int kRounds = 20;
  constexpr double kFar = 2;
  constexpr double kSigmaOfMedian = 1.4826;  // Of a normal distribution.
  ClippedTimes result{{times.begin(), times.end()}, 1};
  for (int round = 0; round < kRounds; ++round) {
    const std::vector<double> left = residuals(result.times);
    std::vector<double> fitted(times.size());
    std::vector<double> sizes(times.size());
    for (std::size_t i = 0; i < times.size(); ++i) {
      fitted[i] = result.times[i] - left[i];
      sizes[i] = std::abs(times[i] - fitted[i]);
    }
    const double most = kFar * kSigmaOfMedian * quantile(sizes, 0.5);
    double kept = 0;
    for (std::size_t i = 0; i < times.size(); ++i) {
      result.times[i] = fitted[i] + std::clamp(times[i] - fitted[i], -most, most);
      kept += sizes[i] <= most ? 1.0 / static_cast<double>(times.size()) : 0;
    }
    result.kept = kept;
  }
  return result;
}

StepComparison::BlockSums StepComparison::block_sums() const {
  std::vector<double> squares(blocks_);
  std::vector<std::vector<double>> along(axes_.size(), std::vector<double>(blocks_));
  std::vector<std::map<std::size_t, double>> groups(group_count_);  // By block.
  std::vector<double> counts(group_count_);
  for (std::size_t i = 0; i < marks_.size(); ++i) {
    squares[block_[i]] += square(side_[i]);
    groups[marks_[i].group][block_[i]] += side_[i];
    counts[marks_[i].group] += 1;
    for (std::size_t a = 0; a < axes_.size(); ++a) {
      along[a][block_[i]] += axes_[a][i] * side_[i];
    }
  }
  // The covariances of the blocks' sums of residuals, for independent times of variance 1.
  std::vector<double> covariances(blocks_ * blocks_);
  for (std::size_t b = 0; b < blocks_; ++b) {
    covariances[b * blocks_ + b] += squares[b];
    for (std::size_t c = 0; c < blocks_; ++c) {
      double& covariance = covariances[b * blocks_ + c];
      covariance -= squares[b] * squares[c] / side_square_;
      for (const std::vector<double>& axis : along) {
        covariance -= axis[b] * axis[c];
      }
    }
  }
  for (std::size_t group = 0; group < group_count_; ++group) {
    for (const auto& [b, of_b] : groups[group]) {
      for (const auto& [c, of_c] : groups[group]) {
        covariances[b * blocks_ + c] -= of_b * of_c / counts[group];
      }
    }
  }
  double trace = 0;
  for (std::size_t b = 0; b < blocks_; ++b) {
    trace += covariances[b * blocks_ + b];
  }
  const double squared = dot_of(covariances, covariances);
  return trace > 0 ? BlockSums{side_square_ / trace, std::max(1.0, square(trace) / squared)}
                   : BlockSums{};
}

/// The variance that the machine's drift adds to the difference of adjacent runs.
double StepComparison::drift(std::span<const double> residuals) const {
  constexpr double kAdjacentRuns = 4;
  // Explaining the times took some of their scatter.
  const double scale =
      static_cast<double>(marks_.size()) /
      std::max(1.0, static_cast<double>(marks_.size() - group_count_ - axes_.size()));
  double excess = 0;
  for (std::size_t run = 0; run < runs_; ++run) {
    std::vector<double> own;
    std::map<std::size_t, std::vector<double>> blocks;
    for (const std::size_t i : order_) {
      if (marks_[i].run == run) {
        own.push_back(residuals[i]);
        blocks[block_[i]].push_back(residuals[i]);
      }
    }
    if (blocks.size() < 2) {
      continue;
    }
    double scatter = 0;
    for (std::size_t i = 1; i < own.size(); ++i) {
      scatter += square(own[i] - own[i - 1]) / 2 / static_cast<double>(own.size() - 1);
    }
    const double of_block =
        scatter * static_cast<double>(blocks.size()) / static_cast<double>(own.size());
    const std::vector<double> means =
        mapped(blocks, [](const auto& block) { return mean_of(block.second); });
    excess += (variance_of(means) - of_block) / static_cast<double>(runs_);
  }
  return kAdjacentRuns * scale * std::max(0.0, excess) * 2 / static_cast<double>(runs_);
}

/// The error that the runs' own means tell, and its degrees of freedom; nothing where a side has
/// one run.
std::optional<std::pair<double, double>> StepComparison::error_of_runs(
    std::span<const double> residuals) const {
  std::vector<double> sums(runs_);
  std::vector<double> counts(runs_);
  std::vector<bool> after(runs_);
  for (std::size_t i = 0; i < marks_.size(); ++i) {
    sums[marks_[i].run] += residuals[i];
    counts[marks_[i].run] += 1;
    after[marks_[i].run] = marks_[i].after;
  }
  std::vector<double> sides[2];
  for (std::size_t run = 0; run < runs_; ++run) {
    if (counts[run] > 0) {
      sides[after[run] ? 1 : 0].push_back(sums[run] / counts[run]);
    }
  }
  if (sides[0].size() < 2 || sides[1].size() < 2) {
    return std::nullopt;
  }
  const double groups = static_cast<double>(group_count_ + axes_.size());
  const auto steps = static_cast<double>(marks_.size());
  const double scale = steps / std::max(1.0, steps - groups);
  const double variance = variance_of(sides[0]) / static_cast<double>(sides[0].size()) +
                          variance_of(sides[1]) / static_cast<double>(sides[1].size());
  return std::pair(std::sqrt(scale * variance),
                   static_cast<double>(sides[0].size() + sides[1].size() - 2));
}

std::optional<Effect> StepComparison::effect(std::span<const double> times) const {
  constexpr double kTellsSides = 1e-3;  // Of a step's weight, were all steps alike.
  const auto steps = static_cast<double>(marks_.size());
  if (side_square_ < kTellsSides * steps) {
    return std::nullopt;
  }
  Effect result;
  const ClippedTimes clipped = clip(times);
  result.change = dot_of(side_, without_features(within(clipped.times))) / side_square_;
  const std::vector<double> rest = residuals(clipped.times);
  double count = 0;
  std::vector<double> of_blocks(blocks_);
  for (std::size_t i = 0; i < marks_.size(); ++i) {
    of_blocks[block_[i]] += side_[i] / side_square_ * rest[i];
    if (!marks_[i].after) {
      result.before += times[i];
      count += 1;
    }
  }
  result.before /= count;
  const BlockSums sums = block_sums();
  double variance = sums.scale * dot_of(of_blocks, of_blocks);
  result.freedom = sums.freedom;
  const auto runs = error_of_runs(rest);
  if (!by_turns_ && !runs) {
    constexpr double kFreedomOfWalk = 2.5;  // (pi^2 / 6)^2 / (pi^4 / 90), of each run.
    if (const double of_drift = drift(rest); of_drift > 0) {
      result.freedom = square(variance + of_drift) /
                       (square(variance) / result.freedom +
                        square(of_drift) / (kFreedomOfWalk * static_cast<double>(runs_)));
      variance += of_drift;
    }
  }
  result.error = std::sqrt(variance) / clipped.kept;
  if (runs && runs->first > result.error) {
    std::tie(result.error, result.freedom) = *runs;
  }
  return result;
}

std::optional<StepComparison> StepComparison::part(const std::vector<bool>& kept) const {
  StepComparison result;
  std::map<std::size_t, std::size_t> groups;
  std::size_t after = 0;
  for (std::size_t i = 0; i < marks_.size(); ++i) {
    if (kept[i]) {
      result.kept_.push_back(i);
      result.marks_.push_back(marks_[i]);
      std::size_t& group = result.marks_.back().group;
      group = groups.emplace(group, groups.size()).first->second;
      after += marks_[i].after ? 1U : 0U;
    }
  }
  if (after < kFewestCompared || result.marks_.size() - after < kFewestCompared) {
    return std::nullopt;
  }
  result.by_turns_ = by_turns_;
  result.prepare();
  return result;
}

std::vector<double> StepComparison::part_of(std::span<const double> times) const {
  return mapped(kept_, [&](std::size_t i) { return times[i]; });
}

}  // namespace stepsim
