#pragma once

#include <cstddef>
#include <vector>

#include "sim/parallel/trained_model.h"

namespace stepsim {

/// What a forward comes to: a unit's call, its return, or an op.
struct UnitCall {
  enum class Kind { Enter, Leave, Op };
  Kind kind = Kind::Op;
  int index = 0;  ///< The unit, or the op.
};

/// A forward, from the root's call to its return: units around others are entered first, and a unit
/// of several modules is open from the first op of them to the last.
[[nodiscard]] std::vector<UnitCall> forward_calls(const TrainedModel& model);

/// Where the backward stands that has run the ops before `next` when it comes to a unit's first op
/// or, with `also_unit`, behind its last. At the root's end it has run all. An op that is not there
/// any more changes nothing.
[[nodiscard]] std::size_t backward_until(const TrainedModel& model,
                                         std::size_t next,
                                         int unit,
                                         bool also_unit);

}  // namespace stepsim
