#pragma once

#include <string>

namespace stepsim {

/// Quotes `text`, where needed, so that a POSIX shell reads it as one word.
[[nodiscard]] std::string shell_word(const std::string& text);

}  // namespace stepsim
