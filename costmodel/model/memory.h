#pragma once

#include <cstdint>
#include <string>

#include "costmodel/base/units.h"
#include "costmodel/model/batch_shape.h"
#include "costmodel/model/transformer.h"

namespace stepsim {

/// What the training job keeps on the device.
struct MemoryOptions {
  bool gradient_as_bucket_view = false;      ///< No second copy of the gradients.
  double optimizer_bytes_per_parameter = 8;  ///< AdamW in fp32: two moments.
  double master_bytes_per_parameter = 0;     ///< fp32 master weights of mixed precision: 4.
  bool activation_checkpointing = false;
  /// What is split over the ranks: 0 nothing, 1 optimizer and master weights, 2 gradients too, 3
  /// parameters too.
  int zero_stage = 0;
  int ranks = 1;                                 ///< Over which the states are split.
  Bytes working_bucket{std::int64_t{25} << 20};  ///< Gradients in flight with ZeRO-2 and 3.
  Bytes fixed{0};  ///< Counted as given: library workspaces, mask buffers, the device's context.
};

/// Bytes by purpose, per rank, at the peak of a step.
struct MemoryUse {
  Bytes parameters;
  Bytes gradients;
  Bytes optimizer;  ///< Moments and master weights.
  Bytes buckets;
  Bytes gathered;       ///< ZeRO-3: parameters of the largest layer, whole.
  Bytes weight_copies;  ///< Autocast: 16-bit copies that the backward pass of linear layers needs.
  Bytes activations;
  Bytes logits;
  Bytes fixed;
  [[nodiscard]] Bytes total() const;
};

/// The states of `elements` parameters that one rank keeps, the other parts zero. With p, g and o
/// bytes a parameter of weights, gradients and optimizer (master weights in o) over N ranks: p + g
/// + o, p + g + o/N, p + (g + o)/N, (p + g + o)/N for stages 0 to 3, shards rounded up. Mixed
/// precision Adam (2, 2, 12): 16, 4 + 12/N, 2 + 14/N, 16/N (Rajbhandari et al. 1910.02054).
///
/// Raises:
///     InputError: a stage outside 0..3, or less than one rank.
[[nodiscard]] MemoryUse state_memory(std::int64_t elements,
                                     Dtype parameter_dtype,
                                     const MemoryOptions& options);

/// True where dtype and parameter_dtype differ the way PyTorch's autocast makes them: compute in 16
/// bit on fp32 parameters.
[[nodiscard]] bool autocast(const TransformerConfig& config);

/// The peak of a step, at the start of the backward pass: states, kept activations, loss.
///
/// States: state_memory(). Buckets: one more copy of the gradients unless they are views; with
/// ZeRO-2 and 3 one working bucket. Gathered (ZeRO-3): the largest layer, without prefetching.
///
/// Activations, T tokens (padded; for varlen useful), h hidden, a heads, B samples, s length:
/// - one dtype: Korthikanti et al. 2205.05198, with dropout. 16 bit: T h (34 + 5 a s/h) a layer
///   dense, 34 T h flash; fp32 doubles all but the masks;
/// - autocast: 36 T h + 6 a B s^2 a layer dense, 36 T h flash, and 6 T h after the last, without
///   dropout: norms and softmax stay in fp32. Plus 16-bit copies of the linear layers' weights.
/// - checkpointing: each layer's input, and one layer in full.
/// Logits of a language model: 10 T V in 16 bit and autocast, 8 T V in fp32.
///
/// Not counted unless given as fixed: the framework's context, workspaces, allocator slack.
[[nodiscard]] MemoryUse peak_memory(const TransformerConfig& config,
                                    const BatchShape& batch,
                                    const MemoryOptions& options);

/// peak_memory() of many batches of one job: what does not depend on the batch is computed once.
class PeakMemory {
 public:
  PeakMemory(TransformerConfig config, const MemoryOptions& options);
  [[nodiscard]] MemoryUse at(const BatchShape& batch) const;

 private:
  TransformerConfig config_;
  bool checkpointing_ = false;
  MemoryUse constant_;  ///< All but activations and logits.
};

/// The most padded tokens of a micro-batch of samples of `length` tokens each whose peak_memory()
/// is at most `capacity`: a multiple of `length`, exact. 0 when not even one sample fits.
///
/// Raises:
///     InputError: a length below 1.
[[nodiscard]] std::int64_t largest_token_budget(const TransformerConfig& config,
                                                const MemoryOptions& options,
                                                Bytes capacity,
                                                std::int64_t length);

}  // namespace stepsim
