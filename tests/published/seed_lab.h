#pragma once

#include <string>
#include <vector>

#include "calibrate/import/recorded/recorded_run.h"
#include "sim/predict/prediction.h"
#include "sim/scenario/scenario.h"

namespace stepsim::published {

/// scenarios/token_skew.toml
[[nodiscard]] Scenario seed_lab_scenario();

/// A measured case of the token-skew lab as a run record, with the plan of the policy of that name.
/// Ranks start each step when they ended the one before; the compute time, which holds the
/// optimizer, is booked as a third forward and two thirds backward. Reads seed_lab/measured.csv.
[[nodiscard]] RecordedRun seed_lab_run(const std::string& data, const std::string& name);

/// A case by a profile of whole steps, fitted to the cases `from`.
[[nodiscard]] Prediction seed_lab_prediction(const std::string& data,
                                             const std::vector<std::string>& from,
                                             const std::string& name);

/// Mean milliseconds from the last rank's start to the last rank's end, of the steady steps.
[[nodiscard]] double measured_step_ms(const RecordedRun& run);

/// The same of another plan by the naive fit a + b T + c T L to the steady steps of a run, T and L
/// the padded tokens and length of the rank with the most T L; least squares, the least
/// coefficients (of terms in units of their largest) where steps do not determine them.
[[nodiscard]] double three_term_step_ms(const RecordedRun& from, const Plan& plan);

}  // namespace stepsim::published
