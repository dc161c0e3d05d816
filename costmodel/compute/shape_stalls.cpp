#include "costmodel/compute/shape_stalls.h"

#include <algorithm>

#include <fmt/format.h>

#include "costmodel/base/index.h"
#include "costmodel/base/input_error.h"
#include "costmodel/compute/rank_caches.h"

namespace stepsim {
namespace {

void add_build(const ShapeCost& cost, ShapeStall& stall) {
  stall.forward_host += cost.forward_seconds;
  stall.forward_device += cost.forward_device_seconds;
  stall.backward_host += cost.backward_seconds;
  stall.backward_device += cost.backward_device_seconds;
  ++stall.builds;
}

void check_size(const std::vector<RankCaches>& mechanisms, std::size_t most) {
  std::size_t size = 0;
  for (const RankCaches& mechanism : mechanisms) {
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
  std::vector<RankCaches> mechanisms;
  for (const ShapeCost& cost : costs) {
    mechanisms.emplace_back(cost, at(ranks));
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
      for (std::size_t i = 0; i < costs.size(); ++i) {
        const std::vector<bool>& builds = mechanisms[i].meet(together);
        for (std::size_t rank = 0; rank < at(ranks); ++rank) {
          if (builds[rank]) {
            add_build(costs[i], *of_ranks[rank]);
          }
          if (mechanisms[i].gave_up(rank)) {
            of_ranks[rank]->load *= costs[i].uncompiled_factor;
          }
        }
      }
    }
    check_size(mechanisms, most_cached);
  }
  return stalls;
}

}  // namespace stepsim
