#pragma once

#include <cstdint>

#include "costmodel/base/units.h"

namespace stepsim {

/// The times of one micro-batch that somebody measured, which take the place of a profile.
struct MeasuredTimes {
  Duration forward{0};
  Duration backward{0};
  Duration optimizer{0};    ///< All that follows the last bucket.
  std::int64_t tokens = 0;  ///< Padded tokens they were measured with; 0: the same for any batch.
  /// The standard deviation of all of them, as a fraction: what they are off by together.
  double error = 0.03;
  /// Bytes that DDP's own copies read and write per second; 0: copies are free.
  double copy_bytes_per_s = 0;
};

}  // namespace stepsim
