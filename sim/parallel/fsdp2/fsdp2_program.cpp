#include "sim/parallel/fsdp2/fsdp2_program.h"

#include <algorithm>
#include <deque>
#include <iterator>
#include <optional>

#include "costmodel/base/index.h"
#include "sim/engine/time_limit.h"
#include "sim/parallel/fsdp2/model_units.h"
#include "sim/parallel/fsdp2/unit_bytes.h"
#include "sim/parallel/fsdp2/unit_walk.h"
#include "sim/parallel/rank_program.h"

namespace stepsim {
namespace {

// Streams beside the compute stream.
constexpr std::uint8_t kCopyInStream = 2;  // Of all-gathers.
constexpr std::uint8_t kGatherStream = 3;
constexpr std::uint8_t kReduceStream = 4;
constexpr std::uint8_t kReplicaStream = 5;

/// The labels of a model with units for the copies around its gathers, in their order.
enum class UnitCopy : std::uint8_t { In, Out };

/// What all ranks share.
struct Fsdp2Context {
  const TrainedModel& model;
  std::span<const ShardUnit> units;
  const Fsdp2Options& options;
  const StepHost& host;
  const StepPrices& prices;
  const StepWork& step;
  std::vector<UnitBytes> bytes;  ///< [unit]
  std::vector<UnitCall> calls;   ///< Of a forward.
  RankGroup shard_group;
  RankGroup reduce_group;
  RankGroup replica_group;
  RankGroup slice_group;
};

class Fsdp2RankProgram : private RankProgram {
 public:
  Fsdp2RankProgram(const Fsdp2Context& context, CollectiveLog& log, StepProgram& program, int rank)
      : RankProgram(context.host, context.prices, context.step, log, program, rank),
        context_(context),
        sequence_(context.units, context.options.mesh),
        gathers_(context.units.size(), -1),
        accumulated_(context.units.size(), false),
        partial_(context.units.size(), false),
        scattered_(context.units.size(), false) {}

  void build();

 private:
  enum class Pass { Forward, Backward };

  void forward(const MicroBatchWork& batch);
  void backward(const MicroBatchWork& batch, const ShardSwitches& switches);
  void enter(int unit);
  void leave(int unit);
  void act_all(Pass pass);
  void act(const ShardEvent& event, Pass pass);
  void optimizer();
  void add_on_host(double bytes);
  void hooks(int unit, Duration each, Duration of_tensor, int parts);
  void gather(int unit, bool slice);
  void await_gather(int unit, Pass pass);
  void reduce(int unit);
  void reduce_replicas(int unit);
  void finish_reduction(int unit, std::uint8_t stream, int collective);
  void accumulate_unreduced(int unit);
  void free_gather_buffer();
  void run_backward_ops(const MicroBatchWork& batch, int unit, bool also_unit);
  /// A collective that a CPU's host waits for at once, unless it is to run beside compute.
  int issued(const CollectiveUse& use, std::uint8_t stream, const RankGroup& group, bool beside);
  [[nodiscard]] bool on_cpu() const { return context_.host.is_device; }
  [[nodiscard]] std::int32_t copy_label(UnitCopy copy) const {
    const std::int32_t first = context_.model.copy_labels;
    return first < 0 ? -1 : first + static_cast<std::int32_t>(copy);
  }
  /// On a CPU there is one stream.
  [[nodiscard]] std::uint8_t stream(std::uint8_t stream) const {
    return on_cpu() ? kComputeStream : stream;
  }

