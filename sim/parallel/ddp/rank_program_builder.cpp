#include "sim/parallel/ddp/rank_program_builder.h"

#include <algorithm>

#include "costmodel/base/index.h"
#include "sim/engine/time_limit.h"

namespace stepsim {

namespace {

constexpr double kScalarBytes = 4;

}  // namespace

RankProgramBuilder::RankProgramBuilder(const StepContext& context,
                                       CollectiveLog& log,
                                       StepProgram& program,
                                       int rank)
    : RankProgram(context.host, context.prices, context.step, log, program, rank),
      context_(context),
      buckets_(&context.initial) {
  reserve(4 * (context.model.completes.size() + context.model.parameters.size()) *
          work().micro_batches.size());
}

void RankProgramBuilder::build() {
  mark(kStepStart);
  for (std::size_t m = 0; m < work().micro_batches.size(); ++m) {
    const MicroBatchWork& batch = work().micro_batches[m];
    const Iteration& iteration = context_.step.iterations[m];
    buckets_ = iteration.uses_rebuilt ? &context_.rebuilt : &context_.initial;
    data(batch);
    if (m == 0) {
      mark(kDataEnd);
    }
    if (m == 0 && !context_.options.set_to_none && !batch.joined) {
      elements(OpClass::ZeroGradient, context_.model.total_elements(), Phase::Forward);
    }
    before_forward(iteration, batch);
    passes(iteration, batch, m > 0);
    mark(kBackwardEnd);
    if (iteration.synchronises) {
      finalize(batch);
    }
  }
  after_step();
  end_step();
}

void RankProgramBuilder::passes(const Iteration& iteration,
                                const MicroBatchWork& batch,
                                bool accumulates) {
  if (!batch.joined) {
    forward(batch);
  }
  mark(kForwardEnd);
  if (iteration.traverses_graph && !batch.joined) {
    const auto ops = static_cast<std::int64_t>(context_.model.completes.size());
    check_total(context_.prices.traversal_per_op, ops);
    host(context_.prices.traversal_per_op * ops);
  }
  if (batch.joined) {
    backward_joined(iteration);
  } else {
    backward(iteration, batch, accumulates);
  }
}

void RankProgramBuilder::begin_backward(std::size_t buckets) {
  in_flight_.assign(buckets, {});
  done_event_.assign(buckets, -1);
  bitmap_ = -1;
}

void RankProgramBuilder::before_forward(const Iteration& iteration, const MicroBatchWork& batch) {
  if (context_.step.joining) {
    active_ranks_ = collective({CollectiveKind::AllReduce, kScalarBytes, -1}, kComputeStream);
    if (batch.joined) {
      wait(active_ranks_);
      host_sync();
    }
  }
  if (iteration.rebuilds) {
    rebuild();
  }
  if (iteration.broadcasts_buffers) {
    if (context_.step.joining) {
      wait(collective({CollectiveKind::AllReduce, kScalarBytes, -1}, kComputeStream));
      host_sync();
    }
    broadcast_buffers();
  }
  if (context_.step.joining) {
    collective({CollectiveKind::AllReduce, kScalarBytes, -1}, kComputeStream);
  }
}

void RankProgramBuilder::rebuild() {
  const auto parameters = static_cast<double>(context_.model.parameters.size());
  const auto buckets = static_cast<double>(buckets_->list.size());
  for (const double count : {parameters + 1, buckets}) {
    wait(collective({CollectiveKind::Broadcast, 4 * count, -1}, kComputeStream));
    host_sync();
  }
}

void RankProgramBuilder::broadcast_buffers() {
  for (const std::int64_t bytes : context_.model.buffer_bytes) {
    const auto size = static_cast<double>(bytes);
    memory(2 * size, Phase::Other);
    wait(collective({CollectiveKind::Broadcast, size, -1}, kComputeStream));
    memory(2 * size, Phase::Other);
  }
}

void RankProgramBuilder::forward(const MicroBatchWork& batch) {
  int cast_event = -1;
  if (context_.casts_parameters()) {
    const auto bytes = static_cast<double>(context_.model.total_bytes());
    memory(bytes * (1 + context_.gradient_scale), Phase::Forward, kSideStream);
    cast_event = record(kSideStream);
    event_wait(cast_event, Phase::Forward);
  }
  for (const Kernel& op : batch.forward) {
    kernel(op, Phase::Forward);
  }
}

/// What is left on the side stream when the collectives have ended is the work that it does there,
/// and no wait for them.
void RankProgramBuilder::await_side_work(int bucket, Phase phase) {
  if (done_event_[at(bucket)] >= 0) {
    event_wait(done_event_[at(bucket)], phase);
  }
}

void RankProgramBuilder::finalize(const MicroBatchWork& batch) {
  const bool updates = context_.options.optimizer_in_backward;
  const bool copies = !updates && !context_.casts_parameters();
  for (std::size_t b = 0; b < in_flight_.size(); ++b) {
    for (const int one : in_flight_[b]) {
      wait(one);
    }
    if (copies) {
      await_side_work(static_cast<int>(b), Phase::CopyOut);
    }
    if (!batch.joined) {
      copy_out(static_cast<int>(b));
    }
  }
  for (std::size_t b = 0; !copies && b < in_flight_.size(); ++b) {
    await_side_work(static_cast<int>(b), updates ? Phase::Optimizer : Phase::CopyOut);
  }
  if (bitmap_ >= 0) {
    wait(bitmap_);
  }
}

void RankProgramBuilder::copy_out(int bucket) {
  const DdpOptions& options = context_.options;
  if (options.optimizer_in_backward || context_.casts_parameters()) {
    return;
  }
  if (options.zero_stage >= 2) {
    const std::int64_t share = (bucket_elements(bucket) + context_.ranks - 1) / context_.ranks;
    elements(OpClass::GradientCopyOut, share, Phase::CopyOut);
    return;
  }
  for (const int parameter : buckets_->list[at(bucket)].parameters) {
    if (is_unused(parameter)) {
      await_bitmap();
    } else if (!options.gradient_as_bucket_view &&
               !context_.model.parameters[at(parameter)].sparse) {
      elements(OpClass::GradientCopyOut, context_.model.elements(parameter), Phase::CopyOut);
    }
  }
}

/// The host looks whether any rank used a parameter before it touches that gradient.
void RankProgramBuilder::await_bitmap() {
  if (bitmap_ >= 0) {
    wait(bitmap_);
    host_sync();
    bitmap_ = -1;
  }
}

void RankProgramBuilder::after_step() {
  begin_optimizer();
  const DdpOptions& options = context_.options;
  const bool joined = work().micro_batches.back().joined;
  if (!options.optimizer_in_backward && !joined) {
    elements(OpClass::Optimizer, work().owned_elements, Phase::Optimizer);
  }
  std::vector<int> sent;
  const auto total = static_cast<double>(context_.model.total_bytes());
  const auto all = static_cast<double>(context_.model.total_elements());
  if (options.zero_stage == 1 && options.zero_broadcast_by_rank) {
    for (const RankWork& owner : context_.step.ranks) {
      sent.push_back(collective(
          {CollectiveKind::Broadcast, total * static_cast<double>(owner.owned_elements) / all, -1},
          kComputeStream));
    }
  } else if (options.zero_stage == 1) {
    for (const BucketParameter& parameter : context_.model.parameters) {
      sent.push_back(collective(
          {CollectiveKind::Broadcast, static_cast<double>(parameter.bytes), -1}, kComputeStream));
    }
  } else if (options.zero_stage == 2) {
    for (std::size_t b = 0; b < buckets_->list.size(); ++b) {
      sent.push_back(collective(
          {CollectiveKind::AllGather, gradient_bytes(static_cast<int>(b)), -1}, kComputeStream));
    }
  }
  if (averages_parameters(options.hook, options.hook_options, context_.step.step)) {
    host_sync();
    sent.push_back(collective({CollectiveKind::AllReduce, total, -1}, kComputeStream));
  }
  if (context_.step.last_of_join) {
    sent.push_back(collective({CollectiveKind::AllReduce, kScalarBytes, -1}, kComputeStream));
    sent.push_back(collective({CollectiveKind::AllReduce, kScalarBytes, -1}, kComputeStream));
    sent.push_back(collective({CollectiveKind::Broadcast, total, -1}, kComputeStream));
  }
  for (const int one : sent) {
    wait(one);
  }
}

}  // namespace stepsim
