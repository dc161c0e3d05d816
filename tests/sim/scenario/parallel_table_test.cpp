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

/// What a key of fsdp2 is read as.
std::string text_of(const std::string& key, const std::string& value) {
  const Scenario scenario =
      parse_scenario(test::kScenarioText,
                     "s.toml",
                     std::vector<std::string>{kFsdp2, "parallel." + key + "=" + value});
  return scenario.parallel_values.text(key);
}

}  // namespace

TEST_CASE("[parallel]: what PyTorch and others write for a value is read as it is meant") {
  CHECK(text_of("reshard_after_forward", "true") == "true");
  CHECK(text_of("reshard_after_forward", "\"false\"") == "false");
  CHECK(text_of("reshard_after_forward", "2") == "2");
  CHECK(text_of("reshard_after_forward", "\"2\"") == "2");
  CHECK(text_of("torch", "2.10") == "2.10");
  CHECK(text_of("torch", "2.9.1") == "2.9");
  CHECK(text_of("torch", "newest") == "2.15");
  CHECK(text_of("units", "layers.*; classifier") == "layers.*; classifier");
  const std::string in_file = std::string(test::kScenarioText) +
                              "[parallel]\nkind = \"fsdp2\"\nreshard_after_forward = 2\n";
  CHECK(parse_scenario(in_file, "s.toml").parallel_values.text("reshard_after_forward") == "2");
}

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
  CHECK(
      fsdp2_refused({"parallel.kept_units=head"}).starts_with("unknown unit 'head'; known: root"));
  CHECK(fsdp2_refused({"parallel.kept_units=root", "parallel.reshard_after_forward=false"}) ==
        "has no effect: reshard_after_forward keeps all units");
  // Keys of one kind mean nothing to another.
  CHECK(refused({"parallel.kind=ddp", "parallel.units=blocks"}) == "does not apply to kind 'ddp'");
}

TEST_CASE("[parallel]: slices that do not fit the ranks") {
  CHECK(fsdp2_refused({"parallel.reshard_after_forward=3"}) ==
        "3 does not divide the 4 shard ranks; expected 1, 2 or 4 (4 is true, 1 is false)");
  CHECK(fsdp2_refused({"parallel.reshard_after_forward=4", "parallel.replicas=2"}) ==
        "4 does not divide the 2 shard ranks; expected 1 or 2 (2 is true, 1 is false)");
  CHECK(fsdp2_refused({"parallel.reshard_after_forward=0"}).starts_with("0 does not divide"));
  CHECK(fsdp2_refused({"parallel.reshard_after_forward=sometimes"}) ==
        "unknown value 'sometimes'; known: default, true, false, an integer");
  CHECK(fsdp2_refused({"parallel.reshard_after_forward=2"}) == "no error");
}

TEST_CASE("[parallel]: what a version of PyTorch lacks") {
  const auto with = [](const std::string& torch, const std::string& key) {
    return fsdp2_refused({"parallel.torch=" + torch, "parallel." + key});
  };
  const std::string group = "separate_reduce_group=true";
  CHECK(with("2.12", group) ==
        "set_separate_reduce_scatter_group came with PyTorch 2.13, and parallel.torch is \"2.12\"");
  CHECK(with("2.13", group) == "no error");
  CHECK(with("2.12", "reduce_buffers=2") ==
        "set_reduce_scatter_max_input_buffers came with PyTorch 2.13, and parallel.torch is "
        "\"2.12\"");
  CHECK(with("2.12", "reduce_buffers=1") == "no error");
  CHECK(with("2.5", "async_unshard=true") ==
        "_set_unshard_async_op came with PyTorch 2.6, and parallel.torch is \"2.5\"");
  CHECK(with("2.6", "async_unshard=true") == "no error");
  CHECK(with("2.4", "replicas=2") == "no error");  // HSDP came with the first fully_shard.
  CHECK(fsdp2_refused({"parallel.torch=2.3"}) ==
        "PyTorch 2.3 has no fully_shard, which came with 2.4");
  CHECK(fsdp2_refused({"parallel.torch=1.13"}) ==
        "PyTorch 1.13 has no fully_shard, which came with 2.4");
  CHECK(fsdp2_refused({"parallel.torch=3"}).starts_with("unknown value '3'"));
  CHECK(fsdp2_refused({"parallel.torch=2.6", "cluster.communicator=gloo"}) ==
        "fully_shard over gloo came with PyTorch 2.7, and parallel.torch is \"2.6\"");
  CHECK(fsdp2_refused({"ddp.torch=1.13"}) ==
        "PyTorch 1.13 has no fully_shard, which came with 2.4: leave ddp.torch out, and say the "
        "version in parallel.torch");
  CHECK(fsdp2_refused({"ddp.torch=newest"}) == "no error");
}
