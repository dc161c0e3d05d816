#include "sim/engine/time_limit.h"

#include "costmodel/base/input_error.h"

namespace stepsim {

void refuse_time() {
  throw InputError(
      "error: the simulated clock would pass nine years; some duration or factor is far too large");
}

}  // namespace stepsim
