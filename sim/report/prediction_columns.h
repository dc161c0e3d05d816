#pragma once

#include <cstdint>
#include <span>
#include <variant>
#include <vector>

#include "sim/predict/prediction.h"
#include "sim/report/columns.h"

namespace stepsim {

/// All figures of a prediction's summary, in the order of JSON and CSV.
[[nodiscard]] std::span<const Column<PredictionSummary>> summary_columns();

/// One figure of the row of a rank and step: its name in JSON and CSV, and where it is kept.
struct StepColumn {
  const char* name;
  std::variant<int RankStepResult::*, std::int64_t RankStepResult::*, double RankStepResult::*>
      member;
};

/// In the order of JSON and CSV.
[[nodiscard]] std::span<const StepColumn> step_columns();

}  // namespace stepsim
