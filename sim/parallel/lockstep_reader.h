#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "sim/parallel/lockstep.h"

namespace stepsim {

/// Turns the instructions of one rank after another into moves, from the first to the last. It
/// keeps no more of them than those of rank 0.
class LockstepReader {
 public:
  /// The instructions of the next rank.
  void add(std::span<const Instruction> rank);

  /// Whether the ranks so far do the same, and none waits for what it does not know when it calls.
  [[nodiscard]] bool in_lockstep() const { return in_lockstep_; }
  [[nodiscard]] const std::vector<LockstepMove>& moves() const { return schedule_.moves; }
  /// [in the order of the calls][rank]
  [[nodiscard]] const std::vector<std::vector<std::int32_t>>& collectives() const {
    return schedule_.collectives;
  }
  /// The schedule of all ranks; none: they are not in lockstep. `program`: of its collectives.
  [[nodiscard]] std::optional<LockstepSchedule> schedule(StepProgram program) &&;

 private:
  /// The kernels of a stretch, one by one.
  struct Launched {
    std::vector<std::int32_t> work;
    std::vector<std::vector<std::int32_t>> of_rank;  ///< Up to the last that does other work.
  };
  /// Where a kernel of the ranks' own is; nowhere in most instructions.
  struct Place {
    std::int32_t stretch = -1;
    std::size_t number = 0;
  };

  [[nodiscard]] bool add_first(std::span<const Instruction> rank);
  [[nodiscard]] bool add_other(std::span<const Instruction> rank);
  [[nodiscard]] bool take(const Instruction& in);
  [[nodiscard]] bool take_work(const Instruction& in, LockstepMove& move);
  void find_alike();

  std::size_t ranks_ = 0;
  bool in_lockstep_ = true;
  std::vector<Instruction> first_;
  std::vector<Place> places_;        ///< [instruction]
  std::vector<std::int32_t> calls_;  ///< [instruction] Which call it makes or waits for; -1: none.
  std::vector<std::int32_t> call_of_;  ///< [collective] of rank 0; -1: it has not called it.
  std::vector<bool> recorded_;         ///< [event]
  std::vector<Launched> launched_;     ///< [stretch]
  LockstepSchedule schedule_;
};

}  // namespace stepsim
