#pragma once

#include <string>
#include <vector>

#include "costmodel/io/json_file.h"
#include "sim/predict/prediction.h"

namespace stepsim {

/// The prediction file of one or more policies: {"format", "scenario", "profile", "predictions"}.
[[nodiscard]] Json prediction_json(const std::vector<Prediction>& predictions, bool with_steps);

/// Predicted policies of such a file; figures that validation needs (summary and steps).
/// Raises InputError with the file and the key.
[[nodiscard]] std::vector<Prediction> read_predictions(const std::string& path);

}  // namespace stepsim
