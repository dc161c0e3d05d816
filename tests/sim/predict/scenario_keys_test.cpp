// No key of the scenario file is ignored by the fast path: the recurrence gives the figures of the
// event engine for every key, or leaves the scenario to the engine.
#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "sim/batching/policies/policy_table.h"
#include "sim/predict/predict.h"
#include "sim/scenario/key_table.h"
#include "tests/test_data.h"

using namespace stepsim;

namespace {

using Overrides = std::vector<std::string>;

/// Ten blocks by measured times on two nodes of two ranks.
const std::string kBlocksScenario = R"(
[scenario]
name = "keys"
steps = 12
warmup_steps = 4
[cluster]
ranks = 4
ranks_per_node = 2
topology = { algorithm = "ring", intra_latency = "5 us", intra_bandwidth = "8 GB/s", inter_latency = "9 us", inter_bandwidth = "4 GB/s" }
[times]
forward = "10 ms"
backward = "20 ms"
optimizer = "5 ms"
tokens = 40
[model]
kind = "blocks"
layers = 10
block_elements = 1_000_000
[data]
samples = 256
lengths = { uniform = [4, 16] }
[[policy]]
name = "fixed"
kind = "fixed"
batch_size = 4
)";

/// A profile with a price for every op, in one file for the whole test; `scale` makes it slower.
std::string profile_path(double scale) {
  static const std::string folder = test::fresh_folder();
  Profile profile;
  profile.name = "rooflines";
  profile.backend = "cuda";
  profile.host_is_device = false;
  profile.launch_seconds = 5e-6;
  for (int op_class = 0; op_class <= static_cast<int>(OpClass::Optimizer); ++op_class) {
    for (int pass = 0; pass <= static_cast<int>(Pass::WeightGradient); ++pass) {
      for (int dtype = 0; dtype <= static_cast<int>(Dtype::F64); ++dtype) {
        OpCost cost;
        cost.op_class = static_cast<OpClass>(op_class);
        cost.pass = static_cast<Pass>(pass);
        cost.dtype = static_cast<Dtype>(dtype);
        cost.form = CostForm::Roofline;
        cost.features = {"1", "flops", "bytes"};
        cost.coefficients = {2e-6 * scale, 2e-14 * scale, 1e-12 * scale};
        cost.range_lo = 1;
        cost.range_hi = 1e12;
        profile.ops.push_back(cost);
      }
    }
  }
  const std::string path = folder + (scale > 1 ? "/slow.json" : "/profile.json");
  write_profile(path, profile);
  return path;
}

/// A small decoder by a profile.
std::string decoder() {
  return R"(
[scenario]
name = "keys"
steps = 12
warmup_steps = 4
[cluster]
ranks = 4
topology = { algorithm = "ring", intra_latency = "5 us", intra_bandwidth = "20 GB/s" }
profile = ")" +
         profile_path(1) + R"("
[model]
kind = "gpt2"
layers = 2
hidden = 512
heads = 8
vocab = 8192
max_length = 1024
dtype = "bf16"
attention = "flash"
[data]
samples = 512
lengths = { uniform = [256, 1024] }
[[policy]]
name = "fixed"
kind = "fixed"
batch_size = 8
)";
}

/// Plays every step in the engine without changing what happens.
const std::string kEngineKeys = "host.queue_depth=1000000";

/// What a key changes.
enum class Effect {
  Figures,  ///< The predicted step, its interval or its memory.
  Nothing   ///< No prediction: texts, and what only other commands read.
};

/// A key's other value, `after`, in a scenario where it matters.
struct KeyChange {
  std::string key;
  std::string after;
  Overrides before = {};
  Effect effect = Effect::Figures;
};

