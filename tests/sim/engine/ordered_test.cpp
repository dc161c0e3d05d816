// Where the order of a program's collectives is known, the engine plays it without events. Where
// spans are recorded it always has events. Both must come to the same times.
#include <cstdint>
#include <vector>

#include <doctest/doctest.h>

#include "sim/engine/engine.h"
#include "sim/engine/program_check.h"
#include "tests/sim/engine/random_programs.h"

using namespace stepsim;
using stepsim::test::check_equal;
using stepsim::test::RandomPrograms;

namespace {

/// How many of the programs were played without events.
struct PlayedPrograms {
  int slowed = 0;  ///< Under interference,
  int alone = 0;   ///< and without.
  int by_events = 0;
};

PlayedPrograms play_with_and_without_events(std::uint64_t seeds,
                                            Duration grain,
                                            std::uint64_t longest) {
  PlayedPrograms played;
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    CAPTURE(seed);
    RandomPrograms random(seed, grain, longest, true);
    EngineRules rules = random.rules();
    if (random.below(3) == 0) {
      rules.interference = {};
    }
    const std::size_t ranks = 1 + random.below(5);
    Engine in_order(rules, std::vector<RankClock>(ranks));
    Engine by_events(rules, std::vector<RankClock>(ranks));
    for (int step = 0; step < 3; ++step) {
      CAPTURE(step);
      const Program program = random.program(ranks, rules);
      const bool ordered = collective_order(program, rules).has_value();
      (ordered ? rules.interference.active() ? played.slowed : played.alone : played.by_events)++;
      check_equal(in_order.play(program), by_events.play(program, true));
      REQUIRE(in_order.clocks() == by_events.clocks());
    }
  }
  return played;
}

}  // namespace

TEST_CASE("programs without events end when they end with events") {
  const PlayedPrograms played = play_with_and_without_events(1500, Duration(1), 200'000);
  MESSAGE("played without events: " << played.slowed << " under interference, " << played.alone
                                    << " others; " << played.by_events << " by events");
  CHECK(played.slowed > 1000);
  CHECK(played.alone > 300);
}

TEST_CASE("programs without events: many things at one time") {
  for (const std::int64_t grain : {1, 1000}) {
    CAPTURE(grain);
    play_with_and_without_events(300, Duration(grain), 8);
    play_with_and_without_events(300, Duration(grain), 50);
  }
}
