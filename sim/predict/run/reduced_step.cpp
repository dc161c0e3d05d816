#include "sim/predict/run/reduced_step.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "costmodel/base/index.h"
#include "sim/engine/program_check.h"
#include "sim/parallel/lockstep_reader.h"
#include "sim/predict/bucket_lists.h"
#include "sim/predict/run/unit_host_times.h"
#include "sim/predict/scenario_profile.h"
#include "sim/predict/step_cost.h"

namespace stepsim {
namespace {

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

/// Whether no noise is added to the kernels' times and to collation. All else must be as by
/// default, members that are added later included.
bool noise_is_plain(const Scenario& scenario) {
  NoiseOptions noise = scenario.noise;
  noise.rank_correlation.reset();
  return noise == NoiseOptions{};
}

/// Whether StepSimulator adds nothing to the kernels' times and to collation but what it also adds
/// for the recurrence of plain steps.
bool work_is_plain(const Scenario& scenario) {
  LoaderOptions loader = scenario.loader;
  loader.prefetch =
      LoaderOptions{}.prefetch;  // Prefetching belongs to workers, and here there are none.
  loader.plan_every = 0;         // How often `plan` is spent, which must be nothing.
  return noise_is_plain(scenario) && loader == LoaderOptions{};
}

}  // namespace

ReducedStep::ReducedStep(const Scenario& scenario,
                         const Profile& profile,
                         const PlannedRun& planned,
                         const PricedBatches& priced)
    : scenario_(scenario),
      planned_(planned),
      collectives_(scenario_pricer(scenario, profile)),
      pricer_(priced.lowering(),
              scenario,
              collectives_,
              unit_host_of(scenario, profile, priced.costs().host_is_device())),
      facts_(scenario.parallel->facts(parallel_job(scenario))),
      parts_(scenario.parallel->parts(parallel_job(scenario), step_ops(scenario))),
      host_{priced.costs().host_is_device(),
            scenario.gloo,
            scenario.host.step_sync || recorded_host_waits(scenario, profile)},
      spread_(collectives_.spread(
          CollectiveKind::AllReduce, scenario.ranks, scenario.placement.nodes())) {
  find_plain_steps();
}

EngineRules ReducedStep::engine_rules(const CostFactors& factors) const {
  EngineRules rules;
  rules.communicators = facts_.communicators;
  rules.interference = factors.interference.value_or(scenario_.interference);
  rules.queue_depth = host_.is_device ? 0 : scenario_.host.queue_depth;
  return rules;
}

IterationSequence ReducedStep::iterations() const {
  return IterationSequence(facts_.iterations);
}

StepWork ReducedStep::step_without_work(int number, IterationSequence& iterations) const {
  const DdpOptions& ddp = scenario_.ddp;
  StepWork step;
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
      rows += static_cast<double>(pricer_.input_tokens(planned_.batch(i).shape));
    }
    constexpr double kIndexBytes = 8;
    step.sparse_bytes = rows * (static_cast<double>(scenario_.model.hidden *
                                                    element_size(scenario_.model.parameter_dtype)) +
                                kIndexBytes);
  }
  return step;
}

StepProgram ReducedStep::program(const StepPrices& prices, const StepWork& step) const {
  return scenario_.parallel->program(parallel_job(scenario_), parts_, host_, prices, step);
}

StepProgram ReducedStep::numbered_program(StepWork step,
                                          const CostFactors& factors,
                                          double common) {
  pricer_.begin_step(step.step);
  return program_of(std::move(step),
                    pricer_.numbered(planned_.batch(0).shape),
                    pricer_.numbered_prices(factors, common));
}

StepTemplate ReducedStep::step_template(StepWork step, const CostFactors& factors, double common) {
  const int number = std::min(step.step, facts_.first_steps);
  const auto known = std::ranges::find_if(templates_, [&](const KnownTemplate& one) {
    return one.number == number && one.iterations == step.iterations;
  });
  if (known != templates_.end()) {
    StepTemplate retimed = known->of_step;
    StepWork first_rank = step;
    first_rank.first_rank_only = true;
    if (retimed.retime(numbered_program(std::move(first_rank), factors, common))) {
      return retimed;
    }
  }
  std::vector<Iteration> iterations = step.iterations;
  StepProgram program = numbered_program(std::move(step), factors, common);
  StepTemplate built(std::move(program), pricer_.model_work(), host_.is_device);
  if (known == templates_.end()) {
    templates_.push_back({number, std::move(iterations), built});
  }
  return built;
}

