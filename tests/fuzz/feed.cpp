// Feeds a door without libFuzzer: every input of its corpus and every one that once failed, then
// mutations of them, always the same ones.
//
//   feed DOOR MUTATIONS
//   feed DOOR FILE…

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include "tests/fuzz/door.h"
#include "tests/fuzz/mutations.h"

namespace {

using stepsim::fuzz::Mutations;
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

/// A number of elements that no machine has shows as std::bad_alloc. Sanitizers keep terabytes of
/// addresses for themselves, and say by themselves what is too much.
void limit_memory() {
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  constexpr rlim_t kMost = rlim_t{2} << 30U;
  rlimit limit{};
  ::getrlimit(RLIMIT_AS, &limit);
  limit.rlim_cur = std::min(limit.rlim_max, kMost);
  ::setrlimit(RLIMIT_AS, &limit);
#endif
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
