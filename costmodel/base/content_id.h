#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <fmt/format.h>

namespace stepsim {

/// A name for a file's content, 16 hexadecimal digits (64-bit FNV-1a): tells files apart that have
/// one name, and is no protection against forgery.
[[nodiscard]] inline std::string content_id(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  }
  return fmt::format("{:016x}", hash);
}

}  // namespace stepsim
