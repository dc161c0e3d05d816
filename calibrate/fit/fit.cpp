#include "calibrate/fit/fit.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "calibrate/fit/find_processors.h"
#include "calibrate/fit/holdout.h"
#include "calibrate/fit/host_fit.h"
#include "calibrate/fit/interference_fit.h"
#include "calibrate/fit/series.h"
#include "calibrate/fit/unmeasured_sizes.h"
#include "calibrate/fit/warnings.h"
#include "calibrate/samples/statistics.h"
#include "costmodel/base/input_error.h"
#include "costmodel/base/mapped.h"
#include "costmodel/network/collective_pricer.h"

namespace stepsim {
namespace {

/// Mean of the members that are there; signed for the bias.
std::optional<double> mean_of(const std::vector<const OpCost*>& costs,
                              std::optional<double> FitErrors::*member) {
  double sum = 0;
  int count = 0;
  for (const OpCost* cost : costs) {
    if ((cost->errors.*member).has_value()) {
      sum += *(cost->errors.*member);
      ++count;
    }
  }
  return count > 0 ? std::optional(sum / count) : std::nullopt;
}

std::string forms_of(const std::vector<const OpCost*>& costs) {
  std::map<CostForm, int> counts;
  for (const OpCost* cost : costs) {
    ++counts[cost->form];
  }
  std::string text;
  for (const auto& [form, count] : counts) {
    text += text.empty() ? "" : ", ";
    text += counts.size() == 1 ? std::string(form_row(form).title)
                               : fmt::format("{} {}", count, form_row(form).title);
  }
  return text;
}

using RowKey = std::tuple<OpClass, Pass, bool>;

FitRow make_row(const RowKey& key,
                const std::vector<const OpCost*>& costs,
                const std::vector<Series>& all) {
  FitRow row;
  row.op_class = std::get<0>(key);
  row.pass = std::get<1>(key);
  row.unmeasured = std::get<2>(key);
  row.forms = forms_of(costs);
  row.entries = static_cast<int>(costs.size());
  row.points = sum_of(costs, [](const OpCost* cost) { return cost->samples; });
  for (const Series& series : all) {
    if (series.op.op_class != row.op_class || series.op.pass != row.pass) {
      continue;
    }
    for (const SeriesPoint& point : series.points) {
      row.seconds_lo =
          row.seconds_hi == 0 ? point.seconds : std::min(row.seconds_lo, point.seconds);
      row.seconds_hi = std::max(row.seconds_hi, point.seconds);
    }
  }
  row.errors = {mean_of(costs, &FitErrors::random),
                mean_of(costs, &FitErrors::block),
                mean_of(costs, &FitErrors::beyond),
                mean_of(costs, &FitErrors::bias)};
  return row;
}

std::vector<FitRow> make_rows(const std::vector<OpCost>& costs,
                              std::size_t exact,
                              const std::vector<Series>& all) {
  std::map<RowKey, std::vector<const OpCost*>> groups;
  for (std::size_t i = 0; i < costs.size(); ++i) {
    groups[{costs[i].op_class, costs[i].pass, i >= exact}].push_back(&costs[i]);
  }
  return mapped(groups,
                [&](const auto& group) { return make_row(group.first, group.second, all); });
}

Json errors_json(const std::vector<CollectiveFit>& fits) {
  Json list = Json::array();
  for (const CollectiveFit& fit : fits) {
    for (const BandErrors& band : fit.bands) {
      if (band.mean) {
        list.push_back({{"kind", fit.cost.kind},
                        {"ranks", fit.cost.ranks},
                        {"nodes", fit.cost.nodes},
                        {"band", band.band},
                        {"leave_one_out", *band.mean},
                        {"worst", *band.worst},
                        {"noise_floor", band.spread.value_or(0)}});
      }
    }
  }
  return list;
}

/// The number that the header of the samples states; 0 = none.
std::int64_t stated_processors(const SampleSet& samples) {
  return samples.header->value("multiprocessors", std::int64_t{0});
}

/// The stated number, else the one that the GEMMs of a GPU show; 0 on a CPU.
std::int64_t processors_of(const SampleSet& samples, const std::vector<Series>& all) {
  if (samples.header->contains("multiprocessors")) {
    return stated_processors(samples);
  }
  return samples.plan.device == "cpu" ? 0 : find_processors(all);
}

std::string refused_text(const RefusedPoint& refused) {
  return fmt::format(
      "batches of {} x {}: {}", refused.point.samples, refused.point.length, refused.why);
}

Json provenance(const SampleSet& samples, const FitOptions& options, const FitResult& result) {
  Json json = {{"samples_file", options.samples_file},
               {"fitted_at", options.date},
               {"fit_command", options.command},
               {"measurements", result.measurements},
               {"ops_errors_are", "fractions on held-out measurements"},
               {"collective_errors", errors_json(result.collectives)}};
  for (const auto& [key, value] : samples.header->items()) {
    if (key != "format") {
      json[key] = value;
    }
  }
  if (!samples.imports->empty()) {
    json["imports"] = *samples.imports;
  }
  for (const RefusedPoint& refused : samples.refused) {
    json["not_measured"].push_back(refused_text(refused));
  }
  const DisturbedSamples& disturbed = samples.disturbed;
  if (disturbed.dropped > 0 || disturbed.throttled > 0) {
    json["disturbed"] = {{"dropped", disturbed.dropped},
                         {"throttled_steps", disturbed.throttled},
                         {"cooled_seconds", disturbed.cooled_seconds}};
  }
  return json;
}

/// The text of a header's member; `fallback` where it holds none.
std::string text_in(const Json& header, const char* key, const std::string& fallback) {
  const bool is_there = header.contains(key) && header.at(key).is_string();
  return is_there ? header.at(key).get<std::string>() : fallback;
}

/// The number of a member, from 0 to `most`; 0 where it holds none.
double number_in(const Json& header, const char* key, double most) {
  const bool is_there = header.contains(key) && header.at(key).is_number();
  return is_there ? std::clamp(header.at(key).get<double>(), 0.0, most) : 0;
}

/// What was fitted of a machine whose steps were measured here.
void set_machine(const SampleSet& samples, Profile& profile) {
  const Json& header = *samples.header;
  profile.device = text_in(header, "device", "unknown");
  profile.backend = text_in(header, "backend", samples.plan.device);
  profile.host_is_device = profile.backend == "cpu";
  profile.memory_capacity = Bytes(
      static_cast<std::int64_t>(number_in(header, "memory_bytes_per_rank", std::ldexp(1.0, 62))));
  if (header.contains("host")) {
    profile.launch_seconds = number_in(header.at("host"), "launch_us", 1e6) * 1e-6;
  }
  if (!samples.hosts.empty()) {
    const LaunchCost launch = fit_launch(samples.hosts);
    profile.launch_seconds = launch.seconds;
    profile.launch_error = launch.relative_error;
    profile.launched_copies = launch.copies;
    profile.new_shapes = fit_meetings(samples.meetings);
  }
  if (!samples.unit_hosts.empty()) {
    profile.unit_host = fit_unit_host(samples.unit_hosts);
  }
  profile.noise = fit_noise(samples);
}

void fit_ops(const SampleSet& samples, const FitOptions& options, FitResult& result) {
  Profile& profile = result.profile;
  const std::vector<Series> all = make_series(samples.ops);
  const std::int64_t processors = processors_of(samples, all);
  for (const Series& series : all) {
    profile.ops.push_back(fit_best(series, processors, options.monotone));
    std::ranges::move(residuals_of(series, profile.ops.back()),
                      std::back_inserter(result.residuals));
    std::ranges::move(fit_warnings(series, profile.ops.back()),
                      std::back_inserter(result.warnings));
    if (options.on_progress) {
      options.on_progress(static_cast<double>(profile.ops.size()) /
                          static_cast<double>(all.size() + 1));
    }
  }
  const std::size_t exact = profile.ops.size();
  std::ranges::move(fit_unmeasured_sizes(all, processors), std::back_inserter(profile.ops));
  result.rows = make_rows(profile.ops, exact, all);
}

}  // namespace

NoiseProfile fit_noise(const SampleSet& samples) {
  NoiseProfile noise;
  std::vector<double> deviations;
  std::vector<double> ratios;
  for (const JitterSample& point : samples.jitter) {
    // Differences of neighbours: what varies from one step to the next. Slower changes are drift.
    const double center = point.step_seconds.empty() ? 0 : median(point.step_seconds);
    for (std::size_t i = 0; i < point.step_seconds.size() && center > 0; ++i) {
      ratios.push_back(point.step_seconds[i] / center);
    }
    for (std::size_t i = 1; i < point.step_seconds.size() && center > 0; ++i) {
      const double difference = point.step_seconds[i] - point.step_seconds[i - 1];
      deviations.push_back(difference / center / std::sqrt(2.0));
    }
  }
  noise.step_jitter = deviations.empty() ? 0 : robust_deviation(deviations);
  if (!ratios.empty()) {
    noise.step_quantiles = quantiles_over_mean(ratios);
  }
  const std::vector<double> sentinels = mapped(samples.sentinels, &SentinelSample::seconds);
  if (sentinels.empty()) {
    return noise;
  }
  noise.sentinel_seconds = median(sentinels);
  noise.drift =
      noise.sentinel_seconds > 0 ? robust_deviation(sentinels) / noise.sentinel_seconds : 0;
  return noise;
}

FitResult fit_profile(const SampleSet& samples, const FitOptions& options) {
  if (samples.ops.empty() && samples.collectives.empty() && samples.imports->empty() &&
      samples.overlaps.empty()) {
    throw InputError(SourcePlace{options.samples_file},
                     "holds no measurement yet; run stepcal measure to the end first");
  }
  if (!samples.ops.empty() && options.base) {
    throw InputError(SourcePlace{options.samples_file},
                     "holds measured steps, which make a profile of their own; a base is for "
                     "collectives and overlaps");
  }
  FitResult result;
  Profile& profile = result.profile;
  if (options.base) {
    profile = *options.base;
  } else {
    set_machine(samples, profile);
    fit_ops(samples, options, result);
  }
  result.collectives = fit_collectives(samples.collectives);
  for (const CollectiveFit& fit : result.collectives) {
    replace_table(profile, fit.cost);
  }
  if (auto interference = fit_interference(
          samples.overlaps, static_cast<int>(stated_processors(samples)), &result.warnings)) {
    profile.interference = std::move(interference);
  }
  for (const RefusedPoint& refused : samples.refused) {
    result.warnings.push_back("not measured, " + refused_text(refused));
  }
  for (const JitterSample& point : samples.jitter) {
    result.measurements += static_cast<int>(point.step_seconds.size());
  }
  for (const CollectiveSample& sample : samples.collectives) {
    result.measurements += sample.repetitions;
  }
  result.measurements += static_cast<int>(samples.overlaps.size());
  profile.name = options.name;
  profile.provenance = provenance(samples, options, result);
  if (options.base) {
    (*profile.provenance)["base"] = {{"name", options.base->name},
                                     {"provenance", *options.base->provenance}};
  }
  return result;
}

}  // namespace stepsim
