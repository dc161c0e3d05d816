#include "sim/parallel/lockstep.h"

#include <algorithm>
#include <array>
#include <map>
#include <stdexcept>
#include <tuple>
#include <utility>

#include "costmodel/base/index.h"
#include "costmodel/base/mapped.h"
#include "sim/engine/time_limit.h"

namespace stepsim {
namespace {

/// Whether two ranks do the same, but for the group that a collective is among and for the number
/// of a kernel.
bool alike(const Instruction& a, const Instruction& b) {
  const bool meets =
      a.kind == Opcode::Collective || a.kind == Opcode::StreamWait || a.kind == Opcode::HostWait;
  return a.kind == b.kind && a.stream == b.stream && a.phase == b.phase &&
         (a.label < 0) == (b.label < 0) && a.host == b.host && a.latency == b.latency &&
         a.work == b.work && (meets || a.index == b.index);
}

/// Turns the instructions of all ranks into moves, from the first to the last.
class LockstepReader {
 public:
  explicit LockstepReader(StepProgram program)
      : ranks_(std::exchange(program.program.ranks, {})),
        calls_(program.program.collectives.size(), -1),
        recorded_(at(program.program.events), false) {
    schedule_.program = std::move(program);
  }

  /// `stretches`: false where the moves alone are wanted.
  std::optional<LockstepSchedule> read(bool stretches) {
    const std::size_t count = ranks_.front().size();
    if (std::ranges::any_of(ranks_, [&](const auto& rank) { return rank.size() != count; })) {
      return std::nullopt;
    }
    for (std::size_t i = 0; i < count; ++i) {
      for (const auto& rank : ranks_) {
        if (!alike(rank[i], ranks_.front()[i])) {
          return std::nullopt;
        }
      }
      if (!take(i)) {
        return std::nullopt;
      }
    }
    schedule_.program.program.ranks.resize(ranks_.size());
    for (std::size_t i = 0; stretches && i < schedule_.stretches.size(); ++i) {
      LockstepStretch& stretch = schedule_.stretches[i];
      stretch.work = repeated_work(launched_[i].work);
      stretch.of_rank = mapped(launched_[i].of_rank, repeated_work);
    }
    find_alike();
    return std::move(schedule_);
  }

 private:
  /// The kernels of a stretch, one by one.
  struct Launched {
    std::vector<std::int32_t> work;
    std::vector<std::vector<std::int32_t>> of_rank;
  };

  /// The layers of a model are alike.
  void find_alike() {
    const auto before = [](const LockstepStretch* a, const LockstepStretch* b) {
      return std::tie(a->micro_batch, a->work, a->of_rank) <
             std::tie(b->micro_batch, b->work, b->of_rank);
    };
    std::map<const LockstepStretch*, std::int32_t, decltype(before)> first(before);
    for (std::size_t s = 0; s < schedule_.stretches.size(); ++s) {
      LockstepStretch& stretch = schedule_.stretches[s];
      stretch.first_alike = first.emplace(&stretch, static_cast<std::int32_t>(s)).first->second;
    }
  }

  bool take(std::size_t i) {
    const Instruction& in = ranks_.front()[i];
    LockstepMove move{in.kind, in.stream, in.phase, in.index, in.host, in.latency, in.work};
    switch (in.kind) {
      case Opcode::HostUntil:
        move.index = schedule_.micro_batches;
        break;
      case Opcode::HostSync:
        if (in.stream != kComputeStream) {
          return false;  // What it holds up would be told apart from other waits.
        }
        break;
      case Opcode::Host:
      case Opcode::Mark:
        break;
      case Opcode::Work:
        return take_work(i, move);
      case Opcode::Collective:
        if (in.stream == kNoStream) {
          return false;
        }
        move.index = call(i);
        break;
      case Opcode::StreamWait:
      case Opcode::HostWait:
        move.index = awaited(i);
        if (move.index < 0) {
          return false;
        }
        break;
      case Opcode::Record:
        recorded_[at(in.index)] = true;
        break;
      case Opcode::EventWait:
      case Opcode::HostEvent:
        if (!recorded_[at(in.index)]) {
          return false;
        }
        break;
    }
    schedule_.moves.push_back(move);
    return true;
  }

