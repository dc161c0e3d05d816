#include "calibrate/import/recorded/recorded_shapes.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>
#include <random>
#include <set>
#include <tuple>

#include <fmt/format.h>

#include "calibrate/fit/nnls.h"
#include "calibrate/import/recorded/recorded_meetings.h"
#include "calibrate/samples/statistics.h"
#include "costmodel/base/mapped.h"
#include "costmodel/base/parse_units.h"
#include "costmodel/base/quantile.h"

namespace stepsim {
namespace {

constexpr std::size_t kSteadyFeatures = std::size(kMeetingFeatures);
/// The place of the mechanism that tells most shapes apart; see possible_mechanisms().
constexpr std::size_t kFinest = 0;
/// First meetings, and repeats, below which nothing is fitted.
constexpr int kFewestMeetings = 5;
/// Residuals below this count alike: the repeatability of a measurement.
constexpr double kSmallShapeResidual = 0.003;
/// The mean error of a perfect fit.
constexpr double kLeastError = 1e-5;
/// Batches that tell how slow the machine was around a step.
constexpr std::size_t kNearestRows = 24;
/// The first steps of a longer record tell, since most shapes are new in them.
constexpr std::size_t kMostSteps = 2000;
constexpr int kShapeRounds = 12;
constexpr int kLastRankRounds = 3;
constexpr int kResamples = 60;
/// Standard deviations that a cost has to be above 0: with ten mechanisms to choose from, chance
/// alone makes one of two often.
constexpr double kFewestDeviations = 3;
constexpr int kBlock = 4;  ///< Steps in a row that are resampled together.

/// Numbers of mechanisms.
using Chosen = std::vector<std::size_t>;
using MetSteps = std::vector<const MetStep*>;

/// One pass by least absolute deviations.
struct PassFit {
  std::vector<double> coefficients;  ///< Of the features, then of the chosen mechanisms.
  double error = 0;                  ///< Mean |residual| relative to the pass without meetings.
  std::size_t rows = 0;
};

double steady_seconds(const std::vector<double>& coefficients, std::span<const double> row) {
  double seconds = 0;
  for (std::size_t i = 0; i < kSteadyFeatures; ++i) {
    seconds += coefficients[i] * row[i];
  }
  return seconds;
}

PassFit fit_by_deviations(const DistinctRows& rows, const std::vector<double>& seconds) {
  PassFit fit;
  fit.rows = rows.size();
  std::vector<double> weights;
  std::vector<double> steady_of(rows.distinct());
  for (int round = 0; round < kShapeRounds; ++round) {
    fit.coefficients = relative_nnls(rows, seconds, weights);
    const std::vector<double> fitted = rows.times(fit.coefficients);
    for (std::size_t number = 0; number < steady_of.size(); ++number) {
      steady_of[number] = std::max(steady_seconds(fit.coefficients, rows.row(number)), 1e-9);
    }
    weights.clear();
    fit.error = 0;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const double steady = steady_of[rows.number(i)];
      const double residual = std::abs(fitted[rows.number(i)] - seconds[i]) / steady;
      fit.error += residual / static_cast<double>(rows.size());
      weights.push_back(seconds[i] / steady / std::sqrt(std::max(residual, kSmallShapeResidual)));
    }
  }
  return fit;
}

/// Rows of the features and the chosen mechanisms, for each rank of each step at most.
DistinctRows rows_for(const MetSteps& steps, const Chosen& chosen) {
  const auto ranks = [](const MetStep* step) { return step->ranks.size(); };
  return {kSteadyFeatures + chosen.size(), sum_of(steps, ranks)};
}

std::vector<double> row_of(const MetRank& rank, const Chosen& chosen) {
  std::vector<double> row = rank.features;
  for (const std::size_t mechanism : chosen) {
    row.push_back(rank.meetings[mechanism]);
  }
  return row;
}

PassFit fit_forward(const MetSteps& steps, const Chosen& chosen) {
  DistinctRows rows = rows_for(steps, chosen);
  std::vector<double> seconds;
  for (const MetStep* step : steps) {
    for (const MetRank& rank : step->ranks) {
      if (rank.forward > 0) {
        rows.add(row_of(rank, chosen));
        seconds.push_back(rank.forward);
      }
    }
  }
  return fit_by_deviations(rows, seconds);
}

PassFit fit_own_backward(const MetSteps& steps, const Chosen& chosen) {
  DistinctRows rows = rows_for(steps, chosen);
  std::vector<double> seconds;
  for (const MetStep* step : steps) {
    for (const MetRank& rank : step->ranks) {
      if (rank.backward > 0) {
        rows.add(row_of(rank, chosen));
        seconds.push_back(rank.backward);
      }
    }
  }
  return fit_by_deviations(rows, seconds);
}

/// The backward of the rank that ends it last, with the all-reduces that follow it.
PassFit fit_last_backward(const MetSteps& steps, const Chosen& chosen) {
  PassFit fit;
  for (int round = 0; round < kLastRankRounds; ++round) {
    DistinctRows rows = rows_for(steps, chosen);
    std::vector<double> seconds;
    for (const MetStep* step : steps) {
      const auto own_end = [&](const MetRank& rank) {
        const double own =
            fit.coefficients.empty() ? 0 : dot(fit.coefficients, row_of(rank, chosen));
        return rank.forward_end + own;
      };
      const MetRank& last = std::ranges::max(step->ranks, {}, own_end);
      const double end = max_of(step->ranks, &MetRank::backward_end, 0.0);
      if (end > last.forward_end) {
        rows.add(row_of(last, chosen));
        seconds.push_back(end - last.forward_end);
      }
    }
    fit = fit_by_deviations(rows, seconds);
  }
  return fit;
}

/// Forward and backward with the same mechanisms.
struct BothFits {
  PassFit forward;
  PassFit backward;

