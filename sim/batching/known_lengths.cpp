#include "sim/batching/known_lengths.h"

#include <algorithm>
#include <utility>

namespace stepsim {

std::vector<std::int64_t> KnownLengths::of(const LengthSource& source, std::int64_t count) {
  constexpr std::size_t kMostSets = 4;
  constexpr std::size_t kMostSamples = std::size_t{1} << 22U;  // Of one set: 32 MiB.
  const auto is_it = [&](const Known& one) { return one.count == count && one.source == source; };
  {
    const std::lock_guard lock(mutex_);
    const auto known = std::ranges::find_if(known_, is_it);
    if (known != known_.end()) {
      known_.splice(known_.begin(), known_, known);
      return *known_.front().lengths;
    }
  }
  // Threads that come meanwhile generate them, too: few do, and none waits for another data set.
  std::vector<std::int64_t> lengths = generate_lengths(source, count);
  if (lengths.size() <= kMostSamples) {
    auto kept = std::make_shared<const std::vector<std::int64_t>>(lengths);
    const std::lock_guard lock(mutex_);
    if (std::ranges::none_of(known_, is_it)) {
      known_.push_front({source, count, std::move(kept)});
      known_.resize(std::min(known_.size(), kMostSets));
    }
  }
  return lengths;
}

}  // namespace stepsim
