#include "sim/parallel/fsdp/layer_units.h"

#include <map>

namespace stepsim {
namespace {

/// Numbers the units of fully sharded training by the layers that the names of ops begin with.
class LayerUnits {
 public:
  LayerUnits(ModelFamily family, TrainedModel& model) : family_(family), model_(model) {
    model_.units.emplace_back();
  }

  int of(const Op& op) {
    const std::string_view layer = layer_of(op, family_);
    if (layer.empty()) {
      return 0;
    }
    const auto [unit, is_new] =
        unit_of_layer_.emplace(layer, static_cast<int>(model_.units.size()));
    if (is_new) {
      model_.units.emplace_back();
    }
    return unit->second;
  }

 private:
  ModelFamily family_;
  TrainedModel& model_;
  std::map<std::string, int> unit_of_layer_;
};

}  // namespace

void add_layer_units(const TransformerConfig& config, const StepOps& ops, TrainedModel& model) {
  LayerUnits units(config.family, model);
  for (const Op& op : ops.forward) {
    model.forward_unit.push_back(units.of(op));
  }
  for (const Op& op : ops.backward) {
    const int unit = units.of(op);
    std::vector<int>& of_unit = model.units[static_cast<std::size_t>(unit)];
    of_unit.insert(of_unit.end(), op.completes.begin(), op.completes.end());
    model.backward_unit.push_back(unit);
  }
}

}  // namespace stepsim
