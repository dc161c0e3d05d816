#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <unordered_map>
#include <vector>

#include "costmodel/network/interference.h"
#include "sim/engine/engine.h"
#include "sim/predict/draws/lane_rank.h"
#include "sim/predict/draws/lane_schedule.h"
#include "sim/predict/run/run.h"

namespace stepsim {

/// What compute and collectives take from each other in each lane, where all of both is on the
/// compute stream: the rules of OrderedExecution, to the nanosecond.
///
/// When the ranks work, the ends of all collectives that they have launched are known, so a rank
/// knows what slows it and goes on kernel by kernel in all lanes at once. Lanes in which a
/// collective comes or goes during a kernel are followed one by one, and so is how long a transfer
/// takes that compute slows.
class LaneInterference {
 public:
  /// Whether the steps of a schedule are such steps.
  [[nodiscard]] static bool knows(const LockstepSchedule& schedule, const EngineRules& rules);

  /// `ranks`: their clocks and work, which the player moves. Both references must outlive this.
  LaneInterference(const Run& run,
                   std::vector<Interference> lanes,
                   const std::vector<LaneRank>& ranks);

  void begin_step(const LaneSchedule& schedule);

  /// Whether no collective slows a span of work of a rank, which it does next.
  [[nodiscard]] bool is_alone(std::size_t rank, const LaneSpan& span);
  /// Does the work of a move kernel by kernel, on the clocks of its rank. `queue`: of its launches,
  /// where it is bound.
  void work(
      std::size_t move, std::size_t rank, LaneQueue* queue, LaneTimes& host, LaneTimes& stream);
  /// A rank launches its part of the collective that is next: [lane] when it is there.
  void launch(std::size_t rank, const LaneTimes& arrival);
  /// All ranks have launched it. `start`: [lane] of the transfer; `transfer`: how long it takes
  /// alone; `move`: what comes behind the launch. Sets `end`.
  void time(std::size_t move, const LaneTimes& start, const LaneTimes& transfer, LaneTimes& end);

 private:
  /// What slows a rank in one lane.
  struct Regime {
    std::size_t number = 0;    ///< Of the collectives: the resident one, or the next to come.
    bool is_resident = false;  ///< Whether it is on the device.
    double until = 0;          ///< When this ends, as far as is known.
  };
  /// What slows a rank in all lanes.
  struct Regimes {
    LaneTimes resident;  ///< [lane] 1: yes.
    LaneTimes until;
    std::vector<std::size_t> number;
    std::size_t residents = 0;        ///< In how many lanes one is.
    std::vector<LaneTimes> arrivals;  ///< [collective][lane]

    [[nodiscard]] Regime of(std::size_t lane) const {
      return {number[lane], resident[lane] != 0, until[lane]};
    }
    void set(std::size_t lane, const Regime& regime) {
      number[lane] = regime.number;
      residents += regime.is_resident ? 1 : 0;
      residents -= resident[lane] != 0 ? 1 : 0;
      resident[lane] = regime.is_resident ? 1 : 0;
      until[lane] = regime.until;
    }
  };
  /// A kernel of a rank.
  struct LaneKernel {
    Bound bound = Bound::Compute;
    std::int32_t blocks = 0;
  };
  /// A rank's own work beside a collective.
  struct SlowedWork {
    std::vector<std::vector<LaneTimes>> times;  ///< [micro-batch][work] Empty: not known yet,
    std::vector<LaneSpan> stretches;            ///< [folded stretch] as these.
  };
  /// How far compute is known to go on beside a transfer.
  struct Reach {
    double end = 0;      ///< When the transfer would end.
    double reached = 0;  ///< Some rank computes at all times until then.
    double begins = std::numeric_limits<double>::infinity();  ///< The next kernel after that.

    /// Whether a kernel begins by then.
    [[nodiscard]] bool holds(double start) {
      begins = start > reached ? std::min(begins, start) : begins;
      return start <= reached;
    }
    /// Goes on to the end of a kernel. False: the transfer is over by then.
    [[nodiscard]] bool goes_on(double ends) {
      reached = std::max(reached, ends);
      return reached < end;
    }
  };
  /// Where a rank is that is followed ahead of its clocks in one lane.
  struct Cursor {
    std::size_t move = 0;
    std::size_t kernel = 0;  ///< Of the stretch that is the move.
    double host = 0;
    double free = 0;  ///< The compute stream.
    Regime regime;
  };

