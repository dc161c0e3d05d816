#include "sim/parallel/fsdp2/model_units.h"

#include <algorithm>
#include <map>
#include <optional>
#include <span>
#include <utility>

#include "costmodel/base/index.h"
#include "costmodel/base/input_error.h"
#include "costmodel/base/mapped.h"
#include "sim/parallel/fsdp2/named_units.h"

namespace stepsim {
namespace {

/// What families with a tied embedding call the module of their head.
constexpr const char* kTiedHead = "lm_head";

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

/// The innermost module around both: "layers.3" of "layers.3.norm.weight" and "layers.3.qkv.bias".
std::string common_module(const std::string& a, const std::string& b) {
  std::size_t end = 0;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()) && a[i] == b[i]; ++i) {
    end = a[i] == '.' ? i : end;
  }
  return a.substr(0, end);
}

/// What the units of a model are made from: its ops with the tensors that they use.
class ModelParts {
 public:
  ModelParts(const TransformerConfig& config, const StepOps& ops) : config_(config), ops_(ops) {
    tensors_ = mapped(parameters(config), [](const Parameter& one) { return one.name; });
    for (const Op& op : ops.backward) {
      for (const int parameter : op.completes) {
        tensor_of_.emplace(op.name, tensors_[at(parameter)]);
      }
    }
    for (const Op& op : ops.forward) {
      is_tied_ = is_tied_ || (config.tied_embeddings && op.name == kTiedHead);
      const std::string* const tensor = tensor_of(op);
      const std::string block = block_of(config, op);
      if (tensor != nullptr && !block.empty() && config.tensors.empty()) {
        const std::string first = tensor->substr(0, tensor->rfind('.') + 1);
        const auto [found, is_new] = module_of_.emplace(block, first);
        found->second = is_new ? first : common_module(found->second, first) + ".";
      }
    }
  }

  [[nodiscard]] const std::vector<std::string>& tensors() const { return tensors_; }

  [[nodiscard]] const std::string* tensor_of(const Op& op) const {
    const auto found = tensor_of_.find(op.name);
    return found == tensor_of_.end() ? nullptr : &found->second;
  }

  /// The module of the block that an op is in; empty: it is in none.
  [[nodiscard]] std::string module_of(const Op& op) const {
    std::string block = block_of(config_, op);
    const auto found = module_of_.find(block);
    if (found == module_of_.end()) {
      return block;
    }
    const std::string module = found->second.substr(0, found->second.size() - 1);
    return module.empty() ? block : module;
  }

  /// The embedding and the head share a tensor.
  [[nodiscard]] bool is_tied() const { return is_tied_; }
  [[nodiscard]] const std::vector<Op>& forward() const { return ops_.forward; }

 private:
  const TransformerConfig& config_;
  const StepOps& ops_;
  std::vector<std::string> tensors_;
  std::map<std::string, std::string> tensor_of_;  ///< [op] The first tensor that it uses.
  std::map<std::string, std::string> module_of_;  ///< [block] Its module with a dot behind.
  bool is_tied_ = false;
};

/// [op of the forward] The name of its unit; empty: the root.
std::vector<std::string> names_by_rule(const ModelParts& parts, UnitRule rule) {
  std::vector<std::string> names;
  bool within = false;  // A block has come.
  for (const Op& op : parts.forward()) {
    std::string block = rule == UnitRule::Model ? std::string() : parts.module_of(op);
    within = within || !block.empty();
    if (block.empty() && rule == UnitRule::Ends) {
      block = within ? "head" : "embedding";
    }
    names.push_back(std::move(block));
  }
  return names;
}

/// A tied embedding and head are one tensor, which one unit must have.
void check_tied(const ModelParts& parts, std::span<const NamedUnit> units) {
  const std::string& embedding = parts.tensors().front();
  const int of_embedding = unit_around(units, embedding);
  const int of_head = unit_around(units, kTiedHead);
  if (of_embedding == of_head) {
    return;
  }
  const auto name_of = [&](int unit) { return unit < 0 ? "the root" : units[at(unit)].name; };
  const std::string module = embedding.substr(0, embedding.rfind('.'));
  throw InputError(
      "the embedding and the head share one weight, which would be in two units, '{}' and '{}'; "
      "name both in one entry, as \"{} + {}\", or neither",
      name_of(of_embedding),
      name_of(of_head),
      module,
      kTiedHead);
}

/// [op of the forward] Its unit among named ones; -1: the root. An op without parameters belongs
/// to the unit that those around it are in, else to that of its block; the loss follows what is
/// before it.
std::vector<int> units_of_ops(const ModelParts& parts, std::span<const NamedUnit> units) {
  const std::vector<Op>& ops = parts.forward();
  std::vector<std::optional<int>> own;
  for (const Op& op : ops) {
    const std::string* const tensor = parts.tensor_of(op);
    const bool is_head = parts.is_tied() && op.name == kTiedHead;
    own.push_back(tensor != nullptr ? std::optional(unit_around(units, *tensor))
                  : is_head         ? std::optional(unit_around(units, kTiedHead))
                                    : std::nullopt);
  }
  std::vector<int> result;
  int before = -1;
  for (std::size_t i = 0; i < ops.size(); ++i) {
    const auto next = std::find_if(own.begin() + static_cast<std::ptrdiff_t>(i),
                                   own.end(),
                                   [](const auto& unit) { return unit.has_value(); });
    if (own[i]) {
      before = *own[i];
    }
    const bool between = next != own.end() && **next == before && i > 0;
    if (own[i] || between) {
      result.push_back(before);
    } else if (ops[i].op_class == OpClass::CrossEntropy) {
      result.push_back(result.empty() ? -1 : result.back());
    } else {
      result.push_back(unit_around(units, parts.module_of(ops[i])));
    }
  }
  return result;
}

