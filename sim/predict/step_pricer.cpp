#include "sim/predict/step_pricer.h"

#include <algorithm>
#include <cmath>

#include "costmodel/compute/op_cost.h"
#include "costmodel/network/nccl_model.h"
#include "sim/ddp/reducer.h"

namespace stepsim {

namespace {

double launch_of(const Scenario& scenario, const CostModel& costs) {
  if (costs.host_is_device()) {
    return 0;
  }
  return scenario.host.launch ? to_seconds(*scenario.host.launch) : costs.launch_seconds();
}

/// Bytes below which a message costs the floor of its collective, wherever that was measured: such
/// prices (scalars, bucket indices) are not worth a warning.
constexpr double kSmallMessage = 32 * 1024;

/// A mean absolute error as the standard deviation of a normal error of that mean absolute size.
double sd_of_mean_absolute(double error) {
  return error * std::sqrt(1.5707963267948966);
}

/// [op] the first op that differs in no more than its name and what it completes: layers repeat.
std::vector<std::size_t> first_alike(const std::vector<Op>& ops) {
  std::vector<std::size_t> alike;
  std::vector<std::pair<Op, std::size_t>> kinds;
  for (std::size_t i = 0; i < ops.size(); ++i) {
    Op kind = ops[i];
    kind.name.clear();
    kind.completes.clear();
    const auto known = std::find_if(
        kinds.begin(), kinds.end(), [&](const auto& entry) { return entry.first == kind; });
    alike.push_back(known == kinds.end() ? i : known->second);
    if (known == kinds.end()) {
      kinds.emplace_back(std::move(kind), i);
    }
  }
  return alike;
}

}  // namespace

StepPricer::StepPricer(const Scenario& scenario,
                       const CostModel& costs,
                       const CollectivePricer& pricer,
                       double empty_block_seconds)
    : costs_(costs),
      pricer_(pricer),
      empty_block_seconds_(empty_block_seconds),
      scenario_(scenario),
      ranks_(scenario.ranks),
      nodes_(nodes_of(scenario)),
      copies_out_(!scenario.ddp.gradient_as_bucket_view),
      launch_seconds_(launch_of(scenario, costs)),
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
  forward_alike_ = first_alike(forward_);
  backward_alike_ = first_alike(backward_);
  forward_group_.resize(forward_.size());
  backward_group_.resize(backward_.size());
  optimizer_ = elements_op(OpClass::Optimizer, elements, config_.parameter_dtype);
  optimizer_seconds_ = priced(optimizer_, {}, &optimizer_group_);
}

double StepPricer::priced(const Op& op, const BatchShape& batch, std::size_t* group) {
  const Cost cost = costs_.op(op, batch);
  const std::string name =
      cost.group.empty() ? std::string(name_of(op.op_class)) + " " + std::string(name_of(op.pass))
                         : std::string(cost.group);
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
  const bool has_grid = op.op_class == OpClass::Attention && op.varlen;
  return cost.seconds +
         (has_grid ? empty_block_seconds_ * feature_value("empty_blocks", op, batch) : 0);
}

std::int64_t StepPricer::input_tokens(const BatchShape& batch) const {
  return is_varlen(scenario_) ? batch.useful_tokens : batch.padded_tokens();
}

std::vector<double> StepPricer::priced_all(const std::vector<Op>& ops,
                                           const std::vector<std::size_t>& alike,
                                           const BatchShape& batch,
                                           std::vector<std::size_t>& groups) {
  std::vector<double> seconds;
  seconds.reserve(ops.size());
  for (std::size_t i = 0; i < ops.size(); ++i) {
    if (alike[i] == i) {
      seconds.push_back(priced(ops[i], batch, &groups[i]));
    } else {
      seconds.push_back(seconds[alike[i]]);
      groups[i] = groups[alike[i]];
    }
  }
  return seconds;
}

const PricedBatch& StepPricer::price(const BatchShape& batch) {
  const auto found = cache_.find(batch);
  if (found != cache_.end()) {
    return found->second;
  }
  PricedBatch priced_batch;
  const BatchShape flat{1, batch.useful_tokens, batch.useful_tokens};
  priced_batch.collate = priced(collate_op(), is_varlen(scenario_) ? flat : batch, &collate_group_);
  priced_batch.forward = priced_all(forward_, forward_alike_, batch, forward_group_);
  priced_batch.backward = priced_all(backward_, backward_alike_, batch, backward_group_);
  return cache_.emplace(batch, std::move(priced_batch)).first->second;
}

