#pragma once

#include <string>

namespace stepsim {

/// `text` as one word of a POSIX shell.
[[nodiscard]] std::string shell_word(const std::string& text);

}  // namespace stepsim
