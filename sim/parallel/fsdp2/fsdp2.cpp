#include "sim/parallel/fsdp2/fsdp2.h"

#include <algorithm>
#include <utility>

#include "costmodel/base/index.h"
#include "costmodel/base/mapped.h"
#include "sim/parallel/ddp/ddp_options.h"
#include "sim/parallel/fsdp2/fsdp2_program.h"
#include "sim/parallel/fsdp2/model_units.h"

namespace stepsim {
namespace {

constexpr const char* kUnits = "units";
constexpr const char* kReshard = "reshard_after_forward";
constexpr const char* kSliceRanks = "slice_ranks";
constexpr const char* kReplicas = "replicas";
constexpr const char* kParamDtype = "param_dtype";
constexpr const char* kReduceDtype = "reduce_dtype";
constexpr const char* kReduceBuffers = "reduce_buffers";
constexpr const char* kSeparateGroup = "separate_reduce_group";
constexpr const char* kAsyncUnshard = "async_unshard";
constexpr const char* kAccumulation = "accumulation";

/// The type that a key names; None: the parameters' own.
std::optional<Dtype> dtype_of(const OwnValues& own, const char* key) {
  const std::string& name = own.text(key);
  return name == "own" ? std::nullopt : std::optional(parse_dtype(name));
}

UnitRule rule_of(const OwnValues& own) {
  const std::string& name = own.text(kUnits);
  return name == "model" ? UnitRule::Model : name == "ends" ? UnitRule::Ends : UnitRule::Blocks;
}

/// The units with the types and switches that the keys ask for.
std::vector<ShardUnit> units_of(const ParallelJob& job, const TrainedModel& model) {
  std::vector<ShardUnit> units = shard_units(model);
  const std::string& reshard = job.own.text(kReshard);
  for (std::size_t i = 0; i < units.size(); ++i) {
    ShardUnit& unit = units[i];
    unit.reshard_after_forward = reshard == "default" ? i > 0 : reshard == "true";
    unit.slice_ranks = static_cast<int>(job.own.integer(kSliceRanks));
    unit.reduce_dtype = dtype_of(job.own, kReduceDtype);
    for (ShardedTensor& tensor : unit.tensors) {
      tensor.gathered = dtype_of(job.own, kParamDtype).value_or(tensor.stored);
    }
  }
  return units;
}

std::vector<ShardSwitches> switches_of(const ParallelJob& job) {
  std::vector<ShardSwitches> switches(at(job.ddp.accumulation_steps));
  const std::string& mode = job.own.text(kAccumulation);
  for (std::size_t i = 0; i + 1 < switches.size(); ++i) {
    switches[i].gradient_sync = mode != "no_sync" && mode != "keep_no_sync";
    switches[i].all_reduce = mode != "no_all_reduce";
    switches[i].reshard_after_backward = mode != "keep" && mode != "keep_no_sync";
  }
  return switches;
}

Fsdp2Options options_of(const ParallelJob& job) {
  Fsdp2Options options;
  const auto replicas = static_cast<int>(job.own.integer(kReplicas));
  options.mesh = {job.ranks / replicas, replicas, replicas > 1};
  options.reduce_buffers = static_cast<int>(job.own.integer(kReduceBuffers));
  options.separate_reduce_group = job.own.flag(kSeparateGroup);
  options.async_unshard = job.own.flag(kAsyncUnshard);
  options.switches = switches_of(job);
  return options;
}

std::int64_t shards_of(const ParallelJob& job) {
  return job.ranks / job.own.integer(kReplicas);
}

}  // namespace

std::vector<OwnKey> Fsdp2::keys() const {
  OwnKey units{
      kUnits,
      "what `fully_shard` is called on below the model: `\"blocks\"`; `\"ends\"`: embeddings "
      "and head, too, as torchtitan does; `\"model\"`: nothing, all is one unit",
      std::string("blocks")};
  units.choices = {"blocks", "ends", "model"};
  OwnKey reshard{
      kReshard,
      "`\"default\"`: units are freed after their forward, the root is kept; `\"true\"`: "
      "the root is freed, too; `\"false\"`: all are kept (ZeRO-2)",
      std::string("default")};
  reshard.choices = {"default", "true", "false"};
  OwnKey slice{kSliceRanks,
               "units are not freed but cut to a slice among so many ranks, as "
               "`reshard_after_forward=2` does; 0: they are freed",
               std::int64_t{0}};
  OwnKey replicas{
      kReplicas, "HSDP: replicas; each is sharded over ranks / replicas", std::int64_t{1}};
  replicas.least = 1;
  OwnKey param{kParamDtype,
               "what parameters are cast to before they are gathered: `\"own\"`: nothing; "
               "`\"f32\"`, `\"bf16\"`, `\"f16\"`",
               std::string("own")};
  OwnKey reduce{kReduceDtype,
                "the type of the reduction: `\"own\"`: that of the parameters; `\"f32\"`, "
                "`\"bf16\"`, `\"f16\"`",
                std::string("own")};
  param.choices = reduce.choices = {"own", "f32", "bf16", "f16"};
  OwnKey buffers{kReduceBuffers,
                 "reduce-scatter inputs held at a time (`set_reduce_scatter_max_input_buffers`)",
                 std::int64_t{1}};
  buffers.least = 1;
  OwnKey group{kSeparateGroup,
               "reductions have a communicator beside that of the gathers "
               "(`set_separate_reduce_scatter_group`)",
               false};
  OwnKey async{
      kAsyncUnshard,
      "on a CPU: gathers run beside compute (`_set_unshard_async_op`); those of a GPU do anyway",
      false};
  OwnKey accumulation{
      kAccumulation,
      "what micro-batches before the last one do: `\"reduce\"`; `\"no_sync\"`: keep gradients on "
      "their rank; `\"no_all_reduce\"`: HSDP, reduce-scatter only; `\"keep\"`: keep parameters, "
      "too, "
      "after the backward; `\"keep_no_sync\"`: both",
      std::string("reduce")};
  accumulation.choices = {"reduce", "no_sync", "no_all_reduce", "keep", "keep_no_sync"};
  return {units, reshard, slice, replicas, param, reduce, buffers, group, async, accumulation};
}

std::optional<KeyRefusal> Fsdp2::refusal(const ParallelJob& job) const {
  const DdpOptions& ddp = job.ddp;
  const std::int64_t replicas = job.own.integer(kReplicas);
  const std::int64_t slice = job.own.integer(kSliceRanks);
  const bool divides = job.ranks % replicas == 0;
  const std::int64_t shards = divides ? job.ranks / replicas : 1;
  const char* const of_ddp = "belongs to DDP's reducer; fsdp2 has none";
  return first_refusal(
      {{!divides, kReplicas, "must divide the ranks"},
       {slice != 0 && (slice < 2 || slice >= shards || shards % slice != 0),
        kSliceRanks,
        "must divide the shard ranks, more than 1 and fewer than all of them"},
       {slice != 0 && job.own.text(kReshard) == "false",
        kSliceRanks,
        "needs units that are freed: reshard_after_forward = \"default\" or \"true\""},
       {job.own.text(kAccumulation) == "no_all_reduce" && replicas == 1,
        kAccumulation,
        "\"no_all_reduce\" needs replicas"},
       {ddp.zero_stage > 0, "zero_stage", "belongs to DDP; fsdp2 shards all by itself"},
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

ParallelFacts Fsdp2::facts(const ParallelJob& job) const {
  ParallelFacts facts;
  facts.iterations.rebuilds = false;
  facts.alike = true;
  facts.communicators = fsdp2_communicators(
      options_of(job), static_cast<int>(job.own.integer(kSliceRanks)), job.gloo);
  for (const Bucket& unit : buckets(job).rebuilt) {
    ++facts.host_units.units;
    facts.host_units.tensors += static_cast<int>(unit.parameters.size());
  }
  facts.fixed_units = "parallel.kind = \"fsdp2\" gathers and reduces by unit";
  return facts;
}

/// The units, in the order of their reduction.
BucketLists Fsdp2::buckets(const ParallelJob& job) const {
  const StepOps ops = step_ops(job.model);
  TrainedModel model = trained_model(job.model, ops, job.buffer_bytes);
  add_model_units(job.model, ops, rule_of(job.own), model);
  BucketLists lists;
  for (std::size_t unit = model.units.size(); unit-- > 0;) {
    if (!model.units[unit].empty()) {
      lists.initial.push_back({model.units[unit], 0});
    }
  }
  lists.rebuilt = lists.initial;
  return lists;
}

ParallelParts Fsdp2::parts(const ParallelJob& job, const StepOps& ops) const {
  ParallelParts parts;
  parts.model = trained_model(job.model, ops, job.buffer_bytes);
  add_model_units(job.model, ops, rule_of(job.own), parts.model);
  parts.buckets = buckets(job);
  const auto shards = static_cast<int>(shards_of(job));
  const std::int64_t own = sum_of(parts.model.shapes, [&](const std::vector<std::int64_t>& shape) {
    return padded_elements(shape, shards) / shards;
  });
  parts.owned.assign(at(job.ranks), own);
  return parts;
}

StepProgram Fsdp2::program(const ParallelJob& job,
                           const ParallelParts& parts,
                           const StepHost& host,
                           const StepPrices& prices,
                           const StepWork& step) const {
  return fsdp2_program(
      parts.model, units_of(job, parts.model), options_of(job), host, prices, step);
}

/// At the peak, which is in the backward, the root is gathered if it is kept, the unit that
/// computes and the one before it are, and inputs of reductions are held.
MemoryOptions Fsdp2::memory(const ParallelJob& job) const {
  MemoryOptions memory;
  const auto shards = static_cast<int>(shards_of(job));
  memory.optimizer_shards = memory.gradient_shards = memory.parameter_shards = shards;
  const StepOps ops = step_ops(job.model);
  TrainedModel model = trained_model(job.model, ops, job.buffer_bytes);
  add_model_units(job.model, ops, rule_of(job.own), model);
  const std::vector<ShardUnit> units = units_of(job, model);
  std::int64_t gathered = 0;  // Of the largest unit below the root.
  std::int64_t reduced = 0;
  std::int64_t all_gathered = 0;
  std::int64_t all_reduced = 0;
  for (std::size_t i = 0; i < units.size(); ++i) {
    const std::int64_t of_gather = gathered_buffer(units[i], shards).bytes();
    const std::int64_t of_reduction = reduced_buffer(units[i], shards).bytes();
    all_gathered += of_gather;
    all_reduced += of_reduction;
    if (i > 0) {
      gathered = std::max(gathered, of_gather);
      reduced = std::max(reduced, of_reduction);
    }
  }
  const std::string& reshard = job.own.text(kReshard);
  const std::int64_t root = reshard == "true" ? 0 : gathered_buffer(units.front(), shards).bytes();
  const std::int64_t kept = reshard == "false" ? all_gathered : root + 2 * gathered;
  const std::int64_t held = gathered + job.own.integer(kReduceBuffers) * reduced;
  const std::string& mode = job.own.text(kAccumulation);
  const bool unsynced =
      job.ddp.accumulation_steps > 1 && (mode == "no_sync" || mode == "keep_no_sync");
  memory.gathered = Bytes(kept + held + (unsynced ? all_reduced : 0));
  return memory;
}

std::vector<GradientWork> Fsdp2::gradient_work(const ParallelJob& /*job*/,
                                               const StepOps& /*ops*/) const {
  return {};
}

const Parallelism& fsdp2() {
  static const Fsdp2 kFsdp2;
  return kFsdp2;
}

}  // namespace stepsim
