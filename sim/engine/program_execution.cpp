#include "sim/engine/program_execution.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "sim/engine/time_limit.h"

namespace stepsim {

using engine_detail::Kind;

ProgramExecution::ProgramExecution(Engine& engine, const Program& program, bool record_spans)
    : engine_(engine),
      rules_(engine.rules_),
      program_(program),
      interference_(rules_.interference.active()),
      record_spans_(record_spans),
      foresees_(!record_spans),
      foresees_gaps_(!record_spans && rules_.interference.transfer <= 0),
      events_(first_time(engine.clocks_)),
      ranks_(program.ranks.size()),
      transfers_(program.collectives.size()),
      communicators_(rules_.communicators.size()) {
  trace_.ranks.resize(ranks_.size());
  trace_.collectives.resize(program.collectives.size());
  for (std::size_t c = 0; c < communicators_.size(); ++c) {
    prepare(communicators_[c], rules_.communicators[c]);
  }
  for (auto& collective : trace_.collectives) {
    collective.arrival.assign(ranks_.size(), SimTime::max());
    if (record_spans_) {
      collective.enqueued_at.assign(ranks_.size(), SimTime::max());
    }
  }
  for (std::size_t r = 0; r < ranks_.size(); ++r) {
    ranks_[r].host = engine.clocks_[r].host;
    ranks_[r].streams.front().free = engine.clocks_[r].device;
    for (std::size_t s = 1; s < kStreams; ++s) {
      ranks_[r].streams[s].free = SimTime::min();
    }
    ranks_[r].streams[kComputeStream].items.reserve(program.ranks[r].size());
    ranks_[r].events.assign(at(program.events), SimTime::max());
    trace_.ranks[r].marks.resize(at(program.marks));
  }
}

ExecutionTrace ProgramExecution::play() {
  for (std::int32_t rank = 0; rank < static_cast<std::int32_t>(ranks_.size()); ++rank) {
    settle(rank);
  }
  while (!events_.empty()) {
    handle(events_.pop());
  }
  for (std::size_t r = 0; r < ranks_.size(); ++r) {
    finish(static_cast<std::int32_t>(r));
  }
  engine_.events_handled_ += events_.events_handled();
  return std::move(trace_);
}

SimTime ProgramExecution::first_time(const std::vector<RankClock>& clocks) {
  SimTime first = clocks.front().device;
  for (const RankClock& clock : clocks) {
    first = std::min({first, clock.device, clock.host});
  }
  return first;
}

void ProgramExecution::prepare(CommunicatorState& state, const Communicator& rules) const {
  state.is_member.assign(ranks_.size(), rules.ranks.empty());
  state.members = rules.ranks;
  for (const std::int32_t rank : rules.ranks) {
    state.is_member[at(rank)] = true;
  }
  if (rules.ranks.empty()) {
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      state.members.push_back(static_cast<std::int32_t>(r));
    }
  }
  state.queue.resize(ranks_.size());
  state.taken.assign(ranks_.size(), 0);
  state.busy.assign(ranks_.size(), 0);
}

void ProgramExecution::refuse(const std::string& what) {
  throw std::invalid_argument("program: " + what);
}

void ProgramExecution::handle(const Event& event) {
  switch (static_cast<Kind>(event.kind)) {
    case Kind::WorkStart:
      work_started(event.rank, static_cast<std::uint8_t>(event.index));
      tell(event.rank);
      break;
    case Kind::WorkEnd:
      work_ended(event.rank, static_cast<std::uint8_t>(event.index), event.generation);
      break;
    case Kind::Arrival:
      arrive(event.rank, event.index);
      break;
    case Kind::TransferStart:
      start_transfer(event.index);
      break;
    case Kind::TransferEnd:
      transfer_ended(event.index, event.generation);
      break;
  }
}

std::string ProgramExecution::name_of_collective(std::int32_t collective) const {
  const std::int32_t label = program_.collectives[at(collective)].label;
  std::string text = std::to_string(collective);
  if (label >= 0 && at(label) < program_.labels.size()) {
    text += " (" + program_.labels[at(label)] + ")";
  }
  return text;
}

void ProgramExecution::finish(std::int32_t rank) {
  const Rank& state = ranks_[at(rank)];
  const Instruction* stuck = nullptr;
  if (state.next < program_.ranks[at(rank)].size()) {
    stuck = &program_.ranks[at(rank)][state.next];
  }
  for (const Stream& stream : state.streams) {
    if (!stream.empty()) {
      stuck = stream.items[stream.head].instruction;
    }
  }
  if (stuck != nullptr) {
    const bool collective = stuck->kind == Opcode::StreamWait || stuck->kind == Opcode::HostWait;
    throw std::runtime_error(
        "program: rank " + std::to_string(rank) + " waits for ever" +
        (collective ? " for collective " + name_of_collective(stuck->index) : std::string()) +
        "; not every rank launches it");
  }
  RankTrace& played = trace_.ranks[at(rank)];
  played.host_end = state.host;
  played.device_end = state.streams[kComputeStream].free;
  engine_.clocks_[at(rank)] = {played.host_end, played.device_end};
}

}  // namespace stepsim
