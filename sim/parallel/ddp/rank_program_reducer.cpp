#include <algorithm>
#include <stdexcept>
#include <string>

#include "costmodel/base/index.h"
#include "costmodel/base/mapped.h"
#include "sim/parallel/ddp/rank_program_builder.h"

namespace stepsim {

void RankProgramBuilder::backward(const Iteration& iteration,
                                  const MicroBatchWork& batch,
                                  bool accumulates) {
  const std::size_t buckets = buckets_->list.size();
  pending_.assign(buckets, 0);
  for (std::size_t b = 0; b < buckets; ++b) {
    pending_[b] = static_cast<int>(buckets_->list[b].parameters.size());
  }
  begin_backward(buckets);
  next_bucket_ = 0;
  first_hook_ = true;
  const bool by_hooks = iteration.launching == Launching::ByHooks && context_.options.overlap;
  for (std::size_t op = 0; op < batch.backward.size(); ++op) {
    kernel(batch.backward[op], Phase::Backward);
    for (const int parameter : context_.model.completes[op]) {
      if (is_unused(parameter)) {
        continue;
      }
      if (accumulates) {
        memory(3 * gradient_bytes_of(parameter), Phase::Backward);
      }
      if (iteration.synchronises) {
        host(context_.prices.hook);
      }
      if (by_hooks) {
        gradient_ready(parameter);
      }
    }
  }
  if (iteration.synchronises && !by_hooks) {
    launch_all_after_graph(iteration);
  } else if (by_hooks && next_bucket_ < buckets) {
    throw std::invalid_argument("ddp: bucket " + std::to_string(next_bucket_) +
                                " never becomes ready: a gradient is completed by no op");
  }
  if (by_hooks && iteration.sends_bitmap) {
    send_bitmap();
  }
}

void RankProgramBuilder::backward_joined(const Iteration& iteration) {
  const std::size_t buckets = buckets_->list.size();
  begin_backward(buckets);
  if (!iteration.synchronises) {
    return;
  }
  for (std::size_t b = 0; b < buckets; ++b) {
    elements(OpClass::ZeroGradient, bucket_elements(static_cast<int>(b)), Phase::Other);
    launch(static_cast<int>(b));
  }
  if (iteration.sends_bitmap) {
    send_bitmap();
  }
}

void RankProgramBuilder::launch_all_after_graph(const Iteration& iteration) {
  if (iteration.launching == Launching::AfterGraph && iteration.sends_bitmap) {
    send_bitmap();
  }
  for (std::size_t b = 0; b < buckets_->list.size(); ++b) {
    for (const int parameter : buckets_->list[b].parameters) {
      copy_in(parameter);
    }
    launch(static_cast<int>(b));
  }
  if (iteration.launching != Launching::AfterGraph && iteration.sends_bitmap) {
    send_bitmap();
  }
}

void RankProgramBuilder::send_bitmap() {
  const auto parameters = static_cast<double>(context_.model.parameters.size());
  bitmap_ = collective({CollectiveKind::AllReduce, 4 * parameters, -1}, kComputeStream);
}

void RankProgramBuilder::gradient_ready(int parameter) {
  if (first_hook_) {
    first_hook_ = false;
    if (context_.step.joining && !context_.options.divide_by_initial_world_size) {
      wait(active_ranks_);
      host_sync();
    }
    for (const int unused : context_.options.unused_parameters) {
      mark_ready(unused);
    }
  }
  mark_ready(parameter);
}

void RankProgramBuilder::mark_ready(int parameter) {
  copy_in(parameter);
  --pending_[at(buckets_->bucket_of[at(parameter)])];
  while (next_bucket_ < pending_.size() && pending_[next_bucket_] == 0) {
    launch(static_cast<int>(next_bucket_++));
  }
}

void RankProgramBuilder::copy_in(int parameter) {
  const DdpOptions& options = context_.options;
  const std::int64_t count = context_.model.elements(parameter);
  const BucketParameter& tensor = context_.model.parameters[at(parameter)];
  if (is_unused(parameter)) {
    elements(OpClass::ZeroGradient, count, Phase::Backward);
    return;
  }
  if (!tensor.sparse && (options.batched_grad_copy || (aliased() && hooked()))) {
    return;
  }
  elements(OpClass::GradientCopyIn, count, Phase::Backward);
}

void RankProgramBuilder::launch(int bucket) {
  const DdpOptions& options = context_.options;
  const int first = buckets_->list[at(bucket)].parameters.front();
  if (options.batched_grad_copy && !context_.model.parameters[at(first)].sparse) {
    if (!aliased()) {
      elements(OpClass::GradientCopyIn, bucket_elements(bucket), Phase::Backward);
    }
    if (!hooked()) {
      memory(2 * gradient_bytes(bucket), Phase::Backward);
    }
  }
  if (hooked()) {
    reduce_with_hook(bucket);
  } else {
    reduce(bucket);
  }
  if (options.optimizer_in_backward) {
    for (const int one : in_flight_[at(bucket)]) {
      stream_wait(one, kSideStream);
    }
    memory(2 * gradient_bytes(bucket), Phase::Optimizer, kSideStream);
    for (const int parameter : buckets_->list[at(bucket)].parameters) {
      elements(
          OpClass::Optimizer, context_.model.elements(parameter), Phase::Optimizer, kSideStream);
    }
    done_event_[at(bucket)] = record(kSideStream);
  }
}

bool RankProgramBuilder::is_unused(int parameter) const {
  const std::vector<int>& unused = context_.options.unused_parameters;
  return std::ranges::binary_search(unused, parameter);
}

/// Whether gradients lie in their bucket. With set_to_none a fresh one never does, whatever the
/// view option says.
bool RankProgramBuilder::aliased() const {
  return context_.options.gradient_as_bucket_view && !context_.options.set_to_none;
}

double RankProgramBuilder::gradient_bytes_of(int parameter) const {
  return context_.gradient_scale *
         static_cast<double>(context_.model.parameters[at(parameter)].bytes);
}

double RankProgramBuilder::gradient_bytes(int bucket) const {
  return context_.gradient_scale *
         static_cast<double>(bucket_bytes(buckets_->list[at(bucket)], context_.model.parameters));
}

double RankProgramBuilder::wire_bytes(int bucket) const {
  return context_.reduce_scale *
         static_cast<double>(bucket_bytes(buckets_->list[at(bucket)], context_.model.parameters));
}

std::int64_t RankProgramBuilder::bucket_elements(int bucket) const {
  return sum_of(buckets_->list[at(bucket)].parameters,
                [&](const int parameter) { return context_.model.elements(parameter); });
}

}  // namespace stepsim
