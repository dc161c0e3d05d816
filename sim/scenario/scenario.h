#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "costmodel/base/units.h"
#include "costmodel/model/memory.h"
#include "costmodel/model/transformer.h"
#include "costmodel/network/collective_table.h"
#include "costmodel/network/communication_hook.h"
#include "costmodel/network/interference.h"
#include "costmodel/network/topology.h"
#include "sim/batching/policy.h"
#include "sim/batching/targets.h"
#include "sim/ddp/bucket_assignment.h"
#include "sim/scenario/published_figure.h"

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
//                tied_embeddings, causal, window, dtype, parameter_dtype, attention, name,
//                varlen = { max_num_docs, max_seq_len, overflow, block_rows, empty_block };
//                checkpointing, parameters (stated number, for published figures only)
//   [ddp]        bucket_cap = "25 MiB", first_bucket_cap, bucket_caps, last_bucket_cap, torch,
//                bucket_rule, overlap, gradient_as_bucket_view, set_to_none,
//                find_unused_parameters, unused_parameters, static_graph, broadcast_buffers,
//                batched_grad_copy, optimizer_in_backward, accumulation_steps, no_sync, join,
//                divide_by_initial_world_size, mixed_precision = { param_dtype, reduce_dtype },
//                communication_hook = "fp16" or { kind, rank, start_iteration, … }, zero_stage,
//                zero_broadcast_by_rank
//   [interference], [host], [noise], [loader], [times]: the structs below
//   [optimizer]  kind = "adamw|sgd", state_bytes_per_parameter
//   [data]       samples,
//                lengths = { constant = 128 } | { uniform = [1, 64], seed }
//                  | { log_uniform = [64, 256], outlier_probability, label_classes, seed }
//                  | { log_normal = { mu, sigma, min, max }, seed }
//                  | { histogram = "lengths/x.json", seed } | { file = "lengths.txt" }, each with
//                  cap,
//                sampler = { kind = "python|distributed", shuffle, seed, drop_last }
//   [[policy]]   name, kind and the kind's parameters (stepsim policies lists them),
//                weighting = "none|sample|token", lengths, attention, varlen, row_length
//   [[published]] figure, value = "280 GB", source, note and the figure's conditions
//
// Sizes are texts with KiB, MiB, GiB or integers in bytes. Seeds that are left out are the
// scenario's.

struct SlowRank {
  int rank = 0;
  double factor = 1;  ///< Compute takes this many times longer.
};

/// How gradients are grouped into buckets.
enum class BucketRule {
  PyTorch,       ///< DDP's: a bucket closes when its sum reaches the limit.
  BeforeCap,     ///< Hand-written, reverse registration order: a tensor joins unless the bucket
                 ///< would exceed the cap.
  PerParameter,  ///< One bucket a tensor.
  Single         ///< One bucket.
};

struct DdpOptions {
  Bytes bucket_cap{kDefaultBucketCapBytes};
  bool bucket_cap_given = false;
  /// Limit of the first bucket. "newest" makes it the bucket_cap when the user has set that.
  Bytes first_bucket_cap{kDefaultFirstBucketBytes};
  std::vector<Bytes> bucket_caps;  ///< "newest": a limit for each bucket in turn; empty: none.
  bool last_bucket_cap = false;    ///< DDP_SET_LAST_BUCKET_CAP=1: the small bucket comes last.
  BucketRule bucket_rule = BucketRule::PyTorch;
  bool overlap = true;        ///< false: nothing is launched before the backward's end.
  std::string torch = "2.4";  ///< "1.8", "1.13", "2.4", "newest": whose rules of the limits.
  bool gradient_as_bucket_view = false;
  bool set_to_none = true;
  bool find_unused_parameters = false;
  bool static_graph = false;
  bool broadcast_buffers = true;
  bool batched_grad_copy = false;
  bool optimizer_in_backward = false;
  std::vector<std::string> unused_parameters;  ///< Names, as state_dict() has them.
  int accumulation_steps = 1;                  ///< Micro-batches per optimizer step.
  bool no_sync = true;          ///< All micro-batches but the last run under no_sync().
  std::vector<int> join_steps;  ///< [rank] steps that it has inputs for, inside join(); empty: no.
  bool divide_by_initial_world_size = true;
  std::optional<Dtype> mixed_param_dtype;   ///< DDP's own mixed precision: gradients' dtype.
  std::optional<Dtype> mixed_reduce_dtype;  ///< What is on the wire.
  CommunicationHook hook = CommunicationHook::None;
  HookOptions hook_options;
  int zero_stage = 0;
  bool zero_broadcast_by_rank = false;  ///< ZeRO-1: parameters_as_bucket_view.
};

