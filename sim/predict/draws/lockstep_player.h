#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "sim/predict/draws/draw_player.h"
#include "sim/predict/draws/lane_interference.h"
#include "sim/predict/draws/lane_rank.h"
#include "sim/predict/draws/lane_schedule.h"
#include "sim/predict/draws/lane_work.h"
#include "sim/predict/draws/noise.h"
#include "sim/predict/loader.h"
#include "sim/predict/metrics.h"

namespace stepsim {

/// Plays all steps of a run in lockstep under several draws at once: a lane is one run of one draw.
/// Each lane is, to the nanosecond, what play_lockstep() and so the engine would play.
class LockstepPlayer {
 public:
  /// Draws `number` and those that follow it, of which `draws` are the costs. Both references must
  /// outlive the player.
  LockstepPlayer(Run& run, int number, std::span<const Draw> draws);

  /// Plays the steps, without touching the run: players of other draws may play at the same time.
  /// False: a lane is not for lockstep, since transfers would share links or a clock would pass
  /// kExactTime.
  [[nodiscard]] bool play(const std::function<void(int step)>& on_step);

  /// Hands out the sums over the steady steps of the first run of each draw, over all draws.
  [[nodiscard]] StepSums take_sums() { return std::move(sums_); }
  /// Returns the longest steady step in the first run of each draw: [draw].
  [[nodiscard]] const std::vector<double>& longest_ms() const { return longest_ms_; }
  /// Returns the mean steady step of one run of each draw: [draw].
  [[nodiscard]] std::vector<double> mean_ms(std::size_t run) const;

 private:
  /// A collective of the program in a step.
  struct Called {
    LaneTimes last_arrival;  ///< [lane]
    LaneTimes start;
    LaneTimes end;
    int ranks = 0;  ///< How many take part.
    bool is_timed = false;
  };

  void find_schedules(Run& run);
  void begin();
  void set_times(Run& run, StepWork step, LaneSchedule& schedule);
  /// Draws the noise of a step, in the order in which StepSimulator does.
  void draw_noise(int step, const LaneSchedule& schedule);
  void draw_rank(std::size_t draw, std::size_t rank, const LaneSchedule& schedule);
  void set_slowness(std::size_t draw, std::size_t rank, double drawn);
  void share_cores(int step);
  /// Folds the work of a rank in a step. False: a time is too long for a lane.
  [[nodiscard]] bool fold(int step, std::size_t rank, const LaneSchedule& schedule);
  /// Adds what the loader takes for a rank's batches, or when its workers have them.
  void load(int step, std::size_t rank);
  [[nodiscard]] bool play_step(int step, const LaneSchedule& schedule);
  void begin_step(const LaneSchedule& schedule);
  void make(const LaneSchedule& schedule, std::size_t number, std::size_t rank);
  void work(const LaneSchedule& schedule, std::size_t number, std::size_t of_rank);
  [[nodiscard]] bool is_alone(const LockstepMove& move, std::size_t rank);
  /// Launches the kernels of a stretch one by one.
  void launch(const LaneSchedule& schedule, std::size_t number, std::size_t of_rank);
  /// All ranks have called by this move: false where two transfers would share links.
  [[nodiscard]] bool transfer(const LaneSchedule& schedule, std::size_t move);
  void draw_transfers(const LaneSchedule& schedule);
  /// Whether all clocks are exact.
  [[nodiscard]] bool exact() const;
  void end_step(const LaneSchedule& schedule);
  void add_step(const StepProgram& program, std::size_t draw);

  const Run& run_;
  std::size_t ranks_;
  std::size_t draws_;
  std::size_t lanes_;
  std::span<const Draw> drawn_;
  std::vector<std::size_t> of_step_;  ///< [step] its schedule.
  std::vector<std::unique_ptr<LaneSchedule>> schedules_;
  LaneFactors factors_;
  std::unique_ptr<LaneFolder> folder_;
  std::vector<double> common_;  ///< [lane]
  EngineRules rules_;
  std::vector<Loader> loaders_;               ///< [lane]
  std::vector<NoiseDraws> noise_;             ///< [draw]
  std::vector<LaneSlowness> slowness_;        ///< [rank]
  std::vector<std::vector<double>> lasting_;  ///< [draw][rank] The ranks' lasting speeds.
  std::vector<LaneRank> state_;               ///< [rank]
  std::vector<Interference> slowed_;          ///< [lane] Empty: none of them has any interference.
  std::optional<LaneInterference> interference_;
  std::vector<Called> called_;        ///< [collective]
  std::vector<LaneTimes> transfers_;  ///< [collective][lane]
  std::vector<LaneTimes> free_;       ///< [communicator][lane]
  LaneTimes none_;                    ///< [lane] Zeros.
  LaneTimes arrival_;                 ///< Scratch.
  StepSums sums_;
  std::vector<double> longest_ms_;  ///< [draw]
  std::vector<double> total_ms_;    ///< [lane] Sum of the steady steps.
};

}  // namespace stepsim
