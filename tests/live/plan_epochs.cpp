/// Plans epochs of a data set as often as it is asked, and says what each took.
///
///     plan_epochs SCENARIO POLICY LENGTHS RANKS
///
/// LENGTHS: a file of 64-bit integers, one a sample. Reads numbers of epochs from standard input
/// and answers each with a line of seconds, to plan it, to list the batches of rank 0 and to free
/// both, and of steps.
#include <chrono>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include "costmodel/base/input_error.h"
#include "sim/batching/epoch_planner.h"
#include "sim/predict/step_cost.h"
#include "sim/scenario/scenario.h"

using namespace stepsim;

namespace {

std::vector<std::int64_t> read_lengths(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  std::vector<std::int64_t> lengths(static_cast<std::size_t>(file.tellg()) / sizeof(std::int64_t));
  file.seekg(0);
  file.read(reinterpret_cast<char*>(lengths.data()),
            static_cast<std::streamsize>(lengths.size() * sizeof(std::int64_t)));
  return lengths;
}

void answer(const std::string& file,
            const std::string& policy_name,
            const std::string& lengths,
            int ranks) {
  const Scenario scenario = read_scenario(file, {});
  const BatchingPolicy& policy = find_policy(scenario, policy_name);
  const PlanningCost cost = planning_cost(scenario, policy);
  const EpochPlanner planner(
      policy,
      read_lengths(lengths),
      {scenario.sampler, ranks, cost.batch, cost.shape_seconds, UnevenRanks::Repeat});
  int number = 0;
  while (std::cin >> number) {
    const auto begin = std::chrono::steady_clock::now();
    std::size_t steps = 0;
    {
      const PlannedEpoch epoch = planner.epoch(number);
      steps = epoch.rank(0).offsets.size() - 1;
    }
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    std::cout << took.count() << ' ' << steps << std::endl;
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) {
    std::cerr << "usage: plan_epochs SCENARIO POLICY LENGTHS RANKS\n";
    return 2;
  }
  try {
    answer(argv[1], argv[2], argv[3], std::stoi(argv[4]));
  } catch (const InputError& error) {
    std::cerr << error.what() << '\n';
    return 2;
  }
  return 0;
}
