#pragma once

#include "sim/parallel/fsdp2/shard_unit.h"

namespace stepsim {

/// Bytes that the collectives of a unit and the copies around them move on a rank.
struct UnitBytes {
  double stored_shard = 0;    ///< Of the parameters' own type,
  double gathered_shard = 0;  ///< and of the gathered one.
  double gathered = 0;
  double gradients = 0;  ///< Of those with a gradient, in the gathered type;
  double reduced = 0;    ///< in the type of the reduction;
  double reduced_shard = 0;
  double stored_gradient_shard = 0;  ///< in their own type.
  bool casts = false;                ///< The parameters are cast before they are gathered.
  bool casts_back = false;           ///< The reduced gradients are cast.
};

/// Those of a unit that is sharded over so many ranks.
[[nodiscard]] UnitBytes bytes_of(const ShardUnit& unit, int shards);

}  // namespace stepsim
