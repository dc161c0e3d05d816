#pragma once

#include <optional>
#include <string>

#include "costmodel/records/profile.h"
#include "costmodel/terminal/answer.h"

namespace stepsim {

/// What `stepcal fit` is to do.
// NOLINTNEXTLINE(bugprone-exception-escape): moving an ordered_json is not marked noexcept.
struct FitTask {
  std::string samples;  ///< The samples file.
  std::string out;      ///< The profile to write, or "-".
  std::string command;  ///< The command line that asks for it.
  bool monotone = false;
  std::optional<Profile> base = std::nullopt;
  std::string plot = {};  ///< The file for the errors at all points, as SVG; empty: none.
};

/// Reads the samples; the answer that follows fits them, and writes the profile. Raises InputError,
/// EnvironmentFault.
[[nodiscard]] Answer fit_answer(const FitTask& task);

}  // namespace stepsim
