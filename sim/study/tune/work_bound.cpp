#include "sim/study/tune/work_bound.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <set>
#include <span>

#include "costmodel/base/index.h"
#include "costmodel/base/input_error.h"
#include "costmodel/base/mapped.h"
#include "sim/batching/training_effects.h"
#include "sim/predict/run/run.h"

namespace stepsim {
namespace {

/// The seconds of the passes of a micro-batch and of what DDP adds to them, where that does not
/// depend on the buckets.
class PassSeconds {
 public:
  explicit PassSeconds(Run& run) : run_(run), model_(run.planned().priced_shapes.size()) {
    const BoundedWork& own = run.reduced().facts().own_work;
    const std::size_t ops = run.reduced().model().completes.size();
    copied_.resize(ops);
    accumulated_.resize(ops);
    copied_and_accumulated_.resize(ops);
    if (own.zeroes) {
      zeroed_ = elements(OpClass::ZeroGradient, run.reduced().model().total_elements());
    }
    if (own.updates_all) {
      optimizer_ = elements(OpClass::Optimizer, run.reduced().model().total_elements());
    }
    if (!own.copies_in && !own.accumulates) {
      return;
    }
    const StepPrices prices = run.pricer().ddp_prices({}, 1);
    double copied = 0;
    double accumulated = 0;
    for (std::size_t op = 0; op < ops; ++op) {
      for (const int parameter : run.reduced().model().completes[op]) {
        if (own.copies_in) {
          copied += elements(OpClass::GradientCopyIn, run.reduced().model().elements(parameter));
        }
        const double bytes =
            static_cast<double>(run.reduced().model().parameters[at(parameter)].bytes);
        accumulated += own.accumulates ? to_seconds(prices.memory(3 * bytes, 1).work) : 0;
      }
      copied_[op] = copied;
      accumulated_[op] = accumulated;
      copied_and_accumulated_[op] = copied + accumulated;
    }
  }

  /// Of micro-batch `number` of a step.
  [[nodiscard]] double forward(std::size_t batch, std::size_t number) {
    return model(batch).forward * run_.loads().batch_factor[batch] + (number == 0 ? zeroed_ : 0);
  }
  /// The whole backward of a micro-batch whose gradients are not reduced.
  [[nodiscard]] double backward(std::size_t batch, std::size_t number) {
    return model(batch).backward_ends.back() * run_.loads().batch_factor[batch] +
           (number > 0 ? accumulated_.back() : 0);
  }
  /// [op] Seconds from the beginning of the last backward of a step to the end of an op: a factor
  /// on the model's own, and what DDP adds.
  [[nodiscard]] std::span<const double> model_ends(std::size_t batch) {
    return model(batch).backward_ends;
  }
  [[nodiscard]] std::span<const double> ddp_ends(std::size_t number) const {
    return number > 0 ? copied_and_accumulated_ : copied_;
  }
  [[nodiscard]] std::size_t ops() const { return copied_.size(); }
  [[nodiscard]] double optimizer() const { return optimizer_; }
  /// Kernels of a micro-batch at most: of the model, and three for a gradient.
  [[nodiscard]] std::size_t kernels() const {
    return run_.pricer().model_ops() + 3 * run_.reduced().model().parameters.size() + 2;
  }

 private:
  [[nodiscard]] double elements(OpClass op_class, std::int64_t count) const {
    return to_seconds(run_.pricer().ddp_kernel(op_class, count, {}, 1).work);
  }
  /// What the ops of the model take, without DDP's own work.
  struct ModelSeconds {
    double forward = 0;
    std::vector<double> backward_ends;  ///< [op]
  };
  [[nodiscard]] const ModelSeconds& model(std::size_t batch) {
    std::optional<ModelSeconds>& known = model_[run_.batch(batch).price];
    if (!known) {
      const PricedBatch& priced = run_.priced_batch(batch);
      known = {run_.pricer().model_seconds(priced).first, run_.pricer().backward_ends(priced)};
    }
    return *known;
  }

