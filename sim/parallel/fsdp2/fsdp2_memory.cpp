#include "sim/parallel/fsdp2/fsdp2_memory.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <numeric>
#include <utility>

#include "costmodel/base/index.h"
#include "sim/parallel/fsdp2/unit_sizes.h"
#include "sim/parallel/fsdp2/unit_walk.h"

namespace stepsim {
namespace {

/// Where a parameter is.
struct Place {
  int unit = 0;
  int tensor = 0;
};

std::vector<Place> places_of(const TrainedModel& model) {
  std::vector<Place> places(model.shapes.size());
  for (std::size_t unit = 0; unit < model.units.size(); ++unit) {
    for (std::size_t i = 0; i < model.units[unit].size(); ++i) {
      places[at(model.units[unit][i])] = {static_cast<int>(unit), static_cast<int>(i)};
    }
  }
  return places;
}

/// Goes through a step and notes what is held.
class MemoryWalk {
 public:
  MemoryWalk(const TrainedModel& model,
             std::span<const ShardUnit> units,
             const Fsdp2Options& options,
             double optimizer_bytes)
      : model_(model),
        units_(units),
        options_(options),
        sequence_(units, options.mesh),
        places_(places_of(model)) {
    double optimizer = 0;
    for (const ShardUnit& unit : units) {
      sizes_.push_back(sizes_of(unit, options.mesh.shards));
      for (std::size_t i = 0; i < unit.tensors.size(); ++i) {
        const std::int64_t shard = sizes_.back().tensors[i].stored_shard;
        held(HeldFor::Parameters) += shard;
        if (unit.tensors[i].trainable) {
          optimizer += optimizer_bytes * static_cast<double>(shard) /
                       static_cast<double>(element_size(unit.tensors[i].stored));
        }
      }
    }
    held(HeldFor::Optimizer) = std::llround(optimizer);
    if (options.offload) {
      held(HeldFor::Parameters) = held(HeldFor::Optimizer) = 0;
    }
    state_.resize(units.size());
    for (std::size_t unit = 0; unit < units.size(); ++unit) {
      state_[unit].gradients.resize(units[unit].tensors.size());
    }
  }

  void micro_batch(int number, const ShardSwitches& switches) {
    switches_ = switches;
    now_ = {{}, number, false, 0, std::nullopt, 0};
    forward();
    now_ = {{}, number, true, 0, std::nullopt, 0};
    backward();
  }

  [[nodiscard]] std::vector<HeldMoment> moments() && { return std::move(moments_); }

 private:
  /// What there is of a unit, in bytes.
  struct State {
    std::int64_t buffer = 0;  ///< Of its gather under way.
    int gather_ranks = 0;     ///< Those of that gather.
    std::int64_t gathered = 0;
    std::int64_t slice = 0;
    std::vector<std::int64_t> gradients;  ///< [tensor]
    HeldFor gradients_are = HeldFor::Gradients;
    std::int64_t output = 0;       ///< Of its reduce-scatter, before the all-reduce;
    std::int64_t all_reduced = 0;  ///< behind it, until the end of the backward.
    std::int64_t partial = 0;
    std::int64_t sharded_gradients = 0;
  };

  std::int64_t& held(HeldFor kind) { return now_held_[kind]; }

  /// Notes what is held now.
  void note() {
    now_.held = now_held_;
    moments_.push_back(now_);
  }

  void take(HeldFor kind, std::int64_t bytes) {
    held(kind) += bytes;
    if (bytes > 0) {
      note();
    }
  }

  /// Frees all of `bytes`.
  void drop(HeldFor kind, std::int64_t& bytes) {
    held(kind) -= bytes;
    if (std::exchange(bytes, 0) > 0) {
      note();
    }
  }

  void forward();
  void backward();
  void run_backward_ops(int unit, bool also_unit);
  void run_backward_op();
  void make_gradient(const Place& place);
  void act_all();
  void act(const ShardEvent& event);
  void gather(int unit, bool slice);
  std::int64_t load_shard(const TensorBytes& tensor, int ranks, bool from_host);
  void copy_out(int unit);
  void copy_shard(int unit);
  void reshard(int unit, bool to_slice);
  void release_input(std::size_t most);
  void reduce(int unit);
  void reduce_replicas(int unit);
  void finish_reduction(int unit, std::int64_t output, bool stays);
  [[nodiscard]] bool copies_alone(int unit) const;
  void end_backward();

