#include "sim/parallel/fsdp2/shard_sequence.h"

#include <algorithm>

#include "costmodel/base/index.h"

namespace stepsim {

ShardSequence::ShardSequence(std::span<const ShardUnit> units, ShardMesh mesh)
    : units_(units), mesh_(mesh), groups_(units.size()) {}

bool ShardSequence::trains(int unit) const {
  return std::ranges::any_of(units_[at(unit)].tensors, &ShardedTensor::trainable);
}

void ShardSequence::note(ShardAct act, int unit, bool slice) {
  events_.push_back({act, unit, slice});
}

std::size_t ShardSequence::begin_forward(bool gradients, bool input_gradient) {
  Forward forward;
  forward.gradients = gradients;
  forward.carries_gradient = gradients && input_gradient;
  forwards_.push_back(std::move(forward));
  return forwards_.size() - 1;
}

void ShardSequence::enter(int unit) {
  if (units_[at(unit)].tensors.empty()) {
    return;
  }
  Group& group = groups_[at(unit)];
  Forward& forward = forwards_.back();
  note(ShardAct::PreForward, unit);
  group.state = State::Forward;
  unshard(unit, State::Forward);
  wait(unit);
  for (const int target : units_[at(unit)].forward_prefetch) {
    unshard(target, State::Forward);
  }
  forward.just_left = false;
  if (group.open) {
    return;  // A further module of the unit.
  }
  group.open = true;
  if (forward.carries_gradient) {
    forward.hooks.push_back({false, unit, false});
  }
  if (forward.gradients && units_[at(unit)].own_parameters_first) {
    forward.carries_gradient = forward.carries_gradient || trains(unit);
  }
}

void ShardSequence::leave(int unit) {
  if (units_[at(unit)].tensors.empty()) {
    return;
  }
  Group& group = groups_[at(unit)];
  Forward& forward = forwards_.back();
  note(ShardAct::PostForward, unit);
  group.open = false;
  if (units_[at(unit)].reshard_after_forward) {
    reshard(unit, units_[at(unit)].slice_ranks > 0);
  }
  group.positions.push_back(order_.size());
  order_.push_back(unit);
  forward.carries_gradient = forward.gradients && (forward.carries_gradient || trains(unit));
  if (forward.carries_gradient) {
    const bool same =
        forward.just_left && forward.last_has_hook && units_[at(unit)].returns_inner_output;
    forward.hooks.push_back({true, unit, same});
    forward.calls.push_back(unit);
  }
  forward.just_left = true;
  forward.last_has_hook = forward.carries_gradient;
  group.state = State::Idle;
}

void ShardSequence::unshard(int unit, State state) {
  Group& group = groups_[at(unit)];
  if (group.pending || group.gathered ||
      (state == State::PreBackward && !units_[at(unit)].unshard_in_backward)) {
    return;
  }
  group.pending = true;
  note(ShardAct::Unshard, unit, group.sliced);
}

void ShardSequence::wait(int unit) {
  Group& group = groups_[at(unit)];
  if (group.pending) {
    note(ShardAct::Wait, unit);
    group.pending = false;
    group.gathered = true;
    group.sliced = false;
  }
}

void ShardSequence::reshard(int unit, bool to_slice) {
  Group& group = groups_[at(unit)];
  if (!group.gathered && !(group.sliced && !to_slice)) {
    return;
  }
  note(ShardAct::Reshard, unit, to_slice);
  group.gathered = false;
  group.sliced = to_slice;
}

void ShardSequence::prefetch_before(int unit) {
  Group& group = groups_[at(unit)];
  if (group.positions.empty()) {
    return;
  }
  const std::size_t position = group.positions.back();
  group.positions.pop_back();
  if (position > 0) {
    unshard(order_[position - 1], State::PreBackward);
  }
}

void ShardSequence::run_output_hook(int unit) {
  Group& group = groups_[at(unit)];
  if (group.state != State::PreBackward) {
    note(ShardAct::PreBackward, unit);
  }
  group.state = State::PreBackward;
  unshard(unit, State::PreBackward);
  wait(unit);
  const std::vector<int>& list = units_[at(unit)].backward_prefetch;
  if (list.empty()) {
    prefetch_before(unit);
  }
  for (const int target : list) {
    unshard(target, State::PreBackward);
  }
}

void ShardSequence::run_input_hook(int unit) {
  Group& group = groups_[at(unit)];
  // A parameter has its gradient only when the last of its uses has been gone through.
  if (--group.uses == 0) {
    group.has_gradients = group.has_gradients || trains(unit);
  }
  post_backward(unit);
}

void ShardSequence::post_backward(int unit) {
  Group& group = groups_[at(unit)];
  note(ShardAct::PostBackward, unit);
  group.state = State::PostBackward;
  if (switches_.reshard_after_backward) {
    reshard(unit, false);
  }
  if (!group.has_gradients || group.uses > 0 || !switches_.gradient_sync) {
    return;
  }
  group.has_gradients = false;
  if (scatters(mesh_)) {
    note(ShardAct::ReduceScatter, unit);
  }
  if (mesh_.replicates && switches_.all_reduce) {
    note(ShardAct::AllReduce, unit);
  }
}

void ShardSequence::finish_backward() {
  for (int unit = 0; unit < static_cast<int>(units_.size()); ++unit) {
    if (units_[at(unit)].tensors.empty()) {
      continue;
    }
    Group& group = groups_[at(unit)];
    if (group.state != State::PostBackward) {
      if (group.uses > 0) {
        group.uses = 0;
        group.has_gradients = group.has_gradients || trains(unit);
      }
      post_backward(unit);
    }
    group.state = State::Idle;
    group.uses = 0;
    if (switches_.last_backward) {
      group.pending = false;  // Gathered in vain: it is dropped.
      group.positions.clear();
    }
  }
  if (switches_.last_backward) {
    order_.clear();
  }
}

void ShardSequence::backward(std::span<const std::size_t> forwards, const ShardSwitches& switches) {
  switches_ = switches;
  std::vector<Hook> hooks;
  for (const std::size_t number : forwards) {
    const Forward& forward = forwards_.at(number);
    hooks.insert(hooks.end(), forward.hooks.begin(), forward.hooks.end());
    for (const int unit : forward.calls) {
      ++groups_[at(unit)].uses;
    }
  }
  for (std::size_t end = hooks.size(); end > 0;) {
    std::size_t first = end - 1;
    while (hooks[first].same_tensor) {
      --first;
    }
    for (std::size_t i = first; i < end; ++i) {
      if (hooks[i].on_output) {
        run_output_hook(hooks[i].unit);
      } else {
        run_input_hook(hooks[i].unit);
      }
    }
    end = first;
  }
  if (!hooks.empty()) {
    finish_backward();
  }
}

void ShardSequence::backward(const ShardSwitches& switches) {
  const std::size_t last = forwards_.size() - 1;
  backward(std::span(&last, 1), switches);
}

}  // namespace stepsim
