#include <algorithm>
#include <filesystem>
#include <fstream>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "costmodel/base/index.h"
#include "costmodel/base/input_error.h"
#include "costmodel/io/gzip_file.h"
#include "costmodel/io/json_file.h"
#include "costmodel/model/memory.h"
#include "sim/predict/predict.h"
#include "sim/predict/run/planned_run.h"
#include "sim/predict/scenario_profile.h"
#include "sim/report/json.h"
#include "sim/report/notes.h"
#include "sim/report/trace/traces.h"
#include "tests/approx.h"
#include "tests/sim/predict/plan_of.h"
#include "tests/sim/scenario/scenario_text.h"
#include "tests/test_data.h"

using namespace stepsim;
using stepsim::test::Approx;

namespace {

Scenario token_skew(std::vector<std::string> overrides = {}) {
  return read_scenario(test::source_root() + "/scenarios/token_skew.toml", overrides);
}

/// Every op costs in proportion to its tokens or elements: figures that can be checked by hand.
Profile flat_profile(int ranks) {
  Profile profile;
  profile.name = "flat";
  const auto add =
      [&](OpClass op_class, Pass pass, const std::string& feature, double coefficient) {
        OpCost cost;
        cost.op_class = op_class;
        cost.pass = pass;
        cost.form = CostForm::Features;
        cost.features = {feature};
        cost.coefficients = {coefficient};
        cost.range_lo = 1;
        cost.range_hi = 1e9;
        profile.ops.push_back(cost);
      };
  for (const OpClass op_class : {OpClass::AttentionScores,
                                 OpClass::Softmax,
                                 OpClass::AttentionContext,
                                 OpClass::Norm,
                                 OpClass::Activation,
                                 OpClass::Elementwise,
                                 OpClass::Embedding,
                                 OpClass::Pooling,
                                 OpClass::CrossEntropy}) {
    add(op_class, Pass::Forward, "1", 0);
    add(op_class, Pass::Backward, "1", 0);
  }
  add(OpClass::Gemm, Pass::Forward, "tokens", 1e-6);
  add(OpClass::Gemm, Pass::InputGradient, "tokens", 1e-6);
  add(OpClass::Gemm, Pass::WeightGradient, "tokens", 1e-6);
  for (const OpClass op_class : {OpClass::Collate,
                                 OpClass::ZeroGradient,
                                 OpClass::GradientCopyIn,
                                 OpClass::GradientCopyOut,
                                 OpClass::Optimizer}) {
    add(op_class, Pass::Forward, "1", 0);
  }
  CollectiveCost all_reduce;
  all_reduce.ranks = ranks;
  all_reduce.knots = {{1024, 1e-3}, {double{1 << 26}, 1e-3}};
  profile.collectives.push_back(all_reduce);
  return profile;
}

}  // namespace

TEST_CASE("the four cases of the token-skew lab have their published padding and spread") {
  const Scenario scenario = token_skew();
  const Profile profile = flat_profile(4);
  const std::vector<std::pair<double, double>> published = {
      {0.0, 0.0}, {39.5, 382.0}, {0.6, 51.7}, {0.6, 83.3}};
  REQUIRE(scenario.policies.size() == 4);
  for (std::size_t i = 0; i < 4; ++i) {
    const auto summary = predict(scenario, scenario.policies[i], profile, {}).summary;
    CAPTURE(scenario.policies[i].name());
    CHECK(std::round(summary.padding_ratio() * 1000) / 10 == Approx(published[i].first));
    CHECK(std::round(summary.rank_token_spread * 10) / 10 == Approx(published[i].second));
  }
}

