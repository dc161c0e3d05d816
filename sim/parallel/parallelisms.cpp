#include <algorithm>
#include <array>
#include <stdexcept>

#include "sim/parallel/parallelism.h"

namespace stepsim {

// A row a kind: the declaration of what its folder defines, and its place in the list.
const Parallelism& ddp();
const Parallelism& deepspeed_zero();
const Parallelism& fsdp1();
const Parallelism& fsdp2();
const Parallelism& zero3();

std::span<const Parallelism* const> parallelisms() {
  static const std::array<const Parallelism*, 5> kKinds = {
      &ddp(), &fsdp2(), &fsdp1(), &deepspeed_zero(), &zero3()};
  return kKinds;
}

const Parallelism& parallelism_named(std::string_view name) {
  const auto kinds = parallelisms();
  const auto found = std::ranges::find(kinds, name, &Parallelism::name);
  if (found == kinds.end()) {
    throw std::logic_error("no such kind of parallelism");
  }
  return **found;
}

}  // namespace stepsim
