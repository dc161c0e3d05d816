#include "calibrate/import/recorded/recorded_stalls.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>
#include <tuple>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "calibrate/fit/nnls.h"
#include "calibrate/fit/pass_fit.h"
#include "calibrate/samples/statistics.h"
#include "costmodel/base/mapped.h"
#include "costmodel/base/parse_units.h"
#include "costmodel/base/quantile.h"

namespace stepsim {
namespace {

/// One time of a rank's step.
struct Part {
  double StepRecord::*time;
  bool computes;
  bool processor;  ///< Is contained in another time.
  const char* words;
};

constexpr Part kParts[] = {
    {&StepRecord::data_ms, false, false, "before the forward"},
    {&StepRecord::forward_ms, true, false, "in the forward"},
    {&StepRecord::forward_cpu_ms, true, true, "in the forward"},
    {&StepRecord::backward_ms, true, false, "in the backward"},
    {&StepRecord::backward_cpu_ms, true, true, "in the backward"},
    {&StepRecord::wait_ms, true, false, "in the wait for gradients"},
    {&StepRecord::optimizer_ms, false, false, "in the optimizer"},
};

/// A step of all ranks: its run, repeat and number.
using StepKey = std::tuple<std::size_t, int, int>;

struct Row {
  StepRecord* record;
  StepKey step;
  bool meets = false;  ///< Its rank has not had that many samples of that length.
};

std::vector<Row> steady_rows(std::span<RecordedRun> runs) {
  std::vector<Row> rows;
  std::set<std::tuple<std::size_t, int, std::int64_t, std::int64_t>> met;
  for (std::size_t run = 0; run < runs.size(); ++run) {
    for (StepRecord& row : runs[run].record.steps) {
      const bool is_new = met.emplace(run, row.rank, row.samples, row.max_length).second;
      if (row.step >= runs[run].record.warmup_steps && row.samples > 0) {
        rows.push_back({&row, {run, row.repeat, row.step}, is_new});
      }
    }
  }
  return rows;
}

/// [step] from when the last rank starts it to when the last rank ends it, in milliseconds.
std::map<StepKey, double> durations(std::span<const Row> rows) {
  std::map<StepKey, std::pair<double, double>> ends;
  for (const Row& row : rows) {
    const double start = row.record->start_ms;
    const double end = start + row.record->step_ms;
    const auto [known, is_new] = ends.emplace(row.step, std::pair(start, end));
    if (!is_new) {
      known->second = {std::max(known->second.first, start), std::max(known->second.second, end)};
    }
  }
  std::map<StepKey, double> result;
  for (const auto& [step, times] : ends) {
    result[step] = times.second - times.first;
  }
  return result;
}

/// [step] how much longer it is than a step whose fullest rank has such a batch, in milliseconds.
std::map<StepKey, double> excess_of_steps(std::span<const Row> rows,
                                          const std::map<StepKey, double>& durations) {
  std::map<StepKey, std::array<double, 3>> fullest;
  for (const Row& row : rows) {
    std::array<double, 3>& features = fullest[row.step];
    features = std::max(features, size_features(*row.record));
  }
  DistinctRows sizes(3, fullest.size());
  for (const auto& [step, features] : fullest) {
    sizes.add(features);
  }
  const std::vector<double> left =
      robust_excess(sizes, mapped(durations, [](const auto& step) { return step.second; }));
  std::map<StepKey, double> result;
  for (std::size_t i = 0; const auto& [step, ms] : durations) {
    result[step] = left[i++];
  }
  return result;
}

/// Milliseconds by which each row's part was held up; 0 where it was not.
std::vector<double> held_up(std::span<const Row> rows,
                            const DistinctRows& sizes,
                            const Part& part,
                            double typical_step) {
  constexpr double kUsual = 0.9;
  constexpr double kFar = 4;
  constexpr double kOfStep = 0.1;
  std::vector<double> left =
      robust_excess(sizes, mapped(rows, [&](const Row& row) { return row.record->*part.time; }));
  const double usual = quantile(mapped(left, [](double ms) { return std::abs(ms); }), kUsual);
  const double least = std::max(kFar * usual, kOfStep * typical_step);
  for (double& ms : left) {
    ms = ms > least ? ms : 0;
  }
  return left;
}

/// Whether what is long in computing is mostly the first meeting of a shape.
bool explained_by_meetings(std::span<const Row> rows, const std::vector<double>& held) {
  constexpr int kFewest = 5;
  int meeting = 0;
  int long_ones = 0;
  int long_meeting = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    meeting += rows[i].meets ? 1 : 0;
    long_ones += held[i] > 0 ? 1 : 0;
    long_meeting += held[i] > 0 && rows[i].meets ? 1 : 0;
  }
  return long_ones >= kFewest && 2 * long_meeting > long_ones && 2L * meeting < std::ssize(rows);
}

/// A time of a row that was held up.
struct HeldUp {
  std::size_t row = 0;
  const Part* part = nullptr;
  double ms = 0;
};

std::vector<HeldUp> all_held_up(std::span<const Row> rows, double typical_step) {
  std::vector<HeldUp> all;
  DistinctRows sizes(3, rows.size());
  for (const Row& row : rows) {
    sizes.add(size_features(*row.record));
  }
  for (const Part& part : kParts) {
    const std::vector<double> held = held_up(rows, sizes, part, typical_step);
    const bool meetings = part.computes && explained_by_meetings(rows, held);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      if (held[i] > 0 && !(meetings && rows[i].meets)) {
        all.push_back({i, &part, held[i]});
      }
    }
  }
  return all;
}

