#include "calibrate/cuda/training/tape.h"

namespace stepsim::cuda {

Tape::Tape(const TapeContext& context, const StepOps& ops)
    : StepTape(context.config),
      context_(context),
      loss_sum_(sizeof(float)),
      fetched_loss_(sizeof(float)) {
  build(ops);
}

void Tape::initialise(std::size_t parameter, float bound, float center) {
  fill_uniform(context_.stream,
               context_.store.weights(parameter),
               context_.store.elements(parameter),
               bound,
               center,
               context_.seed + 0x51ED2701ULL * (parameter + 1));
}

void Tape::fetch_loss() {
  copy_to_host(context_.stream, fetched_loss_.as<float>(), loss_sum_.data(), sizeof(float));
}

double Tape::loss() const {
  const std::int64_t targets = loss_extent_ == Extent::Samples
                                   ? context_.batch.size().samples
                                   : context_.batch.size().useful_tokens;
  return static_cast<double>(*fetched_loss_.as<float>()) / static_cast<double>(targets);
}

}  // namespace stepsim::cuda
