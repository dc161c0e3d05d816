#define DOCTEST_CONFIG_IMPLEMENT
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <string>

#include <doctest/doctest.h>

#include "tests/test_data.h"

namespace {

/// Names of the tests that skipped, and the folders to remove at the end.
struct RunState {
  std::set<std::string> skipped;
  std::set<std::string> folders;
};

RunState& run_state() {
  static RunState state;
  return state;
}

}  // namespace

namespace stepsim::test {

void skip(const std::string& reason) {
  const char* name = doctest::getContextOptions()->currentTest->m_name;
  std::printf("SKIPPED: %s: %s\n", name, reason.c_str());
  run_state().skipped.insert(name);
}

std::optional<std::string> data_file(const std::string& name) {
  const std::filesystem::path path = std::filesystem::path(data_folder()) / name;
  if (std::filesystem::exists(path)) {
    return path.lexically_normal().string();
  }
  skip("no reference data at " + path.lexically_normal().string());
  return std::nullopt;
}

std::string fresh_folder() {
  std::string name = (std::filesystem::temp_directory_path() / "stepsim-test-XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) {
    std::perror("mkdtemp");
    std::abort();
  }
  run_state().folders.insert(name);
  return name;
}

}  // namespace stepsim::test

int main(int argc, char** argv) {
  doctest::Context context(argc, argv);
  const int status = context.run();
  for (const auto& folder : run_state().folders) {
    std::error_code ignored;
    std::filesystem::remove_all(folder, ignored);
  }
  // Read by tests/run, which adds the test cases of all programs up.
  const auto skipped = run_state().skipped.size();
  std::printf("stepsim-skipped: %zu\n", skipped);
  return status;
}
