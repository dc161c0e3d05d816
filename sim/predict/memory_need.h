#pragma once

#include <cstdint>

#include "sim/scenario/scenario.h"

namespace stepsim {

/// What stays in memory of each rank in each step, beside what every run needs of it.
enum class KeptRows {
  None,
  Rows,    ///< Prediction::steps.
  Samples  ///< The samples of the batches, which a plan file holds.
};

/// The memory that planning and predicting one policy takes at its peak, in bytes, by what takes
/// it. An estimate: half to twice what is measured.
struct MemoryNeed {
  double program = 0;        ///< The program itself, once for all that run at the same time.
  double samples = 0;        ///< The lengths of the data set and the batches of an epoch.
  double micro_batches = 0;  ///< Of all steps, with what is kept of the ranks' steps.
  double plan_text = 0;      ///< The text of a plan's file, while it is written.
  double step_times = 0;     ///< Of all runs with noise.
  double ranks = 0;          ///< The clocks and the work of one step.

  [[nodiscard]] double total() const {
    return program + samples + micro_batches + plan_text + step_times + ranks;
  }
};

struct MemoryUseOptions {
  KeptRows kept = KeptRows::None;
  int noise_runs = 0;
  bool training_effects = false;
};

/// `samples`: those of the data set, where the scenario does not say how many a file has.
[[nodiscard]] MemoryNeed memory_need(const Scenario& scenario,
                                     const BatchingPolicy& policy,
                                     const MemoryUseOptions& options,
                                     std::int64_t samples = 0);

/// Raises InputError: the memory that is available does not suffice. The message says what takes it
/// and what to do. MemoryShares need the program once.
void check_memory(const Scenario& scenario,
                  const BatchingPolicy& policy,
                  const MemoryUseOptions& options,
                  std::int64_t samples = 0);

/// Estimates the same of planning all policies, one after another: their batches stay, and the rest
/// is needed for one at a time.
void check_memory_of_plans(const Scenario& scenario);

}  // namespace stepsim
