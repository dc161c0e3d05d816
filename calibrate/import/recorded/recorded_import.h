#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "calibrate/import/imported_profile.h"
#include "calibrate/import/recorded/recorded_run.h"

namespace stepsim {

/// Run records to make a profile of.
struct RunRecordImport {
  std::vector<std::string> records;  ///< Files; those of single ranks are joined.
  std::vector<std::string> plans;    ///< Files of what they ran; empty: the records tell it.
  RecordedForm form = RecordedForm::Passes;
  ProfileRequest profile;  ///< Without a command: the one of `stepcal import run-record`.
};

/// Makes a profile of a training's own steps. Raises InputError: a file cannot be read; plans or
/// records that do not belong together; and as fit_recorded_runs().
[[nodiscard]] ImportedProfile import_run_records(const RunRecordImport& import);

/// Makes a profile of the costs of these runs and of `base`, with what is said of both.
[[nodiscard]] ImportedProfile profile_of_runs(const RecordedCosts& costs,
                                              std::span<const RecordedRun> runs,
                                              const std::optional<Profile>& base,
                                              const ProfileRequest& request);

}  // namespace stepsim
