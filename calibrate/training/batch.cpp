#include "calibrate/training/batch.h"

#include <algorithm>

namespace stepsim {
namespace {

/// Arrays start at multiples of 16 bytes, so that kernels may load them in vectors.
std::size_t whole_vectors(std::int64_t elements) {
  return (static_cast<std::size_t>(elements) + 3) / 4 * 4;
}

}  // namespace

BatchSize batch_size(std::span<const std::int64_t> lengths,
                     std::int64_t padded_length,
                     bool packed) {
  BatchSize size;
  size.samples = static_cast<std::int64_t>(lengths.size());
  size.packed = packed;
  size.length = packed ? 0 : padded_length;
  for (const std::int64_t length : lengths) {
    size.length = std::max(size.length, length);
    size.useful_tokens += length;
  }
  size.rows = packed ? size.useful_tokens : size.samples * size.length;
  return size;
}

BatchArrays::BatchArrays(const BatchSize& size, std::int32_t* block) {
  for (std::int32_t** array : {&ids, &positions, &types, &targets}) {
    *array = block;
    block += whole_vectors(size.rows);
  }
  for (std::int32_t** array : {&labels, &lengths, &offsets}) {
    *array = block;
    block += whole_vectors(size.samples + 1);
  }
}

std::size_t BatchArrays::bytes(const BatchSize& size) {
  return (4 * whole_vectors(size.rows) + 3 * whole_vectors(size.samples + 1)) *
         sizeof(std::int32_t);
}

void fill_batch(const BatchArrays& arrays,
                const BatchSize& size,
                std::span<const std::int64_t> lengths,
                TargetRange range,
                RandomStream& random) {
  std::fill_n(arrays.types, size.rows, 0);
  std::int32_t row = 0;
  for (std::size_t sample = 0; sample < lengths.size(); ++sample) {
    const auto useful = static_cast<std::int32_t>(lengths[sample]);
    const auto padded = size.packed ? useful : static_cast<std::int32_t>(size.length);
    arrays.lengths[sample] = useful;
    arrays.offsets[sample] = row;
    std::int32_t id = random.below(range.vocab);
    for (std::int32_t position = 0; position < padded; ++position, ++row) {
      arrays.positions[row] = position;
      arrays.ids[row] = position < useful ? id : 0;
      id = position < useful ? random.below(range.vocab) : id;
      arrays.targets[row] = position < useful ? id : kNoTarget;
    }
    arrays.labels[sample] = random.below(range.labels);
  }
  arrays.offsets[lengths.size()] = row;
}

}  // namespace stepsim
