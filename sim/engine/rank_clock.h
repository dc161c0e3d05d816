#pragma once

#include "costmodel/base/units.h"

namespace stepsim {

/// A rank's clocks between steps.
struct RankClock {
  SimTime host;
  SimTime device;
  bool operator==(const RankClock&) const = default;
};

}  // namespace stepsim
