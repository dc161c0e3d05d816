#pragma once

#include <string>

#include "costmodel/io/json_file.h"
#include "costmodel/terminal/table.h"
#include "sim/report/validation/validation_sources.h"
#include "sim/study/validate.h"

namespace stepsim {

/// The policies: predicted and measured step time with every error.
[[nodiscard]] Table step_time_table(const Validation& validation, bool wide);
/// What each part of the step adds to the error of the mean.
[[nodiscard]] Table part_error_table(const Validation& validation, bool wide);

/// Both tables, the findings and the verdict for a bound on the error of the mean, a fraction.
[[nodiscard]] std::string validation_text(const Validation& validation,
                                          const ValidationSources& sources,
                                          double bound,
                                          const Screen& screen = {});
/// {"format": "stepsim-validation/1", …}
[[nodiscard]] Json validation_json(const Validation& validation,
                                   const ValidationSources& sources,
                                   double bound);
/// One row a policy.
[[nodiscard]] std::string validation_csv(const Validation& validation);

}  // namespace stepsim
