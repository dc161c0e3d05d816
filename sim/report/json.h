#pragma once

#include <string>
#include <vector>

#include "costmodel/io/atomic_file.h"
#include "costmodel/io/json_file.h"
#include "sim/predict/prediction.h"
#include "sim/study/training/memory_parts.h"

namespace stepsim {

/// What a prediction file says of the steps of each rank.
enum class StepRows { None, All, Streamed };

/// The prediction file of one or more policies: {"format", "scenario", "profile", "predictions"}.
/// StepRows::Streamed leaves a mark in place of the rows, of which there may be more than fit into
/// memory as JSON: write_streamed() writes them.
[[nodiscard]] Json prediction_json(const std::vector<Prediction>& predictions, StepRows rows);

/// Writes JSON as files hold it, with the rows of these predictions where their marks are. Bytes
/// that are not UTF-8 are replaced.
void write_streamed(const Json& json,
                    const std::vector<Prediction>& predictions,
                    const TextSink& sink);

/// {"step", "rank", "mib": {"optimizer": …, …}}
[[nodiscard]] Json memory_parts_json(const MemoryParts& memory);

/// Predicted policies of such a file; figures that validation needs (summary and steps).
/// Raises InputError with the file and the key.
[[nodiscard]] std::vector<Prediction> read_predictions(const std::string& path);

}  // namespace stepsim
