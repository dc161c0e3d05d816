#include "calibrate/import/step_times/step_time_profile.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <map>
#include <set>

#include <fmt/format.h>

#include "calibrate/fit/nnls.h"
#include "calibrate/import/step_times/step_time_draws.h"
#include "costmodel/base/mapped.h"
#include "costmodel/base/parse_units.h"

namespace stepsim {
namespace {

bool has_one_length(const StepTimeJob& job) {
  return std::ranges::all_of(job.compute, [&](const ComputePoint& point) {
    return point.length == job.compute.front().length;
  });
}

/// The batches whose compute a pass has: those of the table, and with one length those below them.
std::vector<ComputePoint> points_of(const StepTimeJob& job) {
  std::vector<ComputePoint> points = has_one_length(job) ? job.below : std::vector<ComputePoint>();
  points.insert(points.end(), job.compute.begin(), job.compute.end());
  return points;
}

/// [points_of] Compute by a fit's coefficients.
std::vector<double> compute_times(const StepTimeFit& fit, std::span<const double> vector) {
  std::vector<double> times =
      has_one_length(fit.job) ? compute_below(fit, vector) : std::vector<double>();
  for (std::size_t i = 0; i < fit.job.compute.size(); ++i) {
    times.push_back(compute_of(fit, vector, i));
  }
  return times;
}

BatchShape shape_of(const ComputePoint& point) {
  BatchShape shape;
  shape.samples = point.batch;
  shape.max_length = point.length;
  shape.useful_tokens = shape.padded_tokens();
  shape.sum_squares = static_cast<double>(shape.useful_tokens) * static_cast<double>(point.length);
  return shape;
}

/// Replaces times that fall with the batch by the mean of their neighbourhood (pool adjacent
/// violators): noise, since more samples never take less.
std::vector<double> ascending(const std::vector<double>& times) {
  std::vector<std::pair<double, int>> pools;
  for (const double time : times) {
    pools.emplace_back(time, 1);
    while (pools.size() > 1 && pools.back().first < pools[pools.size() - 2].first) {
      const auto [last, count] = pools.back();
      pools.pop_back();
      auto& [mean, others] = pools.back();
      mean = (mean * others + last * count) / (others + count);
      others += count;
    }
  }
  std::vector<double> result;
  for (const auto& [mean, count] : pools) {
    result.insert(result.end(), static_cast<std::size_t>(count), mean);
  }
  return result;
}

/// The features of a pass: pieces between the timed batches of one length, or what batches of
/// several lengths can tell.
std::vector<std::string> features_of(const StepTimeJob& job) {
  if (!has_one_length(job)) {
    return {"1", "samples", "tokens", "tokens*length"};
  }
  std::vector<std::string> features = {"1"};
  std::int64_t from = 0;
  const std::vector<ComputePoint> points = points_of(job);
  for (const ComputePoint& point : points) {
    const bool last = point.batch == points.back().batch;
    features.push_back(last ? fmt::format("samples:{}-", from)
                            : fmt::format("samples:{}-{}", from, point.batch));
    from = point.batch;
  }
  return features;
}

/// Coefficients of features_of() for these times of points_of().
std::vector<double> coefficients_for(const StepTimeJob& job, const std::vector<double>& times) {
  const std::vector<std::string> features = features_of(job);
  const std::vector<ComputePoint> points = points_of(job);
  if (!has_one_length(job)) {
    const auto rows = mapped(points, [&](const ComputePoint& point) {
      return mapped(features, [&](const std::string& feature) {
        return pass_feature(feature, shape_of(point), false);
      });
    });
    return relative_nnls(rows, times);
  }
  const std::vector<double> smooth = ascending(times);
  std::vector<double> slopes;
  for (std::size_t i = 1; i < smooth.size(); ++i) {
    const auto samples = static_cast<double>(points[i].batch - points[i - 1].batch);
    slopes.push_back((smooth[i] - smooth[i - 1]) / samples);
  }
  // Below the smallest batch the first line goes on, as far as it leaves a constant.
  const auto first = static_cast<double>(points.front().batch);
  const double slope =
      slopes.empty() ? smooth.front() / first : std::min(slopes.front(), smooth.front() / first);
  slopes.insert(slopes.begin(), slope);
  std::vector<double> coefficients = {smooth.front() - slope * first};
  coefficients.insert(coefficients.end(), slopes.begin(), slopes.end());
  for (double& coefficient : coefficients) {
    coefficient = std::max(coefficient, 0.0);  // Rounding alone makes one negative.
  }
  return coefficients;
}

PassCost pass_of(
    const StepTimeFit& fit,
    const std::vector<std::vector<double>>& draws,
    const std::function<double(double compute, std::span<const double> vector)>& part) {
  const auto coefficients = [&](std::span<const double> vector) {
    return coefficients_for(fit.job, mapped(compute_times(fit, vector), [&](double compute) {
                              return std::max(part(compute, vector), 0.0);
                            }));
  };
  PassCost pass;
  pass.features = features_of(fit.job);
  pass.coefficients = coefficients(fit.posterior.mode);
  pass.draws = mapped(draws, coefficients);
  // Below them, too, where the fit has what the host takes: nobody needs to guess it again.
  const auto tokens = mapped(points_of(fit.job), [](const ComputePoint& point) {
    return static_cast<double>(point.batch) * static_cast<double>(point.length);
  });
  const auto lengths = mapped(
      fit.job.compute, [](const ComputePoint& point) { return static_cast<double>(point.length); });
  pass.tokens = {std::ranges::min(tokens), std::ranges::max(tokens)};
  pass.length = {std::ranges::min(lengths), std::ranges::max(lengths)};
  pass.samples = static_cast<int>(fit.job.compute.size());
  pass.errors.random = pass.errors.block = 0;
  return pass;
}

}  // namespace

Profile step_time_profile(const StepTimeFit& fit, const Profile* base) {
  Profile profile = base != nullptr ? *base : Profile();
  const std::vector<double>& mode = fit.posterior.mode;
  const auto draws = drawn_coefficients(fit);
  const auto passes = [&](double compute, std::span<const double> vector) {
    return compute - coefficients_of(fit, vector).optimizer_share * fit.job.shortest_s;
  };
  RecordedModel recorded;
  recorded.model = fit.job.model;
  recorded.operations_per_byte = fit.job.operations_per_byte;
  recorded.forward = pass_of(fit, draws, [&](double compute, std::span<const double> vector) {
    return coefficients_of(fit, vector).forward_share * passes(compute, vector);
  });
  recorded.backward = pass_of(fit, draws, [&](double compute, std::span<const double> vector) {
    return (1 - coefficients_of(fit, vector).forward_share) * passes(compute, vector);
  });
  recorded.data = recorded.forward;
  recorded.data.features = {"1"};
  recorded.data.coefficients = {fit.job.data_s};
  recorded.data.draws.clear();
  recorded.optimizer_seconds =
      coefficients_of(fit, mode).optimizer_share * fit.job.shortest_s + fit.job.rest_s;
  const auto several = [&](std::span<const double> vector) {
    return several_ranks_of(coefficients_of(fit, vector));
  };
  recorded.several_ranks = several(mode);
  recorded.several_ranks_draws = mapped(draws, several);
  profile.recorded = std::move(recorded);

  FittedLinks links;
  links.fitted = coefficients_of(fit, mode).links;
  links.draws = mapped(
      draws, [&](const std::vector<double>& draw) { return coefficients_of(fit, draw).links; });
  links.run_error = fit.run_noise;
  links.ranks = fit.ranks;
  links.nodes = fit.nodes;
  profile.links = std::move(links);
  profile.noise.drift = fit.compute_noise;
  profile.host_is_device = false;
  InterferenceProfile interference;
  if (fit.form != StepTimeForm::NoOverlap) {  // Those have ddp.overlap = false.
    interference.value.compute = coefficients_of(fit, mode).interference;
  }
  if (leaves_open(fit, StepTimeDoubt::Overlap)) {
    interference.compute_draws = mapped(draws, [&](const std::vector<double>& draw) {
      return coefficients_of(fit, draw).interference;
    });
  }
  interference.samples = static_cast<int>(fit.job.compute.size());
  profile.interference = interference;
  if (profile.backend.empty()) {
    profile.backend = "cuda";
    profile.device = "unknown: from step times";
  }
  return profile;
}

namespace {

/// The micro-batches of the scenario's step, with what to know of them.
std::string accumulation_of(const StepTimeTable& table) {
  const auto [least, most] = std::ranges::minmax(mapped(table.rows, &StepTimeRow::micro_batches));
  if (most == 1) {
    return "";
  }
  return fmt::format(
      "accumulation_steps = {}{}\n",
      common_micro_batches(table),
      least == most ? "" : fmt::format("  # rows have {} to {} micro-batches a step", least, most));
}

}  // namespace

std::string step_time_scenario(const StepTimeFit& fit,
                               const StepTimeTable& table,
                               const std::string& profile,
                               std::int64_t first_bucket_bytes,
                               std::int64_t bucket_cap_bytes) {
  const Placement* largest = &table.rows.front().placement;
  for (const StepTimeRow& row : table.rows) {
    if (row.placement.ranks() > largest->ranks()) {
      largest = &row.placement;
    }
  }
  constexpr std::int64_t kSamplesOfBatch = 64;
  const ComputePoint& widest = *std::ranges::max_element(
      fit.job.compute, {}, [](const ComputePoint& point) { return point.batch; });
  constexpr double kMostSamples = std::int64_t{1} << 27U;  // As scenarios take them.
  const std::int64_t micro_batches = common_micro_batches(table);
  const double wanted = static_cast<double>(widest.batch) * static_cast<double>(micro_batches) *
                        static_cast<double>(kSamplesOfBatch) *
                        static_cast<double>(largest->ranks());
  std::string text = fmt::format(
      "# The job whose step times made the profile. Change placement and batch, or sweep them:\n"
      "#   stepsim sweep THIS.toml --over cluster.placement=2x4,4x4,8x4\n"
      "[scenario]\nname = \"step_times\"\n"
      "question = \"What does this step take on other placements and batches?\"\n"
      "steps = 6\nwarmup_steps = 2\n\n"
      "[cluster]\nplacement = \"{}\"\nprofile = \"{}\"\n\n"
      "[model]\nkind = \"recorded\"  # the model of the profile\n\n"
      "[ddp]\nbucket_cap = \"{}\"\nfirst_bucket_cap = \"{}\"\n{}{}\n"
      "[data]\nsamples = {}\nlengths = {{ constant = {} }}{}\n",
      text_of(*largest),
      profile,
      format_bytes(Bytes(bucket_cap_bytes)),
      format_bytes(Bytes(first_bucket_bytes)),
      fit.form == StepTimeForm::NoOverlap ? "overlap = false\n" : "",
      accumulation_of(table),
      static_cast<std::int64_t>(std::min(wanted, kMostSamples)),
      widest.length,
      table.has_lengths ? ""
                        : "  # the table has no lengths: memory without activations, no GFLOP/s");
  std::set<std::int64_t> batches;
  for (const ComputePoint& point : fit.job.compute) {
    if (batches.insert(point.batch).second) {
      text += fmt::format(
          "\n[[policy]]\nname = \"batch_{0}\"\nkind = \"fixed\"\nbatch_size = {0}\n", point.batch);
    }
  }
  return text;
}

}  // namespace stepsim
