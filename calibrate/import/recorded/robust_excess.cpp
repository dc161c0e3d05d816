#include "calibrate/import/recorded/robust_excess.h"

#include <algorithm>
#include <cmath>

#include "calibrate/fit/nnls.h"

namespace stepsim {

std::vector<double> size_features(const StepRecord& row) {
  const auto tokens = static_cast<double>(row.padded_tokens);
  return {1, tokens, tokens * static_cast<double>(row.max_length)};
}

std::vector<double> robust_excess(const std::vector<std::vector<double>>& features,
                                  std::vector<double> times) {
  constexpr int kRounds = 12;
  constexpr double kSmallest = 1e-3;  // Milliseconds: residuals below count alike.
  for (double& ms : times) {
    ms = std::max(ms, kSmallest);
  }
  std::vector<double> weights;
  std::vector<double> left;
  for (int round = 0; round < kRounds; ++round) {
    // Weights of relative_nnls() are of relative residuals.
    const std::vector<double> fit = relative_nnls(features, times, weights);
    weights.clear();
    left.clear();
    for (std::size_t i = 0; i < times.size(); ++i) {
      left.push_back(times[i] - dot(fit, features[i]));
      weights.push_back(times[i] / std::sqrt(std::max(std::abs(left.back()), kSmallest)));
    }
  }
  return left;
}

}  // namespace stepsim
