#pragma once

#include <algorithm>
#include <cstddef>
#include <random>
#include <string>
#include <vector>

namespace stepsim::fuzz {

/// Small changes to inputs, the same on every machine.
class Mutations {
 public:
  explicit Mutations(const std::vector<std::string>& seeds) : seeds_(seeds) {}

  std::string next() {
    std::string input = seeds_[below(seeds_.size())];
    for (std::size_t count = 1 + below(4); count > 0; --count) {
      change(input);
    }
    return input;
  }

 private:
  std::size_t below(std::size_t count) { return count > 0 ? generator_() % count : 0; }

  void change(std::string& input) {
    const std::size_t at = below(input.size());
    const std::size_t length = std::min(1 + below(16), input.size() - at);
    switch (below(6)) {
      case 0:
        if (!input.empty()) {
          input[at] = static_cast<char>(input[at] ^ (1 << below(8)));
        }
        break;
      case 1:
        input.erase(at, length);
        break;
      case 2:
        input.insert(at, input.substr(at, length));
        break;
      case 3:
        replace_number(input, at);
        break;
      case 4:
        input.insert(at, words()[below(words().size())]);
        break;
      default: {
        const std::string& other = seeds_[below(seeds_.size())];
        const std::size_t from = below(other.size());
        input.replace(at, length, other, from, 1 + below(64));
      }
    }
  }

  static const std::vector<std::string>& words() {
    static const std::vector<std::string> kWords = {"0",
                                                    "-1",
                                                    "1e308",
                                                    "-1e-300",
                                                    "2147483648",
                                                    "9223372036854775807",
                                                    "18446744073709551615",
                                                    "null",
                                                    "nan",
                                                    "{",
                                                    "[",
                                                    "]",
                                                    "}",
                                                    "\"",
                                                    ",",
                                                    "\n",
                                                    "\\u0000",
                                                    "\xff"};
    return kWords;
  }

  /// Puts an extreme number in the place of the next one.
  void replace_number(std::string& input, std::size_t at) {
    const std::size_t from = input.find_first_of("0123456789", at);
    if (from == std::string::npos) {
      return;
    }
    const std::size_t to = input.find_first_not_of("0123456789.e", from);
    constexpr std::size_t kNumbers = 7;
    input.replace(from, std::min(to, input.size()) - from, words()[below(kNumbers)]);
  }

  const std::vector<std::string>& seeds_;
  std::mt19937_64 generator_{1};
};

}  // namespace stepsim::fuzz
