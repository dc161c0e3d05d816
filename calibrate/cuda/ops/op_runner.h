#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "calibrate/cuda/attention/sdpa.h"
#include "calibrate/cuda/device/device.h"
#include "calibrate/cuda/kernels/gemm.h"
#include "calibrate/cuda/ops/op_memory.h"
#include "costmodel/model/batch_shape.h"
#include "costmodel/model/transformer.h"

namespace stepsim::cuda {

/// Runs the ops of a model one at a time, on random data.
///
///   Gemm                          linear_call(), by cuBLASLt, or as PyTorch by cuBLAS
///   Attention                     cuDNN's fused kernels, padded or packed
///   AttentionScores, -Context     batched products over all heads
///   Activation of an MLP          with KernelChoice::Fused and a GELU, in the epilogue of a
///   product Norm, Softmax, CrossEntropy   the reduction kernel, which reads op_bytes() Collate the
///   host pads token ids and copies them to the device everything else               the
///   elementwise kernel, which reads and writes op_bytes() in all
class OpRunner {
 public:
  /// Raises InputError: a family, dtype or attention that the device's libraries do not have.
  explicit OpRunner(const TransformerConfig& model);

  /// Builds what the attention of these batches needs, on all cores. Returns [batch] why it cannot
  /// run; empty where it can.
  [[nodiscard]] std::vector<std::string> prepare(std::span<const BatchShape> batches);

  /// Brings what later ops need to know of a batch to the device. Waits for the device.
  void set_batch(std::span<const std::int64_t> lengths);

  /// Puts one op of the batch into the stream.
  void put(const Op& op);

  /// Whether an op is a part of a product: put() puts the product with it, and put_product() the
  /// product without.
  [[nodiscard]] bool is_in_product(const Op& op) const;
  void put_product(const Op& op);

  /// Gives the memory of all ops back. Waits for the device.
  void release_memory();

  [[nodiscard]] const Stream& stream() const { return stream_; }
  [[nodiscard]] const Gemm& gemm() const { return gemm_; }
  [[nodiscard]] const Sdpa& sdpa() const { return sdpa_; }

 private:
  void put_linear(const Op& op);
  void put_activation(const Op& op);
  void put_attention(const Op& op);
  void put_dense_attention(const Op& op);
  void put_collate();
  void move(double bytes, Dtype dtype);
  void reduce(double bytes, std::int64_t width, Dtype dtype);

  TransformerConfig model_;
  GemmRoute route_;
  Stream stream_;
  Gemm gemm_;
  Sdpa sdpa_;
  OpMemory memory_;
  std::vector<std::int64_t> lengths_;
  BatchShape batch_;
  HostBuffer staging_;      ///< Lengths and offsets, on their way to the device.
  DeviceBuffer sequences_;  ///< [samples] lengths, then [samples + 1] offsets.
  DeviceBuffer mask_;
  HostBuffer ids_;  ///< [sample][position] of the batch that Collate builds.
  DeviceBuffer device_ids_;
};

/// The problem that fused attention solves for a batch.
///
/// Over padded batches it gets a mask that is a tensor from eager PyTorch, with lengths, causality
/// and window in it. KernelChoice::Fused gives it lengths, and only where it is not causal: behind
/// the last useful token a causal query is padding itself.
[[nodiscard]] SdpaShape sdpa_shape(const TransformerConfig& model, const BatchShape& batch);

}  // namespace stepsim::cuda
