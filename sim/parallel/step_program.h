#pragma once

#include <cstdint>
#include <vector>

#include "sim/engine/execution_trace.h"
#include "sim/engine/program.h"
#include "sim/parallel/step.h"
#include "sim/parallel/step_work.h"

namespace stepsim {

/// One optimizer step as a program, and what its collectives are.
struct StepProgram {
  Program program;
  std::vector<CollectiveUse> uses;  ///< [collective]
  /// The passes themselves wait for collectives, as where parameters are gathered.
  bool waits_within = false;
};

/// Marks of a program: numbers that an instruction holds.
// NOLINTNEXTLINE(readability-identifier-naming): they are constants rather than kinds.
enum StepMark : std::int32_t { kStepStart, kDataEnd, kForwardEnd, kBackwardEnd, kStepMarks };

/// A program without instructions, for a step of a model. Throws std::invalid_argument when the
/// work does not fit the model (kernels per op, iterations per micro-batch).
[[nodiscard]] StepProgram empty_program(const TrainedModel& model, const StepWork& step);

/// What happened when a program was played, in the form that reports use.
[[nodiscard]] StepTimeline timeline_of(const ExecutionTrace& played, const StepProgram& program);

}  // namespace stepsim