  Run& run_;
  double zeroed_ = 0;
  double optimizer_ = 0;
  std::vector<double> copied_;       ///< [op] gradients copied to buckets until its end.
  std::vector<double> accumulated_;  ///< [op] gradients added to those of earlier micro-batches.
  std::vector<double> copied_and_accumulated_;      ///< [op] both together.
  std::vector<std::optional<ModelSeconds>> model_;  ///< [PlannedRun::priced_shapes]
};

/// Adds up the steady steps of a run.
class StepBounds {
 public:
  explicit StepBounds(Run& run)
      : run_(run),
        seconds_(run),
        micro_(at(run.scenario().ddp.accumulation_steps)),
        steady_(run.scenario().steps - run.scenario().warmup_steps) {}

  void add_to(WorkBound& bound) {
    const Scenario& scenario = run_.scenario();
    const int first = scenario.warmup_steps;
    for (int step = first; step < scenario.steps; ++step) {
      add_step(step, step == first, bound.ready_s);
    }
    double slowest_optimizer = 0;
    for (int rank = 0; rank < scenario.ranks; ++rank) {
      slowest_optimizer =
          std::max(slowest_optimizer, seconds_.optimizer() * run_.loads().rank_factor[at(rank)]);
    }
    for (double& ready : bound.ready_s) {
      ready = (ready + slowest_optimizer) / steady_;
    }
    if (run_.reduced().plain() && !run_.reduced().host().is_device) {
      add_host(bound);
    }
    constexpr double kHalfNanosecond = 0.5e-9;
    bound.rounding_s = kHalfNanosecond * static_cast<double>(micro_ * seconds_.kernels());
  }

 private:
  /// The slowest rank of a step counts, by each op of its last backward. In the first steady step
  /// only the rank that begins it last does, which is one of them, and no optimizer comes before.
  void add_step(int step, bool is_first, std::vector<double>& sum) {
    std::vector<double> slowest(seconds_.ops(),
                                is_first ? std::numeric_limits<double>::max() : 0.0);
    for (int rank = 0; rank < run_.scenario().ranks; ++rank) {
      const std::size_t first = (at(step) * at(run_.scenario().ranks) + at(rank)) * micro_;
      const std::size_t last = micro_ - 1;
      const double slowness = run_.loads().rank_factor[at(rank)];
      double before = is_first ? 0 : seconds_.optimizer();
      for (std::size_t m = 0; m < micro_; ++m) {
        before += seconds_.forward(first + m, m);
        before += m < last ? seconds_.backward(first + m, m) : 0;
      }
      const std::span<const double> model = seconds_.model_ends(first + last);
      const std::span<const double> ddp = seconds_.ddp_ends(last);
      const double load = run_.loads().batch_factor[first + last];
      for (std::size_t op = 0; op < slowest.size(); ++op) {
        const double ready = slowness * (before + (model[op] * load + ddp[op]));
        const bool takes = is_first ? ready < slowest[op] : ready > slowest[op];
        slowest[op] = takes ? ready : slowest[op];
      }
    }
    sum.resize(slowest.size());
    for (std::size_t op = 0; op < slowest.size(); ++op) {
      sum[op] += slowest[op];
    }
  }

  /// The device cannot end before the slowest host has launched all steps, and cannot have begun
  /// the steady ones later than if all that came before had been done one after another.
  void add_host(WorkBound& bound) {
    const Scenario& scenario = run_.scenario();
    const StepSchedule& schedule = run_.reduced().plain_steps().back().schedule;
    const std::size_t launched =
        schedule.forward.size() + schedule.optimizer.size() +
        sum_of(schedule.backward, [](const auto& work) { return work.size(); });
    const double launch = run_.pricer().launch_seconds();
    const auto kernels = static_cast<double>(seconds_.kernels());
    std::vector<double> hosts(at(scenario.ranks), 0);
    double warmup = 0;
    for (int step = 0; step < scenario.steps; ++step) {
      double longest = 0;
      for (int rank = 0; rank < scenario.ranks; ++rank) {
        const std::size_t batch = at(step) * at(scenario.ranks) + at(rank);
        const double slowness = run_.loads().rank_factor[at(rank)];
        const double collate = slowness * run_.priced_batch(batch).collate;
        const double device = seconds_.forward(batch, 0) +
                              seconds_.model_ends(batch).back() * run_.loads().batch_factor[batch] +
                              seconds_.ddp_ends(0).back() + seconds_.optimizer();
        hosts[at(rank)] += collate + launch * static_cast<double>(launched);
        longest = std::max(longest, collate + launch * kernels + slowness * device);
      }
      warmup += step < scenario.warmup_steps ? longest : 0;
    }
    bound.host_s = *std::ranges::max_element(hosts) / steady_;
    bound.warmup_s = warmup / steady_;
    bound.warmup_share = scenario.warmup_steps / steady_;
  }