  [[nodiscard]] LaneKernel kernel_of(std::size_t rank,
                                     std::int32_t micro_batch,
                                     std::int32_t work) const;
  void work_on_stretch(
      std::size_t number, std::size_t rank, LaneQueue* queue, LaneTimes& host, LaneTimes& stream);
  /// Whether it did it at one go: its kernels are alike elsewhere, and beside collectives in all
  /// lanes.
  [[nodiscard]] bool work_beside(std::size_t number,
                                 std::size_t rank,
                                 LaneTimes& host,
                                 LaneTimes& stream);
  /// `ready`: [lane] when its launch has taken effect.
  void work_on(std::size_t rank,
               const LaneKernel& kernel,
               const double* ready,
               const double* time,
               const double* slowed,
               LaneTimes& stream);
  /// Which slowed work all lanes have that are beside a collective; none: they differ.
  [[nodiscard]] std::optional<std::size_t> common_kind(const Regimes& regimes) const;
  /// [lane] How long a kernel takes beside the collectives of a kind.
  [[nodiscard]] const LaneTimes& slowed_time(std::size_t rank,
                                             std::size_t kind,
                                             std::int32_t micro_batch,
                                             std::int32_t work);
  [[nodiscard]] const LaneSpan& slowed_stretch(std::size_t rank,
                                               std::size_t kind,
                                               std::size_t number);
  /// [lane] The time of any kernel beside the collective that each lane is at.
  [[nodiscard]] const double* slowed_by(const Regimes& regimes,
                                        const LaneKernel& kernel,
                                        const double* time);
  /// [lane] And that of a kernel of a stretch.
  [[nodiscard]] const double* slowed_kernel(std::size_t rank,
                                            std::size_t stretch,
                                            std::size_t kernel,
                                            const double* time);
  [[nodiscard]] const LaneTimes& slowdowns(const LaneKernel& kernel, std::size_t kind);
  [[nodiscard]] double slowdown(std::size_t lane, const LaneKernel& kernel, const Regime& regime);
  /// When a kernel ends in one lane; `regime` is the one at its end then.
  [[nodiscard]] double end_of(std::size_t rank,
                              std::size_t lane,
                              const LaneKernel& kernel,
                              double start,
                              double time,
                              Regime& regime);
  /// Until when a regime lasts.
  [[nodiscard]] double until(std::size_t rank, std::size_t lane, const Regime& regime) const;
  void change(std::size_t rank, std::size_t lane, Regime& regime) const;
  /// Goes on to the regime of a time, before which no more work begins.
  void settle(std::size_t rank, std::size_t lane, double time, Regime& regime) const;
  /// Sets the ends of transfers that compute slows.
  void end_beside_compute(std::size_t move,
                          const LaneTimes& start,
                          const LaneTimes& transfer,
                          LaneTimes& end);
  [[nodiscard]] Cursor& cursor(std::size_t move, std::size_t rank, std::size_t lane);
  /// Follows a rank from kernel to kernel as far as they move the reach. Those that end with the
  /// transfer or later are left to the rank.
  void follow(Cursor& cursor, std::size_t rank, std::size_t lane, Reach& reach);
  // Each of these follows it through a move. False: it goes no further.
  [[nodiscard]] bool go_on(Cursor& cursor, std::size_t lane) const;
  [[nodiscard]] bool follow_kernel(Cursor& cursor,
                                   std::size_t rank,
                                   std::size_t lane,
                                   Reach& reach);
  [[nodiscard]] bool follow_stretch(Cursor& cursor,
                                    std::size_t rank,
                                    std::size_t lane,
                                    Reach& reach);

  const Run& run_;
  std::vector<Interference> lanes_;
  const std::vector<LaneRank>& ranks_;
  bool waves_ = false;  ///< Whether slowdowns depend on blocks and channels in some lane.
  std::array<LaneTimes, 3> by_bound_;  ///< [Bound][lane] Slowdowns, where waves do not matter;
  std::unordered_map<std::uint64_t, LaneTimes> by_waves_;  ///< else by channels and blocks.
  // These belong to the step at hand.
  const LaneSchedule* schedule_ = nullptr;
  std::vector<std::int32_t> channels_;  ///< [kind] That the collectives of a kind hold.
  std::vector<std::size_t> kinds_;      ///< [collective] Those alike slow a kernel alike.
  std::vector<Regimes> regimes_;        ///< [rank]
  std::vector<Cursor> cursors_;         ///< [rank][lane]
  std::size_t launched_ = 0;            ///< How many collectives all ranks have launched,
  std::size_t timed_ = 0;               ///< and how many of them have an end.
  std::vector<LaneTimes> starts_;       ///< [collective][lane]
  std::vector<LaneTimes> ends_;
  std::vector<std::vector<SlowedWork>> slowed_;  ///< [rank][kind]
  LaneTimes ready_;                              ///< Scratch, as are these.
  LaneTimes end_;
  LaneTimes slow_;
  LaneSpan part_;
};

}  // namespace stepsim
