#include "sim/parallel/fsdp1/fsdp1_program.h"

#include <algorithm>
#include <deque>

#include "costmodel/base/index.h"
#include "costmodel/base/mapped.h"
#include "sim/parallel/rank_program.h"

namespace stepsim {
namespace {

// Streams beside the compute stream.
constexpr std::uint8_t kPreUnshardStream = 2;  // Casts before all-gathers.
constexpr std::uint8_t kUnshardStream = 3;
constexpr std::uint8_t kPostBackwardStream = 4;  // Casts, reduce-scatters, all-reduces.

constexpr std::size_t kMostFreed = 2;  // Units whose freeing the device has not come to yet.

/// What all ranks share.
struct Fsdp1Context {
  const TrainedModel& model;
  const Fsdp1Options& options;
  const StepHost& host;
  const StepPrices& prices;
  const StepWork& step;
  std::vector<double> elements;  ///< [unit] of its FlatParameter.
  double stored = 4;             ///< Bytes of an element: of the shard,
  double gathered = 4;
  double reduced = 4;
  int pre_divisor = 1;  ///< Gradients are divided before and after they are summed.
  int post_divisor = 1;
  RankGroup shard_group;
  RankGroup replica_group;
};

class Fsdp1RankProgram : private RankProgram {
 public:
  Fsdp1RankProgram(const Fsdp1Context& context, CollectiveLog& log, StepProgram& program, int rank)
      : RankProgram(context.host, context.prices, context.step, log, program, rank),
        context_(context),
        units_(context.elements.size()) {}

  void build();

 private:
  struct Unit {
    bool gathered = false;
    int gather = -1;         ///< Its all-gather under way.
    bool pending = false;    ///< It has been unsharded, and nobody has waited for it.
    bool unreduced = false;  ///< It has gradients of earlier micro-batches on this rank only.
    bool has_shard = false;  ///< Its shard has gradients.
  };

  void forward(const MicroBatchWork& batch);
  void backward(const MicroBatchWork& batch, bool reduces);
  void enter(int unit, const std::vector<int>& order);
  void leave(int unit);
  void unshard(int unit);
  void await_unshard(int unit);
  void free(int unit);
  void begin_backward(int unit, const std::vector<int>& order);
  void end_backward(int unit, bool reduces, const std::vector<int>& order);
  void reduce(int unit);
  void hooks(Duration each, Duration of_tensor, int parts) { host((each + of_tensor) / parts); }
  int issued(const CollectiveUse& use, std::uint8_t stream, const RankGroup& group);
  [[nodiscard]] bool has_parameters(int unit) const { return context_.elements[at(unit)] > 0; }
  [[nodiscard]] bool on_cpu() const { return context_.host.is_device; }
  [[nodiscard]] std::uint8_t stream(std::uint8_t stream) const {
    return on_cpu() ? kComputeStream : stream;
  }

