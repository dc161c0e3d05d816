#include "sim/parallel/fsdp2/fsdp2_refusals.h"

#include <cstdint>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "costmodel/base/input_error.h"
#include "sim/parallel/ddp/ddp_options.h"
#include "sim/parallel/fsdp2/fsdp2_keys.h"

namespace stepsim {
namespace {

/// "1, 2, 4 or 8"
std::string divisors_text(std::int64_t number) {
  std::vector<std::int64_t> divisors;
  for (std::int64_t i = 1; i <= number; ++i) {
    if (number % i == 0) {
      divisors.push_back(i);
    }
  }
  const std::int64_t last = divisors.back();
  divisors.pop_back();
  return divisors.empty() ? fmt::format("{}", last)
                          : fmt::format("{} or {}", fmt::join(divisors, ", "), last);
}

std::optional<KeyRefusal> mesh_refusal(const ParallelJob& job) {
  const std::int64_t replicas = job.own.integer(fsdp2_key::kReplicas);
  if (job.ranks % replicas == 0) {
    return std::nullopt;
  }
  return KeyRefusal{true,
                    fsdp2_key::kReplicas,
                    fmt::format("{} replicas do not divide the {} ranks, which are replicas times "
                                "shards; expected {}",
                                replicas,
                                job.ranks,
                                divisors_text(job.ranks))};
}

std::optional<KeyRefusal> slice_refusal(const ParallelJob& job) {
  const std::string& text = job.own.text(fsdp2_key::kReshard);
  if (text == "default" || text == "true" || text == "false") {
    return std::nullopt;
  }
  const std::int64_t slice = std::stoll(text);
  const std::int64_t shards = shards_of(job);
  if (slice > 0 && shards % slice == 0) {
    return std::nullopt;
  }
  return KeyRefusal{true,
                    fsdp2_key::kReshard,
                    fmt::format("{} does not divide the {} shard ranks; expected {} ({} is true, 1 "
                                "is false)",
                                slice,
                                shards,
                                divisors_text(shards),
                                shards)};
}

/// Units and those of them that are kept, by name.
std::optional<KeyRefusal> unit_refusal(const ParallelJob& job) {
  const UnitChoice choice = rule_of(job.own);
  const std::string& kept = job.own.text(fsdp2_key::kKept);
  if (job.model_is_unknown || (choice.rule != UnitRule::Named && kept.empty())) {
    return std::nullopt;
  }
  const StepOps ops = step_ops(job.model);
  TrainedModel model = trained_model(job.model, ops, job.buffer_bytes);
  const char* key = fsdp2_key::kUnits;
  try {
    add_model_units(job.model, ops, choice, model);
    key = fsdp2_key::kKept;
    (void)kept_units(kept, model.unit_names);
  } catch (const InputError& error) {
    return KeyRefusal{true, key, error.what()};
  }
  return std::nullopt;
}

/// A key that came with a later version than the job's.
KeyRefusal came_with(
    const ParallelJob& job, bool asked, int minor, const char* key, const char* what) {
  return {asked && torch_minor(job.own) < minor,
          key,
          fmt::format("{} came with PyTorch 2.{}, and parallel.torch is \"{}\"",
                      what,
                      minor,
                      job.own.text(fsdp2_key::kTorch))};
}

std::optional<KeyRefusal> version_refusal(const ParallelJob& job) {
  constexpr int kAsyncUnshard = 6;  // pytorch/pytorch#135523, after the branch of 2.5.
  constexpr int kOnCpu = 7;
  constexpr int kReduceSwitches = 13;
  const OwnValues& own = job.own;
  return first_refusal(
      {came_with(job, job.gloo, kOnCpu, fsdp2_key::kTorch, "fully_shard over gloo"),
       came_with(job,
                 own.flag(fsdp2_key::kAsyncUnshard),
                 kAsyncUnshard,
                 fsdp2_key::kAsyncUnshard,
                 "_set_unshard_async_op"),
       came_with(job,
                 own.flag(fsdp2_key::kSeparateGroup),
                 kReduceSwitches,
                 fsdp2_key::kSeparateGroup,
                 "set_separate_reduce_scatter_group"),
       came_with(job,
                 own.integer(fsdp2_key::kReduceBuffers) > 1,
                 kReduceSwitches,
                 fsdp2_key::kReduceBuffers,
                 "set_reduce_scatter_max_input_buffers")});
}

std::optional<KeyRefusal> ddp_refusal(const DdpOptions& ddp) {
  const char* const of_ddp = "belongs to DDP's reducer; fsdp2 has none";
  return first_refusal(
      {{ddp.zero_stage > 0,
        "zero_stage",
        "belongs to DDP; fsdp2 shards all by itself: leave it out"},
       {ddp.hook != CommunicationHook::None, "communication_hook", of_ddp},
       {!ddp.join_steps.empty(),
        "join",
        "fsdp2 has no join(): ranks with different numbers of steps hang, those with more of them "
        "in an all-gather until its timeout; give all ranks the same number of steps"},
       {ddp.optimizer_in_backward, "optimizer_in_backward", of_ddp},
       {ddp.mixed_param_dtype.has_value(),
        "mixed_precision",
        "is DDP's; say param_dtype and reduce_dtype in [parallel]"},
       {ddp.optimize_ddp != OptimizeDdp::Eager, "optimize_ddp", of_ddp},
       {!ddp.unused_parameters.empty(),
        "unused_parameters",
        "belongs to DDP's reducer. Under fsdp2 a parameter that one rank alone does not use ends "
        "the training in a connection error, unless set_reduce_scatter_unused_params(True) "
        "(PyTorch 2.13) reduces zeros for it: its unit then costs what it does here without this "
        "key"}});
}

std::optional<KeyRefusal> offload_refusal(const ParallelJob& job) {
  const bool offload = job.own.flag(fsdp2_key::kOffload);
  constexpr const char* kMeasures =
      "`python3 -m stepsim.torch.host_copies`, or host_copies.py by itself, measures both there";
  return first_refusal(
      {{offload && job.gloo,
        fsdp2_key::kOffload,
        "moves shards from a GPU to its host, and gloo is that of a CPU, which has them: leave it "
        "out"},
       {offload && !job.knows_host_copies,
        fsdp2_key::kOffload,
        fmt::format("copies shards to the device, and gradients back: say host.copy_bandwidth, and "
                    "host.cpu_optimizer for the optimizer on the CPU; {}",
                    kMeasures)},
       {offload && !job.knows_host_optimizer,
        fsdp2_key::kOffload,
        fmt::format("runs the optimizer on the CPU: say host.cpu_optimizer, what it takes for a "
                    "million parameters; {}",
                    kMeasures)}});
}

}  // namespace

std::optional<KeyRefusal> fsdp2_refusal(const ParallelJob& job) {
  if (auto refusal = mesh_refusal(job)) {
    return refusal;  // What follows divides the ranks.
  }
  for (const auto& refusal :
       {slice_refusal(job), version_refusal(job), ddp_refusal(job.ddp), offload_refusal(job)}) {
    if (refusal) {
      return refusal;
    }
  }
  const OwnValues& own = job.own;
  const Reshard reshard = reshard_of(job);
  if (auto refusal = first_refusal({{own.text(fsdp2_key::kAccumulation) == "no_all_reduce" &&
                                         own.integer(fsdp2_key::kReplicas) == 1,
                                     fsdp2_key::kAccumulation,
                                     "\"no_all_reduce\" needs replicas"},
                                    {!own.text(fsdp2_key::kKept).empty() && !reshard.units,
                                     fsdp2_key::kKept,
                                     "has no effect: reshard_after_forward keeps all units"}})) {
    return refusal;
  }
  return unit_refusal(job);
}

}  // namespace stepsim
