#pragma once

#include <cstddef>
#include <vector>

namespace stepsim {

/// About `count` of the places 0 .. size - 1, ascending, drawn evenly but not in step with the
/// order of what lies there; all of them if there are no more.
[[nodiscard]] std::vector<std::size_t> thinned_places(std::size_t size, std::size_t count);

}  // namespace stepsim
