#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "costmodel/collective_table.h"
#include "costmodel/memory.h"
#include "costmodel/topology.h"
#include "costmodel/transformer.h"
#include "costmodel/units.h"
#include "sim/batching/policy.h"
#include "sim/ddp/bucket_assignment.h"
#include "sim/published_figure.h"

namespace stepsim {

// A scenario file (TOML). Every key is described in scenarios/README.md; unknown keys are errors.
//
//   [scenario]   name, question, seed, steps, warmup_steps
//   [cluster]    ranks, ranks_per_node, profile = "profiles/x.json" (relative to the file),
//                slow_ranks = [{ rank = 1, factor = 1.2 }], jitter
//                topology = { algorithm, intra_latency, intra_bandwidth, inter_latency,
//                inter_bandwidth, node_bandwidth, slow_links = [{ rank|node = 1, factor = 2 }] },
//                all_reduce = { sizes = ["1 MiB", …], times = ["0.118 ms", …] }
//   [model]      preset = "gpt2-small" and any key that differs from it; or kind = "gpt2" with
//                layers, hidden, heads, kv_heads, ffn, vocab, max_length, classes,
//                tied_embeddings, causal, window, dtype, parameter_dtype, attention, name;
//                checkpointing
//   [ddp]        bucket_cap = "25 MiB", first_bucket_cap, torch = "1.13|2.4|newest",
//                gradient_as_bucket_view, set_to_none, find_unused_parameters
//   [optimizer]  kind = "adamw|sgd", state_bytes_per_parameter
//   [data]       samples,
//                lengths = { constant = 128 } | { uniform = [1, 64], seed }
//                  | { log_uniform = [64, 256], outlier_probability, label_classes, seed }
//                  | { log_normal = { mu, sigma, min, max }, seed }
//                  | { histogram = "lengths/x.json", seed } | { file = "lengths.txt" }, each with
//                  cap,
//                sampler = { kind = "python|distributed", shuffle, seed, drop_last }
//   [[policy]]   name, kind = "fixed|bucketed|token_budget", batch_size, max_tokens,
//                weighting = "none|sample|token", lengths
//   [[published]] figure, value = "280 GB", source, note and the figure's conditions
//
// Sizes are texts with KiB, MiB, GiB or integers in bytes. Seeds that are left out are the
// scenario's.

struct SlowRank {
  int rank = 0;
  double factor = 1;  ///< Compute takes this many times longer.
};

struct DdpOptions {
  Bytes bucket_cap{kDefaultBucketCapBytes};
  /// Limit of the first bucket. "newest" makes it the bucket_cap when the user has set that.
  Bytes first_bucket_cap{kDefaultFirstBucketBytes};
  std::string torch = "2.4";  ///< "1.13", "2.4", "newest": whose rules of the limits.
  bool gradient_as_bucket_view = false;
  bool set_to_none = true;
  bool find_unused_parameters = false;
  int zero_stage = 0;
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
  std::string profile;     ///< Resolved path; empty when the file names none.
  std::vector<SlowRank> slow_ranks;
  double jitter = 0;  ///< Standard deviation of a step's compute time, as a fraction.
  std::optional<Topology> topology;  ///< Links for collectives that were never measured.
  std::optional<CollectiveCost> all_reduce_table;  ///< In place of the profile's for these ranks.

  TransformerConfig model;
  std::int64_t stated_parameters = 0;  ///< For published figures; 0: counted from the tensors.
  DdpOptions ddp;
  std::string optimizer = "adamw";
  double optimizer_bytes_per_parameter = 8;
  bool activation_checkpointing = false;

  std::int64_t samples = 0;  ///< 0: all of the length file or histogram.
  LengthSource lengths;
  SamplerSpec sampler;

  std::vector<PolicySpec> policies;  ///< At least one.

  std::vector<PublishedFigure> published;
};

/// Most steps and ranks of a scenario.
inline constexpr int kMaxSteps = 1'000'000;
inline constexpr int kMaxRanks = 65'536;

/// Reads and checks a scenario. `overrides` are "key=value" texts (`ddp.bucket_cap=50 MiB`),
/// applied to the parsed file before it is checked; a policy's key is `policy.NAME.key`. A path in
/// an override is taken as it stands, one in the file relative to the file.
/// Raises InputError with file:line:col and a caret; unknown keys first, with the nearest name.
[[nodiscard]] Scenario read_scenario(const std::string& path,
                                     std::span<const std::string> overrides = {});

/// The same from text; `path` names it in messages and anchors relative paths.
[[nodiscard]] Scenario parse_scenario(const std::string& text,
                                      const std::string& path,
                                      std::span<const std::string> overrides = {});

/// The policy of that name; with an empty name the first one. Raises InputError.
[[nodiscard]] const PolicySpec& find_policy(const Scenario& scenario, const std::string& name);

}  // namespace stepsim