std::vector<double> figures_of(const PredictionSummary& summary) {
  return {summary.step_time_ms.mean,
          summary.step_time_ms.low90,
          summary.step_time_ms.high90,
          summary.step_time_ms.max,
          summary.data_ms,
          summary.forward_ms,
          summary.backward_ms,
          summary.optimizer_ms,
          summary.communication_ms,
          summary.useful_tokens_per_step,
          summary.padded_tokens_per_step,
          summary.peak_memory_mib};
}

/// The figures without noise, then those with it. A profile's noise is left out: the paths draw it
/// in another order.
std::vector<double> figures(const std::string& text, const Overrides& overrides, bool engine) {
  const Scenario scenario = parse_scenario(text, test::source_root() + "/keys.toml", overrides);
  const Profile profile = scenario_profile(scenario);
  PredictOptions options;
  options.engine = engine;
  std::vector<double> all;
  for (const int noise_runs : {0, scenario.times ? 4 : 0}) {
    options.noise_runs = noise_runs;
    const std::vector<double> some =
        figures_of(predict(scenario, scenario.policies.front(), profile, options).summary);
    all.insert(all.end(), some.begin(), some.end());
  }
  return all;
}

Overrides with(Overrides overrides, const Overrides& more) {
  overrides.insert(overrides.end(), more.begin(), more.end());
  return overrides;
}

const std::string kTwoTimes = "{sizes=[\"64 KiB\",\"64 MiB\"], times=[\"1 ms\",\"30 ms\"]}";
const std::string kNccl =
    "cluster.topology={algorithm=\"nccl\", channels=4, intra_latency=\"5 us\", "
    "intra_bandwidth=\"8 GB/s\", inter_latency=\"9 us\", inter_bandwidth=\"4 GB/s\"}";
const std::string kFastNccl =
    "cluster.topology={algorithm=\"nccl\", channels=16, intra_latency=\"5 us\", "
    "intra_bandwidth=\"300 GB/s\"}";
const std::string kLoading = "data.loading={batch=\"4 ms\"}";
const std::string kSync = "host.step_sync=true";
const std::string kHalfOfBackward = "interference.compute=0.5";
const Overrides kPlans = {
    kSync, "data.workers=1", "data.loading={batch=\"1 ms\", plan_every=4, plan=\"90 ms\"}"};

/// A change of every key, by the blocks' scenario.
/// Keys of what new shapes cost. Switches of versions alone refuse or allow mechanisms.
std::vector<KeyChange> shape_changes() {
  const std::string plan = "{kind=\"attention_plan\", forward=\"30 ms\"";
  const std::string graph = "{kind=\"compile\", mode=\"static\", forward=\"30 ms\"";
  const Overrides plans = {"new_shapes.mechanisms=[" + plan + "}]", kSync};
  const Overrides few = {"new_shapes.mechanisms=[" + plan + ", entries=2}]", kSync};
  const Overrides graphs = {"new_shapes.mechanisms=[" + graph + ", uncompiled_factor=2}]", kSync};
  const Overrides unmasked = with(plans, {"new_shapes.mask=never"});
  const auto change = [](const std::string& key,
                         const std::string& mechanism,
                         const Overrides& before,
                         Effect effect = Effect::Figures) {
    return KeyChange{"new_shapes.mechanisms." + key, "[" + mechanism + "}]", before, effect};
  };
  return {
      {"new_shapes.mechanisms", "[" + plan + "}]", {kSync}},
      {"new_shapes.warm_up", "true", plans},
      {"new_shapes.torch", "2.11", plans, Effect::Nothing},
      {"new_shapes.cudnn", "9.19", plans, Effect::Nothing},
      {"new_shapes.compute_capability", "9.0", plans, Effect::Nothing},
      {"new_shapes.cudnn_attention", "true", plans, Effect::Nothing},
      {"new_shapes.cudnn_deprioritized", "true", plans},
      {"new_shapes.mask", "padded", plans, Effect::Nothing},  // No batch is without padding here.
      {"new_shapes.avoid_recompile", "true", unmasked},
      change("kind", "{kind=\"allocator\", forward=\"30 ms\"", plans),
      change("forward", "{kind=\"attention_plan\", forward=\"40 ms\"", plans),
      change("backward", plan + ", backward=\"9 ms\"", plans),
      change("forward_device", plan + ", forward_device=\"9 ms\"", plans),
      change("backward_device", plan + ", backward_device=\"9 ms\"", plans),
      change("error", plan + ", error=0.9", plans),
      change("key", plan + ", key=\"samples\"", plans),
      change("round_length", plan + ", round_length=16", plans),
      change("shared", plan + ", shared=true", plans),
      change("entries", plan + ", entries=2", plans),
      change("eviction", plan + ", entries=2, eviction=\"none\"", few),
      change("mode", "{kind=\"compile\", forward=\"30 ms\", uncompiled_factor=2", graphs),
      change("recompile_limit", graph + ", uncompiled_factor=2, recompile_limit=3", graphs),
      change("uncompiled_factor",
             graph + ", recompile_limit=3, uncompiled_factor=3",
             {"new_shapes.mechanisms=[" + graph + ", recompile_limit=3}]"}),
  };
}

