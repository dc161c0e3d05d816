#include "sim/engine/ordered_execution.h"

#include <algorithm>
#include <utility>

#include "costmodel/base/index.h"
#include "sim/engine/progress.h"
#include "sim/engine/time_limit.h"

namespace stepsim {

using engine_detail::Progress;
using engine_detail::scaled;

OrderedExecution::OrderedExecution(Engine& engine,
                                   const Program& program,
                                   const CollectiveOrder& order)
    : engine_(engine),
      rules_(engine.rules_),
      program_(program),
      order_(order),
      interference_(rules_.interference.active()),
      ranks_(program.ranks.size()),
      launched_(program.collectives.size(), 0),
      is_done_(program.collectives.size(), false),
      done_(order.size(), 0),
      free_(order.size(), SimTime::min()) {
  trace_.ranks.resize(ranks_.size());
  trace_.collectives.resize(program.collectives.size());
  for (CollectiveTrace& collective : trace_.collectives) {
    collective.arrival.assign(ranks_.size(), SimTime::max());
    collective.last_arrival = SimTime::min();
  }
  for (std::size_t r = 0; r < ranks_.size(); ++r) {
    ranks_[r].host = engine.clocks_[r].host;
    ranks_[r].free.fill(SimTime::min());
    ranks_[r].free[kComputeStream] = engine.clocks_[r].device;
    ranks_[r].events.resize(at(program.events));
    trace_.ranks[r].marks.resize(at(program.marks));
  }
}

std::optional<ExecutionTrace> OrderedExecution::play() {
  do {
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      (void)run(r, SimTime::max(), interference_);
    }
  } while (complete());
  if (shares_links_) {
    return std::nullopt;
  }
  for (std::size_t r = 0; r < ranks_.size(); ++r) {
    RankTrace& played = trace_.ranks[r];
    played.host_end = ranks_[r].host;
    played.device_end = ranks_[r].free[kComputeStream];
    engine_.clocks_[r] = {played.host_end, played.device_end};
  }
  return std::move(trace_);
}

