#pragma once

#include "calibrate/cpu/attention.h"
#include "calibrate/cpu/device.h"
#include "calibrate/cpu/gemm.h"
#include "calibrate/cpu/norm.h"
#include "calibrate/cpu/processor.h"
#include "calibrate/training/activation_kind.h"
#include "calibrate/training/trainer.h"

namespace stepsim::cpu {

/// The CPU as calibrate/training sees it: fp32 with the kernels of this folder, dense attention.
/// KernelChoice changes nothing here: none of these kernels is one of PyTorch's.
struct TrainingDevice {
  using Array = cpu::Array;
  using Buffer = cpu::Buffer;
  using HostBuffer = cpu::Buffer;
  using Stream = cpu::Stream;
  using Event = cpu::Event;
  using Heads = cpu::Heads;
  using ConstHeads = cpu::ConstHeads;
  using HeadCopies = cpu::HeadViews;
  using NormWeights = cpu::NormWeights;
  using NormGradients = cpu::NormGradients;
  using GemmCall = cpu::GemmCall;
  using StepGuard = FlushDenormals;

  /// Returns the model. Raises InputError: attention other than dense, a dtype other than f32.
  static const TransformerConfig& supported(const TransformerConfig& config);

  explicit TrainingDevice(const TransformerConfig& /*config*/) {}

  static Dtype activation_dtype(ActivationKind /*kind*/, Dtype dtype) { return dtype; }
  static std::int64_t saved_of_activation(ActivationKind, std::int64_t, Dtype) { return 0; }
  void activation_forward(
      ActivationKind kind, float* y, float* saved, const float* x, std::int64_t count) const;
  void activation_backward(ActivationKind kind,
                           float* dx,
                           const float* dy,
                           const float* saved,
                           const float* x,
                           std::int64_t count) const;

  /// A norm keeps its row's mean and deviation.
  static std::int64_t saved_of_norm(bool, std::int64_t, Dtype) { return 2; }
  void norm_forward(bool rms,
                    float* out,
                    float* saved,
                    const float* x,
                    const NormWeights& weights,
                    std::int64_t rows,
                    std::int64_t width) const;
  void norm_backward(bool rms,
                     float* dx,
                     Store store,
                     const NormGradients& gradients,
                     const float* dout,
                     const float* x,
                     const float* saved,
                     const NormWeights& weights,
                     std::int64_t rows,
                     std::int64_t width) const;

  /// The loss keeps all probabilities of a row for its backward.
  static std::int64_t saved_of_loss(std::int64_t classes) { return classes; }
  void loss_forward(float* total,
                    float* losses,
                    float* saved,
                    const float* logits,
                    const std::int32_t* targets,
                    std::int64_t rows,
                    std::int64_t classes) const;
  void loss_backward(float* dlogits,
                     const float* logits,
                     const float* saved,
                     const std::int32_t* targets,
                     float scale,
                     std::int64_t rows,
                     std::int64_t classes) const;

  void update(const AdamW& options,
              float* weights,
              float* m,
              float* v,
              const float* gradient,
              std::int64_t count,
              std::int64_t step) const;

  void multiply(const GemmCall& call, Dtype /*dtype*/) const { gemm.run(stream, call); }
  /// The host's memory is the device's.
  static std::int32_t* upload(Buffer& /*memory*/, const HostBuffer& staging, std::size_t) {
    return staging.as<std::int32_t>();
  }
  static HeadViews& dense_copies(HeadViews& views, const DenseAttention&, Dtype) { return views; }

  // No kernel needs scratch memory.
  static Array scratch(std::int64_t /*elements*/, Dtype /*dtype*/) { return {}; }
  static void release_scratch() {}
  static void release(HeadViews& /*views*/) {}
  static float* column_sums_scratch(std::int64_t /*rows*/, std::int64_t /*n*/) { return nullptr; }

  Stream stream;
  Gemm gemm;
};

/// Fills `out` from the random stream of `seed`, in [center - bound, center + bound): the same
/// numbers on every machine.
void fill_uniform(const Stream& stream,
                  float* out,
                  std::int64_t count,
                  float bound,
                  float center,
                  std::uint64_t seed);

using Trainer = stepsim::Trainer<TrainingDevice>;

}  // namespace stepsim::cpu

extern template class stepsim::Trainer<stepsim::cpu::TrainingDevice>;
