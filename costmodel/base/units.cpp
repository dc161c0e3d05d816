#include "costmodel/base/units.h"

#include <stdexcept>

namespace stepsim {

void refuse_duration() {
  throw std::domain_error("a duration must be finite, not negative and below 292 years");
}

}  // namespace stepsim
