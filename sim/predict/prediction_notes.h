#pragma once

#include "sim/predict/prediction.h"
#include "sim/predict/priced_run.h"

namespace stepsim {

/// Adds what the user of a prediction should know: where prices come from and what they leave out.
void add_notes(const PricedRun& run, Prediction& prediction);

}  // namespace stepsim
