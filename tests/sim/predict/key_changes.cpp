#include "tests/sim/predict/key_changes.h"

#include "costmodel/records/profile.h"
#include "tests/test_data.h"

namespace stepsim::test {
namespace {

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

}  // namespace

Overrides with(Overrides overrides, const Overrides& more) {
  overrides.insert(overrides.end(), more.begin(), more.end());
  return overrides;
}

std::string path_of_prices(double scale) {
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
  const Overrides fsdp2 = {"parallel.kind=fsdp2"};
  const Overrides fsdp1 = {"parallel.kind=fsdp1"};
  const Overrides zero = {"parallel.kind=zero"};
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
      {"cluster.placement", "[1, 2]"},
      {"cluster.cores", "1"},
      {"cluster.slow_ranks", "[{rank=1, factor=1.5}]"},
      {"cluster.slow_ranks.rank",
       "[{rank=3, factor=1.5}]",
       {"cluster.skew=0.5", "cluster.slow_ranks=[{rank=0, factor=1.5}]"}},
      {"cluster.slow_ranks.factor",
       "[{rank=1, factor=1.7}]",
       {"cluster.slow_ranks=[{rank=1, factor=1.5}]"}},
      {"cluster.network_speed", "2"},
      {"cluster.compute_speed", "2"},
      {"cluster.peak_tflops", "989", {}, Effect::Nothing},  // For MFU.
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
      {"ddp.optimize_ddp", "no_optimization", {"ddp.bucket_cap=8 MiB"}},
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
      {"parallel.kind", "zero3"},
      {"parallel.units", "model", fsdp2},
      {"parallel.reshard_after_forward", "false", fsdp2},
      {"parallel.kept_units", "*", fsdp2},
      {"parallel.replicas", "2", fsdp2},
      {"parallel.param_dtype", "bf16", fsdp2},
      {"parallel.reduce_dtype", "bf16", fsdp2},
      {"parallel.forward_prefetch", "2", with(fsdp2, {"host.unit_forward=20 ms"})},
      {"parallel.backward_prefetch", "2", fsdp2},
      {"parallel.reduce_buffers", "2", fsdp2},
      {"parallel.separate_reduce_group", "true", fsdp2},
      {"parallel.async_unshard", "true", fsdp2, Effect::Nothing},  // These times are of a GPU.
      {"parallel.torch", "2.14", with(fsdp2, {"parallel.param_dtype=bf16"})},
      {"parallel.accumulation", "no_sync", with(fsdp2, {"ddp.accumulation_steps=2"})},
      {"parallel.offload",
       "true",
       with(fsdp2, {"host.copy_bandwidth=1 GB/s", "host.cpu_optimizer=9 ms"})},
      {"parallel.sharding_strategy", "SHARD_GRAD_OP", fsdp1},
      {"parallel.prefetch", "none", fsdp1},
      {"parallel.limit_all_gathers", "false", with(fsdp1, {"host.unit_forward=20 ms"})},
      // These tensors are aligned by themselves.
      {"parallel.use_orig_params", "true", fsdp1, Effect::Nothing},
      {"parallel.stage", "3", zero, Effect::Nothing},  // It has no other value.
      {"parallel.stage3_prefetch_bucket_size", "0", zero},
      {"parallel.stage3_param_persistence_threshold", "100_000_000", zero},
      {"parallel.stage3_max_live_parameters", "1", zero},
      {"parallel.stage3_max_reuse_distance", "0", zero},
      {"parallel.reduce_bucket_size", "1", zero},
      {"parallel.overlap_comm",
       "false",
       with(zero, {"times.copy_bandwidth=10 GB/s", "parallel.reduce_bucket_size=1"})},
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
      {"host.unit_forward", "20 ms", fsdp2},
      {"host.unit_forward_tensor", "20 ms", fsdp2},
      {"host.unit_backward", "20 ms", fsdp2},
      {"host.unit_backward_tensor", "20 ms", fsdp2},
      {"host.sharded_tensor", "20 ms", fsdp2},
      {"host.cpu_optimizer",
       "900 ms",
       with(fsdp2,
            {"parallel.offload=true", "host.copy_bandwidth=1 GB/s", "host.cpu_optimizer=9 ms"})},
      {"host.traversal_per_op", "9 ms", unused},
      {"host.sync", "2 ms", {kSync}},
      {"host.step_sync", "true", {"host.launch=2 ms"}},
      {"host.copy_bandwidth", "1 kB/s"},
      {"host.error", "0.5", {"host.launch=5 ms"}},
      {"noise.op_jitter", "0.3"},
      {"noise.rank_speed", "0.3"},
      {"noise.step_quantiles", "[0.8, 1, 1.4]"},
      {"noise.rank_correlation", "0.9", {"cluster.jitter=0.2"}},
      {"noise.stall_probability", "0.5", {"noise.stall=20 ms", "noise.stall_probability=0.1"}},
      {"noise.stall", "40 ms", {"noise.stall_probability=0.5", "noise.stall=20 ms"}},
      {"noise.loader_stall_probability",
       "0.5",
       {"noise.loader_stall=90 ms", "noise.loader_stall_probability=0.1", kSync, kLoading}},
      {"noise.loader_stall",
       "90 ms",
       {"noise.loader_stall_probability=0.5", "noise.loader_stall=40 ms", kSync, kLoading}},
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
  const std::string config = test::source_root() + "/tests/sim/predict/config.json";
  return {
      {"cluster.profile", path_of_prices(2)},
      {"model.preset", "{preset=\"gpt2-small\", dtype=\"bf16\", attention=\"flash\"}"},
      {"model.config", "{config=\"" + config + "\", dtype=\"bf16\", attention=\"flash\"}"},
      {"model.architecture",
       "GPT2Model",
       {"model={config=\"" + config + "\", dtype=\"bf16\", attention=\"flash\"}"}},
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
      {"model.kernels", "fused", {}, Effect::Nothing},  // It is for what measures the plan.
      {"model.checkpointing", "true"},
      {"model.checkpoint_every", "3", {llama, "model.checkpointing=ops"}},
      {"model.loss_dtype", "own"},
      {"model.returns_loss",
       "true",
       {"parallel.kind=fsdp2", "parallel.reshard_after_forward=true"}},
      {"model.flops_per_token", "1e9", {}, Effect::Nothing},  // For TFLOP/s and MFU.
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

}  // namespace stepsim::test
