#include "calibrate/fit/thinned_places.h"

#include <cstdint>

namespace stepsim {

std::vector<std::size_t> thinned_places(std::size_t size, std::size_t count) {
  std::vector<std::size_t> places;
  std::uint32_t state = 1;
  for (std::size_t i = 0; i < size; ++i) {
    state = state * 1664525U + 1013904223U;
    if (static_cast<double>(state) * 0x1p-32 * static_cast<double>(size) <
        static_cast<double>(count)) {
      places.push_back(i);
    }
  }
  return places;
}

}  // namespace stepsim
