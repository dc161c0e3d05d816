#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "calibrate/training/random_stream.h"
#include "costmodel/model/transformer.h"

namespace stepsim::cpu {

/// A padded batch of random tokens; token arrays are [sample * length + position].
struct Batch {
  std::int64_t samples = 0;
  std::int64_t length = 0;  ///< Padded.
  std::vector<std::int64_t> lengths;
  std::vector<std::int32_t> ids;
  std::vector<std::int32_t> positions;
  std::vector<std::int32_t> types;    ///< Token types: all 0 (one segment).
  std::vector<std::int32_t> targets;  ///< Next token, kNoTarget on padding.
  std::vector<std::int32_t> labels;   ///< [sample]
  std::vector<float> pool_weights;    ///< 1/length on useful tokens, 0 on padding.
  std::vector<float> padding_bias;    ///< 0 on useful tokens, kMasked on padding.
  double loss_scale = 1;

  [[nodiscard]] std::int64_t tokens() const { return samples * length; }
};

/// What the model trains on.
struct TargetRange {
  std::int64_t vocab = 0;
  std::int64_t labels = 0;  ///< Classes of a sample's label.
};

/// Builds the batch as a data loader's collate function does: random ids, labels, padding (to the
/// longest sample, or to `padded_length` where that is more), masks. Reuses the batch's memory.
void collate(Batch& batch,
             std::span<const std::int64_t> lengths,
             std::int64_t padded_length,
             TargetRange range,
             RandomStream& random);

}  // namespace stepsim::cpu
