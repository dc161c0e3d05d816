#include "calibrate/import/recorded/recorded_host.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <utility>

#include <fmt/core.h>

#include "calibrate/import/recorded/recorded_meetings.h"
#include "calibrate/import/recorded/recorded_noise.h"
#include "calibrate/samples/statistics.h"
#include "costmodel/base/mapped.h"
#include "costmodel/base/parse_units.h"
#include "costmodel/base/quantile.h"
#include "costmodel/model/transformer.h"

namespace stepsim {
namespace {

/// Steps of a known shape that tell its host's time.
constexpr std::size_t kFewestSteps = 3;
/// The host's time of a shape over the smallest shape's, up to which nothing held the host up.
constexpr double kMostOverFloor = 1.25;
/// Host-bound shapes differ by so much in tokens at least, else it is their kernels that are alike.
constexpr double kLeastSpread = 1.5;
/// The device's lag before a step, over the host's time in one, up to which its queue surely has
/// room. Streams take about a thousand launches, a third of a step of a large model.
constexpr double kMostLag = 0.15;
/// Its lag at the end of a step that it decides, over the step, where the host waits for it.
constexpr double kLeastLag = 0.02;

/// A rank's step.
struct HostStep {
  std::size_t run;  ///< Its record.
  const StepRecord* row;
  int number;     ///< The step's place among those of all records.
  bool is_new;    ///< Of a shape that the rank had not met.
  double lag_ms;  ///< The device's before it.
};

using HostSteps = std::vector<HostStep>;
/// By samples and padded length.
using Shapes = std::map<std::pair<std::int64_t, std::int64_t>, HostSteps>;

double host_ms(const StepRecord& row) {
  return row.forward_host_ms + row.backward_host_ms + row.optimizer_host_ms;
}

bool has_host(const StepRecord& row) {
  return row.forward_host_ms > 0 && row.backward_host_ms > 0 && row.optimizer_host_ms > 0;
}

/// The steps of one micro-batch whose step before is known.
HostSteps host_steps(const std::vector<MetStep>& steps) {
  HostSteps found;
  std::map<std::pair<std::size_t, int>, const StepRecord*> before;  // By run and rank.
  int number = -1;
  for (const MetStep& step : steps) {
    ++number;
    for (const MetRank& rank : step.ranks) {
      const StepRecord* last = std::exchange(before[{step.run, rank.row->rank}], rank.row);
      const bool follows =
          last != nullptr && last->repeat == rank.row->repeat && last->step + 1 == rank.row->step;
      if (follows && rank.row->micro_batches == 1 && has_host(*rank.row) && has_host(*last)) {
        found.push_back({step.run, rank.row, number, rank.meetings.front() > 0, last->lag_ms});
      }
    }
  }
  return found;
}

double median_of(const HostSteps& steps, const std::function<double(const StepRecord&)>& ms) {
  return median(mapped(steps, [&](const HostStep& step) { return ms(*step.row); }));
}

/// The usual host time of the shapes that have the smallest ones; infinite where no shape has
/// enough steps.
double floor_of(const Shapes& shapes) {
  constexpr double kSmallest = 0.25;
  std::vector<double> usual;
  for (const auto& [shape, steps] : shapes) {
    if (steps.size() >= kFewestSteps) {
      usual.push_back(median_of(steps, host_ms));
    }
  }
  return usual.empty() ? std::numeric_limits<double>::infinity() : quantile(usual, kSmallest);
}

/// What the simulator puts in for a step.
struct StepLaunches {
  int ops = 0;     ///< The model's, the gradients' copies, the optimizer.
  int copies = 0;  ///< Of those, the gradients'.
};

HostSample sample_of(const HostStep& step, StepLaunches launches) {
  constexpr int kStepsOfARound = 16;
  constexpr int kMostRounds = 1 << 16;  // Of a record.
  const StepRecord& row = *step.row;
  HostSample sample;
  sample.ops = launches.ops;
  sample.copies = launches.copies;
  sample.round = static_cast<int>(step.run) * kMostRounds +
                 (row.repeat + row.step / kStepsOfARound) % kMostRounds;
  sample.forward_seconds = row.forward_host_ms * kMilli;
  sample.backward_seconds = row.backward_host_ms * kMilli;
  sample.optimizer_seconds = row.optimizer_host_ms * kMilli;
  return sample;
}

StepLaunches launches_of(const Plan& plan) {
  const StepOps ops = step_ops(plan.model);
  const std::size_t gradients = parameters(plan.model).size();
  const bool copies_out = !plan.ddp || !plan.ddp->gradient_as_bucket_view;
  const std::size_t copies = copies_out ? 2 * gradients : gradients;
  return {static_cast<int>(ops.forward.size() + ops.backward.size() + copies + 1),
          static_cast<int>(copies)};
}

/// How far off the host's mean is in a run right after the recording: it is a processor, whose
/// speed drifts as that of others does. `known`: steps that it alone decided.
double drift_of_host(const HostSteps& known, int steps) {
  constexpr double kMostOverQuartile = 3;  // A host that is held up for longer drifts no further.
  const double most =
      kMostOverQuartile *
      quantile(mapped(known, [](const HostStep& step) { return host_ms(*step.row); }), 0.75);
  std::vector<ComputeRatio> ratios;
  double sum = 0;
  for (const HostStep& step : known) {
    if (const double ms = host_ms(*step.row); ms <= most) {
      ratios.push_back({step.number, ms});
      sum += ms;
    }
  }
  for (ComputeRatio& ratio : ratios) {
    ratio.ratio *= static_cast<double>(ratios.size()) / sum;
  }
  return drift_of(ratios, steps);
}

std::string note_of(
    const RecordedHost& host, int ops, std::size_t steps, double tokens, std::size_t meetings) {
  constexpr double kDeviations = 1.645;  // To the bounds of a 90 % interval.
  std::string note = fmt::format(
      "the host takes {} to launch a step, told by {} steps of batches up to {:.0f} tokens that "
      "nothing held up{}",
      format_duration(host.launch.seconds * ops),
      steps,
      tokens,
      host.syncs ? "; it waits for the device at the end of each step" : "");
  for (const ShapeCost& cost : host.new_shapes) {
    const double spread = kDeviations * cost.relative_error * cost.seconds();
    note += fmt::format(
        "; new shapes: a pair of samples and padded length that it had not met takes {} more (90 "
        "%: {} to {}), forward {} and backward {}, told by {} first meetings",
        format_duration(cost.seconds()),
        format_duration(std::max(0.0, cost.seconds() - spread)),
        format_duration(cost.seconds() + spread),
        format_duration(cost.forward_seconds),
        format_duration(cost.backward_seconds),
        meetings);
  }
  return note;
}

}  // namespace

RecordedHost fit_recorded_host(std::span<const RecordedRun> runs) {
  RecordedHost host;
  if (std::ranges::none_of(
          runs, [](const auto& run) { return std::ranges::any_of(run.record.steps, has_host); })) {
    return host;
  }
  const std::vector<ShapeCost> pairs(1);  // Of samples and padded length.
  const HostSteps steps = host_steps(met_steps(runs, pairs));
  Shapes shapes;
  for (const HostStep& step : steps) {
    if (!step.is_new && step.lag_ms < kMostLag * host_ms(*step.row)) {
      shapes[{step.row->samples, step.row->max_length}].push_back(step);
    }
  }
  const double floor_ms = floor_of(shapes);
  HostSteps known;
  std::vector<double> lags;  // At the end of steps that the device decides.
  std::pair<double, double> tokens(std::numeric_limits<double>::infinity(), 0);
  for (const auto& [shape, of_shape] : shapes) {
    for (const HostStep& step : of_shape) {
      if (step.row->step_ms > kMostOverFloor * floor_ms) {
        lags.push_back(step.row->lag_ms / step.row->step_ms);
      }
    }
    if (of_shape.size() >= kFewestSteps &&
        median_of(of_shape, host_ms) <= kMostOverFloor * floor_ms) {
      const auto size = static_cast<double>(of_shape.front().row->padded_tokens);
      tokens = {std::min(tokens.first, size), std::max(tokens.second, size)};
      known.insert(known.end(), of_shape.begin(), of_shape.end());
    }
  }
  if (!(tokens.second >= kLeastSpread * tokens.first)) {
    if (!steps.empty()) {
      host.warning =
          "the host's times are recorded, but too few steps of known shapes, of two sizes at "
          "least, "
          "began with the device near the host: what the host takes is not told, and small batches "
          "may come out too fast; stepsim_calibrate.py on the plans' shapes tells it";
    }
    return host;
  }
  const StepLaunches launches = launches_of(runs.front().plan);
  host.launch =
      fit_launch(mapped(known, [&](const auto& step) { return sample_of(step, launches); }));
  // Rounds in a row are alike where the host's speed drifts, and tell less than as many apart.
  host.launch.relative_error =
      std::max(host.launch.relative_error, drift_of_host(known, steps.back().number + 1));
  host.syncs = !lags.empty() && median(lags) < kLeastLag;
  const double forward = median_of(known, &StepRecord::forward_host_ms) * kMilli;
  const double backward = median_of(known, &StepRecord::backward_host_ms) * kMilli;
  std::vector<HostSample> meetings;
  for (const HostStep& step : steps) {
    if (step.is_new && step.lag_ms < kMostLag * floor_ms) {
      meetings.push_back(sample_of(step, launches));
      meetings.back().forward_seconds -= forward;
      meetings.back().backward_seconds -= backward;
    }
  }
  host.new_shapes = fit_meetings(meetings);
  host.note = note_of(host, launches.ops, known.size(), tokens.second, meetings.size());
  return host;
}

}  // namespace stepsim