TEST_CASE("a step is its slowest rank's compute and the all-reduce behind it") {
  // Uniform case: 8 samples of 128 = 1024 tokens. Five linear layers (qkv, attention_output,
  // mlp_up, mlp_down, classifier), each forward and two gradients at 1024 us: 15.36 ms. One
  // bucket, all-reduced in 1 ms after the last gradient: nothing to hide behind.
  const Scenario scenario = token_skew();
  const Prediction prediction =
      predict(scenario, find_policy(scenario, "uniform"), flat_profile(4), {.noise_runs = 0});
  CHECK(prediction.summary.forward_ms + prediction.summary.backward_ms == Approx(15.36));
  CHECK(prediction.summary.exposed_communication_ms == Approx(1.0));
  CHECK(prediction.summary.step_time_ms.mean == Approx(16.36));
  CHECK(prediction.summary.overlap_fraction == 0);
  CHECK(prediction.summary.scaling_efficiency() == Approx(15.36 / 16.36));
}

TEST_CASE("a padded batch is priced with the kernels that take a mask, one of its shape without") {
  Profile profile = flat_profile(4);
  for (OpCost& cost : profile.ops) {
    if (cost.op_class == OpClass::AttentionScores) {
      cost.features = {"padded*length^2"};
      cost.coefficients = {1e-9};
    }
  }
  const auto forward_ms = [&](const std::string& lengths) {
    const Scenario scenario = token_skew({"data.samples=3072", "data.lengths=" + lengths});
    const Prediction prediction =
        predict(scenario, find_policy(scenario, "variable_fixed"), profile, {.noise_runs = 0});
    return prediction.summary.forward_ms;
  };
  // Batches of 8 samples, padded to 100: with padding, attention takes 8 * 100^2 ns a layer more.
  const double without = forward_ms("{constant=100}");
  const double with = forward_ms("{uniform=[99,100],seed=1}");
  const auto layers = static_cast<double>(token_skew().model.layers);
  CHECK(with - without == Approx(layers * 8e-2 * 255 / 256).epsilon(0.02));
}

TEST_CASE("ranks that the profile knows as unequal are as slow as those of the scenario") {
  const auto predicted = [&](const Scenario& scenario, const Profile& profile) {
    return prediction_json(
        {predict(scenario, find_policy(scenario, "uniform"), profile, {.noise_runs = 0})},
        StepRows::All);
  };
  const Scenario scenario = token_skew();
  const Profile equal = flat_profile(4);
  Profile unequal = equal;
  unequal.rank_factors = {1, 1, 1.5, 1};
  const Json stated = predicted(token_skew({"cluster.slow_ranks=[{rank=2, factor=1.5}]"}), equal);
  CHECK(predicted(scenario, unequal) == stated);
  CHECK(predicted(scenario, equal) != stated);
  // The scenario's own word counts, and other numbers of ranks are not those that were recorded.
  CHECK(predicted(token_skew({"cluster.slow_ranks=[]"}), unequal) == predicted(scenario, equal));
  unequal.rank_factors.push_back(1);
  CHECK(predicted(scenario, unequal) == predicted(scenario, equal));
}

TEST_CASE("SGD takes its share of the profile's AdamW, and the prediction says so") {
  const auto predicted = [&](const std::vector<std::string>& overrides) {
    const Scenario scenario = token_skew(overrides);
    return predict(scenario, find_policy(scenario, "uniform"), flat_profile(4), {.noise_runs = 0});
  };
  const auto optimizer_ms = [](const Prediction& prediction) {
    return prediction.summary.optimizer_ms;
  };
  const std::string view = "ddp.gradient_as_bucket_view=true";  // Nothing but the optimizer.
  const double adamw = optimizer_ms(predicted({view}));
  const Prediction sgd = predicted({view, "optimizer.kind=sgd"});
  const Prediction momentum =
      predicted({view, "optimizer.kind=sgd", "optimizer.state_bytes_per_parameter=4"});
  CHECK(optimizer_ms(sgd) == Approx(adamw * 3 / 7).epsilon(1e-3));
  CHECK(optimizer_ms(momentum) == Approx(adamw * 5 / 7).epsilon(1e-3));
  const std::vector<std::string> texts = note_texts(sgd);
  CHECK(
      std::ranges::count(texts,
                         "the profile's optimizer is AdamW; SGD is taken to need 3 of its 7 parts, "
                         "by the elements that each reads and writes") == 1);
}

