#include "sim/engine/time_limit.h"

#include <vector>

#include <doctest/doctest.h>

#include "costmodel/base/input_error.h"
#include "sim/engine/engine.h"

using namespace stepsim;

namespace {

Instruction host(Duration busy) {
  Instruction in;
  in.host = busy;
  return in;
}

Instruction work(Duration time) {
  Instruction in;
  in.kind = Opcode::Work;
  in.work = time;
  return in;
}

Instruction use(Opcode kind, std::int32_t collective) {
  Instruction in;
  in.kind = kind;
  in.index = collective;
  return in;
}

void play(const std::vector<Instruction>& instructions, EngineRules rules = {}) {
  Program program;
  program.ranks = {instructions};
  program.collectives.assign(4, {0, kTimeLimit / 2, 0, -1});
  Engine engine(rules, std::vector<RankClock>(1));
  (void)engine.play(program);
}

}  // namespace

TEST_CASE("a clock goes up to the limit and no further, on the host and on a stream") {
  const Duration half = kTimeLimit / 2;
  for (const auto& make : {host, work}) {
    CHECK_NOTHROW(play({make(half), make(half)}));
    CHECK_THROWS_AS(play({make(half), make(half), make(Duration(1))}), InputError);
    // Four halves of the limit, often enough to wrap around.
    CHECK_THROWS_AS(play(std::vector<Instruction>(1000, make(half))), InputError);
    CHECK_THROWS_AS(play({make(kTimeLimit + Duration(1))}), InputError);
    CHECK_THROWS_AS(play({make(Duration::max())}), InputError);
  }
}

TEST_CASE("transfers one after another do not pass the limit") {
  const auto transfers = [](int count) {
    std::vector<Instruction> instructions;
    for (std::int32_t c = 0; c < count; ++c) {
      instructions.push_back(use(Opcode::Collective, c));
    }
    instructions.push_back(use(Opcode::StreamWait, count - 1));
    return instructions;
  };
  CHECK_NOTHROW(play(transfers(2)));
  CHECK_THROWS_AS(play(transfers(3)), InputError);
}

TEST_CASE("work that interference stretches past the limit is refused") {
  EngineRules rules;
  rules.interference.compute = 1e12;
  const std::vector<Instruction> instructions = {use(Opcode::Collective, 0), work(kTimeLimit / 2)};
  CHECK_THROWS_AS(play(instructions, rules), InputError);
}

TEST_CASE("sums and formulas are held to the limit") {
  CHECK(bounded(kTimeLimit) == kTimeLimit);
  CHECK_THROWS_AS((void)bounded(kTimeLimit + Duration(1)), InputError);
  CHECK(bounded_duration(1) == Duration(1'000'000'000));
  CHECK_THROWS_AS((void)bounded_duration(1e9), InputError);
  CHECK_THROWS_AS((void)bounded_duration(1e300), InputError);
  CHECK_NOTHROW(check_total(kTimeLimit / 10, 10));
  CHECK_THROWS_AS(check_total(kTimeLimit / 10, 11), InputError);
  CHECK_NOTHROW(check_total(Duration::max(), 0));
}
