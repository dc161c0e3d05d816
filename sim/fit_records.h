#pragma once

#include "sim/study/advice.h"

namespace stepsim {

/// Fits a profile to run records by `calibrate`, which nothing else in `sim` knows. Raises
/// InputError where they allow no fit.
[[nodiscard]] FittedRecords fit_records(const RecordsToFit& records);

}  // namespace stepsim
