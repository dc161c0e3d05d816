#pragma once

#include <string>

#include "costmodel/cost_model.h"
#include "costmodel/profile.h"
#include "costmodel/units.h"

namespace stepsim {

/// Price of one message from a measured table, which has knots.
///
/// Linear between the knots. Below the first one its value: the floor is flat to about 32 KiB, and
/// a first knot above that makes it an extrapolation. Beyond the last one on from there with
/// relative_slope() of the last three, with the beyond-the-grid error times the factor beyond.
/// Raises InputError: more than `max_extrapolation` times outside; `profile` names the profile.
[[nodiscard]] Cost table_cost(const CollectiveCost& table,
                              Bytes bytes,
                              double max_extrapolation,
                              const std::string& profile);

}  // namespace stepsim