  bool take_work(std::size_t i, LockstepMove& move) {
    const Instruction& in = ranks_.front()[i];
    if (in.phase == Phase::Data) {
      // The host has built the batch by the instruction before, which takes no time here.
      move.index = schedule_.micro_batches++;
      schedule_.moves.push_back(move);
      return true;
    }
    if (in.label < 0) {
      move.index = -1;
      schedule_.moves.push_back(move);
      return true;
    }
    if (in.work != Duration::zero() || in.host != Duration::zero() ||
        in.latency != Duration::zero()) {
      return false;  // A time that would be lost.
    }
    const bool goes_on = !schedule_.moves.empty() && schedule_.moves.back().kind == Opcode::Work &&
                         schedule_.moves.back().phase == in.phase &&
                         schedule_.moves.back().stream == in.stream &&
                         schedule_.moves.back().index >= 0;
    if (!goes_on) {
      move.index = static_cast<std::int32_t>(schedule_.stretches.size());
      LockstepStretch& stretch = schedule_.stretches.emplace_back();
      stretch.micro_batch = std::max(0, schedule_.micro_batches - 1);
      stretch.phase = in.phase;
      schedule_.moves.push_back(move);
      launched_.emplace_back();
    }
    add_kernel(launched_.back(), i);
    return true;
  }

  void add_kernel(Launched& stretch, std::size_t i) const {
    const std::int32_t first = ranks_.front()[i].label;
    const bool differ =
        std::ranges::any_of(ranks_, [&](const auto& rank) { return rank[i].label != first; });
    if (differ && stretch.of_rank.empty()) {
      stretch.of_rank.assign(ranks_.size(), stretch.work);
    }
    stretch.work.push_back(first);
    for (std::size_t r = 0; r < stretch.of_rank.size(); ++r) {
      stretch.of_rank[r].push_back(ranks_[r][i].label);
    }
  }

  /// Numbers the collectives that the ranks call together.
  std::int32_t call(std::size_t i) {
    const auto number = static_cast<std::int32_t>(schedule_.collectives.size());
    std::vector<std::int32_t>& called = schedule_.collectives.emplace_back();
    for (const auto& rank : ranks_) {
      called.push_back(rank[i].index);
      calls_[at(rank[i].index)] = number;
    }
    return number;
  }

  /// The number of the collectives that the ranks wait for together; -1: they have not been called
  /// together.
  [[nodiscard]] std::int32_t awaited(std::size_t i) const {
    const std::int32_t number = calls_[at(ranks_.front()[i].index)];
    if (number < 0) {
      return -1;
    }
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      if (schedule_.collectives[at(number)][r] != ranks_[r][i].index) {
        return -1;
      }
    }
    return number;
  }

  std::vector<std::vector<Instruction>> ranks_;
  std::vector<std::int32_t> calls_;  ///< [collective] its number in the order of the calls.
  std::vector<bool> recorded_;       ///< [event]
  std::vector<Launched> launched_;   ///< [stretch]
  LockstepSchedule schedule_;
};

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
  return LockstepReader(std::move(program)).read(true);
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

LockstepTimes times_of(const LockstepSchedule& schedule, StepProgram first_rank) {
  first_rank.program.ranks.resize(1);
  std::optional<LockstepSchedule> timed = LockstepReader(std::move(first_rank)).read(false);
  const auto same = [](const LockstepMove& a, const LockstepMove& b) { return a.does_as(b); };
  if (!timed || !std::ranges::equal(timed->moves, schedule.moves, same) ||
      timed->collectives.size() != schedule.collectives.size()) {
    throw std::invalid_argument("lockstep: a program of another step");
  }
  LockstepTimes times{std::move(timed->moves), {}};
  for (const std::vector<std::int32_t>& called : timed->collectives) {
    times.transfers.push_back(timed->program.program.collectives[at(called.front())].transfer);
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
