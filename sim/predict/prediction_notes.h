#pragma once

#include "sim/predict/prediction.h"
#include "sim/predict/run/run.h"

namespace stepsim {

/// Adds what the user of a prediction should know: where prices come from and what they leave out.
void add_notes(const Run& run, Prediction& prediction);

}  // namespace stepsim
