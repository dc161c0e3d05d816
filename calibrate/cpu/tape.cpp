#include "calibrate/cpu/tape.h"

namespace stepsim::cpu {

Tape::Tape(const TapeContext& context, const StepOps& ops)
    : StepTape(context.config), context_(context) {
  build(ops);
}

void Tape::initialise(std::size_t parameter, float bound, float center) {
  RandomStream random(context_.seed + 0x51ED2701ULL * (parameter + 1));
  float* weights = context_.store.weights(parameter);
  for (std::int64_t i = 0; i < context_.store.elements(parameter); ++i) {
    weights[i] = center + (bound > 0 ? random.uniform(bound) : 0.0F);
  }
}

}  // namespace stepsim::cpu
