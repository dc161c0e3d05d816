#pragma once

#include <cstdint>

#include "calibrate/cuda/attention/dense_attention.h"
#include "calibrate/cuda/attention/sdpa.h"
#include "calibrate/cuda/device/device.h"
#include "calibrate/cuda/kernels/gemm.h"
#include "calibrate/cuda/kernels/kernels.h"
#include "calibrate/training/trainer.h"

namespace stepsim::cuda {

/// Contiguous copies of the heads of one layer's dense attention.
struct HeadCopies {
  DeviceBuffer q;
  DeviceBuffer k;
  DeviceBuffer v;
};

/// A GPU as calibrate/training sees it: cuBLASLt, cuDNN and the kernels of calibrate/cuda; dense,
/// flash and varlen attention.
///
/// Fused attention over padded batches masks the keys of padding only where it is not causal:
/// behind the last useful token a causal query is padding itself.
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

  /// The loss keeps two floats a row for its backward, whatever the number of classes.
  static std::int64_t saved_of_loss(std::int64_t /*classes*/) { return 2; }

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
  float* norm_scratch(std::int64_t rows, std::int64_t width);
  float* column_sums_scratch(std::int64_t rows, std::int64_t width);

  /// The problem that fused attention solves for a batch of this size.
  [[nodiscard]] SdpaShape sdpa_shape(const BatchSize& size) const;

  Stream stream;
  Gemm gemm;
  Sdpa sdpa;
  SdpaShape sdpa_form;  ///< The model's attention, without a batch's size; the tape sets it.

 private:
  Buffer scratch_;
};

using Trainer = stepsim::Trainer<TrainingDevice>;

}  // namespace stepsim::cuda

extern template class stepsim::Trainer<stepsim::cuda::TrainingDevice>;