OrderedExecution::Stop OrderedExecution::run(std::size_t rank, SimTime frontier, bool stops) {
  Rank& state = ranks_[rank];
  RankTrace& played = trace_.ranks[rank];
  const std::vector<Instruction>& instructions = program_.ranks[rank];
  if (stops && state.calls > done_.front()) {
    return {};
  }
  SimTime host = state.host;
  SimTime compute = state.free[kComputeStream];
  Stop stop;
  const auto free_of = [&](std::uint8_t stream) -> SimTime& {
    return stream == kComputeStream ? compute : state.free[stream];
  };
  // Moves the end of a stream forward, counted as `phase` on the compute stream.
  const auto pass = [&](std::uint8_t stream, Phase phase, SimTime end) {
    if (stream == kComputeStream) {
      played.phases[static_cast<std::size_t>(phase)] += end - compute;
      compute = bounded(end);
    } else {
      state.free[stream] = bounded(end);
    }
  };
  bool goes_on = true;
  std::size_t next = state.next;
  for (const std::size_t count = instructions.size(); next < count; ++next) {
    const Instruction& in = instructions[next];
    switch (in.kind) {
      case Opcode::Work: {
        Engine::LaunchQueue& queue = engine_.queues_[rank][in.stream];
        if (rules_.queue_depth > 0 && queue.launched >= rules_.queue_depth) {
          host = std::max(host, queue.ends[queue.place_of_next]);
        }
        const SimTime start = std::max(free_of(in.stream), host + in.latency);
        SimTime end;
        if (interference_ && in.bound != Bound::Unaffected && in.work > Duration::zero()) {
          if (start > frontier) {
            stop = {start, SimTime::max()};
            goes_on = false;
            break;
          }
          while (start >= state.regime.until) {
            change(rank, state.regime);
          }
          end = bounded(start + scaled(in.work, slowdown(in, state.regime)));
          if (end <= state.regime.until) {
            if (end > frontier) {
              stop = {start, end};
              goes_on = false;
              break;
            }
          } else {
            Regime regime = state.regime;
            end = bounded(end_of(rank, in, start, regime));
            if (end > frontier) {
              stop = {start, end};
              goes_on = false;
              break;
            }
            state.regime = regime;
          }
        } else {
          end = start + in.work;
        }
        if (in.stream == kComputeStream && state.held_until > compute) {
          pass(in.stream, in.phase, std::max(state.held_from, compute));
          played.held += state.held_until - compute;
          pass(in.stream, Phase::Wait, state.held_until);
        }
        pass(in.stream, in.phase, end);
        ++engine_.events_handled_;
        host = bounded(host + in.host);
        if (rules_.queue_depth > 0) {
          queue.launch(rules_.queue_depth);
          queue.end(end, rules_.queue_depth);
        }
        break;
      }
      case Opcode::Host:
        host = bounded(host + in.host);
        break;
      case Opcode::HostUntil:
        host = bounded(std::max(host + in.host, in.until));
        played.fetches.push_back(host);
        break;
      case Opcode::HostWait:
        goes_on = is_done_[at(in.index)];
        if (goes_on) {
          host =
              bounded(std::max(host + in.host, trace_.collectives[at(in.index)].end + in.latency));
        }
        break;
      case Opcode::HostEvent:
        host = bounded(std::max(host + in.host, state.events[at(in.index)] + in.latency));
        break;
      case Opcode::HostSync: {
        const SimTime called = host + in.host;
        host = bounded(std::max(called, free_of(in.stream) + in.latency));
        if (in.stream != kComputeStream && host > called) {
          state.held_from = called;
          state.held_until = host;
        }
        break;
      }
      case Opcode::Collective:
        launch_part(rank, in, host, in.stream == kNoStream ? SimTime::min() : free_of(in.stream));
        host = bounded(host + in.host);
        if (stops) {
          goes_on = false;
          ++next;
        }
        break;
      case Opcode::StreamWait: {
        goes_on = is_done_[at(in.index)];
        if (goes_on) {
          const CollectiveTrace& awaited = trace_.collectives[at(in.index)];
          const SimTime free = free_of(in.stream);
          if (in.stream == kComputeStream && awaited.last_arrival > free) {
            played.waiting_for_ranks += awaited.last_arrival - free;
          }
          pass(in.stream, Phase::Wait, std::max(free, awaited.end + in.latency));
          host = bounded(host + in.host);
        }
        break;
      }
      case Opcode::Record:
        state.events[at(in.index)] = free_of(in.stream);
        host = bounded(host + in.host);
        break;
      case Opcode::EventWait:
        pass(in.stream, in.phase, std::max(free_of(in.stream), state.events[at(in.index)]));
        host = bounded(host + in.host);
        break;
      case Opcode::Mark:
        played.marks[at(in.index)] = free_of(in.stream);
        host = bounded(host + in.host);
        break;
    }
    if (!goes_on) {
      break;
    }
  }
  state.next = next;
  state.host = host;
  state.free[kComputeStream] = compute;
  return stop;
}

void OrderedExecution::launch_part(std::size_t rank,
                                   const Instruction& in,
                                   SimTime host,
                                   SimTime free) {
  CollectiveTrace& collective = trace_.collectives[at(in.index)];
  const SimTime arrival = std::max(free, host + in.latency);
  collective.arrival[rank] = arrival;
  collective.last_arrival = std::max(collective.last_arrival, arrival);
  ++launched_[at(in.index)];
  ++engine_.events_handled_;
  ++ranks_[rank].calls;
  if (interference_) {
    look_ahead(rank, ranks_[rank].regime);
  }
}

void OrderedExecution::look_ahead(std::size_t rank, Regime& regime) const {
  const std::vector<std::int32_t>& order = order_.front();
  regime.until = SimTime::max();
  if (regime.number >= ranks_[rank].calls) {
    return;  // The rank has not launched it.
  }
  const CollectiveTrace& collective = trace_.collectives[at(order[regime.number])];
  if (regime.is_resident) {
    if (regime.number < done_.front()) {
      regime.until = collective.end;
    }
  } else if (rules_.interference.while_waiting) {
    const SimTime before =
        regime.number == 0 ? SimTime::min() : trace_.collectives[at(order[regime.number - 1])].end;
    regime.until = std::max(collective.arrival[rank], before);
  } else if (regime.number < started_) {
    regime.until = collective.start;
  }
}

