#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <vector>

#include "calibrate/samples/grid.h"
#include "costmodel/io/json_file.h"
#include "costmodel/model/transformer.h"
#include "costmodel/network/collective_cost.h"

namespace stepsim {

/// A collective to time.
struct CollectiveTask {
  CollectiveKind kind = CollectiveKind::AllReduce;
  std::int64_t bytes = 0;  ///< Size of the whole buffer.
  bool pipelined = false;  ///< Calls are timed back to back, instead of one by itself.
  // NOLINTNEXTLINE(modernize-use-nullptr): clang-tidy 14 takes the 0 of the comparison for one.
  auto operator<=>(const CollectiveTask&) const = default;
};

/// Everything that decides what is measured. The samples file keeps it, so that a killed run goes
/// on with the same plan.
struct MeasurePlan {
  TransformerConfig model;
  int ranks = 1;
  int nodes = 1;  ///< Machines that the ranks are on.
  std::string device = "cpu";
  std::uint64_t seed = 0;
  double budget_seconds = 60;
  GridBox box;
  std::vector<GridPoint> points;
  int passes = 3;        ///< The most passes over the grid; each is a new group of processes.
  int repetitions = 3;   ///< Steps timed per point and pass, after one warm-up.
  double target = 0.01;  ///< A point is done when its median step has this relative error.
  std::vector<CollectiveKind> collectives;
  std::vector<std::int64_t> collective_bytes;
  std::vector<std::vector<int>> buckets;  ///< Parameter indices in launch order.
  bool operator==(const MeasurePlan&) const = default;
};

/// Writes the plan as a member of the samples file's header.
[[nodiscard]] Json plan_json(const MeasurePlan& plan);
/// Reads what plan_json() writes. Raises InputError.
[[nodiscard]] MeasurePlan measure_plan_from_json(const Json& json,
                                                 const std::string& file,
                                                 int line);

/// Fills buckets as DDP does: with parameters in the order their gradients become ready. A bucket
/// closes when it has reached its cap: `first_cap` for the first one, `cap` for the others.
/// Source: torch.nn.parallel.DistributedDataParallel, bucket_cap_mb = 25.
[[nodiscard]] std::vector<std::vector<int>> buckets_by_cap(const TransformerConfig& model,
                                                           Bytes first_cap,
                                                           Bytes cap);

/// The bytes of each bucket's gradients, by bucket.
[[nodiscard]] std::vector<std::int64_t> bucket_bytes(const TransformerConfig& model,
                                                     const std::vector<std::vector<int>>& buckets);

/// The sizes at which collectives are timed, ascending: from 1 KiB doubling to 64 MiB, or past the
/// largest bucket if that is more, and the sizes of the buckets. One rank has none.
[[nodiscard]] std::vector<std::int64_t> collective_sizes(
    const TransformerConfig& model, const std::vector<std::vector<int>>& buckets, int ranks);

}  // namespace stepsim