  Run& run_;
  PassSeconds seconds_;
  std::size_t micro_;
  double steady_;
};

/// The samples and tokens of the steady steps, and the shapes that need most memory.
void add_batches(const PlannedJob& run, WorkBound& bound) {
  const Scenario& scenario = run.scenario();
  const double steps = scenario.steps - scenario.warmup_steps;
  const std::size_t per_step = at(scenario.ranks) * at(scenario.ddp.accumulation_steps);
  std::int64_t useful_tokens = 0;
  std::int64_t samples = 0;
  for (std::size_t i = at(scenario.warmup_steps) * per_step; i < run.batches(); ++i) {
    useful_tokens += run.batch(i).shape.useful_tokens;
    samples += run.batch(i).samples;
  }
  bound.useful_tokens = static_cast<double>(useful_tokens) / steps;
  bound.samples = static_cast<double>(samples) / steps;
  std::set<BatchShape> shapes;
  for (const RunBatch& batch : run.planned().different) {
    shapes.insert(batch.shape);
  }
  for (const EpochBatch& batch : run.planned().largest_of_epoch) {
    shapes.insert(batch.shape);
  }
  constexpr std::size_t kShapes = 16;
  bound.largest.assign(shapes.begin(), shapes.end());
  std::ranges::sort(bound.largest, std::greater(), [](const BatchShape& shape) {
    return static_cast<double>(shape.padded_tokens()) *
           static_cast<double>(shape.max_length + 4096);
  });
  bound.largest.resize(std::min(bound.largest.size(), kShapes));
}

/// Tokens of lost samples and those that are cropped, as a share of the epoch's. A varlen call has
/// cut the lengths before, unless the policy cuts samples itself.
double left_out_share(const TrainingEffects& effects,
                      const BatchingPolicy& policy,
                      const std::optional<VarlenUse>& varlen) {
  const std::int64_t cut = varlen && !policy.cuts() ? varlen->cut_tokens : 0;
  const std::int64_t left_out = effects.lost_tokens + effects.cropped_tokens + cut;
  const std::int64_t all = effects.tokens + cut;
  return all > 0 ? static_cast<double>(left_out) / static_cast<double>(all) : 0;
}

bool is_within(const std::optional<std::pair<double, double>>& range, double value) {
  constexpr double kSlack = 1e-9;
  return !range || (value >= range->first * (1 - kSlack) && value <= range->second * (1 + kSlack));
}

}  // namespace

bool meets(const TuneLimits& limits, const WorkBound& work) {
  return is_within(limits.samples, work.samples) && is_within(limits.tokens, work.useful_tokens) &&
         !(limits.displacement && work.displacement > *limits.displacement) &&
         !(limits.keeps_samples && work.left_out > 0);
}

WorkBound work_bound(const Job& job, const TuneLimits& limits) {
  WorkBound bound;
  try {
    const PlannedJob planned(job);
    add_batches(planned, bound);
    if (!meets(limits, bound)) {
      return bound;
    }
    const TrainingEffects effects = planned.training_effects();
    bound.displacement = effects.displacement;
    bound.left_out = left_out_share(effects, job.policy(), planned.planned().data->varlen);
    if (!meets(limits, bound)) {
      return bound;
    }
    Run run(job);
    if (run.reduced().facts().own_work.ranks_wait) {
      StepBounds(run).add_to(bound);
    }
  } catch (const InputError& error) {
    bound.refused = error.what();
  }
  return bound;
}

}  // namespace stepsim
