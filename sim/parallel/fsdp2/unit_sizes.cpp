#include "sim/parallel/fsdp2/unit_sizes.h"

#include "costmodel/model/transformer.h"

namespace stepsim {

UnitSizes sizes_of(const ShardUnit& unit, int shards) {
  UnitSizes sizes;
  for (const ShardedTensor& tensor : unit.tensors) {
    const std::int64_t padded = padded_elements(tensor.shape, shards);
    const std::int64_t elements = elements_of(tensor.shape);
    const std::int64_t size = element_size(tensor.gathered);
    const Dtype reduce = unit.reduce_dtype.value_or(tensor.stored);
    TensorBytes bytes;
    bytes.stored_shard = padded / shards * element_size(tensor.stored);
    bytes.gathered = padded * size;
    bytes.gradient = elements * size;
    bytes.kept = elements * element_size(reduce);
    bytes.cast = tensor.gathered != tensor.stored;
    bytes.has_gradient = tensor.trainable && tensor.used;
    sizes.gathered += bytes.gathered;
    sizes.cast += bytes.cast ? bytes.gathered : 0;
    if (tensor.trainable && (tensor.used || unit.reduces_unused)) {
      sizes.reduced += padded * element_size(reduce);
      sizes.stored_gradient_shard += bytes.stored_shard;
      sizes.casts_back = sizes.casts_back || reduce != tensor.stored;
    }
    sizes.tensors.push_back(bytes);
  }
  sizes.reduced_shard = sizes.reduced / shards;
  return sizes;
}

}  // namespace stepsim