TEST_CASE("events and closed form predict the same steps") {
  const Scenario scenario = token_skew({"ddp.bucket_cap=65536",
                                        "ddp.first_bucket_cap=4096",
                                        "cluster.slow_ranks=[{rank=2, factor=1.5}]"});
  for (const BatchingPolicy& policy : scenario.policies) {
    const Profile profile = flat_profile(4);
    const Prediction a = predict(scenario, policy, profile, {.noise_runs = 0, .engine = true});
    const Prediction b = predict(scenario, policy, profile, {.noise_runs = 0});
    CHECK(prediction_json({a}, StepRows::All) == prediction_json({b}, StepRows::All));
  }
}

TEST_CASE("the same scenario, profile and seed give the same bytes, noise included") {
  const Scenario scenario = token_skew();
  Profile profile = flat_profile(4);
  profile.noise.step_jitter = 0.05;
  profile.noise.drift = 0.03;
  const auto text = [&]() {
    return prediction_json({predict(scenario, scenario.policies[1], profile, {})}, StepRows::All)
        .dump();
  };
  CHECK(text() == text());
}

TEST_CASE("noise widens the interval around the mean, and jitter alone lengthens the mean") {
  const Scenario scenario = token_skew();
  Profile profile = flat_profile(4);
  const StepTimeSummary still =
      predict(scenario, scenario.policies[0], profile, {}).summary.step_time_ms;
  CHECK(still.p50 == still.p95);
  profile.noise.step_jitter = 0.05;
  const StepTimeSummary jittered =
      predict(scenario, scenario.policies[0], profile, {}).summary.step_time_ms;
  // The slowest of four ranks is about one standard deviation above the middle.
  CHECK(jittered.mean > still.mean * 1.02);
  CHECK(jittered.p95 > jittered.p50);
  profile.noise.drift = 0.3;
  const StepTimeSummary drifting =
      predict(scenario, scenario.policies[0], profile, {}).summary.step_time_ms;
  CHECK(drifting.high90 - drifting.low90 > 2 * (jittered.high90 - jittered.low90));
  CHECK(drifting.low90 < drifting.mean);
  CHECK(drifting.high90 > drifting.mean);
}

TEST_CASE("prices of other models widen the interval and leave the mean and the draws of gains") {
  const Scenario scenario = token_skew();
  Profile profile = flat_profile(4);
  profile.noise.step_jitter = 0.05;
  const Prediction own = predict(scenario, scenario.policies[0], profile, {});
  profile.noise.other_models = 0.3;
  const Prediction other = predict(scenario, scenario.policies[0], profile, {});
  CHECK(other.summary.step_time_ms.mean == own.summary.step_time_ms.mean);
  CHECK(other.draws[7].step_ms == own.draws[7].step_ms);
  // 1.645 standard deviations to either side.
  CHECK(other.summary.step_time_ms.low90 < 0.75 * own.summary.step_time_ms.mean);
  CHECK(other.summary.step_time_ms.high90 > 1.35 * own.summary.step_time_ms.mean);
}

TEST_CASE("scattered all-reduces leave the mean and move the tail") {
  const Scenario scenario = token_skew();
  Profile profile = flat_profile(4);
  // Half take nothing, half take twice the mean of 1 ms.
  profile.collectives[0].spread = {0, 0, 2, 2};
  const StepTimeSummary times =
      predict(scenario, scenario.policies[0], profile, {}).summary.step_time_ms;
  CHECK(times.mean == Approx(16.36).epsilon(0.01));
  CHECK(times.p95 == Approx(17.36).epsilon(0.001));
  CHECK(times.max == Approx(17.36).epsilon(0.001));
}

