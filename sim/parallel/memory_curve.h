#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "costmodel/base/units.h"
#include "costmodel/model/memory.h"

namespace stepsim {

/// What a rank holds from some event of a step on.
struct HeldPoint {
  MemoryMoment moment;      ///< Its sums, and which activations there are.
  std::vector<Bytes> held;  ///< [part] The optimizer's state and activations are not among them.
  std::string event;        ///< "gather of layer3"
  int micro_batch = 0;
  bool backward = false;
  int ops = 0;  ///< Of the pass, begun by now.
};

/// What a rank holds over a step, in the order in which its host allocates and frees.
struct HeldCurve {
  std::vector<std::string_view> parts;
  std::vector<HeldPoint> points;  ///< None: the kind of parallelism does not say.
};

}  // namespace stepsim
