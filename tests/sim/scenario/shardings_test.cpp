// Names of ways of sharding, and what a kind of parallelism that is set replaces.

#include "sim/parallel/shardings.h"

#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "costmodel/base/input_error.h"
#include "sim/scenario/scenario.h"
#include "tests/sim/scenario/scenario_text.h"

using namespace stepsim;

namespace {

/// A scenario that states keys of FSDP2 and a stage of ZeRO, on two nodes.
Scenario sharded_scenario(const std::vector<std::string>& overrides) {
  std::string text = test::replaced(test::kScenarioText, "ranks = 4\n", "placement = \"2x2\"\n");
  text += "\n[parallel]\nkind = \"fsdp2\"\nunits = \"ends\"\nparam_dtype = \"bf16\"\n";
  return parse_scenario(text, "sharded.toml", overrides);
}

std::string sharding_refused(const std::vector<std::string>& overrides) {
  try {
    (void)sharded_scenario(overrides);
  } catch (const InputError& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace

TEST_CASE("shardings: each name is the keys that it stands for") {
  for (const std::string& name : sharding_names()) {
    CAPTURE(name);
    const Scenario scenario = sharded_scenario({"parallel=" + name});
    const bool shards = name == "zero2" || name == "fsdp2" || name == "hsdp";
    const bool is_kind = name == "fsdp1" || name == "zero";
    CHECK(scenario.parallel->name() == (shards ? "fsdp2" : is_kind ? name : "ddp"));
    CHECK(scenario.ddp.zero_stage == (name == "zero1" ? 1 : 0));
    if (shards) {
      CHECK(scenario.parallel_values.integer("replicas") == (name == "hsdp" ? 2 : 1));
      CHECK(scenario.parallel_values.text("reshard_after_forward") ==
            (name == "zero2" ? "false" : "default"));
      // What the file says beside holds.
      CHECK(scenario.parallel_values.text("units") == "ends");
      CHECK(scenario.parallel_values.text("param_dtype") == "bf16");
    }
  }
}

TEST_CASE("shardings: a name that is none is refused with the nearest") {
  CHECK(sharding_refused({"parallel=hdsp"}).find("hsdp") != std::string::npos);
  for (const std::string name : {"zero3", "deepspeed"}) {
    CHECK(sharding_refused({"parallel=" + name}).find("write \"zero\", DeepSpeed's ZeRO-3") !=
          std::string::npos);
  }
  CHECK(sharding_refused({"parallel=hsdp", "cluster.placement=4"}).find("there is one node") !=
        std::string::npos);
  CHECK(sharding_refused({"parallel=hsdp", "cluster.placement=3+1"}).find("of one size") !=
        std::string::npos);
}

TEST_CASE("shardings: a kind that is set replaces keys of the file, and none that is set as well") {
  CHECK(sharding_refused({"parallel.kind=ddp"}) == "no error");
  CHECK(sharding_refused({"parallel.kind=ddp", "parallel.units=model"})
            .find("does not apply to kind 'ddp'") != std::string::npos);
  CHECK(sharding_refused({"ddp.zero_stage=1"}).find("belongs to DDP") != std::string::npos);
  // One replica is what DDP has, too.
  CHECK(sharding_refused({"parallel.kind=ddp", "parallel.replicas=1"}) == "no error");
  CHECK(sharding_refused({"parallel.kind=ddp", "parallel.replicas=2"})
            .find("does not apply to kind 'ddp'") != std::string::npos);
}
