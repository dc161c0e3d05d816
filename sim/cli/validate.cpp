#include "sim/validate.h"

#include <algorithm>
#include <cmath>

#include <fmt/core.h>

#include "costmodel/input_error.h"
#include "costmodel/run_record.h"
#include "sim/cli/cli.h"
#include "sim/cli/options.h"
#include "sim/predict.h"
#include "sim/report/csv.h"
#include "sim/report/json.h"
#include "sim/report/text.h"
#include "sim/run.h"

namespace stepsim {

namespace {

namespace po = boost::program_options;

constexpr const char* kUsage =
    "usage: stepsim validate SCENARIO --live FILE… [--predictions FILE] [--bound PERCENT] "
    "[options]\n\n"
    "Predicted against measured: the step time of each recorded policy, the order of the "
    "policies,\n"
    "the regret of the recommendation, the coverage of the intervals, and how well the live runs\n"
    "repeat. Exit status 1 when the error of a mean exceeds the bound (10 % without --bound).\n\n"
    "With --predictions the figures come from a file that `stepsim compare --json` wrote before "
    "the\n"
    "live run; without it they are computed anew from the scenario and its profile.\n\n"
    "example:\n"
    "  stepsim compare scenarios/token_skew_2ranks.toml --json prediction.json\n"
    "  stepcal live plans/*.jsonl --out-dir live\n"
    "  stepsim validate scenarios/token_skew_2ranks.toml --live live/*.jsonl "
    "--predictions prediction.json\n";

Json policy_json(const PolicyValidation& p) {
  return {{"policy", p.policy},
          {"predicted_ms",
           {{"mean", p.predicted.mean},
            {"p50", p.predicted.p50},
            {"p95", p.predicted.p95},
            {"interval90", {p.predicted.low90, p.predicted.high90}}}},
          {"measured_ms",
           {{"mean", p.measured_mean}, {"p50", p.measured_p50}, {"p95", p.measured_p95}}},
          {"error",
           {{"mean", p.error_mean},
            {"p50", p.error_p50},
            {"p95", p.error_p95},
            {"per_step", p.step_error}}},
          {"repeatability", p.repeatability},
          {"repeats", p.repeats},
          {"in_interval", p.covered},
          {"useful_tokens_per_s",
           {{"predicted", p.predicted_tokens_per_s}, {"measured", p.measured_tokens_per_s}}}};
}

Json validation_json(const Validation& validation, double bound, bool holds) {
  Json policies = Json::array();
  for (const PolicyValidation& policy : validation.policies) {
    policies.push_back(policy_json(policy));
  }
  return {{"format", "stepsim-validation/1"},
          {"policies", std::move(policies)},
          {"kendall_tau", validation.kendall_tau},
          {"recommended", validation.recommended},
          {"truly_best", validation.truly_best},
          {"regret", validation.regret},
          {"interval_coverage", validation.coverage},
          {"machine_speed", validation.machine_speed},
          {"bound", bound},
          {"holds", holds},
          {"warnings", validation.warnings}};
}

std::string validation_csv(const Validation& validation) {
  std::string text =
      "policy,predicted_ms,low90_ms,high90_ms,measured_ms,error_mean,error_p50,error_p95,"
      "error_per_step,repeatability,repeats,in_interval\n";
  for (const PolicyValidation& p : validation.policies) {
    text += fmt::format("{},{},{},{},{},{},{},{},{},{},{},{}\n",
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
                        p.covered);
  }
  return text;
}

/// From a file made before the live run, else computed now.
std::vector<Prediction> predictions_for(const OptionParser& parser,
                                        const Scenario& scenario,
                                        const Profile& profile) {
  if (parser.has("predictions")) {
    const std::string path = parser.get<std::string>("predictions");
    std::vector<Prediction> predictions = read_predictions(path);
    for (const Prediction& prediction : predictions) {
      if (prediction.scenario != scenario.name) {
        throw InputError(path + ": error: made for scenario '" + printable(prediction.scenario) +
                         "', not '" + scenario.name + "'");
      }
      if (prediction.steps.empty()) {
        throw InputError(path + ": error: holds no steps; make it with: stepsim compare --json");
      }
    }
    return predictions;
  }
  std::vector<Prediction> predictions;
  for (const PolicySpec& policy : scenario.policies) {
    predictions.push_back(predict(scenario, policy, profile, {}));
  }
  return predictions;
}

}  // namespace

int validate_command(const std::vector<std::string>& arguments) {
  OptionParser parser("validate", kUsage);
  parser.add_common();
  parser.add()("live", po::value<std::vector<std::string>>()->multitoken(), "FILE…: run records")(
      "predictions", po::value<std::string>(), "FILE of predictions made before the live run")(
      "bound", po::value<double>()->default_value(10.0), "percent: largest error of a mean");
  if (!parser.parse(arguments)) {
    return kDone;
  }
  const CommonOptions common = parser.common();
  if (!parser.has("live")) {
    throw InputError("stepsim validate: error: give --live FILE… (from stepcal live)");
  }
  const double bound = parser.get<double>("bound") / 100;
  if (!(bound > 0)) {
    throw InputError("stepsim validate: error: --bound must be above 0");
  }
  const Scenario scenario = load_scenario(common);
  const Profile profile = scenario_profile(scenario);
  std::vector<std::string> warnings;
  std::vector<RunRecord> records;
  for (const std::string& path : parser.get<std::vector<std::string>>("live")) {
    records.push_back(read_run_record(path, &warnings));
    if (records.back().world_size != scenario.ranks) {
      throw InputError(fmt::format("{}: error: recorded on {} ranks, the scenario has {}",
                                   path,
                                   records.back().world_size,
                                   scenario.ranks));
    }
  }
  std::vector<std::string> reference;
  for (const PolicySpec& policy : scenario.policies) {
    if (policy.lengths) {
      reference.push_back(policy.name);
    }
  }
  Validation validation = validate(predictions_for(parser, scenario, profile),
                                   reference,
                                   records,
                                   scenario.warmup_steps,
                                   profile.noise.sentinel_seconds);
  validation.warnings.insert(validation.warnings.begin(), warnings.begin(), warnings.end());
  const bool holds = std::all_of(
      validation.policies.begin(), validation.policies.end(), [&](const PolicyValidation& policy) {
        return std::abs(policy.error_mean) <= bound;
      });
  print_text(common, validation_text(validation, bound));
  if (!common.json.empty()) {
    write_text_atomically(common.json, validation_json(validation, bound, holds).dump(1) + "\n");
  }
  if (!common.csv.empty()) {
    write_text_atomically(common.csv, validation_csv(validation));
  }
  return holds ? kDone : kAnswerIsNo;
}

}  // namespace stepsim
