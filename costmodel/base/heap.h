#pragma once

namespace stepsim {

/// Lets the C library keep the memory that is freed, rather than give it back to the system and
/// ask for it again a moment later: simulations allocate and free the same few MiB over and over,
/// and each page that comes back must be cleared. For the start of a program; elsewhere than with
/// glibc it does nothing.
void keep_freed_memory();

}  // namespace stepsim
