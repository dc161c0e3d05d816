// DeepSpeed's ZeRO-3: what is gathered when, what is reduced together, and what it costs.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "costmodel/base/index.h"
#include "costmodel/model/model_presets.h"
#include "sim/engine/engine.h"
#include "sim/parallel/ddp/ddp_options.h"
#include "sim/parallel/parallelism.h"
#include "sim/parallel/zero/leaf_modules.h"
#include "sim/parallel/zero/zero_program.h"
#include "sim/predict/predict.h"
#include "sim/predict/scenario_profile.h"
#include "sim/scenario/scenario.h"
#include "tests/sim/scenario/scenario_text.h"

namespace stepsim {
namespace {

constexpr int kChainRanks = 4;

/// A chain of modules, each with a weight of 400 elements and a bias of 4.
struct Chain {
  int modules = 4;
  ZeroOptions options = {.ranks = kChainRanks, .persistence_threshold = 4};
  double compute_us = 1000;   ///< Of a module's forward; its backward takes twice as long.
  double byte_us = 0.25;      ///< Of a collective: 400 us for a weight.
  double copied_byte_us = 0;  ///< Of a copy.
  int micro_batches = 1;
};

TrainedModel chain_model(const Chain& chain) {
  TrainedModel model;
  model.units.emplace_back();
  for (int module = 0; module < chain.modules; ++module) {
    for (const std::int64_t elements : {400, 4}) {
      model.parameters.push_back({.bytes = 4 * elements, .dtype = "f32"});
      model.shapes.push_back({elements});
    }
    model.units.push_back({2 * module, 2 * module + 1});
    model.forward_unit.push_back(module + 1);
  }
  model.backward_unit.assign(model.forward_unit.rbegin(), model.forward_unit.rend());
  for (const int unit : model.backward_unit) {
    model.completes.push_back(model.units[at(unit)]);
  }
  return model;
}

struct ZeroStep {
  StepProgram program;
  ExecutionTrace trace;

