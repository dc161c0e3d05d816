#include "sim/batching/loss_scale.h"

#include <algorithm>
#include <array>

#include "costmodel/base/input_error.h"
#include "costmodel/base/mapped.h"

namespace stepsim {

std::span<const std::string> loss_weighting_names() {
  static const std::array<std::string, 3> kNames = {"none", "sample", "token"};
  return kNames;
}

double loss_scale(LossWeighting weighting, double own, double all, int ranks) {
  if (weighting == LossWeighting::None) {
    return 1;
  }
  if (!(all > 0)) {
    const std::string& name = loss_weighting_names()[static_cast<std::size_t>(weighting)];
    throw InputError("weighting '{}': the step holds no {}s", name, name);
  }
  return ranks * own / all;
}

std::vector<double> loss_scales(LossWeighting weighting, std::span<const BatchShape> ranks) {
  const auto units = [weighting](const BatchShape& shape) {
    return static_cast<double>(weighting == LossWeighting::Sample ? shape.samples
                                                                  : shape.useful_tokens);
  };
  const double all = sum_of(ranks, [&](const auto& shape) { return units(shape); });
  return mapped(ranks, [&](const auto& shape) {
    return loss_scale(weighting, units(shape), all, static_cast<int>(ranks.size()));
  });
}

}  // namespace stepsim
