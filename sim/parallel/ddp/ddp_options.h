#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "costmodel/base/units.h"
#include "costmodel/model/bucket_assignment.h"
#include "costmodel/model/transformer.h"
#include "costmodel/network/communication_hook.h"

namespace stepsim {

/// How gradients are grouped into buckets. All but PyTorch are hand-written loops in reverse order
/// of registration.
enum class BucketRule {
  PyTorch,       ///< A bucket closes when its sum reaches the limit, as in DDP.
  BeforeCap,     ///< A tensor joins a bucket unless the bucket would exceed the cap.
  PerParameter,  ///< Every tensor has a bucket of its own.
  Single         ///< One bucket holds all tensors.
};

/// What torch.compile makes of the module inside DDP.
enum class OptimizeDdp {
  Eager,          ///< It is not compiled.
  DdpOptimizer,   ///< Graphs split by bucket sizes, the default of torch.compile.
  NoOptimization  ///< One graph.
};

/// The version of PyTorch whose rules for the limits of buckets hold.
enum class DdpRules { Torch18, Torch113, Torch24, Newest };
/// "1.8", "1.13", "2.4" or "newest".
[[nodiscard]] constexpr const char* name_of(DdpRules rules) {
  constexpr std::array kNames = {"1.8", "1.13", "2.4", "newest"};
  return kNames[static_cast<std::size_t>(rules)];
}

/// [ddp]: what PyTorch's DistributedDataParallel is told. The fields are named as the keys.
struct DdpOptions {
  Bytes bucket_cap{kDefaultBucketCapBytes};
  /// The limit of the first bucket. With torch "newest" a stated bucket_cap is its default.
  Bytes first_bucket_cap{kDefaultFirstBucketBytes};
  bool first_bucket_cap_stated = false;
  /// A limit for each bucket in turn; empty: none. Both caps above are then the largest of them.
  std::vector<Bytes> bucket_caps;
  bool last_bucket_cap = false;  ///< The small bucket comes last.
  BucketRule bucket_rule = BucketRule::PyTorch;
  OptimizeDdp optimize_ddp = OptimizeDdp::Eager;
  bool overlap = true;  ///< false: nothing is launched before the backward's end.
  DdpRules torch = DdpRules::Torch24;
  bool gradient_as_bucket_view = false;
  bool set_to_none = true;
  bool find_unused_parameters = false;
  bool static_graph = false;
  bool broadcast_buffers = true;
  /// One _foreach_copy_ a bucket before its launch and, without a hook, one division of it.
  /// Source: Reducer::flush_deferred_copies in c10d/reducer.cpp, PyTorch 2.12 or later.
  bool batched_grad_copy = false;
  bool optimizer_in_backward = false;
  std::vector<int> unused_parameters;  ///< Parameters without a gradient, ascending.
  int accumulation_steps = 1;          ///< Micro-batches per optimizer step.
  bool no_sync = true;                 ///< All micro-batches but the last run under no_sync().
  /// [rank] the number of steps that the rank has inputs for, inside join(); empty: no join().
  std::vector<int> join_steps;
  bool divide_by_initial_world_size = true;
  std::optional<Dtype> mixed_param_dtype;   ///< The gradients' dtype in DDP's mixed precision.
  std::optional<Dtype> mixed_reduce_dtype;  ///< The dtype on the wire.
  CommunicationHook hook = CommunicationHook::None;
  HookOptions hook_options;
  int zero_stage = 0;
  bool zero_broadcast_by_rank = false;  ///< ZeRO-1: parameters_as_bucket_view.
};

/// The keys of [ddp] that make or order buckets, where they are not as by default: they mean
/// nothing to kinds without buckets.
[[nodiscard]] std::vector<std::string> chosen_bucket_keys(const DdpOptions& options);

}  // namespace stepsim
