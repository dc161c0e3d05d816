#include "sim/batching/loss_scale.h"

#include <algorithm>
#include <array>

#include "costmodel/base/input_error.h"
#include "costmodel/base/mapped.h"
#include "costmodel/base/row_named.h"

namespace stepsim {

std::span<const std::string> weightings() {
  static const std::array<std::string, 3> kNames = {"none", "sample", "token"};
  return kNames;
}

void check_weighting(std::string_view weighting) {
  (void)row_named(weightings(), std::identity(), "weighting", weighting);
}

double loss_scale(std::string_view weighting, double own, double all, int ranks) {
  check_weighting(weighting);
  if (weighting == "none") {
    return 1;
  }
  if (!(all > 0)) {
    throw InputError("weighting '{}': the step holds no {}s", weighting, weighting);
  }
  return ranks * own / all;
}

std::vector<double> loss_scales(std::string_view weighting, std::span<const BatchShape> ranks) {
  const auto units = [weighting](const BatchShape& shape) {
    return static_cast<double>(weighting == "sample" ? shape.samples : shape.useful_tokens);
  };
  const double all = sum_of(ranks, [&](const auto& shape) { return units(shape); });
  return mapped(ranks, [&](const auto& shape) {
    return loss_scale(weighting, units(shape), all, static_cast<int>(ranks.size()));
  });
}

}  // namespace stepsim
