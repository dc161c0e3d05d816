#include <algorithm>
#include <cctype>
#include <string>
#include <string_view>
#include <vector>

#include "sim/scenario/key_table.h"

namespace stepsim {
namespace {

struct OtherName {
  std::vector<std::string_view> names;
  std::string_view advice;
};

constexpr std::string_view kFsdp =
    "FSDP is a kind of parallelism: write parallel.kind = \"fsdp2\" (fully_shard) or \"fsdp1\" "
    "(FullyShardedDataParallel); their keys are those of [parallel]";
constexpr std::string_view kZero =
    "DeepSpeed's ZeRO-3 is parallel.kind = \"zero\", with its keys, such as "
    "stage3_prefetch_bucket_size, in [parallel]; stages 1 and 2 are ddp.zero_stage";
constexpr std::string_view kOffload =
    "FSDP2's CPUOffloadPolicy is parallel.offload = true beside kind = \"fsdp2\"; other kinds' "
    "offload to the host is not simulated: leave it out, and shards and the optimizer stay on the "
    "device";

/// Keys of [ddp], [parallel] and the whole file alike.
const std::vector<OtherName>& other_keys() {
  static const std::vector<OtherName> kKeys = {
      {{"fsdp", "fsdp1", "fsdp2", "fsdp_config", "fully_shard"}, kFsdp},
      {{"hsdp"}, "HSDP is parallel.kind = \"fsdp2\" with parallel.replicas"},
      {{"strategy", "sharding_strategy", "distributed", "parallelism"},
       "the strategy is parallel.kind: \"ddp\" (NO_SHARD), \"fsdp1\", which has sharding_strategy, "
       "or "
       "\"fsdp2\", with reshard_after_forward = false (SHARD_GRAD_OP) or replicas (HYBRID_SHARD)"},
      {{"deepspeed", "zero", "zero_optimization", "stage", "zero3", "ds_config"}, kZero},
      {{"stage3_prefetch_bucket_size",
        "stage3_param_persistence_threshold",
        "stage3_max_live_parameters",
        "stage3_max_reuse_distance",
        "reduce_bucket_size",
        "overlap_comm"},
       "it is DeepSpeed's: write it in [parallel], beside kind = \"zero\""},
      {{"prefetch_bucket_size", "stage3_prefetch_bucket"},
       "write parallel.stage3_prefetch_bucket_size, beside kind = \"zero\""},
      {{"param_persistence_threshold"},
       "write parallel.stage3_param_persistence_threshold, beside kind = \"zero\""},
      {{"max_live_parameters"},
       "write parallel.stage3_max_live_parameters, beside kind = \"zero\""},
      {{"max_reuse_distance"}, "write parallel.stage3_max_reuse_distance, beside kind = \"zero\""},
      {{"allgather_bucket_size", "allgather_partitions"},
       "stages 1 and 2 of DeepSpeed have it; stage 3 gathers by "
       "parallel.stage3_prefetch_bucket_size"},
      {{"communication_data_type"},
       "it is the type that gradients are reduced in: write parallel.reduce_dtype"},
      {{"contiguous_gradients", "reduce_scatter", "round_robin_gradients", "sub_group_size"},
       "DeepSpeed's stage 3 is simulated with its default; leave it out"},
      {{"stage3_model_persistence_threshold", "stage3_gather_16bit_weights_on_model_save"},
       "a step is the same without it here; leave it out"},
      {{"zero_hpz_partition_size", "hpz_partition_size"},
       "ZeRO++'s hpZ is like parallel.kind = \"fsdp2\" with reshard_after_forward = that integer"},
      {{"zero_quantized_weights", "zero_quantized_gradients"},
       "ZeRO++'s quantised collectives are not simulated; leave it out"},
      {{"mesh", "device_mesh", "mesh_shape", "mesh_dims", "dp_mesh_dims"},
       "the mesh is replicas x shards: write parallel.replicas; the shards are the ranks over "
       "them"},
      {{"dp_replicate", "data_parallel_replicate_degree", "dp_replicate_size", "num_replicas"},
       "write parallel.replicas"},
      {{"shards",
        "shard_ranks",
        "num_shards",
        "dp_shard",
        "dp_shard_size",
        "data_parallel_shard_degree",
        "sharding_group_size"},
       "the shard ranks are the ranks over parallel.replicas: write replicas"},
      {{"offload",
        "cpu_offload",
        "offload_policy",
        "offload_params",
        "cpu_offload_policy",
        "offload_optimizer",
        "offload_param"},
       kOffload}};
  return kKeys;
}

/// Keys of [parallel].
const std::vector<OtherName>& other_fsdp2_keys() {
  static const std::vector<OtherName> kKeys = {
      {{"slice_ranks"},
       "write reshard_after_forward with that integer, as in PyTorch; kept_units = \"root\" keeps "
       "the root"},
      {{"reshard", "fsdp_reshard_after_forward", "reshard_after_fwd"},
       "write reshard_after_forward"},
      {{"reshard_after_backward", "set_reshard_after_backward"}, "write accumulation = \"keep\""},
      {{"mp_policy", "mixed_precision", "mixed_precision_policy"},
       "write param_dtype and reduce_dtype"},
      {{"mixed_precision_param", "param_bytes"}, "write param_dtype"},
      {{"mixed_precision_reduce", "reduce_bytes"}, "write reduce_dtype"},
      {{"wrap", "auto_wrap_policy", "wrap_policy", "transformer_layer_cls_to_wrap", "modules"},
       "write units: \"blocks\", or the names of modules"},
      {{"set_modules_to_forward_prefetch"}, "write forward_prefetch = n, the next n units"},
      {{"set_modules_to_backward_prefetch"}, "write backward_prefetch = n, the n units before"},
      {{"reduce_scatter_buffers", "max_input_buffers", "set_reduce_scatter_max_input_buffers"},
       "write reduce_buffers"},
      {{"separate_reduce_scatter_group", "set_separate_reduce_scatter_group"},
       "write separate_reduce_group"},
      {{"set_unshard_async_op", "unshard_async_op"}, "write async_unshard"},
      {{"no_sync", "set_requires_gradient_sync", "requires_gradient_sync"},
       "write accumulation = \"no_sync\""},
      {{"set_requires_all_reduce", "requires_all_reduce"},
       "write accumulation = \"no_all_reduce\""},
      {{"accumulation_steps", "gradient_accumulation_steps"}, "write ddp.accumulation_steps"},
      {{"limit_all_gathers",
        "use_orig_params",
        "sync_module_states",
        "ignored_params",
        "shard_placement_fn"},
       "fully_shard's steps are the same with and without it here; leave it out"}};
  return kKeys;
}

const std::vector<OtherName>& other_kinds() {
  static const std::vector<OtherName> kKinds = {
      {{"fsdp", "fully_shard"},
       "write \"fsdp2\", PyTorch's fully_shard, or \"fsdp1\", its FullyShardedDataParallel"},
      {{"fullyshardeddataparallel"}, "write \"fsdp1\""},
      {{"full_shard"}, "write \"fsdp2\", or \"fsdp1\", which has sharding_strategy"},
      {{"hsdp", "hybrid"}, "write \"fsdp2\" and replicas"},
      {{"hybrid_shard", "hybrid_shard_zero2"},
       "write \"fsdp1\", sharding_strategy and replicas, or \"fsdp2\" and replicas"},
      {{"shard_grad_op"},
       "write \"fsdp1\" and sharding_strategy = \"SHARD_GRAD_OP\", or \"fsdp2\" and "
       "reshard_after_forward = false"},
      {{"zero2", "zero-2"},
       "write \"fsdp2\" and reshard_after_forward = false, or \"ddp\" and ddp.zero_stage = 2"},
      {{"zero1", "zero-1", "zeroredundancyoptimizer"}, "write \"ddp\" and ddp.zero_stage = 1"},
      {{"zero-3", "zero_3", "deepspeed", "stage3", "deepspeedplugin"},
       "write \"zero\", DeepSpeed's ZeRO-3"},
      {{"no_shard", "distributeddataparallel", "replicate"}, "write \"ddp\""}};
  return kKinds;
}

std::string advice_in(const std::vector<OtherName>& list, const std::string& name) {
  std::string plain(name);
  plain.erase(0, std::min(plain.find_first_not_of('_'), plain.size()));
  std::ranges::transform(plain, plain.begin(), [](unsigned char c) { return std::tolower(c); });
  for (const OtherName& other : list) {
    if (std::ranges::count(other.names, plain) > 0) {
      return std::string(other.advice);
    }
  }
  return {};
}

}  // namespace

std::string advice_for_key(const std::string& table, const std::string& key) {
  if (table == "parallel") {
    std::string own = advice_in(other_fsdp2_keys(), key);
    if (!own.empty()) {
      return own;
    }
  }
  const bool asked = table.empty() || table == "ddp" || table == "parallel";
  return asked ? advice_in(other_keys(), key) : std::string();
}

std::string advice_for_kind(const std::string& kind) {
  return advice_in(other_kinds(), kind);
}

}  // namespace stepsim
