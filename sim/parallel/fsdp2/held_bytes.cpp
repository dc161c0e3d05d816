#include "sim/parallel/fsdp2/held_bytes.h"

#include <numeric>

namespace stepsim {

std::string_view name_of(HeldFor kind) {
  constexpr std::array<std::string_view, kHeldKinds> kNames = {"parameters",
                                                               "gathered parameters",
                                                               "slices of parameters",
                                                               "gather buffers",
                                                               "cast buffers",
                                                               "gradients",
                                                               "unreduced gradients",
                                                               "reduce-scatter inputs",
                                                               "reduced gradients",
                                                               "partly reduced gradients",
                                                               "sharded gradients",
                                                               "optimizer"};
  return kNames[static_cast<std::size_t>(kind)];
}

std::int64_t HeldBytes::total() const {
  return std::accumulate(bytes_.begin(), bytes_.end(), std::int64_t{0});
}

}  // namespace stepsim