  const TrainedModel& model_;
  std::span<const ShardUnit> units_;
  const Fsdp2Options& options_;
  ShardSequence sequence_;
  std::vector<Place> places_;  ///< [parameter]
  std::vector<UnitSizes> sizes_;
  std::vector<State> state_;
  ShardSwitches switches_;
  std::int64_t saved_buffer_ = 0;    ///< Of the forward's last gather, which is copied out.
  std::deque<std::int64_t> inputs_;  ///< Of reduce-scatters, the oldest first.
  std::size_t op_ = 0;               ///< The next one of the backward.
  HeldBytes now_held_;
  HeldMoment now_;
  std::vector<HeldMoment> moments_;
};

void MemoryWalk::forward() {
  sequence_.begin_forward();
  for (const UnitCall& call : forward_calls(model_)) {
    switch (call.kind) {
      case UnitCall::Kind::Enter:
        sequence_.enter(call.index);
        break;
      case UnitCall::Kind::Leave:
        sequence_.leave(call.index);
        break;
      case UnitCall::Kind::Op:
        ++now_.ops;
        now_.act = std::nullopt;
        now_.unit = model_.forward_unit[at(call.index)];
        note();
        break;
    }
    act_all();
  }
  drop(HeldFor::GatherBuffers, saved_buffer_);
}

void MemoryWalk::backward() {
  op_ = 0;
  sequence_.backward(switches_);
  const std::vector<ShardEvent> events = sequence_.events();
  sequence_.clear_events();
  // The loss is outside the root, whose hook waits for the gradient of its output.
  while (op_ < at(model_.loss_ops)) {
    run_backward_op();
  }
  for (std::size_t i = 0; i < events.size(); ++i) {
    const ShardEvent& event = events[i];
    if (event.act == ShardAct::PreBackward && event.unit != 0) {
      run_backward_ops(event.unit, false);
    } else if (event.act == ShardAct::PostBackward) {
      run_backward_ops(event.unit, true);
    }
    act(event);
    const bool reshards = i + 1 < events.size() && events[i + 1].act == ShardAct::Reshard;
    if ((event.act == ShardAct::PostBackward || event.act == ShardAct::Reshard) && !reshards &&
        copies_alone(event.unit)) {
      reduce(event.unit);
    }
  }
  end_backward();
}

void MemoryWalk::run_backward_ops(int unit, bool also_unit) {
  const std::size_t end = backward_until(model_, op_, unit, also_unit);
  while (op_ < end) {
    run_backward_op();
  }
}

void MemoryWalk::run_backward_op() {
  now_.act = std::nullopt;
  now_.unit = model_.backward_unit[op_];
  now_.ops = static_cast<int>(op_) + 1;
  note();
  for (const int parameter : model_.completes[op_]) {
    make_gradient(places_[at(parameter)]);
  }
  ++op_;
}

/// A gradient is added to one that is there, and freed. Where it is the first that stays
/// unreduced, autograd casts it to the type of the reduction.
void MemoryWalk::make_gradient(const Place& place) {
  const TensorBytes& bytes = sizes_[at(place.unit)].tensors[at(place.tensor)];
  State& state = state_[at(place.unit)];
  std::int64_t& own = state.gradients[at(place.tensor)];
  if (!bytes.has_gradient) {
    return;
  }
  std::int64_t made = bytes.gradient;
  const bool first_unreduced = !switches_.gradient_sync && own == 0;
  if (first_unreduced) {
    state.gradients_are = HeldFor::UnreducedGradients;
  }
  take(HeldFor::Gradients, made);
  if (own == 0) {
    own = first_unreduced ? bytes.kept : made;
    if (first_unreduced && bytes.kept == made) {
      held(HeldFor::Gradients) -= made;  // It is the same tensor.
      held(HeldFor::UnreducedGradients) += made;
      return;
    }
    if (!first_unreduced) {
      return;
    }
    take(HeldFor::UnreducedGradients, own);
  }
  drop(HeldFor::Gradients, made);
}

void MemoryWalk::act_all() {
  for (const ShardEvent& event : sequence_.events()) {
    act(event);
  }
  sequence_.clear_events();
}

void MemoryWalk::act(const ShardEvent& event) {
  now_.act = event.act;
  now_.unit = event.unit;
  switch (event.act) {
    case ShardAct::PreForward:
    case ShardAct::PostForward:
    case ShardAct::PreBackward:
      return;
    case ShardAct::PostBackward:
      if (switches_.gradient_sync) {
        release_input(at(options_.reduce_buffers));
      }
      return;
    case ShardAct::Unshard:
      return gather(event.unit, event.slice);
    case ShardAct::Wait:
      return copy_out(event.unit);
    case ShardAct::Reshard:
      return reshard(event.unit, event.slice);
    case ShardAct::ReduceScatter:
      return reduce(event.unit);
    case ShardAct::AllReduce:
      return reduce_replicas(event.unit);
  }
}

void MemoryWalk::gather(int unit, bool slice) {
  const UnitSizes& sizes = sizes_[at(unit)];
  State& state = state_[at(unit)];
  state.gather_ranks = slice ? units_[at(unit)].slice_ranks : options_.mesh.shards;
  if (state.gather_ranks == 1) {
    return;
  }
  std::int64_t inputs = 0;
  if (options_.offload && !slice) {
    for (const TensorBytes& tensor : sizes.tensors) {
      inputs += load_shard(tensor, state.gather_ranks, true);
    }
  } else {
    // PyTorch copies cast tensors through a buffer even where a slice has their type already.
    inputs = sizes.cast / state.gather_ranks;
    take(HeldFor::CastBuffers, inputs);
  }
  state.buffer = sizes.gathered;
  take(HeldFor::GatherBuffers, state.buffer);
  drop(HeldFor::CastBuffers, inputs);
}

/// Copies a shard from the host and casts it. Returns the bytes that this leaves on the device.
std::int64_t MemoryWalk::load_shard(const TensorBytes& tensor, int ranks, bool from_host) {
  std::int64_t loaded = from_host ? tensor.stored_shard : 0;
  take(HeldFor::CastBuffers, loaded);
  if (!tensor.cast) {
    return loaded;
  }
  take(HeldFor::CastBuffers, tensor.gathered / ranks);
  drop(HeldFor::CastBuffers, loaded);
  return tensor.gathered / ranks;
}

void MemoryWalk::copy_out(int unit) {
  State& state = state_[at(unit)];
  if (!now_.backward) {
    drop(HeldFor::GatherBuffers, saved_buffer_);
  }
  state.gathered = sizes_[at(unit)].gathered;
  if (state.gather_ranks == 1) {
    copy_shard(unit);
    return;
  }
  take(HeldFor::Gathered, state.gathered);
  drop(HeldFor::Slices, state.slice);
  if (now_.backward || options_.async_unshard) {
    drop(HeldFor::GatherBuffers, state.buffer);
  } else {
    saved_buffer_ = std::exchange(state.buffer, 0);
  }
}

/// Where one rank has all, tensors are copied one by one; the input of one is freed when the next
/// is there.
void MemoryWalk::copy_shard(int unit) {
  std::int64_t before = 0;
  for (const TensorBytes& tensor : sizes_[at(unit)].tensors) {
    std::int64_t input = load_shard(tensor, 1, options_.offload);
    drop(HeldFor::CastBuffers, before);
    take(HeldFor::Gathered, tensor.gathered);
    before = input;
  }
  drop(HeldFor::CastBuffers, before);
}

void MemoryWalk::reshard(int unit, bool to_slice) {
  State& state = state_[at(unit)];
  if (!to_slice) {
    drop(HeldFor::Gathered, state.gathered);
    drop(HeldFor::Slices, state.slice);
    return;
  }
  for (const TensorBytes& tensor : sizes_[at(unit)].tensors) {
    const std::int64_t slice = tensor.gathered / units_[at(unit)].slice_ranks;
    take(HeldFor::Slices, slice);
    state.slice += slice;
    held(HeldFor::Gathered) -= tensor.gathered;
  }
  state.gathered = 0;
  note();
}

/// Frees the oldest inputs until fewer than `most` are held.
void MemoryWalk::release_input(std::size_t most) {
  while (!inputs_.empty() && inputs_.size() >= most) {
    drop(HeldFor::ReduceInputs, inputs_.front());
    inputs_.pop_front();
  }
}

/// One rank that has all reduces nothing, and copies its gradients all the same when they are
/// there.
bool MemoryWalk::copies_alone(int unit) const {
  if (options_.mesh.shards > 1 || !switches_.gradient_sync ||
      (options_.mesh.replicates && switches_.all_reduce)) {
    return false;
  }
  const std::vector<TensorBytes>& tensors = sizes_[at(unit)].tensors;
  bool any = false;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const bool there = state_[at(unit)].gradients[i] > 0;
    any = any || there;
    if (tensors[i].has_gradient && !there) {
      return false;
    }
  }
  return any;
}

/// Copies the gradients into the input of a reduce-scatter, frees them and scatters.
void MemoryWalk::reduce(int unit) {
  const UnitSizes& sizes = sizes_[at(unit)];
  State& state = state_[at(unit)];
  if (sizes.reduced == 0) {
    return;
  }
  drop(HeldFor::ReduceOutputs, state.all_reduced);  // Of an earlier micro-batch.
  inputs_.push_back(sizes.reduced);
  take(HeldFor::ReduceInputs, sizes.reduced);
  std::int64_t gradients =
      std::accumulate(state.gradients.begin(), state.gradients.end(), std::int64_t{0});
  std::ranges::fill(state.gradients, 0);
  drop(state.gradients_are, gradients);
  state.gradients_are = HeldFor::Gradients;
  state.output = sizes.reduced_shard;
  take(HeldFor::ReduceOutputs, state.output);
  if (!options_.mesh.replicates) {
    finish_reduction(unit, std::exchange(state.output, 0), false);
  } else if (!switches_.all_reduce) {
    held(HeldFor::ReduceOutputs) -= state.output;  // The first one stays, the others are added.
    const bool first = state.partial == 0;
    state.partial = std::exchange(state.output, 0);
    held(HeldFor::PartialGradients) += first ? state.partial : 0;
    note();
  }
}

void MemoryWalk::reduce_replicas(int unit) {
  State& state = state_[at(unit)];
  if (options_.mesh.shards == 1) {
    reduce(unit);
  }
  if (state.output == 0) {
    return;
  }
  finish_reduction(unit, std::exchange(state.output, 0), true);
  drop(HeldFor::PartialGradients, state.partial);
}

/// Casts reduced gradients to the parameters' types and adds them to those of the shard, which with
/// offload are on the host. `stays`: the output is kept to the end of the backward, as that of an
/// all-reduce is.
void MemoryWalk::finish_reduction(int unit, std::int64_t output, bool stays) {
  const UnitSizes& sizes = sizes_[at(unit)];
  State& state = state_[at(unit)];
  const bool first = state.sharded_gradients == 0 && !options_.offload;
  std::int64_t cast = sizes.casts_back ? sizes.stored_gradient_shard : 0;
  if (first) {
    state.sharded_gradients = sizes.stored_gradient_shard;
  }
  if (first && cast == 0) {
    held(HeldFor::ReduceOutputs) -= output;  // It is the gradients from now on.
    held(HeldFor::ShardedGradients) += output;
    note();
    return;
  }
  take(first ? HeldFor::ShardedGradients : HeldFor::CastBuffers, cast);
  if (!first) {
    drop(HeldFor::CastBuffers, cast);
  }
  if (stays) {
    state.all_reduced = output;
  } else {
    drop(HeldFor::ReduceOutputs, output);
  }
}

void MemoryWalk::end_backward() {
  if (!switches_.last_backward) {
    return;
  }
  now_.act = ShardAct::PostBackward;
  now_.unit = 0;
  release_input(1);
  for (State& state : state_) {
    drop(HeldFor::ReduceOutputs, state.all_reduced);
    drop(HeldFor::GatherBuffers, state.buffer);  // It was gathered in vain.
  }
}

}  // namespace

std::vector<HeldMoment> fsdp2_memory(const TrainedModel& model,
                                     std::span<const ShardUnit> units,
                                     const Fsdp2Options& options,
                                     int micro_batches,
                                     double optimizer_bytes) {
  MemoryWalk walk(model, units, options, optimizer_bytes);
  for (int i = 0; i < micro_batches; ++i) {
    walk.micro_batch(i,
                     at(i) < options.switches.size() ? options.switches[at(i)] : ShardSwitches{});
  }
  return std::move(walk).moments();
}

}  // namespace stepsim
