#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace stepsim {

/// What a rank's bytes are held for. Activations are the model's, and none of these.
enum class HeldFor {
  Parameters,     ///< The shard, padded to as many rows on every rank; none with offload.
  Gathered,       ///< Whole units.
  Slices,         ///< What integer `reshard_after_forward` leaves of a unit.
  GatherBuffers,  ///< Outputs of all-gathers that have not been freed.
  /// Shards in the gathered type, or from the host, while they are copied into a gather, and
  /// reduced gradients in the parameters' type until they are added or on the host.
  CastBuffers,
  Gradients,           ///< Of whole tensors, from this backward.
  UnreducedGradients,  ///< Of whole tensors, which micro-batches without reduction have left.
  ReduceInputs,        ///< Inputs of reduce-scatters that are held.
  ReduceOutputs,       ///< Their outputs, on the way into the shard's gradients.
  PartialGradients,    ///< Scattered ones that wait for an all-reduce among the replicas.
  ShardedGradients,
  Optimizer
};
constexpr std::size_t kHeldKinds = 12;

/// In words: "gathered parameters".
[[nodiscard]] std::string_view name_of(HeldFor kind);

/// Bytes by what they are held for.
class HeldBytes {
 public:
  [[nodiscard]] std::int64_t& operator[](HeldFor kind) {
    return bytes_[static_cast<std::size_t>(kind)];
  }
  [[nodiscard]] std::int64_t operator[](HeldFor kind) const {
    return bytes_[static_cast<std::size_t>(kind)];
  }
  [[nodiscard]] std::int64_t total() const;

 private:
  std::array<std::int64_t, kHeldKinds> bytes_{};
};

}  // namespace stepsim
