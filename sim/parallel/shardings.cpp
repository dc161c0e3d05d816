#include "sim/parallel/shardings.h"

#include <algorithm>
#include <array>

#include "costmodel/base/input_error.h"

namespace stepsim {
namespace {

const std::array<std::string, 7> kNames = {
    "ddp", "zero1", "zero2", "fsdp2", "hsdp", "fsdp1", "zero"};

}  // namespace

std::span<const std::string> sharding_names() {
  return kNames;
}

std::vector<std::pair<std::string, std::string>> sharding_settings(const std::string& name) {
  if (name == "zero3" || name == "deepspeed") {
    throw InputError(
        "unknown sharding '{}'; write \"zero\", DeepSpeed's ZeRO-3, or \"fsdp2\", PyTorch's "
        "fully_shard, which shards as much{}",
        name,
        name == "zero3" ? "; parallel.kind = \"zero3\" gathers as no library does" : "");
  }
  if (std::ranges::find(kNames, name) == kNames.end()) {
    throw InputError(
        unknown_name("sharding", name, std::vector<std::string>(kNames.begin(), kNames.end())));
  }
  if (name == "ddp" || name == "zero1") {
    return {{"parallel.kind", "ddp"}, {"ddp.zero_stage", name == "ddp" ? "0" : "1"}};
  }
  if (name == "fsdp1") {
    return {{"parallel.kind", "fsdp1"}, {"parallel.units", "\"blocks\""}};
  }
  if (name == "zero") {
    return {{"parallel.kind", "zero"}};
  }
  return {{"parallel.kind", "fsdp2"},
          {"parallel.reshard_after_forward", name == "zero2" ? "\"false\"" : "\"default\""},
          {"parallel.replicas", name == "hsdp" ? "\"nodes\"" : "1"}};
}

}  // namespace stepsim
