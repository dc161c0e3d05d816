#include "sim/predict/priced_run.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

#include "costmodel/base/index.h"
#include "costmodel/base/mapped.h"
#include "costmodel/records/profile_cost_model.h"
#include "sim/ddp/compiled_graphs.h"
#include "sim/predict/metrics.h"
#include "sim/predict/scenario_profile.h"
#include "sim/predict/step_cost.h"

namespace stepsim {

namespace {

/// With the interference and the unequal ranks of the profile, unless the scenario states its own.
Scenario with_machine_of(const Profile& profile, Scenario scenario) {
  scenario.slow_ranks = slow_ranks(scenario, profile);
  if (profile.interference && !scenario.interference_given) {
    scenario.interference = profile.interference->value;
  }
  return scenario;
}

/// The scenario of a counterfactual run. The other changes act on what the scenario makes.
Scenario changed(Scenario scenario, const std::optional<Counterfactual>& counterfactual) {
  if (!counterfactual) {
    return scenario;
  }
  switch (counterfactual->change) {
    case Change::NoInterference:
      scenario.interference = {};
      break;
    case Change::OneBucket:
      scenario.ddp.bucket_rule = BucketRule::Single;
      break;
    case Change::EqualRanks:
      scenario.slow_ranks.clear();
      scenario.loader.delays.clear();
      break;
    case Change::NoNewShapes:
      scenario.new_shapes.mechanisms.emplace();
      break;
    case Change::NoData:
      scenario.loader = {};
      break;
    case Change::FreeCommunication:
    case Change::Balanced:
    case Change::MedianRank:
      break;
  }
  return scenario;
}

/// The scenario's time of an empty block, unless the profile prices empty blocks itself.
double empty_block_seconds(const Scenario& scenario, const Profile& profile) {
  return prices_empty_blocks(profile) ? 0 : scenario.varlen.empty_block_seconds.value_or(0);
}

/// Whether the host of a recorded model does not run ahead of its GPU: it waited for it, or loading
/// takes times of the GPU's own clock, in which the device was idle.
bool recorded_host_waits(const Scenario& scenario, const Profile& profile) {
  return prices_recorded_model(scenario, profile) && !profile.host_is_device &&
         profile.recorded->host_syncs;
}

/// Whether the engine's rules are those that the recurrence has: one in-order communicator over all
/// ranks, a host that may run ahead as far as it likes, no interference.
bool rules_are_plain(EngineRules rules) {
  if (!rules.interference.active()) {
    rules.interference = {};
  }
  return rules == EngineRules{};
}

/// Whether StepSimulator adds nothing to the kernels' times and to collation but what it also adds
/// for the recurrence. All else must be as by default, members that are added later included.
bool work_is_plain(const Scenario& scenario) {
  NoiseOptions noise = scenario.noise;
  noise.rank_correlation.reset();
  LoaderOptions loader = scenario.loader;
  loader.prefetch =
      LoaderOptions{}.prefetch;  // Prefetching belongs to workers, and here there are none.
  loader.plan_every = 0;         // How often `plan` is spent, which must be nothing.
  return noise == NoiseOptions{} && loader == LoaderOptions{};
}

/// The scenario's jitter, else the profile's. stepcal fits ops to the median of single steps, and
/// its jitter is the deviation around that; all other times are means, and all quantiles are of
/// steps over their mean.
Jitter jitter_of(const Scenario& scenario, const NoiseProfile& measured) {
  const bool is_own = scenario.jitter || !scenario.noise.step_quantiles.empty();
  Jitter jitter;
  jitter.log_normal =
      is_own ? of_mean_one(scenario.jitter.value_or(0)) : of_median_one(measured.step_jitter);
  jitter.quantiles = of_mean_one(is_own ? scenario.noise.step_quantiles : measured.step_quantiles);
  jitter.correlation =
      scenario.noise.rank_correlation.value_or(is_own ? 0 : measured.rank_correlation);
  return jitter;
}

}  // namespace

PricedRun::PricedRun(const Scenario& scenario,
                     const BatchingPolicy& policy,
                     const Profile& profile,
                     std::optional<Counterfactual> counterfactual)
    : scenario_(
          changed(with_machine_of(profile, with_attention_of(policy, scenario)), counterfactual)),
      profile_(profile),
      counterfactual_(counterfactual),
      policy_(policy),
      planned_(plan()),
      costs_(cost_model(scenario_, profile_)),
      pricer_(std::make_unique<CollectivePricer>(scenario_pricer(scenario_, profile_))),
      model_(std::make_unique<StepPricer>(
          scenario_, *costs_, *pricer_, empty_block_seconds(scenario_, profile_))),
      ddp_model_(with_compiled_graphs(
          stepsim::ddp_model(scenario_.model, step_ops(scenario_), scenario_.buffer_bytes),
          scenario_.ddp)),
      host_{costs_->host_is_device(),
            scenario_.gloo,
            scenario_.host.step_sync || recorded_host_waits(scenario_, profile_)} {
  owned_ = owned_elements(ddp_model_, scenario_.ddp.zero_stage, scenario_.ranks);
  find_plain_steps();
  for (RunBatch& batch : different_) {
    batch.prices = &model_->price(batch.shape);
  }
  add_skew();
  balance();
  add_shape_stalls();
  rank_factor_.assign(at(scenario_.ranks), 1.0);
  for (const SlowRank& slow : scenario_.slow_ranks) {
    rank_factor_[at(slow.rank)] *= slow.factor;
  }
  all_reduce_spread_ =
      pricer_->spread(CollectiveKind::AllReduce, scenario_.ranks, scenario_.placement.nodes());
  const double cores = scenario_.cores.value_or(profile_.cores);
  cores_ = cores < scenario_.placement.fullest() ? cores : 0;
  jitter_ = jitter_of(scenario_, profile_.noise);
}

PlannedData PricedRun::plan() {
  std::map<std::pair<BatchShape, std::int64_t>, std::uint32_t> known;
  batches_.reserve(at(scenario_.steps) * at(scenario_.ranks) *
                   at(scenario_.ddp.accumulation_steps));
  return plan_steps(scenario_,
                    policy_,
                    planning_cost(scenario_, policy_, profile_),
                    [&](const MicroBatch& batch) {
                      const RunBatch one{shape_of(batch), std::ssize(batch.samples)};
                      const auto [place, is_new] = known.try_emplace(
                          {one.shape, one.samples}, static_cast<std::uint32_t>(different_.size()));
                      if (is_new) {
                        different_.push_back(one);
                      }
                      batches_.push_back(place->second);
                    });
}

double PricedRun::kernel_seconds() const {
  const auto count = static_cast<double>(batches_.size());
  return sum_of(batches_, [&](const std::uint32_t number) {
    return model_->compute_seconds(*different_[number].prices) / count;
  });
}

EngineRules PricedRun::engine_rules(const CostFactors& factors) const {
  EngineRules rules;
  rules.communicators = ddp_communicators(scenario_.ddp, host_, scenario_.ranks);
  rules.interference = factors.interference.value_or(scenario_.interference);
  rules.queue_depth = host_.is_device ? 0 : scenario_.host.queue_depth;
  return rules;
}

IterationSequence PricedRun::iterations() const {
  const DdpOptions& ddp = scenario_.ddp;
  return IterationSequence({ddp.static_graph,
                            ddp.find_unused_parameters,
                            ddp.broadcast_buffers && !scenario_.buffer_bytes.empty(),
                            ddp.bucket_rule == BucketRule::PyTorch});
}

DdpStep PricedRun::step_without_work(int number, IterationSequence& iterations) const {
  const DdpOptions& ddp = scenario_.ddp;
  DdpStep step;
  step.step = number;
  for (int m = 0; m < ddp.accumulation_steps; ++m) {
    step.iterations.push_back(iterations.next(!ddp.no_sync || m + 1 == ddp.accumulation_steps));
  }
  step.joining = !ddp.join_steps.empty();
  step.last_of_join = step.joining && number + 1 == *std::ranges::max_element(ddp.join_steps);
  if (scenario_.model.sparse_embeddings) {
    double rows = 0;
    const std::size_t per_step = at(scenario_.ranks) * at(ddp.accumulation_steps);
    const std::size_t first = at(std::min(number, scenario_.steps - 1)) * per_step;
    for (std::size_t i = first; i < first + per_step; ++i) {
      rows += static_cast<double>(model_->input_tokens(batch(i).shape));
    }
    constexpr double kIndexBytes = 8;
    step.sparse_bytes = rows * (static_cast<double>(scenario_.model.hidden *
                                                    element_size(scenario_.model.parameter_dtype)) +
                                kIndexBytes);
  }
  return step;
}

/// Builds the programs of the first steps for one rank, with numbers of work in place of times, and
/// keeps their schedules if the recurrence knows all of them. From the third step on every program
/// is like the third one: the buckets were rebuilt by then, and only hooks count steps.
void PricedRun::find_plain_steps() {
  constexpr int kDifferentSteps = 3;
  const bool hooked = scenario_.ddp.hook != CommunicationHook::None;
  if (hooked || !work_is_plain(scenario_) || !rules_are_plain(engine_rules({}))) {
    return;
  }
  DdpPrices prices = model_->ddp_prices({}, 1);  // Its times of the host; all else has numbers.
  prices.elements = [this](OpClass op_class, std::int64_t count, double) {
    Kernel kernel;
    kernel.label = model_->ddp_work(op_class, count);
    return kernel;
  };
  prices.memory = [](double, double) { return Kernel{}; };  // It has no number.
  prices.transfer = [](CollectiveKind, double, bool) { return Duration::zero(); };
  prices.channels = [](double) { return 0; };
  IterationSequence sequence = iterations();
  std::vector<StepSchedule> schedules;
  for (int number = 0; number < kDifferentSteps; ++number) {
    DdpStep step = step_without_work(number, sequence);
    step.ranks.resize(1);
    step.ranks.front().owned_elements = owned_.front();
    for (Iteration& iteration : step.iterations) {
      iteration.rebuilds = false;  // The recurrence leaves the rebuild's two small broadcasts out.
      step.ranks.front().micro_batches.push_back(model_->numbered(batch(0).shape));
    }
    const auto schedule = schedule_of(
        ddp_program(ddp_model_, planned_.buckets, scenario_.ddp, host_, prices, step), host_);
    if (!schedule) {
      return;
    }
    schedules.push_back(*schedule);
  }
  if (schedules[1] != schedules[2]) {
    return;
  }
  schedules.pop_back();
  for (StepSchedule& schedule : schedules) {
    PlainStep& step = plain_steps_.emplace_back();
    for (const CollectiveUse& use : schedule.collectives) {
      step.all_reduce.push_back(model_->collective_seconds(use.kind, use.bytes));
    }
    step.schedule = std::move(schedule);
  }
  model_->price_ddp_work(OpClass::GradientCopyOut);
}

/// Without what only varlen attention depends on, more batches are alike.
BatchShape PricedRun::shape_of(const MicroBatch& batch) const {
  if (!is_varlen(scenario_)) {
    BatchShape shape = batch.shape();
    shape.sum_squares = 0;
    return shape;
  }
  BatchShape shape = batch.shape(scenario_.model.window);
  shape.empty_blocks = empty_blocks(batch.attended(), scenario_.varlen);
  return shape;
}

/// Rank r has 1 + skew r / (ranks - 1) times the work of its batches.
void PricedRun::add_skew() {
  const auto micro = at(scenario_.ddp.accumulation_steps);
  const auto ranks = at(scenario_.ranks);
  batch_factor_.assign(batches_.size(), 1.0);
  for (std::size_t i = 0; ranks > 1 && i < batches_.size(); ++i) {
    const auto rank = static_cast<double>(i / micro % ranks);
    batch_factor_[i] = 1 + scenario_.skew * rank / static_cast<double>(ranks - 1);
  }
}

BatchShape PricedRun::cached_shape(const BatchShape& batch) const {
  return is_varlen(scenario_) && batch.samples > 0
             ? BatchShape{1, batch.useful_tokens, batch.useful_tokens}
             : batch;
}

std::vector<BatchShape> PricedRun::epoch_shapes() const {
  const EpochPlan& epoch = planned_.first_epoch;
  const auto micro = at(scenario_.ddp.accumulation_steps);
  const auto ranks = at(scenario_.ranks);
  const std::size_t batches = max_of(
      epoch.batches, [](const Batches& of_rank) { return of_rank.size(); }, std::size_t{0});
  const std::size_t steps = batches / micro;
  std::vector<BatchShape> shapes(policy_.played() == nullptr ? steps * ranks * micro : 0);
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    const Batches& of_rank = epoch.batches[i / micro % ranks];
    const std::size_t batch = i / (micro * ranks) * micro + i % micro;
    if (batch < of_rank.size()) {
      shapes[i] = cached_shape(epoch_shape(scenario_, policy_, planned_, of_rank[batch]));
    }
  }
  return shapes;
}

