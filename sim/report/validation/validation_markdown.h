#pragma once

#include <string>

#include "sim/report/validation/validation_sources.h"
#include "sim/study/validate.h"

namespace stepsim {

/// The whole validation as a page of GitHub's Markdown: verdict first, then what was compared, the
/// tables, a sentence on each policy, and what to do next. `bound` is a fraction.
[[nodiscard]] std::string validation_markdown(const Validation& validation,
                                              const ValidationSources& sources,
                                              double bound);

}  // namespace stepsim
