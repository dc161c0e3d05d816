#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

namespace stepsim {

/// Hands a vector to NumPy without a copy. Result: [values.size()].
template <typename T>
pybind11::array_t<T> to_array(std::vector<T> values) {
  auto owned = std::make_unique<std::vector<T>>(std::move(values));
  T* data = owned->data();
  const auto size = static_cast<pybind11::ssize_t>(owned->size());
  pybind11::capsule owner(owned.get(), [](void* p) { delete static_cast<std::vector<T>*>(p); });
  (void)owned.release();
  return pybind11::array_t<T>(size, data, owner);
}

/// Makes an array of one member of many rows. Result: [rows.size()].
template <typename T, typename Rows, typename Of>
pybind11::array_t<T> to_column(const Rows& rows, Of of) {
  std::vector<T> values;
  values.reserve(rows.size());
  for (const auto& row : rows) {
    values.push_back(static_cast<T>(std::invoke(of, row)));
  }
  return to_array(std::move(values));
}

}  // namespace stepsim
