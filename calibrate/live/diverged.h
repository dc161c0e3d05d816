#pragma once

#include <string>

#include "costmodel/records/run_record.h"

namespace stepsim {

/// Says in one line how many records have a loss that is not finite, and the first of them; empty
/// without any. A model that has diverged takes as long as any other: its times are kept.
[[nodiscard]] std::string diverged_text(const RunRecord& record);

}  // namespace stepsim
