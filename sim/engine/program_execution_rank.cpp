#include <algorithm>

#include "sim/engine/program_execution.h"
#include "sim/engine/time_limit.h"

namespace stepsim {

using engine_detail::Kind;

void ProgramExecution::settle(std::int32_t rank) {
  for (std::uint8_t stream = 0; stream < kStreams; ++stream) {
    catch_up(rank, stream);
  }
  bool moved = true;
  while (moved) {
    moved = run_host(rank);
    for (std::uint8_t stream = 0; stream < kStreams; ++stream) {
      if (!ranks_[at(rank)].streams[stream].empty()) {
        moved = advance(rank, stream) || moved;
      }
    }
  }
  keep_chain_short(rank);
  tell(rank);
}

bool ProgramExecution::run_host(std::int32_t rank) {
  Rank& state = ranks_[at(rank)];
  const std::vector<Instruction>& instructions = program_.ranks[at(rank)];
  const std::size_t before = state.next;
  state.full = kNoStream;
  while (state.next < instructions.size()) {
    const Instruction& in = instructions[state.next];
    switch (in.kind) {
      case Opcode::Host:
        state.host += in.host;
        break;
      case Opcode::HostUntil:
        state.host = std::max(state.host + in.host, in.until);
        trace_.ranks[at(rank)].fetches.push_back(state.host);
        break;
      case Opcode::HostWait:
        if (!is_done(rank, in.index, state.awaited)) {
          return state.next != before;
        }
        state.host =
            std::max(state.host + in.host, trace_.collectives[at(in.index)].end + in.latency);
        break;
      case Opcode::HostEvent: {
        const SimTime event = state.events[at(in.index)];
        if (event == SimTime::max()) {
          return state.next != before;
        }
        state.host = std::max(state.host + in.host, event + in.latency);
        break;
      }
      case Opcode::HostSync: {
        const Stream& stream = state.streams[in.stream];
        if (!stream.empty()) {
          return state.next != before;
        }
        const SimTime called = state.host + in.host;
        state.host = std::max(called, stream.free + in.latency);
        if (in.stream != kComputeStream && state.host > called) {
          state.held = {called, state.host};
        }
        break;
      }
      case Opcode::Work:
        if (!has_room(rank, in.stream)) {
          state.full = in.stream;
          return state.next != before;
        }
        enqueue(rank, in);
        engine_.queues_[at(rank)][in.stream].launch(rules_.queue_depth);
        break;
      case Opcode::Collective:
        if (record_spans_) {
          trace_.collectives[at(in.index)].enqueued_at[at(rank)] = state.host;
        }
        queue_part(rank, in.index);
        if (in.stream == kNoStream) {
          arrive_at(rank, in.index, state.host + in.latency);
          state.host += in.host;
        } else {
          enqueue(rank, in);
        }
        break;
      case Opcode::StreamWait:
      case Opcode::Record:
      case Opcode::EventWait:
      case Opcode::Mark:
        enqueue(rank, in);
        break;
    }
    state.host = bounded(state.host);
    ++state.next;
  }
  return state.next != before;
}

bool ProgramExecution::is_done(std::int32_t rank, std::int32_t collective, std::int32_t& awaited) {
  Transfer& transfer = transfers_[at(collective)];
  if (!transfer.done && awaited != collective) {
    awaited = collective;
    transfer.waiters.push_back(rank);
  }
  return transfer.done;
}

void ProgramExecution::enqueue(std::int32_t rank, const Instruction& in) {
  Rank& state = ranks_[at(rank)];
  Stream& stream = state.streams[in.stream];
  stream.items.push_back({&in, state.host + in.latency, state.held});
  state.host += in.host;
}

bool ProgramExecution::has_room(std::int32_t rank, std::uint8_t stream) {
  const std::int64_t depth = rules_.queue_depth;
  Engine::LaunchQueue& queue = engine_.queues_[at(rank)][stream];
  if (depth == 0 || queue.launched < depth) {
    return true;
  }
  if (queue.ended <= queue.launched - depth) {
    return false;
  }
  const SimTime end = queue.ends[queue.place_of_next];
  ranks_[at(rank)].host = std::max(ranks_[at(rank)].host, end);
  return true;
}

bool ProgramExecution::advance(std::int32_t rank, std::uint8_t index) {
  Stream& stream = ranks_[at(rank)].streams[index];
  const std::size_t before = stream.head;
  while (!stream.empty() && take_head(rank, index, stream)) {
    ++stream.head;
  }
  const bool moved = stream.head != before;
  if (stream.empty()) {
    stream.items.clear();
    stream.head = 0;
  }
  return moved;
}

bool ProgramExecution::take_head(std::int32_t rank, std::uint8_t index, Stream& stream) {
  const Item& item = stream.items[stream.head];
  const Instruction& in = *item.instruction;
  switch (in.kind) {
    case Opcode::Work:
      if (is_slowed(in)) {
        start_work(rank, index, stream, item);
        return false;
      }
      end_work(rank, index, item, std::max(stream.free, item.not_before) + in.work);
      return true;
    case Opcode::Collective:
      arrive_at(rank, in.index, std::max(stream.free, item.not_before));
      return true;
    case Opcode::StreamWait: {
      if (!is_done(rank, in.index, stream.awaited)) {
        return false;
      }
      const CollectiveTrace& awaited = trace_.collectives[at(in.index)];
      const SimTime free = std::max(stream.free, awaited.end + in.latency);
      if (index == kComputeStream && awaited.last_arrival > stream.free) {
        trace_.ranks[at(rank)].waiting_for_ranks += awaited.last_arrival - stream.free;
      }
      pass(rank, index, Phase::Wait, free);
      return true;
    }
    case Opcode::Record:
      ranks_[at(rank)].events[at(in.index)] = stream.free;
      return true;
    case Opcode::EventWait: {
      const SimTime event = ranks_[at(rank)].events[at(in.index)];
      if (event == SimTime::max()) {
        return false;
      }
      pass(rank, index, in.phase, std::max(stream.free, event));
      return true;
    }
    default:
      trace_.ranks[at(rank)].marks[at(in.index)] = stream.free;
      return true;
  }
}

void ProgramExecution::pass(std::int32_t rank, std::uint8_t index, Phase phase, SimTime free) {
  Stream& stream = ranks_[at(rank)].streams[index];
  if (index == kComputeStream) {
    trace_.ranks[at(rank)].phases[static_cast<std::size_t>(phase)] += free - stream.free;
    if (record_spans_ && phase == Phase::Wait && free > stream.free) {
      trace_.waits.push_back({rank, -1, index, phase, stream.free, free});
    }
  }
  stream.free = bounded(free);
}

void ProgramExecution::end_work(std::int32_t rank,
                                std::uint8_t index,
                                const Item& item,
                                SimTime end) {
  const Instruction& in = *item.instruction;
  if (index == kComputeStream && item.held.until > ranks_[at(rank)].streams[index].free) {
    pass(rank, index, in.phase, std::max(item.held.from, ranks_[at(rank)].streams[index].free));
    trace_.ranks[at(rank)].held += item.held.until - ranks_[at(rank)].streams[index].free;
    pass(rank, index, Phase::Wait, item.held.until);
  }
  const SimTime free = ranks_[at(rank)].streams[index].free;
  pass(rank, index, in.phase, end);
  if (rules_.queue_depth > 0) {
    engine_.queues_[at(rank)][index].end(end, rules_.queue_depth);
  }
  // Time before the batch is there counts as data; other work begins when it can.
  const bool data = in.phase == Phase::Data && index == kComputeStream;
  const SimTime begin = data ? free : std::max(free, item.not_before);
  if (record_spans_ && end > begin) {
    trace_.spans.push_back(
        {rank, in.label, index, in.phase, begin, end, item.not_before - in.latency});
  }
}

void ProgramExecution::tell(std::int32_t rank) {
  Rank& state = ranks_[at(rank)];
  const bool computes = state.computing > 0;
  if (state.told == computes || rules_.interference.transfer <= 0) {
    return;
  }
  state.told = computes;
  for (CommunicatorState& communicator : communicators_) {
    if (!communicator.is_member[at(rank)]) {
      continue;
    }
    for (const std::int32_t collective : communicator.active) {
      Transfer& transfer = transfers_[at(collective)];
      transfer.computing += computes ? 1 : -1;
      if (transfer.computing == (computes ? 1 : 0)) {
        rerate_transfer(collective);
      }
    }
  }
}

}  // namespace stepsim
