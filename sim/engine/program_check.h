#pragma once

#include <cstddef>
#include <optional>

#include "sim/engine/engine.h"
#include "sim/engine/program.h"

namespace stepsim {

/// Checks that an engine of these rules and so many ranks can play a program. Throws
/// std::invalid_argument: ranks, streams, marks or collectives that do not exist; raises
/// InputError: a time longer than kTimeLimit.
void check_program(const Program& program, const EngineRules& rules, std::size_t ranks);

/// Whether the ranks' instructions can be played in their order, each at one go until it waits for
/// a collective that not all have launched; and in which order the collectives come then. That
/// holds for any times. Under interference a collective may slow only what is launched behind it:
/// all work and the parts of all collectives are on the compute stream, and there is one
/// communicator.
///
/// Returns none where only events find the order.
[[nodiscard]] std::optional<CollectiveOrder> collective_order(const Program& program,
                                                              const EngineRules& rules);

}  // namespace stepsim
