#include "sim/parallel/fsdp2/unit_bytes.h"

namespace stepsim {

UnitBytes bytes_of(const ShardUnit& unit, int shards) {
  UnitBytes bytes;
  for (const ShardedTensor& tensor : unit.tensors) {
    const auto elements = static_cast<double>(padded_elements(tensor.shape, shards));
    const auto stored = static_cast<double>(element_size(tensor.stored));
    const auto gathered = static_cast<double>(element_size(tensor.gathered));
    bytes.stored_shard += elements * stored / shards;
    bytes.gathered += elements * gathered;
    bytes.casts = bytes.casts || tensor.gathered != tensor.stored;
    if (tensor.trainable && (tensor.used || unit.reduces_unused)) {
      const Dtype reduce = unit.reduce_dtype.value_or(tensor.stored);
      bytes.gradients += elements * gathered;
      bytes.reduced += elements * static_cast<double>(element_size(reduce));
      bytes.stored_gradient_shard += elements * stored / shards;
      bytes.casts_back = bytes.casts_back || reduce != tensor.stored;
    }
  }
  bytes.gathered_shard = bytes.gathered / shards;
  bytes.reduced_shard = bytes.reduced / shards;
  return bytes;
}

}  // namespace stepsim