std::vector<KeyChange> block_changes() {
  const Overrides power_sgd = {"model={kind=\"blocks\", tensors=\"" + test::source_root() +
                                   "/scenarios/published/resnet50.csv\"}",
                               "ddp.communication_hook={kind=\"power_sgd\", start_iteration=0}"};
  const Overrides local_sgd = {
      "ddp.communication_hook={kind=\"post_local_sgd\", start_iteration=0, period=2}"};
  const Overrides top_k = {"ddp.communication_hook=top_k"};
  const Overrides newest = {"ddp.torch=newest"};
  const Overrides accumulate = {"ddp.accumulation_steps=2"};
  const Overrides join = {"ddp.join=[12, 12, 12, 8]"};
  const Overrides unused = {"ddp.find_unused_parameters=true"};
  const Overrides mixed = {"ddp.mixed_precision={param_dtype=\"bf16\", reduce_dtype=\"f32\"}"};
  const Overrides waves = {"interference.multiprocessors=132", "interference.limit=1"};
  const Overrides few = {"data.samples=80"};
  return {
      {"scenario.name", "other", {}, Effect::Nothing},
      {"scenario.question", "other", {}, Effect::Nothing},
      {"scenario.seed", "7"},
      {"scenario.steps", "10"},
      {"scenario.warmup_steps", "6"},
      {"cluster.ranks", "8"},
      {"cluster.ranks_per_node", "4"},
      {"cluster.cores", "1"},
      {"cluster.slow_ranks", "[{rank=1, factor=1.5}]"},
      {"cluster.slow_ranks.rank",
       "[{rank=3, factor=1.5}]",
       {"cluster.skew=0.5", "cluster.slow_ranks=[{rank=0, factor=1.5}]"}},
      {"cluster.slow_ranks.factor",
       "[{rank=1, factor=1.7}]",
       {"cluster.slow_ranks=[{rank=1, factor=1.5}]"}},
      {"cluster.skew", "0.5"},
      {"cluster.jitter", "0.1"},
      {"cluster.communicator", "gloo"},
      {"cluster.topology",
       "{intra_latency=\"5 us\", intra_bandwidth=\"1 GB/s\", inter_latency=\"5 us\", "
       "inter_bandwidth=\"1 GB/s\"}"},
      {"cluster.topology.algorithm", "tree"},
      {"cluster.topology.intra_latency", "500 us"},
      {"cluster.topology.intra_bandwidth", "1 GB/s"},
      {"cluster.topology.inter_latency", "500 us"},
      {"cluster.topology.inter_bandwidth", "1 GB/s"},
      {"cluster.topology.node_bandwidth", "1 GB/s", {"cluster.topology.algorithm=flat_ring"}},
      {"cluster.topology.slow_links", "[{rank=1, factor=8}]"},
      {"cluster.topology.slow_links.rank",
       "[{rank=1, factor=8}]",
       {"cluster.topology.slow_links=[{node=1, factor=2}]"}},
      {"cluster.topology.slow_links.node",
       "[{node=1, factor=8}]",
       {"cluster.topology.slow_links=[{rank=1, factor=1.5}]"}},
      {"cluster.topology.slow_links.factor",
       "[{rank=1, factor=16}]",
       {"cluster.topology.slow_links=[{rank=1, factor=8}]"}},
      {"cluster.topology.channels", "1", {kFastNccl, "cluster.ranks_per_node=4"}},
      {"cluster.topology.gpu", "volta", {kNccl}},
      {"cluster.all_reduce", kTwoTimes},
      {"cluster.all_reduce.sizes", "[\"4 KiB\",\"640 MiB\"]", {"cluster.all_reduce=" + kTwoTimes}},
      {"cluster.all_reduce.error", "0.3", {"cluster.all_reduce=" + kTwoTimes}},
      {"cluster.all_reduce.times", "[\"1 ms\",\"60 ms\"]", {"cluster.all_reduce=" + kTwoTimes}},
      {"model.layers", "12"},
      {"model.block_elements", "2_000_000"},
      {"model.tensors",
       "{kind=\"blocks\", tensors=\"" + test::source_root() +
           "/scenarios/published/resnet50.csv\"}"},
      {"model.buffers", "{f32=1_000_000}"},
      {"ddp.bucket_cap", "8 MiB"},
      {"ddp.first_bucket_cap", "20 MiB"},
      {"ddp.bucket_caps", "[\"1 MiB\", \"8 MiB\"]", newest},
      {"ddp.last_bucket_cap", "true", newest},
      {"ddp.bucket_rule", "single"},
      {"ddp.overlap", "false"},
      {"ddp.torch", "newest", {"ddp.bucket_cap=12 MiB"}},
      {"ddp.gradient_as_bucket_view", "true", {"times.copy_bandwidth=10 GB/s"}},
      {"ddp.set_to_none", "false", {"times.copy_bandwidth=10 GB/s"}},
      {"ddp.find_unused_parameters", "true", {"ddp.bucket_cap=8 MiB"}},
      {"ddp.unused_parameters",
       "[\"block3.weight\"]",
       with(unused, {"times.copy_bandwidth=10 GB/s"})},
      {"ddp.static_graph", "true", {"scenario.warmup_steps=0"}},
      {"ddp.broadcast_buffers", "false", {"model.buffers={f32=1_000_000}"}},
      {"ddp.batched_grad_copy",
       "true",
       with(newest, {"times.copy_bandwidth=10 GB/s", "host.launch=1 ms"})},
      {"ddp.optimizer_in_backward", "true"},
      {"ddp.accumulation_steps", "2"},
      {"ddp.no_sync", "false", accumulate},
      {"ddp.join", "[12, 12, 12, 8]"},
      {"ddp.divide_by_initial_world_size", "false", with(join, {"host.launch=2 ms"})},
      {"ddp.mixed_precision", "{param_dtype=\"bf16\"}"},
      {"ddp.mixed_precision.param_dtype", "f64", with(mixed, {"times.copy_bandwidth=10 GB/s"})},
      {"ddp.mixed_precision.reduce_dtype", "bf16", mixed},
      {"ddp.communication_hook", "fp16"},
      {"ddp.communication_hook.kind", "bf16", {"ddp.communication_hook={kind=\"noop\"}"}},
      {"ddp.communication_hook.rank", "64", power_sgd},
      {"ddp.communication_hook.start_iteration", "8", power_sgd},
      {"ddp.communication_hook.min_compression_rate", "100", power_sgd},
      {"ddp.communication_hook.topk_fraction", "0.2", {"ddp.communication_hook={kind=\"top_k\"}"}},
      {"ddp.communication_hook.subgroup_ranks", "4", local_sgd},
      {"ddp.communication_hook.period", "3", local_sgd},
      {"ddp.zero_stage", "2"},
      {"ddp.zero_broadcast_by_rank", "true", {"ddp.zero_stage=1"}},
      {"interference.strength", "0.5"},
      {"interference.error", "0.9", {kHalfOfBackward}},
      {"interference.compute", "0.5"},
      {"interference.transfer", "0.5"},
      {"interference.memory_share", "0.3", {"times.copy_bandwidth=10 GB/s"}},
      {"interference.limit",
       "0.05",
       {"interference.memory_share=0.3", "times.copy_bandwidth=10 GB/s"}},
      {"interference.while_waiting",
       "false",
       {kHalfOfBackward, "cluster.slow_ranks=[{rank=1, factor=2}]"}},
      {"host.launch", "3 ms"},
      {"host.queue_depth", "1", {"cluster.slow_ranks=[{rank=1, factor=2}]", "host.launch=1 ms"}},
      {"host.enqueue", "9 ms", {"ddp.bucket_rule=per_parameter"}},
      {"host.hook", "9 ms"},
      {"host.python_hook", "20 ms", {"ddp.communication_hook=fp16"}},
      {"host.traversal_per_op", "9 ms", unused},
      {"host.sync", "2 ms", {kSync}},
      {"host.step_sync", "true", {"host.launch=2 ms"}},
      {"host.copy_bandwidth", "1 kB/s"},
      {"noise.op_jitter", "0.3"},
      {"noise.rank_speed", "0.3"},
      {"noise.step_quantiles", "[0.8, 1, 1.4]"},
      {"noise.rank_correlation", "0.9", {"cluster.jitter=0.2"}},
      {"noise.stall_probability", "0.5", {"noise.stall=20 ms"}},
      {"noise.stall", "40 ms", {"noise.stall_probability=0.5"}},
      {"noise.loader_stall_probability", "0.5", {"noise.loader_stall=90 ms", kSync, kLoading}},
      {"noise.loader_stall", "90 ms", {"noise.loader_stall_probability=0.5", kSync, kLoading}},
      {"times.forward", "20 ms"},
      {"times.backward", "40 ms"},
      {"times.optimizer", "9 ms"},
      {"times.tokens", "80"},
      {"times.copy_bandwidth", "10 GB/s"},
      {"times.error", "0.1"},
      {"optimizer.state_bytes_per_parameter", "80"},
      {"data.samples", "64"},
      {"data.lengths", "{constant=8}"},
      {"data.sampler", "{shuffle=false}"},
      {"data.workers", "1", {kSync, "data.loading={batch=\"30 ms\"}"}},
      {"data.prefetch", "1", kPlans},
      {"data.delays", "[{rank=1, delay=\"40 ms\"}]", {kSync}},
      {"data.delays.rank",
       "[{rank=0, delay=\"40 ms\"}]",
       {kSync, "cluster.skew=0.5", "data.delays=[{rank=1, delay=\"40 ms\"}]"}},
      {"data.delays.delay",
       "[{rank=1, delay=\"80 ms\"}]",
       {kSync, "data.delays=[{rank=1, delay=\"40 ms\"}]"}},
      {"data.loading", "{batch=\"9 ms\"}", {kSync}},
      {"data.loading.batch", "9 ms", {kSync, kLoading}},
      {"data.loading.per_token", "1 ms", {kSync, kLoading}},
      {"data.loading.plan_every", "1", kPlans},
      {"data.loading.plan", "300 ms", kPlans},
      {"data.sampler.kind", "python"},
      {"data.sampler.shuffle", "false"},
      {"data.sampler.seed", "9"},
      {"data.sampler.drop_last", "true", {"data.samples=62"}},
      {"data.sampler.set_epoch", "true", few},
      {"data.lengths.constant", "{constant=9}"},
      {"data.lengths.uniform", "{uniform=[4, 32]}"},
      {"data.lengths.log_uniform", "{log_uniform=[4, 32]}"},
      {"data.lengths.log_normal", "{log_normal={mu=2, sigma=1, max=64}}"},
      {"data.lengths.log_normal.mu", "3", {"data.lengths={log_normal={mu=2, sigma=1, max=64}}"}},
      {"data.lengths.log_normal.sigma", "2", {"data.lengths={log_normal={mu=2, sigma=1, max=64}}"}},
      {"data.lengths.log_normal.min", "9", {"data.lengths={log_normal={mu=2, sigma=1, max=64}}"}},
      {"data.lengths.log_normal.max", "9", {"data.lengths={log_normal={mu=2, sigma=1, max=64}}"}},
      {"data.lengths.seed", "9"},
      {"data.lengths.cap", "9"},
      {"data.lengths.outlier_probability", "0.3", {"data.lengths={log_uniform=[4, 64]}"}},
      {"data.lengths.label_classes", "9", {"data.lengths={log_uniform=[4, 64]}"}},
      {"policy.name", "other", {}, Effect::Nothing},
      {"policy.kind", "bucketed"},
      {"policy.batch_size", "2"},
      {"policy.weighting", "sample", {}, Effect::Nothing},
      {"policy.reference", "true", {}, Effect::Nothing},
      {"policy.pad_to_multiple_of", "16"},
      {"policy.pad_to_lengths", "[64, 128]"},
      {"policy.lengths", "{constant=9}"},
  };
}

