#pragma once

#include <optional>
#include <span>
#include <vector>

#include "sim/predict/prediction.h"

namespace stepsim {

/// When a policy has paid for its new shapes: after so many steps from the first one it has trained
/// as many useful tokens a second as the reference, and stays ahead as far as was simulated.
struct ShapePayback {
  bool is_reference = false;  ///< It loses least to new shapes.
  bool slower_warm = false;   ///< It is slower than the reference with every shape known.
  std::optional<int> steps;   ///< Absent also where that takes more steps than were simulated.
};

/// Compares all policies with the one that loses least time to new shapes. Returns one for each
/// prediction; empty where none has new shapes that cost something.
[[nodiscard]] std::vector<ShapePayback> shape_paybacks(std::span<const Prediction> predictions);

}  // namespace stepsim
