#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "costmodel/base/units.h"
#include "costmodel/compute/measured_times.h"
#include "costmodel/model/memory.h"
#include "costmodel/model/transformer.h"
#include "costmodel/network/collective_table.h"
#include "costmodel/network/interference.h"
#include "costmodel/network/topology.h"
#include "sim/batching/policy.h"
#include "sim/batching/targets.h"
#include "sim/parallel/ddp/ddp_options.h"
#include "sim/parallel/parallelism.h"
#include "sim/scenario/new_shapes.h"
#include "sim/scenario/setting.h"

namespace stepsim {

enum class OptimizerKind { AdamW, Sgd };
/// "adamw" or "sgd".
[[nodiscard]] constexpr const char* name_of(OptimizerKind kind) {
  return kind == OptimizerKind::AdamW ? "adamw" : "sgd";
}

/// A rank whose compute takes `factor` times as long.
struct SlowRank {
  int rank = 0;
  double factor = 1;
};

/// What the host thread spends beside launching kernels.
struct HostOptions {
  std::optional<Duration> launch;  ///< Time of one kernel launch, in place of the profile's.
  int queue_depth = 0;             ///< Launches it can be ahead of a stream; 0: no bound.
  Duration enqueue{0};             ///< Time to enqueue one collective.
  Duration hook{0};                ///< The reducer's time per gradient.
  Duration python_hook{0};         ///< Time per bucket, with a communication hook.
  // What units of sharded training take, as in UnitHost; absent: the profile's, or
  // usual_unit_times().
  std::optional<Duration> unit_forward;
  std::optional<Duration> unit_forward_tensor;
  std::optional<Duration> unit_backward;
  std::optional<Duration> unit_backward_tensor;
  std::optional<Duration> sharded_tensor;
  std::optional<Duration> cpu_optimizer;  ///< On the CPU, of a million parameters.
  Duration traversal_per_op{0};  ///< Time per op of the graph, with find_unused_parameters.
  Duration sync{0};              ///< Time from the device's end to the host going on.
  /// The host waits for the device after each step, as reading the loss does; else it runs ahead
  /// and loads the next batch meanwhile.
  bool step_sync = false;
  double copy_bytes_per_s = 0;  ///< Host to device; 0: batches are there at no cost.
  double error = 0.05;          ///< Standard deviation of its times together, as a fraction.
};

/// Workers that load batches, as torch's DataLoader.
struct LoaderOptions {
  int workers = 0;               ///< 0: the training process loads.
  int prefetch = 2;              ///< Batches that each worker is ahead.
  Duration batch{0};             ///< Time to load one batch.
  double token_seconds = 0;      ///< More time for each padded token of the batch.
  int plan_every = 0;            ///< After so many batches a worker plans the next ones; 0: never.
  Duration plan{0};              ///< Time that such a plan takes.
  std::vector<Duration> delays;  ///< [rank] More time for each of its batches; empty: none.

  bool operator==(const LoaderOptions&) const = default;
};

/// What differs from one step to the next beside the batches.
struct NoiseOptions {
  double op_jitter = 0;   ///< Standard deviation of every single op, as a fraction.
  double rank_speed = 0;  ///< Standard deviation of the ranks' lasting speeds.
  /// Quantiles of a rank's step time over its mean, evenly spaced; empty: cluster.jitter.
  std::vector<double> step_quantiles;
  /// The correlation between the ranks' jitter in a step, 0 to 1. Where it is absent, the profile's
  /// holds for the profile's jitter, and the scenario's jitter is independent.
  std::optional<double> rank_correlation;
  double stall_probability = 0;         ///< Probability per rank and step.
  Duration stall{0};                    ///< What the rank's forward takes longer then.
  double loader_stall_probability = 0;  ///< Probability per batch.
  Duration loader_stall{0};             ///< What loading the batch takes longer then.

  bool operator==(const NoiseOptions&) const = default;
};

/// A scenario file, checked. Formats and keys: scenarios/README.md.
struct Scenario {
  std::string path;  ///< The file it came from; relative paths inside are resolved against it.
  std::string text;  ///< The file as it was read, without overrides.
  std::vector<Setting> overrides;                ///< What was set on top of it.
  std::shared_ptr<const TomlDocument> document;  ///< All keys with these; see with_settings().
  std::vector<std::string> files;                ///< Paths of the files that it names.
  std::string name;
  std::string question;
  std::uint64_t seed = 0;
  int steps = 0;
  int warmup_steps = 0;

  int ranks = 1;
  int ranks_per_node = 0;  ///< As the file states it; 0: it does not.
  Placement placement;     ///< Of all ranks.
  std::string profile;     ///< Resolved path; empty when the file names none.
  /// Processor cores that the ranks of a node share; 0: no sharing. Absent: the profile says.
  std::optional<double> cores;
  double network_speed = 1;  ///< How many times as fast collectives are as by their prices,
  double compute_speed = 1;  ///< and kernels on the device.
  std::vector<SlowRank> slow_ranks;
  bool slow_ranks_given = false;  ///< Otherwise the profile's hold, if it has some.
  /// The last rank has this much more forward and backward work than the first, as a fraction; the
  /// ranks between have their share of it. Differences between their batches come on top.
  double skew = 0;
  /// Standard deviation of a step's compute time, as a fraction. Absent: as the profile says.
  std::optional<double> jitter;
  std::optional<Topology> topology;  ///< Links for collectives that were never measured.
  std::optional<CollectiveCost> all_reduce_table;  ///< It replaces the profile's for these ranks.
  /// With gloo two collectives in flight share the links, and the host waits for them.
  bool gloo = false;

