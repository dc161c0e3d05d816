#pragma once

#include <vector>

#include "costmodel/terminal/question.h"

namespace stepsim {

/// A command of stepcal: its options, help, man page and completion are made of this row.
using StepcalCommand = QuestionRow<CommandRequest>;

/// All commands, as the list in calibrate/meson.build has them. The build makes the source file of
/// it: a command called "import x-y" there has a function `StepcalCommand import_x_y_command()`.
[[nodiscard]] const std::vector<StepcalCommand>& stepcal_commands();

/// Raises InputError where an option was not given: "no WHAT given".
void require_given(const CommandRequest& request,
                   const std::string& value,
                   const std::string& what);

}  // namespace stepsim