TEST_CASE("a step that needs more memory than the device has is named") {
  const Scenario scenario = token_skew();
  Profile profile = flat_profile(4);
  profile.memory_capacity = Bytes(1 << 20);
  const Prediction prediction = predict(scenario, scenario.policies[0], profile, {});
  REQUIRE(prediction.out_of_memory);
  CHECK(prediction.out_of_memory->step == 0);
  CHECK(prediction.out_of_memory->rank == 0);
  CHECK(prediction.out_of_memory->needed > prediction.out_of_memory->capacity);
  CHECK(out_of_memory_text(*prediction.out_of_memory).rfind("step 0, rank 0: needs ", 0) == 0);
  REQUIRE(std::holds_alternative<OutOfMemory>(prediction.notes.back()));
  CHECK(note_texts(prediction).back().rfind("out of memory: step 0, rank 0", 0) == 0);
  REQUIRE(prediction.token_budget);
  CHECK(prediction.token_budget->tokens == 0);
}

TEST_CASE("the largest batches of an epoch have its peak, whatever the model keeps of a batch") {
  for (const char* model : {"model.preset=tiny-classifier", "model.preset=llama3.2-1b"}) {
    for (const char* attention : {"dense", "flash"}) {
      for (const char* accumulated : {"1", "3"}) {
        Scenario scenario = token_skew({model,
                                        std::string("model.attention=") + attention,
                                        "model.dtype=bf16",
                                        std::string("ddp.accumulation_steps=") + accumulated,
                                        "scenario.steps=2",
                                        "scenario.warmup_steps=1"});
        const Profile profile = flat_profile(4);
        const PeakMemory memory(scenario.model, memory_options(scenario));
        for (const BatchingPolicy& policy : scenario.policies) {
          CAPTURE(policy.name());
          KnownLengths known;
          const PlanningCost cost = planning_cost(scenario, policy, profile);
          const PlannedRun planned = plan_run(
              scenario,
              policy,
              cost,
              known,
              std::make_shared<const PlannedData>(plan_data(scenario, policy, cost, known)));
          Bytes all;
          std::int64_t longest = 0;
          for (const BatchShape& shape : epoch_shapes(scenario, policy, *planned.data)) {
            all = std::max(all, memory.at(shape).total());
            longest = std::max(longest, shape.max_length);
          }
          Bytes largest;
          for (const EpochBatch& batch : planned.largest_of_epoch) {
            largest = std::max(largest, memory.at(batch.shape).total());
            const auto& of_rank = planned.data->first_epoch.batches[at(batch.rank)];
            CHECK(at(batch.step) <= of_rank.size() / at(scenario.ddp.accumulation_steps));
          }
          CHECK(largest == all);
          CHECK(planned.longest_of_epoch == longest);
          CHECK(planned.largest_of_epoch.size() < 40);  // Of hundreds.
        }
      }
    }
  }
}

TEST_CASE("a batch of the epoch that does not fit counts, simulated or not") {
  const Scenario scenario = token_skew({"scenario.steps=2", "scenario.warmup_steps=1"});
  Profile profile = flat_profile(4);
  const BatchingPolicy& policy = find_policy(scenario, "bucketing");
  const Prediction all = predict(scenario, policy, profile, {.noise_runs = 0});
  REQUIRE(all.largest_memory_mib > all.summary.peak_memory_mib);
  CHECK(!all.out_of_memory);  // The profile knows no capacity.
  const double between = (all.largest_memory_mib + all.summary.peak_memory_mib) / 2;
  profile.memory_capacity = Bytes(static_cast<std::int64_t>(between * 0x1p20));
  const Prediction misfit = predict(scenario, policy, profile, {.noise_runs = 0});
  REQUIRE(misfit.out_of_memory);
  CHECK(misfit.out_of_memory->step >= 2);
  CHECK(misfit.out_of_memory->behind_steps);
  CHECK(note_texts(misfit).back().find(" of the epoch, after the simulated ones, rank ") !=
        std::string::npos);
  profile.memory_capacity = Bytes(static_cast<std::int64_t>(all.largest_memory_mib * 0x1p20));
  CHECK(!predict(scenario, policy, profile, {.noise_runs = 0}).out_of_memory);
}