/// The profile's costs of new shapes hold for the model that was recorded with them.
void PricedRun::add_shape_stalls() {
  const NewShapes& stated = scenario_.new_shapes;
  if (stated.mechanisms) {
    shape_costs_ = *stated.mechanisms;
  } else if (!profile_.recorded || prices_recorded_model(scenario_, profile_)) {
    shape_costs_ = profile_.new_shapes;
  }
  check_mechanisms(shape_costs_, host_.is_device);
  if (shape_costs_.empty()) {
    return;
  }
  const std::vector<BatchShape> shapes = mapped(
      batches_, [&](std::uint32_t number) { return cached_shape(different_[number].shape); });
  shape_stalls_ = stepsim::shape_stalls(
      shape_costs_, shapes, scenario_.ranks, scenario_.ddp.accumulation_steps);
  for (std::size_t i = 0; i < shape_stalls_.size(); ++i) {
    batch_factor_[i] *= shape_stalls_[i].load;
  }
}

/// Scales batches so that a step's ranks, or one rank, compute as long as the mean or the median.
void PricedRun::balance() {
  const bool all = differs_by(Change::Balanced);
  if (!all && !differs_by(Change::MedianRank)) {
    return;
  }
  const auto micro = at(scenario_.ddp.accumulation_steps);
  const std::size_t per_step = micro * at(scenario_.ranks);
  for (std::size_t first = 0; first < batches_.size(); first += per_step) {
    std::vector<double> times(at(scenario_.ranks), 0.0);
    std::vector<double> of_active;  // A rank that is out of inputs has no load to balance.
    for (std::size_t r = 0; r < times.size(); ++r) {
      if (batch(first + r * micro).samples == 0) {
        continue;
      }
      for (std::size_t m = 0; m < micro; ++m) {
        const std::size_t number = first + r * micro + m;
        times[r] += batch_factor_[number] * model_->compute_seconds(priced_batch(number));
      }
      of_active.push_back(times[r]);
    }
    const double wanted = all ? mean(of_active) : quantile(of_active, 0.5);
    for (std::size_t r = 0; r < at(scenario_.ranks); ++r) {
      const bool changes = all || static_cast<int>(r) == counterfactual_->rank;
      for (std::size_t m = 0; changes && m < micro && times[r] > 0; ++m) {
        batch_factor_[first + r * micro + m] *= wanted / times[r];
      }
    }
  }
}

}  // namespace stepsim