BucketCosts StepPricer::bucket_costs(const std::vector<Bucket>& buckets) {
  const auto sizes = bucket_parameters(config_);
  BucketCosts result;
  std::vector<std::vector<int>> lists;
  for (const Bucket& bucket : buckets) {
    lists.push_back(bucket.parameters);
    const std::int64_t bytes = bucket_bytes(bucket, sizes);
    result.all_reduce.push_back(
        priced_collective(CollectiveKind::AllReduce, static_cast<double>(bytes), ranks_, nodes_));
    if (copies_out_) {
      std::vector<double> copies;
      for (const int parameter : bucket.parameters) {
        const std::int64_t elements = sizes[static_cast<std::size_t>(parameter)].bytes /
                                      element_size(config_.parameter_dtype);
        copies.push_back(
            priced(elements_op(OpClass::GradientCopyOut, elements, config_.parameter_dtype),
                   {},
                   &copy_out_group_));
      }
      result.copy_out.push_back(std::move(copies));
    }
  }
  result.launch_after = launch_after(backward_, lists);
  return result;
}

double StepPricer::priced_collective(CollectiveKind kind, double bytes, int ranks, int nodes) {
  const auto whole = static_cast<std::int64_t>(std::ceil(bytes));
  const auto key = std::make_tuple(kind, whole, ranks);
  const auto known = collective_prices_.find(key);
  if (known != collective_prices_.end()) {
    return known->second;
  }
  const CollectivePrice price = pricer_.price(kind, Bytes(whole), ranks, nodes);
  const Cost& cost = price.cost;
  collective_seconds_ += cost.seconds;
  collective_error_seconds_ += cost.seconds * sd_of_mean_absolute(cost.shared_error);
  if (static_cast<double>(whole) < kSmallMessage) {
    return collective_prices_[key] = cost.seconds;
  }
  if (!price.source.empty()) {
    sources_.insert(std::string(name_of(kind)) + ": " + price.source);
  }
  if (cost.extrapolation > 1) {
    ExtrapolationNote& note = notes_[std::string(name_of(kind))];
    note.op = name_of(kind);
    note.factor = std::max(note.factor, cost.extrapolation);
  }
  return collective_prices_[key] = cost.seconds;
}

Kernel StepPricer::kernel_of(const Op& op, const BatchShape& shape, double seconds) const {
  constexpr double kTile = 128;  // Rows and columns of a thread block's tile, as usual for GEMMs.
  Kernel kernel;
  kernel.launch = to_duration(launch_seconds_);
  kernel.work = to_duration(seconds);
  const double rows = std::ceil(rows_of(op, shape) / kTile);
  switch (op.op_class) {
    case OpClass::Gemm:
      kernel.blocks = static_cast<int>(rows * std::ceil(static_cast<double>(op.n) / kTile));
      break;
    case OpClass::Attention:
    case OpClass::AttentionScores:
    case OpClass::AttentionContext:
      kernel.blocks = static_cast<int>(rows * static_cast<double>(op.heads));
      break;
    default:
      kernel.bound = Bound::Memory;
  }
  return kernel;
}

DdpModel StepPricer::ddp_model() const {
  DdpModel model;
  model.parameters = bucket_parameters(config_);
  for (const Parameter& parameter : parameters(config_)) {
    model.shapes.push_back(parameter.shape);
  }
  model.buffer_bytes = scenario_.buffer_bytes;
  // Fully sharded units: one a layer ("layer3.…"), all else belongs to the root.
  std::map<std::string, int> unit_of_layer;
  model.units.emplace_back();
  const auto unit_of = [&](const Op& op) {
    const auto dot = op.name.find('.');
    const bool block = config_.family == ModelFamily::Blocks;
    if (dot == std::string::npos && !block) {
      return 0;
    }
    const auto [unit, is_new] =
        unit_of_layer.emplace(op.name.substr(0, dot), static_cast<int>(model.units.size()));
    if (is_new) {
      model.units.emplace_back();
    }
    return unit->second;
  };
  for (const Op& op : forward_) {
    if (op.op_class != OpClass::ZeroGradient) {
      model.forward_unit.push_back(unit_of(op));
      model.labels.push_back(op.name);
    }
  }
  for (const Op& op : backward_) {
    if (op.op_class == OpClass::GradientCopyIn) {
      const int parameter = op.completes.front();
      model.completes.back().push_back(parameter);
      model.units[static_cast<std::size_t>(model.backward_unit.back())].push_back(parameter);
      continue;
    }
    model.completes.emplace_back();
    model.backward_unit.push_back(unit_of(op));
    model.labels.push_back(op.name + " backward");
  }
  return model;
}

