#include "calibrate/cpu/bucket_list.h"

#include <algorithm>

#include <fmt/core.h>

#include "calibrate/cpu/rows.h"
#include "costmodel/input_error.h"

namespace stepsim::cpu {

void BucketList::assign(const std::vector<std::vector<int>>& buckets, const ParameterStore& store) {
  std::vector<int> seen(store.size(), 0);
  for (const auto& bucket : buckets) {
    for (const int parameter : bucket) {
      if (parameter < 0 || static_cast<std::size_t>(parameter) >= store.size()) {
        throw InputError(fmt::format("buckets: the model has no parameter {}", parameter));
      }
      ++seen[static_cast<std::size_t>(parameter)];
    }
  }
  const auto wrong = std::find_if(seen.begin(), seen.end(), [](int count) { return count != 1; });
  if (wrong != seen.end()) {
    throw InputError(fmt::format(
        "buckets: parameter {} appears {} times, expected once", wrong - seen.begin(), *wrong));
  }
  buckets_.clear();
  places_.assign(store.size(), {});
  for (const auto& list : buckets) {
    Bucket& bucket = buckets_.emplace_back();
    bucket.parameters = list;
    for (const int parameter : list) {
      const auto p = static_cast<std::size_t>(parameter);
      places_[p] = {buckets_.size() - 1, bucket.elements};
      bucket.elements += store.elements(p);
    }
    bucket.buffer.reserve(static_cast<std::size_t>(bucket.elements));
  }
}

std::span<float> BucketList::data(std::size_t bucket) {
  Bucket& b = buckets_[bucket];
  return {b.buffer.data(), static_cast<std::size_t>(b.elements)};
}

void BucketList::start_step() {
  next_ = 0;
  for (Bucket& bucket : buckets_) {
    bucket.pending = static_cast<int>(bucket.parameters.size());
  }
}

void BucketList::copy_in(const ParameterStore& store, int parameter, float factor) {
  const auto p = static_cast<std::size_t>(parameter);
  Bucket& bucket = buckets_[places_[p].bucket];
  scaled_copy(
      bucket.buffer.data() + places_[p].offset, store.gradient(p), factor, store.elements(p));
  --bucket.pending;
}

bool BucketList::next_ready(std::size_t& bucket) {
  if (next_ == buckets_.size() || buckets_[next_].pending > 0) {
    return false;
  }
  bucket = next_++;
  return true;
}

void BucketList::copy_out(ParameterStore& store, std::size_t bucket) {
  const Bucket& b = buckets_[bucket];
  for (const int parameter : b.parameters) {
    const auto p = static_cast<std::size_t>(parameter);
    scaled_copy(store.gradient(p), b.buffer.data() + places_[p].offset, 1.0F, store.elements(p));
  }
}

}  // namespace stepsim::cpu