/// What held up one step: the longest of its times that were, without waits where there are others.
using Stall = HeldUp;

std::map<StepKey, Stall> stalls_of(std::span<const Row> rows,
                                   std::span<const HeldUp> all,
                                   const std::map<StepKey, double>& durations) {
  std::map<StepKey, Stall> stalls;
  const auto waits = [](const HeldUp& held) { return held.part->time == &StepRecord::wait_ms; };
  for (const HeldUp& held : all) {
    Stall& stall = stalls[rows[held.row].step];
    // Ranks wait because another one is held up, which says what the step waits for.
    if (stall.part == nullptr || waits(stall) > waits(held) ||
        (waits(stall) == waits(held) && held.ms > stall.ms)) {
      stall = held;
    }
  }
  if (!stalls.empty()) {
    // A rank that waits for another one, or begins earlier than it, is held up without the step
    // being longer for it.
    const std::map<StepKey, double> longer = excess_of_steps(rows, durations);
    for (auto& [step, stall] : stalls) {
      stall.ms = std::clamp(longer.at(step), 0.0, stall.ms);
    }
  }
  return stalls;
}

/// The steps of each record and repeat before its first one that nothing held up.
std::set<StepKey> first_ones(const std::map<StepKey, double>& steps,
                             const std::map<StepKey, Stall>& stalls) {
  std::set<StepKey> first;
  std::set<std::size_t> begun;
  for (const auto& [step, ms] : steps) {
    const std::size_t run = std::get<0>(step);
    if (begun.count(run) == 0) {
      if (stalls.count(step) > 0) {
        first.insert(step);
      } else {
        begun.insert(run);
      }
    }
  }
  return first;
}

/// The steps that libraries held up, which load or compile what a kind of shape needs: by more than
/// two steps, in a pass. In all such steps, two at least, a rank that was held up so has to meet a
/// shape, by more than chance: the others wait for it, in a pass of theirs or behind it.
std::set<StepKey> long_meetings(std::span<const Row> rows,
                                std::span<const HeldUp> all,
                                const std::map<StepKey, Stall>& stalls,
                                const std::set<StepKey>& first,
                                double typical_step) {
  constexpr double kChance = 0.05;
  constexpr double kLong = 2;  // Of a step: shorter ones are other programs' or the allocator's.
  std::set<StepKey> steps;
  std::set<StepKey> with_new_shapes;
  for (const Row& row : rows) {
    steps.insert(row.step);
    if (row.meets) {
      with_new_shapes.insert(row.step);
    }
  }
  std::set<StepKey> met;
  for (const HeldUp& held : all) {
    if (held.part->computes && held.ms > kLong * typical_step && rows[held.row].meets) {
      met.insert(rows[held.row].step);
    }
  }
  const double share =
      static_cast<double>(with_new_shapes.size()) / static_cast<double>(steps.size());
  std::set<StepKey> found;
  double chance = 1;
  for (const auto& [step, stall] : stalls) {
    if (stall.part->computes && stall.ms > kLong * typical_step && first.count(step) == 0) {
      found.insert(step);
      chance *= share;
      if (met.count(step) == 0) {
        return {};
      }
    }
  }
  return found.size() > 1 && chance < kChance ? found : std::set<StepKey>{};
}

/// [run] The warm-up that leaves these steps out of all repeats.
std::map<std::size_t, int> warmups_of(const std::set<StepKey>& first) {
  std::map<std::size_t, int> warmups;
  for (const auto& [run, repeat, step] : first) {
    warmups[run] = std::max(warmups[run], step + 1);
  }
  return warmups;
}

std::size_t rows_left(std::span<const Row> rows, const std::map<std::size_t, int>& warmups) {
  return static_cast<std::size_t>(std::ranges::count_if(rows, [&](const Row& row) {
    const auto [run, repeat, step] = row.step;
    const auto warmup = warmups.find(run);
    return warmup == warmups.end() || step >= warmup->second;
  }));
}

std::string long_text(double ms) {
  return format_duration(ms * 1e-3);
}

double total_ms(const std::set<StepKey>& steps, const std::map<StepKey, Stall>& stalls) {
  return std::accumulate(steps.begin(), steps.end(), 0.0, [&](double sum, const StepKey& step) {
    return sum + stalls.at(step).ms;
  });
}

std::string meetings_text(const std::set<StepKey>& meetings,
                          const std::map<StepKey, Stall>& stalls) {
  return fmt::format(
      "{} first meetings of shapes were held up by {} (libraries load or compile what a kind of "
      "shape needs): left out, as few come after the first shapes of a process",
      meetings.size(),
      long_text(total_ms(meetings, stalls)));
}

