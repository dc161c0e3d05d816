#pragma once

#include <string>

#include "costmodel/records/profile.h"
#include "sim/predict/prediction.h"
#include "sim/scenario/scenario.h"

namespace stepsim {

/// Where the costs of a prediction's ops come from: "scenario" (times in its file), "measured",
/// "published" (a profile composed of figures that others published), or "extrapolated" when some
/// op has a size that the profile does not know.
[[nodiscard]] std::string op_source(const Scenario& scenario,
                                    const Profile& profile,
                                    const Prediction& prediction);

/// The same for its collectives, the least certain of them: also "interpolated" and "extrapolated"
/// between and beyond tables, "links" (closed forms over cluster.topology), "NCCL model", and
/// "none" for one rank.
[[nodiscard]] std::string collective_source(const Scenario& scenario,
                                            const Profile& profile,
                                            const Prediction& prediction);

}  // namespace stepsim
