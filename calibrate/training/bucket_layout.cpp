#include "calibrate/training/bucket_layout.h"

#include <algorithm>

#include "costmodel/base/input_error.h"

namespace stepsim {

void BucketLayout::assign(const std::vector<std::vector<int>>& buckets,
                          const std::vector<std::int64_t>& elements) {
  std::vector<int> seen(elements.size(), 0);
  for (const auto& bucket : buckets) {
    for (const int parameter : bucket) {
      if (parameter < 0 || static_cast<std::size_t>(parameter) >= elements.size()) {
        throw InputError("buckets: the model has no parameter {}", parameter);
      }
      ++seen[static_cast<std::size_t>(parameter)];
    }
  }
  const auto wrong = std::ranges::find_if(seen, [](int count) { return count != 1; });
  if (wrong != seen.end()) {
    throw InputError(
        "buckets: parameter {} appears {} times, expected once", wrong - seen.begin(), *wrong);
  }
  buckets_.clear();
  places_.assign(elements.size(), {});
  for (const auto& list : buckets) {
    Bucket& bucket = buckets_.emplace_back();
    bucket.parameters = list;
    for (const int parameter : list) {
      const auto p = static_cast<std::size_t>(parameter);
      places_[p] = {buckets_.size() - 1, bucket.elements};
      bucket.elements += elements[p];
    }
  }
}

void BucketLayout::start_step() {
  next_ = 0;
  for (Bucket& bucket : buckets_) {
    bucket.pending = static_cast<int>(bucket.parameters.size());
  }
}

bool BucketLayout::next_ready(std::size_t& bucket) {
  if (next_ == buckets_.size() || buckets_[next_].pending > 0) {
    return false;
  }
  bucket = next_++;
  return true;
}

}  // namespace stepsim