  /// Twice the negative logarithm of the likelihood of deviations, up to a constant.
  [[nodiscard]] double loss() const {
    const auto of = [](const PassFit& fit) {
      return 2 * static_cast<double>(fit.rows) * std::log(std::max(fit.error, kLeastError));
    };
    return of(forward) + of(backward);
  }
};

BothFits fit_both(const MetSteps& steps, const Chosen& chosen) {
  const bool own = std::ranges::all_of(steps, [](const MetStep* step) {
    return std::ranges::all_of(step->ranks, [](const MetRank& rank) { return rank.backward > 0; });
  });
  return {fit_forward(steps, chosen),
          own ? fit_own_backward(steps, chosen) : fit_last_backward(steps, chosen)};
}

/// Whether the steps hold enough first meetings of the mechanism, and enough without one.
bool can_be_told(const MetSteps& steps, std::size_t mechanism) {
  int met = 0;
  int not_met = 0;
  for (const MetStep* step : steps) {
    for (const MetRank& rank : step->ranks) {
      ++(rank.meetings[mechanism] > 0 ? met : not_met);
    }
  }
  return met >= kFewestMeetings && not_met >= kFewestMeetings;
}

/// The steps of those records that hold enough first meetings and enough repeats themselves:
/// records also differ by what recording them cost.
MetSteps telling_steps(const std::vector<MetStep>& all, std::size_t runs) {
  std::vector<bool> tells(runs);
  for (std::size_t run = 0; run < runs; ++run) {
    MetSteps of_run;
    for (const MetStep& step : all) {
      if (step.run == run) {
        of_run.push_back(&step);
      }
    }
    tells[run] = can_be_told(of_run, kFinest);
  }
  MetSteps steps;
  for (const MetStep& step : all) {
    if (tells[step.run] && steps.size() < kMostSteps) {
      steps.push_back(&step);
    }
  }
  return steps;
}

/// Multiplies the features of each step by how slow the machine was around it: the median, over the
/// nearest batches that met nothing, of the forward over its fit. Most shapes are new at the start
/// of a run, and a machine that was slow then would pass for their cost.
void add_machine_speed(std::vector<MetStep>& steps) {
  const auto ranks = [](const MetStep& step) { return step.ranks.size(); };
  DistinctRows rows(kSteadyFeatures, sum_of(steps, ranks));
  std::vector<double> seconds;
  std::vector<std::size_t> of_step;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    for (const MetRank& rank : steps[i].ranks) {
      if (rank.meetings[kFinest] == 0 && rank.forward > 0) {
        rows.add(rank.features);
        seconds.push_back(rank.forward);
        of_step.push_back(i);
      }
    }
  }
  if (rows.size() < kNearestRows) {
    return;
  }
  const PassFit fit = fit_by_deviations(rows, seconds);
  std::vector<double> ratios;
  for (std::size_t row = 0; row < rows.size(); ++row) {
    ratios.push_back(seconds[row] / steady_seconds(fit.coefficients, rows.row(rows.number(row))));
  }
  std::size_t first = 0;  // Of the nearest rows, which move on with the steps.
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const auto farther = [&](std::size_t a, std::size_t b) {
      return std::max(of_step[a], i) - std::min(of_step[a], i) >
             std::max(of_step[b], i) - std::min(of_step[b], i);
    };
    while (first + kNearestRows < rows.size() && farther(first, first + kNearestRows)) {
      ++first;
    }
    const auto begin = ratios.begin() + static_cast<std::ptrdiff_t>(first);
    const double slow = median(std::vector<double>(begin, begin + kNearestRows));
    for (MetRank& rank : steps[i].ranks) {
      for (double& feature : rank.features) {
        feature *= slow;
      }
    }
  }
}

