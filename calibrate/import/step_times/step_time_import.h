#pragma once

#include <optional>
#include <string>
#include <vector>

#include "calibrate/import/imported_profile.h"
#include "costmodel/base/units.h"

namespace stepsim {

/// What is trained. Exactly one is stated.
struct StepTimeModel {
  std::string preset;          ///< A name.
  std::string tensors;         ///< A CSV file of tensors: name, shape.
  std::string record;          ///< A run record that describes its model.
  std::string gradient_bytes;  ///< A size, "97 MiB".

  [[nodiscard]] bool is_one() const;
};

inline constexpr const char* kOneModel =
    "say what is trained by one of --preset NAME, --tensors FILE, --record RUN.jsonl and "
    "--gradient-bytes SIZE";

/// A table of step times to make a profile of. Files are empty where there are none.
struct StepTimeImport {
  std::string table;
  StepTimeModel model;
  std::string bucket_cap;        ///< A size; empty: DDP's default.
  std::string first_bucket_cap;  ///< A size; empty: DDP's default.
  std::string links;             ///< A profile whose fitted links are those of this cluster.
  std::string scenario;          ///< The file that the scenario will be written to.
  bool no_overlap = false;       ///< The job reduces its gradients after the backward.
  std::vector<std::string> ask;  ///< "8x4", or "8x4:16" with the batch; empty: the usual questions.
  bool answers = false;          ///< The answers are wanted as CSV, too.
  ProfileRequest profile;        ///< Without a command: the one of `stepcal import step-times`.
};

/// What a table of step times gives.
struct ImportedStepTimes {
  ImportedProfile profile;
  std::string scenario;  ///< As TOML, to be edited; empty where none is asked for.
  std::string answers;   ///< As CSV; empty where they are not wanted.
};

/// Makes a profile of step times that were written down. Raises FieldError for a text in `import`
/// that cannot be read, and InputError: no model or several are stated, a file cannot be read, and
/// as fit_step_times().
[[nodiscard]] ImportedStepTimes import_step_times(const StepTimeImport& import);

}  // namespace stepsim