/// Changes the keys that a model of blocks does not have, in the scenario of the decoder.
std::vector<KeyChange> decoder_changes() {
  const std::string llama =
      "model={kind=\"llama\", layers=2, hidden=512, heads=8, vocab=8192, max_length=1024, "
      "dtype=\"bf16\", attention=\"flash\"}";
  const std::string classifier =
      "model={kind=\"distilbert\", layers=2, hidden=512, heads=8, vocab=8192, max_length=1024, "
      "dtype=\"bf16\", attention=\"flash\"}";
  const Overrides varlen = {
      "model.attention=varlen",
      "model.varlen={max_num_docs=16, max_seq_len=1024, empty_block=\"100 ns\"}"};
  const Overrides slots = with(varlen, {"model.varlen.max_num_docs=8"});
  return {
      {"cluster.profile", profile_path(2)},
      {"model.preset", "{preset=\"gpt2-small\", dtype=\"bf16\", attention=\"flash\"}"},
      {"model.kind", "bert"},
      {"model.name", "other", {}, Effect::Nothing},
      {"model.hidden", "768"},
      {"model.heads", "16", {llama, "model.kv_heads=8"}},
      {"model.kv_heads", "2", {llama}},
      {"model.ffn", "4096"},
      {"model.vocab", "16384"},
      {"model.max_length", "4096"},
      {"model.classes", "9000", {classifier}},
      {"model.tied_embeddings", "false"},
      {"model.causal", "false"},
      {"model.window", "64"},
      {"model.dtype", "f32"},
      {"model.parameter_dtype", "bf16"},
      {"model.attention", "dense"},
      {"model.checkpointing", "true"},
      {"model.parameters", "9_000_000", {}, Effect::Nothing},
      {"model.sparse_embeddings", "true", {"model.tied_embeddings=false"}},
      {"model.varlen", "{max_num_docs=64, empty_block=\"900 ns\"}", {"model.attention=varlen"}},
      {"model.varlen.max_num_docs", "64", varlen},
      {"model.varlen.max_seq_len", "4096", varlen},
      {"model.varlen.block_rows", "64", varlen},
      {"model.varlen.empty_block", "900 ns", varlen},
      {"optimizer.kind", "sgd"},
      {"interference.multiprocessors", "132"},
      {"interference.max_channels", "64", {"interference.multiprocessors=132"}},
      {"policy.attention", "dense"},
      {"policy.varlen", "{max_num_docs=64}", varlen},
      {"policy.row_length", "1024", {"policy.fixed.row_length=512"}},
  };
}

