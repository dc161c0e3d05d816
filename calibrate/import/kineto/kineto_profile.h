#pragma once

#include <string>
#include <vector>

#include "calibrate/import/imported_profile.h"
#include "calibrate/import/kineto/kineto_record.h"
#include "calibrate/import/kineto/kineto_samples.h"

namespace stepsim {

/// What traces give a profile.
struct KinetoTaken {
  KinetoSamples samples;
  KinetoRecord steps;
};

/// Why the steps go into no profile; empty when they do.
[[nodiscard]] std::string why_no_steps(const KinetoRecord& steps);

/// Makes a profile of the collectives, and of the steps where there are enough, which are fitted as
/// those of a recorder. `files`: the traces'; `header`: of the collectives as samples. Raises
/// InputError as fit_profile() and fit_recorded_runs() do.
[[nodiscard]] ImportedProfile kineto_profile(const KinetoTaken& taken,
                                             const std::vector<std::string>& files,
                                             const Json& header,
                                             const ProfileRequest& request);

}  // namespace stepsim
