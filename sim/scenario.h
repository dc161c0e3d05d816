#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "costmodel/memory.h"
#include "costmodel/transformer.h"
#include "costmodel/units.h"
#include "sim/batching/policy.h"
#include "sim/ddp/bucket_assignment.h"

namespace stepsim {

struct SlowRank {
  int rank = 0;
  double factor = 1;  ///< Compute takes this many times longer.
};

struct DdpOptions {
  Bytes bucket_cap{kDefaultBucketCapBytes};
  Bytes first_bucket_cap{kDefaultFirstBucketBytes};
  bool gradient_as_bucket_view = false;
  bool set_to_none = true;
  bool find_unused_parameters = false;
};

/// A scenario file, checked. Formats and keys: scenarios/README.md.
struct Scenario {
  std::string path;  ///< The file it came from; relative paths inside are resolved against it.
  std::string name;
  std::string question;
  std::uint64_t seed = 0;
  int steps = 0;
  int warmup_steps = 0;

  int ranks = 1;
  int ranks_per_node = 0;  ///< 0: all on one node.
  std::string profile;     ///< Resolved path.
  std::vector<SlowRank> slow_ranks;
  double jitter = 0;

  TransformerConfig model;
  DdpOptions ddp;
  std::string optimizer = "adamw";
  double optimizer_bytes_per_parameter = 8;
  bool activation_checkpointing = false;

  std::int64_t samples = 0;
  LengthSource lengths;
  SamplerSpec sampler;

  std::vector<PolicySpec> policies;
};

/// Reads and checks a scenario. `overrides` are "key=value" texts (`ddp.bucket_cap=50 MiB`),
/// applied to the parsed file before it is checked; a policy's key is `policy.NAME.key`.
/// Raises InputError with file:line:col and a caret; unknown keys first, with the nearest name.
[[nodiscard]] Scenario read_scenario(const std::string& path,
                                     std::span<const std::string> overrides = {});

/// The policy of that name; with an empty name the first one. Raises InputError.
[[nodiscard]] const PolicySpec& find_policy(const Scenario& scenario, const std::string& name);

}  // namespace stepsim
