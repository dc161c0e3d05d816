// Runs every case of a file of reference cases for batching policies:
//   fixture_check [FILE]
// One line a case, then "N passed, N failed, N unsupported". Ends with 1 when a case failed, with
// 77 (skipped) when no file is given and the reference data is not there.
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <string>

#include <fmt/core.h>

#include "tests/sim/batching/fixture_case.h"
#include "tests/source_root.h"

namespace stepsim::test {
namespace {

const CaseKind* find_kind(const std::string& id) {
  const CaseKind* best = nullptr;
  for (const auto kinds : {sampling_cases(),
                           min_max_cases(),
                           budget_cases(),
                           bucket_cases(),
                           lab_cases(),
                           packing_cases(),
                           balance_cases(),
                           trend_cases()}) {
    for (const CaseKind& kind : kinds) {
      if (id.starts_with(kind.prefix) &&
          (best == nullptr || kind.prefix.size() > best->prefix.size())) {
        best = &kind;
      }
    }
  }
  return best;
}

/// "" when the library gives what the case expects.
std::string run_case(const CaseKind& kind, const FixtureCase& data) {
  try {
    return difference(data.expected, kind.run(data));
  } catch (const std::exception& error) {
    return error.what();
  }
}

int check(const std::string& path) {
  const FixtureFile file(path);
  int passed = 0;
  int failed = 0;
  int unsupported = 0;
  for (const auto& item : file.cases()) {
    const auto id = item.at("id").get<std::string>();
    const CaseKind* kind = find_kind(id);
    if (kind == nullptr) {
      ++unsupported;
      fmt::print("unsupported {}\n", id);
      continue;
    }
    const std::string why =
        run_case(*kind, {file, id, item.at("parameters"), item.at("input"), item.at("expected")});
    ++(why.empty() ? passed : failed);
    fmt::print("{} {}{}{}\n", why.empty() ? "passed" : "FAILED", id, why.empty() ? "" : ": ", why);
  }
  fmt::print("{} passed, {} failed, {} unsupported\n", passed, failed, unsupported);
  return failed == 0 ? 0 : 1;
}

std::string shared_file() {
  return (std::filesystem::path(data_folder()) / "batching_fixtures.json")
      .lexically_normal()
      .string();
}

}  // namespace
}  // namespace stepsim::test

int main(int argc, char** argv) {
  constexpr int kSkipped = 77;
  const std::string path = argc > 1 ? argv[1] : stepsim::test::shared_file();
  if (argc == 1 && !std::filesystem::exists(path)) {
    fmt::print("skipped: no reference data at {}\n", path);
    return kSkipped;
  }
  try {
    return stepsim::test::check(path);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 2;
  }
}
