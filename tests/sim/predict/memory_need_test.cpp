#include "sim/predict/memory_need.h"

#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "sim/predict/draws/noise_runs.h"
#include "tests/sim/scenario/scenario_text.h"

using namespace stepsim;

TEST_CASE(
    "very many ranks and steps afford fewer runs with noise, but 20 where so many are wanted") {
  CHECK(affordable_plain_runs(1e5, 100) == 100);
  CHECK(affordable_plain_runs(3e6, 100) == 50);
  CHECK(affordable_plain_runs(1e9, 100) == 20);
  CHECK(affordable_plain_runs(1e9, 5) == 5);
}

TEST_CASE("the memory of the ranks grows with their number") {
  const auto of_ranks = [](const char* ranks) {
    const std::vector<std::string> overrides = {ranks};
    const Scenario scenario = parse_scenario(test::kBlocksText, "blocks.toml", overrides);
    return memory_need(scenario, scenario.policies.front(), {}, 0).ranks;
  };
  CHECK(of_ranks("cluster.ranks=8") == 4 * of_ranks("cluster.ranks=2"));
}
