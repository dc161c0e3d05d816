#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <iterator>

#include "calibrate/training/batch.h"
#include "calibrate/training/kernel_arguments.h"

namespace stepsim {

/// What a tensor has one row of features for.
enum class Extent {
  Tokens,
  Samples,
  Padded,  ///< samples x length, also when the batch is packed.
  Scores   ///< samples x length x length; the tensor's width is the number of heads.
};

/// A tensor of the step. Its gradient lives from its first use in the backward to its producer's.
template <typename Device>
struct Tensor {
  using Array = typename Device::Array;

  Extent extent = Extent::Tokens;
  std::int64_t width = 0;
  Dtype dtype = Dtype::F32;
  typename Device::Buffer data;
  typename Device::Buffer* gradient = nullptr;

  [[nodiscard]] Array array() const { return {data.data(), dtype}; }
  [[nodiscard]] Array gradient_array() const { return {gradient->data(), dtype}; }
  [[nodiscard]] float* floats() const { return data.template as<float>(); }
};

/// Where a gradient goes: its first consumer in backward order assigns it, later ones add to it.
template <typename Device>
struct GradientSlot {
  typename Device::Array array;
  Store store;
};

/// The tensors of a step and the memory of their gradients. Tensors of the same size share that
/// memory one after the other. Nothing is allocated once the largest batch has been seen.
template <typename Device>
class Workspace {
 public:
  explicit Workspace(const Batch<Device>& batch) : batch_(batch) {}

  Tensor<Device>& make(Extent extent, std::int64_t width, Dtype dtype) {
    Tensor<Device>& tensor = tensors_.emplace_back();
    tensor.extent = extent;
    tensor.width = width;
    tensor.dtype = dtype;
    return tensor;
  }

  [[nodiscard]] std::int64_t rows(const Tensor<Device>& tensor) const {
    const BatchSize& size = batch_.size();
    switch (tensor.extent) {
      case Extent::Tokens:
        return size.rows;
      case Extent::Samples:
        return size.samples;
      case Extent::Padded:
        return size.samples * size.length;
      case Extent::Scores:
        return size.rows * size.length;
    }
    return 0;
  }
  [[nodiscard]] std::int64_t elements(const Tensor<Device>& tensor) const {
    return rows(tensor) * tensor.width;
  }

  /// Gives back all memory and forgets the gradients of a step that did not end.
  void release() {
    for (Tensor<Device>& tensor : tensors_) {
      tensor.data.release();
      tensor.gradient = nullptr;
    }
    blocks_.clear();
  }

  /// The tensor's memory for this batch, to be written.
  typename Device::Array write(Tensor<Device>& tensor) const {
    tensor.data.reserve(bytes(tensor));
    return tensor.array();
  }

  GradientSlot<Device> write_gradient(Tensor<Device>& tensor) {
    if (tensor.gradient != nullptr) {
      return {tensor.gradient_array(), Store::Add};
    }
    auto found = std::ranges::find_if(blocks_, [&tensor](const Block& block) {
      return !block.used && block.extent == tensor.extent && block.width == tensor.width;
    });
    if (found == blocks_.end()) {
      blocks_.emplace_back(Block{tensor.extent, tensor.width, false, {}});
      found = std::prev(blocks_.end());
    }
    found->used = true;
    found->buffer.reserve(bytes(tensor));
    tensor.gradient = &found->buffer;
    return {tensor.gradient_array(), Store::Assign};
  }

  void release_gradient(Tensor<Device>& tensor) {
    for (Block& block : blocks_) {
      if (&block.buffer == tensor.gradient) {
        block.used = false;
      }
    }
    tensor.gradient = nullptr;
  }

  /// The gradient of a sum is the gradient of one of its terms: it changes hands without a copy.
  static void move_gradient(Tensor<Device>& from, Tensor<Device>& to) {
    to.gradient = from.gradient;
    from.gradient = nullptr;
  }

 private:
  struct Block {
    Extent extent;
    std::int64_t width;
    bool used;
    typename Device::Buffer buffer;
  };

  [[nodiscard]] std::size_t bytes(const Tensor<Device>& tensor) const {
    return static_cast<std::size_t>(elements(tensor) * element_size(tensor.dtype));
  }

  const Batch<Device>& batch_;
  std::deque<Tensor<Device>> tensors_;  // References to elements stay valid.
  std::deque<Block> blocks_;
};

}  // namespace stepsim
