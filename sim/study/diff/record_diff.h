#pragma once

#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "sim/study/diff/compared_steps.h"
#include "sim/study/diff/effect.h"
#include "sim/study/diff/speed_change.h"
#include "sim/study/diff/step_parts.h"

namespace stepsim {

struct RecordFile;

/// Probability of a false verdict. Whoever asks after every commit gets one in a thousand.
inline constexpr double kVerdictAlarm = 0.001;
/// Probability that any part of any rank is named by mistake, and that of an interval of sizes.
inline constexpr double kPartsAlarm = 0.01;

/// How a part of the step moved.
struct PartChange {
  StepPart part = StepPart::Other;
  int rank = -1;  ///< -1: the mean over all ranks.
  Effect effect;
  bool is_real = false;  ///< Beyond noise, with all parts and ranks that were looked at.
  /// What the training thread's processor time of it changed by; absent where it was not recorded.
  /// Other programs disturb it less than the clock's time.
  std::optional<Effect> processor;
  bool processor_is_real = false;

  /// What moved beyond noise: the clock's time, else the processor's, else null.
  [[nodiscard]] const Effect* moved() const {
    return is_real ? &effect : processor_is_real ? &*processor : nullptr;
  }
};

/// How steps of some sizes moved.
struct SizeChange {
  double from = 0;  ///< Padded tokens of the fullest rank.
  double to = 0;
  std::size_t steps = 0;
  Effect effect;
};

/// The reason that a step changed.
struct DiffCause {
  StepPart part = StepPart::Other;
  std::vector<int> ranks;  ///< Empty: all of them.
  double ms = 0;           ///< Of the rank that changed most; of all ranks together: their mean.
  double share = 0;        ///< The same in parts of the part's time before.
  std::pair<double, double> interval;  ///< Of `ms`, as wide as all parts together take.
  bool by_processor = false;    ///< Times are the processor's: the clock's are too noisy to tell.
  bool processor_idle = false;  ///< The clock's time grew, the processor's did not.
  /// Ranks whose waiting changed with it, and by how much the most.
  std::vector<int> waiting;
  double waiting_ms = 0;
};

/// What the batches themselves changed.
struct BatchesChange {
  double tokens_before = 0;  ///< Mean padded tokens of the fullest rank.
  double tokens_after = 0;
  double ms = 0;  ///< The mean step changed by so much more than equal batches did.
};

enum class DiffVerdict { NoDifference, Faster, Slower };

/// What `stepsim diff` found out. Times are milliseconds.
struct RecordDiff {
  DiffVerdict verdict = DiffVerdict::NoDifference;
  /// No step of one side has its like on the other: the verdict is on the speed, and nothing is
  /// said of the step and its parts.
  bool other_batches = false;
  Effect step;  ///< Of the whole step, at equal batches.
  std::optional<SpeedChange> speed;
  double mean_before = 0;  ///< Of all steps that nothing held up.
  double mean_after = 0;
  BatchesChange batches;
  double parts_alarm = kPartsAlarm;  ///< Of each time of `parts`, so that all have kPartsAlarm.
  std::vector<PartChange> parts;     ///< By part, the mean first, then each rank.
  std::vector<DiffCause> causes;     ///< The largest first.
  std::vector<SizeChange> sizes;     ///< Short, middle and long batches; empty where steps are few.
  /// Whether long batches changed by another time than short ones do, beyond noise; by another
  /// share.
  bool sizes_differ = false;
  bool shares_differ = false;
  HeldUpSteps held_up_before;
  HeldUpSteps held_up_after;
  double held_up_chance = 1;  ///< That counts so unequal come of equal odds.
  WaitReading reading = WaitReading::Together;
  int ranks = 1;
  bool same_batches = false;
  bool by_turns = false;
  std::size_t steps_before = 0;  ///< Compared.
  std::size_t steps_after = 0;
  std::vector<std::string> settings;  ///< What else differs: "torch 1.13.0 -> 2.15.0".
  std::vector<std::string> notes;
};

/// Compares the steps of two sides, each one run or several of the same training. Raises
/// InputError as compared_steps() does.
[[nodiscard]] RecordDiff diff_records(std::span<const RecordFile> before,
                                      std::span<const RecordFile> after,
                                      std::optional<int> warmup = {});

}  // namespace stepsim