TEST_CASE("a batch that a rank inside join() does not reach needs no memory") {
  // Rank 1 would have its long samples after the two steps that it takes.
  const std::vector<std::string> two_ranks = {
      "scenario.steps=4",
      "scenario.warmup_steps=0",
      "cluster.ranks=2",
      "cluster.slow_ranks=[]",
      "data.samples=16",
      "data.lengths={values=[8,8,8,8,8,8,8,8,8,8,8,256,8,256,8,256]}",
      "data.sampler={kind=\"distributed\",shuffle=false,seed=0}",
      "policy.variable_fixed.batch_size=2"};
  std::vector<std::string> joined = two_ranks;
  joined.emplace_back("ddp.join=[4, 2]");
  const auto predicted = [](const std::vector<std::string>& overrides) {
    const Scenario scenario = token_skew(overrides);
    return predict(
        scenario, find_policy(scenario, "variable_fixed"), flat_profile(2), {.noise_runs = 0});
  };
  const Prediction short_one = predicted(joined);
  CHECK(short_one.largest_memory_mib == short_one.summary.peak_memory_mib);
  CHECK(short_one.largest_memory_mib < predicted(two_ranks).largest_memory_mib);
}

TEST_CASE("the largest token budget is the last one that fits") {
  const Scenario scenario = token_skew();
  Profile profile = flat_profile(4);
  profile.memory_capacity = Bytes(std::int64_t{40} << 20);
  const Prediction prediction =
      predict(scenario, find_policy(scenario, "uniform"), profile, {.noise_runs = 0});
  REQUIRE(prediction.token_budget);
  const auto [tokens, length] = *prediction.token_budget;
  CHECK(length == 128);
  const auto peak = [&](std::int64_t samples) {
    const BatchShape batch{samples, 128, samples * 128, static_cast<double>(samples) * 128 * 128};
    return PeakMemory(scenario.model, memory_options(scenario)).at(batch).total();
  };
  CHECK(peak(tokens / 128) <= profile.memory_capacity);
  CHECK(peak(tokens / 128 + 1) > profile.memory_capacity);
}

TEST_CASE("the working bucket of ZeRO-2 is as large as its rule makes the buckets") {
  // 12 tensors of 1 MB.
  const auto buckets = [](const std::vector<std::string>& overrides) {
    const Scenario scenario = parse_scenario(test::kBlocksText, "blocks.toml", overrides);
    return PeakMemory(scenario.model, memory_options(scenario)).at({1, 128, 128, 0}).buckets;
  };
  const std::string zero = "ddp.zero_stage=2";
  CHECK(buckets({zero, "ddp.bucket_cap=4 MiB"}) == Bytes(4 << 20));
  CHECK(buckets({zero, "ddp.bucket_cap=4 MiB", "ddp.bucket_rule=before_cap"}) == Bytes(4 << 20));
  CHECK(buckets({zero, "ddp.bucket_rule=per_parameter"}) == Bytes(1'000'000));
  CHECK(buckets({zero, "ddp.bucket_rule=single"}) == Bytes(12'000'000));
  // ZeRO-3 reduces layer by layer.
  CHECK(buckets({"ddp.zero_stage=3", "ddp.bucket_cap=4 MiB"}) == Bytes(4 << 20));
}

TEST_CASE("a profile without the scenario's rank count is refused") {
  const Scenario scenario = token_skew();
  CHECK_THROWS_AS((void)predict(scenario, scenario.policies[0], flat_profile(2), {}), InputError);
}

