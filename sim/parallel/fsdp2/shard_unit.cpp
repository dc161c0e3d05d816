#include "sim/parallel/fsdp2/shard_unit.h"

#include <algorithm>

#include "costmodel/base/mapped.h"

namespace stepsim {
namespace {

/// The buffer of tensors that take part, each as so many elements of a type.
class BufferSum {
 public:
  void add(std::int64_t elements, Dtype dtype) {
    mixed_ = mixed_ || (any_ && dtype != dtype_);
    any_ = true;
    dtype_ = dtype;
    elements_ += elements;
    bytes_ += elements * element_size(dtype);
  }

  [[nodiscard]] ShardBuffer buffer() const {
    return mixed_ ? ShardBuffer{bytes_, std::nullopt} : ShardBuffer{elements_, dtype_};
  }

 private:
  bool any_ = false;
  bool mixed_ = false;
  Dtype dtype_ = Dtype::F32;
  std::int64_t elements_ = 0;
  std::int64_t bytes_ = 0;
};

}  // namespace

std::int64_t padded_elements(const std::vector<std::int64_t>& shape, int ranks) {
  if (shape.empty()) {
    return 0;  // fully_shard refuses tensors without a dimension.
  }
  const std::int64_t rows = (shape.front() + ranks - 1) / ranks * ranks;
  std::int64_t elements = rows;
  std::for_each(shape.begin() + 1, shape.end(), [&](std::int64_t size) { elements *= size; });
  return elements;
}

std::int64_t ShardBuffer::bytes() const {
  return dtype ? elements * element_size(*dtype) : elements;
}

ShardBuffer gathered_buffer(const ShardUnit& unit, int ranks) {
  BufferSum sum;
  for (const ShardedTensor& tensor : unit.tensors) {
    sum.add(padded_elements(tensor.shape, ranks), tensor.gathered);
  }
  return sum.buffer();
}

ShardBuffer reduced_buffer(const ShardUnit& unit, int ranks, bool newest) {
  BufferSum sum;
  for (const ShardedTensor& tensor : unit.tensors) {
    if (tensor.trainable && (tensor.used || unit.reduces_unused)) {
      sum.add(padded_elements(tensor.shape, ranks),
              unit.reduce_dtype.value_or(newest ? tensor.stored : tensor.gathered));
    }
  }
  return sum.buffer();
}

}  // namespace stepsim
