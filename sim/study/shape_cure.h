#pragma once

#include <string>

#include "sim/predict/prediction.h"
#include "sim/predict/run/job.h"

namespace stepsim {

/// The cheapest way for a policy to meet fewer shapes in an epoch, or to meet them before it.
struct ShapeCure {
  std::string key;      ///< For the scenario: "pad_to_lengths = [64, 128]"; empty: none is better.
  double now_ms = 0;    ///< Mean step of an epoch as it is, first meetings included.
  double cured_ms = 0;  ///< The same with the cure; now_ms where there is none.
};

/// Compares padding to multiples of 8, 64 and 128, ladders of lengths (study_ladders()), and a
/// warm-up of all shapes before the epoch, whose seconds count as a part of it.
/// Raises InputError as study_ladders().
[[nodiscard]] ShapeCure cheapest_cure(const Job& job, const Prediction& prediction);

}  // namespace stepsim
