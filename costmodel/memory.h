#pragma once

#include <string>

#include "costmodel/batch_shape.h"
#include "costmodel/transformer.h"
#include "costmodel/units.h"

namespace stepsim {

/// What the training job keeps on the device.
struct MemoryOptions {
  bool gradient_as_bucket_view = false;      ///< No second copy of the gradients.
  double optimizer_bytes_per_parameter = 8;  ///< AdamW in fp32: two moments.
  double master_bytes_per_parameter = 0;     ///< fp32 master weights of mixed precision: 4.
  bool activation_checkpointing = false;
};

/// Bytes by purpose, per rank, at the peak of a step.
struct MemoryUse {
  Bytes parameters;
  Bytes gradients;
  Bytes optimizer;
  Bytes buckets;
  Bytes activations;
  Bytes logits;
  [[nodiscard]] Bytes total() const;
};

/// Source of the activation formulas: Korthikanti et al. 2205.05198 (16-bit: T h (34 + 5 a s/h) per
/// layer dense, 34 T h flash, 2 T h with full checkpointing plus one layer); fp32 doubles all but
/// the dropout masks. States: parameter and optimizer bytes as given. Logits of a language model:
/// 10 T V in 16 bit (fp32 copy and both gradients), 8 T V in fp32. T = padded tokens, for varlen
/// useful ones. Not counted: the framework's context, workspaces and allocator slack.
[[nodiscard]] MemoryUse peak_memory(const TransformerConfig& config,
                                    const BatchShape& batch,
                                    const MemoryOptions& options);

}  // namespace stepsim
