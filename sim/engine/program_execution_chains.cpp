// Work that interference slows. Its rate changes only when a collective comes to the rank or leaves
// it, so the ends of work that follows work are known until then: a chain has one event, its last
// end. Whoever looks at a stream before that takes off first what has ended.
#include <algorithm>
#include <cstdint>

#include "costmodel/base/index.h"
#include "sim/engine/program_execution.h"
#include "sim/engine/time_limit.h"

namespace stepsim {

using engine_detail::Kind;
using engine_detail::scaled;

void ProgramExecution::start_work(std::int32_t rank,
                                  std::uint8_t index,
                                  Stream& stream,
                                  const Item& item) {
  if (stream.progress.running || stream.start_pending) {
    return;
  }
  const SimTime start = std::max(stream.free, item.not_before);
  if (start > events_.now() && !foresees_gaps_) {
    stream.start_pending = true;
    events_.push(start, static_cast<std::int32_t>(Kind::WorkStart), rank, index);
  } else {
    work_started(rank, index);
  }
}

void ProgramExecution::work_started(std::int32_t rank, std::uint8_t index) {
  Rank& state = ranks_[at(rank)];
  Stream& stream = state.streams[index];
  const Item& item = stream.items[stream.head];
  stream.start_pending = false;
  stream.progress.start(std::max({events_.now(), stream.free, item.not_before}),
                        item.instruction->work);
  stream.progress.slowdown = slowdown_of_work(state, *item.instruction);
  ++state.computing;
  foresee(rank, index);
}

double ProgramExecution::slowdown_of_work(const Rank& state, const Instruction& in) const {
  return state.resident == 0
             ? 1
             : compute_slowdown(rules_.interference, in.bound, in.blocks, state.channels);
}

void ProgramExecution::foresee(std::int32_t rank, std::uint8_t index) {
  const Rank& state = ranks_[at(rank)];
  Stream& stream = ranks_[at(rank)].streams[index];
  const std::size_t most = std::min(stream.items.size(), stream.head + longest_chain(rank, index));
  SimTime end = bounded(stream.progress.end());
  std::size_t next = stream.head;
  stream.items[next++].end = end;
  for (; next < most; ++next) {
    Item& item = stream.items[next];
    if (!is_slowed(*item.instruction) || (item.not_before > end && !foresees_gaps_)) {
      break;
    }
    const SimTime start = std::max(end, item.not_before);
    item.end = start + scaled(item.instruction->work, slowdown_of_work(state, *item.instruction));
    if (item.end > SimTime(kTimeLimit)) {
      break;  // It is too long once it is under way.
    }
    end = item.end;
  }
  stream.chain_end = next;
  events_.push(
      end, static_cast<std::int32_t>(Kind::WorkEnd), rank, index, ++stream.progress.generation);
}

std::size_t ProgramExecution::longest_chain(std::int32_t rank, std::uint8_t index) {
  constexpr std::int64_t kLongest = 64;  // A change of rate has all of a chain to foresee again.
  if (!foresees_) {
    return 1;
  }
  if (ranks_[at(rank)].full != index) {
    return kLongest;
  }
  // The host learns at the end of a chain that there is room. That is soon enough as long as all it
  // does goes to the same stream, behind the chain.
  const std::int64_t ended = engine_.queues_[at(rank)][index].ended;
  const std::int64_t enough = launches_before_other(rank) - rules_.queue_depth - ended;
  return static_cast<std::size_t>(std::clamp<std::int64_t>(enough, 1, kLongest));
}

std::int64_t ProgramExecution::launches_before_other(std::int32_t rank) {
  Rank& state = ranks_[at(rank)];
  if (state.looked_for == state.full && state.looked_to > state.next) {
    return state.launched_by_then;
  }
  const std::vector<Instruction>& instructions = program_.ranks[at(rank)];
  const auto is_for_full_stream = [&](const Instruction& in) {
    switch (in.kind) {
      case Opcode::Host:
      case Opcode::HostUntil:
        return true;
      case Opcode::HostWait:
      case Opcode::HostEvent:
        return false;
      default:
        return in.stream == state.full;
    }
  };
  std::int64_t launched = engine_.queues_[at(rank)][state.full].launched;
  std::size_t next = state.next;
  for (; next < instructions.size() && is_for_full_stream(instructions[next]); ++next) {
    launched += instructions[next].kind == Opcode::Work ? 1 : 0;
  }
  constexpr std::int64_t kNever = std::int64_t{1} << 62;
  state.looked_for = state.full;
  state.looked_to = next;
  state.launched_by_then = next < instructions.size() ? launched : kNever;
  return state.launched_by_then;
}

void ProgramExecution::keep_chain_short(std::int32_t rank) {
  const Rank& state = ranks_[at(rank)];
  if (state.full == kNoStream) {
    return;
  }
  const Stream& stream = state.streams[state.full];
  if (stream.progress.running && stream.chain_end - stream.head > longest_chain(rank, state.full)) {
    foresee(rank, state.full);
  }
}

void ProgramExecution::catch_up(std::int32_t rank, std::uint8_t index) {
  const Rank& state = ranks_[at(rank)];
  Stream& stream = ranks_[at(rank)].streams[index];
  if (!stream.progress.running) {
    return;
  }
  const std::size_t before = stream.head;
  while (stream.head + 1 < stream.chain_end && stream.items[stream.head].end <= events_.now()) {
    end_work(rank, index, stream.items[stream.head], stream.items[stream.head].end);
    ++stream.head;
  }
  if (stream.head != before) {
    const Item& item = stream.items[stream.head];
    stream.progress.start(std::max(stream.free, item.not_before), item.instruction->work);
    stream.progress.slowdown = slowdown_of_work(state, *item.instruction);
  }
}

void ProgramExecution::work_ended(std::int32_t rank, std::uint8_t index, std::int32_t generation) {
  Rank& state = ranks_[at(rank)];
  Stream& stream = state.streams[index];
  if (!stream.progress.running || stream.progress.generation != generation) {
    return;
  }
  stream.progress.running = false;
  --state.computing;
  for (; stream.head < stream.chain_end; ++stream.head) {
    end_work(rank, index, stream.items[stream.head], stream.items[stream.head].end);
  }
  settle(rank);
}

void ProgramExecution::resident_changed(std::int32_t rank, std::int32_t by, std::int32_t channels) {
  if (!interference_) {
    return;
  }
  Rank& state = ranks_[at(rank)];
  const bool waves_change = rules_.interference.multiprocessors > 0 && channels != 0;
  if (state.resident > 0 && state.resident + by > 0 && !waves_change) {
    state.resident += by;
    state.channels += by * channels;
    return;  // What is under way is slowed as before.
  }
  for (std::uint8_t index = 0; index < kStreams; ++index) {
    catch_up(rank, index);
  }
  state.resident += by;
  state.channels += by * channels;
  for (std::uint8_t index = 0; index < kStreams; ++index) {
    Stream& stream = state.streams[index];
    if (!stream.progress.running) {
      continue;
    }
    const double slowdown = slowdown_of_work(state, *stream.items[stream.head].instruction);
    const bool changed = slowdown != stream.progress.slowdown;
    if (changed) {
      stream.progress.change(events_.now(), slowdown);
    }
    if (changed || stream.chain_end - stream.head > 1) {
      foresee(rank, index);
    }
  }
}

}  // namespace stepsim
