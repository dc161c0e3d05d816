#include "sim/study/diff/record_diff.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <set>

#include <fmt/core.h>

#include "costmodel/base/input_error.h"
#include "costmodel/base/mapped.h"
#include "costmodel/base/quantile.h"
#include "costmodel/records/record_files.h"
#include "sim/predict/metrics.h"
#include "sim/study/diff/changed_settings.h"

namespace stepsim {
namespace {

/// What moved by a smaller part of the step is passed over, however sure it is.
constexpr double kWorthSaying = 2e-4;

double mean_step(const std::vector<ComparedStep>& steps, bool after) {
  std::vector<double> own;
  for (const ComparedStep& step : steps) {
    if (step.after == after) {
      own.push_back(step.step_ms);
    }
  }
  return mean(own);
}

double mean_tokens(const std::vector<ComparedStep>& steps, bool after) {
  std::vector<double> own;
  for (const ComparedStep& step : steps) {
    if (step.after == after) {
      own.push_back(step.most_tokens());
    }
  }
  return mean(own);
}

/// The processor time of a part of a rank's step; nothing where the part or the record has none.
std::optional<double> processor_ms(const StepRecord& row, StepPart part) {
  const double ms = part == StepPart::Forward    ? row.forward_cpu_ms
                    : part == StepPart::Backward ? row.backward_cpu_ms
                                                 : 0;
  return ms > 0 ? std::optional(ms) : std::nullopt;
}

/// [step] of a rank; empty where a step lacks it.
std::vector<double> processor_times(const std::vector<ComparedStep>& steps,
                                    StepPart part,
                                    int rank) {
  std::vector<double> times;
  for (const ComparedStep& step : steps) {
    const auto ms = processor_ms(*step.ranks[static_cast<std::size_t>(rank)], part);
    if (!ms) {
      return {};
    }
    times.push_back(*ms);
  }
  return times;
}

/// The alarm of each time that is looked at, so that all together have kPartsAlarm at most.
double parts_alarm(const std::vector<PartChange>& changes) {
  const auto of_processor = std::ranges::count_if(
      changes, [](const PartChange& change) { return change.processor.has_value(); });
  return kPartsAlarm /
         static_cast<double>(std::max(std::ptrdiff_t{1}, std::ssize(changes) + of_processor));
}

/// The times of all parts, ranks and steps, and how they are compared.
class PartChanges {
 public:
  PartChanges(const ComparedSteps& compared, WaitReading reading, std::vector<StepPart> parts)
      : compared_(compared),
        reading_(reading),
        parts_(std::move(parts)),
        whole_(compared.marks(), compared.by_turns) {
    for (const ComparedStep& step : compared_.steps) {
      times_.push_back(part_times(step.ranks, reading_, parts_));
    }
  }

  /// Returns the changes of each part: that of the mean over the ranks, then that of each rank.
  [[nodiscard]] std::vector<PartChange> all() const {
    const auto ranks = static_cast<int>(compared_.steps.front().ranks.size());
    std::vector<PartChange> changes;
    for (std::size_t part = 0; part < parts_.size(); ++part) {
      add(part, -1, whole_, changes);
    }
    for (int rank = 0; ranks > 1 && rank < ranks; ++rank) {
      const StepComparison own(compared_.marks(rank), compared_.by_turns);
      for (std::size_t part = 0; part < parts_.size(); ++part) {
        add(part, rank, row_of(parts_[part]).waits ? whole_ : own, changes);
      }
    }
    std::ranges::stable_sort(changes, {}, [&](const PartChange& change) {
      return std::ranges::find(parts_, change.part) - parts_.begin();
    });
    const double alarm = parts_alarm(changes);
    const double step_ms = mean(mapped(compared_.steps, &ComparedStep::step_ms));
    const auto is_real = [&](const Effect& effect) {
      return effect.is_real(alarm) && std::abs(effect.change) > kWorthSaying * step_ms;
    };
    for (PartChange& change : changes) {
      change.is_real = is_real(change.effect);
      change.processor_is_real = change.processor && is_real(*change.processor);
    }
    return changes;
  }

