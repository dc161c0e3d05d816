#pragma once

#include <string>

#include "calibrate/import/step_times/step_time_fit.h"
#include "costmodel/records/profile.h"

namespace stepsim {

/// Makes a profile of a fit: the model's passes by batch as they were timed, straight lines between
/// them, what several ranks add, and the links; with draws of all coefficients together. `base`
/// gives what step times do not tell, as memory; null: nothing.
[[nodiscard]] Profile step_time_profile(const StepTimeFit& fit, const Profile* base);

/// Returns a scenario of that profile, to be edited: the largest placement of the table, a policy
/// for each batch, the micro-batches that all rows have. `profile` is named in it as it stands.
[[nodiscard]] std::string step_time_scenario(const StepTimeFit& fit,
                                             const StepTimeTable& table,
                                             const std::string& profile,
                                             std::int64_t first_bucket_bytes,
                                             std::int64_t bucket_cap_bytes);

}  // namespace stepsim
