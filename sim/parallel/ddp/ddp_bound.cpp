#include <algorithm>
#include <optional>
#include <utility>

#include "costmodel/base/index.h"
#include "costmodel/base/mapped.h"
#include "sim/parallel/ddp/ddp.h"
#include "sim/parallel/ddp/ddp_buckets.h"

namespace stepsim {
namespace {

/// The share of a gradient's bytes that is sent; none where that is more than a factor.
std::optional<double> sent_share(const ParallelJob& job) {
  switch (job.ddp.hook) {
    case CommunicationHook::None:
    case CommunicationHook::AllReduce:
      return 1.0;
    case CommunicationHook::Fp16:
    case CommunicationHook::Bf16: {
      constexpr double kHalf = 2;  // Bytes of an element in 16 bits.
      return std::min(1.0, kHalf / static_cast<double>(element_size(job.model.parameter_dtype)));
    }
    default:
      return std::nullopt;
  }
}

/// The buckets of DDP with the ops that complete them, and the prices of their reduction.
std::vector<ReduceBound::Bucket> reduced_buckets(const std::vector<Bucket>& list,
                                                 const TrainedModel& model,
                                                 double share,
                                                 CollectiveKind kind,
                                                 const BoundPrices& prices) {
  std::vector<std::size_t> op_of(model.parameters.size(), 0);
  for (std::size_t op = 0; op < model.completes.size(); ++op) {
    for (const int parameter : model.completes[op]) {
      op_of[at(parameter)] = op;
    }
  }
  std::size_t last = 0;
  return mapped(list, [&](const Bucket& bucket) {
    for (const int parameter : bucket.parameters) {
      last = std::max(last, op_of[at(parameter)]);
    }
    const auto bytes = static_cast<double>(bucket_bytes(bucket, model.parameters));
    return ReduceBound::Bucket{last, prices.collective(kind, share * bytes)};
  });
}

double total_seconds(const std::vector<ReduceBound::Bucket>& buckets) {
  return sum_of(buckets, [](const ReduceBound::Bucket& bucket) { return bucket.seconds; });
}

/// Adds the copies from the buckets to the gradients: what follows the last all-reduce at least, in
/// that share of the steady steps. Returns what a step takes for all of them at most.
double add_copies(const DdpOptions& ddp,
                  const TrainedModel& model,
                  const std::vector<Bucket>& list,
                  double share,
                  const BoundPrices& prices,
                  ReduceBound& bound) {
  if (ddp.gradient_as_bucket_view || ddp.optimizer_in_backward || ddp.zero_stage == 2) {
    return 0;
  }
  double most = 0;
  double last = 0;
  for (const Bucket& bucket : list) {
    const double seconds = sum_of(bucket.parameters, [&](const int parameter) {
      return prices.copy_out(model.elements(parameter));
    });
    last = prices.fastest_rank * seconds;
    most += prices.slowest_rank * seconds +
            prices.launch_s * static_cast<double>(bucket.parameters.size());
  }
  bound.copy_out_s += share * last;
  return most;
}

/// The share of the steady steps whose last micro-batch comes before DDP rebuilds its buckets.
double initial_share(const ParallelJob& job) {
  const int synchronised = job.ddp.no_sync ? 1 : job.ddp.accumulation_steps;  // In a step.
  const int first = first_rebuilt(job.ddp);
  const int before = first > 0 ? (first - 1) / synchronised : 0;
  return static_cast<double>(std::max(0, std::min(before, job.steps) - job.warmup_steps)) /
         (job.steps - job.warmup_steps);
}

}  // namespace

void Ddp::add_bounds(const ParallelJob& job, ParallelFacts& facts) {
  const DdpOptions& ddp = job.ddp;
  facts.own_work.ranks_wait = ddp.hook != CommunicationHook::PostLocalSgd &&
                              ddp.hook != CommunicationHook::Noop && ddp.join_steps.empty();
  const bool plain_gradients = ddp.unused_parameters.empty() && !ddp.mixed_param_dtype &&
                               !ddp.mixed_reduce_dtype && !job.model.sparse_embeddings;
  facts.bounds_reduction = plain_gradients && sent_share(job).has_value();
  if (ddp.hook != CommunicationHook::None || !plain_gradients) {
    return;
  }
  facts.own_work.zeroes = !ddp.set_to_none;
  // One copy a bucket takes less than one a gradient, so that it depends on the buckets.
  facts.own_work.copies_in = !ddp.batched_grad_copy;
  facts.own_work.accumulates = true;
  facts.own_work.updates_all = ddp.zero_stage == 0 && !ddp.optimizer_in_backward;
}

/// Both lists, each in its share of the steady steps.
ReduceBound Ddp::reduce_bound(const ParallelJob& job,
                              const ParallelParts& parts,
                              const BoundPrices& prices) const {
  const DdpOptions& ddp = job.ddp;
  const CollectiveKind kind =
      ddp.zero_stage == 2 ? CollectiveKind::ReduceScatter : CollectiveKind::AllReduce;
  const TrainedModel& model = parts.model;
  const BucketLists& lists = parts.buckets;
  const double sent = sent_share(job).value_or(0);
  const double initial = initial_share(job);
  ReduceBound bound;
  const std::pair<const std::vector<Bucket>&, double> phases[] = {{lists.initial, initial},
                                                                  {lists.rebuilt, 1 - initial}};
  for (const auto& [list, share] : phases) {
    bound.buckets = reduced_buckets(list, model, sent, kind, prices);
    const double all = total_seconds(bound.buckets);
    const double copies = add_copies(ddp, model, list, share, prices, bound);
    bound.warmup_s = std::max(bound.warmup_s, all + copies);
    if (&list == &lists.initial && !bound.buckets.empty()) {
      bound.initial_s = share * all;
      bound.initial_last_s = share * bound.buckets.back().seconds;
    }
    if (ddp.zero_stage == 2) {
      for (const Bucket& bucket : list) {
        bound.after_s +=
            share * prices.collective(CollectiveKind::AllGather,
                                      static_cast<double>(bucket_bytes(bucket, model.parameters)));
      }
    }
  }
  for (ReduceBound::Bucket& bucket : bound.buckets) {
    bucket.seconds *= 1 - initial;
  }
  if (ddp.zero_stage == 1 && !ddp.zero_broadcast_by_rank) {
    for (const BucketParameter& parameter : model.parameters) {
      bound.after_s +=
          prices.collective(CollectiveKind::Broadcast, static_cast<double>(parameter.bytes));
    }
  }
  return bound;
}

}  // namespace stepsim
