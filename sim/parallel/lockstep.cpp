#include "sim/parallel/lockstep.h"

#include <algorithm>
#include <array>
#include <stdexcept>
#include <utility>

#include "costmodel/base/index.h"
#include "sim/engine/time_limit.h"
#include "sim/parallel/lockstep_reader.h"

namespace stepsim {
namespace {

/// How often the first `period` of these repeat, one behind the other.
int repeats_of(std::span<const std::int32_t> work, std::size_t period) {
  std::size_t same = 0;
  while (period + same < work.size() && work[same] == work[period + same]) {
    ++same;
  }
  return static_cast<int>(same / period) + 1;
}

/// Plays one step.
class LockstepPlayer {
 public:
  LockstepPlayer(const LockstepSchedule& schedule,
                 std::span<const LockstepWork> work,
                 std::span<const Duration> transfers,
                 const EngineRules& rules,
                 std::span<const RankClock> clocks)
      : schedule_(schedule),
        work_(work),
        transfers_(transfers),
        rules_(rules),
        ranks_(clocks.size()),
        free_(rules.communicators.size(), SimTime::min()),
        is_timed_(schedule.program.program.collectives.size(), false) {
    const Program& program = schedule.program.program;
    trace_.ranks.resize(clocks.size());
    trace_.collectives.resize(program.collectives.size());
    for (CollectiveTrace& collective : trace_.collectives) {
      collective.arrival.assign(clocks.size(), SimTime::max());
      collective.last_arrival = SimTime::min();
    }
    for (std::size_t r = 0; r < clocks.size(); ++r) {
      ranks_[r].host = clocks[r].host;
      ranks_[r].streams.fill(SimTime::min());
      ranks_[r].streams[kComputeStream] = clocks[r].device;
      ranks_[r].events.resize(at(program.events));
      trace_.ranks[r].marks.resize(at(program.marks));
    }
  }

  std::optional<ExecutionTrace> play() {
    for (const LockstepMove& move : schedule_.moves) {
      for (std::size_t r = 0; r < ranks_.size(); ++r) {
        make(move, r);
      }
      if (move.kind == Opcode::Collective && !transfer(schedule_.collectives[at(move.index)])) {
        return std::nullopt;
      }
    }
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      trace_.ranks[r].host_end = ranks_[r].host;
      trace_.ranks[r].device_end = ranks_[r].streams[kComputeStream];
    }
    return std::move(trace_);
  }

 private:
  struct Rank {
    SimTime host;
    std::array<SimTime, kStreams> streams;  ///< The end of all that has been enqueued.
    std::vector<SimTime> events;
  };

  void make(const LockstepMove& move, std::size_t rank) {
    Rank& state = ranks_[rank];
    SimTime& free = state.streams[move.stream];
    switch (move.kind) {
      case Opcode::Host:
        state.host = bounded(state.host + move.host);
        break;
      case Opcode::HostWait:
        state.host = std::max(state.host + move.host, awaited(move, rank).end + move.latency);
        break;
      case Opcode::HostEvent:
        state.host = std::max(state.host + move.host, state.events[at(move.index)] + move.latency);
        break;
      case Opcode::HostSync:
        state.host = std::max(state.host + move.host, free + move.latency);
        break;
      case Opcode::Work:
        work(move, rank);
        break;
      case Opcode::Collective: {
        CollectiveTrace& collective = trace_.collectives[at(called(move, rank))];
        const SimTime arrival = std::max(free, state.host + move.latency);
        collective.arrival[rank] = arrival;
        collective.last_arrival = std::max(collective.last_arrival, arrival);
        state.host = bounded(state.host + move.host);
        break;
      }
      case Opcode::StreamWait: {
        const CollectiveTrace& collective = awaited(move, rank);
        if (move.stream == kComputeStream && collective.last_arrival > free) {
          trace_.ranks[rank].waiting_for_ranks += collective.last_arrival - free;
        }
        pass(rank, move.stream, Phase::Wait, std::max(free, collective.end + move.latency));
        state.host += move.host;
        break;
      }
      case Opcode::Record:
        state.events[at(move.index)] = free;
        break;
      case Opcode::EventWait:
        pass(rank, move.stream, move.phase, std::max(free, state.events[at(move.index)]));
        break;
      case Opcode::Mark:
        trace_.ranks[rank].marks[at(move.index)] = free;
        break;
      case Opcode::HostUntil:
        state.host = std::max(state.host + move.host, work_[rank].ready[at(move.index)]);
        trace_.ranks[rank].fetches.push_back(state.host);
        break;
    }
  }

  void work(const LockstepMove& move, std::size_t rank) {
    Rank& state = ranks_[rank];
    const LockstepWork& work = work_[rank];
    Span span = {move.host, move.work, move.latency + move.work};
    if (move.phase == Phase::Data) {
      state.host += work.data[at(move.index)];
      span = work.copies[at(move.index)];
    } else if (move.index >= 0) {
      span = work.stretches[at(move.index)];
    }
    const SimTime end =
        std::max(state.streams[move.stream] + span.device, state.host + span.critical);
    pass(rank, move.stream, move.phase, end);
    state.host = bounded(state.host + span.host);
  }