  const Fsdp1Context& context_;
  std::vector<Unit> units_;
  std::deque<int> freed_;  ///< Events after which a freed unit is in use no more.
  int reduced_ = -1;       ///< The event after the last work on the post-backward stream.
};

/// The units with parameters in the order in which a pass comes to them first.
std::vector<int> order_of(const std::vector<int>& units) {
  std::vector<int> order;
  for (const int unit : units) {
    if (std::ranges::find(order, unit) == order.end()) {
      order.push_back(unit);
    }
  }
  return order;
}

void Fsdp1RankProgram::build() {
  mark(kStepStart);
  for (std::size_t m = 0; m < work().micro_batches.size(); ++m) {
    const MicroBatchWork& batch = work().micro_batches[m];
    data(batch);
    if (m == 0) {
      mark(kDataEnd);
    }
    forward(batch);
    mark(kForwardEnd);
    backward(batch, context_.options.syncs_each_batch || m + 1 == work().micro_batches.size());
  }
  begin_optimizer();
  elements(OpClass::Optimizer, work().owned_elements, Phase::Optimizer);
  end_step();
}

int Fsdp1RankProgram::issued(const CollectiveUse& use,
                             std::uint8_t stream_of,
                             const RankGroup& group) {
  const int number = collective(use, stream(stream_of), group);
  if (on_cpu()) {
    wait(number);
  }
  return number;
}

void Fsdp1RankProgram::forward(const MicroBatchWork& batch) {
  if (!on_cpu()) {
    const int begun = record(kComputeStream);  // Behind the optimizer of the step before.
    event_wait(begun, Phase::Other, kPreUnshardStream);
    event_wait(begun, Phase::Other, kUnshardStream);
  }
  const std::vector<int> order = order_of(context_.model.forward_unit);
  enter(0, order);
  int current = 0;
  for (std::size_t op = 0; op < batch.forward.size(); ++op) {
    const int unit = context_.model.forward_unit[op];
    if (unit != current) {
      if (current != 0) {
        leave(current);
      }
      if (unit != 0) {
        enter(unit, order);
      }
      current = unit;
    }
    kernel(batch.forward[op], Phase::Forward);
  }
  if (current != 0) {
    leave(current);
  }
}

void Fsdp1RankProgram::enter(int unit, const std::vector<int>& order) {
  if (!has_parameters(unit)) {
    return;
  }
  hooks(context_.prices.unit_host.forward, context_.prices.unit_host.forward_tensor, 1);
  unshard(unit);
  await_unshard(unit);
  const auto here = std::ranges::find(order, unit);
  if (context_.options.forward_prefetch && here != order.end() && here + 1 != order.end() &&
      has_parameters(*(here + 1))) {
    unshard(*(here + 1));
  }
}

/// The root stays gathered, whatever the strategy.
void Fsdp1RankProgram::leave(int unit) {
  if (has_parameters(unit) && !context_.options.keeps_after_forward) {
    free(unit);
  }
}

void Fsdp1RankProgram::unshard(int unit) {
  Unit& state = units_[at(unit)];
  if (state.gathered || state.pending) {
    return;
  }
  state.pending = true;
  if (context_.options.limits_gathers && freed_.size() >= kMostFreed && !on_cpu()) {
    host_event_wait(freed_.front());
    freed_.pop_front();
  }
  const double elements = context_.elements[at(unit)];
  const double shard = elements / context_.options.shards;
  if (context_.gathered != context_.stored) {
    memory(shard * (context_.stored + context_.gathered), Phase::Other, stream(kPreUnshardStream));
  }
  if (context_.options.shards == 1) {
    return;
  }
  if (!on_cpu()) {
    event_wait(record(kPreUnshardStream), Phase::Other, kUnshardStream);
  }
  state.gather = issued({CollectiveKind::AllGather, elements * context_.gathered, -1},
                        kUnshardStream,
                        context_.shard_group);
}

void Fsdp1RankProgram::await_unshard(int unit) {
  Unit& state = units_[at(unit)];
  if (!state.pending) {
    return;
  }
  if (state.gather >= 0 && !on_cpu()) {
    stream_wait(state.gather);
  }
  state = {true, -1, false, state.unreduced, state.has_shard};
}

void Fsdp1RankProgram::free(int unit) {
  if (!units_[at(unit)].gathered) {
    return;
  }
  units_[at(unit)].gathered = false;
  if (context_.options.limits_gathers && !on_cpu()) {
    freed_.push_back(record(kComputeStream));
  }
}

void Fsdp1RankProgram::begin_backward(int unit, const std::vector<int>& order) {
  if (!has_parameters(unit)) {
    return;
  }
  hooks(context_.prices.unit_host.backward, context_.prices.unit_host.backward_tensor, 2);
  unshard(unit);
  await_unshard(unit);
  const auto here = std::ranges::find(order, unit);
  if (context_.options.backward_prefetch == Fsdp1Prefetch::Pre && here != order.end() &&
      here + 1 != order.end()) {
    unshard(*(here + 1));
  }
}

void Fsdp1RankProgram::end_backward(int unit, bool reduces, const std::vector<int>& order) {
  if (!has_parameters(unit)) {
    return;
  }
  hooks(context_.prices.unit_host.backward, context_.prices.unit_host.backward_tensor, 2);
  // Under no_sync() a strategy that keeps parameters keeps them for the next micro-batch, too.
  if (reduces || !context_.options.keeps_after_forward) {
    free(unit);
  }
  const auto here = std::ranges::find(order, unit);
  if (context_.options.backward_prefetch == Fsdp1Prefetch::Post && here != order.end() &&
      here + 1 != order.end()) {
    unshard(*(here + 1));
  }
  if (reduces) {
    reduce(unit);
    return;
  }
  Unit& state = units_[at(unit)];
  if (state.unreduced) {
    memory(3 * context_.elements[at(unit)] * context_.gathered, Phase::Backward);
  }
  state.unreduced = true;
}

void Fsdp1RankProgram::backward(const MicroBatchWork& batch, bool reduces) {
  const std::vector<int>& units = context_.model.backward_unit;
  // The root's hook is on the output of the model, so it comes first.
  std::vector<int> order = {0};
  for (const int unit : order_of(units)) {
    if (unit != 0 && has_parameters(unit)) {
      order.push_back(unit);
    }
  }
  if (!has_parameters(0)) {
    order.erase(order.begin());
  }
  begin_backward(0, order);
  for (std::size_t op = 0; op < batch.backward.size(); ++op) {
    const int unit = units[op];
    if (unit != 0 && (op == 0 || units[op - 1] != unit)) {
      begin_backward(unit, order);
    }
    kernel(batch.backward[op], Phase::Backward);
    if (unit != 0 && (op + 1 == units.size() || units[op + 1] != unit)) {
      end_backward(unit, reduces, order);
    }
  }
  end_backward(0, reduces, {});
  mark(kBackwardEnd);
  if (!on_cpu() && reduced_ >= 0) {
    event_wait(reduced_, Phase::Wait);
  }
  reduced_ = -1;
}

/// All of it is on the post-backward stream; an all-reduce among the replicas, too.
void Fsdp1RankProgram::reduce(int unit) {
  Unit& state = units_[at(unit)];
  const double elements = context_.elements[at(unit)];
  const double shard = elements / context_.options.shards;
  const std::uint8_t own = stream(kPostBackwardStream);
  if (state.unreduced) {
    memory(3 * elements * context_.gathered, Phase::Backward);
    state.unreduced = false;
  }
  if (context_.options.shards * context_.options.replicas == 1) {
    return;
  }
  if (!on_cpu()) {
    event_wait(record(kComputeStream), Phase::Other, own);
  }
  if (context_.reduced != context_.gathered) {
    memory(elements * (context_.gathered + context_.reduced), Phase::Other, own);
  }
  if (context_.pre_divisor > 1) {
    memory(2 * elements * context_.reduced, Phase::Other, own);
  }
  const auto after = [&](int number) {
    if (!on_cpu()) {
      stream_wait(number, own);
    }
  };
  if (context_.options.shards > 1) {
    after(issued({CollectiveKind::ReduceScatter, elements * context_.reduced, -1},
                 kPostBackwardStream,
                 context_.shard_group));
  }
  if (context_.options.replicas > 1) {
    after(issued({CollectiveKind::AllReduce, shard * context_.reduced, -1},
                 kPostBackwardStream,
                 context_.replica_group));
  }
  if (context_.post_divisor > 1) {
    memory(2 * shard * context_.reduced, Phase::Other, own);
  }
  if (context_.reduced != context_.stored) {
    memory(shard * (context_.reduced + context_.stored), Phase::Other, own);
  }
  if (state.has_shard) {
    memory(3 * shard * context_.stored, Phase::Other, own);
  }
  state.has_shard = true;
  if (!on_cpu()) {
    reduced_ = record(own);
  }
}

/// The power of two by which gradients are divided before they are summed, near the root of the
/// ranks.
int pre_divisor(int ranks) {
  int divisor = 1;
  while (ranks % divisor == 0 && ranks / divisor > divisor) {
    divisor *= 2;
  }
  return divisor;
}

}  // namespace

std::int64_t flat_elements(const std::vector<std::int64_t>& parameters,
                           int shards,
                           std::int64_t aligned_to) {
  std::int64_t sum = 0;
  for (const std::int64_t elements : parameters) {
    sum = (sum + aligned_to - 1) / aligned_to * aligned_to + elements;
  }
  return (sum + shards - 1) / shards * shards;
}

std::vector<std::int64_t> flat_parameters(const TrainedModel& model, const Fsdp1Options& options) {
  constexpr std::int64_t kAlignment = 16;  // Bytes.
  const std::int64_t size =
      options.param_dtype ? element_size(*options.param_dtype) : model.element_bytes;
  return mapped(model.units, [&](const std::vector<int>& unit) {
    const std::vector<std::int64_t> elements =
        mapped(unit, [&](int parameter) { return model.elements(parameter); });
    return flat_elements(
        elements,
        options.shards,
        options.aligns_parameters ? std::max<std::int64_t>(1, kAlignment / size) : 1);
  });
}

std::vector<Communicator> fsdp1_communicators(const Fsdp1Options& options, bool gloo) {
  Communicator like;
  if (gloo) {
    like.workers = 2;
    like.shares_links = true;
  }
  std::vector<Communicator> communicators = {like};
  for (int replica = 0; replica < options.replicas; ++replica) {
    Communicator& group = communicators.emplace_back(like);
    for (int i = 0; i < options.shards; ++i) {
      group.ranks.push_back(replica * options.shards + i);
    }
  }
  for (int shard = 0; options.replicas > 1 && shard < options.shards; ++shard) {
    Communicator& group = communicators.emplace_back(like);
    for (int i = 0; i < options.replicas; ++i) {
      group.ranks.push_back(i * options.shards + shard);
    }
  }
  return communicators;
}

StepProgram fsdp1_program(const TrainedModel& model,
                          const Fsdp1Options& options,
                          const StepHost& host,
                          const StepPrices& prices,
                          const StepWork& step) {
  StepProgram result = empty_program(model, step);
  result.waits_within = true;
  Fsdp1Context context = {model, options, host, prices, step, {}, 4, 4, 4, 1, 1, {}, {}};
  for (const std::int64_t elements : flat_parameters(model, options)) {
    context.elements.push_back(static_cast<double>(elements));
  }
  const auto size = [](Dtype dtype) { return static_cast<double>(element_size(dtype)); };
  context.stored = static_cast<double>(model.element_bytes);
  context.gathered = options.param_dtype ? size(*options.param_dtype) : context.stored;
  context.reduced = options.reduce_dtype ? size(*options.reduce_dtype) : context.gathered;
  const int ranks = options.shards * options.replicas;
  context.pre_divisor = pre_divisor(ranks);
  context.post_divisor = ranks / context.pre_divisor;
  context.shard_group = {1, options.shards, 1};
  context.replica_group = {1 + options.replicas, options.replicas, options.shards};
  build_ranks<Fsdp1RankProgram>(context, prices, step, result);
  return result;
}

}  // namespace stepsim
