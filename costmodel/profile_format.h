#pragma once

#include <string_view>

#include "costmodel/profile.h"

namespace stepsim {

inline constexpr std::string_view kProfileFormat = "stepsim-profile/1";

/// True when a cost of this form is a list of knots, false when it is a sum of features.
[[nodiscard]] inline bool holds_knots(CostForm form) {
  return form == CostForm::Table || form == CostForm::PerSampleTable;
}

/// What the first number of a knot counts: "length", "elements" or "rows" (the op's tokens or
/// samples).
[[nodiscard]] std::string_view variable_label(const OpCost& cost);

}  // namespace stepsim
