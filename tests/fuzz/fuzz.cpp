// The doors for libFuzzer: `fuzz --door=DOOR` and libFuzzer's own options, which leaves what begins
// with two dashes to us.

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "tests/fuzz/door.h"

namespace {

stepsim::fuzz::Door g_door = nullptr;  // NOLINT(cppcoreguidelines-avoid-non-const-global-variables)

}  // namespace

extern "C" int LLVMFuzzerInitialize(const int* argc, const char* const* const* argv) {
  constexpr std::string_view kOption = "--door=";
  for (int i = 1; i < *argc; ++i) {
    const std::string_view word = (*argv)[i];
    if (word.starts_with(kOption)) {
      g_door = stepsim::fuzz::door_of(word.substr(kOption.size()));
    }
  }
  if (g_door == nullptr) {
    std::fputs("usage: fuzz --door=DOOR [options of libFuzzer]\n", stderr);
    std::exit(2);
  }
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  stepsim::fuzz::enter(g_door, {reinterpret_cast<const char*>(data), size});
  return 0;
}
