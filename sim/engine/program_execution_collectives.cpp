#include <algorithm>
#include <utility>

#include "sim/engine/program_execution.h"
#include "sim/engine/time_limit.h"

namespace stepsim {

using engine_detail::Kind;

void ProgramExecution::queue_part(std::int32_t rank, std::int32_t collective) {
  const std::int32_t communicator = program_.collectives[at(collective)].communicator;
  communicators_[at(communicator)].queue[at(rank)].push_back(collective);
}

void ProgramExecution::arrive_at(std::int32_t rank, std::int32_t collective, SimTime time) {
  if (time > events_.now()) {
    events_.push(time, static_cast<std::int32_t>(Kind::Arrival), rank, collective);
  } else {
    arrive(rank, collective);
  }
}

void ProgramExecution::arrive(std::int32_t rank, std::int32_t collective) {
  SimTime& arrival = trace_.collectives[at(collective)].arrival[at(rank)];
  if (arrival != SimTime::max()) {
    refuse("rank " + std::to_string(rank) + " launches collective " + std::to_string(collective) +
           " twice");
  }
  arrival = events_.now();
  trace_.collectives[at(collective)].last_arrival = arrival;
  take_parts(program_.collectives[at(collective)].communicator, rank);
}

void ProgramExecution::take_parts(std::int32_t communicator, std::int32_t rank) {
  CommunicatorState& state = communicators_[at(communicator)];
  const Communicator& rules = rules_.communicators[at(communicator)];
  const auto is_ready = [&](std::int32_t collective) {
    return trace_.collectives[at(collective)].arrival[at(rank)] != SimTime::max();
  };
  while (state.busy[at(rank)] < rules.workers &&
         state.taken[at(rank)] < state.queue[at(rank)].size() &&
         is_ready(state.queue[at(rank)][state.taken[at(rank)]])) {
    const std::size_t position = state.taken[at(rank)]++;
    const std::int32_t collective = state.queue[at(rank)][position];
    ++state.busy[at(rank)];
    note_order(state, position, collective, rank);
    if (rules_.interference.while_waiting) {
      resident_changed(rank, 1, program_.collectives[at(collective)].channels);
    }
    Transfer& transfer = transfers_[at(collective)];
    if (++transfer.held == static_cast<std::int32_t>(state.members.size())) {
      if (rules.start_delay > Duration::zero()) {
        events_.push(events_.now() + rules.start_delay,
                     static_cast<std::int32_t>(Kind::TransferStart),
                     0,
                     collective);
      } else {
        start_transfer(collective);
      }
    }
  }
}

void ProgramExecution::note_order(CommunicatorState& state,
                                  std::size_t position,
                                  std::int32_t collective,
                                  std::int32_t rank) const {
  if (position == state.order.size()) {
    state.order.push_back(collective);
  } else if (state.order[position] != collective) {
    refuse("rank " + std::to_string(rank) + " launches collective " +
           name_of_collective(collective) + " where another rank launches " +
           name_of_collective(state.order[position]) + "; they would wait for ever");
  }
}

void ProgramExecution::start_transfer(std::int32_t collective) {
  const Collective& what = program_.collectives[at(collective)];
  CommunicatorState& state = communicators_[at(what.communicator)];
  trace_.collectives[at(collective)].start = events_.now();
  if (!rules_.interference.while_waiting) {
    for (const std::int32_t rank : state.members) {
      resident_changed(rank, 1, what.channels);
    }
  }
  Transfer& transfer = transfers_[at(collective)];
  transfer.active = true;
  for (const std::int32_t rank : state.members) {
    transfer.computing += ranks_[at(rank)].told ? 1 : 0;
  }
  transfer.progress.start(events_.now(), what.transfer);
  state.active.push_back(collective);
  links_changed(what.communicator, collective);
}

void ProgramExecution::links_changed(std::int32_t communicator, std::int32_t started) {
  if (rules_.communicators[at(communicator)].shares_links) {
    for (const std::int32_t collective : communicators_[at(communicator)].active) {
      rerate_transfer(collective);
    }
  } else if (started >= 0) {
    rerate_transfer(started);
  }
}

void ProgramExecution::rerate_transfer(std::int32_t collective) {
  const std::int32_t communicator = program_.collectives[at(collective)].communicator;
  Transfer& transfer = transfers_[at(collective)];
  double slowdown = transfer.computing > 0 ? 1 + rules_.interference.transfer : 1;
  if (rules_.communicators[at(communicator)].shares_links) {
    slowdown *= static_cast<double>(communicators_[at(communicator)].active.size());
  }
  const SimTime end = bounded(transfer.progress.change_or_take_back(events_.now(), slowdown));
  events_.push(end,
               static_cast<std::int32_t>(Kind::TransferEnd),
               0,
               collective,
               transfer.progress.generation);
}

void ProgramExecution::transfer_ended(std::int32_t collective, std::int32_t generation) {
  Transfer& transfer = transfers_[at(collective)];
  if (!transfer.active || transfer.progress.generation != generation) {
    return;
  }
  transfer.active = false;
  transfer.done = true;
  trace_.collectives[at(collective)].end = events_.now();
  const Collective& what = program_.collectives[at(collective)];
  CommunicatorState& state = communicators_[at(what.communicator)];
  state.active.erase(std::ranges::find(state.active, collective));
  for (const std::int32_t rank : state.members) {
    --state.busy[at(rank)];
    resident_changed(rank, -1, what.channels);
  }
  links_changed(what.communicator, -1);
  for (const std::int32_t rank : state.members) {
    take_parts(what.communicator, rank);
  }
  const std::vector<std::int32_t> waiters = std::move(transfer.waiters);
  for (const std::int32_t rank : waiters) {
    settle(rank);
  }
}

}  // namespace stepsim
