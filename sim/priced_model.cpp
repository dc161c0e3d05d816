#include "sim/priced_model.h"

#include <algorithm>
#include <cmath>

#include "sim/ddp/reducer.h"

namespace stepsim {

namespace {

/// A mean absolute error as the standard deviation of a normal error of that mean absolute size.
double sd_of_mean_absolute(double error) {
  return error * std::sqrt(1.5707963267948966);
}

}  // namespace

PricedModel::PricedModel(const Scenario& scenario, const CostModel& costs)
    : costs_(costs),
      ranks_(scenario.ranks),
      copies_out_(!scenario.ddp.gradient_as_bucket_view),
      launch_seconds_(costs.host_is_device() ? 0.0 : costs.launch_seconds()),
      config_(scenario.model) {
  const auto tensors = parameters(config_);
  const std::int64_t elements = parameter_count(config_);
  StepOps ops = step_ops(config_);
  if (!scenario.ddp.set_to_none) {
    forward_.push_back(elements_op(OpClass::ZeroGradient, elements, config_.parameter_dtype));
  }
  forward_.insert(forward_.end(), ops.forward.begin(), ops.forward.end());
  for (Op& op : ops.backward) {
    const std::vector<int> completed = op.completes;
    op.completes.clear();
    backward_.push_back(std::move(op));
    for (const int parameter : completed) {
      const Parameter& tensor = tensors[static_cast<std::size_t>(parameter)];
      backward_.push_back(elements_op(OpClass::GradientCopyIn, tensor.elements(), tensor.dtype));
      backward_.back().completes = {parameter};
    }
  }
  forward_group_.resize(forward_.size());
  backward_group_.resize(backward_.size());
  optimizer_ = elements_op(OpClass::Optimizer, elements, config_.parameter_dtype);
  optimizer_seconds_ = priced(optimizer_, {}, &optimizer_group_);
}

double PricedModel::priced(const Op& op, const BatchShape& batch, std::size_t* group) {
  const Cost cost = costs_.op(op, batch);
  const std::string name = std::string(name_of(op.op_class)) + " " + std::string(name_of(op.pass));
  const auto known = std::find_if(groups_.begin(), groups_.end(), [&](const ErrorGroup& candidate) {
    return candidate.name == name;
  });
  *group = static_cast<std::size_t>(known - groups_.begin());
  const double sd = sd_of_mean_absolute(cost.shared_error);
  if (known == groups_.end()) {
    groups_.push_back({name, sd});
  } else {
    known->relative_sd = std::max(known->relative_sd, sd);
  }
  if (cost.extrapolation > 1 || cost.unseen_shape) {
    ExtrapolationNote& note = notes_[name];
    note.op = name;
    note.factor = std::max(note.factor, cost.extrapolation);
    note.unseen_shape = note.unseen_shape || cost.unseen_shape;
  }
  return cost.seconds;
}

const PricedBatch& PricedModel::price(const BatchShape& batch) {
  const auto key =
      std::make_tuple(batch.samples, batch.max_length, batch.useful_tokens, batch.sum_squares);
  const auto found = cache_.find(key);
  if (found != cache_.end()) {
    return found->second;
  }
  PricedBatch priced_batch;
  priced_batch.collate = priced(collate_op(), batch, &collate_group_);
  for (std::size_t i = 0; i < forward_.size(); ++i) {
    priced_batch.forward.push_back(priced(forward_[i], batch, &forward_group_[i]));
  }
  for (std::size_t i = 0; i < backward_.size(); ++i) {
    priced_batch.backward.push_back(priced(backward_[i], batch, &backward_group_[i]));
  }
  return cache_.emplace(key, std::move(priced_batch)).first->second;
}

BucketCosts PricedModel::bucket_costs(const std::vector<Bucket>& buckets) {
  const auto sizes = bucket_parameters(config_);
  BucketCosts result;
  std::vector<std::vector<int>> lists;
  for (const Bucket& bucket : buckets) {
    lists.push_back(bucket.parameters);
    const std::int64_t bytes = bucket_bytes(bucket, sizes);
    const Cost cost = costs_.all_reduce(Bytes(bytes), ranks_);
    collective_error_ = std::max(collective_error_, sd_of_mean_absolute(cost.shared_error));
    if (cost.extrapolation > 1) {
      ExtrapolationNote& note = notes_["all_reduce"];
      note.op = "all_reduce";
      note.factor = std::max(note.factor, cost.extrapolation);
    }
    result.all_reduce.push_back(cost.seconds);
    if (copies_out_) {
      const std::int64_t elements = bytes / element_size(config_.parameter_dtype);
      result.copy_out.push_back(
          priced(elements_op(OpClass::GradientCopyOut, elements, config_.parameter_dtype),
                 {},
                 &copy_out_group_));
    }
  }
  result.launch_after = launch_after(backward_, lists);
  return result;
}

Span PricedModel::span_of(double seconds) const {
  return op_span(to_duration(launch_seconds_), to_duration(seconds));
}

RankStep PricedModel::fold(const PricedBatch& batch,
                           const BucketCosts& buckets,
                           const CostFactors& factors,
                           double compute_factor) const {
  const auto factor = [&](std::size_t group) {
    return factors.group.empty() ? compute_factor : compute_factor * factors.group[group];
  };
  RankStep step;
  step.data = to_duration(batch.collate * factor(collate_group_));
  for (std::size_t i = 0; i < forward_.size(); ++i) {
    step.forward = then(step.forward, span_of(batch.forward[i] * factor(forward_group_[i])));
  }
  std::vector<Span> backward;
  backward.reserve(backward_.size());
  for (std::size_t i = 0; i < backward_.size(); ++i) {
    backward.push_back(span_of(batch.backward[i] * factor(backward_group_[i])));
  }
  step.backward = fold_backward(backward, buckets.launch_after);
  step.copy_out.resize(buckets.launch_after.size());
  for (std::size_t b = 0; b < buckets.copy_out.size(); ++b) {
    step.copy_out[b] = span_of(buckets.copy_out[b] * factor(copy_out_group_));
  }
  step.optimizer = span_of(optimizer_seconds_ * factor(optimizer_group_));
  return step;
}

std::vector<ExtrapolationNote> PricedModel::notes() const {
  std::vector<ExtrapolationNote> list;
  for (const auto& [name, note] : notes_) {
    list.push_back(note);
  }
  return list;
}

}  // namespace stepsim
