#include "costmodel/compute/shape_stalls.h"

#include <algorithm>

#include <fmt/format.h>

#include "costmodel/base/index.h"
#include "costmodel/base/input_error.h"
#include "costmodel/compute/shape_cache.h"

namespace stepsim {
namespace {

void add_build(const ShapeCost& cost, ShapeStall& stall) {
  stall.forward_host += cost.forward_seconds;
  stall.forward_device += cost.forward_device_seconds;
  stall.backward_host += cost.backward_seconds;
  stall.backward_device += cost.backward_device_seconds;
  ++stall.builds;
}

/// The caches of one mechanism: one, or one a rank.
class MechanismCaches {
 public:
  MechanismCaches(const ShapeCost& cost, int ranks)
      : cost_(cost), caches_(cost.shared ? 1 : at(ranks), ShapeCache(cost)) {}

  /// Adds what the shapes of all ranks' next micro-batches cost. Ranks that meet a shape at the
  /// same time build it side by side, shared or not.
  void meet(std::span<const BatchShape* const> shapes, std::span<ShapeStall* const> stalls) {
    known_.assign(shapes.size(), false);
    for (std::size_t rank = 0; rank < shapes.size(); ++rank) {
      known_[rank] = cache(rank).knows(*shapes[rank]);
    }
    for (std::size_t rank = 0; rank < shapes.size(); ++rank) {
      cache(rank).meet(*shapes[rank]);
      if (cache(rank).gave_up()) {
        stalls[rank]->load *= cost_.uncompiled_factor;
      } else if (!known_[rank]) {
        add_build(cost_, *stalls[rank]);
      }
    }
  }

  [[nodiscard]] std::size_t size() const {
    std::size_t sum = 0;
    for (const ShapeCache& cache : caches_) {
      sum += cache.size();
    }
    return sum;
  }

 private:
  ShapeCache& cache(std::size_t rank) { return caches_[cost_.shared ? 0 : rank]; }

  ShapeCost cost_;
  std::vector<ShapeCache> caches_;
  std::vector<bool> known_;
};

void check_size(const std::vector<MechanismCaches>& mechanisms, std::size_t most) {
  std::size_t size = 0;
  for (const MechanismCaches& mechanism : mechanisms) {
    size += mechanism.size();
  }
  if (size > most) {
    throw InputError(
        "the caches of all ranks would hold more than {} shapes, some {} MiB; simulate fewer steps "
        "or ranks, or give the mechanisms a number of `entries`",
        most,
        (most * kCachedShapeBytes) >> 20U);
  }
}

}  // namespace

void check_mechanisms(std::span<const ShapeCost> costs, bool host_is_device) {
  for (const ShapeCost& cost : costs) {
    const bool of_gpu = cost.mechanism == "attention_plan" || cost.mechanism == "cuda_graph" ||
                        cost.mechanism == "gemm_heuristics";
    if (host_is_device && of_gpu) {
      throw InputError(
          "[new_shapes] has mechanism '{}', which GPUs have, but the profile is of ranks that "
          "compute on their processors; leave it out, or take a profile of a GPU",
          cost.mechanism);
    }
  }
}

double shape_error(std::span<const ShapeCost> costs, std::span<const ShapeStall> stalls) {
  const bool any = std::ranges::any_of(stalls, [](const ShapeStall& s) { return s.builds > 0; });
  double error = 0;
  double seconds = 0;
  for (const ShapeCost& cost : costs) {
    error += cost.relative_error * cost.seconds();
    seconds += cost.seconds();
  }
  return any && seconds > 0 ? error / seconds : 0;
}

std::vector<ShapeStall> shape_stalls(std::span<const ShapeCost> costs,
                                     std::span<const BatchShape> shapes,
                                     int ranks,
                                     int micro_batches,
                                     std::size_t most_cached) {
  std::vector<ShapeStall> stalls(shapes.size());
  std::vector<MechanismCaches> mechanisms;
  for (const ShapeCost& cost : costs) {
    mechanisms.emplace_back(cost, ranks);
  }
  std::vector<const BatchShape*> together(at(ranks));
  std::vector<ShapeStall*> of_ranks(at(ranks));
  const std::size_t per_step = at(ranks) * at(micro_batches);
  for (std::size_t first = 0; first + per_step <= shapes.size(); first += per_step) {
    for (std::size_t m = 0; m < at(micro_batches); ++m) {
      for (std::size_t rank = 0; rank < at(ranks); ++rank) {
        const std::size_t index = first + rank * at(micro_batches) + m;
        together[rank] = &shapes[index];
        of_ranks[rank] = &stalls[index];
      }
      for (MechanismCaches& mechanism : mechanisms) {
        mechanism.meet(together, of_ranks);
      }
    }
    check_size(mechanisms, most_cached);
  }
  return stalls;
}

}  // namespace stepsim