/// Keys that shape the plan alone: it is made before a path is chosen, and both paths read it.
bool shapes_only_the_plan(const std::string& table, const std::string& key) {
  const auto parameters = policy_parameter_names();
  const bool parameter = std::find(parameters.begin(), parameters.end(), key) != parameters.end();
  return (table == "policy" && parameter) || table == "policy.varlen" ||
         (table == "model.varlen" && key == "overflow") || table.starts_with("policy.lengths") ||
         table.starts_with("data.targets") || table.starts_with("data.lengths.mixture") ||
         (table == "data" && key == "targets") ||
         (table == "data.lengths" && (key == "histogram" || key == "file" || key == "jsonl" ||
                                      key == "field" || key == "plan" || key == "mixture"));
}

/// The override of a changed key; a list or a table is replaced as a whole.
std::string override_of(const KeyChange& change) {
  std::string key = change.key;
  const bool whole = change.after.starts_with("[{") || change.after.starts_with("{");
  for (const std::string owner : {"cluster.slow_ranks",
                                  "cluster.topology.slow_links",
                                  "data.delays",
                                  "new_shapes.mechanisms"}) {
    if (key.starts_with(owner + ".")) {
      key = owner;
    }
  }
  if (whole && key.starts_with("data.lengths.")) {
    key = "data.lengths";
  }
  if (key == "model.preset" || key == "model.tensors") {
    key = "model";
  }
  if (key.starts_with("policy.")) {
    key = "policy.fixed" + key.substr(6);
  }
  return key + "=" + change.after;
}

