#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "costmodel/model/transformer.h"

namespace stepsim {

/// A parameter of a unit of fully_shard.
struct ShardedTensor {
  std::string name;
  std::vector<std::int64_t> shape;
  Dtype stored = Dtype::F32;    ///< Of the shard, the optimizer and the final gradient.
  Dtype gathered = Dtype::F32;  ///< MixedPrecisionPolicy's param_dtype, or the stored one.
  bool trainable = true;
  bool used = true;  ///< false: no rank's forward uses it, and it gets no gradient.
};

/// Elements of a tensor with every rank's rows padded to the same number: dimension 0 is cut into
/// ceil(rows / ranks) rows a rank. PyTorch stores, gathers and reduces that many.
[[nodiscard]] std::int64_t padded_elements(const std::vector<std::int64_t>& shape, int ranks);

/// What one call of fully_shard makes a group of: the parameters that are gathered and reduced by
/// one collective each.
struct ShardUnit {
  std::string name;
  std::vector<ShardedTensor> tensors;  ///< In the order of the buffers.
  bool reshard_after_forward = true;   ///< Freed after the forward, and gathered again.
  /// Instead of being freed it is cut to this rank's slice among so many; 0: it is freed.
  int slice_ranks = 0;
  std::optional<Dtype> reduce_dtype;   ///< None: by the version, see reduce_type().
  std::vector<int> forward_prefetch;   ///< Units of an explicit list, by index.
  std::vector<int> backward_prefetch;  ///< Of an explicit list, in place of the one before.
  bool unshard_in_backward = true;     ///< false: its backward does not need the weights.
  bool reduces_unused = false;         ///< set_reduce_scatter_unused_params
  bool returns_inner_output = false;   ///< It returns the output of its last inner unit as it is.
  bool own_parameters_first = true;    ///< It computes with its own before its inner units.
};

/// Sizes of a unit's collectives.
struct ShardBuffer {
  std::int64_t elements = 0;   ///< Of all ranks; bytes where there is no one type.
  std::optional<Dtype> dtype;  ///< None: tensors of several types, as bytes.

  [[nodiscard]] std::int64_t bytes() const;
};

/// What an all-gather of the unit among `ranks` leaves on every one of them.
[[nodiscard]] ShardBuffer gathered_buffer(const ShardUnit& unit, int ranks);

/// What a reduce-scatter of the unit's gradients among `ranks` takes from every one of them.
/// `newest`: PyTorch 2.15, which reduces in the stored type unless told otherwise; older ones do in
/// the gathered one.
[[nodiscard]] ShardBuffer reduced_buffer(const ShardUnit& unit, int ranks, bool newest = true);

}  // namespace stepsim
