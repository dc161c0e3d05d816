#pragma once

#include <string>
#include <vector>

#include "costmodel/records/profile.h"
#include "costmodel/records/run_record.h"
#include "sim/scenario/scenario.h"

namespace stepsim {

/// A live record, without its steps.
struct LiveFile {
  std::string path;
  RunRecord header;
};

/// Where the figures of a validation come from: what its reports state beside them.
struct ValidationSources {
  std::string command;  ///< Quoted so that a shell takes it.
  Scenario scenario;
  std::string profile_path;  ///< The path that the user gave; empty: none.
  Profile profile;
  std::string predictions_path;   ///< Empty: predicted now.
  std::string predicted_at;       ///< When that file was last written, UTC; empty: not known.
  std::string predicted_with;     ///< Name of the profile that it names.
  std::string predicted_with_id;  ///< And its id; empty where the file has none.
  std::vector<LiveFile> live;
};

/// When a prediction was made, seen from the live runs.
enum class PredictionTime { Before, After, Now, Unknown };

/// Compares the live records' `started_at` with the file's time. started_at holds whole seconds, so
/// that a file of the same second counts as made before.
[[nodiscard]] PredictionTime prediction_time(const ValidationSources& sources);

/// What the sources themselves make doubtful: a prediction made after a live run or with another
/// profile, live runs that the profile was fitted to, on other devices, or emulated.
[[nodiscard]] std::vector<std::string> source_warnings(const ValidationSources& sources);

}  // namespace stepsim