bool ReducedStep::plays_in_order() {
  if (!has_template()) {
    return false;
  }
  IterationSequence first = iterations();
  const StepTemplate of_step = step_template(step_without_work(0, first), {}, 1);
  return collective_order(of_step.program().program, engine_rules({})).has_value();
}

/// All micro-batches have the same work.
StepProgram ReducedStep::program_of(StepWork step,
                                    const MicroBatchWork& work,
                                    const StepPrices& prices) {
  for (int rank = 0; rank < scenario_.ranks; ++rank) {
    RankWork& of_rank = step.ranks.emplace_back();
    of_rank.owned_elements = parts_.owned[at(rank)];
    if (rank < (step.first_rank_only ? 1 : scenario_.ranks)) {
      of_rank.micro_batches.assign(step.iterations.size(), work);
    }
  }
  return program(prices, step);
}

const KnownSchedule* ReducedStep::schedule(const StepWork& step) {
  const int number = std::min(step.step, facts_.first_steps);
  const auto known = std::ranges::find_if(
      schedules_, [&](const KnownSchedule& one) { return one.is_of(number, step.iterations); });
  if (known != schedules_.end()) {
    return &*known;
  }
  LockstepReader reader;
  StepWork read = step;
  read.on_rank = [&](std::vector<Instruction>& rank) { reader.add(std::exchange(rank, {})); };
  StepProgram program = numbered_program(std::move(read), {}, 1);
  std::optional<LockstepSchedule> schedule = std::move(reader).schedule(std::move(program));
  if (!schedule) {
    return nullptr;
  }
  return &schedules_.emplace_back(KnownSchedule{number, step.iterations, std::move(*schedule)});
}

bool ReducedStep::in_lockstep() const {
  return has_template() && noise_is_plain(scenario_) && !scenario_.interference.active() &&
         engine_rules({}).queue_depth == 0;
}

bool ReducedStep::draws_in_lockstep() {
  if (!has_template() || !scenario_.interference.active()) {
    return has_template();
  }
  // A transfer that compute slows is followed ahead of the ranks, and so of their queues.
  const bool looks_ahead = scenario_.interference.transfer > 0 && engine_rules({}).queue_depth > 0;
  return !looks_ahead && plays_in_order();
}

/// Builds the programs of the first steps for one rank, with numbers of work in place of times, and
/// keeps their schedules if the recurrence knows all of them.
void ReducedStep::find_plain_steps() {
  constexpr int kDifferentSteps = 3;
  if (!facts_.repeats || !work_is_plain(scenario_) || !rules_are_plain(engine_rules({}))) {
    return;
  }
  StepPrices prices = pricer_.ddp_prices({}, 1);  // Its times of the host; all else has numbers.
  prices.elements = [this](OpClass op_class, std::int64_t count, double) {
    Kernel kernel;
    kernel.label = pricer_.ddp_work(op_class, count);
    return kernel;
  };
  prices.memory = [](double, double) { return Kernel{}; };  // It has no number.
  prices.transfer = [](CollectiveKind, double, const RankGroup&) { return Duration::zero(); };
  prices.channels = [](double) { return 0; };
  IterationSequence sequence = iterations();
  std::vector<StepSchedule> schedules;
  for (int number = 0; number < kDifferentSteps; ++number) {
    StepWork step = step_without_work(number, sequence);
    step.ranks.resize(1);
    step.ranks.front().owned_elements = parts_.owned.front();
    for (Iteration& iteration : step.iterations) {
      iteration.rebuilds = false;  // The recurrence leaves the rebuild's two small broadcasts out.
      step.ranks.front().micro_batches.push_back(pricer_.numbered(planned_.batch(0).shape));
    }
    const auto schedule = schedule_of(program(prices, step), host_);
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
    // All steps after the first one are alike.
    pricer_.begin_step(plain_steps_.empty() ? 0 : scenario_.steps - 1);
    PlainStep& step = plain_steps_.emplace_back();
    for (const CollectiveUse& use : schedule.collectives) {
      step.all_reduce.push_back(pricer_.collective_seconds(use.kind, use.bytes));
    }
    step.schedule = std::move(schedule);
  }
  pricer_.price_ddp_work(OpClass::GradientCopyOut);
}

}  // namespace stepsim
