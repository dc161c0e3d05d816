// What [parallel] reads, and what it says to those who write it otherwise.
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "costmodel/base/input_error.h"
#include "sim/scenario/scenario.h"
#include "tests/sim/scenario/scenario_text.h"

using namespace stepsim;

namespace {

const std::string kFsdp2 = "parallel.kind=fsdp2";

/// What is wrong with the lab's four ranks under these settings, from the reason on.
std::string refused(const std::vector<std::string>& overrides) {
  const std::string error =
      test::error_of([&] { (void)parse_scenario(test::kScenarioText, "s.toml", overrides); });
  const std::size_t begin = error.rfind("error: ");
  return begin == std::string::npos ? error : error.substr(begin + 7);
}

/// The same for keys of fsdp2.
std::string fsdp2_refused(std::vector<std::string> overrides) {
  overrides.insert(overrides.begin(), kFsdp2);
  return refused(overrides);
}

}  // namespace

TEST_CASE("[parallel]: units that are none") {
  CHECK(fsdp2_refused({"parallel.units=layer.*"}) ==
        "unknown module 'layer.*'; did you mean 'layers.*'? known: embedding, layers, layers.*, "
        "layers.*.norm1, layers.*.qkv, layers.*.proj, layers.*.norm2, layers.*.fc1, layers.*.fc2, "
        "classifier");
  CHECK(fsdp2_refused({"parallel.units=layers.*; layers.0"}) ==
        "the parameters of 'layers.0' are in two units, 'layers.*' and 'layers.0'; fully_shard "
        "takes a module once, so name it in one of them");
  CHECK(fsdp2_refused({"parallel.units=layers.*;"}) ==
        "an empty entry in 'layers.*;'; ';' stands between units and '+' between modules of one "
        "unit, as in \"layers.*; norm + lm_head\"");
  // Keys of one kind mean nothing to another.
  CHECK(refused({"parallel.kind=ddp", "parallel.units=blocks"}) == "does not apply to kind 'ddp'");
}