  TransformerConfig model;
  /// The model is the recorded one of a profile that is not there yet; only batches can be planned.
  bool model_is_unknown = false;
  /// By config.json, where `model` is what a profile recorded of it: FLOPs are counted by it.
  std::optional<TransformerConfig> described;
  std::optional<double> flops_per_token;  ///< Stated; absent: as the model's products say.
  /// Stated, of a rank's device; absent: its maker's figure, where that is known.
  std::optional<double> peak_tflops;
  VarlenCall varlen;  ///< It matters where attention is varlen.
  DdpOptions ddp;
  const Parallelism* parallel = parallelisms().front();  ///< How ranks share the training.
  OwnValues parallel_values;                             ///< Of its own keys.
  Interference interference;
  bool interference_given = false;  ///< Otherwise the profile's holds, if it has one.
  double interference_error = 0.2;  ///< Standard deviation of the stated compute and transfer.
  HostOptions host;
  LoaderOptions loader;
  NoiseOptions noise;
  NewShapes new_shapes;
  std::optional<MeasuredTimes> times;
  std::vector<std::int64_t> buffer_bytes;  ///< [dtype] bytes of the model's buffers.
  OptimizerKind optimizer = OptimizerKind::AdamW;
  double optimizer_bytes_per_parameter = 8;
  Checkpointing checkpointing;
  /// The loss takes logits in the dtype of compute, and does not cast them to fp32 first.
  bool loss_in_own_dtype = false;
  bool returns_loss = false;  ///< The model's forward returns the loss, as transformers' do.

  std::int64_t samples = 0;  ///< 0: all samples of the length file or histogram.
  LengthSource lengths;
  std::optional<TargetSource> targets;  ///< Second lengths; the step costs by the first alone.
  SamplerSpec sampler;

  std::vector<BatchingPolicy> policies;  ///< At least one.
};

[[nodiscard]] inline bool is_varlen(const Scenario& scenario) {
  return scenario.model.attention == AttentionKind::Varlen;
}

/// What its parallelism may read of a scenario, which must outlive it.
[[nodiscard]] inline ParallelJob parallel_job(const Scenario& scenario) {
  return {scenario.model,
          scenario.ddp,
          scenario.parallel_values,
          scenario.buffer_bytes,
          scenario.ranks,
          scenario.steps,
          scenario.warmup_steps,
          scenario.gloo,
          scenario.model_is_unknown,
          scenario.host.copy_bytes_per_s > 0,
          scenario.host.cpu_optimizer.has_value(),
          scenario.returns_loss};
}

/// The most steps and ranks of a scenario.
inline constexpr int kMaxSteps = 1'000'000;
inline constexpr int kMaxRanks = kMaxPlacedRanks;

/// Reads and checks a scenario. `overrides` are "key=value" texts (`ddp.bucket_cap=50 MiB`),
/// applied to the parsed file before it is checked; a policy's key is `policy.NAME.key`. A path in
/// an override is taken as it stands, one in the file relative to the file.
/// Raises InputError with file:line:col and a caret; unknown keys first, with the nearest name.
[[nodiscard]] Scenario read_scenario(const std::string& path,
                                     std::span<const std::string> overrides = {});

/// What a study sets on top of the overrides.
struct StudySettings {
  std::vector<Setting> set;
  std::string option = "--set";  ///< What gave the keys, for messages: "--over".
};

/// Parses the text of a scenario; `path` names it in messages and anchors relative paths.
[[nodiscard]] Scenario parse_scenario(const std::string& text,
                                      const std::string& path,
                                      std::span<const std::string> overrides = {});

/// The scenario under more settings. The text is not parsed again. Raises InputError as
/// parse_scenario().
[[nodiscard]] Scenario with_settings(const Scenario& scenario, const StudySettings& study);

/// Returns the text of a scenario under more settings, which can stand in any folder: its files
/// have absolute paths. Raises InputError as parse_scenario().
[[nodiscard]] std::string scenario_text(const Scenario& scenario,
                                        const std::vector<Setting>& settings = {});

/// A scenario as somebody gives it, read by nobody yet.
struct GivenScenario {
  std::string file;  ///< Where it is; for one that is in no file, its name in messages.
  /// What the file holds, for one that is in none.
  std::variant<std::monostate, std::string, std::shared_ptr<const TomlDocument>> content = {};
  std::vector<Setting> set = {};

  /// Reads it. `overrides`: "key=value" texts, applied after the settings. Raises InputError as
  /// parse_scenario().
  [[nodiscard]] Scenario read(std::span<const std::string> overrides = {}) const;
};

/// Tells whether writing `file` would take from the scenario what it is read from: its own file or
/// one that it names.
[[nodiscard]] bool is_read_by(const Scenario& scenario, const std::string& file);

/// The scenario with the policy's own attention in place of the model's.
[[nodiscard]] Scenario with_attention_of(const BatchingPolicy& policy, Scenario scenario);

/// The name of the policy that "policy.NAME.key" is about; empty: of none in this scenario.
[[nodiscard]] std::string policy_of_key(const Scenario& scenario, const std::string& key);

/// The policy of that name; with an empty name the first one. Raises InputError.
[[nodiscard]] const BatchingPolicy& find_policy(const Scenario& scenario, std::string_view name);

}  // namespace stepsim
