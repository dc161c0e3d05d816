#include "sim/predict/step_simulator.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#include "costmodel/base/index.h"
#include "costmodel/base/mapped.h"
#include "costmodel/compute/shared_cores.h"
#include "sim/engine/time_limit.h"
#include "sim/parallel/closed_form.h"

namespace stepsim {
StepSimulator::StepSimulator(
    Run& run, CostFactors factors, double common, NoiseDraws* noise, bool engine)
    : run_(run),
      factors_(std::move(factors)),
      common_(common),
      noise_(noise),
      engine_plays_(engine || !run.reduced().plain()),
      core_factor_(at(run.scenario().ranks), 1.0),
      clocks_(at(run.scenario().ranks)),
      lasting_speed_(at(run.scenario().ranks), 1.0),
      iterations_(run.reduced().iterations()),
      in_lockstep_(!engine && run.reduced().in_lockstep()),
      loader_(run.scenario().loader, run.scenario().ranks) {
  if (noise_ != nullptr && run.scenario().noise.rank_speed > 0) {
    const LogNormal lasting = of_mean_one(run.scenario().noise.rank_speed);
    for (double& speed : lasting_speed_) {
      speed = noise_->factor(lasting);
    }
  }
}

StepTimeline StepSimulator::next(bool record_spans) {
  if (noise_ != nullptr) {
    common_score_ = run_.loads().jitter.common_score(*noise_);
  }
  if (run_.loads().cores > 0) {
    share_cores();
  }
  std::optional<StepTimeline> in_lockstep;
  if (in_lockstep_ && !record_spans) {
    in_lockstep = play_lockstep_schedule();
  }
  StepTimeline timeline = in_lockstep                     ? std::move(*in_lockstep)
                          : engine_plays_ || record_spans ? play_program(record_spans)
                                                          : play_plain();
  clocks_ = timeline.clocks;
  for (const RankClock& clock : clocks_) {
    (void)bounded(std::max(clock.host, clock.device));
  }
  ++step_;
  return timeline;
}

void StepSimulator::share_cores() {
  drawn_.clear();
  for (int rank = 0; rank < run_.scenario().ranks; ++rank) {
    drawn_.push_back(draw_slowness(rank));
  }
  const std::size_t micro = at(run_.scenario().ddp.accumulation_steps);
  const std::size_t ranks = drawn_.size();
  std::vector<double> seconds(ranks, 0.0);
  for (std::size_t i = 0; i < ranks * micro; ++i) {
    const std::size_t batch = at(step_) * ranks * micro + i;
    seconds[i / micro] += drawn_[i / micro] * run_.loads().batch_factor[batch] *
                          run_.pricer().compute_seconds(run_.priced_batch(batch));
  }
  std::size_t first = 0;
  for (const int on_node : run_.scenario().placement.node_ranks()) {
    const std::span node = std::span(seconds).subspan(first, at(on_node));
    const auto factors = shared_core_factors(node, run_.loads().cores);
    std::copy(
        factors.begin(), factors.end(), core_factor_.begin() + static_cast<std::ptrdiff_t>(first));
    first += node.size();
  }
}

double StepSimulator::slowness_of(int rank) {
  return run_.loads().cores > 0 ? drawn_[at(rank)] : draw_slowness(rank);
}

double StepSimulator::draw_slowness(int rank) {
  const double slowness = common_ * run_.loads().rank_factor[at(rank)] * lasting_speed_[at(rank)];
  return noise_ != nullptr ? slowness * run_.loads().jitter.factor(*noise_, common_score_)
                           : slowness;
}

StepTimeline StepSimulator::play_plain() {
  (void)iterations_.next();
  const PlainStep& plain = run_.reduced().plain_steps()[step_ == 0 ? 0 : 1];
  StepInput input;
  input.host_is_device = run_.reduced().host().is_device;
  input.ranks.reserve(clocks_.size());
  for (int rank = 0; rank < run_.scenario().ranks; ++rank) {
    const std::size_t batch = at(step_) * at(run_.scenario().ranks) + at(rank);
    const RankFactors factors = factors_of(batch, rank, slowness_of(rank));
    input.ranks.push_back(
        run_.pricer().fold(run_.priced_batch(batch), plain.schedule, factors_, factors));
    if (run_.differs_by(Change::NoData)) {
      input.ranks.back().data = Duration::zero();
    }
  }
  double total = 0;
  for (std::size_t i = 0; i < plain.all_reduce.size(); ++i) {
    const double free = run_.differs_by(Change::FreeCommunication) ? 0.0 : 1.0;
    const double error = factors_.of_collective(plain.schedule.collectives[i].bytes);
    const double taken = free * plain.all_reduce[i] * common_ * error;
    total += taken;
    input.all_reduce.push_back(bounded_duration(taken));
  }
  (void)bounded_duration(total);
  StepTimeline timeline = closed_form_step(input, clocks_);
  timeline.collectives = plain.schedule.collectives;
  return timeline;
}

RankFactors StepSimulator::factors_of(std::size_t batch, int rank, double slowness) const {
  RankFactors factors{slowness, run_.loads().batch_factor[batch] * core_factor_[at(rank)]};
  if (run_.loads().shape_stalls.empty() || run_.loads().shape_stalls[batch].builds == 0 ||
      run_.scenario().new_shapes.warm_up) {
    return factors;
  }
  const ShapeStall& stall = run_.loads().shape_stalls[batch];
  const double scale = common_ * factors_.new_shapes;
  // A host that is the device has one clock.
  const bool one_clock = run_.reduced().host().is_device;
  const auto pass = [&](double host, double device) {
    return one_clock ? PassStall{{}, bounded_duration((host + device) * scale)}
                     : PassStall{bounded_duration(host * scale), bounded_duration(device * scale)};
  };
  factors.forward = pass(stall.forward_host, stall.forward_device);
  factors.backward = pass(stall.backward_host, stall.backward_device);
  return factors;
}

void StepSimulator::add_op_jitter(std::vector<Kernel>& kernels) {
  const double sd = run_.scenario().noise.op_jitter;
  if (noise_ == nullptr || sd <= 0) {
    return;
  }
  const LogNormal jitter = of_mean_one(sd);
  for (Kernel& kernel : kernels) {
    kernel.work = bounded_duration(to_seconds(kernel.work) * noise_->factor(jitter));
  }
}

MicroBatchWork StepSimulator::micro_batch(int rank, int number, double slowness) {
  const Scenario& scenario = run_.scenario();
  const int micro_batches = scenario.ddp.accumulation_steps;
  const std::size_t batch =
      (at(step_) * at(scenario.ranks) + at(rank)) * at(micro_batches) + at(number);
  const BatchShape& shape = run_.batch(batch).shape;
  MicroBatchWork work = run_.pricer().micro_batch(
      run_.priced_batch(batch), shape, factors_, factors_of(batch, rank, slowness));
  work.joined = !scenario.ddp.join_steps.empty() && step_ >= scenario.ddp.join_steps[at(rank)];
  add_op_jitter(work.forward);
  add_op_jitter(work.backward);
  load(rank, number, work);
  return work;
}

void StepSimulator::load(int rank, int number, MicroBatchWork& batch) {
  const NoiseOptions& noise = run_.scenario().noise;
  Duration load = load_of(rank, number);
  if (noise_ != nullptr && noise.loader_stall_probability > 0 &&
      noise_->uniform() < noise.loader_stall_probability) {
    load += bounded(noise.loader_stall);
  }
  if (run_.differs_by(Change::NoData) || batch.joined) {
    batch.collate = Duration::zero();
  } else if (loader_.has_workers()) {
    const int micro_batches = run_.scenario().ddp.accumulation_steps;
    batch.ready = ready_.empty() ? loader_.ready(rank, load + batch.collate)
                                 : ready_[at(rank) * at(micro_batches) + at(number)];
    batch.collate = Duration::zero();
  } else {
    batch.collate += load;
  }
}

Duration StepSimulator::drawn_stall() {
  const NoiseOptions& noise = run_.scenario().noise;
  const bool stalls = noise_ != nullptr && noise.stall_probability > 0 &&
                      noise_->uniform() < noise.stall_probability;
  return stalls ? bounded(noise.stall) : Duration::zero();
}

Duration StepSimulator::load_of(int rank, int micro_batch) const {
  const std::size_t micro_batches = at(run_.scenario().ddp.accumulation_steps);
  const std::size_t number = at(step_) * micro_batches + at(micro_batch);
  const std::size_t batch =
      at(step_) * clocks_.size() * micro_batches + at(rank) * micro_batches + at(micro_batch);
  return loader_.cost(
      rank, static_cast<std::int64_t>(number), run_.pricer().input_tokens(run_.batch(batch).shape));
}

RankWork StepSimulator::rank_work(int rank) {
  RankWork work;
  work.factor = slowness_of(rank);
  work.owned_elements = run_.reduced().owned()[at(rank)];
  for (int m = 0; m < run_.scenario().ddp.accumulation_steps; ++m) {
    work.micro_batches.push_back(micro_batch(rank, m, work.factor));
  }
  const Duration stall = drawn_stall();
  if (!work.micro_batches.front().forward.empty()) {
    work.micro_batches.front().forward.front().work += stall;
  }
  return work;
}

/// Some prices of the warm-up are refused after it; draws are of a run that was played before.
void StepSimulator::forget_warm_up() {
  const bool steady = noise_ == nullptr && step_ >= std::max(1, run_.scenario().warmup_steps);
  if (steady != known_steady_) {
    known_.clear();
    templates_.clear();
    known_steady_ = steady;
  }
}

const LockstepSchedule* StepSimulator::lockstep_of(StepWork step) {
  forget_warm_up();
  const int number = std::min(step_, run_.reduced().facts().first_steps);
  for (const KnownSchedule& one : known_) {
    if (one.is_of(number, step.iterations)) {
      return &one.schedule;
    }
  }
  const KnownSchedule* other_times = run_.reduced().schedule(step);
  if (other_times == nullptr) {
    return nullptr;
  }
  step.first_rank_only = true;
  LockstepTimes times = times_of(
      other_times->schedule, run_.reduced().numbered_program(std::move(step), factors_, common_));
  known_.push_back(
      {number, other_times->iterations, retimed(other_times->schedule, std::move(times))});
  return &known_.back().schedule;
}

std::optional<StepTimeline> StepSimulator::play_lockstep_schedule() {
  IterationSequence following = iterations_;
  const LockstepSchedule* schedule =
      lockstep_of(run_.reduced().step_without_work(step_, following));
  in_lockstep_ = schedule != nullptr;
  if (!in_lockstep_) {
    return std::nullopt;
  }
  const auto before = noise_ != nullptr ? std::optional(*noise_) : std::nullopt;
  const std::size_t micro = at(run_.scenario().ddp.accumulation_steps);
  std::vector<LockstepWork> ranks;
  for (int rank = 0; rank < run_.scenario().ranks; ++rank) {
    const double slowness = slowness_of(rank);
    std::vector<const PricedBatch*> batches;
    std::vector<BatchShape> shapes;
    std::vector<RankFactors> factors;
    for (std::size_t m = 0; m < micro; ++m) {
      const std::size_t batch = (at(step_) * at(run_.scenario().ranks) + at(rank)) * micro + m;
      batches.push_back(&run_.priced_batch(batch));
      shapes.push_back(run_.batch(batch).shape);
      factors.push_back(factors_of(batch, rank, slowness));
    }
    ranks.push_back(run_.pricer().fold(batches, shapes, *schedule, rank, factors_, factors));
    load(rank, ranks.back());
  }
  const std::vector<Duration> transfers = drawn_transfers(schedule->program.program.collectives);
  const auto played =
      play_lockstep(*schedule, ranks, transfers, run_.reduced().engine_rules(factors_), clocks_);
  if (!played) {
    if (noise_ != nullptr) {
      *noise_ = *before;  // The engine draws the same.
    }
    return std::nullopt;
  }
  fetch(*played);
  iterations_ = following;
  return timeline_of(*played, schedule->program);
}

void StepSimulator::load(int rank, LockstepWork& work) {
  const bool no_data = run_.differs_by(Change::NoData);
  for (std::size_t m = 0; m < work.data.size(); ++m) {
    const Duration load = load_of(rank, static_cast<int>(m));
    if (no_data) {
      work.data[m] = Duration::zero();
    } else if (loader_.has_workers()) {
      work.ready.push_back(loader_.ready(rank, load + work.data[m]));
      work.data[m] = Duration::zero();
      ready_.push_back(work.ready.back());
    } else {
      work.data[m] += load;
    }
  }
}

void StepSimulator::fetch(const ExecutionTrace& played) {
  for (int rank = 0; rank < run_.scenario().ranks; ++rank) {
    for (const SimTime time : played.ranks[at(rank)].fetches) {
      loader_.fetched(rank, time);
    }
  }
  ready_.clear();
}

/// [collective] How long its transfer takes in this step.
std::vector<Duration> StepSimulator::drawn_transfers(const std::vector<Collective>& collectives) {
  const std::vector<double>& spread = run_.reduced().all_reduce_spread();
  return mapped(collectives, [&](const Collective& collective) {
    if (run_.differs_by(Change::FreeCommunication)) {
      return Duration::zero();
    }
    return noise_ != nullptr && !spread.empty()
               ? bounded_duration(to_seconds(collective.transfer) * noise_->from(spread))
               : collective.transfer;
  });
}

StepTemplate& StepSimulator::template_of(const StepWork& step) {
  forget_warm_up();
  const int number = std::min(step_, run_.reduced().facts().first_steps);
  const auto known = std::ranges::find_if(templates_, [&](const KnownTemplate& one) {
    return one.number == number && one.iterations == step.iterations;
  });
  if (known != templates_.end()) {
    return known->of_step;
  }
  templates_.push_back(
      {number, step.iterations, run_.reduced().step_template(step, factors_, common_)});
  return templates_.back().of_step;
}

void StepSimulator::set_work(int rank, StepTemplate& of_step) {
  const std::size_t micro_batches = at(run_.scenario().ddp.accumulation_steps);
  const double slowness = slowness_of(rank);
  const double sd = noise_ != nullptr ? run_.scenario().noise.op_jitter : 0;
  const LogNormal jitter = of_mean_one(sd);
  const auto jittered = [&](Duration work) {
    return sd > 0 ? bounded_duration(to_seconds(work) * noise_->factor(jitter)) : work;
  };
  for (std::size_t m = 0; m < micro_batches; ++m) {
    const std::size_t batch = (at(step_) * clocks_.size() + at(rank)) * micro_batches + m;
    const PricedBatch& priced = run_.priced_batch(batch);
    const RankFactors factors = factors_of(batch, rank, slowness);
    const std::vector<Kernel> kernels = run_.pricer().kernels(priced, factors_, factors);
    of_step.set_model(rank, m, kernels, factors.forward, factors.backward, jittered);
    if (m == 0) {
      of_step.set_own(rank, kernels);
    }
    MicroBatchWork beside;
    beside.collate = run_.pricer().collate(priced, factors_, slowness);
    beside.copy_input = run_.pricer().copy_input(run_.batch(batch).shape, factors_);
    load(rank, static_cast<int>(m), beside);
    of_step.set_batch(rank, m, beside);
  }
  of_step.hold_up(rank, drawn_stall());
}

StepTimeline StepSimulator::play_template(const StepWork& step) {
  StepTemplate& of_step = template_of(step);
  for (int rank = 0; rank < run_.scenario().ranks; ++rank) {
    set_work(rank, of_step);
  }
  of_step.set(drawn_transfers(of_step.collectives()));
  const ExecutionTrace played = of_step.play(*engine_);
  fetch(played);
  return timeline_of(played, of_step.program());
}

StepTimeline StepSimulator::play_program(bool record_spans) {
  const Scenario& scenario = run_.scenario();
  if (run_.reduced().plain() || in_lockstep_ || !engine_) {
    // Plain steps leave nothing behind but the clocks.
    engine_.emplace(run_.reduced().engine_rules(factors_), clocks_);
  }
  StepWork step = run_.reduced().step_without_work(step_, iterations_);
  if (run_.reduced().has_template() && !record_spans) {
    return play_template(step);
  }
  if (!prices_.elements) {
    prices_ = run_.pricer().ddp_prices(factors_, common_);
  }
  for (Iteration& iteration : step.iterations) {
    iteration.rebuilds =
        iteration.rebuilds && !run_.reduced().plain();  // The recurrence leaves it out, too.
  }
  for (int rank = 0; rank < scenario.ranks; ++rank) {
    step.ranks.push_back(rank_work(rank));
  }
  run_.pricer().begin_step(step_);
  StepProgram program = run_.reduced().program(prices_, step);
  const std::vector<Duration> transfers = drawn_transfers(program.program.collectives);
  for (std::size_t i = 0; i < transfers.size(); ++i) {
    program.program.collectives[i].transfer = transfers[i];
  }
  const ExecutionTrace played = engine_->play(program.program, record_spans);
  fetch(played);
  return timeline_of(played, program);
}

}  // namespace stepsim
