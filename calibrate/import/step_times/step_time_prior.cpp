#include "calibrate/import/step_times/step_time_prior.h"

#include <cmath>

namespace stepsim {

double StepTimePrior::residual(double value) const {
  const double off = (value - mean) / deviation;
  return heavy_tails ? std::copysign(std::sqrt(2 * std::log1p(off * off / 2)), off) : off;
}

double StepTimePrior::deviation_at(double value) const {
  const double off = (value - mean) / deviation;
  constexpr double kNear = 1e-3;  // Where the belief is normal.
  const bool near = !heavy_tails || std::abs(off) < kNear;
  return near ? deviation : deviation * (1 + off * off / 2) * residual(value) / off;
}

const std::vector<StepTimePrior>& step_time_priors() {
  static const std::vector<StepTimePrior> kPriors = {
      {"several ranks", 0, 0.08},
      {"per doubling of ranks", 0.005, 0.01},
      {"per doubling of ranks a node, compute", 0, 0.01, true},
      {"forward share", 1.0 / 3, 0.04},
      {"optimizer share", 0.05, 0.03},
      {"bandwidth in a node", 0, 1},
      {"latency in a node", std::log(100e3), 0.8},
      {"bandwidth between nodes", 0, 1},
      {"latency between nodes", std::log(100e3), 0.5},
      {"two nodes", -0.4, 0.13},
      {"per doubling of nodes", 0.05, 0.06},
      {"per doubling of ranks a node", 0.03, 0.03},
      {"interference", 0, 0.1}};
  return kPriors;
}

}  // namespace stepsim
