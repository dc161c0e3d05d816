#include "calibrate/samples/training_ops.h"

#include "costmodel/base/mapped.h"

namespace stepsim {

std::vector<Op> training_ops(const TransformerConfig& config,
                             const std::vector<std::vector<int>>& buckets) {
  const StepOps step = step_ops(config);
  const std::vector<Parameter> tensors = parameters(config);
  const auto elements = [&tensors](int parameter) {
    return tensors[static_cast<std::size_t>(parameter)].elements();
  };
  const Dtype dtype = config.parameter_dtype;
  const std::int64_t all = parameter_count(config);
  std::vector<Op> ops = {collate_op(), elements_op(OpClass::ZeroGradient, all, dtype)};
  ops.insert(ops.end(), step.forward.begin(), step.forward.end());
  for (const Op& op : step.backward) {
    ops.push_back(op);
    for (const int parameter : op.completes) {
      ops.push_back(elements_op(OpClass::GradientCopyIn, elements(parameter), dtype));
    }
  }
  for (const auto& bucket : buckets) {
    const std::int64_t sum =
        sum_of(bucket, [&](const int parameter) { return elements(parameter); });
    ops.push_back(elements_op(OpClass::GradientCopyOut, sum, dtype));
  }
  ops.push_back(elements_op(OpClass::Optimizer, all, dtype));
  return ops;
}

}  // namespace stepsim
