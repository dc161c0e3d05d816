#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "sim/predict/draws/lane_schedule.h"
#include "sim/predict/run/run.h"

namespace stepsim {

/// A span of work in each lane: [lane] as in sim/parallel/step.h.
struct LaneSpan {
  LaneTimes host;
  LaneTimes device;
  LaneTimes critical;

  /// Makes it no work at all.
  void reset(std::size_t lanes);
  /// Adds a kernel behind it: [lane] its launch and its time.
  void add(const double* launch, const double* time);
  /// Adds a span behind it so many times. `scratch` becomes anything.
  void add(LaneSpan& scratch, int times);
};

/// What the costs of a run are multiplied with, in each lane.
struct LaneFactors {
  std::vector<std::vector<double>> group;  ///< [group][lane] 1 where a lane has none.
  std::vector<double> host;                ///< [lane]
  std::vector<double> stall;               ///< [lane] On what new shapes cost, the common factor
                                           ///< included.
};

/// What slows a rank in one step, in each lane: RankFactors.
struct LaneSlowness {
  std::vector<double> compute;            ///< [lane]
  std::vector<std::vector<double>> load;  ///< [micro-batch][lane]
};

/// A rank's own work in one step, in each lane: LockstepWork, to the nanosecond.
struct LaneWork {
  std::vector<LaneTimes> ready;  ///< [micro-batch] Where a loader has workers.
  std::vector<LaneTimes> data;   ///< [micro-batch]
  std::vector<LaneSpan> copies;  ///< [micro-batch]
  std::vector<LaneSpan> folded;  ///< [stretch] Those that no stretch before is like.
  std::vector<std::size_t> of;   ///< [stretch] Which of the folded ones it is.
  // Its kernels one by one, where the folder keeps them.
  std::size_t first_batch = 0;                ///< The number of the first micro-batch in the run.
  std::vector<std::vector<LaneTimes>> times;  ///< [micro-batch][work] Empty: none of the rank's.
  std::vector<bool> held;  ///< [stretch] Whether new shapes hold up one of its kernels.

  [[nodiscard]] const LaneSpan& stretch(std::int32_t number) const {
    return folded[of[at(number)]];
  }
};

/// Folds the work of one rank after another.
class LaneFolder {
 public:
  /// Both references must outlive the folder. `keeps_kernels`: beside the folded stretches.
  LaneFolder(const Run& run, const LaneFactors& factors, std::size_t lanes, bool keeps_kernels);

  /// Folds the work of a rank. `first`: the number of its first micro-batch of the step in the run.
  /// False: a time is too long for a lane.
  [[nodiscard]] bool fold(const LockstepSchedule& schedule,
                          int rank,
                          std::size_t first,
                          const LaneSlowness& slowness,
                          LaneWork& folded);
  /// [lane] What a launch takes on the host.
  [[nodiscard]] const LaneTimes& launch() const { return launch_; }

 private:
  /// What holds up the first op of a pass: [lane], or empty.
  struct Stall {
    LaneTimes host;
    LaneTimes device;
    [[nodiscard]] bool any() const { return !device.empty(); }
  };

  void fold_stretch(const LockstepStretch& stretch, int rank, Stall& stall, LaneSpan& span);
  /// Adds the work to `span`, once.
  void add(const std::vector<std::int32_t>& work,
           std::size_t micro_batch,
           Stall& stall,
           LaneSpan& span);
  /// [lane] How long a piece of work takes.
  [[nodiscard]] const LaneTimes& time_of(std::int32_t work, std::size_t micro_batch);
  [[nodiscard]] Stall stall_of(std::size_t batch, bool forward);

  const Run& run_;
  const LaneFactors& factors_;
  std::size_t lanes_;
  bool keeps_kernels_;
  bool one_clock_;
  std::vector<double> ones_;
  LaneTimes launch_;
  bool exact_ = true;
  // These belong to the rank at hand.
  const LaneSlowness* slowness_ = nullptr;
  std::size_t first_ = 0;
  std::vector<std::vector<LaneTimes>> times_;  ///< [micro-batch][work] Empty: not known yet.
  std::vector<std::size_t> alike_;  ///< [stretch] The folded one that those like it are; none: all.
  LaneSpan part_;                   ///< Scratch, as is factor_.
  std::vector<double> factor_;
};

}  // namespace stepsim
