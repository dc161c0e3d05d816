#pragma once

#include <cstdint>
#include <span>

#include "sim/parallel/step.h"

namespace stepsim {

/// The step by discrete events: per rank a host, a compute stream and a place in the communicator;
/// a collective starts when the last rank has arrived and the communicator is free.
///
/// `events`, when given, receives the number of events handled.
[[nodiscard]] StepTimeline simulate_step(const StepInput& input,
                                         std::span<const RankClock> clocks,
                                         std::uint64_t* events = nullptr);

}  // namespace stepsim
