#include "sim/parallel/fsdp1/fsdp1.h"

#include <algorithm>

#include "costmodel/base/index.h"
#include "costmodel/base/mapped.h"
#include "sim/parallel/ddp/ddp_options.h"
#include "sim/parallel/fsdp1/fsdp1_program.h"
#include "sim/parallel/fsdp2/fsdp2_keys.h"
#include "sim/parallel/fsdp2/model_units.h"

namespace stepsim {
namespace {

constexpr const char* kFsdp1Units = "units";
constexpr const char* kFsdp1Strategy = "sharding_strategy";
constexpr const char* kFsdp1Replicas = "replicas";
constexpr const char* kFsdp1ParamDtype = "param_dtype";
constexpr const char* kFsdp1ReduceDtype = "reduce_dtype";
constexpr const char* kFsdp1Prefetch = "prefetch";
constexpr const char* kFsdp1ForwardPrefetch = "forward_prefetch";
constexpr const char* kFsdp1Limit = "limit_all_gathers";
constexpr const char* kFsdp1Original = "use_orig_params";
constexpr const char* kFsdp1Accumulation = "accumulation";

std::optional<Dtype> flat_dtype_of(const OwnValues& own, const char* key) {
  const std::string& name = own.text(key);
  return name == "own" ? std::nullopt : std::optional(parse_dtype(name));
}

bool is_hybrid(const std::string& strategy) {
  return strategy == "HYBRID_SHARD" || strategy == "_HYBRID_SHARD_ZERO2";
}

Fsdp1Options fsdp1_options(const ParallelJob& job) {
  Fsdp1Options options;
  const std::string& strategy = job.own.text(kFsdp1Strategy);
  const std::string& prefetch = job.own.text(kFsdp1Prefetch);
  options.replicas = static_cast<int>(job.own.integer(kFsdp1Replicas));
  options.shards = job.ranks / options.replicas;
  options.keeps_after_forward = strategy == "SHARD_GRAD_OP" || strategy == "_HYBRID_SHARD_ZERO2";
  options.backward_prefetch = prefetch == "BACKWARD_PRE"    ? Fsdp1Prefetch::Pre
                              : prefetch == "BACKWARD_POST" ? Fsdp1Prefetch::Post
                                                            : Fsdp1Prefetch::None;
  options.forward_prefetch = job.own.integer(kFsdp1ForwardPrefetch) > 0;
  options.limits_gathers = job.own.flag(kFsdp1Limit);
  options.syncs_each_batch = job.own.text(kFsdp1Accumulation) != "no_sync";
  options.aligns_parameters = job.own.flag(kFsdp1Original);
  options.param_dtype = flat_dtype_of(job.own, kFsdp1ParamDtype);
  options.reduce_dtype = flat_dtype_of(job.own, kFsdp1ReduceDtype);
  return options;
}

TrainedModel wrapped_model(const ParallelJob& job, const StepOps& ops) {
  TrainedModel model = trained_model(job.model, ops, job.buffer_bytes);
  const UnitRule rule = job.own.text(kFsdp1Units) == "model" ? UnitRule::Model : UnitRule::Blocks;
  add_model_units(job.model, ops, {rule}, model);
  return model;
}

}  // namespace

std::vector<OwnKey> Fsdp1::keys() const {
  const std::vector<OwnKey> of_fsdp2 = fsdp2_keys();
  const auto shared = [&](const char* name) {
    return *std::ranges::find(of_fsdp2, name, &OwnKey::name);
  };
  OwnKey units{kFsdp1Units, "", std::string("blocks")};
  units.choices = {"blocks", "model"};
  OwnKey strategy{kFsdp1Strategy,
                  "FSDP1: `\"FULL_SHARD\"`: units are freed after their forward; "
                  "`\"SHARD_GRAD_OP\"`: after their backward; with replicas `\"HYBRID_SHARD\"` and "
                  "`\"_HYBRID_SHARD_ZERO2\"`, likewise",
                  std::string("FULL_SHARD")};
  strategy.choices = {"FULL_SHARD", "SHARD_GRAD_OP", "HYBRID_SHARD", "_HYBRID_SHARD_ZERO2"};
  OwnKey prefetch{kFsdp1Prefetch,
                  "FSDP1's `backward_prefetch`: `\"BACKWARD_PRE\"`, `\"BACKWARD_POST\"` or "
                  "`\"none\"`, which is accelerate's default",
                  std::string("BACKWARD_PRE")};
  prefetch.choices = {"BACKWARD_PRE", "BACKWARD_POST", "none"};
  OwnKey forward{kFsdp1ForwardPrefetch, "", std::int64_t{0}};
  forward.most = 1;
  OwnKey limit{kFsdp1Limit,
               "FSDP1: the host waits where more than two units that were freed are still in use",
               true};
  OwnKey original{kFsdp1Original, "FSDP1: each parameter is aligned to 16 bytes", false};
  OwnKey accumulation{kFsdp1Accumulation, "", std::string("reduce")};
  accumulation.choices = {"reduce", "no_sync"};
  return {units,
          strategy,
          shared(kFsdp1Replicas),
          shared(kFsdp1ParamDtype),
          shared(kFsdp1ReduceDtype),
          prefetch,
          forward,
          limit,
          original,
          accumulation};
}

std::optional<KeyRefusal> Fsdp1::refusal(const ParallelJob& job) const {
  const DdpOptions& ddp = job.ddp;
  const std::int64_t replicas = job.own.integer(kFsdp1Replicas);
  const bool hybrid = is_hybrid(job.own.text(kFsdp1Strategy));
  const char* const of_ddp = "belongs to DDP's reducer; fsdp1 has none";
  return first_refusal(
      {{job.ranks % replicas != 0, kFsdp1Replicas, "must divide the ranks"},
       {hybrid && replicas == 1,
        kFsdp1Strategy,
        "shards inside of replicas: say parallel.replicas, as the number of nodes"},
       {!hybrid && replicas > 1,
        kFsdp1Strategy,
        "has no replicas; \"HYBRID_SHARD\" and \"_HYBRID_SHARD_ZERO2\" have"},
       {ddp.zero_stage > 0, "zero_stage", "belongs to DDP; fsdp1 shards all by itself"},
       {ddp.hook != CommunicationHook::None, "communication_hook", of_ddp},
       {!ddp.join_steps.empty(),
        "join",
        "fsdp1 has no join(): ranks with fewer steps hang the others"},
       {ddp.optimizer_in_backward, "optimizer_in_backward", of_ddp},
       {ddp.mixed_param_dtype.has_value(),
        "mixed_precision",
        "is DDP's; say param_dtype and reduce_dtype in [parallel]"},
       {ddp.optimize_ddp != OptimizeDdp::Eager, "optimize_ddp", of_ddp},
       {!ddp.unused_parameters.empty(), "unused_parameters", of_ddp}});
}

ParallelFacts Fsdp1::facts(const ParallelJob& job) const {
  ParallelFacts facts;
  facts.iterations.rebuilds = false;
  facts.alike = true;
  facts.communicators = fsdp1_communicators(fsdp1_options(job), job.gloo);
  facts.host_units.units = static_cast<int>(buckets(job).rebuilt.size());
  facts.host_units.tensors = facts.host_units.units;  // A FlatParameter each.
  facts.fixed_units = "parallel.kind = \"fsdp1\" gathers and reduces by unit";
  return facts;
}

/// The units, in the order of their reduction.
BucketLists Fsdp1::buckets(const ParallelJob& job) const {
  const TrainedModel model = wrapped_model(job, step_ops(job.model));
  BucketLists lists;
  for (std::size_t unit = model.units.size(); unit-- > 0;) {
    if (!model.units[unit].empty()) {
      lists.initial.push_back({model.units[unit], 0});
    }
  }
  lists.rebuilt = lists.initial;
  return lists;
}

ParallelParts Fsdp1::parts(const ParallelJob& job, const StepOps& ops) const {
  ParallelParts parts;
  parts.model = wrapped_model(job, ops);
  parts.buckets = buckets(job);
  const Fsdp1Options options = fsdp1_options(job);
  const std::int64_t own = sum_of(flat_parameters(parts.model, options),
                                  [&](std::int64_t flat) { return flat / options.shards; });
  parts.owned.assign(at(job.ranks), own);
  return parts;
}

StepProgram Fsdp1::program(const ParallelJob& job,
                           const ParallelParts& parts,
                           const StepHost& host,
                           const StepPrices& prices,
                           const StepWork& step) const {
  return fsdp1_program(parts.model, fsdp1_options(job), host, prices, step);
}

/// A bound: the root and, in the backward, the unit that computes, the one before it and, where
/// the host may run ahead, one more; the gradient of a unit, in its own and in the type of its
/// reduction; gradients that stay on their rank.
MemoryOptions Fsdp1::memory(const ParallelJob& job) const {
  const Fsdp1Options options = fsdp1_options(job);
  const TrainedModel model = wrapped_model(job, step_ops(job.model));
  const std::vector<std::int64_t> flat = flat_parameters(model, options);
  const std::int64_t gathered =
      options.param_dtype ? element_size(*options.param_dtype) : model.element_bytes;
  const std::int64_t reduced =
      options.reduce_dtype ? element_size(*options.reduce_dtype) : gathered;
  const std::int64_t all = sum_of(flat, [](std::int64_t elements) { return elements; });
  const std::int64_t largest =
      flat.size() > 1 ? *std::max_element(flat.begin() + 1, flat.end()) : flat.front();
  const std::int64_t units = options.backward_prefetch == Fsdp1Prefetch::None ? 1 : 2;
  MemoryOptions memory;
  memory.optimizer_shards = memory.gradient_shards = memory.parameter_shards = options.shards;
  const std::int64_t held =
      options.keeps_after_forward ? all : std::min(all, flat.front() + units * largest);
  const bool unsynced = job.ddp.accumulation_steps > 1 && !options.syncs_each_batch;
  const std::int64_t cast = reduced == gathered ? 0 : largest * reduced;
  memory.gathered =
      Bytes(held * gathered + largest * gathered + cast + (unsynced ? all * gathered : 0));
  return memory;
}

std::vector<GradientWork> Fsdp1::gradient_work(const ParallelJob& /*job*/,
                                               const StepOps& /*ops*/) const {
  return {};
}

const Parallelism& fsdp1() {
  static const Fsdp1 kFsdp1;
  return kFsdp1;
}

}  // namespace stepsim
