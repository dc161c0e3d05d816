#include "sim/study/diff/compared_steps.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "costmodel/base/input_error.h"
#include "costmodel/base/mapped.h"
#include "costmodel/base/quantile.h"
#include "costmodel/base/utc_time.h"
#include "costmodel/records/record_files.h"
#include "sim/predict/metrics.h"

namespace stepsim {
namespace {

Json parameters_of(const RunRecord& record) {
  const Json& training = *record.training;
  return training.contains("model") && training["model"].contains("parameters")
             ? training["model"]["parameters"]
             : Json();
}

bool is_same_run(const RunRecord& a, const RunRecord& b) {
  return a.started_at == b.started_at && a.steps.front().start_ms == b.steps.front().start_ms &&
         a.steps.front().step_ms == b.steps.front().step_ms && a.steps.size() == b.steps.size();
}

void require_comparable(const RecordFile& one, const RecordFile& other) {
  if (is_same_run(one.record, other.record)) {
    throw InputError(
        SourcePlace{other.file}, "is the same run as {}; a comparison takes two runs", one.file);
  }
  if (one.record.world_size != other.record.world_size) {
    throw InputError(SourcePlace{other.file},
                     "was recorded on {} ranks, {} on {}: a step of more ranks is another step; "
                     "`stepsim advise` makes a profile of one run, from which `stepsim sweep "
                     "--over cluster.ranks=…` predicts other numbers of ranks",
                     other.record.world_size,
                     one.file,
                     one.record.world_size);
  }
  const Json parameters = parameters_of(one.record);
  const Json others = parameters_of(other.record);
  if (!parameters.is_null() && !others.is_null() && parameters != others) {
    throw InputError(SourcePlace{other.file},
                     "is of another model than {} ({} parameter tensors against {}, or other "
                     "names, shapes or types): what moved cannot be told from what the models "
                     "differ by",
                     one.file,
                     others.size(),
                     parameters.size());
  }
}

/// The steady steps of a run that all ranks finished, in order of time.
std::vector<ComparedStep> steady_steps(const RunRecord& record,
                                       bool after,
                                       std::size_t run,
                                       int warmup) {
  std::map<std::pair<int, int>, ComparedStep> steps;
  for (const StepRecord& row : record.steps) {
    ComparedStep& step = steps[{row.repeat, row.step}];
    step.after = after;
    step.run = run;
    step.ranks.push_back(&row);
  }
  std::erase_if(steps, [&](const auto& step) {
    return static_cast<int>(step.second.ranks.size()) < record.world_size;
  });
  std::vector<ComparedStep> result = mapped(steps, [](const auto& step) { return step.second; });
  for (ComparedStep& step : result) {
    std::ranges::sort(step.ranks, {}, &StepRecord::rank);
    double start = step.ranks.front()->start_ms;
    double end = start;
    for (const StepRecord* row : step.ranks) {
      start = std::max(start, row->start_ms);
      end = std::max(end, row->start_ms + row->step_ms);
    }
    step.start_ms = start;
    step.step_ms = end - start;
  }
  std::ranges::stable_sort(result, {}, &ComparedStep::start_ms);
  std::set<std::tuple<int, std::int64_t, std::int64_t>> met;
  for (ComparedStep& step : result) {
    for (const StepRecord* row : step.ranks) {
      step.new_shapes += met.emplace(row->rank, row->samples, row->max_length).second ? 1 : 0;
    }
  }
  std::erase_if(result,
                [&](const ComparedStep& step) { return step.ranks.front()->step < warmup; });
  return result;
}

/// Whether all records have times of one clock, and the sides' steps lie beside each other.
bool ran_by_turns(std::span<const RecordFile> before, std::span<const RecordFile> after) {
  constexpr double kHalf = 0.5;
  constexpr double kClockMs = 60'000;
  const RunRecord& first = before.front().record;
  const auto span_of = [](std::span<const RecordFile> side) {
    std::pair<double, double> all = clock_span(side.front().record);
    for (const RecordFile& file : side) {
      const auto [from, to] = clock_span(file.record);
      all = {std::min(all.first, from), std::max(all.second, to)};
    }
    return all;
  };
  const auto one_clock = [&](const RecordFile& file) {
    const auto of_first = parse_utc(first.started_at);
    const auto own = parse_utc(file.record.started_at);
    if (!of_first || !own || file.record.host != first.host) {
      return false;
    }
    const double apart = static_cast<double>(*own - *of_first) * 1e3;
    return std::abs(clock_span(file.record).first - clock_span(first).first - apart) < kClockMs;
  };
  if (!std::ranges::all_of(before, one_clock) || !std::ranges::all_of(after, one_clock)) {
    return false;
  }
  const auto [from_a, to_a] = span_of(before);
  const auto [from_b, to_b] = span_of(after);
  const double common = std::min(to_a, to_b) - std::max(from_a, from_b);
  return common > kHalf * std::min(to_a - from_a, to_b - from_b);
}

std::vector<double> features_of_step(const ComparedStep& step) {
  double tokens = 0;
  double attention = 0;
  double samples = 0;
  double all = 0;
  for (const StepRecord* row : step.ranks) {
    const auto own = static_cast<double>(row->padded_tokens);
    tokens = std::max(tokens, own);
    attention = std::max(attention, own * static_cast<double>(row->max_length));
    samples = std::max(samples, static_cast<double>(row->samples));
    all += own;
  }
  return {tokens, attention, samples, all, static_cast<double>(step.new_shapes)};
}

std::vector<double> features_of_rank(const ComparedStep& step, int rank) {
  const StepRecord& row = *step.ranks[static_cast<std::size_t>(rank)];
  const auto tokens = static_cast<double>(row.padded_tokens);
  return {tokens,
          tokens * static_cast<double>(row.max_length),
          static_cast<double>(row.samples),
          static_cast<double>(step.new_shapes)};
}

using BatchKey = std::vector<std::array<std::int64_t, 4>>;

/// The batches of all ranks.
BatchKey key_of(const ComparedStep& step) {
  return mapped(step.ranks, [](const StepRecord* row) {
    return std::array{row->samples, row->max_length, row->padded_tokens, row->micro_batches};
  });
}

std::size_t count_of(const std::vector<ComparedStep>& steps, bool after) {
  return static_cast<std::size_t>(std::ranges::count(steps, after, &ComparedStep::after));
}

/// The steps whose batches both sides have.
std::vector<ComparedStep> with_same_batches(const std::vector<ComparedStep>& steps) {
  std::map<BatchKey, std::pair<bool, bool>> sides;
  for (const ComparedStep& step : steps) {
    auto& [before, after] = sides[key_of(step)];
    (step.after ? after : before) = true;
  }
  std::vector<ComparedStep> kept;
  for (const ComparedStep& step : steps) {
    const auto& [before, after] = sides.at(key_of(step));
    if (before && after) {
      kept.push_back(step);
    }
  }
  return kept;
}

/// The steps of sizes that both sides have; none where they are too few to compare.
std::vector<ComparedStep> of_common_sizes(const std::vector<ComparedStep>& steps) {
  constexpr double kSlack = 0.05;
  std::map<bool, std::pair<double, double>> ranges;
  for (const ComparedStep& step : steps) {
    const double tokens = step.most_tokens();
    const auto [range, is_new] = ranges.emplace(step.after, std::pair(tokens, tokens));
    if (!is_new) {
      auto& [low, high] = range->second;
      low = std::min(low, tokens);
      high = std::max(high, tokens);
    }
  }
  const auto [low_before, high_before] = ranges[false];
  const auto [low_after, high_after] = ranges[true];
  const double low = (1 - kSlack) * std::max(low_before, low_after);
  const double high = (1 + kSlack) * std::min(high_before, high_after);
  std::vector<ComparedStep> kept;
  for (const ComparedStep& step : steps) {
    if (low <= step.most_tokens() && step.most_tokens() <= high) {
      kept.push_back(step);
    }
  }
  // A tenth of the steps, at the edge of one side's sizes, says little of a training.
  constexpr double kLeastShare = 0.25;
  const auto suffice = [&](bool after) {
    const std::size_t count = count_of(kept, after);
    return count >= kFewestCompared &&
           static_cast<double>(count) >= kLeastShare * static_cast<double>(count_of(steps, after));
  };
  return suffice(false) && suffice(true) ? kept : std::vector<ComparedStep>();
}

/// Takes out the steps that were held up, and counts them.
void take_out_held_up(ComparedSteps& compared) {
  constexpr int kRounds = 5;
  constexpr double kUsual = 0.9;
  constexpr double kFar = 4;
  constexpr double kOfStep = 0.1;
  std::vector<ComparedStep>& steps = compared.all;
  compared.before.steps = static_cast<int>(count_of(steps, false));
  compared.after.steps = static_cast<int>(count_of(steps, true));
  const std::vector<double> all_ms = mapped(steps, &ComparedStep::step_ms);
  const double typical = quantile(all_ms, 0.5);
  std::vector<bool> held_up(steps.size());
  std::vector<double> longer(steps.size());
  for (int round = 0; round < kRounds; ++round) {
    std::vector<DiffMark> marks;
    std::vector<double> times;
    std::vector<std::size_t> places;
    for (std::size_t i = 0; i < steps.size(); ++i) {
      if (!held_up[i]) {
        marks.push_back({steps[i].after, 0, steps[i].start_ms, 0, features_of_step(steps[i])});
        times.push_back(steps[i].step_ms);
        places.push_back(i);
      }
    }
    const std::vector<double> left = StepComparison(std::move(marks), false).residuals(times);
    const double usual = quantile(mapped(left, [](double ms) { return std::abs(ms); }), kUsual);
    const double least = std::max(kFar * usual, kOfStep * typical);
    bool found = false;
    for (std::size_t i = 0; i < left.size(); ++i) {
      if (left[i] > least) {
        found = true;
        held_up[places[i]] = true;
        longer[places[i]] = left[i];
      }
    }
    if (!found) {
      break;
    }
  }
  std::vector<ComparedStep> kept;
  std::set<std::size_t> begun;  // Runs, by their first step that nothing held up.
  for (std::size_t i = 0; i < steps.size(); ++i) {
    if (!held_up[i]) {
      begun.insert(steps[i].run);
      kept.push_back(steps[i]);
      continue;
    }
    HeldUpSteps& side = steps[i].after ? compared.after : compared.before;
    if (begun.contains(steps[i].run)) {
      ++side.held_up;
      side.ms += longer[i];
    } else {
      --side.steps;
      ++compared.first_steps;
    }
  }
  steps = std::move(kept);
}

}  // namespace

double ComparedStep::most_tokens() const {
  double most = 0;
  for (const StepRecord* row : ranks) {
    most = std::max(most, static_cast<double>(row->padded_tokens));
  }
  return most;
}

std::vector<DiffMark> ComparedSteps::marks(std::optional<int> rank) const {
  std::map<BatchKey, std::size_t> groups;
  return mapped(steps, [&](const ComparedStep& step) {
    DiffMark mark{step.after, step.run, step.start_ms, 0, {}};
    if (same_batches) {
      mark.group = groups.emplace(key_of(step), groups.size()).first->second;
      mark.features = {static_cast<double>(step.new_shapes)};
    } else {
      mark.features = rank ? features_of_rank(step, *rank) : features_of_step(step);
    }
    return mark;
  });
}

ComparedSteps compared_steps(std::span<const RecordFile> before,
                             std::span<const RecordFile> after,
                             std::optional<int> warmup) {
  constexpr double kMostlySame = 0.6;
  ComparedSteps result;
  std::vector<const RecordFile*> files;
  for (const RecordFile& file : before) {
    files.push_back(&file);
  }
  for (const RecordFile& file : after) {
    files.push_back(&file);
  }
  for (std::size_t i = 0; i < files.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      require_comparable(*files[j], *files[i]);
    }
    const RunRecord& record = files[i]->record;
    const std::vector<ComparedStep> steps =
        steady_steps(record, i >= before.size(), i, warmup.value_or(record.warmup_steps));
    result.all.insert(result.all.end(), steps.begin(), steps.end());
  }
  result.runs = files.size();
  result.by_turns = ran_by_turns(before, after);
  for (const bool is_after : {false, true}) {
    if (const std::size_t steps = count_of(result.all, is_after); steps < kFewestCompared) {
      throw InputError(
          SourcePlace{(is_after ? after : before).front().file},
          "has {} steps behind its warm-up; a comparison takes {} at least, some dozens are better",
          steps,
          kFewestCompared);
    }
  }
  take_out_held_up(result);
  std::vector<ComparedStep> same = with_same_batches(result.all);
  const auto mostly = [&](bool is_after) {
    const std::size_t kept = count_of(same, is_after);
    return kept >= kFewestCompared &&
           static_cast<double>(kept) >=
               kMostlySame * static_cast<double>(count_of(result.all, is_after));
  };
  result.same_batches = mostly(false) && mostly(true);
  result.steps = result.same_batches ? std::move(same) : of_common_sizes(result.all);
  return result;
}

}  // namespace stepsim
