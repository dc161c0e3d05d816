#include "sim/report/validation/validation_report.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "costmodel/base/input_error.h"
#include "costmodel/base/mapped.h"
#include "costmodel/io/json_optional.h"
#include "sim/report/csv.h"
#include "sim/report/number_text.h"
#include "sim/report/validation/validation_words.h"

namespace stepsim {

namespace {

constexpr const char* kPartNames[] = {
    "data", "forward", "backward", "exposed", "optimizer", "other"};

std::string plus_minus(const std::optional<double>& fraction) {
  return fraction ? "+-" + percent(*fraction) : "one run";
}

/// The error of a part; nothing when the record does not state the part.
std::optional<double> error_of(const PolicyValidation& policy, const std::string& part) {
  for (const PartError& error : part_errors(policy)) {
    if (error.part == part) {
      return error.error;
    }
  }
  return std::nullopt;
}

Json parts_json(const PolicyValidation& policy, const StepParts& parts) {
  Json json = {{"data", parts.data}, {"forward", parts.forward}, {"backward", parts.backward}};
  json["exposed"] = policy.states_wait ? Json(parts.exposed) : Json(nullptr);
  json["optimizer"] = parts.optimizer;
  json["other"] = parts.other;
  return json;
}

std::string interval_key(const MeanInterval& interval) {
  return fmt::format("interval{}", interval.percent);
}

Json policy_json(const PolicyValidation& p) {
  Json part_error;
  for (const char* part : kPartNames) {
    part_error[part] = or_null(error_of(p, part));
  }
  Json predicted = {{"mean", p.predicted.mean},
                    {"p50", p.predicted.p50},
                    {"p95", p.predicted.p95},
                    {"interval90", {p.predicted.low90, p.predicted.high90}}};
  for (const MeanInterval& one : p.intervals) {
    predicted[interval_key(one)] = {one.low, one.high};
  }
  predicted["parts"] = parts_json(p, p.predicted_parts);
  return {{"policy", p.policy},
          {"predicted_ms", std::move(predicted)},
          {"measured_ms",
           {{"mean", p.measured_mean},
            {"p50", p.measured_p50},
            {"p95", p.measured_p95},
            {"parts", parts_json(p, p.measured_parts)}}},
          {"error",
           {{"mean", p.error_mean},
            {"p50", p.error_p50},
            {"p95", p.error_p95},
            {"per_step", p.step_error},
            {"mean_by_part", std::move(part_error)}}},
          {"repeatability", p.repeatability},
          {"standard_error", or_null(p.standard_error)},
          {"within_repeatability", p.within_repeatability()},
          {"repeats", p.repeats},
          {"files", p.files},
          {"in_interval", p.covered},
          {"beside_recording", p.beside_recording},
          {"steps_below", {{"p50", p.below_p50}, {"p95", p.below_p95}}},
          {"useful_tokens_per_s",
           {{"predicted", p.predicted_tokens_per_s}, {"measured", p.measured_tokens_per_s}}}};
}

const char* name_of(PredictionTime time) {
  switch (time) {
    case PredictionTime::Before:
      return "before";
    case PredictionTime::After:
      return "after";
    case PredictionTime::Now:
      return "now";
    case PredictionTime::Unknown:
      break;
  }
  return "unknown";
}

}  // namespace

Table step_time_table(const Validation& validation, bool wide) {
  std::vector<std::string> header = {
      "policy", "predicted ms", "90 % interval", "measured ms", "error"};
  if (wide) {
    header.insert(header.end(),
                  {"p50 error", "p95 error", "per-step error", "repeatability", "2 std errors"});
  }
  header.emplace_back("in interval");
  Table table(std::move(header));
  for (const PolicyValidation& p : validation.policies) {
    std::vector<std::string> row = {printable(p.policy),
                                    fmt::format("{:.3f}", p.predicted.mean),
                                    interval(p.predicted.low90, p.predicted.high90),
                                    fmt::format("{:.3f}", p.measured_mean),
                                    signed_percent(p.error_mean)};
    if (wide) {
      row.insert(row.end(),
                 {signed_percent(p.error_p50),
                  signed_percent(p.error_p95),
                  percent(p.step_error),
                  p.repeats > 1 ? "+-" + percent(p.repeatability) : "one run",
                  plus_minus(p.resolution())});
    }
    row.emplace_back(p.covered ? "yes" : "no");
    table.add(std::move(row));
  }
  return table;
}

Table part_error_table(const Validation& validation, bool wide) {
  std::vector<std::string> header = {"policy", "error"};
  header.insert(header.end(), std::begin(kPartNames), std::end(kPartNames));
  if (wide) {
    header.emplace_back("the error is");
  }
  Table table(header);
  for (const PolicyValidation& p : validation.policies) {
    std::vector<std::string> row = {printable(p.policy),
                                    fmt::format("{:+.1f}", p.error_mean * 100)};
    for (const char* part : kPartNames) {
      const auto error = error_of(p, part);
      row.push_back(error ? fmt::format("{:+.1f}", *error * 100) : "-");
    }
    if (wide) {
      row.emplace_back(!p.resolution()            ? "of one run"
                       : p.within_repeatability() ? "within repeatability"
                                                  : "real");
    }
    table.add(std::move(row));
  }
  return table;
}

std::string validation_text(const Validation& validation,
                            const ValidationSources& sources,
                            double bound,
                            const Screen& screen) {
  std::string text = painted("verdict: " + verdict(validation, sources, bound),
                             validation.holds(bound) ? Paint::Good : Paint::Bad,
                             screen) +
                     "\nhow sure: " + certainty(validation, bound) + "\n";
  if (const std::string machine = machine_line(validation, sources); !machine.empty()) {
    text += "machine: " + machine + "\n";
  }
  text += "\n";
  text += "step time (last rank's start to last rank's end), mean over the steady steps\n\n" +
          step_time_table(validation, screen.wide).text(screen);
  text += "\nwhere the error is, in points of the measured step\n\n" +
          part_error_table(validation, screen.wide).text(screen) + "\n";
  for (const std::string& finding : findings(validation, sources)) {
    text += finding + "\n";
  }
  for (const std::string& line : advice(validation, sources, bound)) {
    text += "what to do: " + line + "\n";
  }
  if (!validation.holds(bound)) {
    text += "Next: " + next_command(validation, sources, bound) + "\n";
  }
  for (const std::string& warning : validation.warnings) {
    text += "warning: " + warning + "\n";
  }
  return text;
}

Json validation_json(const Validation& validation, const ValidationSources& sources, double bound) {
  Json policies = mapped(validation.policies, policy_json);
  Json made = {{"when", name_of(prediction_time(sources))}};
  if (!sources.predictions_path.empty()) {
    made["file"] = sources.predictions_path;
    made["written_at"] = sources.predicted_at;
  }
  return {{"format", "stepsim-validation/1"},
          {"policies", std::move(policies)},
          {"kendall_tau", validation.kendall_tau},
          {"pairs", validation.pairs},
          {"distinguishable_pairs", validation.distinguishable_pairs},
          {"told_kendall_tau", or_null(validation.distinguishable_kendall_tau)},
          {"recommended", validation.recommended},
          {"truly_best", validation.truly_best},
          {"regret", validation.regret},
          {"regret_resolution", or_null(validation.regret_resolution)},
          {"interval_coverage", validation.coverage},
          {"steps_below", {{"p50", validation.below_p50}, {"p95", validation.below_p95}}},
          {"machine_speed", validation.machine_speed},
          {"wall_over_processor_time",
           {{"live", or_null(validation.live_slowed)},
            {"recorded", or_null(validation.recorded_slowed)}}},
          {"prediction", std::move(made)},
          {"bound", bound},
          {"holds", validation.holds(bound)},
          {"verdict", verdict(validation, sources, bound)},
          {"certainty", certainty(validation, bound)},
          {"machine", machine_line(validation, sources)},
          {"advice", advice(validation, sources, bound)},
          {"next", next_command(validation, sources, bound)},
          {"warnings", validation.warnings}};
}

std::string validation_csv(const Validation& validation) {
  std::string text =
      "policy,predicted_ms,low90_ms,high90_ms,measured_ms,error_mean,error_p50,error_p95,"
      "error_per_step,repeatability,repeats,in_interval,standard_error,steps_below_p50,"
      "steps_below_p95";
  for (const char* part : kPartNames) {
    text += fmt::format(",error_{}", part);
  }
  text += "\n";
  const auto field = [](const std::optional<double>& value) {
    return value ? fmt::format("{}", *value) : std::string();
  };
  for (const PolicyValidation& p : validation.policies) {
    text += fmt::format("{},{},{},{},{},{},{},{},{},{},{},{},{},{},{}",
                        csv_field(p.policy),
                        p.predicted.mean,
                        p.predicted.low90,
                        p.predicted.high90,
                        p.measured_mean,
                        p.error_mean,
                        p.error_p50,
                        p.error_p95,
                        p.step_error,
                        p.repeatability,
                        p.repeats,
                        p.covered,
                        field(p.standard_error),
                        p.below_p50,
                        p.below_p95);
    for (const char* part : kPartNames) {
      text += "," + field(error_of(p, part));
    }
    text += "\n";
  }
  return text;
}

}  // namespace stepsim
