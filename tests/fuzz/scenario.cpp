// Scenarios with the texts of --set and --over: lines "#set KEY=VALUE" and "#over KEY=VALUES",
// which TOML takes for comments. Those that are small are predicted and reported.

#include "sim/scenario/scenario.h"

#include <algorithm>
#include <vector>

#include <nlohmann/json.hpp>

#include "costmodel/io/json_file.h"
#include "sim/predict/predict.h"
#include "sim/report/csv.h"
#include "sim/report/json.h"
#include "sim/report/text.h"
#include "sim/study/sweep.h"
#include "tests/fuzz/door.h"

namespace stepsim::fuzz {

namespace {

/// The texts of the lines that begin with a mark.
std::vector<std::string> marked_lines(std::string_view input, std::string_view mark) {
  std::vector<std::string> texts;
  for (std::size_t at = 0; at < input.size();) {
    const std::size_t end = std::min(input.find('\n', at), input.size());
    const std::string_view line = input.substr(at, end - at);
    if (line.starts_with(mark)) {
      texts.emplace_back(line.substr(mark.size()));
    }
    at = end + 1;
  }
  return texts;
}

/// Whether a prediction takes little time whatever else the scenario says.
bool is_small(const Scenario& scenario) {
  constexpr int kMostRanks = 8;
  constexpr int kMostSteps = 12;
  constexpr int kMostSamples = 500;
  constexpr int kMostLayers = 30;
  const int micro_batches = scenario.ddp.accumulation_steps;
  return scenario.ranks <= kMostRanks && scenario.steps <= kMostSteps && scenario.samples > 0 &&
         scenario.samples <= kMostSamples && scenario.model.layers <= kMostLayers &&
         micro_batches <= 4 && scenario.policies.size() <= 4 &&
         longest_length(scenario.lengths) <= 10'000;
}

void predict_and_report(const Scenario& scenario) {
  PredictOptions options;
  options.noise_runs = 2;
  options.threads = 1;
  const Profile profile = scenario_profile(scenario);
  Jobs jobs(scenario);
  const std::vector<Prediction> predictions = predict_policies(jobs, options);
  for (const Prediction& prediction : predictions) {
    require(!run_text(scenario, prediction, {}).empty(), "no report");
  }
  (void)prediction_json(predictions, StepRows::All)
      .dump(-1, ' ', false, Json::error_handler_t::replace);
  (void)steps_csv(predictions);
}

}  // namespace

void enter_scenario(std::string_view input) {
  const std::string text(input);
  const std::string path = source_path("scenarios/fuzzed.toml");
  for (const std::string& over : marked_lines(input, "#over ")) {
    (void)accepts([&] { (void)parse_sweep_axis(over); });
  }
  const std::vector<std::string> set = marked_lines(input, "#set ");
  const Scenario scenario = parse_scenario(text, path, set);
  const std::string whole = scenario_text(scenario);
  require(accepts([&] { (void)parse_scenario(whole, path); }), "refused with its overrides inside");
  if (is_small(scenario)) {
    predict_and_report(scenario);
  }
}

}  // namespace stepsim::fuzz
