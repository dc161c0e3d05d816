#pragma once

#include <cstddef>
#include <functional>

namespace stepsim {

/// Does `work(0)` to `work(count - 1)` on several threads, of which the caller's is one. When one
/// throws, no more are begun, and the exception of the first that threw, by number, is raised:
/// which one does not depend on the threads.
///
/// Args:
///     threads: At most so many; 0 is one a core.
void parallel_for(std::size_t count, int threads, const std::function<void(std::size_t)>& work);

}  // namespace stepsim
