#pragma once

#include <concepts>
#include <cstddef>

namespace stepsim {

/// Turns a number that counts from 0 into the index of a container. Numbers of ranks, buckets and
/// samples are signed, so that -1 can stand for none.
[[nodiscard]] constexpr std::size_t at(std::integral auto number) {
  return static_cast<std::size_t>(number);
}

}  // namespace stepsim