void check(const std::string& scenario, const KeyChange& change) {
  CAPTURE(change.key);
  const Overrides after = with(change.before, {override_of(change)});
  // The engine plays runs with noise where anything is not plain.
  const Overrides engine = change.key == "host.queue_depth" ? Overrides{} : Overrides{kEngineKeys};
  const auto fast_before = figures(scenario, change.before, false);
  const auto fast_after = figures(scenario, after, false);
  const auto engine_before = figures(scenario, with(change.before, engine), true);
  const auto engine_after = figures(scenario, with(after, engine), true);
  CHECK((engine_before != engine_after) == (change.effect == Effect::Figures));
  for (std::size_t i = 0; i < fast_before.size(); ++i) {
    CAPTURE(i);
    // Without noise the paths agree; the engine's noisy runs also play the rebuild of the second
    // step, which moves the ends of an interval of four runs.
    const double tolerance = i < fast_before.size() / 2 ? 1e-3 : 2e-2;
    CHECK(fast_before[i] == doctest::Approx(engine_before[i]).epsilon(tolerance));
    CHECK(fast_after[i] == doctest::Approx(engine_after[i]).epsilon(tolerance));
  }
}

}  // namespace

TEST_CASE("every key of the scenario changes the same figures in the engine and the recurrence") {
  std::map<std::string, int> covered;
  for (const KeyChange& change : block_changes()) {
    ++covered[change.key];
    check(kBlocksScenario, change);
  }
  for (const KeyChange& change : shape_changes()) {
    ++covered[change.key];
    check(kBlocksScenario, change);
  }
  const std::string scenario = decoder();
  for (const KeyChange& change : decoder_changes()) {
    ++covered[change.key];
    check(scenario, change);
  }
  for (const KeyTable& table : key_tables()) {
    // Figures of articles describe no step.
    for (const Key& key :
         table.path.empty() || table.path == "published" ? std::vector<Key>() : table.keys) {
      if (!shapes_only_the_plan(table.path, key.name)) {
        CAPTURE(table.path);
        CAPTURE(key.name);
        CHECK_MESSAGE(covered.count(table.path + "." + key.name) == 1,
                      "give this key another value in block_changes() or decoder_changes()");
      }
    }
  }
}
