#pragma once

#include <string>
#include <vector>

#include "costmodel/io/json_file.h"
#include "costmodel/terminal/screen.h"
#include "sim/study/blame.h"

namespace stepsim {

/// A table of what each change would save, who was last, what was exposed; the last sentence names
/// the largest saving and the command to try next.
[[nodiscard]] std::string blame_text(const Scenario& scenario,
                                     const Blame& blame,
                                     const Screen& screen = {});
/// {"format": "stepsim-blame/1", …}
[[nodiscard]] Json blame_json(const Blame& blame);
/// The rows of the table: all changes, of the ranks with the median load the first few.
[[nodiscard]] std::vector<Saving> shown_savings(const Blame& blame);
/// What would be different: "communication took no time".
[[nodiscard]] std::string saving_words(const Saving& saving);
/// One row a change.
[[nodiscard]] std::string blame_csv(const Blame& blame);

}  // namespace stepsim
