#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "calibrate/import/kineto/kineto_trace.h"

namespace stepsim {

/// The time in which at least one of the spans runs.
[[nodiscard]] std::int64_t busy_time(std::vector<KinetoSpan> spans);

/// The GPU's time for a part of a step, collectives left out.
struct KinetoPartTime {
  std::int64_t ops = 0;
  std::int64_t busy_ns = 0;     ///< Time in which at least one operation runs.
  std::int64_t elapsed_ns = 0;  ///< Time from the first one's start to the last one's end.
};

inline constexpr std::size_t kKinetoParts = 4;

/// The GPU's time for what the host launched in one step.
struct KinetoStepTime {
  /// Forward, backward, optimizer as in KinetoPart, and the rest.
  std::array<KinetoPartTime, kKinetoParts> parts;
  std::int64_t compute_ns = 0;     ///< Time with compute or copies.
  std::int64_t collective_ns = 0;  ///< Time with collectives, including their wait.
  std::int64_t both_ns = 0;        ///< Time with both at once.
  std::int64_t window_ns = 0;      ///< Time from the first start to the last end of either.

  /// Time with neither: the host did not keep the GPU busy, or all ranks waited.
  [[nodiscard]] std::int64_t idle_ns() const {
    return window_ns - compute_ns - collective_ns + both_ns;
  }

  struct Bucket {
    std::optional<std::int64_t> bytes;
    std::int64_t ready_ns = 0;  ///< Since the start of the backward pass's first operation.
  };
  std::vector<Bucket> buckets;  ///< DDP's, in the order of launches.
};

/// The times of each step. An operation belongs to the part in which the host launched it: inside
/// an annotation of the part, where the optimizer's comes first. Where the backward pass has no
/// annotation, it reaches from its first to its last node of autograd; where the forward pass has
/// none, it is what comes before the backward pass.
[[nodiscard]] std::vector<KinetoStepTime> kineto_step_times(const KinetoTrace& trace);

}  // namespace stepsim
