#include "costmodel/compute/shape_cache.h"

#include <algorithm>
#include <bit>

namespace stepsim {
namespace {

bool takes(std::int64_t of_graph, std::int64_t size) {
  return of_graph == size || (of_graph == 0 && size > 1);
}

}  // namespace

std::size_t ShapeCache::Hash::operator()(const Key& key) const {
  constexpr std::uint64_t kApart = 0x9E3779B97F4A7C15;
  std::uint64_t bits = static_cast<std::uint64_t>(key.samples) * kApart;
  bits ^= (bits >> 29U) + static_cast<std::uint64_t>(key.length) * 2 + (key.padded ? 1 : 0);
  bits *= kApart;
  return static_cast<std::size_t>(bits ^ (bits >> 32U));
}

ShapeCache::Key ShapeCache::key_of(const BatchShape& batch) const {
  std::int64_t length = batch.max_length;
  if (cost_.round_to > 1) {
    length = (length + cost_.round_to - 1) / cost_.round_to * cost_.round_to;
  }
  const bool padded = !cost_.mask_in_key || batch.padded_tokens() > batch.useful_tokens;
  if (cost_.to_power_of_two && !(cost_.mask_in_key && padded)) {
    length = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(length)));
  }
  switch (cost_.key) {
    case ShapeKey::Length:
      return {0, length, padded};
    case ShapeKey::Samples:
      return {batch.samples, 0, padded};
    case ShapeKey::Tokens:
      return {0, batch.samples * length, padded};
    case ShapeKey::SamplesAndLength:
    case ShapeKey::Largest:
      break;
  }
  return {batch.samples, length, padded};
}

bool ShapeCache::compiled(const Key& key) const {
  return gave_up_ || std::ranges::any_of(graphs_, [&](const Graph& graph) {
           return takes(graph.samples, key.samples) && takes(graph.length, key.length);
         });
}

/// The first graph is for one shape; with automatic sizes each size that differs from those of the
/// graphs before becomes symbolic.
void ShapeCache::compile(const Key& key) {
  if (static_cast<std::int64_t>(graphs_.size()) >= cost_.recompile_limit) {
    gave_up_ = true;
    return;
  }
  const auto symbolic = [&](std::int64_t size, std::int64_t Graph::*member) {
    const bool changes =
        std::ranges::any_of(graphs_, [&](const Graph& graph) { return graph.*member != size; });
    return size > 1 && (cost_.compile == CompileMode::Dynamic ||
                        (cost_.compile == CompileMode::Automatic && changes));
  };
  graphs_.push_back({symbolic(key.samples, &Graph::samples) ? 0 : key.samples,
                     symbolic(key.length, &Graph::length) ? 0 : key.length});
}

void ShapeCache::insert(const Key& key) {
  if (cost_.entries > 0 && static_cast<std::int64_t>(known_.size()) >= cost_.entries) {
    if (cost_.eviction == Eviction::None) {
      return;
    }
    known_.erase(order_.front());
    order_.pop_front();
  }
  order_.push_back(key);
  known_.emplace(key, std::prev(order_.end()));
}

bool ShapeCache::knows(const BatchShape& batch) const {
  if (batch.samples == 0) {
    return true;
  }
  if (cost_.key == ShapeKey::Largest) {
    return batch.padded_tokens() <= largest_;
  }
  const Key key = key_of(batch);
  return cost_.compile != CompileMode::None ? compiled(key) : known_.count(key) > 0;
}

void ShapeCache::meet(const BatchShape& batch) {
  const bool known = knows(batch);
  if (batch.samples == 0) {
    return;
  }
  const Key key = key_of(batch);
  if (cost_.key == ShapeKey::Largest) {
    largest_ = std::max(largest_, batch.padded_tokens());
  } else if (cost_.compile != CompileMode::None) {
    if (!known) {
      compile(key);
    }
  } else if (!known) {
    insert(key);
  } else if (cost_.eviction == Eviction::LeastRecent && cost_.entries > 0) {
    order_.splice(order_.end(), order_, known_.find(key)->second);
  }
}

std::size_t ShapeCache::size() const {
  return cost_.compile == CompileMode::None ? known_.size() : graphs_.size();
}

}  // namespace stepsim
