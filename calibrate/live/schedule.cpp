#include "calibrate/live/schedule.h"

#include <algorithm>

#include <fmt/core.h>

#include "costmodel/base/input_error.h"

namespace stepsim {
namespace {

std::string name_of_plan(std::size_t index,
                         const Plan& plan,
                         const std::vector<std::string>& names) {
  return index < names.size() ? names[index]
                              : fmt::format("plan {} (policy {})", index + 1, plan.policy);
}

}  // namespace

std::vector<std::vector<Block>> rounds_of(const std::vector<int>& steps, int block, int repeat) {
  const int longest = steps.empty() ? 0 : *std::ranges::max_element(steps);
  std::vector<std::vector<Block>> rounds;
  for (int begin = 0; begin < longest; begin += block) {
    std::vector<Block>& round = rounds.emplace_back();
    const std::size_t first = rounds.size() - 1 + static_cast<std::size_t>(repeat);
    for (std::size_t i = 0; i < steps.size(); ++i) {
      const std::size_t plan = (first + i) % steps.size();
      if (begin < steps[plan]) {
        round.push_back({plan, begin, std::min(begin + block, steps[plan])});
      }
    }
  }
  return rounds;
}

std::vector<const MicroBatch*> batches_of(const Plan& plan, int rank) {
  std::vector<const MicroBatch*> batches(static_cast<std::size_t>(plan.steps), nullptr);
  for (const MicroBatch& batch : plan.micro_batches) {
    if (batch.rank != rank) {
      continue;
    }
    if (batch.step < 0 || batch.step >= plan.steps) {
      throw InputError("step {} of rank {}: the plan has {} steps", batch.step, rank, plan.steps);
    }
    const MicroBatch*& place = batches[static_cast<std::size_t>(batch.step)];
    if (place != nullptr || batch.micro_batch != 0) {
      throw InputError(
          "step {} of rank {} has several micro-batches; a live run does one a step (make the plan "
          "with ddp.accumulation_steps = 1)",
          batch.step,
          rank);
    }
    place = &batch;
  }
  for (std::size_t step = 0; step < batches.size(); ++step) {
    if (batches[step] == nullptr || batches[step]->lengths.empty()) {
      throw InputError("step {} of rank {} has no samples", step, rank);
    }
  }
  return batches;
}

void check_live_plans(const std::vector<Plan>& plans, const std::vector<std::string>& names) {
  if (plans.empty()) {
    throw InputError("a live run needs at least one plan");
  }
  for (std::size_t i = 0; i < plans.size(); ++i) {
    const Plan& plan = plans[i];
    const std::string name = name_of_plan(i, plan, names);
    if (!(plan.model == plans[0].model)) {
      throw InputError(
          "{}: its model differs from that of {}; plans of one live run "
          "share it",
          name,
          name_of_plan(0, plans[0], names));
    }
    if (plan.ranks < 1 || plan.ranks != plans[0].ranks) {
      throw InputError("{}: {} ranks, where {} has {}; plans of one live run share them",
                       name,
                       plan.ranks,
                       name_of_plan(0, plans[0], names),
                       plans[0].ranks);
    }
    if (plan.optimizer != "adamw") {
      throw InputError(
          "{}: optimizer '{}'; a live run uses 'adamw'", name, printable(plan.optimizer));
    }
    if (plan.steps < 1) {
      throw InputError("{}: it has no steps", name);
    }
    for (int rank = 0; rank < plan.ranks; ++rank) {
      try {
        static_cast<void>(batches_of(plan, rank));
      } catch (const InputError& error) {
        throw InputError("{}: {}", name, error.what());
      }
    }
  }
}

}  // namespace stepsim
