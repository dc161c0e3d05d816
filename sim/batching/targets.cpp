#include "sim/batching/targets.h"

#include <algorithm>
#include <cmath>

#include "costmodel/base/input_error.h"
#include "sim/batching/random/random.h"

namespace stepsim {
namespace {

std::vector<std::int64_t> scaled(const TargetSource& targets,
                                 std::span<const std::int64_t> lengths) {
  PythonRandom random(targets.seed);
  std::vector<std::int64_t> result;
  for (const std::int64_t length : lengths) {
    const double scatter = targets.sigma > 0 ? std::exp(targets.sigma * random.normal()) : 1;
    const double target =
        std::max(1.0, std::nearbyint(static_cast<double>(length) * targets.ratio * scatter));
    const bool cut = targets.cap > 0 && target > static_cast<double>(targets.cap);
    if (!cut && target > static_cast<double>(kMaxSampleLength)) {
      throw InputError(
          "a target of {:.0f} tokens; at most {}; lower ratio or sigma, "
          "or give a cap",
          target,
          kMaxSampleLength);
    }
    result.push_back(cut ? targets.cap : static_cast<std::int64_t>(target));
  }
  return result;
}

/// A source that cannot give any number of lengths.
bool is_file(const LengthSource& source) {
  return has_own_count(source) && source.kind != LengthSource::Kind::Histogram;
}

}  // namespace

void check_targets(const TargetSource& targets) {
  if (targets.source) {
    check_lengths(*targets.source);
    return;
  }
  if (!(std::isfinite(targets.ratio) && targets.ratio > 0)) {
    throw InputError("ratio: expected a number above 0");
  }
  if (!(std::isfinite(targets.sigma) && targets.sigma >= 0)) {
    throw InputError("sigma: expected a number, 0 or more");
  }
}

std::vector<std::int64_t> generate_targets(const TargetSource& targets,
                                           std::span<const std::int64_t> lengths,
                                           bool whole) {
  check_targets(targets);
  if (!targets.source) {
    return scaled(targets, lengths);
  }
  LengthSource source = *targets.source;
  source.targets = true;
  const std::int64_t count = whole && is_file(source) ? 0 : std::ssize(lengths);
  std::vector<std::int64_t> result = generate_lengths(source, count);
  if (result.size() != lengths.size()) {
    throw InputError("data.targets: {} target lengths for {} samples; expected one each",
                     result.size(),
                     lengths.size());
  }
  return result;
}

}  // namespace stepsim
