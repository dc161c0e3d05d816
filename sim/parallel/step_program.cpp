#include "sim/parallel/step_program.h"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

#include "costmodel/base/index.h"

namespace stepsim {
namespace {

void check_work(const TrainedModel& model, const StepWork& step) {
  for (int r = 0; r < step.wanted_ranks(); ++r) {
    const RankWork& rank = step.ranks[at(r)];
    if (rank.micro_batches.size() != step.iterations.size() || step.iterations.empty()) {
      throw std::invalid_argument(
          "step: rank " + std::to_string(r) + " has " + std::to_string(rank.micro_batches.size()) +
          " micro-batches for " + std::to_string(step.iterations.size()) + " iterations");
    }
    for (const MicroBatchWork& batch : rank.micro_batches) {
      if (!batch.joined && batch.backward.size() != model.completes.size()) {
        throw std::invalid_argument(
            "step: rank " + std::to_string(r) + " has " + std::to_string(batch.backward.size()) +
            " backward kernels for " + std::to_string(model.completes.size()) + " ops");
      }
    }
  }
}

}  // namespace

StepProgram empty_program(const TrainedModel& model, const StepWork& step) {
  check_work(model, step);
  StepProgram result;
  result.program.marks = kStepMarks;
  result.program.labels = model.labels;
  result.program.ranks.resize(step.ranks.size());
  return result;
}

StepTimeline timeline_of(const ExecutionTrace& played, const StepProgram& program) {
  StepTimeline step;
  step.collectives = program.uses;
  step.waits_within = program.waits_within;
  step.spans = played.spans;
  step.waits = played.waits;
  for (const RankTrace& rank : played.ranks) {
    const auto part = [&](Phase which) { return rank.phases[static_cast<std::size_t>(which)]; };
    RankTimeline line;
    line.start = rank.marks[kStepStart];
    line.data_end = line.start + part(Phase::Data);
    line.forward_end = line.data_end + part(Phase::Forward) + part(Phase::Other);
    line.backward_end = line.forward_end + part(Phase::Backward) + part(Phase::BackwardOther);
    line.compute_end = rank.marks[kBackwardEnd];
    line.end = rank.device_end;
    line.exposed = part(Phase::Wait);
    line.held = rank.held;
    line.waiting = rank.waiting_for_ranks;
    line.copy_out = part(Phase::CopyOut);
    line.optimizer = part(Phase::Optimizer) + part(Phase::OptimizerOther);
    step.ranks.push_back(std::move(line));
    step.clocks.push_back({rank.host_end, rank.device_end});
  }
  if (program.waits_within) {
    // The ranks meet again and again, so that each waits as long as its own work is shorter than
    // that of the rank that waits least: what that one waits for are transfers.
    const auto least = std::ranges::min_element(step.ranks, {}, &RankTimeline::exposed)->exposed;
    for (RankTimeline& line : step.ranks) {
      line.waiting = line.exposed - least;
    }
  }
  for (std::size_t c = 0; c < played.collectives.size(); ++c) {
    const CollectiveTrace& collective = played.collectives[c];
    step.reduce_start.push_back(collective.start);
    step.reduce_end.push_back(collective.end);
    for (std::size_t r = 0; r < step.ranks.size(); ++r) {
      step.ranks[r].ready_at.push_back(collective.arrival[r]);
      if (!collective.enqueued_at.empty()) {
        step.ranks[r].enqueued_at.push_back(collective.enqueued_at[r]);
      }
    }
  }
  return step;
}

}  // namespace stepsim
