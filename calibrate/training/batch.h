#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "calibrate/training/kernel_arguments.h"
#include "calibrate/training/random_stream.h"

namespace stepsim {

/// How large a batch is.
struct BatchSize {
  std::int64_t samples = 0;
  std::int64_t length = 0;  ///< The padded length, or the longest sample of a packed batch.
  std::int64_t rows = 0;    ///< Tokens, padding included.
  std::int64_t useful_tokens = 0;
  bool packed = false;  ///< Token after token without padding, as varlen attention takes them.
  [[nodiscard]] bool has_padding() const { return useful_tokens < rows; }
};

/// Padded to the longest sample, or to `padded_length` where that is more; or packed.
[[nodiscard]] BatchSize batch_size(std::span<const std::int64_t> lengths,
                                   std::int64_t padded_length,
                                   bool packed);

/// Where the arrays of a batch lie in one block of memory. Rows are [sample * length + position],
/// or one document after the other when the batch is packed.
struct BatchArrays {
  BatchArrays() = default;
  BatchArrays(const BatchSize& size, std::int32_t* block);
  [[nodiscard]] static std::size_t bytes(const BatchSize& size);

  std::int32_t* ids = nullptr;        ///< [row]
  std::int32_t* positions = nullptr;  ///< [row]
  std::int32_t* types = nullptr;      ///< [row] Token types, all 0 (one segment).
  std::int32_t* targets = nullptr;    ///< [row] The next token; kNoTarget on padding.
  std::int32_t* labels = nullptr;     ///< [sample]
  std::int32_t* lengths = nullptr;    ///< [sample] Useful tokens.
  std::int32_t* offsets = nullptr;    ///< [sample + 1] First row of each sample, cu_seqlens.
};

/// The numbers that a batch draws from.
struct TargetRange {
  std::int64_t vocab = 0;
  std::int64_t labels = 0;  ///< Classes of a sample's label.
};

/// Fills arrays in host memory as a data loader's collate function does: random ids, labels and
/// padding.
void fill_batch(const BatchArrays& arrays,
                const BatchSize& size,
                std::span<const std::int64_t> lengths,
                TargetRange range,
                RandomStream& random);

/// A batch of random tokens in the device's memory; every device draws the same numbers.
template <typename Device>
class Batch {
 public:
  /// Builds the batch on the host and brings it to the device. Reuses memory and waits for nothing:
  /// the device must be done with the batch before.
  void collate(Device& device,
               const BatchSize& size,
               std::span<const std::int64_t> lengths,
               TargetRange range,
               RandomStream& random) {
    size_ = size;
    const std::size_t bytes = BatchArrays::bytes(size);
    staging_.reserve(bytes);
    const BatchArrays on_host(size, staging_.template as<std::int32_t>());
    fill_batch(on_host, size, lengths, range, random);
    arrays_ = BatchArrays(size, device.upload(memory_, staging_, bytes));
  }

  /// The factor of the loss in the following backward; 1 until set.
  void set_loss_scale(double scale) { loss_scale_ = scale; }
  [[nodiscard]] double loss_scale() const { return loss_scale_; }

  [[nodiscard]] const BatchSize& size() const { return size_; }
  /// In the device's memory.
  [[nodiscard]] const BatchArrays& arrays() const { return arrays_; }
  [[nodiscard]] SequenceRows sequences() const {
    return {size_.samples, size_.length, size_.packed ? arrays_.offsets : nullptr, arrays_.lengths};
  }

 private:
  BatchSize size_;
  double loss_scale_ = 1;
  typename Device::HostBuffer staging_;
  typename Device::Buffer memory_;  ///< Empty on a device that computes in host memory.
  BatchArrays arrays_;
};

}  // namespace stepsim
