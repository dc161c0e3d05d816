#include "calibrate/cuda/training/batch.h"

#include <algorithm>

#include "calibrate/training/clock.h"

namespace stepsim::cuda {
namespace {

/// Arrays start on 16 bytes, so that kernels may load them in vectors.
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

double Batch::collate(const Stream& stream,
                      std::span<const std::int64_t> lengths,
                      std::int64_t padded_length,
                      bool packed,
                      std::int64_t vocab,
                      std::int64_t labels,
                      RandomStream& random) {
  const double start = clock_seconds();
  size_ = batch_size(lengths, padded_length, packed);
  place_arrays();
  const auto on_host = [&](const std::int32_t* device) {
    return staging_.as<std::int32_t>() + (device - memory_.as<std::int32_t>());
  };
  std::int32_t* ids = on_host(ids_);
  std::int32_t* positions = on_host(positions_);
  std::int32_t* targets = on_host(targets_);
  std::fill_n(on_host(types_), size_.rows, 0);
  std::int32_t row = 0;
  for (std::size_t sample = 0; sample < lengths.size(); ++sample) {
    const auto useful = static_cast<std::int32_t>(lengths[sample]);
    const auto padded = packed ? useful : static_cast<std::int32_t>(size_.length);
    on_host(lengths_)[sample] = useful;
    on_host(offsets_)[sample] = row;
    std::int32_t id = random.below(vocab);
    for (std::int32_t position = 0; position < padded; ++position, ++row) {
      positions[row] = position;
      ids[row] = position < useful ? id : 0;
      id = position < useful ? random.below(vocab) : id;
      targets[row] = position < useful ? id : kNoTarget;
    }
    on_host(labels_)[sample] = random.below(labels);
  }
  on_host(offsets_)[lengths.size()] = row;
  const double seconds = clock_seconds() - start;
  const auto used =
      static_cast<std::size_t>(offsets_ + size_.samples + 1 - memory_.as<std::int32_t>());
  copy_to_device(stream, memory_.data(), staging_.as<void>(), used * sizeof(std::int32_t));
  return seconds;
}

void Batch::place_arrays() {
  const std::size_t per_row = whole_vectors(size_.rows);
  const std::size_t per_sample = whole_vectors(size_.samples + 1);
  const std::size_t bytes = (4 * per_row + 3 * per_sample) * sizeof(std::int32_t);
  staging_.reserve(bytes);
  memory_.reserve(bytes);
  auto* next = memory_.as<std::int32_t>();
  for (std::int32_t** array : {&ids_, &positions_, &types_, &targets_}) {
    *array = next;
    next += per_row;
  }
  for (std::int32_t** array : {&labels_, &lengths_, &offsets_}) {
    *array = next;
    next += per_sample;
  }
}

}  // namespace stepsim::cuda
