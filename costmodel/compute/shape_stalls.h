#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "costmodel/compute/shape_cache.h"
#include "costmodel/compute/shape_cost.h"
#include "costmodel/model/batch_shape.h"

namespace stepsim {

/// What first meetings of shapes add to a micro-batch of a rank, before its first kernel of a pass.
struct ShapeStall {
  double forward_host = 0;  ///< Seconds, as all times here.
  double forward_device = 0;
  double backward_host = 0;
  double backward_device = 0;
  int builds = 0;   ///< First meetings, over all mechanisms.
  double load = 1;  ///< How much longer the passes take: a compiler gave up.

  [[nodiscard]] double seconds() const {
    return forward_host + forward_device + backward_host + backward_device;
  }
};

/// Raises InputError: a mechanism exists on GPUs alone, and ranks compute on their processors.
void check_mechanisms(std::span<const ShapeCost> costs, bool host_is_device);

/// The standard deviation, as a fraction, of all the time that first meetings cost.
[[nodiscard]] double shape_error(std::span<const ShapeCost> costs,
                                 std::span<const ShapeStall> stalls);

/// Plays the caches of `ranks` ranks through a run. `shapes`: by step, rank and micro-batch; a rank
/// without inputs has a shape without samples. Each rank has caches of its own, unless a mechanism
/// is shared. Returns one stall for each shape. Raises InputError: the caches hold more than
/// `most_cached` together.
[[nodiscard]] std::vector<ShapeStall> shape_stalls(std::span<const ShapeCost> costs,
                                                   std::span<const BatchShape> shapes,
                                                   int ranks,
                                                   int micro_batches,
                                                   std::size_t most_cached = kMaxCachedShapes);

}  // namespace stepsim