  const Fsdp2Context& context_;
  ShardSequence sequence_;
  std::vector<int> gathers_;       ///< [unit] its all-gather under way.
  std::vector<bool> accumulated_;  ///< [unit] it has gradients of earlier micro-batches.
  std::vector<bool> partial_;      ///< [unit] it has scattered ones that no all-reduce has summed.
  std::vector<bool> scattered_;    ///< [unit] its shard has gradients.
  std::deque<int> held_;           ///< Reduce-scatters whose inputs are held, the oldest first.
  int copied_ = -1;                ///< The event after the copy-out whose gather buffer is kept.
  std::size_t op_ = 0;             ///< The next op of the backward.
  int reduced_ = -1;               ///< The event after the last work on the reduction streams.
  int replicated_ = -1;
};

void Fsdp2RankProgram::build() {
  mark(kStepStart);
  for (std::size_t m = 0; m < work().micro_batches.size(); ++m) {
    const MicroBatchWork& batch = work().micro_batches[m];
    const std::vector<ShardSwitches>& all = context_.options.switches;
    data(batch);
    if (m == 0) {
      mark(kDataEnd);
    }
    forward(batch);
    mark(kForwardEnd);
    backward(batch, m < all.size() ? all[m] : ShardSwitches{});
  }
  optimizer();
  end_step();
}

void Fsdp2RankProgram::optimizer() {
  begin_optimizer();
  const auto tensors = static_cast<std::int64_t>(context_.model.shapes.size());
  host(context_.prices.unit_host.optimizer_tensor * tensors);
  if (!context_.options.offload) {
    elements(OpClass::Optimizer, work().owned_elements, Phase::Optimizer);
    return;
  }
  host(bounded_duration(context_.prices.host_optimizer *
                        static_cast<double>(work().owned_elements)));
  kernel({}, Phase::Optimizer);  // The device has nothing to do until then.
}

int Fsdp2RankProgram::issued(const CollectiveUse& use,
                             std::uint8_t stream_of,
                             const RankGroup& group,
                             bool beside) {
  const int number = collective(use, stream(stream_of), group);
  if (on_cpu() && !beside) {
    wait(number);
  }
  return number;
}

void Fsdp2RankProgram::forward(const MicroBatchWork& batch) {
  if (!on_cpu()) {
    const int begun = record(kComputeStream);  // Behind the optimizer of the step before.
    event_wait(begun, Phase::Other, kCopyInStream);
    event_wait(begun, Phase::Other, kGatherStream);
  }
  sequence_.begin_forward();
  for (const UnitCall& call : context_.calls) {
    switch (call.kind) {
      case UnitCall::Kind::Enter:
        enter(call.index);
        break;
      case UnitCall::Kind::Leave:
        leave(call.index);
        break;
      case UnitCall::Kind::Op:
        kernel(batch.forward[at(call.index)], Phase::Forward);
        break;
    }
  }
  free_gather_buffer();
}

void Fsdp2RankProgram::enter(int unit) {
  sequence_.enter(unit);
  act_all(Pass::Forward);
}

void Fsdp2RankProgram::leave(int unit) {
  sequence_.leave(unit);
  act_all(Pass::Forward);
}

void Fsdp2RankProgram::act_all(Pass pass) {
  for (const ShardEvent& event : sequence_.events()) {
    act(event, pass);
  }
  sequence_.clear_events();
}

void Fsdp2RankProgram::backward(const MicroBatchWork& batch, const ShardSwitches& switches) {
  op_ = 0;
  held_.clear();
  reduced_ = replicated_ = -1;
  sequence_.backward(switches);
  for (const ShardEvent& event : sequence_.events()) {
    if (event.act == ShardAct::PreBackward && event.unit != 0) {
      run_backward_ops(batch, event.unit, false);
    } else if (event.act == ShardAct::PostBackward) {
      run_backward_ops(batch, event.unit, true);
      if (!switches.gradient_sync) {
        accumulate_unreduced(event.unit);
      }
    }
    act(event, Pass::Backward);
  }
  sequence_.clear_events();
  mark(kBackwardEnd);
  if (!on_cpu()) {
    for (const int event : {reduced_, replicated_}) {
      if (event >= 0) {
        event_wait(event, Phase::Wait);
        if (context_.options.offload) {
          host_event_wait(event);
        }
      }
    }
  }
  copied_ = -1;
}

void Fsdp2RankProgram::run_backward_ops(const MicroBatchWork& batch, int unit, bool also_unit) {
  const std::size_t end = backward_until(context_.model, op_, unit, also_unit);
  while (op_ < end) {
    kernel(batch.backward[op_++], Phase::Backward);
  }
}

/// One of `parts` equal parts of what the host takes for a unit.
void Fsdp2RankProgram::hooks(int unit, Duration each, Duration of_tensor, int parts) {
  const auto tensors = static_cast<std::int64_t>(context_.units[at(unit)].tensors.size());
  host((each + of_tensor * tensors) / parts);
}

void Fsdp2RankProgram::act(const ShardEvent& event, Pass pass) {
  const UnitHost& prices = context_.prices.unit_host;
  switch (event.act) {
    case ShardAct::PreForward:
      return hooks(event.unit, prices.forward, prices.forward_tensor, 1);
    case ShardAct::PreBackward:
    case ShardAct::PostBackward:
      return hooks(event.unit, prices.backward, prices.backward_tensor, 2);
    case ShardAct::PostForward:
      return;
    case ShardAct::Unshard:
      return gather(event.unit, event.slice);
    case ShardAct::Wait:
      return await_gather(event.unit, pass);
    case ShardAct::Reshard:
      if (event.slice) {
        const double slice =
            context_.bytes[at(event.unit)].gathered / context_.units[at(event.unit)].slice_ranks;
        memory(2 * slice, Phase::Forward);
      }
      return;
    case ShardAct::ReduceScatter:
      return reduce(event.unit);
    case ShardAct::AllReduce:
      return reduce_replicas(event.unit);
  }
}

void Fsdp2RankProgram::gather(int unit, bool slice) {
  const UnitBytes& bytes = context_.bytes[at(unit)];
  if (bytes.gathered == 0) {
    return;
  }
  const int ranks = slice ? context_.units[at(unit)].slice_ranks : context_.options.mesh.shards;
  const double part = bytes.gathered / ranks;
  const std::uint8_t copy_in = stream(kCopyInStream);
  if (context_.options.offload && !slice) {
    kernel(context_.prices.host_copy(bytes.stored_shard), Phase::Other, copy_in);
  }
  if (bytes.casts && !slice) {
    memory(bytes.stored_shard + part, Phase::Other, copy_in);
  }
  memory(2 * part, Phase::Other, copy_in, copy_label(UnitCopy::In));
  if (ranks == 1 && !context_.options.mesh.single_gathers) {
    return;
  }
  if (!on_cpu()) {
    event_wait(record(copy_in), Phase::Other, kGatherStream);
  }
  gathers_[at(unit)] = issued({CollectiveKind::AllGather, bytes.gathered, -1},
                              kGatherStream,
                              slice ? context_.slice_group : context_.shard_group,
                              context_.options.async_unshard);
}

/// The gather streams may reuse the buffer of the gather before only when it has been copied out.
void Fsdp2RankProgram::free_gather_buffer() {
  if (copied_ >= 0 && !on_cpu()) {
    event_wait(copied_, Phase::Other, kCopyInStream);
    event_wait(copied_, Phase::Other, kGatherStream);
  }
  copied_ = -1;
}

void Fsdp2RankProgram::await_gather(int unit, Pass pass) {
  const UnitBytes& bytes = context_.bytes[at(unit)];
  if (bytes.gathered == 0) {
    return;
  }
  const Phase phase = pass == Pass::Forward ? Phase::Forward : Phase::Backward;
  if (pass == Pass::Forward) {
    free_gather_buffer();
  }
  int& number = gathers_[at(unit)];
  if (number >= 0) {
    if (!on_cpu()) {
      stream_wait(number);
    } else if (context_.options.async_unshard) {
      wait(number);
    }
    number = -1;
  }
  memory(2 * bytes.gathered, phase, kComputeStream, copy_label(UnitCopy::Out));
  if (!on_cpu()) {
    copied_ = record(kComputeStream);
  }
  if (pass == Pass::Backward) {
    free_gather_buffer();
  }
}

/// Gradients that stay on their rank are kept in the type of the reduction.
void Fsdp2RankProgram::accumulate_unreduced(int unit) {
  const UnitBytes& bytes = context_.bytes[at(unit)];
  if (bytes.gradients == 0) {
    return;
  }
  if (accumulated_[at(unit)]) {
    memory(bytes.gradients + 2 * bytes.reduced, Phase::Backward);
  } else if (bytes.reduced != bytes.gradients) {
    memory(bytes.gradients + bytes.reduced, Phase::Backward);
  }
  accumulated_[at(unit)] = true;
}

void Fsdp2RankProgram::reduce(int unit) {
  const UnitBytes& bytes = context_.bytes[at(unit)];
  if (bytes.reduced == 0) {
    return;
  }
  if (static_cast<int>(held_.size()) >= context_.options.reduce_buffers) {
    if (!on_cpu()) {
      stream_wait(held_.front());
    }
    held_.pop_front();
  }
  // The last micro-batch adds what earlier ones kept.
  const double kept = accumulated_[at(unit)] ? bytes.reduced : 0;
  accumulated_[at(unit)] = false;
  if (kept > 0) {
    memory(bytes.gradients + 2 * kept, Phase::Backward);
  }
  memory((kept > 0 ? bytes.reduced : bytes.gradients) + bytes.reduced, Phase::Backward);
  if (!on_cpu()) {
    event_wait(record(kComputeStream), Phase::Other, kReduceStream);
  }
  const int number = issued({CollectiveKind::ReduceScatter, bytes.reduced, -1},
                            kReduceStream,
                            context_.reduce_group,
                            false);
  held_.push_back(number);
  finish_reduction(unit, kReduceStream, number);
}

void Fsdp2RankProgram::reduce_replicas(int unit) {
  const UnitBytes& bytes = context_.bytes[at(unit)];
  if (bytes.reduced == 0) {
    return;
  }
  if (!scatters(context_.options.mesh)) {
    memory(bytes.gradients + bytes.reduced, Phase::Backward);
    if (!on_cpu()) {
      event_wait(record(kComputeStream), Phase::Other, kReplicaStream);
    }
  } else if (!on_cpu()) {
    stream_wait(held_.back(), kReplicaStream);
  }
  const int number = issued({CollectiveKind::AllReduce, bytes.reduced_shard, -1},
                            kReplicaStream,
                            context_.replica_group,
                            false);
  finish_reduction(unit, kReplicaStream, number);
}

/// What follows on the stream of a unit's reduction, once: casts and sums with earlier gradients.
void Fsdp2RankProgram::finish_reduction(int unit, std::uint8_t stream_of, int collective) {
  const UnitBytes& bytes = context_.bytes[at(unit)];
  const std::uint8_t own = stream(stream_of);
  if (!on_cpu()) {
    stream_wait(collective, own);
  }
  if (stream_of == kReduceStream && context_.options.mesh.replicates) {
    if (partial_[at(unit)]) {
      memory(3 * bytes.reduced_shard, Phase::Other, own);
    }
    partial_[at(unit)] = true;  // An all-reduce may follow.
  } else {
    partial_[at(unit)] = false;
    if (bytes.casts_back) {
      memory(bytes.reduced_shard + bytes.stored_gradient_shard, Phase::Other, own);
    }
    if (context_.options.offload) {
      kernel(context_.prices.host_copy(bytes.stored_gradient_shard), Phase::Other, own);
      if (scattered_[at(unit)]) {
        host_event_wait(record(own));
        add_on_host(bytes.stored_gradient_shard);
      }
    } else if (scattered_[at(unit)]) {
      memory(3 * bytes.stored_gradient_shard, Phase::Other, own);
    }
    scattered_[at(unit)] = true;
  }
  if (!on_cpu()) {
    (stream_of == kReplicaStream ? replicated_ : reduced_) = record(own);
  }
}

/// Reads two numbers and writes one, where AdamW reads four and writes three.
void Fsdp2RankProgram::add_on_host(double bytes) {
  constexpr double kOfOptimizer = 3.0 / 7;
  const double elements = bytes / static_cast<double>(context_.model.element_bytes);
  host(bounded_duration(kOfOptimizer * context_.prices.host_optimizer * elements));
}

RankGroup group_of(int communicator, int ranks, int stride = 1) {
  return {communicator, ranks, stride};
}

int slice_ranks_of(std::span<const ShardUnit> units) {
  int ranks = 0;
  for (const ShardUnit& unit : units) {
    ranks = std::max(ranks, unit.slice_ranks);
  }
  return ranks;
}

}  // namespace

StepProgram fsdp2_program(const TrainedModel& model,
                          std::span<const ShardUnit> units,
                          const Fsdp2Options& options,
                          const StepHost& host,
                          const StepPrices& prices,
                          const StepWork& step) {
  StepProgram result = empty_program(model, step);
  result.waits_within = true;
  Fsdp2Context context = {model, units, options, host, prices, step, {}, {}, {}, {}, {}, {}};
  for (const ShardUnit& unit : units) {
    context.bytes.push_back(bytes_of(unit, options.mesh.shards));
  }
  context.calls = forward_calls(model);
  const int shards = options.mesh.shards;
  const int replicas = replicas_of(options);
  int next = 1;
  context.shard_group = context.reduce_group = group_of(next, shards);
  next += replicas;
  if (options.separate_reduce_group) {
    context.reduce_group = group_of(next, shards);
    next += replicas;
  }
  if (options.mesh.replicates) {
    context.replica_group = group_of(next, replicas, shards);
    next += shards;
  }
  context.slice_group = group_of(next, slice_ranks_of(units));
  build_ranks<Fsdp2RankProgram>(context, prices, step, result);
  return result;
}

}  // namespace stepsim