MicroBatchWork StepPricer::micro_batch(const PricedBatch& batch,
                                       const BatchShape& shape,
                                       const CostFactors& factors,
                                       double compute_factor) const {
  const auto factor = [&](std::size_t group) {
    return factors.group.empty() ? compute_factor : compute_factor * factors.group[group];
  };
  MicroBatchWork work;
  work.collate = to_duration(batch.collate * factor(collate_group_));
  std::int32_t label = 0;
  for (std::size_t i = 0; i < forward_.size(); ++i) {
    if (forward_[i].op_class != OpClass::ZeroGradient) {
      work.forward.push_back(
          kernel_of(forward_[i], shape, batch.forward[i] * factor(forward_group_[i])));
      work.forward.back().label = label++;
    }
  }
  for (std::size_t i = 0; i < backward_.size(); ++i) {
    if (backward_[i].op_class != OpClass::GradientCopyIn) {
      work.backward.push_back(
          kernel_of(backward_[i], shape, batch.backward[i] * factor(backward_group_[i])));
      work.backward.back().label = label++;
    }
  }
  if (scenario_.host.copy_bytes_per_s > 0) {
    // Token ids and the mask, 8 bytes each.
    work.copy_input.launch = to_duration(launch_seconds_);
    work.copy_input.work = to_duration(16 * static_cast<double>(input_tokens(shape)) /
                                       scenario_.host.copy_bytes_per_s);
  }
  return work;
}

Kernel StepPricer::elements_kernel(OpClass op_class,
                                   std::int64_t count,
                                   const CostFactors& factors) {
  const auto key = std::make_pair(op_class, count);
  auto known = elements_prices_.find(key);
  if (known == elements_prices_.end()) {
    ElementsPrice price;
    price.seconds = priced(elements_op(op_class, count, config_.parameter_dtype), {}, &price.group);
    known = elements_prices_.emplace(key, price).first;
  }
  Kernel kernel;
  kernel.launch = to_duration(launch_seconds_);
  kernel.work = to_duration(known->second.seconds * (known->second.group < factors.group.size()
                                                         ? factors.group[known->second.group]
                                                         : 1));
  kernel.bound = Bound::Memory;
  return kernel;
}

DdpPrices StepPricer::ddp_prices(const CostFactors& factors, double common) {
  DdpPrices prices;
  prices.elements = [this, factors](OpClass op_class, std::int64_t count) {
    return elements_kernel(op_class, count, factors);
  };
  prices.memory = [this, factors](double bytes) {
    // A copy of n elements reads and writes each once.
    const auto element = static_cast<double>(element_size(config_.parameter_dtype));
    const double count = std::max(1.0, std::ceil(bytes / (2 * element)));
    // A large pass costs as much as several over parts, which stay within measured sizes.
    constexpr double kPart = 1 << 28;
    const double parts = std::ceil(count / kPart);
    Kernel kernel = elements_kernel(
        OpClass::GradientCopyIn, static_cast<std::int64_t>(std::ceil(count / parts)), factors);
    kernel.work = to_duration(to_seconds(kernel.work) * parts);
    return kernel;
  };
  const double slowness = common * factors.collective;
  prices.transfer = [this, slowness](CollectiveKind kind, double bytes, bool world) {
    const int group = world ? ranks_ : scenario_.ddp.hook_options.subgroup_ranks;
    const int per_node = scenario_.ranks_per_node > 0 ? scenario_.ranks_per_node : ranks_;
    const int nodes = (group + per_node - 1) / per_node;
    return to_duration(slowness * priced_collective(kind, bytes, group, nodes));
  };
  if (scenario_.interference.multiprocessors > 0) {
    // A ring with as many channels as the scenario allows, too wide to halve its threads.
    NcclSystem system;
    system.ranks = ranks_;
    system.ring.channels = scenario_.interference.max_channels;
    system.ring.intra_gb_per_s = 1000;
    prices.channels = [system](double bytes) {
      return nccl_launch(system, NcclAlgorithm::Ring, NcclProtocol::Simple, bytes).channels;
    };
  }
  const HostOptions& host = scenario_.host;
  prices.enqueue = host.enqueue;
  prices.hook = host.hook;
  prices.python_hook = host.python_hook;
  prices.traversal_per_op = host.traversal_per_op;
  prices.sync = host.sync;
  return prices;
}

Span StepPricer::span_of(double seconds) const {
  return op_span(to_duration(launch_seconds_), to_duration(seconds));
}

