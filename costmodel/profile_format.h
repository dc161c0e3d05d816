#pragma once

#include <string_view>

#include "costmodel/profile.h"

namespace stepsim {

inline constexpr std::string_view kProfileFormat = "stepsim-profile/1";
/// Adds the forms features_ratio and roofline_ratio and features of tiles; written only when one of
/// them is there, so that older programs read all they can.
inline constexpr std::string_view kProfileFormat2 = "stepsim-profile/2";

/// True when a cost of this form is nothing but a list of knots.
[[nodiscard]] inline bool holds_knots(CostForm form) {
  return form == CostForm::Table || form == CostForm::PerSampleTable;
}

/// True for the forms that came with version 2.
[[nodiscard]] inline bool holds_ratio(CostForm form) {
  return form == CostForm::FeaturesRatio || form == CostForm::RooflineRatio;
}

/// What the first number of a knot counts: "length" (padded; of a ratio the mean one), "elements"
/// or "rows" (the op's tokens or samples).
[[nodiscard]] std::string_view variable_label(const OpCost& cost);

}  // namespace stepsim
