// Steps in which all hosts do the same, played in lockstep and by the engine.
#include "sim/parallel/lockstep.h"

#include <algorithm>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "costmodel/base/index.h"
#include "sim/engine/engine.h"

namespace stepsim {
namespace {

constexpr std::int32_t kLockstepRanks = 3;

Instruction instruction(Opcode kind, std::uint8_t stream, std::int32_t index = -1) {
  Instruction in;
  in.kind = kind;
  in.stream = stream;
  in.index = index;
  return in;
}

Instruction numbered_work(std::int32_t number, std::uint8_t stream = kComputeStream) {
  Instruction in = instruction(Opcode::Work, stream);
  in.phase = Phase::Forward;
  in.label = number;
  return in;
}

/// Two pieces of work, a collective behind the second on a stream of its own, and a wait for it.
StepProgram small_program() {
  StepProgram program;
  program.program.marks = kStepMarks;
  program.program.events = 1;
  program.program.collectives = {{0, Duration(50)}};
  program.uses = {{CollectiveKind::AllGather, 8.0, -1}};
  Instruction batch = instruction(Opcode::Work, kComputeStream);
  batch.phase = Phase::Data;
  Instruction held = instruction(Opcode::Host, kComputeStream);
  held.host = Duration(7);
  Instruction follows = instruction(Opcode::EventWait, 3, 0);
  const std::vector<Instruction> rank = {instruction(Opcode::Mark, kComputeStream, kStepStart),
                                         batch,
                                         numbered_work(0),
                                         numbered_work(1),
                                         held,
                                         instruction(Opcode::Record, kComputeStream, 0),
                                         follows,
                                         instruction(Opcode::Collective, 3, 0),
                                         instruction(Opcode::StreamWait, kComputeStream, 0),
                                         numbered_work(1)};
  program.program.ranks.assign(kLockstepRanks, rank);
  return program;
}

/// The program with times in place of numbers.
StepProgram with_times(StepProgram program, const std::vector<std::vector<Duration>>& times) {
  for (std::size_t r = 0; r < program.program.ranks.size(); ++r) {
    for (Instruction& in : program.program.ranks[r]) {
      if (in.kind == Opcode::Work && in.label >= 0) {
        in.work = times[r][at(in.label)];
        in.host = in.latency = Duration(2);
      }
    }
  }
  return program;
}

LockstepWork folded_work(const LockstepSchedule& schedule, const std::vector<Duration>& times) {
  LockstepWork work;
  work.data.assign(at(schedule.micro_batches), Duration(0));
  work.copies.resize(at(schedule.micro_batches));
  for (const LockstepStretch& stretch : schedule.stretches) {
    Span span;
    for (const RepeatedWork& part : stretch.work) {
      for (int i = 0; i < part.times; ++i) {
        for (const std::int32_t number : part.work) {
          span = then(span, op_span(Duration(2), times[at(number)]));
        }
      }
    }
    work.stretches.push_back(span);
  }
  return work;
}

}  // namespace

TEST_CASE("lockstep: a step equals the engine's, whatever the times and clocks") {
  std::mt19937 generator(1);
  const auto draw = [&] { return Duration(static_cast<std::int64_t>(generator() % 200)); };
  const auto schedule = lockstep_schedule(small_program());
  REQUIRE(schedule);
  CHECK(schedule->stretches.size() == 2);
  for (int i = 0; i < 200; ++i) {
    std::vector<std::vector<Duration>> times;
    std::vector<RankClock> clocks;
    std::vector<LockstepWork> ranks;
    for (int r = 0; r < kLockstepRanks; ++r) {
      times.push_back({draw(), draw()});
      clocks.push_back({SimTime(draw()), SimTime(draw())});
      ranks.push_back(folded_work(*schedule, times.back()));
    }
    EngineRules rules;
    rules.communicators.front().start_delay = draw();
    const StepProgram program = with_times(small_program(), times);
    Engine engine(rules, clocks);
    const StepTimeline expected = timeline_of(engine.play(program.program), program);
    const std::vector<Duration> transfers = {Duration(50)};
    const auto played = play_lockstep(*schedule, ranks, transfers, rules, clocks);
    REQUIRE(played);
    CHECK(timeline_of(*played, schedule->program) == expected);
  }
}

TEST_CASE("lockstep: what repeats in a stretch of work is stated once, in its order") {
  std::mt19937 generator(2);
  for (int i = 0; i < 500; ++i) {
    std::vector<std::int32_t> work;
    const int parts = 1 + static_cast<int>(generator() % 5);
    for (int part = 0; part < parts; ++part) {
      std::vector<std::int32_t> layer(1 + generator() % 6);
      std::ranges::generate(layer, [&] { return static_cast<std::int32_t>(generator() % 4); });
      for (auto times = 1 + generator() % 6; times > 0; --times) {
        work.insert(work.end(), layer.begin(), layer.end());
      }
    }
    std::vector<std::int32_t> unrolled;
    for (const RepeatedWork& part : repeated_work(work)) {
      for (int n = 0; n < part.times; ++n) {
        unrolled.insert(unrolled.end(), part.work.begin(), part.work.end());
      }
    }
    CHECK(unrolled == work);
  }
  CHECK(repeated_work({9, 1, 2, 3, 1, 2, 3, 1, 2, 3, 8, 7}) ==
        std::vector<RepeatedWork>{{{9}, 1}, {{1, 2, 3}, 3}, {{8, 7}, 1}});
}

TEST_CASE("lockstep: a rank may launch another kernel in the place of the others'") {
  StepProgram program = small_program();
  program.program.ranks[1][2].label = 7;
  const auto schedule = lockstep_schedule(program);
  REQUIRE(schedule);
  const LockstepStretch& stretch = schedule->stretches.front();
  CHECK(stretch.work_of(0) == std::vector<RepeatedWork>{{{0, 1}, 1}});
  CHECK(stretch.work_of(1) == std::vector<RepeatedWork>{{{7, 1}, 1}});
  CHECK(stretch.work_of(2) == stretch.work_of(0));
  CHECK(schedule->stretches.back().of_rank.empty());
}

TEST_CASE("lockstep: what it does not know is left to the engine") {
  const auto refused = [](auto change) {
    StepProgram program = small_program();
    change(program.program);
    return !lockstep_schedule(std::move(program)).has_value();
  };
  CHECK_FALSE(refused([](Program&) {}));
  // A rank does something else, or more.
  CHECK(refused([](Program& program) { program.ranks[1][2].label = -1; }));
  CHECK(refused([](Program& program) { program.ranks[2].push_back(numbered_work(0)); }));
  // A rank waits for what another one has called.
  CHECK(refused([](Program& program) {
    program.collectives.push_back(program.collectives.front());
    for (Instruction& in : program.ranks[2]) {
      in.index = in.kind == Opcode::Collective ? 1 : in.index;
    }
  }));
  // Work with a number has a time of its own, which would be lost.
  CHECK(refused([](Program& program) {
    for (auto& rank : program.ranks) {
      rank[2].work = Duration(1);
    }
  }));
  // A wait for what has not been called, and for an event that comes later.
  CHECK(refused([](Program& program) {
    for (auto& rank : program.ranks) {
      std::swap(rank[7], rank[8]);
    }
  }));
  CHECK(refused([](Program& program) {
    for (auto& rank : program.ranks) {
      std::swap(rank[5], rank[6]);
    }
  }));
}

TEST_CASE("lockstep: transfers that would share links are left to the engine") {
  StepProgram program = small_program();
  program.program.collectives.push_back(program.program.collectives.front());
  program.uses.push_back(program.uses.front());
  for (auto& rank : program.program.ranks) {
    rank.insert(rank.begin() + 8, instruction(Opcode::Collective, 3, 1));
  }
  const auto schedule = lockstep_schedule(program);
  REQUIRE(schedule);
  EngineRules rules;
  const std::vector<Duration> times = {Duration(10), Duration(20)};
  const std::vector<LockstepWork> ranks(kLockstepRanks, folded_work(*schedule, times));
  const std::vector<RankClock> clocks(kLockstepRanks);
  const std::vector<Duration> transfers(2, Duration(50));
  CHECK(play_lockstep(*schedule, ranks, transfers, rules, clocks).has_value());
  rules.communicators.front().workers = 2;
  rules.communicators.front().shares_links = true;
  CHECK_FALSE(play_lockstep(*schedule, ranks, transfers, rules, clocks).has_value());
}

}  // namespace stepsim
