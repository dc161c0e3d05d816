#pragma once

#include <cstdint>
#include <vector>

#include "sim/parallel/fsdp2/shard_unit.h"

namespace stepsim {

/// Bytes of one tensor's parts.
struct TensorBytes {
  std::int64_t stored_shard = 0;
  std::int64_t gathered = 0;  ///< Padded.
  std::int64_t gradient = 0;  ///< Unpadded, as autograd makes it, in the gathered type;
  std::int64_t kept = 0;      ///< in the type of the reduction.
  bool cast = false;          ///< It is gathered in another type than its own.
  bool has_gradient = false;
};

/// Bytes of one unit's parts on a rank.
struct UnitSizes {
  std::vector<TensorBytes> tensors;
  std::int64_t gathered = 0;
  std::int64_t cast = 0;                   ///< Of the gathered bytes: those of cast tensors.
  std::int64_t reduced = 0;                ///< The input of its reduce-scatter,
  std::int64_t reduced_shard = 0;          ///< and its output.
  std::int64_t stored_gradient_shard = 0;  ///< In the parameters' own types.
  bool casts_back = false;                 ///< The reduced gradients are cast.
};

/// Returns the sizes of a unit that is sharded over so many ranks.
[[nodiscard]] UnitSizes sizes_of(const ShardUnit& unit, int shards);

}  // namespace stepsim
