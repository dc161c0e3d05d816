#pragma once

#include <span>
#include <string>

#include "calibrate/import/step_times/step_time_advice.h"
#include "costmodel/terminal/screen.h"

namespace stepsim {

/// Says how well a fit describes its table and what it found: the error of every group of
/// placements, each coefficient with its 90 % interval and whether the table tells it, and which
/// row to time next.
[[nodiscard]] std::string step_time_report(const StepTimeFit& fit,
                                           const StepTimeTable& table,
                                           std::span<const StepTimeQuestion> questions,
                                           std::span<const NextRun> next,
                                           const Screen& screen);

/// Each question with its step, its exposed communication and the intervals of 50, 80, 90 and 95 %,
/// in milliseconds, and its micro-batches, as CSV.
[[nodiscard]] std::string step_time_answers(const StepTimeFit& fit,
                                            std::span<const StepTimeQuestion> questions);

}  // namespace stepsim
