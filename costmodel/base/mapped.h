#pragma once

#include <algorithm>
#include <functional>
#include <iterator>
#include <type_traits>
#include <utility>
#include <vector>

namespace stepsim {

/// Returns what `of` makes of every element, in the order of the range.
template <typename Range, typename Of>
[[nodiscard]] auto mapped(Range&& range, Of of) {
  std::vector<std::decay_t<std::invoke_result_t<Of&, decltype(*std::begin(range))>>> result;
  result.reserve(std::size(range));
  for (auto&& element : range) {
    result.push_back(std::invoke(of, element));
  }
  return result;
}

/// Returns the sum of `term` of every element, added in the order of the range from zero.
template <typename Range, typename Term = std::identity>
[[nodiscard]] auto sum_of(const Range& range, Term term = {}) {
  std::decay_t<std::invoke_result_t<Term&, decltype(*std::begin(range))>> sum{};
  for (const auto& element : range) {
    sum += std::invoke(term, element);
  }
  return sum;
}

/// Returns the largest that `of` makes of the elements, and at least `least`.
template <typename Range, typename Of, typename Value>
[[nodiscard]] Value max_of(const Range& range, Of of, Value least) {
  for (const auto& element : range) {
    least = std::max<Value>(least, std::invoke(of, element));
  }
  return least;
}

}  // namespace stepsim
