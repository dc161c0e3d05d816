#include "calibrate/cuda/training/bucket_list.h"

#include "calibrate/cuda/kernels/kernels.h"

namespace stepsim::cuda {

void BucketList::assign(const std::vector<std::vector<int>>& buckets, const ParameterStore& store) {
  std::vector<std::int64_t> elements;
  for (std::size_t p = 0; p < store.size(); ++p) {
    elements.push_back(store.elements(p));
  }
  layout_.assign(buckets, elements);
  dtype_ = store.dtype();
  buffers_.clear();
  for (std::size_t bucket = 0; bucket < layout_.size(); ++bucket) {
    buffers_.emplace_back(static_cast<std::size_t>(bytes(bucket)));
  }
}

void BucketList::copy_in(const Stream& stream,
                         const ParameterStore& store,
                         int parameter,
                         float factor) {
  const auto p = static_cast<std::size_t>(parameter);
  const BucketLayout::Place place = layout_.place(p);
  scaled_copy(stream,
              data(place.bucket).at(place.offset),
              store.gradient(p),
              factor,
              store.elements(p),
              Store::Assign);
  layout_.gradient_ready(p);
}

void BucketList::copy_out(const Stream& stream,
                          const ParameterStore& store,
                          std::size_t bucket) const {
  for (const int parameter : layout_.parameters(bucket)) {
    const auto p = static_cast<std::size_t>(parameter);
    scaled_copy(stream,
                store.gradient(p),
                data(bucket).at(layout_.place(p).offset),
                1.0F,
                store.elements(p),
                Store::Assign);
  }
}

}  // namespace stepsim::cuda
