#include "sim/engine/engine.h"

#include <stdexcept>
#include <utility>

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
  return ProgramExecution(*this, program, record_spans).play();
}

}  // namespace stepsim
