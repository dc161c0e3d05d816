#pragma once

#include <string>
#include <vector>

#include "sim/predict/prediction.h"

namespace stepsim {

/// A field quoted when it holds a comma, a quote or a line end (RFC 4180).
[[nodiscard]] std::string csv_field(const std::string& text);

/// One row a policy, every summary figure a column.
[[nodiscard]] std::string summary_csv(const std::vector<Prediction>& predictions);

/// One row a policy, step and rank.
[[nodiscard]] std::string steps_csv(const std::vector<Prediction>& predictions);

}  // namespace stepsim
