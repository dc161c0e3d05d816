#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include <doctest/doctest.h>

#include "sim/engine/engine.h"

namespace stepsim::test {

/// Draws programs that every rank comes to the end of: waits are for what was launched before.
/// They are the same by every compiler: no expression has two draws, whose order is not given.
class RandomPrograms {
 public:
  /// All times are multiples of `grain`, up to `longest` grains for a piece of work. With a few of
  /// them many things happen at one time. `in_order`: under interference all is on one stream, and
  /// there is one communicator.
  RandomPrograms(std::uint64_t seed, Duration grain, std::uint64_t longest, bool in_order = false)
      : draws_(seed), grain_(grain), longest_(longest), in_order_(in_order) {}

  EngineRules rules() {
    EngineRules rules;
    rules.queue_depth = one_in(2) ? 0 : static_cast<std::int32_t>(1 + below(12));
    Interference& interference = rules.interference;
    interference.compute = one_in(3) ? 0 : fraction();
    interference.transfer = one_in(2) ? 0 : fraction();
    interference.multiprocessors = one_in(2) ? 0 : 132;
    interference.memory_share = one_in(2) ? 0 : fraction() / 2;
    interference.while_waiting = !one_in(4);
    in_order_ = in_order_ && interference.active();
    rules.communicators.resize(in_order_ ? 1 : 1 + below(2));
    for (Communicator& communicator : rules.communicators) {
      communicator.workers = in_order_ ? 1 : static_cast<std::int32_t>(1 + below(2));
      communicator.shares_links = one_in(2);
      communicator.start_delay = one_in(2) ? Duration(0) : duration();
    }
    return rules;
  }

  Program program(std::size_t ranks, const EngineRules& rules) {
    Program program;
    program.ranks.resize(ranks);
    program.marks = 1;
    streams_ = in_order_ ? 1 : 1 + below(3);
    const std::uint64_t rare = 2 + below(30);  // What is no work on the same stream as before.
    for (std::uint64_t left = 5 + below(60); left > 0; --left) {
      if (one_in(rare)) {
        other(program, rules);
      } else {
        for (std::vector<Instruction>& rank : program.ranks) {
          work(rank, one_in(rare) ? stream() : kComputeStream);
        }
      }
    }
    Instruction mark;
    mark.kind = Opcode::Mark;
    mark.index = 0;
    add(program, mark);
    return program;
  }

  std::uint64_t below(std::uint64_t bound) { return draws_() % bound; }

 private:
  bool one_in(std::uint64_t count) { return below(count) == 0; }
  double fraction() { return static_cast<double>(1 + below(1000)) / 1000; }
  std::uint8_t stream() { return static_cast<std::uint8_t>(below(streams_)); }
  Duration duration() {
    // Short durations are drawn as often as long ones.
    const std::uint64_t most = longest_ >> below(longest_ > 100 ? 12 : 1);
    return grain_ * static_cast<std::int64_t>(below(most + 1));
  }

  void work(std::vector<Instruction>& rank, std::uint8_t stream) {
    for (std::uint64_t left = 1 + (one_in(4) ? below(90) : below(3)); left > 0; --left) {
      Instruction in;
      in.kind = Opcode::Work;
      in.stream = stream;
      in.phase = static_cast<Phase>(below(kPhases));
      in.bound = one_in(12) ? Bound::Unaffected : one_in(2) ? Bound::Compute : Bound::Memory;
      in.blocks = static_cast<std::int32_t>(below(300));
      in.work = one_in(12) ? Duration(0) : duration();
      const std::int64_t shorter = one_in(8) ? 1 : 16;
      in.host = grain_ * (duration() / grain_ / shorter);
      in.latency = in.host;
      rank.push_back(in);
    }
  }

  /// Adds one instruction to all ranks, each with times of its own.
  void add(Program& program, Instruction in) {
    for (std::vector<Instruction>& rank : program.ranks) {
      in.host = grain_ * (duration() / grain_ / 4);
      in.latency = grain_ * (duration() / grain_ / 4);
      in.until = SimTime(64 * duration());
      rank.push_back(in);
    }
  }

  void other(Program& program, const EngineRules& rules) {
    Instruction in;
    in.stream = stream();
    switch (below(10)) {
      case 0:
        in.kind = Opcode::HostSync;
        break;
      case 1:
        in.kind = Opcode::HostUntil;
        break;
      case 2:
      case 3:
        in.kind = Opcode::Record;
        in.index = program.events++;
        break;
      case 4:
      case 5:
        in.kind = one_in(2) ? Opcode::EventWait : Opcode::HostEvent;
        in.index = chosen(program.events);
        break;
      case 6:
        in.kind = one_in(3) ? Opcode::HostWait : Opcode::StreamWait;
        in.index = chosen(static_cast<std::int32_t>(program.collectives.size()));
        break;
      default: {
        in.kind = Opcode::Collective;
        in.stream = !in_order_ && one_in(4) ? kNoStream : in.stream;
        in.index = static_cast<std::int32_t>(program.collectives.size());
        Collective collective;
        collective.communicator = static_cast<std::int32_t>(below(rules.communicators.size()));
        collective.transfer = duration();
        collective.transfer *= one_in(2) ? 8 : 1;
        collective.channels = static_cast<std::int32_t>(below(20));
        program.collectives.push_back(collective);
        break;
      }
    }
    if (in.kind == Opcode::Collective || in.index >= 0 || in.kind == Opcode::HostSync ||
        in.kind == Opcode::HostUntil) {
      add(program, in);
    }
  }

  /// One of so many; -1: there is none.
  std::int32_t chosen(std::int32_t count) {
    return count == 0 ? -1 : static_cast<std::int32_t>(below(static_cast<std::uint64_t>(count)));
  }

  std::mt19937_64 draws_;
  Duration grain_;
  std::uint64_t longest_;
  bool in_order_;
  std::uint64_t streams_ = 1;
};

/// Both traces must have the same times.
inline void check_equal(const ExecutionTrace& a, const ExecutionTrace& b) {
  for (std::size_t r = 0; r < a.ranks.size(); ++r) {
    CAPTURE(r);
    REQUIRE(a.ranks[r].host_end == b.ranks[r].host_end);
    REQUIRE(a.ranks[r].device_end == b.ranks[r].device_end);
    REQUIRE(a.ranks[r].marks == b.ranks[r].marks);
    REQUIRE(a.ranks[r].fetches == b.ranks[r].fetches);
    REQUIRE(a.ranks[r].phases == b.ranks[r].phases);
    REQUIRE(a.ranks[r].waiting_for_ranks == b.ranks[r].waiting_for_ranks);
    REQUIRE(a.ranks[r].held == b.ranks[r].held);
  }
  for (std::size_t c = 0; c < a.collectives.size(); ++c) {
    CAPTURE(c);
    REQUIRE(a.collectives[c].arrival == b.collectives[c].arrival);
    REQUIRE(a.collectives[c].last_arrival == b.collectives[c].last_arrival);
    REQUIRE(a.collectives[c].start == b.collectives[c].start);
    REQUIRE(a.collectives[c].end == b.collectives[c].end);
  }
}

}  // namespace stepsim::test
