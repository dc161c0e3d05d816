#pragma once

#include <string_view>

namespace stepsim {

/// Says what a file is that this program reads in no form, by its first bytes, and what to do: a
/// web page, a pointer of Git LFS, UTF-16, an archive, a database. Empty: nothing is known of it.
[[nodiscard]] std::string_view foreign_file(std::string_view beginning);

}  // namespace stepsim
