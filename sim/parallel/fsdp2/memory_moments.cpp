#include "sim/parallel/fsdp2/memory_moments.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "costmodel/base/index.h"

namespace stepsim {
namespace {

/// What of a model's activations is there when so many ops have been begun and ended.
class LayersKept {
 public:
  LayersKept(const TransformerConfig& config, const StepOps& ops) {
    std::set<std::string> layers;
    for (const Op& op : ops.forward) {
      const std::string layer(layer_of(op, config.family));
      outside_.push_back(layer.empty());
      layers.insert(layer);
      entered_.push_back(static_cast<int>(layers.size()) - static_cast<int>(layers.count("")));
    }
    layers_ = entered_.empty() ? 0 : entered_.back();
    std::map<std::string, std::size_t> last;
    first_of_layers_ = ops.backward.size();
    for (std::size_t i = ops.backward.size(); i-- > 0;) {
      const std::string layer(layer_of(ops.backward[i], config.family));
      if (!layer.empty()) {
        last.emplace(layer, i);
        first_of_layers_ = i;
      }
    }
    left_.assign(ops.backward.size() + 1, layers_);
    for (const auto& [layer, op] : last) {
      std::for_each(left_.begin() + static_cast<std::ptrdiff_t>(op) + 1,
                    left_.end(),
                    [](int& count) { --count; });
    }
  }

  void add_to(MemoryMoment& moment, const HeldMoment& held) const {
    if (layers_ == 0) {
      return;
    }
    if (held.backward) {
      const std::size_t done = at(held.ops) - (held.act || held.ops == 0 ? 0 : 1);
      moment.layers = static_cast<double>(left_[done]) / layers_;
      moment.loss = done == 0 ? 1 : done < first_of_layers_ ? kBesideBackward : 0;
    } else {
      const int entered = held.ops == 0 ? 0 : entered_[at(held.ops) - 1];
      moment.layers = static_cast<double>(entered) / layers_;
      const bool has_logits = entered == layers_ && held.ops > 0 && outside_[at(held.ops) - 1];
      moment.loss = has_logits ? kBesideBackward : 0;
    }
  }

 private:
  static constexpr double kBesideBackward = 0.5;  // See MemoryMoment::loss.

