#include "sim/engine/engine.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "sim/engine/ordered_execution.h"
#include "sim/engine/program_execution.h"

namespace stepsim {

Engine::Engine(EngineRules rules, std::span<const RankClock> clocks)
    : rules_(std::move(rules)), clocks_(clocks.begin(), clocks.end()) {
  if (clocks_.empty()) {
    throw std::invalid_argument("engine: no ranks");
  }
  if (rules_.queue_depth < 0) {
    throw std::invalid_argument("engine: a negative queue depth");
  }
  queues_.resize(clocks_.size());
}

ExecutionTrace Engine::play(const Program& program, bool record_spans) {
  check_program(program, rules_, clocks_.size());
  if (!record_spans) {
    if (const auto order = collective_order(program, rules_)) {
      return play(program, *order);
    }
  }
  return ProgramExecution(*this, program, record_spans).play();
}

ExecutionTrace Engine::play(const Program& program, const CollectiveOrder& order) {
  const bool has_workers = std::ranges::any_of(
      rules_.communicators, [](const Communicator& one) { return one.workers > 1; });
  // What goes wrong behind a bound queue has changed it.
  if (!has_workers || rules_.queue_depth == 0) {
    if (auto trace = OrderedExecution(*this, program, order).play()) {
      return std::move(*trace);
    }
  }
  return ProgramExecution(*this, program, false).play();
}

}  // namespace stepsim
