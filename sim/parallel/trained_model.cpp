#include "sim/parallel/trained_model.h"

#include <algorithm>
#include <numeric>

namespace stepsim {
std::int64_t TrainedModel::elements(int parameter) const {
  return elements_of(shapes[static_cast<std::size_t>(parameter)]);
}

std::int64_t TrainedModel::total_elements() const {
  std::int64_t count = 0;
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    count += elements(static_cast<int>(p));
  }
  return count;
}

std::int64_t TrainedModel::total_bytes() const {
  return std::accumulate(
      parameters.begin(), parameters.end(), std::int64_t{0}, [](std::int64_t sum, const auto& p) {
        return sum + p.bytes;
      });
}

TrainedModel trained_model(const TransformerConfig& config,
                           const StepOps& ops,
                           const std::vector<std::int64_t>& buffer_bytes) {
  TrainedModel model;
  model.parameters = bucket_parameters(config);
  for (const Parameter& parameter : parameters(config)) {
    model.shapes.push_back(parameter.shape);
  }
  model.element_bytes = element_size(config.parameter_dtype);
  model.buffer_bytes = buffer_bytes;
  for (const Op& op : ops.forward) {
    model.labels.push_back(op.name);
  }
  const auto of_loss = [](const Op& op) { return op.op_class == OpClass::CrossEntropy; };
  model.loss_ops =
      static_cast<int>(std::ranges::find_if_not(ops.backward, of_loss) - ops.backward.begin());
  for (const Op& op : ops.backward) {
    model.completes.push_back(op.completes);
    model.labels.push_back(op.name + (op.pass == Pass::Forward ? " recomputed" : " backward"));
  }
  return model;
}

}  // namespace stepsim
