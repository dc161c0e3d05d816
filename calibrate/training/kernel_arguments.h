#pragma once

#include <cstdint>

#include "costmodel/model/transformer.h"

/// Arguments that the kernels of every device share. Pointers point into the device's memory.
namespace stepsim {

/// Whether a result replaces what was there or is added to it.
enum class Store { Assign, Add };

/// The target of a row that has none because it is padding.
constexpr std::int32_t kNoTarget = -1;

/// The dtype that numbers have in memory: Tf32 is a way to multiply, its numbers are stored as F32.
[[nodiscard]] constexpr Dtype stored_as(Dtype dtype) {
  return dtype == Dtype::Tf32 ? Dtype::F32 : dtype;
}

/// Where the sequences of a batch lie: padded (row = sample * length + position) or packed.
struct SequenceRows {
  std::int64_t samples = 0;
  std::int64_t length = 0;  ///< The padded length, or the longest sequence of a packed batch.
  const std::int32_t* offsets = nullptr;  ///< [samples + 1] First row of each; null when padded.
  const std::int32_t* lengths = nullptr;  ///< [samples] Useful tokens.
};

/// Which keys a query of a score matrix [sample][head][query][key] may see.
struct ScoreMask {
  const std::int32_t* lengths = nullptr;  ///< [sample] Useful tokens; null means all of them.
  bool causal = false;
  /// A query sees keys with |query - key| < window, on both sides unless causal; 0 = no window.
  std::int64_t window = 0;
};

/// Unfused attention of a padded batch, with a score matrix in memory.
struct DenseAttention {
  std::int64_t samples = 0;
  std::int64_t length = 0;  ///< The padded length.
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;  ///< Query head h reads key head h * kv_heads / heads.
  std::int64_t head_dim = 0;
  ScoreMask mask;
  bool tf32 = false;  ///< Products of F32 numbers run on TF32 tensor cores.

  [[nodiscard]] std::int64_t score_rows() const { return samples * heads * length; }
  [[nodiscard]] std::int64_t score_elements() const { return score_rows() * length; }
  /// The size of one contiguous copy of q, k, v or o with all heads.
  [[nodiscard]] std::int64_t head_elements() const { return score_rows() * head_dim; }
};

/// PyTorch's defaults, but for the learning rate: so small that a model on random data stays as it
/// is, however many steps are timed. The time of an update does not depend on it.
struct AdamW {
  float learning_rate = 1e-6F;
  float beta1 = 0.9F;
  float beta2 = 0.999F;
  float epsilon = 1e-8F;
  float weight_decay = 0.01F;
};

}  // namespace stepsim
