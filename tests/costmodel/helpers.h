#pragma once

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <fstream>
#include <random>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "costmodel/base/input_error.h"
#include "tests/test_data.h"

namespace stepsim::test {

/// The text of the error that `action` raises; "no error" when it raises none.
template <typename Error = InputError, std::invocable Action>
std::string error_of(Action action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

/// Writes a file in a fresh folder and gives its path.
inline std::string written(const std::string& name, const std::string& text) {
  std::string path = fresh_folder() + "/" + name;
  std::ofstream(path, std::ios::binary) << text;
  return path;
}

inline std::string content(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

/// `text` with the first occurrence of `from` replaced.
inline std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  return at == std::string::npos ? text + "<" + from + " not found>"
                                 : text.replace(at, from.size(), to);
}

/// `text` after each of these replacements, in their order.
inline std::string replaced(std::string text,
                            const std::vector<std::pair<std::string, std::string>>& changes) {
  for (const auto& [from, to] : changes) {
    text = replaced(std::move(text), from, to);
  }
  return text;
}

/// `text` with all occurrences of `from` replaced.
inline std::string replaced_all(std::string text, const std::string& from, const std::string& to) {
  for (std::size_t at = text.find(from); at != std::string::npos;
       at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
  return text;
}

/// The error of reading a file of this name and text, from its name on; empty where there is none.
template <typename Read>
std::string error_of_file(const std::string& name, const std::string& text, Read read) {
  const std::string path = written(name, text);
  const std::string error = error_of([&] { (void)read(path); });
  return error.substr(std::min(error.find(name), error.size()));
}

/// Random values for the round trips; fixed by the standard, unlike std::*_distribution.
class RandomValues {
 public:
  explicit RandomValues(std::uint64_t seed) : generator_(seed) {}
  /// From 0 to most.
  int whole(int most) { return static_cast<int>(generator_() % (static_cast<unsigned>(most) + 1)); }
  bool coin() { return whole(1) == 1; }
  /// All magnitudes that a time or a size may have, with all 53 bits in use.
  double real() {
    const double mantissa = static_cast<double>(generator_() >> 11) * 0x1p-53;
    return mantissa * std::pow(10.0, whole(18) - 12);
  }
  std::string text() {
    static const std::vector<std::string> kTexts = {
        "", "a", "tab\there", "quote\"", "ümlaut", "\\"};
    return kTexts[static_cast<std::size_t>(whole(static_cast<int>(kTexts.size()) - 1))];
  }

 private:
  std::mt19937_64 generator_;
};

}  // namespace stepsim::test
