#include "sim/parallel/zero/leaf_modules.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "costmodel/base/index.h"
#include "costmodel/base/mapped.h"

namespace stepsim {
namespace {

/// What families with a tied embedding call the op of their head.
constexpr const char* kSharedHead = "lm_head";

/// The module that holds a tensor itself; a tensor without a dot is one of its own.
std::string module_of(const std::string& tensor) {
  return tensor.substr(0, tensor.rfind('.'));
}

}  // namespace

void add_leaf_modules(const TransformerConfig& config, const StepOps& ops, TrainedModel& model) {
  const std::vector<Parameter> tensors = parameters(config);
  std::map<std::string, std::vector<int>> parameters_of;  // [op]
  for (const Op& op : ops.backward) {
    std::vector<int>& of_op = parameters_of[op.name];
    of_op.insert(of_op.end(), op.completes.begin(), op.completes.end());
  }
  model.units.assign(1, {});
  model.unit_names = {"root"};
  std::map<std::string, int> unit_of_module;
  std::map<std::string, int> unit_of_op;
  const auto unit_named = [&](const std::string& module) {
    const auto [found, is_new] =
        unit_of_module.emplace(module, static_cast<int>(model.units.size()));
    if (is_new) {
      model.units.emplace_back();
      model.unit_names.push_back(module);
    }
    return found->second;
  };
  for (const Op& op : ops.forward) {
    const std::vector<int>& own = parameters_of[op.name];
    int unit = 0;
    if (!own.empty()) {
      unit = unit_named(module_of(tensors[at(own.front())].name));
    } else if (config.tied_embeddings && op.name == kSharedHead) {
      unit = unit_named(module_of(tensors.front().name));
    }
    if (unit_of_op.emplace(op.name, unit).second) {
      std::vector<int>& all = model.units[at(unit)];
      all.insert(all.end(), own.begin(), own.end());
    }
    model.forward_unit.push_back(unit);
  }
  model.unit_parent.assign(model.units.size(), 0);
  model.backward_unit = mapped(ops.backward, [&](const Op& op) { return unit_of_op.at(op.name); });
  model.copy_labels = static_cast<std::int32_t>(model.labels.size());
  model.labels.insert(model.labels.end(), {"copy parameters in", "copy parameters out"});
}

}  // namespace stepsim
