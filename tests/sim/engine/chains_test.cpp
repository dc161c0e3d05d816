// Work that follows work under interference is one event of the engine, unless spans are recorded:
// then each piece of work has its own, in the order of time. Both must come to the same times.
#include <cstdint>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "sim/engine/engine.h"
#include "sim/engine/program_check.h"
#include "tests/sim/engine/random_programs.h"

using namespace stepsim;
using stepsim::test::check_equal;
using stepsim::test::RandomPrograms;

namespace {

/// Plays random programs both ways; returns the events of both.
std::pair<std::uint64_t, std::uint64_t> play_both_ways(std::uint64_t seeds,
                                                       Duration grain,
                                                       std::uint64_t longest) {
  std::pair<std::uint64_t, std::uint64_t> events;
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    CAPTURE(seed);
    RandomPrograms random(seed, grain, longest);
    const EngineRules rules = random.rules();
    const std::size_t ranks = 1 + random.below(4);
    Engine chains(rules, std::vector<RankClock>(ranks));
    Engine single(rules, std::vector<RankClock>(ranks));
    for (int step = 0; step < 3; ++step) {
      CAPTURE(step);
      const Program program = random.program(ranks, rules);
      if (collective_order(program, rules)) {
        continue;  // It is played without events.
      }
      check_equal(chains.play(program), single.play(program, true));
      REQUIRE(chains.clocks() == single.clocks());
    }
    events.first += chains.events_handled();
    events.second += single.events_handled();
  }
  return events;
}

}  // namespace

TEST_CASE("chains of work end when the work would end by itself") {
  const auto [chains, single] = play_both_ways(500, Duration(1), 200'000);
  MESSAGE("events: " << chains << " in chains, " << single << " one by one");
  CHECK(2 * chains < single);
}

TEST_CASE("chains of work: many things at one time") {
  for (const std::int64_t grain : {1, 1000}) {
    CAPTURE(grain);
    play_both_ways(200, Duration(grain), 8);
    play_both_ways(200, Duration(grain), 50);
  }
}
