#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "calibrate/import/kineto/kineto_trace.h"

namespace stepsim {

/// The GPU's time for a part of a step, collectives left out.
struct KinetoPartTime {
  std::int64_t ops = 0;
  std::int64_t busy_ns = 0;     ///< At least one operation runs.
  std::int64_t elapsed_ns = 0;  ///< From the first one's start to the last one's end.
};

inline constexpr std::size_t kKinetoParts = 4;

/// What the GPU did of what the host launched in one step.
struct KinetoStepTime {
  /// Forward, backward, optimizer as in KinetoPart, and the rest.
  std::array<KinetoPartTime, kKinetoParts> parts;
  std::int64_t compute_ns = 0;     ///< Busy with compute or copies.
  std::int64_t collective_ns = 0;  ///< Busy with collectives, waiting included.
  std::int64_t both_ns = 0;        ///< With both at once.
  std::int64_t window_ns = 0;      ///< From the first start to the last end of either.

  /// The host did not keep the GPU busy, or all ranks waited: neither of both.
  [[nodiscard]] std::int64_t idle_ns() const {
    return window_ns - compute_ns - collective_ns + both_ns;
  }

  struct Bucket {
    std::optional<std::int64_t> bytes;
    std::int64_t ready_ns = 0;  ///< After the first operation of the backward pass started.
  };
  std::vector<Bucket> buckets;  ///< DDP's, in the order of launches.
};

/// [step] Parts go by where the host launched: inside of an annotation of the part, the optimizer's
/// first; without one of the backward pass, between its first and last node of autograd; without
/// one of the forward pass, before the backward pass.
[[nodiscard]] std::vector<KinetoStepTime> kineto_step_times(const KinetoTrace& trace);

}  // namespace stepsim
