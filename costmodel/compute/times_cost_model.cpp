#include "costmodel/compute/times_cost_model.h"

#include <algorithm>
#include <cmath>

#include "costmodel/compute/fit_errors.h"
#include "costmodel/compute/pass_cost.h"
#include "costmodel/model/op_flops.h"

namespace stepsim {
namespace {

/// How much the time of a token differs between batches of half and of twice the tokens: 10 to 30 %
/// in the recorded runs of tests/live, on processors.
constexpr double kProportionError = 0.15;

}  // namespace

TimesCostModel::TimesCostModel(const TransformerConfig& model, const MeasuredTimes& times)
    : ops_(step_ops(model)),
      elements_(static_cast<double>(parameter_count(model))),
      times_(times) {}

std::pair<double, double> TimesCostModel::total_flops(const BatchShape& batch) const {
  const auto found = totals_.find(batch);
  if (found != totals_.end()) {
    return found->second;
  }
  std::pair<double, double> total{0, 0};
  for (const Op& op : ops_.forward) {
    total.first += op_flops(op, batch);
  }
  for (const Op& op : ops_.backward) {
    total.second += op_flops(op, batch);
  }
  return totals_.emplace(batch, total).first->second;
}

Cost TimesCostModel::op(const Op& op, const BatchShape& batch) const {
  Cost cost;
  cost.relative_error = cost.shared_error = kMeanAbsoluteOfDeviation * times_.error;
  switch (op.op_class) {
    case OpClass::Collate:
      return {};
    case OpClass::Optimizer:
      cost.seconds = to_seconds(times_.optimizer) * static_cast<double>(op.n) / elements_;
      return cost;
    case OpClass::ZeroGradient:
    case OpClass::GradientCopyIn:
    case OpClass::GradientCopyOut:
      cost.seconds =
          times_.copy_bytes_per_s > 0 ? op_bytes(op, batch) / times_.copy_bytes_per_s : 0;
      return cost;
    default:
      break;
  }
  const bool forward = op.pass == Pass::Forward;
  const auto [forward_flops, backward_flops] = total_flops(batch);
  const double all = forward ? forward_flops : backward_flops;
  const std::int64_t tokens = op.varlen ? batch.useful_tokens : batch.padded_tokens();
  const double scale =
      times_.tokens > 0 ? static_cast<double>(tokens) / static_cast<double>(times_.tokens) : 1;
  cost.seconds = all > 0 ? scale * to_seconds(forward ? times_.forward : times_.backward) *
                               op_flops(op, batch) / all
                         : 0;
  const double doublings = scale > 0 ? std::abs(std::log2(scale)) : 0;
  cost.relative_error = cost.shared_error =
      kMeanAbsoluteOfDeviation * std::hypot(times_.error, kProportionError * doublings);
  if (scale > 0) {
    cost.extrapolation = std::max(scale, 1 / scale);
    cost.smaller = scale < 1;
  }
  cost.group = forward ? kForwardPass : kBackwardPass;
  return cost;
}

}  // namespace stepsim
