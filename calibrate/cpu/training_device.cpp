#include "calibrate/cpu/training_device.h"

#include "calibrate/cpu/activation.h"
#include "calibrate/cpu/adamw.h"
#include "calibrate/cpu/loss.h"
#include "calibrate/cpu/rows.h"
#include "calibrate/training/tape_attention.h"
#include "calibrate/training/tape_linear.h"
#include "calibrate/training/tape_rows.h"

namespace stepsim::cpu {

const TransformerConfig& TrainingDevice::supported(const TransformerConfig& config) {
  check(config);
  if (config.attention != AttentionKind::Dense) {
    throw InputError("the CPU backend computes dense attention; set model.attention = \"dense\"");
  }
  if (config.dtype != Dtype::F32 || config.parameter_dtype != Dtype::F32) {
    throw InputError(
        "the CPU backend computes in f32; set model.dtype and model.parameter_dtype = \"f32\"");
  }
  require_built_for_this_processor();
  return config;
}

void fill_uniform(const Stream& /*stream*/,
                  float* out,
                  std::int64_t count,
                  float bound,
                  float center,
                  std::uint64_t seed) {
  RandomStream random(seed);
  for (std::int64_t i = 0; i < count; ++i) {
    out[i] = center + (bound > 0 ? random.uniform(bound) : 0.0F);
  }
}

}  // namespace stepsim::cpu

namespace stepsim {

template <>
Tensor<cpu::TrainingDevice>& Tape<cpu::TrainingDevice>::attention(const Op& op,
                                                                  const Part& /*q*/,
                                                                  const Part& /*k*/,
                                                                  const Part& /*v*/) {
  throw std::logic_error("the CPU backend has no fused attention: " + op.name);
}

template class Tape<cpu::TrainingDevice>;
template class Trainer<cpu::TrainingDevice>;

}  // namespace stepsim
