// Feeds a door without libFuzzer: every input of its corpus and every one that once failed, then
// mutations of them, always the same ones.
//
//   feed DOOR MUTATIONS
//   feed DOOR FILE…

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include "tests/fuzz/door.h"

namespace {

using stepsim::fuzz::source_path;

constexpr std::string_view kLastInput = "fuzz-failed-input";

std::string g_input;  // NOLINT(cppcoreguidelines-avoid-non-const-global-variables): see keep_input.

/// Keeps the input that is being fed. Only calls that a signal handler may make.
void keep_input() {
  std::FILE* const file = std::fopen(kLastInput.data(), "wb");
  if (file != nullptr) {
    std::fwrite(g_input.data(), 1, g_input.size(), file);
    std::fclose(file);
  }
}

void fail_by_signal(int number) {
  keep_input();
  std::signal(number, SIG_DFL);
  std::raise(number);
}

std::vector<std::string> inputs_of(const std::string& door) {
  std::vector<std::string> paths;
  for (const char* kind : {"corpus", "found"}) {
    const std::filesystem::path folder = source_path("tests/fuzz") + "/" + kind + "/" + door;
    std::error_code none;
    for (const auto& file : std::filesystem::directory_iterator(folder, none)) {
      paths.push_back(file.path().string());
    }
  }
  std::ranges::sort(paths);
  return paths;
}

std::string bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

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

/// Feeds one input. Returns what the door raised, or nothing.
std::string fault_of(stepsim::fuzz::Door door, const std::string& input) {
  g_input = input;
  try {
    stepsim::fuzz::enter(door, input);
  } catch (const std::exception& error) {
    keep_input();
    return error.what();
  }
  return "";
}

/// A number of elements that no machine has shows as std::bad_alloc.
void limit_memory() {
  constexpr rlim_t kMost = rlim_t{2} << 30U;
  rlimit limit{};
  ::getrlimit(RLIMIT_AS, &limit);
  limit.rlim_cur = std::min(limit.rlim_max, kMost);
  ::setrlimit(RLIMIT_AS, &limit);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string name = argc >= 3 ? argv[1] : "";
  const stepsim::fuzz::Door door = stepsim::fuzz::door_of(name);
  if (door == nullptr) {
    std::fputs("usage: feed DOOR MUTATIONS, or feed DOOR FILE…\n", stderr);
    return 2;
  }
  const bool mutates =
      std::string_view(argv[2]).find_first_not_of("0123456789") == std::string_view::npos;
  std::FILE* const report = ::fdopen(::dup(STDERR_FILENO), "w");
  if (report == nullptr || std::freopen("/dev/null", "w", stdout) == nullptr ||
      std::freopen("/dev/null", "w", stderr) == nullptr) {
    return 3;
  }
  limit_memory();
  for (const int number : {SIGSEGV, SIGABRT, SIGFPE, SIGBUS}) {
    std::signal(number, fail_by_signal);
  }
  const std::vector<std::string> paths =
      mutates ? inputs_of(name) : std::vector<std::string>(argv + 2, argv + argc);
  std::vector<std::string> seeds;
  int faults = 0;
  const auto feed = [&](const std::string& input, const std::string& from) {
    const auto start = std::chrono::steady_clock::now();
    const std::string fault = fault_of(door, input);
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
    constexpr double kTooLong = 30;
    if (!fault.empty() || taken.count() > kTooLong) {
      ++faults;
      fmt::print(report, "{}: {} ({:.1f} s)\n", from, fault, taken.count());
    }
  };
  for (const std::string& path : paths) {
    seeds.push_back(bytes_of(path));
    feed(seeds.back(), path);
  }
  const int mutations = mutates && !seeds.empty() ? std::stoi(argv[2]) : 0;
  Mutations mutated(seeds);
  for (int i = 0; i < mutations && faults == 0; ++i) {
    feed(mutated.next(), fmt::format("mutation {}, kept as {}", i, kLastInput));
  }
  fmt::print(
      report, "{}: {} inputs, {} mutations, {} faults\n", name, paths.size(), mutations, faults);
  std::fclose(report);
  return paths.empty() || faults > 0 ? 1 : 0;
}
