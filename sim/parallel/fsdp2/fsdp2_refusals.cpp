#include "sim/parallel/fsdp2/fsdp2_refusals.h"

#include <cstdint>

#include "costmodel/base/input_error.h"
#include "sim/parallel/ddp/ddp_options.h"
#include "sim/parallel/fsdp2/fsdp2_keys.h"

namespace stepsim {
namespace {

std::optional<KeyRefusal> mesh_refusal(const ParallelJob& job) {
  const std::int64_t replicas = job.own.integer(fsdp2_key::kReplicas);
  if (job.ranks % replicas == 0) {
    return std::nullopt;
  }
  return KeyRefusal{true, fsdp2_key::kReplicas, "must divide the ranks"};
}

/// Units by name.
std::optional<KeyRefusal> unit_refusal(const ParallelJob& job) {
  const UnitChoice choice = rule_of(job.own);
  if (job.model_is_unknown || choice.rule != UnitRule::Named) {
    return std::nullopt;
  }
  const StepOps ops = step_ops(job.model);
  TrainedModel model = trained_model(job.model, ops, job.buffer_bytes);
  try {
    add_model_units(job.model, ops, choice, model);
  } catch (const InputError& error) {
    return KeyRefusal{true, fsdp2_key::kUnits, error.what()};
  }
  return std::nullopt;
}

std::optional<KeyRefusal> ddp_refusal(const DdpOptions& ddp) {
  const char* const of_ddp = "belongs to DDP's reducer; fsdp2 has none";
  return first_refusal(
      {{ddp.zero_stage > 0, "zero_stage", "belongs to DDP; fsdp2 shards all by itself"},
       {ddp.hook != CommunicationHook::None, "communication_hook", of_ddp},
       {!ddp.join_steps.empty(),
        "join",
        "fsdp2 has no join(): ranks with fewer steps hang the others"},
       {ddp.optimizer_in_backward, "optimizer_in_backward", of_ddp},
       {ddp.mixed_param_dtype.has_value(),
        "mixed_precision",
        "is DDP's; say param_dtype and reduce_dtype in [parallel]"},
       {ddp.optimize_ddp != OptimizeDdp::Eager, "optimize_ddp", of_ddp},
       {!ddp.unused_parameters.empty(), "unused_parameters", of_ddp}});
}

}  // namespace

std::optional<KeyRefusal> fsdp2_refusal(const ParallelJob& job) {
  if (auto refusal = mesh_refusal(job)) {
    return refusal;  // What follows divides the ranks.
  }
  if (auto refusal = ddp_refusal(job.ddp)) {
    return refusal;
  }
  const OwnValues& own = job.own;
  const std::int64_t slice = own.integer(fsdp2_key::kSliceRanks);
  const std::int64_t shards = shards_of(job);
  if (auto refusal = first_refusal(
          {{slice != 0 && (slice < 2 || slice >= shards || shards % slice != 0),
            fsdp2_key::kSliceRanks,
            "must divide the shard ranks, more than 1 and fewer than all of them"},
           {slice != 0 && own.text(fsdp2_key::kReshard) == "false",
            fsdp2_key::kSliceRanks,
            "needs units that are freed: reshard_after_forward = \"default\" or \"true\""},
           {own.text(fsdp2_key::kAccumulation) == "no_all_reduce" &&
                own.integer(fsdp2_key::kReplicas) == 1,
            fsdp2_key::kAccumulation,
            "\"no_all_reduce\" needs replicas"}})) {
    return refusal;
  }
  return unit_refusal(job);
}

}  // namespace stepsim
