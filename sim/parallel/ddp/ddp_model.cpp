#include "sim/parallel/ddp/ddp_model.h"

#include <map>
#include <numeric>

namespace stepsim {
namespace {

/// Numbers the units of fully sharded training by the layers that the names of ops begin with.
class Units {
 public:
  Units(ModelFamily family, DdpModel& model) : family_(family), model_(model) {
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
  DdpModel& model_;
  std::map<std::string, int> unit_of_layer_;
};

}  // namespace

std::int64_t DdpModel::elements(int parameter) const {
  return elements_of(shapes[static_cast<std::size_t>(parameter)]);
}

std::int64_t DdpModel::total_elements() const {
  std::int64_t count = 0;
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    count += elements(static_cast<int>(p));
  }
  return count;
}

std::int64_t DdpModel::total_bytes() const {
  return std::accumulate(
      parameters.begin(), parameters.end(), std::int64_t{0}, [](std::int64_t sum, const auto& p) {
        return sum + p.bytes;
      });
}

DdpModel ddp_model(const TransformerConfig& config,
                   const StepOps& ops,
                   const std::vector<std::int64_t>& buffer_bytes) {
  DdpModel model;
  model.parameters = bucket_parameters(config);
  for (const Parameter& parameter : parameters(config)) {
    model.shapes.push_back(parameter.shape);
  }
  model.element_bytes = element_size(config.parameter_dtype);
  model.buffer_bytes = buffer_bytes;
  Units units(config.family, model);
  for (const Op& op : ops.forward) {
    model.forward_unit.push_back(units.of(op));
    model.labels.push_back(op.name);
  }
  for (const Op& op : ops.backward) {
    const int unit = units.of(op);
    std::vector<int>& of_unit = model.units[static_cast<std::size_t>(unit)];
    of_unit.insert(of_unit.end(), op.completes.begin(), op.completes.end());
    model.completes.push_back(op.completes);
    model.backward_unit.push_back(unit);
    model.labels.push_back(op.name + (op.pass == Pass::Forward ? " recomputed" : " backward"));
  }
  return model;
}

}  // namespace stepsim
