#include "sim/scenario/new_shapes.h"

#include <charconv>

#include <fmt/format.h>

#include "costmodel/base/input_error.h"

namespace stepsim {

std::vector<int> parse_version(std::string_view text) {
  std::vector<int> version;
  const char* at = text.data();
  const char* const end = text.data() + text.size();
  while (version.size() < 4) {
    int number = 0;
    const auto [next, error] = std::from_chars(at, end, number);
    if (error != std::errc() || number < 0) {
      break;
    }
    version.push_back(number);
    if (next == end) {
      return version;
    }
    if (*next != '.') {
      break;
    }
    at = next + 1;
  }
  throw InputError("'{}' is no version; expected one as \"2.11.0\"", printable(text));
}

std::string why_no_attention_plans(const AttentionSetup& setup) {
  if (setup.torch && *setup.torch < std::vector<int>{2, 5}) {
    return "torch has attention by cuDNN since 2.5";
  }
  if (setup.asked_for) {
    return "";
  }
  if (setup.compute_capability) {
    const int major = setup.compute_capability->front();
    if (major != 9 && major != 10) {
      return fmt::format(
          "torch takes flash attention first on a device of compute capability {}; cuDNN comes "
          "first on 9.x and 10.x (H100, H200, B200)",
          fmt::join(*setup.compute_capability, "."));
    }
  }
  if (!setup.torch) {
    return "";
  }
  const bool first_release = *setup.torch == std::vector<int>{2, 5, 0};
  if (!first_release && *setup.torch < std::vector<int>{2, 11}) {
    return fmt::format(
        "torch {} takes cuDNN for attention only on demand; it comes first in 2.5.0, and since "
        "2.11 with a cuDNN newer than 9.15.0",
        fmt::join(*setup.torch, "."));
  }
  if (!first_release && setup.cudnn && *setup.cudnn <= std::vector<int>{9, 15, 0}) {
    return fmt::format(
        "torch takes flash attention first with cuDNN {}; cuDNN has to be newer "
        "than 9.15.0",
        fmt::join(*setup.cudnn, "."));
  }
  return "";
}

}  // namespace stepsim