  [[nodiscard]] std::vector<double> bytes(CollectiveKind kind) const {
    std::vector<double> all;
    for (const CollectiveUse& use : program.uses) {
      if (use.kind == kind) {
        all.push_back(use.bytes);
      }
    }
    return all;
  }
  [[nodiscard]] double step_us() const {
    return static_cast<double>(trace.ranks.front().device_end.time_since_epoch().count()) / 1e3;
  }
  [[nodiscard]] double host_us() const {
    return static_cast<double>(trace.ranks.front().host_end.time_since_epoch().count()) / 1e3;
  }
};

/// The step of that number, from 0.
ZeroStep zero_step(const Chain& chain, int number) {
  const TrainedModel model = chain_model(chain);
  const auto us = [](double value) { return Duration(std::llround(1000 * value)); };
  MicroBatchWork batch;
  batch.forward.assign(at(chain.modules), {Duration(0), us(chain.compute_us)});
  batch.backward.assign(at(chain.modules), {Duration(0), us(2.0 * chain.compute_us)});
  StepWork step;
  step.step = number;
  step.ranks.resize(at(chain.options.ranks));
  for (RankWork& rank : step.ranks) {
    rank.micro_batches.assign(at(chain.micro_batches), batch);
  }
  step.iterations.resize(at(chain.micro_batches));
  StepPrices prices;
  prices.elements = [](OpClass, std::int64_t, double) { return Kernel{}; };
  prices.memory = [=](double bytes, double) {
    return Kernel{Duration(0), us(bytes * chain.copied_byte_us)};
  };
  prices.transfer = [=](CollectiveKind, double bytes, const RankGroup&) {
    return us(bytes * chain.byte_us);
  };
  ZeroStep played;
  played.program = zero_program(model, chain.options, {}, prices, step);
  const std::vector<RankClock> clocks(step.ranks.size());
  Engine engine({}, clocks);
  played.trace = engine.play(played.program.program);
  return played;
}

/// [run] What it gathers for itself, and what ahead, by the letters of modules that have one
/// parameter of ten elements each.
std::vector<std::string> gathers_of(int modules, const ZeroOptions& options, bool knows_trace) {
  TrainedModel model;
  model.units.emplace_back();
  for (int module = 0; module < modules; ++module) {
    model.parameters.push_back({.bytes = 40, .dtype = "f32"});
    model.shapes.push_back({10});
    model.units.push_back({module});
    model.forward_unit.push_back(module + 1);
  }
  model.backward_unit.assign(model.forward_unit.rbegin(), model.forward_unit.rend());
  std::vector<std::string> gathers;
  const auto letters = [](const std::vector<int>& parameters) {
    std::string text;
    for (const int parameter : parameters) {
      text += static_cast<char>('a' + parameter);
    }
    return text;
  };
  for (const ModuleFetch& fetch :
       module_trace(model, module_runs(model), options, knows_trace).fetches) {
    gathers.push_back(letters(fetch.fetched) + ">" + letters(fetch.prefetched));
  }
  return gathers;
}

ZeroOptions ten_elements() {
  return {.ranks = 2, .prefetch_bucket = 20, .persistence_threshold = 0, .max_reuse = 0};
}

using Gathers = std::vector<std::string>;

}  // namespace

TEST_CASE("zero: modules are told by the names of tensors") {
  const auto modules = [](const std::string& preset) {
    const TransformerConfig config = model_preset(preset);
    const StepOps ops = step_ops(config);
    TrainedModel model = trained_model(config, ops, {});
    add_leaf_modules(config, ops, model);
    std::vector<int> times(model.parameters.size(), 0);
    for (const std::vector<int>& unit : model.units) {
      for (const int parameter : unit) {
        ++times[at(parameter)];
      }
    }
    CHECK(std::ranges::all_of(times, [](int count) { return count == 1; }));
    CHECK(model.forward_unit.size() == ops.forward.size());
    CHECK(model.backward_unit.size() == ops.backward.size());
    return model;
  };
  // Embedding, norm and head, and nine modules a block.
  const TrainedModel llama = modules("llama3-8b");
  CHECK(llama.units.size() == 1 + 3 + 9 * 32);
  CHECK(llama.units.front().empty());
  // Two embeddings and a norm, and six modules with weight and bias a block.
  const TrainedModel gpt2 = modules("gpt2-small");
  CHECK(gpt2.units.size() == 1 + 3 + 6 * 12);
  // The head uses the embedding's weight: the trace begins and turns with one module.
  const std::vector<ModuleRun> runs = module_runs(gpt2);
  CHECK(runs.size() == 2 * 76);
  CHECK(runs.front().unit == runs[75].unit);
}

TEST_CASE("zero: without a known trace each run gathers its own") {
  const Gathers own = {"a>", "b>", "c>", "d>", "d>", "c>", "b>", "a>"};
  CHECK(gathers_of(4, ten_elements(), false) == own);
  ZeroOptions none = ten_elements();
  none.prefetch_bucket = 0;
  CHECK(gathers_of(4, none, true) == own);
}

TEST_CASE("zero: what is gathered ahead, by hand") {
  // b and c fill the bucket of 20. Their uses in the backward are passed over, since they are still
  // there: so they stay. d is freed after its forward, and gathered again on demand.
  CHECK(gathers_of(4, ten_elements(), true) ==
        Gathers{"a>bc", ">da", ">", ">", "d>", ">", ">", ">"});
  // What is used again within the reuse distance is not freed at all.
  ZeroOptions reuses = ten_elements();
  reuses.max_reuse = 1000;
  CHECK(gathers_of(4, reuses, true) == Gathers{"a>bc", ">d", ">", ">", ">", ">", ">", ">"});
  // After d's forward its backward is the next run: ten elements are near enough for it alone.
  reuses.max_reuse = 10;
  CHECK(gathers_of(4, reuses, true) == Gathers{"a>bc", ">da", ">", ">", ">", ">", ">", ">"});
  // Room for two modules below the most that may live: one ahead. After d its own backward is
  // passed over, c takes the room, and d is freed all the same.
  ZeroOptions tight = ten_elements();
  tight.max_live = 20;
  CHECK(gathers_of(4, tight, true) == Gathers{"a>b", ">c", ">d", ">c", "d>", ">b", ">a", ">"});
}

TEST_CASE("zero: the first two steps, which gather nothing ahead, are slower than the third") {
  Chain chain;
  chain.modules = 8;
  chain.byte_us = 2;  // Gathers of 3200 us before kernels of 1000 and 2000.
  chain.options.prefetch_bucket = 400;
  const auto gathers = [&](int number) {
    const std::vector<double> all = zero_step(chain, number).bytes(CollectiveKind::AllGather);
    return std::ranges::count_if(all, [](double bytes) { return bytes >= 1600; });
  };
  const double first = zero_step(chain, 0).step_us();
  CHECK(zero_step(chain, 1).step_us() == first);
  const double third = zero_step(chain, 2).step_us();
  CHECK(third < first);
  CHECK(zero_step(chain, 3).step_us() == third);
  // Later each is gathered once, since all are used again within the reuse distance: of the
  // backward only kernels are left beside the last gathers.
  CHECK(gathers(0) == 16);
  CHECK(gathers(2) == 8);
  CHECK(first - third == doctest::Approx(8 * 3200.0 + 2000 - (1000 + 8 * 2000)));
  // Two micro-batches are past it after one step.
  chain.micro_batches = 2;
  CHECK(zero_step(chain, 0).step_us() > zero_step(chain, 1).step_us());
  CHECK(zero_step(chain, 1).step_us() == zero_step(chain, 2).step_us());
}

TEST_CASE(
    "zero: a host far ahead gathers early by itself, and a large prefetch is waited for whole") {
  Chain chain;
  chain.modules = 8;  // Gathers of 400 us are hidden behind kernels of 1000 and 2000.
  const double none = zero_step(chain, 0).step_us();
  const double all = zero_step(chain, 2).step_us();
  // The second module waits for seven weights, of which its predecessor hides 1000 us.
  CHECK(all - none == doctest::Approx(7 * 400.0 - 1000));
  chain.options.prefetch_bucket = 400;
  CHECK(zero_step(chain, 2).step_us() == doctest::Approx(none));
}

TEST_CASE("zero: small parameters are gathered after the optimizer alone") {
  Chain chain;
  for (const int step : {0, 2}) {
    CAPTURE(step);
    const std::vector<double> gathers = zero_step(chain, step).bytes(CollectiveKind::AllGather);
    const auto small = static_cast<std::size_t>(std::ranges::count(gathers, 4 * 4.0));
    CHECK(small == 4);
    // They are the last ones.
    CHECK(std::all_of(gathers.end() - 4, gathers.end(), [](double b) { return b == 16; }));
  }
  chain.options.persistence_threshold = 3;
  const std::vector<double> together = zero_step(chain, 0).bytes(CollectiveKind::AllGather);
  CHECK(together == std::vector<double>(8, 4 * 404.0));
  chain.options.persistence_threshold = 400;
  CHECK(zero_step(chain, 0).bytes(CollectiveKind::AllGather).size() == 8);  // All persist.
}

TEST_CASE("zero: reductions follow the bucket's size, not modules") {
  Chain chain;
  const auto reductions = [&](std::int64_t bucket) {
    chain.options.reduce_bucket = bucket;
    return zero_step(chain, 2).bytes(CollectiveKind::ReduceScatter);
  };
  CHECK(reductions(500'000'000) == std::vector<double>{4 * 1616.0});
  // 808 elements, to which no weight can be added, then what is left at the end of the backward.
  CHECK(reductions(1000) == std::vector<double>{4 * 808.0, 4 * 808.0});
  // A weight goes with the module before it, and its bias with the next one.
  CHECK(reductions(404 + 400) == std::vector<double>{4 * 804.0, 4 * 408.0, 4 * 404.0});
  // Gradients that no bucket can hold are alone.
  CHECK(reductions(100) == std::vector<double>{1600, 16, 1600, 16, 1600, 16, 1600, 16});
  // Each micro-batch reduces what it has.
  chain.micro_batches = 3;
  CHECK(reductions(1000).size() == 6);
  chain.options.ranks = 3;  // 400 and 4 elements are padded to 402 and 6.
  CHECK(reductions(500'000'000).front() == 4 * 4 * 408.0);
}

TEST_CASE("zero: types of gathers and reductions") {
  Chain chain;
  chain.options.param_dtype = Dtype::Bf16;
  CHECK(zero_step(chain, 0).bytes(CollectiveKind::AllGather).front() == 2 * 400.0);
  CHECK(zero_step(chain, 0).bytes(CollectiveKind::ReduceScatter).front() == 2 * 1616.0);
  chain.options.reduce_dtype = Dtype::F32;
  CHECK(zero_step(chain, 0).bytes(CollectiveKind::ReduceScatter).front() == 4 * 1616.0);
}

TEST_CASE("zero: one rank has no communication and no copies") {
  Chain chain;
  chain.options.ranks = 1;
  chain.copied_byte_us = 1;
  const ZeroStep alone = zero_step(chain, 2);
  CHECK(alone.program.uses.empty());
  CHECK(alone.step_us() == 4 * 3000.0);
}

TEST_CASE("zero: the host waits while three gathers or reductions are unfinished, and at the end") {
  Chain chain;
  chain.modules = 8;
  const auto waits = [&] {
    const ZeroStep step = zero_step(chain, 0);
    return std::ranges::count(
        step.program.program.ranks.front(), Opcode::HostEvent, &Instruction::kind);
  };
  // Before all but three of 16 gathers, and for the reduction of all at the end.
  CHECK(waits() == 13 + 1);
  chain.options.reduce_bucket = 404;
  CHECK(waits() == 13 + 5 + 1);
  // The optimizer is called after the last reduction; four gathers of a bias follow it.
  const ZeroStep step = zero_step(chain, 0);
  CHECK(step.host_us() == doctest::Approx(step.step_us() - 8 * 16 * chain.byte_us));
}

TEST_CASE("zero: on random chains overlap never hurts, nor does bandwidth, nor free copies") {
  std::mt19937 random(20261127);
  const auto drawn = [&](std::int64_t least, std::int64_t most) {
    return std::uniform_int_distribution<std::int64_t>(least, most)(random);
  };
  for (int scenario = 0; scenario < 300; ++scenario) {
    CAPTURE(scenario);
    Chain chain;
    chain.modules = static_cast<int>(drawn(1, 12));
    chain.options.ranks = static_cast<int>(drawn(2, 5));
    chain.options.prefetch_bucket = drawn(0, 3000);
    chain.options.max_live = drawn(0, 6000);
    chain.options.max_reuse = drawn(0, 6000);
    chain.options.reduce_bucket = drawn(1, 3000);
    chain.options.persistence_threshold = drawn(0, 500);
    chain.options.overlaps = drawn(0, 1) > 0;
    chain.compute_us = static_cast<double>(drawn(1, 2000));
    chain.byte_us = static_cast<double>(drawn(0, 200)) / 100;
    chain.copied_byte_us = static_cast<double>(drawn(0, 20)) / 100;
    chain.micro_batches = static_cast<int>(drawn(1, 3));
    for (const int number : {0, 2}) {
      const double step = zero_step(chain, number).step_us();
      CHECK(step >= 3.0 * chain.compute_us * chain.modules * chain.micro_batches);
      Chain faster = chain;
      faster.byte_us /= 2;
      CHECK(zero_step(faster, number).step_us() <= step);
      faster = chain;
      faster.copied_byte_us = 0;
      CHECK(zero_step(faster, number).step_us() <= step);
      faster = chain;
      faster.options.overlaps = true;
      CHECK(zero_step(faster, number).step_us() <= step);
    }
  }
}

TEST_CASE("zero: the recurrence of steps in lockstep is the engine to the nanosecond") {
  for (const std::string more : {"ddp.accumulation_steps=1",
                                 "ddp.accumulation_steps=3",
                                 "parallel.overlap_comm=false",
                                 "parallel.reduce_bucket_size=100"}) {
    CAPTURE(more);
    const std::vector<std::string> overrides = {
        "parallel.kind=zero", "parallel.stage3_param_persistence_threshold=100", more};
    const Scenario scenario = parse_scenario(test::kBlocksText, "s.toml", overrides);
    const auto times = [&](bool engine) {
      PredictOptions options;
      options.noise_runs = 0;
      options.engine = engine;
      const Prediction prediction =
          predict(scenario, scenario.policies.front(), scenario_profile(scenario), options);
      std::vector<double> all;
      for (const RankStepResult& row : prediction.steps) {
        all.push_back(row.step_ms);
      }
      return all;
    };
    CHECK(times(false) == times(true));
  }
}

TEST_CASE("zero: shards, and a bound on what is gathered beside them") {
  const TransformerConfig config = model_preset("gpt2-small");
  const Parallelism& kind = parallelism_named("zero");
  const std::vector<std::int64_t> no_buffers;
  const DdpOptions ddp;
  OwnValues own;
  for (const OwnKey& key : kind.keys()) {
    own.set(key.name, key.fallback);
  }
  const ParallelJob job{config, ddp, own, no_buffers, 8, 10, 2, false};
  CHECK_FALSE(kind.refusal(job));
  CHECK(kind.memory(job).parameter_shards == 8);
  CHECK(kind.memory(job).gradient_shards == 8);
  CHECK(kind.memory(job).optimizer_shards == 8);
  CHECK(kind.facts(job).first_steps == 2);
  CHECK_FALSE(kind.facts(job).repeats);
  CHECK(kind.assumptions(job).size() == 1);
  const ParallelJob early{config, ddp, own, no_buffers, 8, 10, 1, false};
  CHECK(kind.assumptions(early).size() == 2);
  // Gathers ahead run through the whole model before its first layers are used, so that a short
  // reuse distance frees little, and a note says so; where there is less room it frees.
  own.set("stage3_max_reuse_distance", std::int64_t{0});
  REQUIRE(kind.assumptions(job).size() == 2);
  CHECK(kind.assumptions(job).back().find("prefetches have passed over their next use") !=
        std::string::npos);
  own.set("stage3_prefetch_bucket_size", std::int64_t{0});
  CHECK(kind.assumptions(job).size() == 1);
  own.set("stage3_prefetch_bucket_size", std::int64_t{50'000'000});
  own.set("stage3_max_reuse_distance", std::int64_t{1'000'000'000});
  // The bucket's buffer is there whatever the model's size.
  CHECK(kind.memory(job).gathered > Bytes(4 * 500'000'000LL));
  const auto gathered_with = [&](const char* key, std::int64_t value) {
    own.set("reduce_bucket_size", std::int64_t{1000});
    const std::int64_t before = kind.memory(job).gathered.value();
    const std::int64_t usual = own.integer(key);
    own.set(key, value);
    const std::int64_t after = kind.memory(job).gathered.value();
    own.set(key, usual);
    return after - before;
  };
  CHECK(gathered_with("reduce_bucket_size", 2000) > 0);
  CHECK(gathered_with("stage3_max_live_parameters", 0) < 0);
  own.set("stage", std::int64_t{2});
  CHECK(kind.refusal(job)->reason ==
        "2 is not simulated as DeepSpeed runs it; write kind = \"ddp\" and ddp.zero_stage = 2");
}

}  // namespace stepsim
