#include "costmodel/base/heap.h"

#include <cstdlib>

#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace stepsim {

void keep_freed_memory() {
#ifdef __GLIBC__
  // Above these sizes memory goes back at once. The first may be 32 MiB at most.
  constexpr int kMiB = 1 << 20;
  mallopt(M_MMAP_THRESHOLD, 32 * kMiB);
  mallopt(M_TRIM_THRESHOLD, 512 * kMiB);
#endif
}

}  // namespace stepsim
