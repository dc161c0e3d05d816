#include "sim/parallel/ddp/rank_program_builder.h"

#include <algorithm>

#include "costmodel/base/index.h"
#include "sim/engine/time_limit.h"

namespace stepsim {

namespace {

constexpr double kScalarBytes = 4;

}  // namespace

int CollectiveLog::issue(std::size_t n, int rank, const CollectiveUse& use, bool whole_world) {
  const int per_group = context_.options.hook_options.subgroup_ranks;
  const int group = whole_world || per_group <= 0 ? 0 : rank / per_group;
  if (n == issued_.size()) {
    issued_.emplace_back();
  }
  std::vector<int>& ids = issued_[n];
  ids.resize(std::max(ids.size(), at(group) + 1), -1);
  if (ids[at(group)] < 0) {
    Collective collective;
    collective.communicator = whole_world ? 0 : group + 1;
    collective.transfer = context_.prices.transfer(use.kind, use.bytes, whole_world);
    collective.channels = context_.prices.channels(use.bytes);
    ids[at(group)] = static_cast<int>(program_.program.collectives.size());
    program_.program.collectives.push_back(collective);
    program_.uses.push_back(use);
  }
  return ids[at(group)];
}

RankProgramBuilder::RankProgramBuilder(const StepContext& context,
                                       CollectiveLog& log,
                                       Program& program,
                                       int rank)
    : context_(context),
      log_(log),
      program_(program),
      out_(program.ranks[at(rank)]),
      rank_(rank),
      work_(context.step.ranks[at(rank)]),
      buckets_(&context.initial) {
  out_.reserve(4 * (context.model.completes.size() + context.model.parameters.size()) *
               work_.micro_batches.size());
}

// -- Instructions --------------------------------------------------------------------------------

void RankProgramBuilder::mark(DdpMark mark) {
  Instruction in;
  in.kind = Opcode::Mark;
  in.index = mark;
  out_.push_back(in);
}

void RankProgramBuilder::host(Duration busy) {
  if (busy == Duration::zero()) {
    return;
  }
  Instruction in;
  in.phase = Phase::Other;
  if (context_.host.is_device) {
    in.kind = Opcode::Work;
    in.work = busy;
  } else {
    in.host = busy;
  }
  out_.push_back(in);
}

void RankProgramBuilder::kernel(const Kernel& kernel, Phase phase, std::uint8_t stream) {
  Instruction in;
  in.kind = Opcode::Work;
  in.stream = stream;
  in.phase = phase;
  in.bound = kernel.bound;
  in.blocks = kernel.blocks;
  in.label = kernel.label;
  in.work = kernel.work;
  if (!context_.host.is_device) {
    in.host = kernel.launch;
    in.latency = kernel.launch;
  }
  out_.push_back(in);
}

void RankProgramBuilder::memory(double bytes, Phase phase, std::uint8_t stream) {
  kernel(context_.prices.memory(bytes, work_.factor), phase, stream);
}

void RankProgramBuilder::elements(OpClass op_class,
                                  std::int64_t count,
                                  Phase phase,
                                  std::uint8_t stream) {
  kernel(context_.prices.elements(op_class, count, work_.factor), phase, stream);
}

int RankProgramBuilder::collective(const CollectiveUse& use,
                                   std::uint8_t stream,
                                   bool whole_world) {
  if (context_.host.is_device) {
    host(context_.prices.enqueue);
  }
  Instruction in;
  in.kind = Opcode::Collective;
  in.stream = stream;
  in.index = log_.issue(issued_++, rank_, use, whole_world);
  if (!context_.host.is_device) {
    in.host = context_.prices.enqueue;
    in.latency = context_.prices.enqueue;
  }
  out_.push_back(in);
  return in.index;
}

void RankProgramBuilder::stream_wait(int collective, std::uint8_t stream) {
  Instruction in;
  in.kind = Opcode::StreamWait;
  in.stream = stream;
  in.phase = Phase::Wait;
  in.index = collective;
  out_.push_back(in);
}

void RankProgramBuilder::wait(int collective) {
  if (context_.host.waits_for_collectives && !context_.host.is_device) {
    Instruction in;
    in.kind = Opcode::HostWait;
    in.index = collective;
    out_.push_back(in);
  }
  stream_wait(collective);
}

void RankProgramBuilder::host_sync(std::uint8_t stream) {
  Instruction in;
  in.kind = Opcode::HostSync;
  in.stream = stream;
  in.latency = context_.host.is_device ? Duration::zero() : context_.prices.sync;
  out_.push_back(in);
}

int RankProgramBuilder::record(std::uint8_t stream) {
  Instruction in;
  in.kind = Opcode::Record;
  in.stream = stream;
  in.index = events_++;
  program_.events = std::max(program_.events, events_);
  out_.push_back(in);
  return in.index;
}

void RankProgramBuilder::event_wait(int event, std::uint8_t stream) {
  Instruction in;
  in.kind = Opcode::EventWait;
  in.stream = stream;
  in.phase = Phase::Wait;
  in.index = event;
  out_.push_back(in);
}

// -- A step --------------------------------------------------------------------------------------

void RankProgramBuilder::build() {
  mark(kStepStart);
  const bool sharded = context_.options.zero_stage == 3;
  for (std::size_t m = 0; m < work_.micro_batches.size(); ++m) {
    const MicroBatchWork& batch = work_.micro_batches[m];
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
    if (sharded) {
      sharded_forward(batch);
      mark(kForwardEnd);
      sharded_backward(batch, iteration.synchronises, m > 0);
    } else {
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
        backward(iteration, batch, m > 0);
      }
    }
    mark(kBackwardEnd);
    if (iteration.synchronises) {
      finalize(batch);
    }
  }
  after_step();
  if (context_.host.is_device || context_.host.syncs_each_step) {
    host_sync();
  }
}

void RankProgramBuilder::data(const MicroBatchWork& batch) {
  if (context_.host.is_device) {
    host_sync();
  }
  if (batch.ready > SimTime{}) {
    Instruction in;
    in.kind = Opcode::HostUntil;
    in.until = batch.ready;
    out_.push_back(in);
  }
  Instruction collate;
  collate.host = batch.collate;
  out_.push_back(collate);
  // The device goes on when the batch is there: a batch is built on the host in either case.
  Kernel copy = batch.copy_input;
  copy.bound = Bound::Unaffected;
  kernel(copy, Phase::Data);
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
    event_wait(cast_event);
  }
  for (const Kernel& op : batch.forward) {
    kernel(op, Phase::Forward);
  }
}

void RankProgramBuilder::finalize(const MicroBatchWork& batch) {
  for (std::size_t b = 0; b < in_flight_.size(); ++b) {
    const int bucket = static_cast<int>(b);
    if (done_event_[b] >= 0) {
      event_wait(done_event_[b]);
    }
    for (const int one : in_flight_[b]) {
      wait(one);
    }
    if (context_.options.zero_stage < 3 && !batch.joined) {
      copy_out(bucket);
    }
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
  const DdpOptions& options = context_.options;
  const bool joined = work_.micro_batches.back().joined;
  if (!options.optimizer_in_backward && !joined) {
    elements(OpClass::Optimizer, work_.owned_elements, Phase::Optimizer);
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
