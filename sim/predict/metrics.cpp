#include "sim/predict/metrics.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

namespace stepsim {

double mean(std::span<const double> values) {
  if (values.empty()) {
    return 0;
  }
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double population_std(std::span<const double> values) {
  const double centre = mean(values);
  double squares = 0;
  for (const double value : values) {
    squares += (value - centre) * (value - centre);
  }
  return values.empty() ? 0 : std::sqrt(squares / static_cast<double>(values.size()));
}

void GlobalSteps::add(int repeat, int step, double start_ms, double step_ms) {
  const Ends row{start_ms, start_ms + step_ms};
  const auto [place, is_new] = ends_.emplace(std::pair(repeat, step), row);
  if (!is_new) {
    place->second.start = std::max(place->second.start, row.start);
    place->second.end = std::max(place->second.end, row.end);
  }
}

std::map<int, std::map<int, double>> GlobalSteps::by_repeat() const {
  std::map<int, std::map<int, double>> times;
  for (const auto& [key, ends] : ends_) {
    times[key.first][key.second] = ends.end - ends.start;
  }
  return times;
}

std::vector<double> GlobalSteps::all_ms() const {
  std::vector<double> all;
  for (const auto& [key, ends] : ends_) {
    all.push_back(ends.end - ends.start);
  }
  return all;
}

namespace {

/// The rows of one step, one a rank.
struct StepGroup {
  std::vector<double> step_ms;
  std::vector<double> useful;
  std::vector<double> padded;
  std::vector<double> memory;
  double samples = 0;
};

double sum(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}

double range(const std::vector<double>& values) {
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  return *high - *low;
}

}  // namespace

void summarise(std::span<const RankStepResult> rows,
               int ranks,
               int warmup_steps,
               PredictionSummary& summary) {
  std::map<int, StepGroup> steps;
  std::vector<double> rank_time(static_cast<std::size_t>(ranks), 0.0);
  double row_count = 0;
  for (const RankStepResult& row : rows) {
    summary.peak_memory_mib = std::max(summary.peak_memory_mib, row.peak_memory_mib);
    if (row.step < warmup_steps) {
      continue;
    }
    StepGroup& step = steps[row.step];
    step.step_ms.push_back(row.step_ms);
    step.useful.push_back(static_cast<double>(row.useful_tokens));
    step.padded.push_back(static_cast<double>(row.padded_tokens));
    step.memory.push_back(row.peak_memory_mib);
    step.samples += static_cast<double>(row.samples);
    rank_time[static_cast<std::size_t>(row.rank)] += row.step_ms;
    summary.data_ms += row.data_ms;
    summary.forward_ms += row.forward_ms;
    summary.backward_ms += row.backward_ms;
    summary.optimizer_ms += row.optimizer_ms;
    summary.exposed_communication_ms += row.exposed_ms;
    row_count += 1;
  }
  if (steps.empty()) {
    return;
  }
  const auto count = static_cast<double>(steps.size());
  double useful = 0;
  double padded = 0;
  double samples = 0;
  for (const auto& [number, step] : steps) {
    useful += sum(step.useful);
    padded += sum(step.padded);
    samples += step.samples;
    summary.rank_token_spread += range(step.useful) / count;
    summary.step_time_std_over_ranks += population_std(step.step_ms) / count;
    summary.padded_tokens_std_over_ranks += population_std(step.padded) / count;
    summary.peak_memory_std_over_ranks += population_std(step.memory) / count;
  }
  for (double* part : {&summary.data_ms,
                       &summary.forward_ms,
                       &summary.backward_ms,
                       &summary.optimizer_ms,
                       &summary.exposed_communication_ms}) {
    *part /= row_count;
  }
  summary.slowest_rank_step_ms = *std::max_element(rank_time.begin(), rank_time.end()) / count;
  summary.useful_tokens_per_step = useful / count;
  summary.padded_tokens_per_step = padded / count;
  summary.padding_ratio = padded > 0 ? 1.0 - useful / padded : 0.0;
  if (summary.slowest_rank_step_ms > 0) {
    const double per_second = 1e3 / summary.slowest_rank_step_ms;
    summary.useful_tokens_per_s = summary.useful_tokens_per_step * per_second;
    summary.padded_tokens_per_s = summary.padded_tokens_per_step * per_second;
    summary.samples_per_s = samples / count * per_second;
    const double alone =
        summary.data_ms + summary.forward_ms + summary.backward_ms + summary.optimizer_ms;
    summary.scaling_efficiency = alone / summary.slowest_rank_step_ms;
  }
}

}  // namespace stepsim
