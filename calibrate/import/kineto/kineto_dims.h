#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "calibrate/import/kineto/kineto_trace.h"

namespace stepsim {

/// Counts of a damaged file could overflow a product.
inline constexpr std::int64_t kMaxKinetoElements = 1'000'000'000'000;

/// The whole numbers of "2, 3"; absent when anything else stands there.
[[nodiscard]] std::optional<std::vector<std::int64_t>> whole_numbers(std::string_view text);

/// The text inside the list number `which` of "[[2,3],[4]]", of those that hold no lists.
[[nodiscard]] std::optional<std::string_view> inner_list(std::string_view text, std::size_t which);

/// The sizes of tensor number `which` in "Input Dims". Absent where there is no such tensor, or
/// where the sizes are damaged. What is no tensor has no sizes: "[]".
[[nodiscard]] std::optional<std::vector<std::int64_t>> dims_of(std::string_view dims,
                                                               std::size_t which);

/// The product of such sizes.
[[nodiscard]] std::int64_t elements_in(const std::vector<std::int64_t>& dims);

/// What an op of this name tells by which of its tensors; nothing for most ops.
[[nodiscard]] std::optional<std::pair<KinetoTensorOf, std::size_t>> tensor_of(std::string_view op);

/// The place of the first tensor of two dimensions and whole numbers, as tokens are, among the
/// arguments of an op by its "Input type" and "Input Dims"; nothing where it takes none.
[[nodiscard]] std::optional<std::size_t> table_of_numbers(std::string_view types,
                                                          std::string_view dims);

}  // namespace stepsim
