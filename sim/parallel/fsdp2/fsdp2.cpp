#include "sim/parallel/fsdp2/fsdp2.h"

#include <algorithm>
#include <utility>

#include "costmodel/base/index.h"
#include "costmodel/base/mapped.h"
#include "sim/parallel/ddp/ddp_options.h"
#include "sim/parallel/fsdp2/fsdp2_keys.h"
#include "sim/parallel/fsdp2/fsdp2_program.h"
#include "sim/parallel/fsdp2/fsdp2_refusals.h"
#include "sim/parallel/fsdp2/model_units.h"

namespace stepsim {

std::vector<OwnKey> Fsdp2::keys() const {
  return fsdp2_keys();
}

std::optional<KeyRefusal> Fsdp2::refusal(const ParallelJob& job) const {
  return fsdp2_refusal(job);
}

ParallelFacts Fsdp2::facts(const ParallelJob& job) const {
  ParallelFacts facts;
  facts.iterations.rebuilds = false;
  facts.alike = true;
  facts.communicators = fsdp2_communicators(options_of(job), reshard_of(job).slice_ranks, job.gloo);
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
  const Reshard reshard = reshard_of(job);
  const std::int64_t root = reshard.root ? 0 : gathered_buffer(units.front(), shards).bytes();
  const std::int64_t kept = !reshard.units ? all_gathered : root + 2 * gathered;
  const std::int64_t held = gathered + job.own.integer(fsdp2_key::kReduceBuffers) * reduced;
  const std::string& mode = job.own.text(fsdp2_key::kAccumulation);
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
