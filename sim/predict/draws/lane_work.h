#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
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

/// What slows a rank in one step, in each lane: RankFactors, and what noise adds in each draw.
struct LaneSlowness {
  std::vector<double> compute;            ///< [lane]
  std::vector<std::vector<double>> load;  ///< [micro-batch][lane]
  /// [micro-batch][kernel of the model · draws + draw] Factors; empty: there is no op jitter.
  std::vector<std::vector<double>> ops;
  LaneTimes stall;                 ///< [draw] On the rank's first kernel; empty: it never stalls.
  std::vector<LaneTimes> loading;  ///< [micro-batch][draw] On loading it; empty: never.
};

/// The kernels of a stretch where they take other times than such work elsewhere in the step.
struct LaneKernels {
  bool any = false;                 ///< Else they take the same times.
  LaneTimes times;                  ///< [kernel · lanes + lane]
  std::optional<std::size_t> held;  ///< The one whose launch new shapes hold up,
  LaneTimes held_launch;            ///< [lane] and how long it takes.
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
  std::vector<LaneKernels> own;       ///< [stretch] Those that have such times are not folded.
  const LaneTimes* launch = nullptr;  ///< [lane] What a launch takes on the host.

  [[nodiscard]] const LaneSpan& stretch(std::int32_t number) const {
    return folded[of[at(number)]];
  }
  [[nodiscard]] bool has_own(std::size_t stretch) const { return own[stretch].any; }
  /// [lane] Of the kernel of that number in a stretch.
  [[nodiscard]] const double* time_of(const LaneSchedule& schedule,
                                      std::size_t rank,
                                      std::size_t stretch,
                                      std::size_t kernel) const {
    if (has_own(stretch)) {
      return &own[stretch].times[kernel * launch->size()];
    }
    const auto micro_batch = at(schedule.schedule().stretches[stretch].micro_batch);
    return times[micro_batch][at(schedule.kernels(stretch, rank)[kernel])].data();
  }
  [[nodiscard]] const LaneTimes& launch_of(std::size_t stretch, std::size_t kernel) const {
    return own[stretch].held == kernel ? own[stretch].held_launch : *launch;
  }
};

/// Folds the work of one rank after another.
class LaneFolder {
 public:
  /// Both references must outlive the folder. `lanes`: of so many draws. `keeps_kernels`: beside
  /// the folded stretches.
  LaneFolder(const Run& run,
             const LaneFactors& factors,
             std::size_t lanes,
             std::size_t draws,
             bool keeps_kernels);

  /// Folds the work of a rank. `first`: the number of its first micro-batch of the step in the run.
  /// False: a time is too long for a lane.
  [[nodiscard]] bool fold(const LaneSchedule& schedule,
                          int rank,
                          std::size_t first,
                          const LaneSlowness& slowness,
                          LaneWork& folded);

 private:
  /// What holds up the first op of a pass: [lane], or empty.
  struct Stall {
    LaneTimes host;
    LaneTimes device;
    [[nodiscard]] bool any() const { return !device.empty(); }
  };

  /// Lists the kernels of a stretch, each with its own time.
  void list(const std::vector<std::int32_t>& kernels,
            std::size_t micro_batch,
            Stall& stall,
            LaneKernels& own);
  /// Sets the time of a kernel of the model to that of its work, held up and jittered.
  void draw(const LaneTimes& work, std::size_t micro_batch, double* time);
  [[nodiscard]] bool may_stall() const;
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
  std::size_t draws_;
  bool keeps_kernels_;
  bool one_clock_;
  std::vector<double> ones_;
  LaneTimes launch_;
  bool exact_ = true;
  // These belong to the rank at hand.
  const LaneSlowness* slowness_ = nullptr;
  std::size_t first_ = 0;
  std::vector<std::size_t> listed_;            ///< [micro-batch] How many of the model's kernels.
  std::vector<std::vector<LaneTimes>> times_;  ///< [micro-batch][work] Empty: not known yet.
  std::vector<std::size_t> alike_;  ///< [stretch] The folded one that those like it are; none: all.
  LaneSpan part_;                   ///< Scratch, as is factor_.
  std::vector<double> factor_;
};

}  // namespace stepsim