std::vector<Duration> StepPricer::durations(const std::vector<Op>& ops,
                                            const std::vector<std::size_t>& alike,
                                            const std::vector<double>& seconds,
                                            const std::vector<std::size_t>& groups,
                                            const CostFactors& factors,
                                            double compute_factor,
                                            double load_factor) {
  std::vector<Duration> result;
  result.reserve(ops.size());
  for (std::size_t i = 0; i < ops.size(); ++i) {
    if (alike[i] != i) {
      result.push_back(result[alike[i]]);
      continue;
    }
    const OpClass op_class = ops[i].op_class;
    const bool of_model = op_class != OpClass::ZeroGradient && op_class != OpClass::GradientCopyIn;
    const double factor =
        factors.group.empty() ? compute_factor : compute_factor * factors.group[groups[i]];
    result.push_back(to_duration(seconds[i] * (of_model ? load_factor : 1) * factor));
  }
  return result;
}

RankStep StepPricer::fold(const PricedBatch& batch,
                          const BucketCosts& buckets,
                          const CostFactors& factors,
                          double compute_factor,
                          double load_factor) const {
  const auto factor = [&](std::size_t group) {
    return factors.group.empty() ? compute_factor : compute_factor * factors.group[group];
  };
  RankStep step;
  step.data = to_duration(batch.collate * factor(collate_group_));
  const Duration launch = to_duration(launch_seconds_);
  for (const Duration duration : durations(forward_,
                                           forward_alike_,
                                           batch.forward,
                                           forward_group_,
                                           factors,
                                           compute_factor,
                                           load_factor)) {
    step.forward = then(step.forward, op_span(launch, duration));
  }
  std::vector<Span> backward;
  backward.reserve(backward_.size());
  for (const Duration duration : durations(backward_,
                                           backward_alike_,
                                           batch.backward,
                                           backward_group_,
                                           factors,
                                           compute_factor,
                                           load_factor)) {
    backward.push_back(op_span(launch, duration));
  }
  step.backward = fold_backward(backward, buckets.launch_after);
  step.copy_out.resize(buckets.launch_after.size());
  for (std::size_t b = 0; b < buckets.copy_out.size(); ++b) {
    for (const double seconds : buckets.copy_out[b]) {
      step.copy_out[b] = then(step.copy_out[b], span_of(seconds * factor(copy_out_group_)));
    }
  }
  step.optimizer = span_of(optimizer_seconds_ * factor(optimizer_group_));
  return step;
}

RankOps StepPricer::rank_ops(const PricedBatch& batch,
                             const BucketCosts& buckets,
                             double compute_factor,
                             double load_factor) const {
  RankOps ops;
  ops.data = to_duration(batch.collate * compute_factor);
  ops.launch = to_duration(launch_seconds_);
  std::int32_t label = 0;
  const auto add = [&](std::vector<OpWork>& list, bool of_model, double seconds) {
    const double load = of_model ? load_factor : 1;
    list.push_back({of_model ? label++ : -1, to_duration(seconds * load * compute_factor)});
  };
  for (std::size_t i = 0; i < forward_.size(); ++i) {
    add(ops.forward, forward_[i].op_class != OpClass::ZeroGradient, batch.forward[i]);
  }
  for (std::size_t i = 0; i < backward_.size(); ++i) {
    add(ops.backward, backward_[i].op_class != OpClass::GradientCopyIn, batch.backward[i]);
  }
  ops.copy_out.resize(buckets.launch_after.size());
  for (std::size_t b = 0; b < buckets.copy_out.size(); ++b) {
    for (const double seconds : buckets.copy_out[b]) {
      ops.copy_out[b].push_back(to_duration(seconds * compute_factor));
    }
  }
  ops.optimizer = to_duration(optimizer_seconds_ * compute_factor);
  return ops;
}

std::vector<double> StepPricer::seconds_by_group(const PricedBatch& batch) const {
  std::vector<double> seconds(groups_.size());
  for (std::size_t i = 0; i < batch.forward.size(); ++i) {
    seconds[forward_group_[i]] += batch.forward[i];
  }
  for (std::size_t i = 0; i < batch.backward.size(); ++i) {
    seconds[backward_group_[i]] += batch.backward[i];
  }
  return seconds;
}

std::vector<ExtrapolationNote> StepPricer::notes() const {
  std::vector<ExtrapolationNote> list;
  for (const auto& [name, note] : notes_) {
    list.push_back(note);
  }
  return list;
}

}  // namespace stepsim