TEST_CASE("a sample longer than the model takes is refused") {
  Scenario scenario = token_skew();
  scenario.model.max_length = 200;
  CHECK_THROWS_AS((void)test::plan_of(scenario, scenario.policies[1]), InputError);
}

TEST_CASE("a policy that plans by time plans with the profile that the run is priced with") {
  // The scenario names a file that is not there: a look at it would fail.
  const std::string path = test::source_root() + "/scenarios/token_skew.toml";
  const Scenario scenario =
      parse_scenario(read_text(path) +
                         "[[policy]]\nname = \"planner\"\nkind = \"planner\"\n"
                         "batch_size = 8\nsteps = \"equal_time\"\n",
                     path,
                     std::vector<std::string>{"cluster.profile=missing.json"});
  const BatchingPolicy& policy = find_policy(scenario, "planner");
  const Profile by_tokens = flat_profile(4);
  Profile by_squares = by_tokens;
  for (OpCost& cost : by_squares.ops) {
    if (cost.op_class == OpClass::Gemm) {
      cost.features = {"samples*length^2"};
    }
  }
  const auto predicted = [&](const Profile& profile) {
    const Prediction prediction = predict(scenario, policy, profile, {.noise_runs = 0});
    const PlannedPolicy planned = plan_policy(scenario, policy, {step_cost(scenario, profile)});
    std::vector<std::int64_t> samples;  // By step, then rank, as the plan's batches.
    for (const RankStepResult& row : prediction.steps) {
      samples.push_back(row.samples);
    }
    REQUIRE(samples.size() == planned.plan.micro_batches.size());
    for (std::size_t i = 0; i < samples.size(); ++i) {
      CHECK(samples[i] == std::ssize(planned.plan.micro_batches[i].samples));
    }
    return samples;
  };
  CHECK(predicted(by_tokens) != predicted(by_squares));
  CHECK_THROWS_AS((void)test::plan_of(scenario, policy), InputError);
  // Other policies have no profile read.
  CHECK_NOTHROW((void)test::plan_of(scenario, scenario.policies[1]));
}

TEST_CASE("a trace by parts has one slice a part, and shows the names of the scenario as text") {
  const Scenario scenario = token_skew({"scenario.name=\"</script>\\u0001 \\\"quoted\\\"\""});
  const BatchingPolicy& policy = scenario.policies[1];
  const Prediction prediction = predict(scenario, policy, flat_profile(4), {.noise_runs = 0});
  const std::string path = test::fresh_folder() + "/trace.json.gz";
  TraceChoice choice;
  choice.by_part = true;
  const TraceFiles files = write_chrome_trace(scenario, policy, flat_profile(4), choice, path);
  CHECK(files.ranks == 4);
  CHECK(files.steps == 12);
  CHECK(files.file_bytes < files.text_bytes);
  const Json trace = parse_json(read_text_or_gzip(path), "trace.json");
  CHECK(trace["otherData"]["scenario"] == scenario.name);
  int counters = 0;
  int reduces = 0;
  double exposed_us = 0;
  for (const Json& event : trace["traceEvents"]) {
    counters += event["ph"] == "C" ? 1 : 0;
    reduces += event["name"] == "all-reduce, bucket 0" ? 1 : 0;
    if (event["name"] == "exposed communication") {
      exposed_us += event["dur"].get<double>();
    }
  }
  CHECK(counters == 3 * 4 * 12);
  CHECK(reduces == 4 * 12);  // one bucket a step, drawn on every rank
  double exposed_ms = 0;
  for (const RankStepResult& row : prediction.steps) {
    exposed_ms += row.exposed_ms;
  }
  CHECK(exposed_us / 1e3 == Approx(exposed_ms));
}

