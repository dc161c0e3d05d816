// What a rank of FSDP2 holds over a step, against PyTorch's own memory tracker.
#include "sim/parallel/fsdp2/fsdp2_memory.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "costmodel/base/index.h"
#include "costmodel/base/mapped.h"
#include "costmodel/model/model_presets.h"
#include "sim/parallel/fsdp2/memory_moments.h"
#include "sim/parallel/fsdp2/model_units.h"
#include "sim/predict/predict.h"
#include "sim/predict/scenario_profile.h"
#include "sim/scenario/scenario.h"
#include "tests/source_root.h"
#include "tests/test_data.h"

namespace stepsim {
namespace {

constexpr double kMib = 0x1p20;

/// The tracked model: a linear layer of 1024 x 1024, blocks x + b(relu(a(x))) with 4096 features
/// within, and a linear layer of 1024 x 1024, all without biases; 4 rows of input.
struct Tracked {
  int layers = 3;
  bool bf16 = false;
  int micro_batches = 1;
  double optimizer_bytes = 0;
  Fsdp2Options options;
  std::vector<ShardUnit> units;
};

constexpr int kBlockForward = 4;   // Ops: a, relu, b, the sum.
constexpr int kBlockBackward = 3;  // Gradients of b, relu, a.

TrainedModel model_of(int layers) {
  TrainedModel model;
  model.shapes = {{1024, 1024}, {1024, 1024}};  // The root's first and last.
  model.units = {{0, 1}};
  model.forward_unit = {0};
  for (int block = 1; block <= layers; ++block) {
    model.shapes.insert(model.shapes.end(), {{4096, 1024}, {1024, 4096}});
    model.units.push_back({2 * block, 2 * block + 1});
    model.forward_unit.insert(model.forward_unit.end(), kBlockForward, block);
  }
  model.forward_unit.push_back(0);
  model.backward_unit = {0};
  model.completes = {{1}};
  for (int block = layers; block > 0; --block) {
    model.backward_unit.insert(model.backward_unit.end(), kBlockBackward, block);
    model.completes.insert(model.completes.end(), {{2 * block + 1}, {}, {2 * block}});
  }
  model.backward_unit.push_back(0);
  model.completes.push_back({0});
  return model;
}

/// The tracked program that a case's name stands for.
Tracked tracked(const std::string& name, int ranks) {
  const auto has = [&](const char* part) { return name.find(part) != std::string::npos; };
  Tracked result;
  result.layers = has("L=6") ? 6 : 3;
  result.bf16 = has("bf16");
  result.micro_batches = has("3 micro") ? 3 : has("2 micro") ? 2 : 1;
  result.optimizer_bytes = has("adamw") ? 8 : 0;
  Fsdp2Options& options = result.options;
  options.mesh = has("2x2")   ? ShardMesh{2, 2, true}
                 : has("4x1") ? ShardMesh{1, 4, true}
                 : has("1x4") ? ShardMesh{4, 1, true}
                              : ShardMesh{ranks, 1, false};
  options.reduce_buffers = has("K=2") ? 2 : has("K=3") ? 3 : 1;
  options.async_unshard = has("async");
  options.switches.resize(at(result.micro_batches));
  for (std::size_t i = 0; i + 1 < options.switches.size(); ++i) {
    options.switches[i].gradient_sync = !has("no sync");
    options.switches[i].all_reduce = !has("no all-reduce");
    options.switches[i].reshard_after_backward = !has("keep");
  }
  const TrainedModel model = model_of(result.layers);
  for (const std::vector<int>& parameters : model.units) {
    ShardUnit unit;
    const bool root = result.units.empty();
    unit.reshard_after_forward = root ? has("root True") : !has("all False");
    unit.slice_ranks = !root && has("slice 2") ? 2 : 0;
    unit.returns_inner_output = false;
    if (has("bf16/bf16")) {
      unit.reduce_dtype = Dtype::Bf16;
    }
    for (const int parameter : parameters) {
      unit.tensors.push_back(
          {"", model.shapes[at(parameter)], Dtype::F32, result.bf16 ? Dtype::Bf16 : Dtype::F32});
    }
    result.units.push_back(unit);
  }
  return result;
}

/// Activations that the tracked model has at a moment, and gradients of activations, in bytes.
struct Around {
  double activations = 0;
  double gradients = 0;
};

Around around(const Tracked& program, const HeldMoment& moment) {
  const double row = (program.bf16 ? 2 : 4) * 4 * 1024;  // Four rows of 1024 features.
  const double input = program.bf16 ? 1 : 0;             // The cast one; the other is the input.
  const auto kept = [&](int blocks) { return input + 1 + 5.0 * blocks; };
  Around result;
  if (!moment.backward) {
    result.activations = moment.micro_batch > 0 ? 1 : 0;  // The caller keeps the output before.
    const int ops = moment.ops - 1;                       // Without the root's first.
    if (moment.ops == 0) {
      result.activations += input;
    } else if (moment.act || ops == 0) {
      result.activations += kept(ops / kBlockForward);
    } else if (ops > program.layers * kBlockForward) {
      result.activations += kept(program.layers) + 1;  // The output.
    } else {
      const double within[] = {4, 8, 5, 6};
      result.activations += kept((ops - 1) / kBlockForward) + within[(ops - 1) % kBlockForward];
    }
  } else {
    // The caller keeps the output.
    const int begun = std::clamp(moment.ops - 1, 0, program.layers * kBlockBackward);
    const int done = moment.act ? begun : std::max(0, begun - 1);
    const int blocks = program.layers - done / kBlockBackward;
    const double done_with =
        moment.act && moment.ops > 0 ? 1 : 0;  // The input's gradient is there.
    result.activations = 1 + kept(blocks) - done_with;
    result.gradients = done_with;
    if (!moment.act && begun > 0 && moment.ops <= program.layers * kBlockBackward + 1) {
      const int op = (begun - 1) % kBlockBackward;
      const double activations[] = {4, 4, 0};
      const double gradients[] = {5, 9, 6};
      result.activations = 1 + kept(blocks - 1) + activations[op];
      result.gradients = gradients[op];
    }
  }
  result.activations *= row;
  result.gradients *= row;
  return result;
}

using Categories = std::map<std::string, double>;

/// The tracker sees all that a hook after a backward does at once.
bool in_post_backward(const HeldMoment& moment) {
  using enum ShardAct;
  return moment.act == PostBackward || moment.act == Reshard || moment.act == ReduceScatter ||
         moment.act == AllReduce;
}

/// What was held before the act that a moment belongs to.
HeldBytes before_act(const std::vector<HeldMoment>& moments, std::size_t i) {
  const HeldMoment& moment = moments[i];
  const auto of_act = [&](const HeldMoment& other) {
    return other.unit == moment.unit && other.backward == moment.backward &&
           (other.act == moment.act || (in_post_backward(moment) && in_post_backward(other)));
  };
  while (i > 0 && of_act(moments[i])) {
    --i;
  }
  return moments[i].held;
}

/// A moment by the tracker's categories, in MiB. What has just been allocated has no name yet: it
/// is an activation in the forward, and temporary in the backward. A slice never gets one.
Categories by_category(const Tracked& program,
                       const std::vector<HeldMoment>& moments,
                       std::size_t i) {
  const HeldMoment& moment = moments[i];
  const HeldBytes before = before_act(moments, i);
  const auto of = [&](HeldFor kind) { return static_cast<double>(moment.held[kind]); };
  const auto added = [&](ShardAct act, HeldFor kind) {
    return moment.act == act ? std::max(0.0, of(kind) - static_cast<double>(before[kind])) : 0;
  };
  const double gathered = added(ShardAct::Wait, HeldFor::Gathered);
  const double buffer = added(ShardAct::Unshard, HeldFor::GatherBuffers);
  double nameless = gathered + buffer + of(HeldFor::CastBuffers) + of(HeldFor::ReduceOutputs) +
                    of(HeldFor::PartialGradients);
  const bool copies = program.options.mesh.shards == 1;  // Nothing is scattered among one rank.
  nameless += copies ? of(HeldFor::ReduceInputs) : 0;
  // A loop of the tracker refers to the gradient of a unit's last tensor while it is reduced.
  const double own = moment.backward && in_post_backward(moment) &&
                             moment.held[HeldFor::Gradients] < before[HeldFor::Gradients]
                         ? 4096.0 * 1024 * (program.bf16 ? 2 : 4)
                         : 0;
  const Around more = around(program, moment);
  Categories bytes;
  bytes["Sharded Param"] = of(HeldFor::Parameters);
  bytes["Unsharded Param"] = of(HeldFor::Gathered) - gathered;
  bytes["All Gather"] = of(HeldFor::GatherBuffers) - buffer;
  bytes["Reduce Scatter"] = copies ? 0 : of(HeldFor::ReduceInputs);
  bytes["Unsharded Grad"] = of(HeldFor::UnreducedGradients) + own;
  bytes["Sharded Grad"] = of(HeldFor::ShardedGradients);
  bytes["OptState"] = of(HeldFor::Optimizer);
  bytes["Activation"] = more.activations + of(HeldFor::Slices) + (moment.backward ? 0 : nameless);
  bytes["Temp"] = more.gradients + of(HeldFor::Gradients) + (moment.backward ? nameless : 0);
  bytes["Inputs"] = 4 * 1024 * 4;
  double total = 0;
  for (auto& [category, of_category] : bytes) {
    of_category /= kMib;
    total += of_category;
  }
  bytes["Total"] = total;
  return bytes;
}

/// The tracker's peak of the first forward, or of all, is the first moment of the most bytes.
Categories peak_of(const Tracked& program, const std::vector<HeldMoment>& moments, bool forward) {
  Categories peak;
  for (std::size_t i = 0; i < moments.size() && !(forward && moments[i].backward); ++i) {
    Categories categories = by_category(program, moments, i);
    if (peak.empty() || categories["Total"] > peak["Total"]) {
      peak = std::move(categories);
    }
  }
  return peak;
}

/// What is held after the first forward, or after the step.
double end_of(const std::vector<HeldMoment>& moments, bool forward) {
  const auto end = std::ranges::find_if(
      moments, [&](const HeldMoment& moment) { return forward && moment.backward; });
  return static_cast<double>(std::prev(end)->held.total() - std::prev(end)->held[HeldFor::Slices]) /
         kMib;
}

/// Compares with what the tracker has written down, which is rounded to a thousandth of a MiB.
void check_file(const std::string& path, int expected_cases) {
  std::ifstream file(path);
  const auto data = nlohmann::json::parse(file);
  int seen = 0;
  for (const auto& item : data.at("cases").items()) {
    const std::string& name = item.key();
    const auto& measured = item.value();
    CAPTURE(path);
    CAPTURE(name);
    const Tracked program = tracked(name, data.at("N"));
    const std::vector<HeldMoment> moments = fsdp2_memory(model_of(program.layers),
                                                         program.units,
                                                         program.options,
                                                         program.micro_batches,
                                                         program.optimizer_bytes);
    const bool forward = name.ends_with("| fwd");
    for (const auto& held : peak_of(program, moments, forward)) {
      const auto& category = held.first;
      CAPTURE(category);
      CHECK(std::abs(held.second - measured.at("peak").value(category, 0.0)) < 0.0006);
    }
    const auto& end = measured.at("end");
    const double activations = end.value("Activation", 0.0) + end.value("Inputs", 0.0);
    CHECK(std::abs(end_of(moments, forward) + activations - end.at("Total").get<double>()) <
          0.0011);
    ++seen;
  }
  CHECK(seen == expected_cases);
}

TEST_CASE("fsdp2 memory: PyTorch's tracker at 2 ranks, to the megabyte's third decimal") {
  if (const auto path = test::data_file("fsdp2/memory_tracker_n2.json")) {
    check_file(*path, 26);
  }
}

TEST_CASE("fsdp2 memory: PyTorch's tracker at 4 ranks, with replicas, slices and micro-batches") {
  check_file(test::source_root() + "/tests/sim/parallel/fsdp2_memory_n4.json", 68);
}

/// A root of 8 MiB and blocks of 32 MiB on four ranks, one micro-batch, if nothing else is said.
struct HeldJob {
  int layers = 4;
  Fsdp2Options options = {{4, 1, false}};
  int micro_batches = 1;
  std::optional<bool> reshard = {};
  int slice_ranks = 0;
  Dtype gathered = Dtype::F32;
  std::optional<Dtype> reduced = {};
};

std::vector<HeldMoment> moments_of(const HeldJob& job) {
  const TrainedModel model = model_of(job.layers);
  std::vector<ShardUnit> units;
  for (const std::vector<int>& parameters : model.units) {
    ShardUnit& unit = units.emplace_back();
    unit.reshard_after_forward = job.reshard.value_or(units.size() > 1);
    unit.slice_ranks = unit.reshard_after_forward ? job.slice_ranks : 0;
    unit.reduce_dtype = job.reduced;
    for (const int parameter : parameters) {
      unit.tensors.push_back({"", model.shapes[at(parameter)], Dtype::F32, job.gathered});
    }
  }
  return fsdp2_memory(model, units, job.options, job.micro_batches, 0);
}

/// The most that is held, in MiB.
double peak_mib(const HeldJob& job) {
  std::int64_t most = 0;
  for (const HeldMoment& moment : moments_of(job)) {
    most = std::max(most, moment.held.total());
  }
  return static_cast<double>(most) / kMib;
}

constexpr double kBlockMib = 32;
constexpr double kRootMib = 8;
constexpr double kModelMib = 4 * kBlockMib + kRootMib;

TEST_CASE("fsdp2 memory: the peak is at the end of the second block's backward") {
  // A shard, the root, a block that computes with its gradients, the gather of the next one, one
  // reduction, two reduced shards, and the gradient of the root's last layer.
  const double peak = kModelMib / 4 + kRootMib + 4 * kBlockMib + 2 * kBlockMib / 4 + 4;
  CHECK(peak_mib({}) == peak);
  HeldJob longer;
  longer.layers = 9;
  CHECK(peak_mib(longer) == peak + 5 * 2 * kBlockMib / 4);  // More shards, and their gradients.
}

TEST_CASE("fsdp2 memory: what each option changes") {
  const double plain = peak_mib({});
  HeldJob job;
  SUBCASE("each further reduce-scatter input is one more block") {
    job.options.reduce_buffers = 2;
    CHECK(peak_mib(job) == plain + kBlockMib);
  }
  SUBCASE("kept units are there when the backward begins") {
    job.reshard = false;
    // All but one block; the last one's gather buffer is not.
    CHECK(peak_mib(job) == plain - 2 * kBlockMib + 3 * kBlockMib - kBlockMib / 4);
  }
  SUBCASE("a freed root is gathered again before the peak") {
    job.reshard = true;
    CHECK(peak_mib(job) == plain);
  }
  SUBCASE("slices of two ranks stay of the blocks that are left") {
    job.slice_ranks = 2;
    CHECK(peak_mib(job) > plain);
    job.options.mesh = {8, 1, false};
    const double of_two = peak_mib(job);
    job.slice_ranks = 4;
    CHECK(peak_mib(job) < of_two);
  }
  SUBCASE("gathers in 16 bit halve what is whole but the reductions") {
    job.gathered = Dtype::Bf16;
    CHECK(peak_mib(job) == plain - (kRootMib + 3 * kBlockMib + 4) / 2);
    job.reduced = Dtype::Bf16;  // Half of the input.
    CHECK(peak_mib(job) == plain - (kRootMib + 4 * kBlockMib + 4) / 2);
  }
  SUBCASE("replicas shard less") {
    job.options.mesh = {2, 2, true};
    const HeldJob half = {4, {{2, 1, false}}};
    CHECK(peak_mib(job) == peak_mib(half));
    CHECK(peak_mib(job) > plain);
    // What is all-reduced in another type stays to the end of the backward.
    job.reduced = Dtype::Bf16;
    HeldJob alone = half;
    alone.reduced = Dtype::Bf16;
    CHECK(peak_mib(job) > peak_mib(alone));
  }
  SUBCASE("reducing every micro-batch keeps the gradients of the shard") {
    job.micro_batches = 3;
    job.options.switches.resize(3);
    CHECK(peak_mib(job) == plain + kModelMib / 4 - 2 * kBlockMib / 4);
  }
}

TEST_CASE("fsdp2 memory: micro-batches that are not reduced keep whole gradients") {
  HeldJob job;
  job.micro_batches = 3;
  job.options.switches.resize(3);
  const double reduced = peak_mib(job);
  job.options.switches[0].gradient_sync = job.options.switches[1].gradient_sync = false;
  const double kept = peak_mib(job);
  CHECK(kept > reduced);
  // They are in the type of the reduction.
  job.gathered = Dtype::Bf16;
  job.reduced = Dtype::F32;
  const double in_f32 = peak_mib(job);
  job.reduced = Dtype::Bf16;
  CHECK(in_f32 - peak_mib(job) >= kModelMib / 2 - kBlockMib);
  // Parameters that are kept, too, are whole in every backward.
  job.gathered = Dtype::F32;
  job.reduced = std::nullopt;
  job.options.switches[0].reshard_after_backward = false;
  job.options.switches[1].reshard_after_backward = false;
  CHECK(peak_mib(job) > kept);
  // Gradients that wait for the replicas are shards.
  job.options = {{2, 2, true}};
  job.options.switches.resize(3);
  const double all = peak_mib(job);
  job.options.switches[0].all_reduce = job.options.switches[1].all_reduce = false;
  CHECK(peak_mib(job) < all);
}

TEST_CASE("fsdp2 memory: with offload shards, gradients and the optimizer are not on the device") {
  // All is as without offload but the shards and the two reduced ones; the gather there by then
  // has freed what it was copied from.
  HeldJob job;
  const double peak = peak_mib(job);
  job.options.offload = true;
  CHECK(peak_mib(job) == peak - kModelMib / 4 - 2 * kBlockMib / 4);
  HeldJob longer = job;
  longer.layers = 9;
  CHECK(peak_mib(longer) == peak_mib(job));
  // At the end nothing is left but the root, which stays gathered.
  CHECK(moments_of(job).back().held.total() == moments_of(job).back().held[HeldFor::Gathered]);
}

TEST_CASE("fsdp2 memory: offload never takes more, whatever the types, the mesh and the keys") {
  for (const int shards : {1, 2, 4, 8}) {
    for (const bool replicates : {false, true}) {
      for (const Dtype gathered : {Dtype::F32, Dtype::Bf16}) {
        for (const std::optional<Dtype> reduced :
             {std::optional<Dtype>(), std::optional(Dtype::F32), std::optional(Dtype::Bf16)}) {
          for (const int slice : {0, shards > 2 ? 2 : 0}) {
            HeldJob job = {4, {{shards, replicates ? 2 : 1, replicates}}, 2};
            job.gathered = gathered;
            job.reduced = reduced;
            job.slice_ranks = slice;
            CAPTURE(shards);
            CAPTURE(replicates);
            CAPTURE(slice);
            const double all = peak_mib(job);
            job.options.offload = true;
            CHECK(peak_mib(job) <= all);
          }
        }
      }
    }
  }
}

TEST_CASE("fsdp2 memory: PyTorch's own bounds hold for three blocks on two ranks") {
  // Its test allows 3 blocks, the rest and a shard in the forward, and a second shard in the
  // backward; the gradient of the root's last layer passes that.
  const HeldJob job = {3, {{2, 1, false}}};
  const double shard = (3 * kBlockMib + kRootMib) / 2;
  CHECK(peak_mib(job) <= 3 * kBlockMib + kRootMib + 2 * shard + 4.25);
}

TEST_CASE("fsdp2 memory: 8 to 128 ranks save 14.0 GiB of the state of Llama 3 8B") {
  const TransformerConfig config = model_preset("llama3-8b");
  const StepOps ops = step_ops(config);
  TrainedModel model = trained_model(config, ops, {});
  add_model_units(config, ops, {UnitRule::Blocks}, model);
  const auto state_gib = [&](int ranks) {
    std::vector<ShardUnit> units = shard_units(model);
    for (ShardUnit& unit : units) {
      for (ShardedTensor& tensor : unit.tensors) {
        tensor.stored = tensor.gathered = Dtype::F32;
      }
    }
    const HeldBytes end = fsdp2_memory(model, units, {{ranks, 1, false}}, 1, 8).back().held;
    CHECK(end.total() ==
          end[HeldFor::Parameters] + end[HeldFor::ShardedGradients] + end[HeldFor::Optimizer]);
    return static_cast<double>(end.total()) / 0x1p30;
  };
  CHECK(state_gib(8) - state_gib(128) == doctest::Approx(14.0).epsilon(0.004));
}

TEST_CASE("fsdp2 memory: the loss is outside the root, which is gathered when it is through") {
  const TransformerConfig config = model_preset("gpt2-small");
  const StepOps ops = step_ops(config);
  TrainedModel model = trained_model(config, ops, {});
  CHECK(model.loss_ops == 1);
  add_model_units(config, ops, {UnitRule::Blocks}, model);
  std::vector<ShardUnit> units = shard_units(model);
  const auto at_loss = [&] {
    const auto moments = fsdp2_memory(model, units, {{2, 1, false}}, 1, 0);
    const auto loss = std::ranges::find_if(
        moments, [](const HeldMoment& moment) { return moment.backward && moment.ops == 1; });
    REQUIRE(loss != moments.end());
    return loss->held;
  };
  units.front().reshard_after_forward = false;
  CHECK(at_loss()[HeldFor::Gathered] > 0);
  units.front().reshard_after_forward = true;
  CHECK(at_loss()[HeldFor::Gathered] == 0);
  CHECK(at_loss()[HeldFor::GatherBuffers] == 0);
  model.loss_ops = 0;  // As where the module returns its loss.
  CHECK(at_loss()[HeldFor::Gathered] > 0);
}

TEST_CASE("fsdp2 memory: a model that returns its loss holds its root at the loss") {
  // The logits are this model's peak. Its root has the embedding, both norms and the head.
  const std::string llama = R"(
[scenario]
name = "loss"
steps = 3
warmup_steps = 1
[cluster]
ranks = 4
profile = "h100_8x_published"
[parallel]
kind = "fsdp2"
reshard_after_forward = true
[model]
kind = "llama"
layers = 2
hidden = 512
heads = 8
vocab = 32768
max_length = 2048
dtype = "bf16"
parameter_dtype = "bf16"
attention = "flash"
[data]
samples = 64
lengths = { constant = 2048 }
[[policy]]
name = "fixed"
kind = "fixed"
batch_size = 4
)";
  const auto peak_mib = [&](const std::vector<std::string>& overrides) {
    const Scenario scenario = parse_scenario(llama, "loss.toml", overrides);
    return predict(scenario, scenario.policies.front(), scenario_profile(scenario), {})
        .summary.peak_memory_mib;
  };
  const double in_loop = peak_mib({});
  CHECK(peak_mib({"model.returns_loss=false"}) == in_loop);
  // Table and head, which are not tied, and a norm: gathered, and copied out of the buffer.
  constexpr double kMibs = 2 / kMib;  // Of an element in 16 bit.
  CHECK(peak_mib({"model.returns_loss=true"}) - in_loop ==
        doctest::Approx(2 * (2 * 32768.0 + 1) * 512 * kMibs).epsilon(1e-6));
  // A root that is kept gathers the last block ahead in its hook: attention, MLP and two norms.
  const std::vector<std::string> kept = {"parallel.reshard_after_forward=default"};
  CHECK(peak_mib({kept[0], "model.returns_loss=true"}) - peak_mib(kept) ==
        doctest::Approx((4 * 512.0 * 512 + 3 * 512.0 * 2048 + 2 * 512) * kMibs).epsilon(1e-6));
}

TEST_CASE("fsdp2 memory: moments are those that can be a peak") {
  const TransformerConfig config = model_preset("gpt2-small");
  const StepOps ops = step_ops(config);
  TrainedModel model = trained_model(config, ops, {});
  add_model_units(config, ops, {UnitRule::Blocks}, model);
  const auto peak = [&] {
    const auto moments = fsdp2_memory(model, shard_units(model), {{2, 1, false}}, 1, 0);
    return peak_moments(config, ops, moments);
  };
  const std::vector<MemoryMoment> moments = peak();
  CHECK(moments.size() > 1);
  CHECK(moments.size() < 24);
  CHECK(moments.front().layers == 1);
  CHECK(moments.front().loss == 1);
  for (std::size_t i = 1; i < moments.size(); ++i) {
    // Fewer activations come with more bytes.
    CHECK((moments[i].layers < moments[i - 1].layers || moments[i].loss < moments[i - 1].loss));
  }
  // The head's part of the gradient of a tied embedding is there through the whole backward.
  tie_gradients(config, ops, model);
  const auto most = [](const std::vector<MemoryMoment>& all) {
    return max_of(
        all,
        [](const MemoryMoment& moment) {
          return moment.gradients + moment.gathered + moment.buckets;
        },
        Bytes(0));
  };
  CHECK(most(peak()) > most(moments));
}

}  // namespace
}  // namespace stepsim
