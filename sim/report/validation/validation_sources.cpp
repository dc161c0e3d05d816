#include "sim/report/validation/validation_sources.h"

#include <algorithm>
#include <set>

#include <fmt/core.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "costmodel/base/input_error.h"
#include "costmodel/base/utc_time.h"

namespace stepsim {

PredictionTime prediction_time(const ValidationSources& sources) {
  if (sources.predictions_path.empty()) {
    return PredictionTime::Now;
  }
  const auto predicted = parse_utc(sources.predicted_at);
  bool known = predicted.has_value();
  bool after = false;
  for (const LiveFile& file : sources.live) {
    const auto started = parse_utc(file.header.started_at);
    known = known && started;
    after = after || (predicted && started && *predicted > *started);
  }
  if (after) {
    return PredictionTime::After;
  }
  return known ? PredictionTime::Before : PredictionTime::Unknown;
}

namespace {

/// Whether the profile was fitted to this very live run (stepcal import run-record).
bool fitted_to(const Profile& profile, const RunRecord& live) {
  const nlohmann::ordered_json::json_pointer place("/recorded/records");
  if (live.started_at.empty() || !profile.provenance->contains(place)) {
    return false;
  }
  const auto& runs = (*profile.provenance)[place];
  return std::ranges::any_of(runs, [&](const auto& run) {
    return run.is_object() && run.contains("policy") && run["policy"] == live.policy &&
           run.contains("started_at") && run["started_at"] == live.started_at;
  });
}

}  // namespace

std::vector<std::string> source_warnings(const ValidationSources& sources) {
  std::vector<std::string> warnings;
  if (prediction_time(sources) == PredictionTime::After) {
    const auto first = std::ranges::min_element(sources.live, [](const auto& a, const auto& b) {
      return parse_utc(a.header.started_at).value_or(INT64_MAX) <
             parse_utc(b.header.started_at).value_or(INT64_MAX);
    });
    warnings.push_back(fmt::format("{} was written at {}, after the live run of {}",
                                   printable(sources.predictions_path),
                                   sources.predicted_at,
                                   printable(first->header.started_at)));
  }
  if (!sources.predicted_with.empty() && sources.predicted_with != sources.profile.name) {
    warnings.push_back(
        fmt::format("predicted with profile '{}'; the sentinel is compared with that of '{}'",
                    printable(sources.predicted_with),
                    printable(sources.profile.name)));
  } else if (!sources.predicted_with_id.empty() && !sources.profile.id.text.empty() &&
             sources.predicted_with_id != sources.profile.id.text) {
    warnings.push_back(fmt::format(
        "predicted with profile '{}' as it was then (id {}); its file has changed since (id {})",
        printable(sources.predicted_with),
        printable(sources.predicted_with_id),
        sources.profile.id.text));
  }
  std::set<std::string> devices;
  bool emulated = false;
  for (const LiveFile& file : sources.live) {
    devices.insert(printable(file.header.device));
    emulated = emulated || file.header.backend == "emulated";
    if (fitted_to(sources.profile, file.header)) {
      warnings.push_back(
          fmt::format("{}: the profile was fitted to this very run, so that its "
                      "error is of the fit and not of a prediction",
                      printable(file.path)));
    }
  }
  if (devices.size() > 1) {
    warnings.push_back(
        fmt::format("the live runs are of different devices: {}", fmt::join(devices, ", ")));
  }
  const std::string profiled = printable(sources.profile.device);
  devices.erase("");
  if (!profiled.empty() && !devices.empty() && devices != std::set<std::string>{profiled}) {
    warnings.push_back(
        fmt::format("the live runs are of '{}', and the profile is of '{}': errors are "
                    "also those between the machines",
                    fmt::join(devices, "', '"),
                    profiled));
  }
  if (emulated) {
    warnings.emplace_back(
        "EMULATED live run: one device played all ranks, transfers were not real");
  }
  return warnings;
}

}  // namespace stepsim
