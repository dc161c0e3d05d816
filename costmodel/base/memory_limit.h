#pragma once

#include <cstddef>
#include <optional>

#include "costmodel/base/units.h"

namespace stepsim {

/// The memory that this process may take in all: with what it has, what the machine still has
/// available, or less where a control group or `ulimit -v` says so; or what was stated. Nothing
/// where the system does not tell. Inside MemoryShares it is one share of that.
[[nodiscard]] std::optional<Bytes> memory_limit();

/// States the limit, whatever the system says.
void set_memory_limit(Bytes limit);

/// The jobs that share the memory now.
[[nodiscard]] std::size_t memory_shares();

/// While this lives, so many jobs share the memory.
class MemoryShares {
 public:
  explicit MemoryShares(std::size_t jobs);
  ~MemoryShares();
  MemoryShares(const MemoryShares&) = delete;
  MemoryShares& operator=(const MemoryShares&) = delete;

 private:
  std::size_t before_;
};

}  // namespace stepsim
