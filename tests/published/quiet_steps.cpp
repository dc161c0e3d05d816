// Mean steps of one scenario under many settings: what fsdp_figures.py asks.
//
// usage: quiet_steps SCENARIO < SETTINGS
// Each line of the input holds "key=value" texts with tabs between them; each line of the output
// the milliseconds of a step and of a rank's collectives without drawn errors, or "refused" and
// why, with a tab between. After "drawn" as the first text it holds the ends of the intervals of
// 50, 80, 90 and 95 %.
#include <algorithm>
#include <cstdio>
#include <iostream>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/core.h>

#include "costmodel/base/input_error.h"
#include "sim/predict/predict.h"
#include "sim/predict/scenario_profile.h"

namespace {

std::vector<std::string> parts_of(const std::string& line) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin < line.size();) {
    const std::size_t end = std::min(line.find('\t', begin), line.size());
    parts.push_back(line.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

void answer(const std::string& file, const std::string& line) {
  try {
    std::vector<std::string> settings = parts_of(line);
    const bool drawn = !settings.empty() && settings.front() == "drawn";
    if (drawn) {
      settings.erase(settings.begin());
    }
    const stepsim::Scenario scenario = stepsim::read_scenario(file, settings);
    stepsim::PredictOptions options;
    if (!drawn) {
      options.noise_runs = 0;
    }
    const stepsim::Prediction prediction = stepsim::predict(
        scenario, stepsim::find_policy(scenario, ""), stepsim::scenario_profile(scenario), options);
    if (drawn) {
      for (const stepsim::MeanInterval& one : prediction.intervals) {
        fmt::print("{}{:.6f}\t{:.6f}", one.percent == 50 ? "" : "\t", one.low, one.high);
      }
      fmt::print("\n");
    } else {
      const stepsim::PredictionSummary& summary = prediction.summary;
      fmt::print("{:.6f}\t{:.6f}\n", summary.step_time_ms.mean, summary.communication_ms);
    }
  } catch (const stepsim::InputError& error) {
    fmt::print("refused\t{}\n", std::string_view(error.what()).substr(0, 200));
  }
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    fmt::print(stderr, "usage: quiet_steps SCENARIO < SETTINGS\n");
    return 2;
  }
  for (std::string line; std::getline(std::cin, line);) {
    answer(argv[1], line);
  }
  return 0;
}
