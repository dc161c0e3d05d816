#include "calibrate/cpu/bucket_list.h"

#include "calibrate/cpu/rows.h"

namespace stepsim::cpu {

void BucketList::assign(const std::vector<std::vector<int>>& buckets, const ParameterStore& store) {
  std::vector<std::int64_t> elements;
  for (std::size_t p = 0; p < store.size(); ++p) {
    elements.push_back(store.elements(p));
  }
  layout_.assign(buckets, elements);
  buffers_.clear();
  for (std::size_t bucket = 0; bucket < layout_.size(); ++bucket) {
    buffers_.emplace_back().reserve(static_cast<std::size_t>(layout_.elements(bucket)));
  }
}

std::span<float> BucketList::data(std::size_t bucket) {
  return {buffers_[bucket].data(), static_cast<std::size_t>(layout_.elements(bucket))};
}

void BucketList::copy_in(const ParameterStore& store, int parameter, float factor) {
  const auto p = static_cast<std::size_t>(parameter);
  const BucketLayout::Place place = layout_.place(p);
  scaled_copy(
      buffers_[place.bucket].data() + place.offset, store.gradient(p), factor, store.elements(p));
  layout_.gradient_ready(p);
}

void BucketList::copy_out(ParameterStore& store, std::size_t bucket) {
  for (const int parameter : layout_.parameters(bucket)) {
    const auto p = static_cast<std::size_t>(parameter);
    scaled_copy(store.gradient(p),
                buffers_[bucket].data() + layout_.place(p).offset,
                1.0F,
                store.elements(p));
  }
}

}  // namespace stepsim::cpu
