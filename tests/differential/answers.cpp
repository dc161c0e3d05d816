// Predicts scenarios by the recurrence and by the engine, for differential_test.py.
//
// Reads the paths of scenario files, one a line, and writes one line of JSON for each: the answers
// of its first policy, or {"error": message}.

#include <iostream>
#include <string>

#include <nlohmann/json.hpp>

#include "costmodel/base/input_error.h"
#include "costmodel/io/json_file.h"
#include "sim/predict/bucket_lists.h"
#include "sim/predict/predict.h"
#include "sim/predict/scenario_profile.h"
#include "sim/scenario/scenario.h"

using namespace stepsim;

namespace {

/// The rows of every step and rank, and the means over the steady steps.
Json answer(const Scenario& scenario, bool engine) {
  const Prediction prediction = predict(scenario,
                                        scenario.policies.front(),
                                        scenario_profile(scenario),
                                        {.noise_runs = 0, .engine = engine, .threads = 1});
  Json rows = Json::array();
  for (const RankStepResult& row : prediction.steps) {
    rows.push_back({row.samples,
                    row.max_length,
                    row.useful_tokens,
                    row.padded_tokens,
                    row.start_ms,
                    row.data_ms,
                    row.forward_ms,
                    row.backward_ms,
                    row.exposed_ms,
                    row.waiting_ms,
                    row.optimizer_ms,
                    row.step_ms});
  }
  const PredictionSummary& summary = prediction.summary;
  return {{"rows", std::move(rows)},
          {"step_ms", summary.step_time_ms.mean},
          {"exposed_ms", summary.exposed_communication_ms},
          {"waiting_ms", summary.waiting_for_ranks_ms},
          {"communication_ms", summary.communication_ms},
          {"overlap", summary.overlap_fraction},
          {"padding", summary.padding_ratio()}};
}

Json bucket_json(const std::vector<Bucket>& buckets) {
  Json list = Json::array();
  for (const Bucket& bucket : buckets) {
    list.push_back(bucket.parameters);
  }
  return list;
}

Json all_answers(const std::string& path) {
  try {
    const Scenario scenario = read_scenario(path);
    const BucketLists buckets = bucket_lists(scenario);
    return {{"initial", bucket_json(buckets.initial)},
            {"rebuilt", bucket_json(buckets.rebuilt)},
            {"closed form", answer(scenario, false)},
            {"engine", answer(scenario, true)}};
  } catch (const InputError& error) {
    return {{"error", error.what()}};
  }
}

}  // namespace

int main() {
  std::string path;
  while (std::getline(std::cin, path)) {
    std::cout << all_answers(path).dump() << std::endl;
  }
  return 0;
}
