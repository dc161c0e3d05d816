#pragma once

#include <cstdint>
#include <string>

namespace stepsim {

/// The window in which a policy looks for samples of similar length, where it does not sort them
/// all and gives consecutive batches to consecutive ranks.
struct SortWindow {
  std::string parameter;         ///< The parameter that sets it.
  std::int64_t samples = 0;      ///< Its size.
  std::int64_t samples_per = 1;  ///< Samples by which it grows with each 1 of the parameter.
};

}  // namespace stepsim