/// The unit around another; -1: the root.
int unit_outside(std::span<const NamedUnit> units, std::size_t unit) {
  const std::string& module = units[unit].modules.front();
  const std::size_t dot = module.rfind('.');
  return dot == std::string::npos ? -1 : unit_around(units, module.substr(0, dot));
}

/// Numbers units in the order of the forward: the root is 0.
class UnitNumbers {
 public:
  explicit UnitNumbers(TrainedModel& model) : model_(model) {
    model_.unit_names = {"root"};
    model_.unit_parent = {0};
  }

  int of(const std::string& name, int parent = 0) {
    if (name.empty()) {
      return 0;
    }
    const auto [found, is_new] = numbers_.emplace(name, static_cast<int>(numbers_.size()) + 1);
    if (is_new) {
      model_.unit_names.push_back(name);
      model_.unit_parent.push_back(parent);
    }
    return found->second;
  }

  /// The number of a named unit; those around it are numbered first.
  int of(std::span<const NamedUnit> units, int unit) {
    if (unit < 0) {
      return 0;
    }
    const int parent = of(units, unit_outside(units, at(unit)));
    return of(units[at(unit)].name, parent);
  }

 private:
  TrainedModel& model_;
  std::map<std::string, int> numbers_;
};

/// The units of named modules, with every tensor in the innermost one around it.
void add_named_units(const ModelParts& parts, const std::string& text, TrainedModel& model) {
  std::vector<std::string> modules = module_names(parts.tensors());
  if (parts.is_tied()) {
    modules.emplace_back(kTiedHead);
  }
  const std::vector<NamedUnit> units = named_units(text, modules);
  if (parts.is_tied()) {
    check_tied(parts, units);
  }
  UnitNumbers numbers(model);
  for (const int unit : units_of_ops(parts, units)) {
    model.forward_unit.push_back(numbers.of(units, unit));
  }
  std::vector<int> unit_of;
  for (const std::string& tensor : parts.tensors()) {
    unit_of.push_back(numbers.of(units, unit_around(units, tensor)));
  }
  model.units.resize(model.unit_names.size());
  for (std::size_t i = 0; i < unit_of.size(); ++i) {
    model.units[at(unit_of[i])].push_back(static_cast<int>(i));
  }
}

void add_units_by_rule(const ModelParts& parts,
                       const StepOps& ops,
                       UnitRule rule,
                       TrainedModel& model) {
  UnitNumbers numbers(model);
  const std::vector<std::string> names = names_by_rule(parts, rule);
  std::map<std::string, int> unit_of_op;
  for (std::size_t op = 0; op < names.size(); ++op) {
    model.forward_unit.push_back(numbers.of(names[op]));
    unit_of_op[ops.forward[op].name] = model.forward_unit.back();
  }
  std::vector<int> unit_of(model.parameters.size(), 0);
  for (const Op& op : ops.backward) {
    for (const int parameter : op.completes) {
      unit_of[at(parameter)] = unit_of_op[op.name];
    }
  }
  model.units.resize(model.unit_names.size());
  for (std::size_t i = 0; i < unit_of.size(); ++i) {
    model.units[at(unit_of[i])].push_back(static_cast<int>(i));
  }
}

}  // namespace

void add_model_units(const TransformerConfig& config,
                     const StepOps& ops,
                     const UnitChoice& choice,
                     TrainedModel& model) {
  const ModelParts parts(config, ops);
  if (choice.rule == UnitRule::Named) {
    add_named_units(parts, choice.calls, model);
  } else {
    const bool ends_are_one = choice.rule == UnitRule::Ends && config.tied_embeddings;
    add_units_by_rule(parts, ops, ends_are_one ? UnitRule::Blocks : choice.rule, model);
  }
  std::map<std::string, int> unit_of_op;
  for (std::size_t op = 0; op < ops.forward.size(); ++op) {
    unit_of_op[ops.forward[op].name] = model.forward_unit[op];
  }
  model.backward_unit = mapped(ops.backward, [&](const Op& op) { return unit_of_op.at(op.name); });
  model.copy_labels = static_cast<std::int32_t>(model.labels.size());
  model.labels.insert(model.labels.end(), {"copy parameters in", "copy parameters out"});
}

std::vector<int> last_forward_ops(const TrainedModel& model) {
  std::vector<int> last;
  for (std::size_t op = 0; op < model.forward_unit.size(); ++op) {
    for (int unit = model.forward_unit[op]; unit != 0; unit = model.parent_of(unit)) {
      last.resize(std::max(last.size(), at(unit) + 1), -1);
      last[at(unit)] = static_cast<int>(op);
    }
  }
  return last;
}

std::vector<ShardUnit> shard_units(const TrainedModel& model) {
  std::vector<ShardUnit> units(model.units.size());
  for (std::size_t unit = 0; unit < units.size(); ++unit) {
    units[unit].name = model.unit_names[unit];
    for (const int parameter : model.units[unit]) {
      const Dtype dtype = parse_dtype(model.parameters[at(parameter)].dtype);
      units[unit].tensors.push_back({"", model.shapes[at(parameter)], dtype, dtype});
    }
  }
  units.front().reshard_after_forward = false;
  // The units that an op is in, from its own to the root, begin or end with it.
  std::vector<bool> begun(units.size(), false);
  for (const int own : model.forward_unit) {
    for (int unit = own;; unit = model.parent_of(unit)) {
      if (!begun[at(unit)]) {
        units[at(unit)].own_parameters_first = unit == own;
      }
      begun[at(unit)] = true;
      units[at(unit)].returns_inner_output = unit != own;
      if (unit == 0) {
        break;
      }
    }
  }
  return units;
}

}  // namespace stepsim