Chosen choose_mechanisms(const MetSteps& steps, std::size_t mechanisms) {
  Chosen chosen;
  BothFits best = fit_both(steps, chosen);
  const double cost_of_two =
      2 * std::log(static_cast<double>(best.forward.rows + best.backward.rows));
  while (chosen.size() < mechanisms) {
    std::optional<std::size_t> next;
    BothFits next_fit = best;
    for (std::size_t mechanism = 0; mechanism < mechanisms; ++mechanism) {
      if (std::ranges::find(chosen, mechanism) != chosen.end() || !can_be_told(steps, mechanism)) {
        continue;
      }
      Chosen with = chosen;
      with.push_back(mechanism);
      const BothFits fit = fit_both(steps, with);
      // A later mechanism has to be better by more than rounding.
      if (fit.loss() < next_fit.loss() - 1e-3) {
        next = mechanism;
        next_fit = fit;
      }
    }
    if (!next || best.loss() - next_fit.loss() <= cost_of_two) {
      break;
    }
    chosen.push_back(*next);
    best = next_fit;
  }
  return chosen;
}

/// Steps drawn with replacement, some in a row at a time.
MetSteps resampled(const MetSteps& steps, std::mt19937_64& generator) {
  MetSteps drawn;
  while (drawn.size() < steps.size()) {
    const std::size_t first = generator() % steps.size();
    for (std::size_t i = first; i < std::min(first + kBlock, steps.size()); ++i) {
      drawn.push_back(steps[i]);
    }
  }
  drawn.resize(steps.size());
  return drawn;
}

const char* key_words(ShapeKey key) {
  switch (key) {
    case ShapeKey::SamplesAndLength:
      return "a pair of samples and padded length";
    case ShapeKey::Length:
      return "a padded length";
    case ShapeKey::Samples:
      return "a number of samples";
    case ShapeKey::Tokens:
      return "a number of padded tokens";
    case ShapeKey::Largest:
      return "a batch larger than all before";
  }
  return "";
}

int count_meetings(const MetSteps& steps, std::size_t mechanism) {
  double count = 0;
  for (const MetStep* step : steps) {
    for (const MetRank& rank : step->ranks) {
      count += rank.meetings[mechanism];
    }
  }
  return static_cast<int>(count);
}

/// Mechanisms that met their shapes in the very same steps as this one: nobody can tell them apart.
std::string alike_text(const MetSteps& steps,
                       std::span<const ShapeCost> mechanisms,
                       std::size_t chosen) {
  std::string text;
  for (std::size_t other = 0; other < mechanisms.size(); ++other) {
    const bool alike = std::ranges::all_of(steps, [&](const MetStep* step) {
      return std::ranges::all_of(step->ranks, [&](const MetRank& rank) {
        return rank.meetings[other] == rank.meetings[chosen];
      });
    });
    if (other != chosen && alike && mechanisms[other].shared == mechanisms[chosen].shared) {
      text += std::string(text.empty() ? "" : ", ") + key_words(mechanisms[other].key);
    }
  }
  return text.empty() ? "" : "; these batches do not tell that from " + text;
}

/// The costs of one resample, [chosen]: forward, backward.
struct DrawnCosts {
  std::vector<double> forward;
  std::vector<double> backward;
};

/// The cost of one mechanism with its interval, or nothing where that reaches down to 0.
std::optional<ShapeCost> cost_of(const ShapeCost& mechanism,
                                 std::size_t place,
                                 const BothFits& fit,
                                 const std::vector<DrawnCosts>& draws,
                                 std::pair<double, double>& interval) {
  const std::vector<double> totals =
      mapped(draws, [&](const DrawnCosts& d) { return d.forward[place] + d.backward[place]; });
  interval = {quantile(totals, 0.05), quantile(totals, 0.95)};
  ShapeCost cost = mechanism;
  cost.forward_seconds = fit.forward.coefficients[kSteadyFeatures + place];
  cost.backward_seconds = fit.backward.coefficients[kSteadyFeatures + place];
  constexpr double kDeviations = 2 * 1.645;  // In a 90 % interval of a normal distribution.
  const double deviation = (interval.second - interval.first) / kDeviations;
  if (!(interval.first > 0) || cost.seconds() < kFewestDeviations * deviation) {
    return std::nullopt;
  }
  cost.relative_error = deviation / cost.seconds();
  return cost;
}

}  // namespace

