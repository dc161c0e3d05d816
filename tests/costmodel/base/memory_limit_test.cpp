#include "costmodel/base/memory_limit.h"

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "tests/test_data.h"

using namespace stepsim;

namespace {

constexpr std::int64_t kMib = std::int64_t{1} << 20;

/// What Linux says that programs can still take.
std::int64_t available() {
  std::ifstream file("/proc/meminfo");
  std::string word;
  while (file >> word && word != "MemAvailable:") {
  }
  std::int64_t kib = 0;
  file >> kib;
  return kib * 1024;
}

}  // namespace

TEST_CASE("the limit counts what the process has already, beside what the machine has left") {
  constexpr std::int64_t kHeld = 256 * kMib;
  // Other programs take and give memory meanwhile, so several looks.
  constexpr int kLooks = 50;
  std::vector<char> held(static_cast<std::size_t>(kHeld), 1);
  std::int64_t most = 0;  // Of the limit beyond what is available.
  for (int look = 0; look < kLooks; ++look) {
    const std::int64_t before = available();
    const std::optional<Bytes> limit = memory_limit();
    REQUIRE(limit);
    if (limit->value() < before - 1024 * kMib) {
      return test::skip("a control group or `ulimit -v` allows less than the machine has");
    }
    most = std::max(most, limit->value() - std::max(before, available()));
  }
  CHECK(held[held.size() / 2] == 1);
  CHECK(most > kHeld - 16 * kMib);
  CHECK(most < kHeld + 4096 * kMib);
}

TEST_CASE("jobs side by side share the limit") {
  REQUIRE(memory_shares() == 1);
  const std::optional<Bytes> whole = memory_limit();
  REQUIRE(whole);
  {
    const MemoryShares four(4);
    CHECK(memory_shares() == 4);
    // Memory that other programs take meanwhile is far less than the other three shares.
    CHECK(memory_limit()->value() < whole->value() / 2);
  }
  CHECK(memory_shares() == 1);
}