 private:
  void add(std::size_t part,
           int rank,
           const StepComparison& comparison,
           std::vector<PartChange>& changes) const {
    const std::vector<double> times = mapped(times_, [&](const auto& ranks) {
      return rank < 0 ? sum_of(ranks, [&](const auto& one) { return one[part]; }) /
                            static_cast<double>(ranks.size())
                      : ranks[static_cast<std::size_t>(rank)][part];
    });
    constexpr double kNoTime = 1e-3;  // Milliseconds: what only rounding fills is no part.
    if (std::ranges::all_of(times, [](double ms) { return std::abs(ms) < kNoTime; })) {
      return;
    }
    const auto effect = comparison.effect(times);
    if (!effect) {
      return;
    }
    PartChange change{parts_[part], rank, *effect, false, {}, false};
    if (rank >= 0 || compared_.steps.front().ranks.size() == 1) {
      const auto processor = processor_times(compared_.steps, parts_[part], std::max(0, rank));
      if (!processor.empty() &&
          !(parts_[part] == StepPart::Backward && reading_ == WaitReading::Processor)) {
        change.processor = comparison.effect(processor);
      }
    }
    changes.push_back(change);
  }

  const ComparedSteps& compared_;
  WaitReading reading_;
  std::vector<StepPart> parts_;
  StepComparison whole_;
  std::vector<std::vector<std::vector<double>>> times_;  ///< [step][rank][part]
};

bool is_processor_idle(const PartChange& change) {
  constexpr double kSmallPart = 0.3;
  return change.effect.change > 0 && change.processor &&
         change.processor->change < kSmallPart * change.effect.change;
}

/// Which ranks waited with a change of others, against its sign where it is one rank's.
void add_waiting(const std::vector<PartChange>& changes, DiffCause& cause) {
  for (const PartChange& change : changes) {
    if (!row_of(change.part).waits || change.rank < 0 || !change.is_real ||
        (change.effect.change > 0) != (cause.ms > 0) ||
        std::ranges::count(cause.ranks, change.rank) > 0) {
      continue;
    }
    if (std::ranges::count(cause.waiting, change.rank) == 0) {
      cause.waiting.push_back(change.rank);
    }
    if (std::abs(change.effect.change) > std::abs(cause.waiting_ms)) {
      cause.waiting_ms = change.effect.change;
    }
  }
}

/// The mean of a part over the ranks; null: there is none.
const PartChange* mean_of_ranks(StepPart part, const std::vector<PartChange>& changes) {
  const auto found = std::ranges::find_if(
      changes, [&](const PartChange& change) { return change.part == part && change.rank < 0; });
  return found == changes.end() ? nullptr : &*found;
}

void set_times(const Effect& effect, double alarm, DiffCause& cause) {
  cause.ms = effect.change;
  cause.share = effect.relative(effect.change);
  cause.interval = effect.interval(alarm);
}

/// What the ranks' processors took more in the mean; its error is that of one rank.
Effect mean_processor(StepPart part, const std::vector<PartChange>& changes, Effect effect) {
  double before = 0;
  double change = 0;
  double ranks = 0;
  for (const PartChange& one : changes) {
    if (one.part == part && one.rank >= 0 && one.processor) {
      before += one.processor->before;
      change += one.processor->change;
      ++ranks;
    }
  }
  effect.before = before / ranks;
  effect.change = change / ranks;
  return effect;
}

/// What moved in a part, over all ranks: the rank that moved most and those that moved at least
/// half as much in the same direction; where that is all of them, their mean. Nothing where no rank
/// and not their mean did.
std::optional<DiffCause> cause_in(StepPart part,
                                  const std::vector<PartChange>& changes,
                                  int ranks,
                                  double alarm) {
  constexpr double kAlike = 0.5;
  const PartChange* most = nullptr;
  for (const PartChange& change : changes) {
    if (change.part == part && change.moved() != nullptr && (change.rank >= 0 || ranks == 1) &&
        (most == nullptr || std::abs(change.moved()->change) > std::abs(most->moved()->change))) {
      most = &change;
    }
  }
  if (most == nullptr) {  // All of them, each by little.
    most = mean_of_ranks(part, changes);
    if (most == nullptr || !most->is_real) {
      return std::nullopt;
    }
  }
  DiffCause cause;
  cause.part = part;
  set_times(*most->moved(), alarm, cause);
  cause.by_processor = !most->is_real;
  cause.processor_idle = most->is_real && is_processor_idle(*most);
  if (most->rank >= 0) {
    for (const PartChange& change : changes) {
      if (change.part == part && change.rank >= 0 && change.moved() != nullptr &&
          change.moved()->change / cause.ms >= kAlike) {
        cause.ranks.push_back(change.rank);
      }
    }
    if (static_cast<int>(cause.ranks.size()) == ranks) {
      cause.ranks.clear();
      const PartChange* all = mean_of_ranks(part, changes);
      if (!cause.by_processor && all != nullptr) {
        set_times(all->effect, alarm, cause);
      } else if (cause.by_processor) {
        set_times(mean_processor(part, changes, *most->moved()), alarm, cause);
      }
    }
  }
  return cause;
}

/// What ranks do by themselves comes first; waiting is a cause only where none of that moved.
std::vector<DiffCause> causes_of(const std::vector<PartChange>& changes, int ranks, double alarm) {
  std::vector<DiffCause> causes;
  for (const bool waits : {false, true}) {
    if (!causes.empty()) {
      break;
    }
    std::set<StepPart> seen;
    for (const PartChange& change : changes) {
      if (row_of(change.part).waits != waits || !seen.insert(change.part).second) {
        continue;
      }
      if (auto cause = cause_in(change.part, changes, ranks, alarm)) {
        if (!waits) {
          add_waiting(changes, *cause);
        }
        causes.push_back(std::move(*cause));
      }
    }
  }
  std::ranges::stable_sort(
      causes, std::greater(), [](const DiffCause& cause) { return std::abs(cause.ms); });
  return causes;
}

/// Fisher's exact test: how likely counts at least as unequal are where held-up steps come equally
/// often on both sides.
double chance_of(const HeldUpSteps& before, const HeldUpSteps& after) {
  const int held = before.held_up + after.held_up;
  const int all = before.steps + after.steps;
  const auto log_choose = [](int n, int k) {
    return std::lgamma(n + 1.0) - std::lgamma(k + 1.0) - std::lgamma(n - k + 1.0);
  };
  const auto chance = [&](int of_before) {
    return std::exp(log_choose(before.steps, of_before) +
                    log_choose(after.steps, held - of_before) - log_choose(all, held));
  };
  constexpr double kRounding = 1 + 1e-9;
  const double own = chance(before.held_up);
  double sum = 0;
  for (int k = std::max(0, held - after.steps); k <= std::min(held, before.steps); ++k) {
    sum += chance(k) <= own * kRounding ? chance(k) : 0;
  }
  return std::min(1.0, sum);
}

/// Thirds of the steps by the tokens of the fullest rank.
void add_sizes(const ComparedSteps& compared,
               const StepComparison& whole,
               const std::vector<double>& times,
               RecordDiff& diff) {
  const std::vector<double> tokens = mapped(compared.steps, &ComparedStep::most_tokens);
  const double third = quantile(tokens, 1.0 / 3);
  const double two_thirds = quantile(tokens, 2.0 / 3);
  for (int size = 0; size < 3; ++size) {
    std::vector<bool> kept;
    double low = 0;
    double high = 0;
    for (const double own : tokens) {
      const bool is_in = size == 0   ? own <= third
                         : size == 1 ? own > third && own <= two_thirds
                                     : own > two_thirds;
      if (is_in) {
        low = low == 0 ? own : std::min(low, own);
        high = std::max(high, own);
      }
      kept.push_back(is_in);
    }
    const auto part = whole.part(kept);
    const auto effect = part ? part->effect(part->part_of(times)) : std::nullopt;
    if (effect) {
      diff.sizes.push_back(
          {low, high, static_cast<std::size_t>(std::ranges::count(kept, true)), *effect});
    }
  }
  if (diff.sizes.size() < 2) {
    diff.sizes.clear();
    return;
  }
  const Effect& small = diff.sizes.front().effect;
  const Effect& large = diff.sizes.back().effect;
  const auto differ = [&](double of_small, double of_large) {
    const Effect gap{1,
                     of_large * large.change - of_small * small.change,
                     std::hypot(of_large * large.error, of_small * small.error),
                     std::min(small.freedom, large.freedom)};
    return gap.is_real(kPartsAlarm);
  };
  diff.sizes_differ = differ(1, 1);
  diff.shares_differ = differ(small.relative(1), large.relative(1));
}

DiffVerdict verdict_of(const Effect& step) {
  if (!step.is_real(kVerdictAlarm)) {
    return DiffVerdict::NoDifference;
  }
  return step.change > 0 ? DiffVerdict::Slower : DiffVerdict::Faster;
}

/// The verdict where the two sides have other batches. Raises InputError where the records say no
/// useful tokens.
DiffVerdict verdict_of_speed(const std::optional<SpeedChange>& speed) {
  if (!speed) {
    throw InputError(
        "BEFORE and AFTER have no batches in common, and the records say no useful tokens, by "
        "which "
        "unequal batches are compared: record both with recorder.step(lengths=…), or with batches "
        "of the same sizes");
  }
  if (!speed->is_real(kVerdictAlarm)) {
    return DiffVerdict::NoDifference;
  }
  return speed->gain() > 0 ? DiffVerdict::Faster : DiffVerdict::Slower;
}

std::vector<const RunRecord*> records_of(std::span<const RecordFile> before,
                                         std::span<const RecordFile> after) {
  std::vector<const RunRecord*> records;
  for (const std::span<const RecordFile> side : {before, after}) {
    for (const RecordFile& file : side) {
      records.push_back(&file.record);
    }
  }
  return records;
}

bool has_buckets(const RunRecord& record) {
  return std::ranges::any_of(record.steps,
                             [](const StepRecord& row) { return !row.buckets.empty(); });
}

void add_notes(std::span<const RecordFile> before,
               std::span<const RecordFile> after,
               const ComparedSteps& compared,
               RecordDiff& diff) {
  if (compared.first_steps > 0) {
    diff.notes.push_back(fmt::format(
        "{} at the beginning of the runs took much longer than others (compilation, first "
        "allocations) and {} left out",
        compared.first_steps == 1 ? "one step" : fmt::format("{} steps", compared.first_steps),
        compared.first_steps == 1 ? "is" : "are"));
  }
  if (!compared.same_batches && !diff.other_batches) {
    diff.notes.push_back(
        "few steps of both have the same batches: times are compared after a fit by tokens, "
        "tokens x length, samples and new shapes, which is less sure than the same batches in "
        "both (the same seed, or a plan)");
  }
  if (!compared.by_turns && compared.runs == 2) {
    diff.notes.push_back(
        "one run each, one behind the other: what the machine drifts between runs is inferred "
        "from what it drifted within them; several runs of each by turns (--before … --after …) "
        "measure it");
  }
  if (has_buckets(before.front().record) != has_buckets(after.front().record)) {
    diff.notes.push_back(
        "only one of them was recorded with bucket times, which cost time: record both with "
        "recorder.watch(ddp), or none");
  }
  if (diff.other_batches) {
    return;
  }
  if (diff.reading == WaitReading::Processor) {
    diff.notes.push_back(
        "without bucket times the backward is the thread's processor time, and what it slept or "
        "was kept from running counts as waiting: recorder.watch(ddp), or Recorder(…, model=ddp), "
        "tells them apart");
  } else if (diff.reading == WaitReading::Together) {
    diff.notes.push_back(
        "the backward holds the wait for other ranks: record both with Recorder(…, model=ddp) to "
        "know which rank was late");
  }
}

}  // namespace

RecordDiff diff_records(std::span<const RecordFile> before,
                        std::span<const RecordFile> after,
                        std::optional<int> warmup) {
  const ComparedSteps compared = compared_steps(before, after, warmup);
  const std::vector<const RunRecord*> records = records_of(before, after);
  RecordDiff diff;
  diff.ranks = records.front()->world_size;
  diff.same_batches = compared.same_batches;
  diff.by_turns = compared.by_turns;
  diff.reading = wait_reading(records);
  diff.steps_after =
      static_cast<std::size_t>(std::ranges::count_if(compared.steps, &ComparedStep::after));
  diff.steps_before = compared.steps.size() - diff.steps_after;
  diff.mean_before = mean_step(compared.all, false);
  diff.mean_after = mean_step(compared.all, true);
  diff.speed = speed_change(compared);
  diff.held_up_before = compared.before;
  diff.held_up_after = compared.after;
  diff.held_up_chance = chance_of(compared.before, compared.after);
  diff.settings = changed_settings(before.front().record, after.front().record);
  diff.batches.tokens_before = mean_tokens(compared.all, false);
  diff.batches.tokens_after = mean_tokens(compared.all, true);
  if (compared.steps.empty()) {
    diff.other_batches = true;
    diff.verdict = verdict_of_speed(diff.speed);
    add_notes(before, after, compared, diff);
    return diff;
  }
  const std::vector<double> times = mapped(compared.steps, &ComparedStep::step_ms);
  const StepComparison whole(compared.marks(), compared.by_turns);
  const auto step = whole.effect(times);
  if (!step) {
    throw InputError(
        "the batches of BEFORE and AFTER differ in all steps alike, so that nothing tells the "
        "batches from the machine: record both with batches of the same sizes");
  }
  diff.step = *step;
  diff.verdict = verdict_of(*step);
  diff.batches.ms = diff.mean_after - diff.mean_before - step->change;
  const bool on_gpu = std::ranges::all_of(records, [](const RunRecord* record) {
    return std::ranges::any_of(record->steps,
                               [](const StepRecord& row) { return row.forward_host_ms > 0; });
  });
  diff.parts = PartChanges(compared, diff.reading, parts_of(diff.reading, on_gpu)).all();
  diff.parts_alarm = parts_alarm(diff.parts);
  diff.causes = causes_of(diff.parts, diff.ranks, diff.parts_alarm);
  add_sizes(compared, whole, times, diff);
  add_notes(before, after, compared, diff);
  return diff;
}

}  // namespace stepsim
