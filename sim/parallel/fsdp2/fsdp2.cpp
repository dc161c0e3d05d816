#include "sim/parallel/fsdp2/fsdp2.h"

#include <algorithm>
#include <utility>

#include "costmodel/base/index.h"
#include "costmodel/base/input_error.h"
#include "costmodel/base/mapped.h"
#include "sim/parallel/ddp/ddp_options.h"
#include "sim/parallel/fsdp2/fsdp2_keys.h"
#include "sim/parallel/fsdp2/fsdp2_memory.h"
#include "sim/parallel/fsdp2/fsdp2_program.h"
#include "sim/parallel/fsdp2/fsdp2_refusals.h"
#include "sim/parallel/fsdp2/memory_moments.h"
#include "sim/parallel/fsdp2/model_units.h"

namespace stepsim {
namespace {

/// What a rank holds over a step, without the optimizer, and the model that it is of.
/// Micro-batches between the first and the last one are alike: one stands for all.
HeldStep held_step(const ParallelJob& job, const StepOps& ops) {
  HeldStep step;
  step.model = trained_model(job.model, ops, job.buffer_bytes);
  if (job.returns_loss) {
    step.model.loss_ops = 0;  // The root's hook comes before its backward.
  }
  add_model_units(job.model, ops, rule_of(job.own), step.model);
  tie_gradients(job.model, ops, step.model);
  Fsdp2Options options = options_of(job);
  std::vector<ShardSwitches>& switches = options.switches;
  if (switches.size() > 3) {
    switches.erase(switches.begin() + 2, switches.end() - 1);
  }
  step.moments = fsdp2_memory(
      step.model, units_of(job, step.model), options, static_cast<int>(switches.size()), 0);
  return step;
}

}  // namespace

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
  if (host.is_device && job.own.flag(fsdp2_key::kOffload)) {
    throw InputError(
        "parallel.offload: moves shards from a GPU to its host, and the profile is of a CPU, which "
        "has them: leave it out");
  }
  return fsdp2_program(
      parts.model, units_of(job, parts.model), options_of(job), host, prices, step);
}

MemoryOptions Fsdp2::memory(const ParallelJob& job) const {
  MemoryOptions memory;
  const auto shards = static_cast<int>(shards_of(job));
  memory.optimizer_shards = memory.gradient_shards = memory.parameter_shards = shards;
  const StepOps ops = step_ops(job.model);
  memory.moments = peak_moments(job.model, ops, held_step(job, ops).moments);
  memory.optimizer_on_host = job.own.flag(fsdp2_key::kOffload);
  const std::string& gathered = job.own.text(fsdp2_key::kParamDtype);
  memory.casts_weights = gathered == "own" || element_size(parse_dtype(gathered)) > 2;
  return memory;
}

HeldCurve Fsdp2::memory_curve(const ParallelJob& job, const StepOps& ops) const {
  HeldCurve curve = held_curve(job.model, ops, held_step(job, ops));
  for (HeldPoint& point : curve.points) {
    if (point.micro_batch == 2) {
      point.micro_batch = job.ddp.accumulation_steps - 1;
    }
  }
  return curve;
}

std::vector<std::string> Fsdp2::assumptions(const ParallelJob& job) const {
  if (!job.own.flag(fsdp2_key::kOffload)) {
    return {};
  }
  return {
      "with offload each rank copies at host.copy_bandwidth, whatever the other ranks of its node "
      "copy, and no run has confirmed it"};
}

std::vector<TunedKey> Fsdp2::tuned_keys(const ParallelJob& job) const {
  if (job.ranks == 1) {
    return {};
  }
  const std::string key = std::string("parallel.") + fsdp2_key::kReshard;
  return {{key, {job.own.text(fsdp2_key::kReshard), "default", "false"}}};
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
