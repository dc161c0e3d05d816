#pragma once

#include <string>

#include "costmodel/io/json_file.h"
#include "costmodel/terminal/screen.h"
#include "sim/study/diff/record_diff.h"

namespace stepsim {

/// A bound of a change as a part of what there was, of which no more than all can go.
[[nodiscard]] double shown_bound(const Effect& effect, double bound);

/// The table of the parts of a step: their means, and the ranks that moved, or all of few.
[[nodiscard]] std::string diff_parts_text(const RecordDiff& diff, const Screen& screen);
/// All parts of all ranks.
[[nodiscard]] Json diff_parts_json(const RecordDiff& diff);

}  // namespace stepsim
