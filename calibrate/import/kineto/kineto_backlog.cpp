#include "calibrate/import/kineto/kineto_backlog.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <vector>

namespace stepsim {

std::map<std::int64_t, std::int64_t> kineto_backlog(std::vector<KinetoGpuWork> work,
                                                    std::int64_t first_call_ns) {
  constexpr std::int64_t kNext = 100'000;
  std::ranges::stable_sort(work, {}, [](const KinetoGpuWork& one) { return one.span.start_ns; });
  std::map<std::int64_t, std::int64_t> ends;
  std::set<std::int64_t> over;  // Streams whose backlog is known.
  for (const KinetoGpuWork& one : work) {
    if (over.count(one.stream) > 0) {
      continue;
    }
    const auto known = ends.find(one.stream);
    const bool follows = known != ends.end() && one.span.start_ns - kNext <= known->second;
    if (one.launched || (one.span.start_ns > first_call_ns && !follows)) {
      over.insert(one.stream);
    } else if (known == ends.end()) {
      ends[one.stream] = one.span.end_ns();
    } else {
      known->second = std::max(known->second, one.span.end_ns());
    }
  }
  return ends;
}

}  // namespace stepsim