  /// Moves the end of a stream forward, counted as `phase` on the compute stream.
  void pass(std::size_t rank, std::uint8_t stream, Phase phase, SimTime end) {
    SimTime& free = ranks_[rank].streams[stream];
    if (stream == kComputeStream) {
      trace_.ranks[rank].phases[static_cast<std::size_t>(phase)] += end - free;
    }
    free = bounded(end);
  }

  /// All ranks have called: each group's transfer has its times. False: two would share links.
  bool transfer(const std::vector<std::int32_t>& called) {
    for (const std::int32_t index : called) {
      CollectiveTrace& collective = trace_.collectives[at(index)];
      if (is_timed_[at(index)]) {
        continue;  // The group of a rank before this one.
      }
      is_timed_[at(index)] = true;
      const std::int32_t number = schedule_.program.program.collectives[at(index)].communicator;
      const Communicator& communicator = rules_.communicators[at(number)];
      SimTime& free = free_[at(number)];
      if (communicator.workers > 1 && collective.last_arrival < free) {
        return false;
      }
      collective.start = std::max(collective.last_arrival, free) + communicator.start_delay;
      free = collective.end = bounded(collective.start + transfers_[at(index)]);
    }
    return true;
  }

  [[nodiscard]] std::int32_t called(const LockstepMove& move, std::size_t rank) const {
    return schedule_.collectives[at(move.index)][rank];
  }
  [[nodiscard]] const CollectiveTrace& awaited(const LockstepMove& move, std::size_t rank) const {
    return trace_.collectives[at(called(move, rank))];
  }

  const LockstepSchedule& schedule_;
  std::span<const LockstepWork> work_;
  std::span<const Duration> transfers_;
  const EngineRules& rules_;
  std::vector<Rank> ranks_;
  std::vector<SimTime> free_;   ///< [communicator]
  std::vector<bool> is_timed_;  ///< [collective of the program]
  ExecutionTrace trace_;
};

}  // namespace

std::optional<LockstepSchedule> lockstep_schedule(StepProgram program) {
  LockstepReader reader;
  for (const std::vector<Instruction>& rank : program.program.ranks) {
    reader.add(rank);
  }
  return std::move(reader).schedule(std::move(program));
}

std::vector<RepeatedWork> repeated_work(const std::vector<std::int32_t>& work) {
  std::vector<RepeatedWork> result;
  bool single = false;  // Whether the last of the result can take more work.
  for (std::size_t i = 0; i < work.size();) {
    const std::span rest = std::span(work).subspan(i);
    std::size_t best = 0;
    int times = 1;
    std::size_t spared = 0;
    for (std::size_t period = 1; 2 * period <= rest.size(); ++period) {
      const int found = repeats_of(rest, period);
      if (period * at(found - 1) > spared) {
        best = period;
        times = found;
        spared = period * at(found - 1);
      }
    }
    constexpr std::size_t kWorthIt = 4;  // Pieces of work: composing stretches takes time, too.
    if (spared >= kWorthIt) {
      const auto end = rest.begin() + static_cast<std::ptrdiff_t>(best);
      result.push_back({{rest.begin(), end}, times});
      single = false;
      i += best * at(times);
      continue;
    }
    if (!single) {
      result.emplace_back();
      single = true;
    }
    result.back().work.push_back(work[i++]);
  }
  return result;
}

std::vector<std::int32_t> kernels_of(const std::vector<RepeatedWork>& work) {
  std::vector<std::int32_t> kernels;
  for (const RepeatedWork& part : work) {
    for (int n = 0; n < part.times; ++n) {
      kernels.insert(kernels.end(), part.work.begin(), part.work.end());
    }
  }
  return kernels;
}

LockstepTimes times_of(const LockstepSchedule& schedule, const StepProgram& first_rank) {
  LockstepReader reader;
  reader.add(first_rank.program.ranks.front());
  const auto same = [](const LockstepMove& a, const LockstepMove& b) { return a.does_as(b); };
  if (!reader.in_lockstep() || !std::ranges::equal(reader.moves(), schedule.moves, same) ||
      reader.collectives().size() != schedule.collectives.size()) {
    throw std::invalid_argument("lockstep: a program of another step");
  }
  LockstepTimes times{reader.moves(), {}};
  for (const std::vector<std::int32_t>& called : reader.collectives()) {
    times.transfers.push_back(first_rank.program.collectives[at(called.front())].transfer);
  }
  return times;
}

LockstepSchedule retimed(LockstepSchedule schedule, LockstepTimes times) {
  schedule.moves = std::move(times.moves);
  for (std::size_t n = 0; n < schedule.collectives.size(); ++n) {
    for (const std::int32_t one : schedule.collectives[n]) {
      schedule.program.program.collectives[at(one)].transfer = times.transfers[n];
    }
  }
  return schedule;
}

std::optional<ExecutionTrace> play_lockstep(const LockstepSchedule& schedule,
                                            std::span<const LockstepWork> ranks,
                                            std::span<const Duration> transfers,
                                            const EngineRules& rules,
                                            std::span<const RankClock> clocks) {
  return LockstepPlayer(schedule, ranks, transfers, rules, clocks).play();
}

}  // namespace stepsim
