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

void TrainingDevice::activation_forward(
    ActivationKind kind, float* y, float* /*saved*/, const float* x, std::int64_t count) const {
  cpu::activation_forward(stream, kind, y, x, count);
}

void TrainingDevice::activation_backward(ActivationKind kind,
                                         float* dx,
                                         const float* dy,
                                         const float* /*saved*/,
                                         const float* x,
                                         std::int64_t count) const {
  cpu::activation_backward(stream, kind, dx, dy, x, count);
}

void TrainingDevice::norm_forward(bool rms,
                                  float* out,
                                  float* saved,
                                  const float* x,
                                  const NormWeights& weights,
                                  std::int64_t rows,
                                  std::int64_t width) const {
  cpu::norm_forward(stream, rms, out, saved, x, weights, rows, width);
}

void TrainingDevice::norm_backward(bool rms,
                                   float* dx,
                                   Store store,
                                   const NormGradients& gradients,
                                   const float* dout,
                                   const float* x,
                                   const float* saved,
                                   const NormWeights& weights,
                                   std::int64_t rows,
                                   std::int64_t width) const {
  cpu::norm_backward(
      stream, rms, dx, store, gradients, dout, x, saved, weights, rows, width, nullptr);
}

void TrainingDevice::loss_forward(float* total,
                                  float* losses,
                                  float* saved,
                                  const float* logits,
                                  const std::int32_t* targets,
                                  std::int64_t rows,
                                  std::int64_t classes) const {
  cross_entropy_forward(stream, losses, saved, logits, targets, rows, classes);
  sum_floats(stream, total, losses, rows);
}

void TrainingDevice::loss_backward(float* dlogits,
                                   const float* logits,
                                   const float* saved,
                                   const std::int32_t* targets,
                                   float scale,
                                   std::int64_t rows,
                                   std::int64_t classes) const {
  cross_entropy_backward(stream, dlogits, logits, saved, targets, scale, rows, classes);
}

void TrainingDevice::update(const AdamW& options,
                            float* weights,
                            float* m,
                            float* v,
                            const float* gradient,
                            std::int64_t count,
                            std::int64_t step) const {
  adamw_update(stream, options, weights, m, v, gradient, nullptr, count, step);
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
