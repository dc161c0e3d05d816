#include "sim/parallel/own_key.h"

#include <type_traits>

#include <fmt/format.h>

namespace stepsim {

std::string OwnValues::printed() const {
  std::string text;
  for (const auto& [name, value] : values_) {
    text += name + "=";
    std::visit(
        [&](const auto& one) {
          if constexpr (std::is_same_v<std::remove_cvref_t<decltype(one)>, Bytes>) {
            text += fmt::format("{};", one.value());
          } else {
            text += fmt::format("{};", one);
          }
        },
        value);
  }
  return text;
}

}  // namespace stepsim
