#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "calibrate/samples/samples.h"
#include "costmodel/records/profile.h"
#include "costmodel/terminal/screen.h"

namespace stepsim {

/// What an import is asked to make.
struct ProfileRequest {
  std::string out;           ///< The profile's file, or "-"; its stem is the profile's name.
  std::string base;          ///< The file of the profile to put all of it into; empty: none.
  std::string command = {};  ///< The command line that asks for it; empty: as the import has it.
};

/// A profile that an import made, and what the import says of it. Nothing is written yet.
// NOLINTNEXTLINE(bugprone-exception-escape): moving an ordered_json is not marked noexcept.
struct ImportedProfile {
  Profile profile;
  /// How well it fits and what was found, laid out for a screen.
  std::function<std::string(const Screen& screen)> report;
  std::string next;                   ///< The command to go on with.
  std::vector<std::string> warnings;  ///< What not to use it for; the report has them, too.
};

/// The report, the files that were written ("mine.json") and the command to go on with.
[[nodiscard]] std::string import_text(const ImportedProfile& imported,
                                      const std::string& written,
                                      const Screen& screen);

/// "stepcal import KIND WORDS", quoted for a shell: the command that does what a function is asked.
[[nodiscard]] std::string import_command_line(const std::string& kind,
                                              const std::vector<std::string>& words);

/// Raises InputError where the profile would overwrite one of these files, or its base.
void keep_inputs(const ProfileRequest& request, const std::vector<std::string>& inputs);

/// The profile to start from; nothing where none is named. Raises InputError.
[[nodiscard]] std::optional<Profile> read_base(const ProfileRequest& request);

/// Fits a profile to imported samples. `files` names what was imported. Raises as fit_profile().
[[nodiscard]] ImportedProfile profile_of_samples(const SampleSet& samples,
                                                 const std::string& files,
                                                 const ProfileRequest& request);

}  // namespace stepsim
