#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/parallel/fsdp2/fsdp2_program.h"
#include "sim/parallel/fsdp2/model_units.h"
#include "sim/parallel/parallelism.h"

namespace stepsim {

/// The names of FSDP2's keys in [parallel].
namespace fsdp2_key {
inline constexpr const char* kUnits = "units";
inline constexpr const char* kReshard = "reshard_after_forward";
inline constexpr const char* kKept = "kept_units";
inline constexpr const char* kReplicas = "replicas";
inline constexpr const char* kParamDtype = "param_dtype";
inline constexpr const char* kReduceDtype = "reduce_dtype";
inline constexpr const char* kForwardPrefetch = "forward_prefetch";
inline constexpr const char* kBackwardPrefetch = "backward_prefetch";
inline constexpr const char* kReduceBuffers = "reduce_buffers";
inline constexpr const char* kSeparateGroup = "separate_reduce_group";
inline constexpr const char* kAsyncUnshard = "async_unshard";
inline constexpr const char* kAccumulation = "accumulation";
inline constexpr const char* kOffload = "offload";
inline constexpr const char* kTorch = "torch";
}  // namespace fsdp2_key

/// FSDP2's keys, as scenarios/README.md lists them.
[[nodiscard]] std::vector<OwnKey> fsdp2_keys();

/// 13 of PyTorch 2.13.
[[nodiscard]] int torch_minor(const OwnValues& own);

/// The ranks of a replica, which shard its parameters.
[[nodiscard]] std::int64_t shards_of(const ParallelJob& job);

/// What fully_shard is called on.
[[nodiscard]] UnitChoice rule_of(const OwnValues& own);

/// What becomes of gathered parameters after the forward.
struct Reshard {
  bool root = false;    ///< The root's are freed,
  bool units = true;    ///< and those of the units below it,
  int slice_ranks = 0;  ///< but for a slice among so many ranks; 0: all of them.
};
/// What reshard_after_forward says. An integer is passed to every call, as true is. Before PyTorch
/// 2.8 the root was kept, whatever was asked.
[[nodiscard]] Reshard reshard_of(const ParallelJob& job);

/// The units that kept_units names. Raises InputError: an entry names none.
[[nodiscard]] std::vector<bool> kept_units(const std::string& text,
                                           const std::vector<std::string>& unit_names);

/// The units of a model that has them, with the types and switches that the keys ask for.
[[nodiscard]] std::vector<ShardUnit> units_of(const ParallelJob& job, const TrainedModel& model);

[[nodiscard]] Fsdp2Options options_of(const ParallelJob& job);

}  // namespace stepsim
