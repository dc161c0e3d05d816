#include "sim/parallel/fsdp2/model_units.h"

#include <algorithm>
#include <map>
#include <utility>

#include "costmodel/base/index.h"

namespace stepsim {
namespace {

/// The module of a list that a tensor is in: "encoder.layer.3" of "encoder.layer.3.output.bias".
/// Empty: its name has no number.
std::string listed_module(const std::string& tensor) {
  for (std::size_t begin = 0; begin < tensor.size();) {
    const std::size_t end = std::min(tensor.find('.', begin), tensor.size());
    const std::string part = tensor.substr(begin, end - begin);
    if (!part.empty() && std::ranges::all_of(part, [](char c) { return c >= '0' && c <= '9'; })) {
      return tensor.substr(0, end);
    }
    begin = end + 1;
  }
  return {};
}

/// The block that an op belongs to; empty: none. Ops of recorded models are named by their tensors.
std::string block_of(const TransformerConfig& config, const Op& op) {
  return config.family == ModelFamily::Blocks && !config.tensors.empty()
             ? listed_module(op.name)
             : std::string(layer_of(op, config.family));
}

/// The name of the unit that an op runs in; empty: the root.
std::vector<std::string> unit_names(const TransformerConfig& config,
                                    const std::vector<Op>& ops,
                                    UnitRule rule,
                                    bool backward) {
  std::vector<std::string> names;
  bool within = false;  // A layer has come.
  for (const Op& op : ops) {
    const std::string layer = block_of(config, op);
    within = within || !layer.empty();
    if (rule == UnitRule::Model) {
      names.emplace_back();
    } else if (!layer.empty() || rule == UnitRule::Blocks) {
      names.push_back(layer);
    } else {
      names.emplace_back(within != backward ? "head" : "embedding");
    }
  }
  return names;
}

/// Numbers units in the order of the forward: the root is 0.
class UnitNumbers {
 public:
  int of(const std::string& name) {
    return name.empty()
               ? 0
               : numbers_.emplace(name, static_cast<int>(numbers_.size()) + 1).first->second;
  }
  [[nodiscard]] std::size_t count() const { return numbers_.size() + 1; }

 private:
  std::map<std::string, int> numbers_;
};

}  // namespace

void add_model_units(const TransformerConfig& config,
                     const StepOps& ops,
                     UnitRule rule,
                     TrainedModel& model) {
  const UnitRule own = rule == UnitRule::Ends && config.tied_embeddings ? UnitRule::Blocks : rule;
  UnitNumbers numbers;
  for (const std::string& name : unit_names(config, ops.forward, own, false)) {
    model.forward_unit.push_back(numbers.of(name));
  }
  std::vector<int> unit_of(model.parameters.size(), 0);
  const auto backward = unit_names(config, ops.backward, own, true);
  for (std::size_t op = 0; op < ops.backward.size(); ++op) {
    const int unit = numbers.of(backward[op]);
    model.backward_unit.push_back(unit);
    for (const int parameter : ops.backward[op].completes) {
      unit_of[at(parameter)] = unit;
    }
  }
  model.copy_labels = static_cast<std::int32_t>(model.labels.size());
  model.labels.insert(model.labels.end(), {"copy parameters in", "copy parameters out"});
  model.units.resize(numbers.count());
  for (std::size_t i = 0; i < unit_of.size(); ++i) {
    model.units[at(unit_of[i])].push_back(static_cast<int>(i));
  }
}

std::vector<ShardUnit> shard_units(const TrainedModel& model) {
  std::vector<ShardUnit> units(model.units.size());
  for (std::size_t unit = 0; unit < units.size(); ++unit) {
    for (const int parameter : model.units[unit]) {
      const Dtype dtype = parse_dtype(model.parameters[at(parameter)].dtype);
      units[unit].tensors.push_back({"", model.shapes[at(parameter)], dtype, dtype});
    }
  }
  ShardUnit& root = units.front();
  root.reshard_after_forward = false;
  root.returns_inner_output = !model.forward_unit.empty() && model.forward_unit.back() != 0;
  root.own_parameters_first = !model.forward_unit.empty() && model.forward_unit.front() == 0;
  return units;
}

}  // namespace stepsim
