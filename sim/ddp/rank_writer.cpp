#include "sim/ddp/rank_writer.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>

namespace stepsim {

namespace {

std::size_t at(int index) {
  return static_cast<std::size_t>(index);
}

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

RankWriter::RankWriter(const StepContext& context, CollectiveLog& log, Program& program, int rank)
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

void RankWriter::mark(DdpMark mark) {
  Instruction in;
  in.kind = Do::Mark;
  in.index = mark;
  out_.push_back(in);
}

void RankWriter::host(Duration busy) {
  if (busy == Duration::zero()) {
    return;
  }
  Instruction in;
  in.part = Part::Other;
  if (context_.options.host_is_device) {
    in.kind = Do::Work;
    in.work = busy;
  } else {
    in.host = busy;
  }
  out_.push_back(in);
}

void RankWriter::kernel(const Kernel& kernel, Part part, std::uint8_t stream) {
  Instruction in;
  in.kind = Do::Work;
  in.stream = stream;
  in.part = part;
  in.bound = kernel.bound;
  in.blocks = kernel.blocks;
  in.label = kernel.label;
  in.work = kernel.work;
  if (!context_.options.host_is_device) {
    in.host = kernel.launch;
    in.latency = kernel.launch;
  }
  out_.push_back(in);
}

void RankWriter::memory(double bytes, Part part, std::uint8_t stream) {
  Kernel one = context_.prices.memory(bytes);
  one.work = to_duration(to_seconds(one.work) * work_.factor);
  kernel(one, part, stream);
}

void RankWriter::elements(OpClass op_class, std::int64_t count, Part part, std::uint8_t stream) {
  Kernel one = context_.prices.elements(op_class, count);
  one.work = to_duration(to_seconds(one.work) * work_.factor);
  kernel(one, part, stream);
}

int RankWriter::collective(const CollectiveUse& use, std::uint8_t stream, bool whole_world) {
  if (context_.options.host_is_device) {
    host(context_.prices.enqueue);
  }
  Instruction in;
  in.kind = Do::Collective;
  in.stream = stream;
  in.index = log_.issue(issued_++, rank_, use, whole_world);
  if (!context_.options.host_is_device) {
    in.host = context_.prices.enqueue;
    in.latency = context_.prices.enqueue;
  }
  out_.push_back(in);
  return in.index;
}

void RankWriter::stream_wait(int collective, std::uint8_t stream) {
  Instruction in;
  in.kind = Do::StreamWait;
  in.stream = stream;
  in.part = Part::Wait;
  in.index = collective;
  out_.push_back(in);
}

void RankWriter::wait(int collective) {
  if (context_.options.host_blocks && !context_.options.host_is_device) {
    Instruction in;
    in.kind = Do::HostWait;
    in.index = collective;
    out_.push_back(in);
  }
  stream_wait(collective);
}

void RankWriter::host_sync(std::uint8_t stream) {
  Instruction in;
  in.kind = Do::HostSync;
  in.stream = stream;
  in.latency = context_.options.host_is_device ? Duration::zero() : context_.prices.sync;
  out_.push_back(in);
}

int RankWriter::record(std::uint8_t stream) {
  Instruction in;
  in.kind = Do::Record;
  in.stream = stream;
  in.index = events_++;
  program_.events = std::max(program_.events, events_);
  out_.push_back(in);
  return in.index;
}

void RankWriter::event_wait(int event, std::uint8_t stream) {
  Instruction in;
  in.kind = Do::EventWait;
  in.stream = stream;
  in.part = Part::Wait;
  in.index = event;
  out_.push_back(in);
}

// -- A step --------------------------------------------------------------------------------------

void RankWriter::write() {
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
      elements(OpClass::ZeroGradient, total_elements(), Part::Forward);
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
        host(context_.prices.traversal_per_op *
             static_cast<std::int64_t>(context_.model.completes.size()));
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
  if (context_.options.host_is_device || context_.options.step_sync) {
    host_sync();
  }
}

void RankWriter::data(const MicroBatchWork& batch) {
  if (context_.options.host_is_device) {
    host_sync();
  }
  if (batch.ready > SimTime{}) {
    Instruction in;
    in.kind = Do::HostUntil;
    in.until = batch.ready;
    out_.push_back(in);
  }
  Instruction collate;
  collate.host = batch.collate;
  out_.push_back(collate);
  // The device goes on when the batch is there: a batch is built on the host in either case.
  Kernel copy = batch.copy_input;
  copy.bound = Bound::Unaffected;
  kernel(copy, Part::Data);
}

void RankWriter::before_forward(const Iteration& iteration, const MicroBatchWork& batch) {
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

void RankWriter::rebuild() {
  const auto parameters = static_cast<double>(context_.model.parameters.size());
  const auto buckets = static_cast<double>(buckets_->list.size());
  for (const double count : {parameters + 1, buckets}) {
    wait(collective({CollectiveKind::Broadcast, 4 * count, -1}, kComputeStream));
    host_sync();
  }
}

void RankWriter::broadcast_buffers() {
  for (const std::int64_t bytes : context_.model.buffer_bytes) {
    const auto size = static_cast<double>(bytes);
    memory(2 * size, Part::Other);
    wait(collective({CollectiveKind::Broadcast, size, -1}, kComputeStream));
    memory(2 * size, Part::Other);
  }
}

void RankWriter::forward(const MicroBatchWork& batch) {
  int cast_event = -1;
  if (context_.options.casts_parameters) {
    const auto bytes = static_cast<double>(context_.model.total_bytes());
    memory(bytes * (1 + context_.options.gradient_scale), Part::Forward, kSideStream);
    cast_event = record(kSideStream);
    event_wait(cast_event);
  }
  for (const Kernel& op : batch.forward) {
    kernel(op, Part::Forward);
  }
}

void RankWriter::backward(const Iteration& iteration,
                          const MicroBatchWork& batch,
                          bool accumulates) {
  const std::size_t buckets = buckets_->list.size();
  pending_.assign(buckets, 0);
  for (std::size_t b = 0; b < buckets; ++b) {
    pending_[b] = static_cast<int>(buckets_->list[b].parameters.size());
  }
  in_flight_.assign(buckets, {});
  done_event_.assign(buckets, -1);
  next_bucket_ = 0;
  first_hook_ = true;
  bitmap_ = -1;
  const bool by_hooks = iteration.launching == Launching::ByHooks && context_.options.overlap;
  for (std::size_t op = 0; op < batch.backward.size(); ++op) {
    kernel(batch.backward[op], Part::Backward);
    for (const int parameter : context_.model.completes[op]) {
      if (is_unused(parameter)) {
        continue;
      }
      if (accumulates) {
        memory(3 * gradient_bytes_of(parameter), Part::Backward);
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

void RankWriter::backward_joined(const Iteration& iteration) {
  const std::size_t buckets = buckets_->list.size();
  in_flight_.assign(buckets, {});
  done_event_.assign(buckets, -1);
  bitmap_ = -1;
  if (!iteration.synchronises) {
    return;
  }
  for (std::size_t b = 0; b < buckets; ++b) {
    elements(OpClass::ZeroGradient, bucket_elements(static_cast<int>(b)), Part::Other);
    launch(static_cast<int>(b));
  }
  if (iteration.sends_bitmap) {
    send_bitmap();
  }
}

void RankWriter::launch_all_after_graph(const Iteration& iteration) {
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

void RankWriter::send_bitmap() {
  const auto parameters = static_cast<double>(context_.model.parameters.size());
  bitmap_ = collective({CollectiveKind::AllReduce, 4 * parameters, -1}, kComputeStream);
}

void RankWriter::gradient_ready(int parameter) {
  if (first_hook_) {
    first_hook_ = false;
    if (context_.step.joining && !context_.options.divide_by_initial_world_size) {
      wait(active_ranks_);
      host_sync();
    }
    for (const int unused : context_.options.unused) {
      mark_ready(unused);
    }
  }
  mark_ready(parameter);
}

void RankWriter::mark_ready(int parameter) {
  copy_in(parameter);
  --pending_[at(buckets_->bucket_of[at(parameter)])];
  while (next_bucket_ < pending_.size() && pending_[next_bucket_] == 0) {
    launch(static_cast<int>(next_bucket_++));
  }
}

void RankWriter::copy_in(int parameter) {
  const SyncOptions& options = context_.options;
  const std::int64_t count = context_.model.elements(parameter);
  const BucketParameter& tensor = context_.model.parameters[at(parameter)];
  if (is_unused(parameter)) {
    elements(OpClass::ZeroGradient, count, Part::Backward);
    return;
  }
  if (!tensor.sparse && (options.batched_grad_copy || (aliased() && hooked()))) {
    return;
  }
  elements(OpClass::GradientCopyIn, count, Part::Backward);
}

void RankWriter::launch(int bucket) {
  const SyncOptions& options = context_.options;
  const int first = buckets_->list[at(bucket)].parameters.front();
  if (options.batched_grad_copy && !context_.model.parameters[at(first)].sparse) {
    if (!aliased()) {
      elements(OpClass::GradientCopyIn, bucket_elements(bucket), Part::Backward);
    }
    if (!hooked()) {
      memory(2 * gradient_bytes(bucket), Part::Backward);
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
    memory(2 * gradient_bytes(bucket), Part::Optimizer, kSideStream);
    for (const int parameter : buckets_->list[at(bucket)].parameters) {
      elements(
          OpClass::Optimizer, context_.model.elements(parameter), Part::Optimizer, kSideStream);
    }
    done_event_[at(bucket)] = record(kSideStream);
  }
}

bool RankWriter::is_unused(int parameter) const {
  const std::vector<int>& unused = context_.options.unused;
  return std::binary_search(unused.begin(), unused.end(), parameter);
}

/// Whether gradients lie in their bucket. With set_to_none a fresh one never does, whatever the
/// view option says.
bool RankWriter::aliased() const {
  return context_.options.gradient_as_bucket_view && !context_.options.set_to_none;
}

double RankWriter::gradient_bytes_of(int parameter) const {
  return context_.options.gradient_scale *
         static_cast<double>(context_.model.parameters[at(parameter)].bytes);
}

double RankWriter::gradient_bytes(int bucket) const {
  return context_.options.gradient_scale *
         static_cast<double>(bucket_bytes(buckets_->list[at(bucket)], context_.model.parameters));
}

double RankWriter::wire_bytes(int bucket) const {
  return context_.options.reduce_scale *
         static_cast<double>(bucket_bytes(buckets_->list[at(bucket)], context_.model.parameters));
}

std::int64_t RankWriter::bucket_elements(int bucket) const {
  std::int64_t count = 0;
  for (const int parameter : buckets_->list[at(bucket)].parameters) {
    count += context_.model.elements(parameter);
  }
  return count;
}

std::int64_t RankWriter::total_elements() const {
  std::int64_t count = 0;
  for (std::size_t p = 0; p < context_.model.parameters.size(); ++p) {
    count += context_.model.elements(static_cast<int>(p));
  }
  return count;
}

/// The default: one all-reduce of the bucket (a reduce-scatter from ZeRO-2 on).
void RankWriter::reduce(int bucket) {
  const SyncOptions& options = context_.options;
  const int first = buckets_->list[at(bucket)].parameters.front();
  if (context_.model.parameters[at(first)].sparse) {
    in_flight_[at(bucket)] = {collective(
        {CollectiveKind::AllGather, context_.step.sparse_bytes, bucket}, kComputeStream)};
    return;
  }
  const bool casts = options.reduce_scale != options.gradient_scale;
  if (casts) {
    memory(gradient_bytes(bucket) + wire_bytes(bucket), Part::Backward);
  }
  const CollectiveKind kind =
      options.zero_stage >= 2 ? CollectiveKind::ReduceScatter : CollectiveKind::AllReduce;
  const int sent = collective({kind, wire_bytes(bucket), bucket}, kComputeStream);
  in_flight_[at(bucket)] = {sent};
  if (options.casts_parameters) {
    // Native mixed precision divides and casts to fp32 on its own stream, after the reduction.
    stream_wait(sent, kSideStream);
    memory(2 * wire_bytes(bucket), Part::Other, kSideStream);
    memory(wire_bytes(bucket) * (1 + 1 / options.reduce_scale), Part::Other, kSideStream);
    done_event_[at(bucket)] = record(kSideStream);
  }
}

void RankWriter::reduce_with_hook(int bucket) {
  const SyncOptions& options = context_.options;
  const double bytes = gradient_bytes(bucket);
  const auto count = static_cast<double>(std::max<std::int64_t>(bucket_elements(bucket), 1));
  std::vector<std::vector<std::int64_t>> shapes;
  for (const int parameter : buckets_->list[at(bucket)].parameters) {
    shapes.push_back(context_.model.shapes[at(parameter)]);
  }
  const std::vector<HookCollective> parts = hook_collectives(options.hook,
                                                             options.hook_options,
                                                             shapes,
                                                             std::llround(bytes / count),
                                                             context_.ranks,
                                                             context_.step.step);
  host(context_.prices.python_hook);
  const bool started = context_.step.step >= options.hook_options.start_iteration;
  std::vector<int>& sent = in_flight_[at(bucket)];
  sent.clear();
  const auto send = [&](const HookCollective& part, std::uint8_t stream, bool world = true) {
    sent.push_back(collective({part.kind, part.bytes, bucket}, stream, world));
    return sent.back();
  };
  const auto finish_beside = [&](double moved) {
    stream_wait(sent.back(), kSideStream);
    memory(moved, Part::Other, kSideStream);
    done_event_[at(bucket)] = record(kSideStream);
  };
  switch (options.hook) {
    case CommunicationHook::None:
    case CommunicationHook::Noop:
      break;
    case CommunicationHook::AllReduce:
      memory(2 * bytes, Part::Backward);
      send(parts.front(), kComputeStream);
      break;
    case CommunicationHook::PostLocalSgd:
      memory(2 * bytes, Part::Backward);
      for (const HookCollective& part : parts) {
        send(part, kComputeStream, part.ranks == context_.ranks);
      }
      break;
    case CommunicationHook::Fp16:
    case CommunicationHook::Bf16:
      memory(1.5 * bytes, Part::Backward);
      memory(bytes, Part::Backward);
      send(parts.front(), kComputeStream);
      finish_beside(1.5 * bytes);
      break;
    case CommunicationHook::PowerSgd:
    case CommunicationHook::BatchedPowerSgd:
      if (started) {
        power_sgd(bucket, parts);
      } else {
        memory(2 * bytes, Part::Backward);
        send(parts.front(), kComputeStream);
      }
      break;
    case CommunicationHook::TopK: {
      // Selection reads magnitudes twice and writes the chosen; every rank's choice is added back.
      memory(3 * bytes, Part::Backward);
      for (const HookCollective& part : parts) {
        send(part, kComputeStream);
      }
      double gathered = 0;
      for (const HookCollective& part : parts) {
        gathered += part.bytes;
      }
      finish_beside(2 * gathered + bytes);
      break;
    }
    case CommunicationHook::QuantizePerTensor:
    case CommunicationHook::QuantizePerChannel: {
      memory(bytes, Part::Backward);  // Smallest and largest value.
      send(parts.front(), kComputeStream);
      stream_wait(sent.back(), kSideStream);
      memory(1.25 * bytes, Part::Other, kSideStream);
      send(parts.back(), kSideStream);
      finish_beside(context_.ranks * 2.25 * bytes);
      break;
    }
  }
}

/// Uncompressed tensors, all P, all Q, one after the other. The decompression synchronises the
/// device, so the host can launch nothing of the backward meanwhile.
void RankWriter::power_sgd(int bucket, const std::vector<HookCollective>& parts) {
  const double bytes = gradient_bytes(bucket);
  std::vector<int>& sent = in_flight_[at(bucket)];
  memory(5 * bytes, Part::Backward);  // Error feedback: add, and keep a copy.
  memory(bytes, Part::Backward);      // P = M Q reads the gradient once.
  const auto send = [&](const HookCollective& part, std::uint8_t stream) {
    sent.push_back(collective({part.kind, part.bytes, bucket}, stream));
    stream_wait(sent.back(), kSideStream);
  };
  for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
    send(parts[i], kComputeStream);
  }
  memory(bytes, Part::Other, kSideStream);  // Q = M^T P reads it again.
  send(parts.back(), kSideStream);
  memory(4 * bytes, Part::Other, kSideStream);  // P Q^T, and what it leaves as error.
  done_event_[at(bucket)] = record(kSideStream);
  host_sync(kSideStream);
  host_sync(kComputeStream);
  if (context_.options.host_is_device) {
    event_wait(done_event_[at(bucket)]);
  }
}

void RankWriter::finalize(const MicroBatchWork& batch) {
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

void RankWriter::copy_out(int bucket) {
  const SyncOptions& options = context_.options;
  if (options.optimizer_in_backward || options.casts_parameters) {
    return;
  }
  if (options.zero_stage >= 2) {
    const std::int64_t share = (bucket_elements(bucket) + context_.ranks - 1) / context_.ranks;
    elements(OpClass::GradientCopyOut, share, Part::CopyOut);
    return;
  }
  for (const int parameter : buckets_->list[at(bucket)].parameters) {
    if (is_unused(parameter)) {
      await_bitmap();
    } else if (!options.gradient_as_bucket_view &&
               !context_.model.parameters[at(parameter)].sparse) {
      elements(OpClass::GradientCopyOut, context_.model.elements(parameter), Part::CopyOut);
    }
  }
}

/// The host looks whether any rank used a parameter before it touches that gradient.
void RankWriter::await_bitmap() {
  if (bitmap_ >= 0) {
    wait(bitmap_);
    host_sync();
    bitmap_ = -1;
  }
}

void RankWriter::after_step() {
  const SyncOptions& options = context_.options;
  const bool joined = work_.micro_batches.back().joined;
  if (!options.optimizer_in_backward && !joined) {
    elements(OpClass::Optimizer, work_.owned_elements, Part::Optimizer);
  }
  std::vector<int> sent;
  const auto total = static_cast<double>(context_.model.total_bytes());
  const auto all = static_cast<double>(total_elements());
  if (options.zero_stage == 1 && options.broadcast_by_bucket) {
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

// -- Fully sharded -------------------------------------------------------------------------------

double RankWriter::unit_bytes(int unit) const {
  double bytes = 0;
  for (const int parameter : context_.model.units[at(unit)]) {
    bytes += static_cast<double>(context_.model.parameters[at(parameter)].bytes);
  }
  return bytes;
}

/// Asks for the parameters of a unit. It may start when what was enqueued before is done, which
/// keeps at most two units' parameters beside the root's.
void RankWriter::gather_unit(int unit) {
  if (gathered_[at(unit)] < 0 && !context_.model.units[at(unit)].empty()) {
    gathered_[at(unit)] =
        collective({CollectiveKind::AllGather, unit_bytes(unit), -1}, kComputeStream);
  }
}

void RankWriter::use_unit(int unit) {
  gather_unit(unit);
  if (gathered_[at(unit)] >= 0) {
    stream_wait(gathered_[at(unit)]);
  }
}

void RankWriter::sharded_forward(const MicroBatchWork& batch) {
  const auto units = static_cast<int>(context_.model.units.size());
  gathered_.assign(at(units), -1);
  use_unit(0);
  int current = 0;
  for (std::size_t op = 0; op < batch.forward.size(); ++op) {
    const int unit = context_.model.forward_unit[op];
    if (unit != current && unit != 0) {
      gather_unit(unit);
      if (unit + 1 < units) {
        gather_unit(unit + 1);
      }
      use_unit(unit);
      current = unit;
    }
    kernel(batch.forward[op], Part::Forward);
  }
}

void RankWriter::sharded_backward(const MicroBatchWork& batch,
                                  bool synchronises,
                                  bool accumulates) {
  const auto units = static_cast<int>(context_.model.units.size());
  in_flight_.assign(at(units), {});
  done_event_.assign(at(units), -1);
  bitmap_ = -1;
  const int root = gathered_.front();
  gathered_.assign(at(units), -1);
  gathered_.front() = root;  // The root keeps its parameters after the forward.
  std::vector<int> missing(at(units), 0);
  for (int unit = 0; unit < units; ++unit) {
    missing[at(unit)] = static_cast<int>(context_.model.units[at(unit)].size());
  }
  std::vector<int> unit_of(context_.model.parameters.size(), 0);
  for (int unit = 0; unit < units; ++unit) {
    for (const int parameter : context_.model.units[at(unit)]) {
      unit_of[at(parameter)] = unit;
    }
  }
  int current = 0;
  for (std::size_t op = 0; op < batch.backward.size(); ++op) {
    const int unit = context_.model.backward_unit[op];
    if (unit != current && unit != 0) {
      gather_unit(unit);
      if (unit > 1) {
        gather_unit(unit - 1);
      }
      use_unit(unit);
      current = unit;
    }
    kernel(batch.backward[op], Part::Backward);
    for (const int parameter : context_.model.completes[op]) {
      if (accumulates) {
        memory(3 * gradient_bytes_of(parameter), Part::Backward);
      }
      if (--missing[at(unit_of[at(parameter)])] == 0 && synchronises) {
        scatter_unit(unit_of[at(parameter)]);
      }
    }
  }
}

void RankWriter::scatter_unit(int unit) {
  std::int64_t count = 0;
  for (const int parameter : context_.model.units[at(unit)]) {
    count += context_.model.elements(parameter);
  }
  elements(OpClass::GradientCopyIn, count, Part::Backward);
  in_flight_[at(unit)] = {collective(
      {CollectiveKind::ReduceScatter, unit_bytes(unit) * context_.options.reduce_scale, -1},
      kComputeStream)};
}

}  // namespace stepsim