void OrderedExecution::change(std::size_t rank, Regime& regime) const {
  if (regime.is_resident) {
    ++regime.number;
  }
  regime.is_resident = !regime.is_resident;
  look_ahead(rank, regime);
}

double OrderedExecution::slowdown(const Instruction& in, const Regime& regime) {
  if (!regime.is_resident) {
    return 1;
  }
  const std::int32_t channels = program_.collectives[at(order_.front()[regime.number])].channels;
  const std::uint64_t key = 1 + ((std::uint64_t{static_cast<std::uint32_t>(channels)} << 34U) |
                                 (std::uint64_t{static_cast<std::uint32_t>(in.blocks)} << 2U) |
                                 static_cast<std::uint64_t>(in.bound));
  KnownSlowdown& known =
      known_slowdowns_[(key ^ (key >> 7U) ^ (key >> 34U)) % known_slowdowns_.size()];
  if (known.key != key) {
    known = {key, compute_slowdown(rules_.interference, in.bound, in.blocks, channels)};
  }
  return known.slowdown;
}

SimTime OrderedExecution::end_of(std::size_t rank,
                                 const Instruction& in,
                                 SimTime start,
                                 Regime& regime) {
  Progress progress;
  progress.start(start, in.work);
  SimTime end = progress.change(start, slowdown(in, regime));
  while (end > regime.until) {
    const SimTime now = regime.until;
    change(rank, regime);
    const double rate = slowdown(in, regime);
    if (rate != progress.slowdown) {
      end = progress.change(now, rate);
    }
  }
  return end;
}

bool OrderedExecution::complete() {
  bool moved = false;
  for (std::size_t c = 0; c < order_.size(); ++c) {
    const Communicator& rules = rules_.communicators[c];
    const std::size_t members = rules.ranks.empty() ? ranks_.size() : rules.ranks.size();
    for (; done_[c] < order_[c].size() && launched_[at(order_[c][done_[c]])] == members;
         moved = true) {
      if (!complete(rules, order_[c][done_[c]], free_[c])) {
        shares_links_ = true;
        return false;
      }
      is_done_[at(order_[c][done_[c]])] = true;
      ++done_[c];
      for (std::size_t r = 0; interference_ && r < ranks_.size(); ++r) {
        look_ahead(r, ranks_[r].regime);
      }
    }
  }
  return moved;
}

bool OrderedExecution::complete(const Communicator& rules, std::int32_t number, SimTime& free) {
  CollectiveTrace& collective = trace_.collectives[at(number)];
  if (rules.workers > 1 && collective.last_arrival < free) {
    return false;
  }
  collective.start = bounded(std::max(collective.last_arrival, free) + rules.start_delay);
  ++started_;
  const Duration transfer = program_.collectives[at(number)].transfer;
  if (rules_.interference.transfer <= 0) {
    collective.end = collective.start + transfer;
  } else {
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      look_ahead(r, ranks_[r].regime);
    }
    collective.end = end_beside_compute(collective.start, transfer);
  }
  free = bounded(collective.end);
  ++engine_.events_handled_;
  return true;
}

SimTime OrderedExecution::end_beside_compute(SimTime start, Duration transfer) {
  const double slowed = 1 + rules_.interference.transfer;
  Progress progress;
  progress.start(start, transfer);
  SimTime end = progress.change(start, slowed);
  // Some rank computes at all times from progress.since to the frontier.
  for (SimTime frontier = start; frontier < end;) {
    SimTime reached = frontier;
    SimTime next = SimTime::max();
    for (std::size_t r = 0; r < ranks_.size() && reached < end; ++r) {
      const Stop stop = run(r, frontier, false);
      if (stop.start <= frontier) {
        reached = std::max(reached, stop.end);
      } else {
        next = std::min(next, stop.start);
      }
    }
    if (reached == frontier) {
      end = progress.change(frontier, 1);
      if (next >= end) {
        break;
      }
      end = progress.change(next, slowed);
      reached = next;
    }
    frontier = reached;
  }
  return end;
}

}  // namespace stepsim
