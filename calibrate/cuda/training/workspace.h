#pragma once

#include <cstdint>
#include <deque>

#include "calibrate/cuda/device/device.h"
#include "calibrate/cuda/kernels/kernels.h"
#include "calibrate/cuda/training/batch.h"

namespace stepsim::cuda {

/// What a value has one row of features for.
enum class Extent {
  Tokens,
  Samples,
  Padded,  ///< samples x length, also when the batch is packed.
  Scores   ///< samples x length x length; its width is the number of heads.
};

/// A tensor of the step. Its gradient lives from the first use in backward to its producer's.
struct Value {
  Extent extent = Extent::Tokens;
  std::int64_t width = 0;
  Dtype dtype = Dtype::F32;
  DeviceBuffer data;
  DeviceBuffer* gradient = nullptr;

  [[nodiscard]] Array array() const { return {data.data(), dtype}; }
  [[nodiscard]] Array gradient_array() const { return {gradient->data(), dtype}; }
};

/// Where to put a gradient: the first consumer in backward order assigns, later ones add.
struct GradientSlot {
  Array array;
  Store store;
};

/// The values of a step and the memory of their gradients, which values of the same size share one
/// after the other. Nothing is allocated once the largest batch has been seen.
class Workspace {
 public:
  explicit Workspace(const Batch& batch) : batch_(batch) {}

  Value& make(Extent extent, std::int64_t width, Dtype dtype);
  [[nodiscard]] std::int64_t rows(const Value& value) const;
  [[nodiscard]] std::int64_t elements(const Value& value) const {
    return rows(value) * value.width;
  }
  /// The value's data for this batch, to be written.
  Array write(Value& value) const;
  GradientSlot write_gradient(Value& value);
  void release_gradient(Value& value);
  /// The gradient of a sum is the gradient of one of its terms: it changes hands without a copy.
  static void move_gradient(Value& from, Value& to);

  /// Memory that one op uses and the next may write over; contents are lost when it grows.
  [[nodiscard]] Array scratch(std::int64_t elements, Dtype dtype);

 private:
  struct Block {
    Extent extent;
    std::int64_t width;
    bool used;
    DeviceBuffer buffer;
  };
  const Batch& batch_;
  std::deque<Value> values_;  // References to elements stay valid.
  std::deque<Block> blocks_;
  DeviceBuffer scratch_;
};

}  // namespace stepsim::cuda
