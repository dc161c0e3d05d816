#include "calibrate/fit/interference_fit.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <set>

#include <fmt/core.h>

#include "calibrate/fit/holdout.h"
#include "costmodel/base/mapped.h"

namespace stepsim {
namespace {

using Samples = std::vector<OverlapSample>;
using Interval = InterferenceProfile::Interval;

/// Fewer samples of one kind give no more than a factor.
constexpr std::size_t kFewestOverlaps = 4;
constexpr int kMaxChannels = 64;
constexpr double kNoLimit = 100;
/// Residuals below this are rounding.
constexpr double kExact = 1e-9;

Bound bound_of(const OverlapSample& sample) {
  return sample.compute == "memory" ? Bound::Memory : Bound::Compute;
}

double compute_ratio(const OverlapSample& sample) {
  return sample.compute_beside / sample.compute_alone;
}

bool has_transfer(const OverlapSample& sample) {
  return sample.collective_beside > 0;
}

/// 1 when it is unknown.
double transfer_ratio(const OverlapSample& sample) {
  return !has_transfer(sample) ? 1 : sample.collective_beside / sample.collective_alone;
}

/// Mean of numbers with the standard error of that mean.
struct Mean {
  double value = 0;
  double error = 0;
  std::size_t count = 0;

  explicit Mean(const std::vector<double>& values) : count(values.size()) {
    for (const double one : values) {
      value += one / static_cast<double>(count);
    }
    const double squares =
        sum_of(values, [&](const double one) { return (one - value) * (one - value); });
    if (count > 1) {
      error = std::sqrt(squares / static_cast<double>(count - 1) / static_cast<double>(count));
    }
  }
};

/// 95 % point of Student's distribution.
double student(std::size_t freedom) {
  constexpr std::array<double, 10> kPoints = {
      6.314, 2.920, 2.353, 2.132, 2.015, 1.943, 1.895, 1.860, 1.833, 1.812};
  return freedom <= kPoints.size() ? kPoints.at(freedom - 1)
                                   : 1.645 + 1.6 / static_cast<double>(freedom);
}

std::optional<Interval> interval_of(double value, double error, std::size_t count) {
  if (count < 2) {
    return std::nullopt;
  }
  const double half = student(count - 1) * error;
  return Interval(std::max(value - half, 0.0), std::max(value + half, 0.0));
}

/// What waves alone would cost, without the limit.
double wave_share(const OverlapSample& sample, int multiprocessors) {
  Interference waves;
  waves.multiprocessors = multiprocessors;
  waves.limit = kNoLimit;
  return compute_slowdown(waves, Bound::Compute, sample.compute_blocks, sample.channels);
}

/// The compute side of a fit.
struct ComputeFit {
  Interference value;
  Mean factor{{}};  ///< 1 + compute.
  Mean memory{{}};  ///< Memory-bound beside / alone.
  double criterion = std::numeric_limits<double>::infinity();
};

/// Factor and memory share for these waves. Shares above `most` are those that the limit cuts; with
/// an infinite one there are none.
ComputeFit fit_shares(const Samples& compute,
                      const Samples& memory,
                      int multiprocessors,
                      double most) {
  ComputeFit fit;
  fit.value.multiprocessors = multiprocessors;
  std::vector<double> factors;
  std::vector<double> limited;
  double widest = 1;
  for (const OverlapSample& sample : compute) {
    const double share = wave_share(sample, multiprocessors);
    if (share <= most) {
      factors.push_back(compute_ratio(sample) / share);
      widest = std::max(widest, share);
    } else {
      limited.push_back(compute_ratio(sample));
    }
  }
  std::vector<double> of_memory = mapped(memory, compute_ratio);
  fit.memory = Mean(of_memory);
  fit.factor = Mean(factors);
  // Memory-bound work that slows less than other work leaves nothing to its bandwidth.
  if (!of_memory.empty() && !factors.empty() && fit.memory.value < fit.factor.value) {
    factors.insert(factors.end(), of_memory.begin(), of_memory.end());
    fit.factor = Mean(factors);
  }
  const double factor = factors.empty() ? 1 : std::max(fit.factor.value, 1.0);
  fit.value.compute = factor - 1;
  const double memory_factor = of_memory.empty() ? 1 : std::max(fit.memory.value / factor, 1.0);
  fit.value.memory_share = 1 - 1 / memory_factor;
  fit.value.limit = limited.empty() ? std::max({fit.value.limit, widest - 1, memory_factor - 1})
                                    : std::max(Mean(limited).value / factor - 1, 0.0);
  return fit;
}

/// Bayesian information criterion of the relative residuals.
double criterion(const Interference& value,
                 const Samples& compute,
                 const Samples& memory,
                 int parameters) {
  double squares = 0;
  for (const Samples* samples : {&compute, &memory}) {
    for (const OverlapSample& sample : *samples) {
      const double predicted =
          compute_slowdown(value, bound_of(sample), sample.compute_blocks, sample.channels);
      const double residual = predicted / compute_ratio(sample) - 1;
      squares += residual * residual;
    }
  }
  const auto count = static_cast<double>(compute.size() + memory.size());
  return count * std::log(squares / count + kExact * kExact) + parameters * std::log(count);
}

/// The forms of the compute side, simplest first; the first of the best is taken.
ComputeFit fit_compute(const Samples& compute, const Samples& memory, int multiprocessors) {
  ComputeFit best = fit_shares(compute, memory, 0, kNoLimit);
  const int own = memory.empty() ? 1 : 2;
  best.criterion = criterion(best.value, compute, memory, own);
  if (multiprocessors == 0 || compute.size() < kFewestOverlaps ||
      compute.front().compute_blocks == 0) {
    return best;
  }
  std::set<double> shares;
  for (const OverlapSample& sample : compute) {
    shares.insert(wave_share(sample, multiprocessors));
  }
  // Every place that a limit could cut at, from none down to all but the smallest share.
  for (auto most = shares.rbegin(); most != shares.rend(); ++most) {
    ComputeFit fit = fit_shares(compute, memory, multiprocessors, *most);
    const int parameters = own + (most == shares.rbegin() ? 0 : 1);
    fit.criterion = criterion(fit.value, compute, memory, parameters);
    if (fit.criterion < best.criterion - kExact) {
      best = fit;
    }
  }
  return best;
}

/// Samples of this bound; of compute-bound ones those with known blocks, if there are any.
Samples with_bound(const Samples& samples, Bound bound) {
  Samples all;
  Samples known;
  for (const OverlapSample& sample : samples) {
    if (bound_of(sample) == bound) {
      all.push_back(sample);
      if (sample.compute_blocks > 0) {
        known.push_back(sample);
      }
    }
  }
  return bound == Bound::Compute && !known.empty() ? known : all;
}

InterferenceProfile fit_all(const Samples& samples, int multiprocessors) {
  const Samples compute = with_bound(samples, Bound::Compute);
  const Samples memory = with_bound(samples, Bound::Memory);
  const ComputeFit fit = fit_compute(compute, memory, multiprocessors);
  std::vector<double> transfers;
  int channels = 0;
  for (const OverlapSample& sample : samples) {
    if (has_transfer(sample)) {
      transfers.push_back(transfer_ratio(sample));
    }
    channels = std::max(channels, sample.channels);
  }
  const Mean transfer(transfers);
  InterferenceProfile profile;
  profile.value = fit.value;
  profile.value.transfer = std::max(transfer.value - 1, 0.0);
  profile.value.max_channels = std::clamp(channels, 1, kMaxChannels);
  profile.samples = static_cast<int>(samples.size());
  profile.transfer = interval_of(transfer.value - 1, transfer.error, transfer.count);
  profile.compute = interval_of(fit.factor.value - 1, fit.factor.error, fit.factor.count);
  // share = 1 - factor / memory.
  const double factor = 1 + fit.value.compute;
  const double relative =
      std::hypot(fit.memory.error / std::max(fit.memory.value, 1.0), fit.factor.error / factor);
  profile.memory_share =
      interval_of(fit.value.memory_share,
                  (1 - fit.value.memory_share) * relative,
                  std::min(fit.memory.count, std::max<std::size_t>(fit.factor.count, 2)));
  if (profile.memory_share) {
    profile.memory_share->second = std::min(profile.memory_share->second, 1.0);
  }
  return profile;
}

/// Each sample predicted from the others.
FitErrors left_out_errors(const Samples& samples, int multiprocessors) {
  if (samples.size() < kFewestOverlaps) {
    return {};
  }
  ErrorSum sum;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    Samples others = samples;
    others.erase(others.begin() + static_cast<std::ptrdiff_t>(i));
    const Interference value = fit_all(others, multiprocessors).value;
    const OverlapSample& sample = samples[i];
    sum.add(compute_slowdown(value, bound_of(sample), sample.compute_blocks, sample.channels),
            compute_ratio(sample));
    if (has_transfer(sample)) {
      sum.add(1 + value.transfer, transfer_ratio(sample));
    }
  }
  return {sum.mean(), std::nullopt, std::nullopt, sum.bias()};
}

void warn(const Samples& samples, const Interference& value, std::vector<std::string>* warnings) {
  const Samples compute = with_bound(samples, Bound::Compute);
  const Samples memory = with_bound(samples, Bound::Memory);
  for (const auto& [group, name, lost] :
       {std::tuple(&compute, "compute-bound", "how much compute of any kind slows"),
        std::tuple(&memory, "memory-bound", "the share of the memory bandwidth")}) {
    if (group->empty()) {
      warnings->push_back(fmt::format(
          "overlap: no {} work was measured beside collectives; {} is taken as 0", name, lost));
    } else if (group->size() < kFewestOverlaps) {
      warnings->push_back(
          fmt::format("overlap: only {} measurements of {} work; its figures are uncertain",
                      group->size(),
                      name));
    }
  }
  if (std::ranges::none_of(samples, has_transfer)) {
    warnings->emplace_back(
        "overlap: no transfer was measured beside compute (it needs two GPUs); its stretch is "
        "taken as 0");
  }
  std::set<std::pair<int, int>> settings;
  for (const OverlapSample& sample : compute) {
    settings.emplace(sample.channels, sample.compute_blocks);
  }
  if (compute.size() >= kFewestOverlaps && settings.size() == 1) {
    warnings->emplace_back(
        "overlap: all compute-bound work has the same blocks and channels; waves cannot be told");
  }
  if (compute.size() >= kFewestOverlaps && compute.front().compute_blocks == 0) {
    warnings->emplace_back("overlap: no compute_blocks are known; waves are left out");
  }
  const auto untouched = [](const OverlapSample& sample) {
    return std::abs(compute_ratio(sample) - 1) < 1e-3 &&
           std::abs(transfer_ratio(sample) - 1) < 1e-3;
  };
  if (std::ranges::all_of(samples, untouched)) {
    warnings->emplace_back(
        "overlap: nothing took longer beside the other; did they run at the same time?");
  }
  const auto faster = std::ranges::count_if(samples, [](const auto& sample) {
    return compute_ratio(sample) < 0.95 || transfer_ratio(sample) < 0.95;
  });
  if (faster > 0) {
    warnings->push_back(fmt::format(
        "overlap: {} of {} measurements are more than 5 % faster side by side than alone",
        faster,
        samples.size()));
  }
  const bool too_many = std::ranges::any_of(
      samples, [](const auto& sample) { return sample.channels > kMaxChannels; });
  if (too_many && value.multiprocessors > 0) {
    warnings->push_back(
        fmt::format("overlap: collectives of a simulation hold at most {} channels", kMaxChannels));
  }
}

}  // namespace

std::optional<InterferenceProfile> fit_interference(const std::vector<OverlapSample>& samples,
                                                    int multiprocessors,
                                                    std::vector<std::string>* warnings) {
  if (samples.empty()) {
    return std::nullopt;
  }
  InterferenceProfile profile = fit_all(samples, multiprocessors);
  profile.errors = left_out_errors(samples, multiprocessors);
  warn(samples, profile.value, warnings);
  return profile;
}

}  // namespace stepsim
