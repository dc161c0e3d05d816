#pragma once

#include <cstdint>
#include <span>

#include "calibrate/cuda/device/device.h"
#include "calibrate/cuda/kernels/kernels.h"
#include "calibrate/training/random_stream.h"

namespace stepsim::cuda {

/// How large a batch is.
struct BatchSize {
  std::int64_t samples = 0;
  std::int64_t length = 0;  ///< Padded, or the longest when packed.
  std::int64_t rows = 0;    ///< Padding included, where there is any.
  std::int64_t useful_tokens = 0;
  bool packed = false;
  [[nodiscard]] bool has_padding() const { return useful_tokens < rows; }
};
/// Padded to the longest or to `padded_length` where that is more; or packed, without padding.
[[nodiscard]] BatchSize batch_size(std::span<const std::int64_t> lengths,
                                   std::int64_t padded_length,
                                   bool packed);

/// A batch of random tokens on the device. Rows are [sample * length + position], or without
/// padding one document after the other when packed.
class Batch {
 public:
  /// Builds the batch on the host as a data loader's collate function does, then copies it to the
  /// device: random ids, labels and, unless `packed`, padding to the longest sample or to
  /// `padded_length` where that is more. Reuses memory; waits for nothing, so that the batch before
  /// must be done.
  ///
  /// Draws the numbers of the CPU backend's batches. Returns: host seconds, without the copy.
  double collate(const Stream& stream,
                 std::span<const std::int64_t> lengths,
                 std::int64_t padded_length,
                 bool packed,
                 std::int64_t vocab,
                 std::int64_t labels,
                 RandomStream& random);

  /// Factor of the loss in the following backward; 1 until set.
  void set_loss_scale(double scale) { loss_scale_ = scale; }
  [[nodiscard]] double loss_scale() const { return loss_scale_; }

  [[nodiscard]] const BatchSize& size() const { return size_; }

  // Device arrays.
  [[nodiscard]] const std::int32_t* ids() const { return ids_; }              ///< [row]
  [[nodiscard]] const std::int32_t* positions() const { return positions_; }  ///< [row]
  [[nodiscard]] const std::int32_t* types() const { return types_; }          ///< [row] all 0.
  /// [row] The next token, kNoTarget on padding.
  [[nodiscard]] const std::int32_t* targets() const { return targets_; }
  [[nodiscard]] const std::int32_t* labels() const { return labels_; }    ///< [sample]
  [[nodiscard]] const std::int32_t* lengths() const { return lengths_; }  ///< [sample]
  /// [sample + 1] First row of each document, cu_seqlens.
  [[nodiscard]] const std::int32_t* offsets() const { return offsets_; }

  [[nodiscard]] SequenceRows sequences() const {
    return {size_.samples, size_.length, size_.packed ? offsets_ : nullptr, lengths_};
  }

 private:
  void place_arrays();

  BatchSize size_;
  double loss_scale_ = 1;
  HostBuffer staging_;  ///< All arrays, one behind the other.
  DeviceBuffer memory_;
  std::int32_t* ids_ = nullptr;
  std::int32_t* positions_ = nullptr;
  std::int32_t* types_ = nullptr;
  std::int32_t* targets_ = nullptr;
  std::int32_t* labels_ = nullptr;
  std::int32_t* lengths_ = nullptr;
  std::int32_t* offsets_ = nullptr;
};

}  // namespace stepsim::cuda
