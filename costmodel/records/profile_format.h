#pragma once

#include <string_view>

#include "costmodel/io/json_file.h"
#include "costmodel/records/profile.h"

namespace stepsim {

inline constexpr std::string_view kProfileFormat = "stepsim-profile/1";
/// Adds the forms features_ratio and roofline_ratio and features of tiles; written only when one of
/// them is there, so that older programs read all they can.
inline constexpr std::string_view kProfileFormat2 = "stepsim-profile/2";

/// Adds a model's recorded passes and quantiles of the noise.
inline constexpr std::string_view kProfileFormat3 = "stepsim-profile/3";

/// The longest time that a profile may state, or that one op may take by it.
inline constexpr double kMaxCostSeconds = 3600;

/// The member "recorded" of a profile.
[[nodiscard]] Json recorded_json(const RecordedModel& recorded);
/// Checked: known features, a coefficient for each in the fit and in every draw, none negative,
/// ranges, the model. Raises InputError.
[[nodiscard]] RecordedModel read_recorded(JsonReader reader);
/// "errors" of a fit. Raises std::domain_error for what is no finite number.
[[nodiscard]] Json errors_json(const FitErrors& errors);
/// The inverse; none when `reader` has no member "errors".
[[nodiscard]] FitErrors read_errors(JsonReader& reader);
/// Raises std::domain_error: JSON would print anything else as null.
[[nodiscard]] double finite(double value);
[[nodiscard]] Json numbers_json(const std::vector<double>& values);

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
