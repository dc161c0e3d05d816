#pragma once

#include <string>

namespace stepsim {

/// Reads a whole file as text and unpacks gzip, which it recognises by the first two bytes, not by
/// the name.
///
/// Raises InputError: the file is missing or unreadable, the gzip data is damaged or cut short, or
/// the text is larger than 1 GiB.
[[nodiscard]] std::string read_text_or_gzip(const std::string& path);

}  // namespace stepsim
