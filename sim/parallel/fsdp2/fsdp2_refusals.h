#pragma once

#include <optional>

#include "sim/parallel/parallelism.h"

namespace stepsim {

/// What FSDP2 refuses of its own keys and of [ddp], with what to write instead.
[[nodiscard]] std::optional<KeyRefusal> fsdp2_refusal(const ParallelJob& job);

}  // namespace stepsim
