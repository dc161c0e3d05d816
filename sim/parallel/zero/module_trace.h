#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "costmodel/model/transformer.h"
#include "sim/parallel/trained_model.h"

namespace stepsim {

/// The keys of DeepSpeed's ZeRO-3 that decide when things happen; sizes are elements.
struct ZeroOptions {
  int ranks = 1;
  std::int64_t prefetch_bucket = 50'000'000;     ///< stage3_prefetch_bucket_size
  std::int64_t persistence_threshold = 100'000;  ///< stage3_param_persistence_threshold
  std::int64_t max_live = 1'000'000'000;         ///< stage3_max_live_parameters
  std::int64_t max_reuse = 1'000'000'000;        ///< stage3_max_reuse_distance
  std::int64_t reduce_bucket = 500'000'000;      ///< reduce_bucket_size
  bool overlaps = true;                          ///< overlap_comm
  std::optional<Dtype> param_dtype = {};         ///< None: the parameters' own.
  std::optional<Dtype> reduce_dtype = {};        ///< None: param_dtype.
};

/// The forward of a module or its backward: kernels `first` to before `end` of that pass.
struct ModuleRun {
  int unit = 0;
  int first = 0;
  int end = 0;
  bool backward = false;
};

/// All runs of modules with parameters in a micro-batch, in order. A layer that is computed again
/// in the backward runs once more there.
[[nodiscard]] std::vector<ModuleRun> module_runs(const TrainedModel& model);

/// What a host does before a module runs. Numbers are parameters.
struct ModuleFetch {
  std::vector<int> fetched;     ///< Gathered now by one collective, since the module needs them.
  std::vector<int> awaited;     ///< The module's parameters that are on their way.
  std::vector<int> prefetched;  ///< Gathered by one collective for the runs to come.
};

/// The gathers of a micro-batch.
struct ModuleTrace {
  std::vector<ModuleFetch> fetches;  ///< [run]
  std::int64_t most_live = 0;        ///< Elements gathered, or on their way, at a time.
  std::int64_t largest_gather = 0;   ///< Elements of one collective.
};

/// Tells whether a parameter stays on all ranks: it has at most so many elements as the threshold.
[[nodiscard]] bool is_persistent(const TrainedModel& model,
                                 const ZeroOptions& options,
                                 int parameter);

/// Follows DeepSpeed through the runs of a micro-batch. `knows_trace` = false, in the first two
/// micro-batches of a training: each run gathers what it lacks, and all of it is freed after it.
/// True: after a run's own parameters, the next ones of the trace are gathered while fewer elements
/// than the prefetch bucket are, and than there is room below `max_live`; a parameter is freed
/// after a run unless it is used again within `max_reuse` elements of the trace. Persistent
/// parameters are always there.
[[nodiscard]] ModuleTrace module_trace(const TrainedModel& model,
                                       const std::vector<ModuleRun>& runs,
                                       const ZeroOptions& options,
                                       bool knows_trace);

/// [bucket] The parameters whose gradients are reduced together, in the order in which the backward
/// completes them: a bucket ends before the gradient that would make it larger than `bucket`
/// elements. A larger gradient is alone.
[[nodiscard]] std::vector<std::vector<int>> reduce_buckets(const TrainedModel& model,
                                                           std::int64_t bucket);

}  // namespace stepsim
