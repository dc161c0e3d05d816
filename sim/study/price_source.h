#pragma once

#include <string>

#include "costmodel/records/profile.h"
#include "sim/predict/prediction.h"
#include "sim/scenario/scenario.h"

namespace stepsim {

/// Names where the costs of a prediction's ops come from: "scenario" (times in its file),
/// "measured", "published" (see compute_prices_origin()), or "extrapolated" when some op has a size
/// that the profile does not know.
[[nodiscard]] std::string op_source(const Scenario& scenario,
                                    const Profile& profile,
                                    const Prediction& prediction);

/// Names where the costs of its collectives come from; of several kinds the least certain counts.
/// Beside the words of op_source() there are "interpolated" and "extrapolated" (between and beyond
/// the measured numbers of ranks), "links" (closed forms over cluster.topology), "NCCL model", and
/// "none" for one rank.
[[nodiscard]] std::string collective_source(const Scenario& scenario,
                                            const Profile& profile,
                                            const Prediction& prediction);

}  // namespace stepsim
