#include "sim/predict/priced_run.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#include "costmodel/base/input_error.h"
#include "costmodel/compute/shared_cores.h"
#include "costmodel/records/profile_cost_model.h"
#include "sim/ddp/closed_form.h"
#include "sim/ddp/step_simulator.h"
#include "sim/predict/bucket_lists.h"
#include "sim/predict/metrics.h"
#include "sim/predict/step_cost.h"

namespace stepsim {

namespace {

std::size_t at(int index) {
  return static_cast<std::size_t>(index);
}

PricerLimits pricer_limits(const Scenario& scenario) {
  PricerLimits limits;
  if (scenario.all_reduce_table) {
    // What the user typed in has few sizes; beyond them it is flagged, not refused.
    limits.max_size_factor = 1e9;
  }
  return limits;
}

double size_of(const std::optional<Dtype>& dtype, double fallback) {
  return dtype ? static_cast<double>(element_size(*dtype)) : fallback;
}

SyncOptions sync_options(const Scenario& scenario, bool host_is_device) {
  const DdpOptions& ddp = scenario.ddp;
  SyncOptions sync;
  sync.gradient_as_bucket_view = ddp.gradient_as_bucket_view;
  sync.set_to_none = ddp.set_to_none;
  sync.batched_grad_copy = ddp.batched_grad_copy;
  sync.optimizer_in_backward = ddp.optimizer_in_backward;
  sync.overlap = ddp.overlap;
  sync.step_sync = scenario.host.step_sync;
  sync.host_blocks = scenario.gloo;
  sync.host_is_device = host_is_device;
  sync.hook = ddp.hook;
  sync.hook_options = ddp.hook_options;
  sync.zero_stage = ddp.zero_stage;
  sync.broadcast_by_bucket = ddp.zero_broadcast_by_rank;
  sync.divide_by_initial_world_size = ddp.divide_by_initial_world_size;
  const auto own = static_cast<double>(element_size(scenario.model.parameter_dtype));
  sync.casts_parameters = ddp.mixed_param_dtype.has_value();
  sync.gradient_scale = size_of(ddp.mixed_param_dtype, own) / own;
  sync.reduce_scale = size_of(ddp.mixed_reduce_dtype, own) / own;
  const std::vector<Parameter> tensors = parameters(scenario.model);
  for (std::size_t p = 0; p < tensors.size(); ++p) {
    const auto& names = ddp.unused_parameters;
    if (std::find(names.begin(), names.end(), tensors[p].name) != names.end()) {
      sync.unused.push_back(static_cast<int>(p));
    }
  }
  return sync;
}

/// With the interference that the profile measured, unless the scenario states its own.
Scenario with_interference_of(const Profile& profile, Scenario scenario) {
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

double compute_seconds(const PricedBatch& batch) {
  double sum = 0;
  for (const double seconds : batch.forward) {
    sum += seconds;
  }
  for (const double seconds : batch.backward) {
    sum += seconds;
  }
  return sum;
}

/// The scenario's, unless the profile prices empty blocks itself.
double empty_block_seconds(const Scenario& scenario, const Profile& profile) {
  return prices_empty_blocks(profile) ? 0 : scenario.varlen.empty_block_seconds.value_or(0);
}

EngineRules engine_rules(const Scenario& scenario,
                         const SyncOptions& sync,
                         const CostFactors& factors,
                         bool record_spans) {
  EngineRules rules;
  rules.communicators = ddp_communicators(sync, scenario.ranks);
  rules.interference = factors.interference.value_or(scenario.interference);
  rules.queue_depth = sync.host_is_device ? 0 : scenario.host.queue_depth;
  rules.record_spans = record_spans;
  return rules;
}

}  // namespace

bool is_plain(const Scenario& scenario) {
  const DdpOptions& ddp = scenario.ddp;
  const HostOptions& host = scenario.host;
  const NoiseOptions& noise = scenario.noise;
  const Duration none = Duration::zero();
  const bool plain_ddp =
      ddp.overlap && !ddp.find_unused_parameters && !ddp.static_graph && !ddp.batched_grad_copy &&
      !ddp.optimizer_in_backward && ddp.accumulation_steps == 1 && ddp.join_steps.empty() &&
      !ddp.mixed_param_dtype && ddp.hook == CommunicationHook::None && ddp.zero_stage == 0;
  const bool plain_host = host.queue_depth == 0 && host.enqueue == none && host.hook == none &&
                          !host.step_sync && host.copy_bytes_per_s == 0;
  const bool plain_loader = scenario.loader.workers == 0 && scenario.loader.batch == none &&
                            scenario.loader.token_seconds == 0 && scenario.loader.plan == none;
  const bool plain_noise = noise.op_jitter == 0 && noise.rank_speed == 0 &&
                           noise.step_quantiles.empty() && noise.stall_probability == 0 &&
                           noise.loader_stall_probability == 0;
  return plain_ddp && plain_host && plain_loader && plain_noise && !scenario.gloo &&
         !scenario.interference.active() && !scenario.model.sparse_embeddings &&
         (scenario.buffer_bytes.empty() || !ddp.broadcast_buffers);
}

PricedRun::PricedRun(const Scenario& scenario,
                     const BatchingPolicy& policy,
                     const Profile& profile,
                     std::optional<Counterfactual> counterfactual)
    : scenario_(changed(with_interference_of(profile, with_attention_of(policy, scenario)),
                        counterfactual)),
      profile_(profile),
      counterfactual_(counterfactual),
      planned_(plan_policy(scenario_, policy, planning_cost(scenario_, policy, profile_))),
      costs_(cost_model(scenario_, profile_)),
      pricer_(std::make_unique<CollectivePricer>(
          collective_pricer(profile_, scenario_.topology, pricer_limits(scenario_)))),
      model_(std::make_unique<StepPricer>(
          scenario_, *costs_, *pricer_, empty_block_seconds(scenario_, profile_))),
      plain_(is_plain(scenario_)) {
  const BucketLists lists = bucket_lists(scenario_);
  buckets_ = {lists.initial, lists.rebuilt};
  sync_ = sync_options(scenario_, costs_->host_is_device());
  ddp_model_ = model_->ddp_model();
  owned_ = owned_elements(ddp_model_, scenario_.ddp.zero_stage, scenario_.ranks);
  if (plain_) {
    initial_ = model_->bucket_costs(lists.initial);
    rebuilt_ = model_->bucket_costs(lists.rebuilt);
  }
  for (const MicroBatch& batch : planned_.plan.micro_batches) {
    batches_.push_back(&model_->price(shape_of(batch)));
  }
  add_skew();
  balance();
  rank_factor_.assign(at(scenario_.ranks), 1.0);
  for (const SlowRank& slow : scenario_.slow_ranks) {
    rank_factor_[at(slow.rank)] *= slow.factor;
  }
  all_reduce_spread_ =
      pricer_->spread(CollectiveKind::AllReduce, scenario_.ranks, nodes_of(scenario_));
  const int per_node = scenario_.ranks_per_node > 0 ? scenario_.ranks_per_node : scenario_.ranks;
  const int cores = scenario_.cores.value_or(profile_.cores);
  cores_ = cores < std::min(per_node, scenario_.ranks) ? cores : 0;
  const bool own_jitter = scenario_.jitter > 0 || !scenario_.noise.step_quantiles.empty();
  jitter_ = scenario_.jitter > 0 ? scenario_.jitter : profile_.noise.step_jitter;
  jitter_quantiles_ = own_jitter ? scenario_.noise.step_quantiles : profile_.noise.step_quantiles;
  jitter_correlation_ =
      scenario_.noise.rank_correlation.value_or(own_jitter ? 0 : profile_.noise.rank_correlation);
}

BatchShape PricedRun::shape_of(const MicroBatch& batch) const {
  BatchShape shape = batch.shape(scenario_.model.window);
  if (is_varlen(scenario_)) {
    shape.empty_blocks = empty_blocks(batch.attended(), scenario_.varlen);
  }
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
      if (planned_.plan.micro_batches[first + r * micro].samples.empty()) {
        continue;
      }
      for (std::size_t m = 0; m < micro; ++m) {
        const std::size_t batch = first + r * micro + m;
        times[r] += batch_factor_[batch] * compute_seconds(*batches_[batch]);
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

StepSimulator::StepSimulator(const PricedRun& run,
                             CostFactors factors,
                             double common,
                             NoiseDraws* noise,
                             bool events,
                             bool record_spans)
    : run_(run),
      factors_(std::move(factors)),
      common_(common),
      noise_(noise),
      events_(events),
      record_spans_(record_spans),
      core_factor_(at(run.scenario_.ranks), 1.0),
      clocks_(at(run.scenario_.ranks)),
      lasting_speed_(at(run.scenario_.ranks), 1.0),
      iterations_({run.scenario_.ddp.static_graph,
                   run.scenario_.ddp.find_unused_parameters,
                   run.scenario_.ddp.broadcast_buffers && !run.scenario_.buffer_bytes.empty(),
                   run.scenario_.ddp.bucket_rule == BucketRule::PyTorch}),
      loader_(run.scenario_.loader, run.scenario_.ranks) {
  if (noise_ != nullptr && run.scenario_.noise.rank_speed > 0) {
    for (double& speed : lasting_speed_) {
      speed = noise_->factor(run.scenario_.noise.rank_speed);
    }
  }
  if (!run.plain_) {
    engine_.emplace(engine_rules(run.scenario_, run.sync_, factors_, record_spans), clocks_);
    prices_ = run.model_->ddp_prices(factors_, common_);
  }
}

StepTimeline StepSimulator::next() {
  if (noise_ != nullptr && run_.jitter_correlation_ > 0) {
    common_score_ = noise_->normal();
  }
  if (run_.cores_ > 0) {
    share_cores();
  }
  StepTimeline timeline = run_.plain_ ? play_plain() : play_program();
  ++step_;
  return timeline;
}

double StepSimulator::draw_jitter() {
  const auto& quantiles = run_.jitter_quantiles_;
  const double common = run_.jitter_correlation_;
  if (common == 0) {
    return quantiles.empty() ? noise_->factor(run_.jitter_) : noise_->from(quantiles);
  }
  const double score = std::sqrt(common) * common_score_ + std::sqrt(1 - common) * noise_->normal();
  return quantiles.empty() ? std::exp(run_.jitter_ * score) : at_score(quantiles, score);
}

void StepSimulator::share_cores() {
  drawn_.clear();
  for (int rank = 0; rank < run_.scenario_.ranks; ++rank) {
    drawn_.push_back(draw_rank_factor(rank));
  }
  const std::size_t micro = at(run_.scenario_.ddp.accumulation_steps);
  const std::size_t ranks = drawn_.size();
  std::vector<double> seconds(ranks, 0.0);
  for (std::size_t i = 0; i < ranks * micro; ++i) {
    const std::size_t batch = at(step_) * ranks * micro + i;
    seconds[i / micro] +=
        drawn_[i / micro] * run_.batch_factor_[batch] * compute_seconds(*run_.batches_[batch]);
  }
  const std::size_t per_node =
      run_.scenario_.ranks_per_node > 0 ? at(run_.scenario_.ranks_per_node) : ranks;
  for (std::size_t first = 0; first < ranks; first += per_node) {
    const std::span node = std::span(seconds).subspan(first, std::min(per_node, ranks - first));
    const auto factors = shared_core_factors(node, run_.cores_);
    std::copy(factors.begin(), factors.end(), core_factor_.begin() + first);
  }
}

double StepSimulator::step_factor(int rank) {
  return run_.cores_ > 0 ? drawn_[at(rank)] : draw_rank_factor(rank);
}

double StepSimulator::draw_rank_factor(int rank) {
  const double factor = common_ * run_.rank_factor(rank) * lasting_speed_[at(rank)];
  return noise_ != nullptr ? factor * draw_jitter() : factor;
}

StepInput StepSimulator::plain_input() {
  const BucketCosts& buckets = step_ == 0 ? run_.initial_ : run_.rebuilt_;
  StepInput input;
  input.host_is_device = run_.profile_.host_is_device;
  for (int rank = 0; rank < run_.scenario_.ranks; ++rank) {
    const std::size_t batch = at(step_) * at(run_.scenario_.ranks) + at(rank);
    input.ranks.push_back(run_.model_->fold(*run_.batches_[batch],
                                            buckets,
                                            factors_,
                                            step_factor(rank),
                                            run_.batch_factor_[batch] * core_factor_[at(rank)]));
    if (run_.differs_by(Change::NoData)) {
      input.ranks.back().data = Duration::zero();
    }
  }
  for (const double seconds : buckets.all_reduce) {
    const double scatter = noise_ != nullptr ? noise_->from(run_.all_reduce_spread_) : 1.0;
    const double free = run_.differs_by(Change::FreeCommunication) ? 0.0 : 1.0;
    input.all_reduce.push_back(
        to_duration(free * seconds * common_ * factors_.collective * scatter));
  }
  return input;
}

StepTimeline StepSimulator::play_plain() {
  const StepInput input = plain_input();
  StepTimeline timeline = events_ && !record_spans_
                              ? simulate_step(input, clocks_)
                              : closed_form_step(input, clocks_, record_spans_);
  clocks_ = timeline.clocks;
  return timeline;
}

void StepSimulator::add_op_jitter(std::vector<Kernel>& kernels) {
  const double sd = run_.scenario_.noise.op_jitter;
  if (noise_ == nullptr || sd <= 0) {
    return;
  }
  for (Kernel& kernel : kernels) {
    kernel.work = to_duration(to_seconds(kernel.work) * noise_->factor(sd));
  }
}

RankWork StepSimulator::rank_work(int rank) {
  const Scenario& scenario = run_.scenario_;
  const NoiseOptions& noise = scenario.noise;
  const int micro_batches = scenario.ddp.accumulation_steps;
  RankWork work;
  work.factor = step_factor(rank);
  work.owned_elements = run_.owned_[at(rank)];
  for (int m = 0; m < micro_batches; ++m) {
    const std::size_t batch =
        (at(step_) * at(scenario.ranks) + at(rank)) * at(micro_batches) + at(m);
    const BatchShape shape = run_.shape_of(run_.planned_.plan.micro_batches[batch]);
    MicroBatchWork one =
        run_.model_->micro_batch(*run_.batches_[batch],
                                 shape,
                                 factors_,
                                 work.factor * run_.batch_factor_[batch] * core_factor_[at(rank)]);
    one.joined = !scenario.ddp.join_steps.empty() && step_ >= scenario.ddp.join_steps[at(rank)];
    add_op_jitter(one.forward);
    add_op_jitter(one.backward);
    Duration load = loader_.cost(static_cast<std::int64_t>(step_) * micro_batches + m,
                                 run_.model_->input_tokens(shape));
    if (noise_ != nullptr && noise.loader_stall_probability > 0 &&
        noise_->uniform() < noise.loader_stall_probability) {
      load += noise.loader_stall;
    }
    if (run_.differs_by(Change::NoData) || one.joined) {
      one.collate = Duration::zero();
    } else if (loader_.has_workers()) {
      one.ready = loader_.ready(rank, load + one.collate);
      one.collate = Duration::zero();
    } else {
      one.collate += load;
    }
    work.micro_batches.push_back(std::move(one));
  }
  if (noise_ != nullptr && noise.stall_probability > 0 &&
      noise_->uniform() < noise.stall_probability && !work.micro_batches.front().forward.empty()) {
    work.micro_batches.front().forward.front().work += noise.stall;
  }
  return work;
}

StepTimeline StepSimulator::play_program() {
  const Scenario& scenario = run_.scenario_;
  const DdpOptions& ddp = scenario.ddp;
  DdpStep step;
  step.step = step_;
  for (int m = 0; m < ddp.accumulation_steps; ++m) {
    step.iterations.push_back(iterations_.next(!ddp.no_sync || m + 1 == ddp.accumulation_steps));
  }
  for (int rank = 0; rank < scenario.ranks; ++rank) {
    step.ranks.push_back(rank_work(rank));
  }
  step.joining = !ddp.join_steps.empty();
  step.last_of_join = step.joining && step_ + 1 == scenario.steps;
  if (scenario.model.sparse_embeddings) {
    double rows = 0;
    const std::size_t per_step = at(scenario.ranks) * at(ddp.accumulation_steps);
    for (std::size_t i = 0; i < per_step; ++i) {
      const BatchShape shape = run_.planned_.plan.micro_batches[at(step_) * per_step + i].shape();
      rows += static_cast<double>(run_.model_->input_tokens(shape));
    }
    constexpr double kIndexBytes = 8;
    step.sparse_bytes =
        rows *
        (static_cast<double>(scenario.model.hidden * element_size(scenario.model.parameter_dtype)) +
         kIndexBytes);
  }
  DdpProgram program = ddp_program(run_.ddp_model_, run_.buckets_, run_.sync_, prices_, step);
  for (Collective& collective : program.program.collectives) {
    if (run_.differs_by(Change::FreeCommunication)) {
      collective.transfer = Duration::zero();
    } else if (noise_ != nullptr && !run_.all_reduce_spread_.empty()) {
      collective.transfer =
          to_duration(to_seconds(collective.transfer) * noise_->from(run_.all_reduce_spread_));
    }
  }
  const ExecutionTrace played = engine_->play(program.program);
  for (int rank = 0; rank < scenario.ranks; ++rank) {
    for (const SimTime fetch : played.ranks[at(rank)].fetches) {
      loader_.fetched(rank, fetch);
    }
  }
  return timeline_of(played, program);
}

}  // namespace stepsim