/// What the host thread spends beside launching kernels.
struct HostOptions {
  std::optional<Duration> launch;  ///< Per kernel, in place of the profile's.
  int queue_depth = 0;             ///< Launches it can be ahead of a stream; 0: no bound.
  Duration enqueue{0};             ///< Per collective.
  Duration hook{0};                ///< Per gradient.
  Duration python_hook{0};         ///< Per bucket, with a communication hook.
  Duration traversal_per_op{0};    ///< find_unused_parameters, per op of the graph.
  Duration sync{0};                ///< From the device's end to the host going on.
  /// The host waits for the device after each step, as reading the loss does; else it runs ahead
  /// and loads the next batch meanwhile.
  bool step_sync = false;
  double copy_bytes_per_s = 0;  ///< Host to device; 0: batches are there at no cost.
};

/// Workers that load batches, as torch's DataLoader.
struct LoaderOptions {
  int workers = 0;    ///< 0: the training process loads.
  int prefetch = 2;   ///< Batches that each worker is ahead.
  Duration batch{0};  ///< To load one batch.
  double token_seconds = 0;
  int plan_every = 0;  ///< Every so many batches a worker also plans the next ones.
  Duration plan{0};
};

/// What differs from one step to the next beside the batches.
struct NoiseOptions {
  double op_jitter = 0;   ///< Standard deviation of every single op, as a fraction.
  double rank_speed = 0;  ///< Standard deviation of the ranks' lasting speeds.
  /// Quantiles of a rank's step time over its mean, evenly spaced; empty: cluster.jitter.
  std::vector<double> step_quantiles;
  /// How much of it the ranks of a step have in common (0 .. 1, a correlation); absent: as the
  /// profile says of its own jitter, none of the scenario's.
  std::optional<double> rank_correlation;
  double stall_probability = 0;  ///< Per rank and step.
  Duration stall{0};
  double loader_stall_probability = 0;  ///< Per batch.
  Duration loader_stall{0};
};

/// Measured times of one micro-batch, in place of a profile.
struct MeasuredTimes {
  Duration forward{0};
  Duration backward{0};
  Duration optimizer{0};    ///< What follows the last bucket.
  std::int64_t tokens = 0;  ///< Padded tokens they were measured with; 0: the same for any batch.
  double copy_bytes_per_s = 0;  ///< DDP's own copies, bytes read and written; 0: free.
};

/// A scenario file, checked. Formats and keys: scenarios/README.md.
struct Scenario {
  std::string path;  ///< The file it came from; relative paths inside are resolved against it.
  std::string text;  ///< That file as it was read, without overrides.
  std::string name;
  std::string question;
  std::uint64_t seed = 0;
  int steps = 0;
  int warmup_steps = 0;

  int ranks = 1;
  int ranks_per_node = 0;  ///< 0: all on one node.
  std::string profile;     ///< Resolved path; empty when the file names none.
  /// Processor cores that the ranks of a node share; absent: as the profile says, 0: no sharing.
  std::optional<int> cores;
  std::vector<SlowRank> slow_ranks;
  /// The last rank has this much more forward and backward work than the first, the others in
  /// proportion; beside what their batches make.
  double skew = 0;
  double jitter = 0;  ///< Standard deviation of a step's compute time, as a fraction.
  std::optional<Topology> topology;  ///< Links for collectives that were never measured.
  std::optional<CollectiveCost> all_reduce_table;  ///< In place of the profile's for these ranks.
  /// gloo: two collectives in flight that share the links, and the host waits for them.
  bool gloo = false;

  TransformerConfig model;
  VarlenCall varlen;                   ///< Where attention is varlen.
  std::int64_t stated_parameters = 0;  ///< For published figures; 0: counted from the tensors.
  DdpOptions ddp;
  Interference interference;
  bool interference_given = false;  ///< Else the profile's takes its place, if it has one.
  HostOptions host;
  LoaderOptions loader;
  NoiseOptions noise;
  std::optional<MeasuredTimes> times;
  std::vector<std::int64_t> buffer_bytes;  ///< Of the model's buffers, one entry a dtype.
  std::string optimizer = "adamw";
  double optimizer_bytes_per_parameter = 8;
  bool activation_checkpointing = false;

  std::int64_t samples = 0;  ///< 0: all of the length file or histogram.
  LengthSource lengths;
  std::optional<TargetSource> targets;  ///< Second lengths; the step costs by the first alone.
  SamplerSpec sampler;

  std::vector<PolicySpec> policies;  ///< At least one.

  std::vector<PublishedFigure> published;
};

/// Nodes that the ranks fill.
[[nodiscard]] int nodes_of(const Scenario& scenario);

[[nodiscard]] inline bool is_varlen(const Scenario& scenario) {
  return scenario.model.attention == AttentionKind::Varlen;
}

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

/// The scenario with the policy's own attention in place of the model's.
[[nodiscard]] Scenario with_attention_of(const PolicySpec& policy, Scenario scenario);

/// The policy of that name; with an empty name the first one. Raises InputError.
[[nodiscard]] const PolicySpec& find_policy(const Scenario& scenario, const std::string& name);

}  // namespace stepsim