RecordedShapes fit_recorded_shapes(std::span<const RecordedRun> runs) {
  RecordedShapes result;
  const std::vector<ShapeCost> mechanisms = possible_mechanisms(runs.front().record.world_size);
  std::vector<MetStep> all = met_steps(runs, mechanisms);
  add_machine_speed(all);
  const MetSteps steps = telling_steps(all, runs.size());
  if (steps.empty()) {
    const MetSteps every = mapped(all, [](const MetStep& step) { return &step; });
    const int met = count_meetings(every, kFinest);
    if (met >= kFewestMeetings) {
      result.warnings.push_back(fmt::format(
          "{} of {} batches have a shape that their rank had not met, and no record has enough of "
          "both kinds: what a new shape costs cannot be told from what its size does; record a "
          "policy that repeats shapes, or several epochs",
          met,
          static_cast<std::int64_t>(every.size()) * runs.front().record.world_size *
              runs.front().record.steps.front().micro_batches));
    }
    return result;
  }
  const BothFits plain = fit_both(steps, {});
  if (std::min(plain.forward.rows, plain.backward.rows) < kFewestWarmSteps) {
    return result;
  }
  const int rank_steps = static_cast<int>(steps.size()) * runs.front().record.world_size;
  const Chosen chosen = choose_mechanisms(steps, mechanisms.size());
  if (chosen.empty()) {
    return result;
  }
  const BothFits fit = fit_both(steps, chosen);
  std::mt19937_64 generator(1);
  std::vector<DrawnCosts> draws;
  for (int i = 0; i < kResamples; ++i) {
    const BothFits drawn = fit_both(resampled(steps, generator), chosen);
    const auto costs = [](const PassFit& pass) {
      return std::vector<double>(pass.coefficients.begin() + kSteadyFeatures,
                                 pass.coefficients.end());
    };
    draws.push_back({costs(drawn.forward), costs(drawn.backward)});
  }
  for (std::size_t place = 0; place < chosen.size(); ++place) {
    std::pair<double, double> interval;
    const ShapeCost& mechanism = mechanisms[chosen[place]];
    const auto cost = cost_of(mechanism, place, fit, draws, interval);
    if (!cost) {
      continue;
    }
    result.notes.push_back(
        fmt::format("new shapes: {} that {} costs {} (90 %: {} to {}), forward {} and backward {}; "
                    "met {} times in {} batches{}",
                    key_words(mechanism.key),
                    mechanism.shared ? "no rank had met" : "a rank had not met",
                    format_duration(cost->seconds()),
                    format_duration(interval.first),
                    format_duration(interval.second),
                    format_duration(cost->forward_seconds),
                    format_duration(cost->backward_seconds),
                    count_meetings(steps, chosen[place]),
                    rank_steps,
                    alike_text(steps, mechanisms, chosen[place])));
    result.costs.push_back(*cost);
  }
  return result;
}

std::vector<RecordedRun> without_meetings(std::vector<RecordedRun> runs,
                                          std::span<const ShapeCost> costs,
                                          std::vector<std::string>& warnings) {
  if (costs.empty()) {
    return runs;
  }
  const std::vector<MetStep> steps = met_steps(runs, costs);
  std::set<std::tuple<std::size_t, int, int>> stalled;
  for (const MetStep& step : steps) {
    const bool meets = std::ranges::any_of(step.ranks, [](const MetRank& rank) {
      return std::ranges::any_of(rank.meetings, [](double count) { return count > 0; });
    });
    if (meets) {
      stalled.emplace(step.run, step.repeat, step.step);
    }
  }
  if (stalled.empty()) {
    return runs;
  }
  if (steps.size() - stalled.size() < kFewestWarmSteps) {
    warnings.push_back(fmt::format(
        "only {} of {} steps are without a new shape, so that all were fitted: the passes hold a "
        "part of what new shapes cost; record more steps",
        steps.size() - stalled.size(),
        steps.size()));
    return runs;
  }
  for (std::size_t i = 0; i < runs.size(); ++i) {
    std::erase_if(runs[i].record.steps, [&](const StepRecord& row) {
      return stalled.count({i, row.repeat, row.step}) > 0;
    });
  }
  return runs;
}

}  // namespace stepsim
