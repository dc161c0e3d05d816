#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "sim/parallel/step_program.h"

namespace stepsim {

/// A step as the max-plus recurrence of closed_form.h plays it: one micro-batch, one all-reduce a
/// bucket on one in-order communicator, and nothing else. The lists name work by its number; what
/// the numbers mean is up to whoever labelled the kernels.
struct StepSchedule {
  std::vector<std::int32_t> forward;
  /// [bucket] the work up to the bucket's launch; one more list for what follows the last launch.
  std::vector<std::vector<std::int32_t>> backward;
  std::vector<std::vector<std::int32_t>> copy_out;  ///< [bucket] the work after its all-reduce.
  std::vector<std::int32_t> optimizer;
  std::vector<CollectiveUse> collectives;  ///< [bucket]
  std::int64_t kernels = 0;                ///< The length of all lists of work together.

  bool operator==(const StepSchedule&) const = default;
};

/// The schedule of a program's rank 0, read from its instructions, so that the recurrence plays
/// what the engine would play. None when the program holds anything that the recurrence does not
/// know: another collective, another stream, a host that is busy or waits, a second micro-batch.
///
/// The program's kernels carry in their labels what work they are, and every duration in it is zero
/// unless the recurrence does not know it.
[[nodiscard]] std::optional<StepSchedule> schedule_of(const StepProgram& program,
                                                      const StepHost& host);

}  // namespace stepsim
