#include "sim/predict/step_lowering.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "costmodel/base/index.h"
#include "costmodel/base/mapped.h"
#include "costmodel/compute/cost_features.h"
#include "costmodel/compute/fit_errors.h"
#include "sim/engine/time_limit.h"

namespace stepsim {
namespace {

/// A step that has none of DDP's copies has the same host time over fewer launches: a copy's is
/// short, and what was counted for it is the other ops'.
double launch_of(const Scenario& scenario, const CostModel& costs, bool has_copies) {
  if (costs.host_is_device()) {
    return 0;
  }
  if (scenario.host.launch) {
    return to_seconds(*scenario.host.launch);
  }
  return costs.launch_seconds() / (has_copies ? 1 : 1 - costs.launched_copies());
}

/// Thread blocks of an op, and what limits it.
std::int32_t thread_blocks(const Op& op, const BatchShape& shape) {
  constexpr double kTile = 128;  // Rows and columns of a thread block's tile, as usual for GEMMs.
  const double rows = std::ceil(rows_of(op, shape) / kTile);
  switch (op.op_class) {
    case OpClass::Gemm:
      return static_cast<std::int32_t>(rows * std::ceil(static_cast<double>(op.n) / kTile));
    case OpClass::Attention:
    case OpClass::AttentionScores:
    case OpClass::AttentionContext:
      return static_cast<std::int32_t>(rows * static_cast<double>(op.heads));
    default:
      return 0;
  }
}

Bound bound_by(const Op& op) {
  switch (op.op_class) {
    case OpClass::Gemm:
    case OpClass::Attention:
    case OpClass::AttentionScores:
    case OpClass::AttentionContext:
      return Bound::Compute;
    default:
      return Bound::Memory;
  }
}

}  // namespace

StepOps step_ops(const Scenario& scenario) {
  return checkpointed_step_ops(scenario.model, scenario.checkpointing);
}

double CostFactors::of_collective(double bytes) const {
  if (collective_sizes.empty() || bytes < 1) {
    return collective;
  }
  const auto last = static_cast<double>(collective_sizes.size() - 1);
  const double octave = std::min(std::log2(bytes), last);
  const double below = std::floor(octave);
  const double share = octave - below;
  return collective * std::pow(collective_sizes[static_cast<std::size_t>(below)], 1 - share) *
         std::pow(collective_sizes[static_cast<std::size_t>(std::ceil(octave))], share);
}

StepLowering::StepLowering(const Scenario& scenario,
                           const CostModel& costs,
                           double empty_block_seconds)
    : scenario_(&scenario), costs_(&costs), empty_block_seconds_(empty_block_seconds) {
  const StepOps ops = step_ops(scenario);
  std::vector<Op> kinds;
  add_model_ops(ops.forward, true, kinds);
  const std::size_t forward_ops = ops_.size();
  add_model_ops(ops.backward, false, kinds);
  model_work_ = work_.size();
  // Work on gradients stands where it is done on its own.
  const std::vector<GradientWork> own =
      scenario.parallel->gradient_work(parallel_job(scenario), ops);
  auto next = own.begin();
  std::vector<LoweredOp> with_own;
  const auto add_work_after = [&](int op) {
    for (; next != own.end() && next->after == op; ++next) {
      with_own.push_back({ddp_work(next->op_class, next->elements), -1, op < 0});
    }
  };
  add_work_after(-1);
  for (std::size_t i = 0; i < ops_.size(); ++i) {
    with_own.push_back(ops_[i]);
    if (i >= forward_ops) {
      add_work_after(static_cast<int>(i - forward_ops));
    }
  }
  ops_ = std::move(with_own);
  has_copies_ = std::ranges::any_of(
      own, [](const GradientWork& work) { return work.op_class == OpClass::GradientCopyIn; });
  launch_seconds_ = launch_of(scenario, costs, has_copies_);
}

StepLowering::StepLowering(const StepLowering& priced, const Scenario& scenario)
    : StepLowering(priced) {
  scenario_ = &scenario;
  launch_seconds_ = launch_of(scenario, *costs_, has_copies_);
}

/// `kinds`: the ops of `work_` without names, to find those that are alike.
void StepLowering::add_model_ops(const std::vector<Op>& ops, bool forward, std::vector<Op>& kinds) {
  for (Op op : ops) {
    op.completes.clear();
    Op kind = op;
    kind.name.clear();
    const auto known = std::ranges::find(kinds, kind);
    const auto number = static_cast<std::int32_t>(known - kinds.begin());
    if (known == kinds.end()) {
      kinds.push_back(std::move(kind));
      const Bound bound = bound_by(op);
      work_.push_back({std::move(op), {}, 0, 1, bound});
    }
    ops_.push_back({number, static_cast<std::int32_t>(ops_.size()), forward});
  }
}

std::int32_t StepLowering::ddp_work(OpClass op_class, std::int64_t elements, std::int64_t parts) {
  const auto [known, is_new] = ddp_work_.emplace(std::tuple(op_class, elements, parts),
                                                 static_cast<std::int32_t>(work_.size()));
  if (is_new) {
    work_.push_back(
        {elements_op(op_class, elements, scenario_->model.parameter_dtype), {}, 0, parts});
  }
  return known->second;
}

double StepLowering::priced(const Op& op, const BatchShape& batch, std::size_t& group) {
  const Cost cost = costs_->op(op, batch);
  const std::string name =
      cost.group.empty() ? std::string(name_of(op.op_class)) + " " + std::string(name_of(op.pass))
                         : std::string(cost.group);
  const auto known = std::ranges::find_if(
      groups_, [&](const ErrorGroup& candidate) { return candidate.name == name; });
  group = static_cast<std::size_t>(known - groups_.begin());
  const double sd = sd_of_mean_absolute(cost.shared_error);
  if (known == groups_.end()) {
    groups_.push_back({name, sd});
  } else {
    known->relative_sd = std::max(known->relative_sd, sd);
  }
  if (cost.extrapolation > 1 || cost.unseen_shape) {
    ExtrapolationNote& noted = note(name);
    noted.outside(cost);
    noted.unseen_shape = noted.unseen_shape || cost.unseen_shape;
  }
  const bool has_grid = op.op_class == OpClass::Attention && op.varlen;
  return cost.seconds +
         (has_grid ? empty_block_seconds_ * feature_value("empty_blocks", op, batch) : 0);
}

void StepLowering::price_ddp(Work& work) {
  if (!work.group) {
    std::size_t group = 0;
    work.seconds = static_cast<double>(work.parts) * priced(work.op, {}, group);
    work.group = group;
  }
}

void StepLowering::price_ddp_work(OpClass op_class) {
  for (std::size_t i = model_work_; i < work_.size(); ++i) {
    if (work_[i].op.op_class == op_class) {
      price_ddp(work_[i]);
    }
  }
}

std::int64_t StepLowering::input_tokens(const BatchShape& batch) const {
  return is_varlen(*scenario_) ? batch.useful_tokens : batch.padded_tokens();
}

PricedBatch StepLowering::price_ops(const BatchShape& batch, bool with_ddp) {
  PricedBatch result;
  result.seconds.reserve(model_work_);
  for (const LoweredOp& op : ops_) {
    Work& work = work_[at(op.work)];
    if (op.label < 0) {
      if (with_ddp) {
        price_ddp(work);
      }
    } else if (at(op.work) == result.seconds.size()) {  // The first of its kind.
      std::size_t group = 0;
      result.seconds.push_back(priced(work.op, batch, group));
      result.blocks.push_back(thread_blocks(work.op, batch));
      work.group = group;
    }
  }
  return result;
}

PricedBatch StepLowering::price(const BatchShape& batch) {
  const BatchShape flat{1, batch.useful_tokens, batch.useful_tokens};
  const double collate = priced(collate_op(), is_varlen(*scenario_) ? flat : batch, collate_group_);
  PricedBatch priced_batch = price_ops(batch, true);
  priced_batch.collate = collate;
  return priced_batch;
}

double StepLowering::seconds_of(const PricedBatch& batch, std::int32_t work) const {
  return is_of_model(work) ? batch.seconds[at(work)] : work_[at(work)].seconds;
}

double StepLowering::compute_seconds(const PricedBatch& batch) const {
  return sum_of(ops_, [&](const LoweredOp& op) { return seconds_of(batch, op.work); });
}

std::pair<double, double> StepLowering::model_seconds(const PricedBatch& batch) const {
  std::pair<double, double> seconds;
  for (const LoweredOp& op : ops_) {
    if (op.label >= 0) {
      (op.forward ? seconds.first : seconds.second) += seconds_of(batch, op.work);
    }
  }
  return seconds;
}

std::vector<double> StepLowering::backward_ends(const PricedBatch& batch) const {
  std::vector<double> ends;
  double seconds = 0;
  for (const LoweredOp& op : ops_) {
    if (op.label >= 0 && !op.forward) {
      seconds += seconds_of(batch, op.work);
      ends.push_back(seconds);
    }
  }
  return ends;
}

std::size_t StepLowering::model_ops() const {
  return static_cast<std::size_t>(
      std::ranges::count_if(ops_, [](const LoweredOp& op) { return op.label >= 0; }));
}

std::vector<double> StepLowering::seconds_by_group(const PricedBatch& batch) const {
  std::vector<double> seconds(groups_.size());
  for (const LoweredOp& op : ops_) {
    seconds[*work_[at(op.work)].group] += seconds_of(batch, op.work);
  }
  return seconds;
}

double StepLowering::host_error() const {
  const double measured = scenario_->host.launch ? 0 : costs_->launch_error();
  return std::max(scenario_->host.error, measured);
}

double StepLowering::pass_seconds(const BatchShape& batch) {
  const PricedBatch prices = price_ops(batch, false);
  double seconds = 0;
  std::int64_t launches = 0;
  for (const LoweredOp& op : ops_) {
    if (op.label >= 0) {
      seconds += prices.seconds[at(op.work)];
      ++launches;
    }
  }
  return std::max(seconds, launch_seconds_ * static_cast<double>(launches));
}

Duration StepLowering::collate(const PricedBatch& batch,
                               const CostFactors& factors,
                               double compute_factor) const {
  const double group = factors.group.empty() ? 1 : factors.group[collate_group_];
  return bounded_duration(batch.collate * (compute_factor * group));
}

std::vector<Duration> StepLowering::times(const PricedBatch& batch,
                                          const CostFactors& factors,
                                          RankFactors rank) const {
  std::vector<Duration> result(work_.size());
  for (std::size_t i = 0; i < work_.size(); ++i) {
    const Work& work = work_[i];
    if (!work.group) {
      continue;  // It is no part of this run.
    }
    const bool of_model = i < model_work_;
    const double seconds = of_model ? batch.seconds[i] * rank.load : work.seconds;
    const double group = *work.group < factors.group.size() ? factors.group[*work.group] : 1;
    result[i] = bounded_duration(seconds * (rank.compute * group));
  }
  return result;
}

Duration StepLowering::launch(const CostFactors& factors) const {
  return bounded_duration(launch_seconds_ * factors.host);
}

Kernel StepLowering::kernel(std::int32_t work,
                            const PricedBatch& batch,
                            Duration time,
                            Duration launch) const {
  Kernel kernel;
  kernel.launch = launch;
  kernel.work = time;
  kernel.bound = bound_of(work);
  kernel.blocks = blocks_of(batch, work);
  return kernel;
}

std::vector<Kernel> StepLowering::kernels(const PricedBatch& batch,
                                          const CostFactors& factors,
                                          RankFactors rank) const {
  const std::vector<Duration> time = times(batch, factors, rank);
  const Duration launch = this->launch(factors);
  std::vector<Kernel> result;
  result.reserve(time.size());
  for (std::size_t i = 0; i < time.size(); ++i) {
    result.push_back(kernel(static_cast<std::int32_t>(i), batch, time[i], launch));
  }
  return result;
}

MicroBatchWork StepLowering::micro_batch(const PricedBatch& batch,
                                         const BatchShape& shape,
                                         const CostFactors& factors,
                                         RankFactors rank) const {
  const std::vector<Duration> time = times(batch, factors, rank);
  const Duration launch = this->launch(factors);
  MicroBatchWork work;
  work.collate = collate(batch, factors, rank.compute);
  work.forward.reserve(ops_.size());
  work.backward.reserve(ops_.size());
  for (const LoweredOp& op : ops_) {
    if (op.label >= 0) {
      std::vector<Kernel>& kernels = op.forward ? work.forward : work.backward;
      kernels.push_back(kernel(op.work, batch, time[at(op.work)], launch));
      kernels.back().label = op.label;
    }
  }
  const auto hold_up = [](std::vector<Kernel>& kernels, const PassStall& stall) {
    if (!kernels.empty()) {
      kernels.front().launch += stall.host;
      kernels.front().work += stall.device;
    }
  };
  hold_up(work.forward, rank.forward);
  hold_up(work.backward, rank.backward);
  work.copy_input = copy_input(shape, factors);
  return work;
}

Kernel StepLowering::copy_input(const BatchShape& shape, const CostFactors& factors) const {
  Kernel copy;
  if (scenario_->host.copy_bytes_per_s > 0) {
    constexpr double kTokenBytes = 16;  // A token id and an element of the mask, 8 bytes each.
    copy.launch = launch(factors);
    copy.work = bounded_duration(kTokenBytes * static_cast<double>(input_tokens(shape)) /
                                 scenario_->host.copy_bytes_per_s);
  }
  return copy;
}

MicroBatchWork StepLowering::numbered(const BatchShape& shape) const {
  const PricedBatch free = {
      0, std::vector<double>(model_work_), std::vector<std::int32_t>(model_work_)};
  MicroBatchWork work = micro_batch(free, shape, {}, {});
  if (scenario_->loader.workers > 0) {
    work.ready = SimTime{};
  }
  std::size_t forward = 0;
  std::size_t backward = 0;
  for (const LoweredOp& op : ops_) {
    if (op.label >= 0) {
      Kernel& kernel = op.forward ? work.forward[forward++] : work.backward[backward++];
      kernel = {};
      kernel.label = op.work;
    }
  }
  return work;
}

RankStep StepLowering::fold(const PricedBatch& batch,
                            const StepSchedule& schedule,
                            const CostFactors& factors,
                            RankFactors rank) const {
  const std::vector<Duration> time = times(batch, factors, rank);
  // No sum of the step can be longer than all of its kernels and launches together.
  const Duration longest = time.empty() ? Duration::zero() : *std::ranges::max_element(time);
  check_total(longest, schedule.kernels);
  const Duration launch = this->launch(factors);
  check_total(launch, schedule.kernels);
  const auto chain = [&](const std::vector<std::int32_t>& work) {
    Span span;
    for (const std::int32_t one : work) {
      span = then(span, op_span(launch, time[at(one)]));
    }
    return span;
  };
  // What holds up a pass holds up its first op of the model, as in micro_batch().
  const auto held_up = [&](const std::vector<std::int32_t>& work, PassStall stall) {
    if (stall == PassStall{}) {
      return chain(work);
    }
    Span span;
    for (const std::int32_t one : work) {
      const PassStall own = at(one) < model_work_ ? std::exchange(stall, {}) : PassStall{};
      span = then(span, op_span(launch + own.host, time[at(one)] + own.device));
    }
    return span;
  };
  RankStep step;
  step.data = collate(batch, factors, rank.compute);
  step.forward = held_up(schedule.forward, rank.forward);
  step.backward = mapped(schedule.backward, chain);
  if (rank.backward != PassStall{}) {
    step.backward.front() = held_up(schedule.backward.front(), rank.backward);
  }
  step.copy_out = mapped(schedule.copy_out, chain);
  step.optimizer = chain(schedule.optimizer);
  return step;
}

LockstepWork StepLowering::fold(std::span<const PricedBatch* const> batches,
                                std::span<const BatchShape> shapes,
                                const LockstepSchedule& schedule,
                                int number,
                                const CostFactors& factors,
                                std::span<const RankFactors> ranks) const {
  const bool one_clock = host_is_device();
  const Duration launch = one_clock ? Duration::zero() : this->launch(factors);
  LockstepWork folded;
  std::vector<std::vector<Duration>> time;  // [micro-batch][work]
  for (std::size_t m = 0; m < batches.size(); ++m) {
    time.push_back(times(*batches[m], factors, ranks[m]));
    folded.data.push_back(collate(*batches[m], factors, ranks[m].compute));
    const Kernel copy = copy_input(shapes[m], factors);
    folded.copies.push_back(op_span(one_clock ? Duration::zero() : copy.launch, copy.work));
  }
  std::vector<RankFactors> stalls(ranks.begin(), ranks.end());
  folded.stretches.reserve(schedule.stretches.size());
  const auto then_bounded = [](const Span& before, const Span& after) {
    const Span both = then(before, after);
    (void)bounded(both.host + both.critical);
    return both;
  };
  std::vector<std::int32_t> alike(schedule.stretches.size(), -1);  // That has been folded unheld.
  for (const LockstepStretch& stretch : schedule.stretches) {
    std::int32_t& folded_alike = alike[at(stretch.first_alike)];
    const std::vector<Duration>& lasting = time[at(stretch.micro_batch)];
    RankFactors& rank = stalls[at(stretch.micro_batch)];
    PassStall& stall = stretch.phase == Phase::Forward ? rank.forward : rank.backward;
    const bool held = stall != PassStall{};
    if (!held && folded_alike >= 0) {
      folded.stretches.push_back(folded.stretches[at(folded_alike)]);
      continue;
    }
    folded_alike = held ? folded_alike : static_cast<std::int32_t>(folded.stretches.size());
    Span span;
    for (const RepeatedWork& part : stretch.work_of(number)) {
      const auto once = [&] {
        Span of_part;
        for (const std::int32_t one : part.work) {
          // What holds up a pass holds up its first op of the model, as in micro_batch().
          const PassStall own = at(one) < model_work_ ? std::exchange(stall, {}) : PassStall{};
          of_part = then_bounded(of_part,
                                 op_span(one_clock ? Duration::zero() : launch + own.host,
                                         lasting[at(one)] + own.device));
        }
        return of_part;
      };
      int times = part.times;
      if (stall != PassStall{}) {
        span = then_bounded(span, once());
        --times;
      }
      // So many of them by doubling.
      for (Span power = times > 0 ? once() : Span{}; times > 0; times /= 2) {
        span = times % 2 == 1 ? then_bounded(span, power) : span;
        power = times > 1 ? then_bounded(power, power) : power;
      }
    }
    folded.stretches.push_back(span);
  }
  return folded;
}

Kernel StepLowering::ddp_kernel(OpClass op_class,
                                std::int64_t elements,
                                const CostFactors& factors,
                                double compute_factor,
                                std::int64_t parts) {
  const std::int32_t number = ddp_work(op_class, elements, parts);
  price_ddp(work_[at(number)]);
  const Work& work = work_[at(number)];
  const double group = *work.group < factors.group.size() ? factors.group[*work.group] : 1;
  return kernel(
      number, {}, bounded_duration(work.seconds * (compute_factor * group)), launch(factors));
}

ExtrapolationNote& StepLowering::note(const std::string& name) {
  ExtrapolationNote& noted = notes_[name];
  noted.op = name;
  return noted;
}

std::vector<ExtrapolationNote> StepLowering::notes() const {
  return mapped(notes_, [](const auto& note) { return note.second; });
}

}  // namespace stepsim
