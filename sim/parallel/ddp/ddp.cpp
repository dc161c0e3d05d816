#include "sim/parallel/ddp/ddp.h"

#include <limits>

#include "costmodel/base/index.h"
#include "sim/parallel/ddp/compiled_graphs.h"
#include "sim/parallel/ddp/ddp_buckets.h"
#include "sim/parallel/ddp/ddp_program.h"

namespace stepsim {
namespace {

/// The gradients that ZeRO-2 reduces at a time, by the rule of the buckets.
Bytes working_bucket(const DdpOptions& ddp) {
  switch (ddp.bucket_rule) {
    case BucketRule::PerParameter:
      return Bytes(0);
    case BucketRule::Single:
      return Bytes(std::numeric_limits<std::int64_t>::max());
    case BucketRule::PyTorch:
    case BucketRule::BeforeCap:
      break;
  }
  return ddp.bucket_cap;
}

}  // namespace

ParallelFacts Ddp::facts(const ParallelJob& job) const {
  ParallelFacts facts;
  facts.iterations = {job.ddp.static_graph,
                      job.ddp.find_unused_parameters,
                      job.ddp.broadcast_buffers && !job.buffer_bytes.empty(),
                      job.ddp.bucket_rule == BucketRule::PyTorch};
  facts.communicators = ddp_communicators(job.ddp, job.gloo, job.ranks);
  // From the third step on every program is like the third one: the buckets were rebuilt by then,
  // and only hooks count steps.
  facts.repeats = job.ddp.hook == CommunicationHook::None;
  // Ranks that run out of inputs and sparse gradients differ from step to step, too.
  facts.alike = facts.repeats && job.ddp.join_steps.empty() && !job.model.sparse_embeddings;
  add_bounds(job, facts);
  return facts;
}

BucketLists Ddp::buckets(const ParallelJob& job) const {
  return ddp_buckets(job.model, job.ddp);
}

ParallelParts Ddp::parts(const ParallelJob& job, const StepOps& ops) const {
  ParallelParts parts;
  parts.model = with_compiled_graphs(trained_model(job.model, ops, job.buffer_bytes), job.ddp);
  parts.buckets = buckets(job);
  parts.owned = owned_elements(parts.model, job.ddp.zero_stage, job.ranks);
  return parts;
}

StepProgram Ddp::program(const ParallelJob& job,
                         const ParallelParts& parts,
                         const StepHost& host,
                         const StepPrices& prices,
                         const StepWork& step) const {
  return ddp_program(parts.model, parts.buckets, job.ddp, host, prices, step);
}

MemoryOptions Ddp::memory(const ParallelJob& job) const {
  MemoryOptions memory;
  memory.gradient_as_bucket_view = job.ddp.gradient_as_bucket_view;
  memory.optimizer_shards = job.ddp.zero_stage >= 1 ? job.ranks : 1;
  if (job.ddp.zero_stage == 2) {
    memory.gradient_shards = job.ranks;
    memory.working_bucket = working_bucket(job.ddp);
  }
  return memory;
}

/// Gradients are zeroed before the forward and copied into their buckets after the op that
/// completes them.
std::vector<GradientWork> Ddp::gradient_work(const ParallelJob& job, const StepOps& ops) const {
  std::vector<GradientWork> work;
  if (!job.ddp.set_to_none) {
    work.push_back({OpClass::ZeroGradient, parameter_count(job.model), -1});
  }
  const std::vector<Parameter> tensors = parameters(job.model);
  for (std::size_t op = 0; op < ops.backward.size(); ++op) {
    for (const int parameter : ops.backward[op].completes) {
      work.push_back(
          {OpClass::GradientCopyIn, tensors[at(parameter)].elements(), static_cast<int>(op)});
    }
  }
  return work;
}

const Parallelism& ddp() {
  static const Ddp kDdp;
  return kDdp;
}

}  // namespace stepsim
