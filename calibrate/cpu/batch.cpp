#include "calibrate/cpu/batch.h"

#include <algorithm>

#include "calibrate/cpu/attention.h"
#include "calibrate/cpu/loss.h"

namespace stepsim::cpu {

void collate(Batch& batch,
             std::span<const std::int64_t> lengths,
             std::int64_t padded_length,
             TargetRange range,
             RandomStream& random) {
  batch.samples = static_cast<std::int64_t>(lengths.size());
  batch.length = 0;
  for (const std::int64_t length : lengths) {
    batch.length = std::max({batch.length, length, padded_length});
  }
  batch.lengths.assign(lengths.begin(), lengths.end());
  const auto tokens = static_cast<std::size_t>(batch.tokens());
  batch.ids.assign(tokens, 0);
  batch.positions.resize(tokens);
  batch.types.assign(tokens, 0);
  batch.targets.assign(tokens, kNoTarget);
  batch.pool_weights.assign(tokens, 0.0F);
  batch.padding_bias.assign(tokens, kMasked);
  batch.labels.resize(lengths.size());
  std::size_t row = 0;
  for (std::size_t sample = 0; sample < lengths.size(); ++sample) {
    const auto useful = static_cast<std::size_t>(lengths[sample]);
    const float weight = 1.0F / static_cast<float>(useful);
    std::int32_t id = random.below(range.vocab);
    for (std::size_t position = 0; position < useful; ++position) {
      const std::int32_t following = random.below(range.vocab);
      batch.ids[row + position] = id;
      batch.targets[row + position] = following;
      batch.pool_weights[row + position] = weight;
      batch.padding_bias[row + position] = 0.0F;
      id = following;
    }
    for (std::int32_t position = 0; position < batch.length; ++position) {
      batch.positions[row + static_cast<std::size_t>(position)] = position;
    }
    batch.labels[sample] = random.below(range.labels);
    row += static_cast<std::size_t>(batch.length);
  }
}

}  // namespace stepsim::cpu
