#include "calibrate/import/step_times/step_time_prior.h"

#include <cmath>

namespace stepsim {

const std::vector<StepTimePrior>& step_time_priors() {
  static const std::vector<StepTimePrior> kPriors = {
      {"several ranks", 0, 0.08},
      {"per doubling of ranks", 0.005, 0.01},
      {"forward share", 1.0 / 3, 0.04},
      {"optimizer share", 0.05, 0.03},
      {"bandwidth in a node", 0, 1},
      {"latency in a node", std::log(100e3), 0.8},
      {"bandwidth between nodes", 0, 1},
      {"latency between nodes", std::log(100e3), 0.5},
      {"two nodes", -0.4, 0.1},
      {"per doubling of nodes", 0.05, 0.03},
      {"per doubling of ranks a node", 0.03, 0.02},
      {"interference", 0, 0.1}};
  return kPriors;
}

}  // namespace stepsim
