#pragma once

#include <vector>

#include "sim/ask/question.h"

namespace stepsim {

/// All questions, as the list in sim/meson.build has them. The build makes the source file of it:
/// a question called `x` there has a function `Question x_question()` in its own file.
[[nodiscard]] const std::vector<Question>& questions();

/// Returns one of them. Raises InputError: there is none of this name.
[[nodiscard]] const Question& question_named(const std::string& name);

}  // namespace stepsim
