#pragma once

#include <string>

namespace stepsim {

/// Whole file as text, unpacked when it is gzip (known by its first two bytes, not by its name).
///
/// Raises InputError: missing or unreadable, damaged or cut gzip, more than 1 GiB unpacked.
[[nodiscard]] std::string read_text_or_gzip(const std::string& path);

}  // namespace stepsim