  int layers_ = 0;
  std::vector<int> entered_;   ///< [forward op] layers of it and of those before.
  std::vector<bool> outside_;  ///< [forward op] it is in no layer.
  std::vector<int> left_;      ///< [ended backward ops] layers that have not been gone through.
  std::size_t first_of_layers_ = 0;  ///< The first op of the backward that is in a layer.
};

MemoryMoment summed(const HeldBytes& held) {
  MemoryMoment moment;
  moment.parameters = Bytes(held[HeldFor::Parameters]);
  moment.gathered = Bytes(held[HeldFor::Gathered] + held[HeldFor::Slices] +
                          held[HeldFor::GatherBuffers] + held[HeldFor::CastBuffers]);
  moment.gradients = Bytes(held[HeldFor::Gradients] + held[HeldFor::UnreducedGradients] +
                           held[HeldFor::PartialGradients] + held[HeldFor::ShardedGradients]);
  moment.buckets = Bytes(held[HeldFor::ReduceInputs] + held[HeldFor::ReduceOutputs]);
  return moment;
}

/// The layer that a unit's first op is in; "root".
std::vector<std::string> unit_names(const TransformerConfig& config,
                                    const StepOps& ops,
                                    const TrainedModel& model) {
  std::vector<std::string> names(model.units.size());
  for (std::size_t op = 0; op < ops.forward.size(); ++op) {
    std::string& name = names[at(model.forward_unit[op])];
    if (name.empty()) {
      const std::string layer(layer_of(ops.forward[op], config.family));
      name = layer.empty() ? ops.forward[op].name : layer;
    }
  }
  names.front() = "root";
  return names;
}

std::string event_of(const HeldMoment& moment, const std::string& unit) {
  if (!moment.act) {
    return unit;  // It computes.
  }
  switch (*moment.act) {
    case ShardAct::Unshard:
      return "gather of " + unit;
    case ShardAct::Wait:
      return "copy-out of " + unit;
    case ShardAct::Reshard:
      return "end of " + unit;
    case ShardAct::ReduceScatter:
      return "reduce-scatter of " + unit;
    case ShardAct::AllReduce:
      return "all-reduce of " + unit;
    case ShardAct::PreForward:
    case ShardAct::PostForward:
    case ShardAct::PreBackward:
    case ShardAct::PostBackward:
      break;
  }
  return "hooks of " + unit;
}

Bytes total_of(const MemoryMoment& moment) {
  return moment.parameters + moment.gathered + moment.gradients + moment.buckets;
}

/// Whether a point that follows leaves the last one a crest, a trough or the end of a level.
bool turns_at_last(const std::vector<HeldPoint>& points, const HeldPoint& next) {
  if (points.size() < 2) {
    return true;
  }
  const MemoryMoment& before = points[points.size() - 2].moment;
  const MemoryMoment& last = points.back().moment;
  const auto same = [&](const MemoryMoment& other) {
    return other.layers == last.layers && other.loss == last.loss;
  };
  const Bytes now = total_of(last);
  const bool rises = now > total_of(before) && total_of(next.moment) > now;
  const bool falls = now < total_of(before) && total_of(next.moment) < now;
  const bool level = now == total_of(before) && total_of(next.moment) == now;
  return !same(before) || !same(next.moment) || !(rises || falls || level);
}

}  // namespace

std::vector<MemoryMoment> peak_moments(const TransformerConfig& config,
                                       const StepOps& ops,
                                       std::span<const HeldMoment> moments) {
  const LayersKept kept(config, ops);
  std::map<std::pair<double, double>, MemoryMoment> most;  // Of the loss and the layers.
  for (const HeldMoment& held : moments) {
    MemoryMoment moment = summed(held.held);
    kept.add_to(moment, held);
    const auto [known, is_new] = most.emplace(std::pair(moment.loss, moment.layers), moment);
    if (!is_new && total_of(moment) > total_of(known->second)) {
      known->second = moment;
    }
  }
  std::vector<MemoryMoment> result;  // Those that need the most activations come first.
  for (auto entry = most.rbegin(); entry != most.rend(); ++entry) {
    const MemoryMoment& moment = entry->second;
    if (std::ranges::none_of(result, [&](const MemoryMoment& other) {
          return total_of(other) >= total_of(moment) && other.layers >= moment.layers &&
                 other.loss >= moment.loss;
        })) {
      result.push_back(moment);
    }
  }
  return result;
}

HeldCurve held_curve(const TransformerConfig& config, const StepOps& ops, const HeldStep& step) {
  const LayersKept kept(config, ops);
  const std::vector<std::string> names = unit_names(config, ops, step.model);
  HeldCurve curve;
  std::vector<HeldFor> kinds;
  for (std::size_t kind = 0; kind < kHeldKinds; ++kind) {
    if (static_cast<HeldFor>(kind) != HeldFor::Optimizer) {
      kinds.push_back(static_cast<HeldFor>(kind));
      curve.parts.push_back(name_of(kinds.back()));
    }
  }
  std::vector<HeldPoint>& points = curve.points;
  for (const HeldMoment& held : step.moments) {
    HeldPoint point;
    point.moment = summed(held.held);
    kept.add_to(point.moment, held);
    for (const HeldFor kind : kinds) {
      point.held.emplace_back(held.held[kind]);
    }
    point.event = event_of(held, names[at(held.unit)]);
    point.micro_batch = held.micro_batch;
    point.backward = held.backward;
    point.ops = held.ops;
    if (turns_at_last(points, point)) {
      points.push_back(std::move(point));
    } else {
      points.back() = std::move(point);
    }
  }
  return curve;
}

void tie_gradients(const TransformerConfig& config, const StepOps& ops, TrainedModel& model) {
  if (!config.tied_embeddings) {
    return;
  }
  const auto head = std::ranges::find_if(ops.backward, [](const Op& op) {
    return op.name == "lm_head" && op.pass == Pass::WeightGradient;
  });
  if (head != ops.backward.end()) {
    model.completes[at(head - ops.backward.begin())].push_back(0);  // The table of the tokens.
  }
}

}  // namespace stepsim
