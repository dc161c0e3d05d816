#include "sim/predict/metrics.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numeric>

#include "costmodel/base/mapped.h"

namespace stepsim {

double mean(std::span<const double> values) {
  if (values.empty()) {
    return 0;
  }
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double population_std(std::span<const double> values) {
  const double centre = mean(values);
  const double squares =
      sum_of(values, [&](const double value) { return (value - centre) * (value - centre); });
  return values.empty() ? 0 : std::sqrt(squares / static_cast<double>(values.size()));
}

double step_quantile(std::vector<double> step_ms, double q) {
  if (step_ms.empty()) {
    return 0;
  }
  std::ranges::sort(step_ms);
  const auto last = static_cast<double>(step_ms.size() - 1);
  const auto value_at = [&](double place) {
    return step_ms[static_cast<std::size_t>(std::clamp(place, 0.0, last))];
  };
  const double share = q * static_cast<double>(step_ms.size());
  const double whole = std::round(share);
  // 0.95 is no binary fraction: the share of 20 steps is 19 up to rounding.
  if (std::abs(share - whole) < 1e-9 * static_cast<double>(step_ms.size())) {
    return std::lerp(value_at(whole - 1), value_at(whole), 1 - q);
  }
  return value_at(std::floor(share));
}

Duration step_time(const StepTimeline& timeline) {
  SimTime start = timeline.ranks.front().start;
  SimTime end = timeline.ranks.front().end;
  for (const RankTimeline& rank : timeline.ranks) {
    start = std::max(start, rank.start);
    end = std::max(end, rank.end);
  }
  return end - start;
}

RankTimes rank_times(const RankTimeline& rank) {
  RankTimes times;
  times.data_ms = to_ms(rank.data_end - rank.start);
  times.forward_ms = to_ms(rank.forward_end - rank.data_end);
  times.backward_ms = to_ms(rank.backward_end - rank.forward_end);
  times.exposed_ms = to_ms(rank.exposed);
  times.waiting_ms = to_ms(rank.waiting);
  times.optimizer_ms = to_ms(rank.copy_out + rank.optimizer);
  times.step_ms = to_ms(rank.end - rank.start);
  return times;
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

std::map<int, double> step_times(std::span<const RankStepResult> rows, int first_step) {
  GlobalSteps steps;
  for (const RankStepResult& row : rows) {
    if (row.step >= first_step) {
      steps.add(0, row.step, row.start_ms, row.step_ms);
    }
  }
  return steps.by_repeat()[0];
}

namespace {

constexpr std::array kTimes = {&RankTimes::data_ms,
                               &RankTimes::forward_ms,
                               &RankTimes::backward_ms,
                               &RankTimes::exposed_ms,
                               &RankTimes::waiting_ms,
                               &RankTimes::optimizer_ms,
                               &RankTimes::step_ms};

/// The share of the ranks that take part in a collective: a rank's own collectives count.
double share_of_ranks(const StepTimeline& timeline, std::size_t collective) {
  const auto takes_part = [&](const RankTimeline& rank) {
    return collective >= rank.ready_at.size() || rank.ready_at[collective] != SimTime::max();
  };
  if (takes_part(timeline.ranks.front()) && takes_part(timeline.ranks.back())) {
    return 1;  // Groups have ranks that follow one another, or that are evenly apart.
  }
  const auto members = std::ranges::count_if(timeline.ranks, takes_part);
  return static_cast<double>(members) / static_cast<double>(timeline.ranks.size());
}

double range(const std::vector<double>& values) {
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  return *high - *low;
}

}  // namespace

void StepTimeTally::add(const StepTimeline& timeline) {
  sums_.ranks.resize(timeline.ranks.size());
  std::vector<double> rank_ms;
  SimTime backward_end{};
  Duration held = timeline.ranks.front().held;
  Duration exposed = timeline.ranks.front().exposed;
  for (std::size_t r = 0; r < sums_.ranks.size(); ++r) {
    const RankTimes times = rank_times(timeline.ranks[r]);
    for (const auto time : kTimes) {
      sums_.ranks[r].*time += times.*time;
    }
    rank_ms.push_back(times.step_ms);
    backward_end = std::max(backward_end, timeline.ranks[r].compute_end);
    held = std::min(held, timeline.ranks[r].held);
    exposed = std::min(exposed, timeline.ranks[r].exposed);
  }
  double transfers_ms = 0;
  double early_ms = 0;
  sums_.step_ms.push_back(to_ms(step_time(timeline)));
  sums_.std_over_ranks += population_std(rank_ms);
  for (std::size_t b = 0; b < timeline.reduce_end.size(); ++b) {
    const double share = share_of_ranks(timeline, b);
    transfers_ms += share * to_ms(timeline.reduce_end[b] - timeline.reduce_start[b]);
    const SimTime until = std::min(timeline.reduce_end[b], backward_end);
    early_ms += share * std::max(0.0, to_ms(until - timeline.reduce_start[b]));
  }
  sums_.communication_ms += transfers_ms;
  // What every rank is held up by hides behind nothing.
  const double hidden_ms =
      timeline.waits_within ? transfers_ms - to_ms(exposed) : early_ms - to_ms(held);
  sums_.hidden_ms += std::max(hidden_ms, 0.0);
}

void StepTimeTally::add(const StepSums& sums) {
  sums_.step_ms.insert(sums_.step_ms.end(), sums.step_ms.begin(), sums.step_ms.end());
  sums_.ranks.resize(sums.ranks.size());
  for (std::size_t r = 0; r < sums.ranks.size(); ++r) {
    for (const auto time : kTimes) {
      sums_.ranks[r].*time += sums.ranks[r].*time;
    }
  }
  sums_.std_over_ranks += sums.std_over_ranks;
  sums_.communication_ms += sums.communication_ms;
  sums_.hidden_ms += sums.hidden_ms;
}

void StepTimeTally::scale(double factor) {
  for (double& step : sums_.step_ms) {
    step *= factor;
  }
  for (RankTimes& rank : sums_.ranks) {
    for (const auto time : kTimes) {
      rank.*time *= factor;
    }
  }
  for (double* sum : {&sums_.std_over_ranks, &sums_.communication_ms, &sums_.hidden_ms}) {
    *sum *= factor;
  }
}

void StepTimeTally::set_means(std::vector<RankMeans>& ranks, PredictionSummary& summary) const {
  const auto steps = static_cast<double>(sums_.step_ms.size());
  RankTimes all;
  ranks.resize(sums_.ranks.size());
  for (std::size_t r = 0; r < sums_.ranks.size(); ++r) {
    for (const auto time : kTimes) {
      ranks[r].*time = sums_.ranks[r].*time / steps;
      all.*time += ranks[r].*time / static_cast<double>(sums_.ranks.size());
    }
  }
  summary.data_ms = all.data_ms;
  summary.forward_ms = all.forward_ms;
  summary.backward_ms = all.backward_ms;
  summary.exposed_communication_ms = all.exposed_ms;
  summary.waiting_for_ranks_ms = all.waiting_ms;
  summary.optimizer_ms = all.optimizer_ms;
  summary.step_time_std_over_ranks = sums_.std_over_ranks / steps;
  summary.communication_ms = sums_.communication_ms / steps;
  summary.overlap_fraction =
      sums_.communication_ms > 0 ? sums_.hidden_ms / sums_.communication_ms : 0;
}

void WorkTally::add(std::span<const RankStepResult> step, bool steady) {
  peak_memory_mib_ =
      std::max(peak_memory_mib_, max_of(step, &RankStepResult::peak_memory_mib, 0.0));
  if (!steady) {
    return;
  }
  std::vector<double> useful;
  std::vector<double> padded;
  std::vector<double> memory;
  sums_.resize(step.size());
  for (std::size_t rank = 0; rank < step.size(); ++rank) {
    const RankStepResult& row = step[rank];
    useful.push_back(static_cast<double>(row.useful_tokens));
    padded.push_back(static_cast<double>(row.padded_tokens));
    memory.push_back(row.peak_memory_mib);
    samples_ += static_cast<double>(row.samples);
    sums_[rank].useful_tokens += useful.back();
    sums_[rank].padded_tokens += padded.back();
  }
  token_spread_ += range(useful) / steady_steps_;
  padded_tokens_std_ += population_std(padded) / steady_steps_;
  memory_std_ += population_std(memory) / steady_steps_;
}

void WorkTally::set_means(std::vector<RankMeans>& ranks, PredictionSummary& summary) const {
  ranks.resize(sums_.size());
  for (std::size_t rank = 0; rank < sums_.size(); ++rank) {
    // The sums are whole numbers, so that the totals are exact before they are divided.
    summary.useful_tokens_per_step += sums_[rank].useful_tokens;
    summary.padded_tokens_per_step += sums_[rank].padded_tokens;
    ranks[rank].useful_tokens = sums_[rank].useful_tokens / steady_steps_;
    ranks[rank].padded_tokens = sums_[rank].padded_tokens / steady_steps_;
  }
  summary.samples_per_step = samples_ / steady_steps_;
  summary.useful_tokens_per_step /= steady_steps_;
  summary.padded_tokens_per_step /= steady_steps_;
  summary.rank_token_spread = token_spread_;
  summary.padded_tokens_std_over_ranks = padded_tokens_std_;
  summary.peak_memory_std_over_ranks = memory_std_;
  summary.peak_memory_mib = peak_memory_mib_;
}

}  // namespace stepsim
