#pragma once

#include <cstdint>

#include "calibrate/cuda/attention/dense_attention.h"
#include "calibrate/cuda/attention/sdpa.h"
#include "calibrate/cuda/device/device.h"
#include "calibrate/cuda/kernels/gemm.h"
#include "calibrate/cuda/kernels/kernels.h"
#include "calibrate/training/trainer.h"

namespace stepsim::cuda {

/// The problem that fused attention solves for a batch of this size; `form` is the model's
/// attention without it.
[[nodiscard]] SdpaShape sdpa_shape(const SdpaShape& form,
                                   const BatchSize& size,
                                   KernelChoice kernels);

/// Contiguous copies of the heads of one layer's dense attention.
struct HeadCopies {
  DeviceBuffer q;
  DeviceBuffer k;
  DeviceBuffer v;
};

/// A GPU as calibrate/training sees it: cuBLASLt, cuDNN and the kernels of calibrate/cuda; dense,
/// flash and varlen attention.
///
/// With KernelChoice::TorchEager the GELU of GPT-2, the norm of Llama, the loss and AdamW run as
/// eager PyTorch runs them (eager/eager.h), with KernelChoice::Fused in one kernel each.
///
/// Fused attention over padded batches gets a mask that is a tensor from eager PyTorch, with
/// lengths, causality and window in it. KernelChoice::Fused gives it lengths, and only where it is
/// not causal: behind the last useful token a causal query is padding itself.
struct TrainingDevice {
  using Array = cuda::Array;
  using Buffer = DeviceBuffer;
  using HostBuffer = cuda::HostBuffer;
  using Stream = cuda::Stream;
  using Event = cuda::Event;
  using Heads = cuda::Heads;
  using ConstHeads = cuda::ConstHeads;
  using HeadCopies = cuda::HeadCopies;
  using NormWeights = cuda::NormWeights;
  using NormGradients = cuda::NormGradients;
  using GemmCall = cuda::GemmCall;
  struct StepGuard {};

  /// Returns the model. Raises InputError: a dtype or an attention that the device's libraries do
  /// not have.
  static const TransformerConfig& supported(const TransformerConfig& config);

  explicit TrainingDevice(const TransformerConfig& config);

  // What a node keeps for its backward is told in floats a row.
  /// The dtype of an activation's result, for x of `dtype`.
  [[nodiscard]] Dtype activation_dtype(ActivationKind kind, Dtype dtype) const;
  [[nodiscard]] std::int64_t saved_of_activation(ActivationKind kind,
                                                 std::int64_t width,
                                                 Dtype dtype) const;
  void activation_forward(
      ActivationKind kind, Array y, float* saved, ConstArray x, std::int64_t count);
  void activation_backward(ActivationKind kind,
                           Array dx,
                           ConstArray dy,
                           const float* saved,
                           ConstArray x,
                           std::int64_t count);

  [[nodiscard]] std::int64_t saved_of_norm(bool rms, std::int64_t width, Dtype dtype) const;
  void norm_forward(bool rms,
                    Array out,
                    float* saved,
                    ConstArray x,
                    const NormWeights& weights,
                    std::int64_t rows,
                    std::int64_t width);
  void norm_backward(bool rms,
                     Array dx,
                     Store store,
                     const NormGradients& gradients,
                     ConstArray dout,
                     ConstArray x,
                     const float* saved,
                     const NormWeights& weights,
                     std::int64_t rows,
                     std::int64_t width);

  [[nodiscard]] std::int64_t saved_of_loss(std::int64_t classes) const;
  void loss_forward(float* total,
                    float* losses,
                    float* saved,
                    ConstArray logits,
                    const std::int32_t* targets,
                    std::int64_t rows,
                    std::int64_t classes);
  void loss_backward(Array dlogits,
                     ConstArray logits,
                     const float* saved,
                     const std::int32_t* targets,
                     float scale,
                     std::int64_t rows,
                     std::int64_t classes);

  void update(const AdamW& options,
              Array weights,
              Array m,
              Array v,
              ConstArray gradient,
              std::int64_t count,
              std::int64_t step);

  /// Multiplies for a model of this dtype.
  void multiply(GemmCall call, Dtype dtype);
  /// Copies the staged bytes to the device, in stream order. Returns where they lie there.
  std::int32_t* upload(Buffer& memory, const HostBuffer& staging, std::size_t bytes) const;
  DenseCopies dense_copies(HeadCopies& copies, const DenseAttention& shape, Dtype dtype);

  /// Memory that one op uses and the next may write over. Its contents are lost when it grows.
  Array scratch(std::int64_t elements, Dtype dtype);
  /// Gives back scratch memory and the workspace of attention.
  void release_scratch();
  static void release(HeadCopies& copies);
  float* column_sums_scratch(std::int64_t rows, std::int64_t width);

  [[nodiscard]] SdpaShape sdpa_shape(const BatchSize& size) const {
    return cuda::sdpa_shape(
        sdpa_form, size, eager_ ? KernelChoice::TorchEager : KernelChoice::Fused);
  }
  /// Writes the mask of a biased shape, which the forward and the backward of a layer read.
  void write_mask(const SdpaShape& shape, const BatchArrays& arrays);
  [[nodiscard]] SdpaSequences sdpa_sequences(const BatchArrays& arrays) const;

  Stream stream;
  Gemm gemm;
  Sdpa sdpa;
  SdpaShape sdpa_form;  ///< The model's attention, without a batch's size; the tape sets it.

 private:
  /// Scratch memory of so many floats.
  float* floats(std::int64_t count);
  [[nodiscard]] bool written_out(ActivationKind kind) const {
    return eager_ && kind == ActivationKind::GeluTanh;
  }

  bool eager_;
  bool autocasts_;
  bool norm_is_written_out_;  ///< The RMS norm of Llama; that of Nanochat is F.rms_norm.
  Buffer scratch_;
  Buffer mask_;
};

using Trainer = stepsim::Trainer<TrainingDevice>;

}  // namespace stepsim::cuda

extern template class stepsim::Trainer<stepsim::cuda::TrainingDevice>;
