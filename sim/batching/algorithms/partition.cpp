#include "sim/batching/algorithms/partition.h"

#include <algorithm>
#include <functional>
#include <queue>
#include <utility>

#include "costmodel/base/input_error.h"
#include "sim/batching/algorithms/samples.h"

namespace stepsim {
namespace {

SampleIds descending(std::span<const std::int64_t> values) {
  SampleIds order = all_samples(values.size());
  sort_descending(order, values);
  return order;
}

void check_parts(std::int64_t parts, std::size_t most) {
  if (parts < 1 || parts > static_cast<std::int64_t>(most)) {
    throw InputError("partition: {} values into {} parts", most, parts);
  }
}

/// One set of a partial partition.
struct Set {
  std::int64_t sum = 0;
  SampleIds indices;

  [[nodiscard]] bool operator>(const Set& other) const {
    const auto key = [](const Set& set) { return std::pair(set.sum, set.indices.size()); };
    return key(*this) != key(other) ? key(*this) > key(other) : indices > other.indices;
  }
};

/// A partial partition: sets in descending order.
struct State {
  std::vector<Set> sets;

  [[nodiscard]] std::int64_t spread() const { return sets.front().sum - sets.back().sum; }
  void sort() { std::ranges::sort(sets, std::greater<>()); }
};

/// Heap order: the largest spread on top, then the larger first set.
bool below(const State& a, const State& b) {
  return a.spread() != b.spread() ? a.spread() < b.spread() : b.sets.front() > a.sets.front();
}

std::vector<State> first_states(std::span<const std::int64_t> values,
                                std::size_t parts,
                                bool equal_size) {
  SampleIds ascending = all_samples(values.size());
  sort_by_length(ascending, values);
  const std::size_t step = equal_size ? parts : 1;
  std::vector<State> states;
  for (std::size_t begin = 0; begin < ascending.size(); begin += step) {
    State state;
    state.sets.resize(parts);
    for (std::size_t i = 0; i < step; ++i) {
      const std::int64_t index = ascending[begin + i];
      state.sets[i] = {length_of(values, index), {index}};
    }
    state.sort();
    states.push_back(std::move(state));
  }
  return states;
}

void merge_into(State& first, const State& second) {
  const std::size_t parts = first.sets.size();
  for (std::size_t j = 0; j < parts; ++j) {
    const Set& other = second.sets[parts - 1 - j];
    first.sets[j].sum += other.sum;
    first.sets[j].indices.insert(
        first.sets[j].indices.end(), other.indices.begin(), other.indices.end());
  }
  first.sort();
}

Parts cut(const SampleIds& order, const std::vector<std::size_t>& ends) {
  Parts parts;
  std::size_t begin = 0;
  for (const std::size_t end : ends) {
    parts.emplace_back(order.begin() + static_cast<std::ptrdiff_t>(begin),
                       order.begin() + static_cast<std::ptrdiff_t>(end));
    begin = end;
  }
  return parts;
}

/// Sizes of the parts that take as many of the descending lengths as fit under `highest`.
std::vector<std::int64_t> sizes_under(const SampleIds& order,
                                      std::span<const std::int64_t> lengths,
                                      std::int64_t highest) {
  std::vector<std::int64_t> sizes;
  const auto count = static_cast<std::int64_t>(order.size());
  for (std::int64_t begin = 0; begin < count; begin += sizes.back()) {
    const std::int64_t longest = length_of(lengths, order[static_cast<std::size_t>(begin)]);
    sizes.push_back(std::min(count - begin, highest / longest));
  }
  return sizes;
}

}  // namespace

Parts karmarkar_karp(std::span<const std::int64_t> values, std::int64_t parts, bool equal_size) {
  check_parts(parts, values.size());
  const auto count = static_cast<std::size_t>(parts);
  if (equal_size && values.size() % count != 0) {
    throw InputError("partition: {} values into {} parts of equal size", values.size(), parts);
  }
  std::vector<State> heap = first_states(values, count, equal_size);
  std::make_heap(heap.begin(), heap.end(), below);
  while (heap.size() > 1) {
    std::pop_heap(heap.begin(), heap.end(), below);
    State first = std::move(heap.back());
    heap.pop_back();
    std::pop_heap(heap.begin(), heap.end(), below);
    merge_into(first, heap.back());
    heap.back() = std::move(first);
    std::push_heap(heap.begin(), heap.end(), below);
  }
  Parts result;
  for (Set& set : heap.front().sets) {
    std::ranges::sort(set.indices);
    result.push_back(std::move(set.indices));
  }
  return result;
}

Parts longest_processing_time(std::span<const std::int64_t> values, std::int64_t parts) {
  if (parts < 1) {
    throw InputError("partition: {} parts", parts);
  }
  using Load = std::pair<std::int64_t, std::size_t>;
  std::priority_queue<Load, std::vector<Load>, std::greater<>> loads;
  for (std::size_t part = 0; part < static_cast<std::size_t>(parts); ++part) {
    loads.emplace(0, part);
  }
  Parts result(static_cast<std::size_t>(parts));
  for (const std::int64_t index : descending(values)) {
    const auto [sum, part] = loads.top();
    loads.pop();
    result[part].push_back(index);
    loads.emplace(sum + length_of(values, index), part);
  }
  return result;
}

Repartition repartition_padded(std::span<const std::int64_t> lengths, std::int64_t parts) {
  check_parts(parts, lengths.size());
  const SampleIds order = descending(lengths);
  std::int64_t low = length_of(lengths, order.front());
  std::int64_t high = low * static_cast<std::int64_t>(order.size());
  while (low < high) {
    const std::int64_t middle = low + (high - low) / 2;
    if (static_cast<std::int64_t>(sizes_under(order, lengths, middle).size()) <= parts) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  std::vector<std::int64_t> sizes = sizes_under(order, lengths, low);
  while (static_cast<std::int64_t>(sizes.size()) < parts) {
    const auto largest = std::ranges::max_element(sizes);
    const std::int64_t half = *largest / 2;
    *largest -= half;
    (void)sizes.insert(largest, half);
  }
  Repartition result;
  std::vector<std::size_t> ends;
  ends.reserve(sizes.size());
  for (const std::int64_t size : sizes) {
    ends.push_back((ends.empty() ? 0 : ends.back()) + static_cast<std::size_t>(size));
  }
  result.parts = cut(order, ends);
  for (const auto& part : result.parts) {
    result.costs.push_back(length_of(lengths, part.front()) *
                           static_cast<std::int64_t>(part.size()));
  }
  return result;
}

}  // namespace stepsim
