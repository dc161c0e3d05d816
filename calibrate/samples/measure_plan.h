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

/// A collective to time: one call by itself, or calls back to back.
struct CollectiveTask {
  CollectiveKind kind = CollectiveKind::AllReduce;
  std::int64_t bytes = 0;  ///< Of the whole buffer.
  bool pipelined = false;
  auto operator<=>(const CollectiveTask&) const = default;
};

/// Everything that decides what is measured; kept in the samples file, so that a killed run goes on
/// with the same plan.
struct MeasurePlan {
  TransformerConfig model;
  int ranks = 1;
  int nodes = 1;  ///< Machines that the ranks are on.
  std::string device = "cpu";
  std::uint64_t seed = 0;
  double budget_seconds = 60;
  GridBox box;
  std::vector<GridPoint> points;
  int passes = 3;       ///< Most times the grid is measured; each pass is a new group of processes.
  int repetitions = 3;  ///< Steps timed per point and pass, after one warm-up.
  double target = 0.01;  ///< Relative standard error of a point's median step that is enough.
  std::vector<CollectiveKind> collectives;
  std::vector<std::int64_t> collective_bytes;
  std::vector<std::vector<int>> buckets;  ///< Parameter indices in launch order.
  bool operator==(const MeasurePlan&) const = default;
};

/// The plan as a member of the samples file's header, and back. Raises InputError.
[[nodiscard]] Json plan_json(const MeasurePlan& plan);
[[nodiscard]] MeasurePlan measure_plan_from_json(const Json& json,
                                                 const std::string& file,
                                                 int line);

/// DDP's default buckets: parameters in the order their gradients become ready, a first bucket of
/// 1 MiB, then `cap`; a bucket closes when it has reached its cap.
/// Source: torch.nn.parallel.DistributedDataParallel, bucket_cap_mb = 25.
[[nodiscard]] std::vector<std::vector<int>> buckets_by_cap(const TransformerConfig& model,
                                                           Bytes first_cap,
                                                           Bytes cap);

/// [bucket] Bytes of its gradients.
[[nodiscard]] std::vector<std::int64_t> bucket_bytes(const TransformerConfig& model,
                                                     const std::vector<std::vector<int>>& buckets);

/// Sizes of collectives: from 1 KiB doubling to 64 MiB, or past the largest bucket, and the
/// buckets' own, ascending. None for one rank.
[[nodiscard]] std::vector<std::int64_t> collective_sizes(
    const TransformerConfig& model, const std::vector<std::vector<int>>& buckets, int ranks);

}  // namespace stepsim
