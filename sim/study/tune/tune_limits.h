#pragma once

#include <optional>
#include <utility>

namespace stepsim {

/// What a user asks of a setting.
struct TuneLimits {
  std::optional<std::pair<double, double>> samples;  ///< Per step, over all ranks: least and most.
  std::optional<std::pair<double, double>> tokens;   ///< Useful ones, the same.
  std::optional<double> displacement;                ///< TrainingEffects::displacement, at most.
  bool keeps_samples = false;  ///< No sample of an epoch is lost, and no token cropped.
};

}  // namespace stepsim
