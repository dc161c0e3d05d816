#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "calibrate/measure/measure.h"
#include "calibrate/ranks/launched_group.h"
#include "costmodel/terminal/question.h"

namespace stepsim {

/// The options of `stepcal measure` and `stepcal calibrate`.
struct MeasureOptions {
  std::vector<std::string> plans;
  std::optional<std::string> model;
  std::optional<std::int64_t> max_length;
  std::optional<std::int64_t> max_tokens;
  std::optional<std::string> dtype;
  std::optional<std::string> attention;
  std::optional<int> ranks;
  std::string bucket_cap = "25 MiB";
  std::string device = "cpu";
  std::string budget = "60 s";
  std::uint64_t seed = 0;
  std::string out;
  std::string samples;  ///< `calibrate` alone has it.
};

/// The rows of all but --out and --samples.
[[nodiscard]] std::vector<OptionRow> measure_options();

/// What the options ask to be measured into the file `samples`. `launched`: null without a
/// launcher. Raises InputError.
[[nodiscard]] MeasureRequest measure_request(const CommandRequest& asked,
                                             const MeasureOptions& options,
                                             const std::string& samples,
                                             LaunchedGroup* launched);

}  // namespace stepsim