TEST_CASE("a prediction file is read back as it was written") {
  const Scenario scenario = token_skew();
  const Prediction prediction = predict(scenario, scenario.policies[1], flat_profile(4), {});
  const std::string path = test::fresh_folder() + "/prediction.json";
  write_text_atomically(path, prediction_json({prediction}, StepRows::All).dump());
  const auto read = read_predictions(path);
  REQUIRE(read.size() == 1);
  CHECK(read[0].policy == "variable_fixed");
  CHECK(read[0].summary.step_time_ms.mean == prediction.summary.step_time_ms.mean);
  CHECK(read[0].steps.size() == prediction.steps.size());
  CHECK(read[0].steps.back().step_ms == prediction.steps.back().step_ms);
  Json damaged = prediction_json({prediction}, StepRows::All);
  damaged["predictions"][0]["steps"] = 5;
  write_text_atomically(path, damaged.dump());
  CHECK_THROWS_WITH_AS(
      (void)read_predictions(path), doctest::Contains("steps: expected a list"), InputError);
}

TEST_CASE("what a measured host differs by from run to run makes the interval") {
  const Scenario scenario = token_skew();
  Profile profile = flat_profile(4);
  profile.host_is_device = false;
  profile.launch_seconds = 0.1;  // So that it decides.
  const auto spread = [&](const Scenario& one) {
    const auto step = predict(one, one.policies.front(), profile, {}).summary.step_time_ms;
    return (step.high90 - step.low90) / (2 * 1.645 * step.mean);
  };
  CHECK(spread(scenario) == Approx(0.05).epsilon(0.2));
  profile.launch_error = 0.2;
  CHECK(spread(scenario) == Approx(0.2).epsilon(0.2));
  Scenario stated = scenario;
  stated.host.launch = Duration(100'000'000);
  CHECK(spread(stated) == Approx(0.05).epsilon(0.2));
}

TEST_CASE("where the host decides the step, its error makes the interval") {
  const std::string text =
      "[scenario]\nname = \"s\"\nsteps = 4\n[cluster]\nranks = 2\n"
      "topology = { algorithm = \"ring\", intra_latency = \"0 us\", intra_bandwidth = \"1 TB/s\" "
      "}\n"
      "[times]\nforward = \"1 us\"\nbackward = \"2 us\"\n[host]\nlaunch = \"1 ms\"\nERROR\n"
      "[model]\nkind = \"blocks\"\nlayers = 10\nblock_elements = 10\n"
      "[data]\nsamples = 64\nlengths = { constant = 8 }\n"
      "[[policy]]\nname = \"fixed\"\nkind = \"fixed\"\nbatch_size = 4\n";
  const auto spread = [&](const std::string& error) {
    const Scenario scenario = parse_scenario(test::replaced(text, "ERROR", error), "s.toml");
    const auto step = predict(scenario, scenario.policies.front(), {}, {}).summary.step_time_ms;
    return (step.high90 - step.low90) / (2 * 1.645 * step.mean);
  };
  // Quantiles of so few draws lie a little nearer to the middle.
  CHECK(spread("") == Approx(0.05).epsilon(0.2));
  CHECK(spread("error = 0.2") == Approx(0.2).epsilon(0.2));
  CHECK(spread("error = 0") < 0.002);
}

TEST_CASE("fsdp2: gathers and scatters that were not measured are named, with what measures them") {
  const auto notes_of = [](const std::vector<std::string>& overrides) {
    const Scenario scenario = parse_scenario(test::kBucketBlocks, "s.toml", overrides);
    return note_texts(predict(
        scenario, scenario.policies.front(), scenario_profile(scenario), {.noise_runs = 0}));
  };
  const std::string from = ": all_reduce by the bytes on a ring: measured table, 2 ranks; ";
  const std::vector<std::string> notes = notes_of({"parallel.kind=fsdp2"});
  CHECK(std::ranges::count(notes,
                           "not measured: all_gather" + from + "reduce_scatter" + from +
                               "stepcal measure or nccl-tests (stepcal import nccl-tests) "
                               "measure them") == 1);
  for (const std::string& note : notes_of({})) {
    CHECK_FALSE(note.starts_with("not measured"));
  }
}