std::string first_text(const std::set<StepKey>& first, const std::map<StepKey, Stall>& stalls) {
  return fmt::format(
      "the first {} took {} longer than others (compilation, first allocations): left out, as it "
      "does not come again; Recorder(…, warmup_steps=N) leaves it out of the record's own means",
      first.size() == 1 ? "step" : fmt::format("{} steps", first.size()),
      long_text(total_ms(first, stalls)));
}

std::string stall_text(const std::vector<Stall>& stalls, std::size_t steps, double per_step_ms) {
  std::vector<double> lengths;
  std::map<std::string, int> where;
  for (const Stall& stall : stalls) {
    lengths.push_back(stall.ms);
    ++where[stall.part->words];
  }
  const auto [shortest, longest] = std::ranges::minmax(lengths);
  const auto most =
      std::ranges::max_element(where, {}, [](const auto& place) { return place.second; });
  return fmt::format(
      "stalls: {} of {} steps {} held up by {} ({} {}): a checkpoint, an evaluation, a garbage "
      "collection or the like; predictions count them, {} a step on average at this rate, and "
      "their interval does not say how often long ones come",
      stalls.size(),
      steps,
      stalls.size() == 1 ? "was" : "were",
      shortest == longest ? long_text(longest)
                          : fmt::format("{} to {}", long_text(shortest), long_text(longest)),
      where.size() > 1 ? "mostly" : "all",
      most->first,
      long_text(per_step_ms));
}

/// At most so many of them, evenly spaced in order of size.
std::vector<double> thinned(std::vector<double> seconds) {
  constexpr std::size_t kMost = 64;
  std::ranges::sort(seconds);
  if (seconds.size() <= kMost) {
    return seconds;
  }
  std::vector<double> kept;
  for (std::size_t i = 0; i < kMost; ++i) {
    kept.push_back(sorted_quantile(seconds, (static_cast<double>(i) + 0.5) / kMost));
  }
  return kept;
}

}  // namespace

std::array<double, 3> size_features(const StepRecord& row) {
  const auto tokens = static_cast<double>(row.padded_tokens);
  return {1, tokens, tokens * static_cast<double>(row.max_length)};
}

SteadyRuns without_stalls(std::span<const RecordedRun> runs) {
  SteadyRuns result;
  result.runs.assign(runs.begin(), runs.end());
  const std::vector<Row> rows = steady_rows(result.runs);
  if (rows.size() < kFewestPassSamples) {
    return result;
  }
  const std::map<StepKey, double> steps = durations(rows);
  const std::vector<double> all_ms = mapped(steps, [](const auto& step) { return step.second; });
  const double typical_step = median(all_ms);
  const std::vector<HeldUp> held_up = all_held_up(rows, typical_step);
  const std::map<StepKey, Stall> stalls = stalls_of(rows, held_up, steps);
  if (stalls.empty()) {
    return result;
  }
  const std::set<StepKey> first = first_ones(steps, stalls);
  if (!first.empty()) {
    result.notes.push_back(first_text(first, stalls));
  }
  const std::set<StepKey> meetings = long_meetings(rows, held_up, stalls, first, typical_step);
  if (!meetings.empty()) {
    result.notes.push_back(meetings_text(meetings, stalls));
  }
  std::vector<Stall> counted;
  for (const auto& [step, stall] : stalls) {
    if (first.count(step) == 0 && meetings.count(step) == 0 && stall.ms > 0) {
      counted.push_back(stall);
    }
  }
  if (!counted.empty()) {
    const std::size_t steady = steps.size() - first.size();
    result.stalls.per_step = static_cast<double>(counted.size()) / static_cast<double>(steady);
    result.stalls.seconds = thinned(mapped(counted, [](const Stall& s) { return s.ms * 1e-3; }));
    const double all_ms_of_steps = std::accumulate(all_ms.begin(), all_ms.end(), 0.0);
    const double stalled_ms =
        std::accumulate(stalls.begin(), stalls.end(), 0.0, [](double sum, const auto& stall) {
          return sum + stall.second.ms;
        });
    result.stalls.steps = static_cast<int>(steady);
    result.stalls.step_seconds =
        (all_ms_of_steps - stalled_ms) * 1e-3 / static_cast<double>(all_ms.size());
    result.notes.push_back(stall_text(counted, steady, result.stalls.seconds_per_step() * 1e3));
  }
  for (const HeldUp& held : held_up) {
    StepRecord& row = *rows[held.row].record;
    row.*held.part->time -= held.ms;
    row.step_ms -= held.part->processor ? 0 : std::min(held.ms, row.step_ms);
  }
  // They stay in the record, since what they met is known to all later steps. Of a short record,
  // which could not be fitted without them, they count as the times that they are cut to.
  const std::map<std::size_t, int> warmups = warmups_of(first);
  if (rows_left(rows, warmups) >= kFewestPassSamples) {
    for (const auto& [run, steps_before] : warmups) {
      int& warmup = result.runs[run].record.warmup_steps;
      warmup = std::max(warmup, steps_before);
    }
  }
  return result;
}

}  // namespace stepsim
