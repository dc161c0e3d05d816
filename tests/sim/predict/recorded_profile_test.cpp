// Steps priced by a profile of recorded passes.
#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <doctest/doctest.h>

#include "costmodel/base/input_error.h"
#include "costmodel/compute/host_floor.h"
#include "costmodel/model/model_presets.h"
#include "sim/predict/note.h"
#include "sim/predict/predict.h"
#include "sim/predict/step_cost.h"
#include "sim/predict/step_lowering.h"
#include "sim/report/notes.h"
#include "sim/study/recommendation.h"
#include "tests/approx.h"
#include "tests/costmodel/helpers.h"
#include "tests/sim/predict/plan_of.h"

using namespace stepsim;
using stepsim::test::Approx;

namespace {

Scenario two_ranks(std::vector<std::string> overrides = {}) {
  overrides.emplace_back("cluster.ranks=2");
  return read_scenario(test::source_root() + "/scenarios/token_skew.toml", overrides);
}

/// `times` milliseconds and microseconds a padded token.
PassCost pass(double times) {
  PassCost cost;
  cost.features = {"1", "tokens"};
  cost.coefficients = {times * 1e-3, times * 1e-6};
  cost.tokens = {256, 2048};
  cost.length = {64, 256};
  return cost;
}

/// Forward 1 ms + 1 us T, backward twice that, data 0.1 ms, optimizer 0.5 ms, all-reduce 1 ms.
Profile recorded_profile() {
  Profile profile;
  profile.name = "lab";
  RecordedModel& recorded = profile.recorded.emplace();
  recorded.model = model_preset("tiny-classifier");
  recorded.forward = pass(1);
  recorded.backward = pass(2);
  recorded.data = pass(0);
  recorded.data.coefficients[0] = 1e-4;
  recorded.optimizer_seconds = 5e-4;
  CollectiveCost all_reduce;
  all_reduce.ranks = 2;
  all_reduce.knots = {{1024, 1e-3}, {double{1 << 26}, 1e-3}};
  profile.collectives.push_back(all_reduce);
  return profile;
}

constexpr double kBeside = 0.1 + 1 + 0.5;    // Milliseconds that are not in the passes.
constexpr double kPasses = 3 * (1 + 1.024);  // Of 8 samples of 128 tokens.

constexpr double kOfPolicy = 0.02;  // What the steps of a policy differ by beside the fit.

StepTimeSummary uniform_step(const Profile& profile, std::vector<std::string> overrides = {}) {
  const Scenario scenario = two_ranks(std::move(overrides));
  return predict(scenario, find_policy(scenario, "uniform"), profile, {}).summary.step_time_ms;
}

}  // namespace

TEST_CASE("a step of recorded passes is data, the slowest rank, the all-reduce, the optimizer") {
  const Scenario scenario = two_ranks();
  for (const BatchingPolicy& policy : scenario.policies) {
    CAPTURE(policy.name());
    const Plan plan = test::plan_of(scenario, policy);
    std::map<int, std::int64_t> most;  // Padded tokens of the fuller rank.
    for (const MicroBatch& batch : plan.micro_batches) {
      most[batch.step] = std::max(most[batch.step], batch.shape().padded_tokens());
    }
    double expected = 0;
    for (int step = plan.warmup_steps; step < plan.steps; ++step) {
      expected += (kBeside + 3 * (1 + 1e-3 * static_cast<double>(most[step]))) / 10;
    }
    const Prediction prediction = predict(scenario, policy, recorded_profile(), {.noise_runs = 0});
    CHECK(prediction.summary.step_time_ms.mean == Approx(expected).epsilon(1e-6));
    if (policy.name() == "uniform") {
      CHECK(prediction.summary.step_time_ms.mean == Approx(kBeside + kPasses));
      CHECK(prediction.summary.forward_ms == Approx(kPasses / 3));
      CHECK(prediction.summary.backward_ms == Approx(kPasses * 2 / 3));
    }
  }
}

namespace {

constexpr double kTensors = 199;  // Of BERT base.

/// Steps of BERT base on one GPU: 3 and 6 us a token, timed from `fewest` tokens on, the optimizer
/// 0.5 ms.
Profile gpu_profile(double fewest) {
  Profile profile = recorded_profile();
  profile.host_is_device = false;
  RecordedModel& recorded = *profile.recorded;
  recorded.model = model_preset("bert-base");
  for (const auto& [pass, token] :
       {std::pair(&recorded.forward, 3e-6), {&recorded.backward, 6e-6}}) {
    pass->coefficients = {0, token};
    pass->draws = {{0, token}};
    pass->tokens = {fewest, 65536};
  }
  return profile;
}

/// 8 samples of 128 tokens on one GPU: 9.216 ms by the costs, and 0.1 ms for the data.
Prediction small_step(const Profile& profile, std::vector<std::string> overrides = {}) {
  overrides.insert(overrides.end(), {"model.preset=\"bert-base\"", "cluster.ranks=1"});
  const Scenario scenario =
      read_scenario(test::source_root() + "/scenarios/token_skew.toml", overrides);
  return predict(scenario, find_policy(scenario, "uniform"), profile, {});
}

bool is_below_floor(const Prediction& prediction) {
  return std::ranges::any_of(prediction.notes, [](const Note& note) {
    return std::holds_alternative<BelowHostFloor>(note);
  });
}

}  // namespace

TEST_CASE("a step that no host can launch in time is priced by its host, and said first") {
  const Prediction prediction = small_step(gpu_profile(8192));
  const double host_ms = kTensors * HostFloor::kOfTensor * 1e3;  // 49.75
  CHECK(prediction.summary.forward_ms == Approx((host_ms - 0.5) / 3));
  CHECK(prediction.summary.backward_ms == Approx((host_ms - 0.5) * 2 / 3));
  const StepTimeSummary& step = prediction.summary.step_time_ms;
  CHECK(step.mean == Approx(host_ms + 0.1));
  CHECK(step.low90 == Approx(HostFloor::kLow * host_ms).epsilon(0.1));
  // It is not more than the smallest batch that was timed, 74.2 ms with the optimizer.
  CHECK(step.high90 == Approx(9e-3 * 8192 + 0.6).epsilon(0.05));
  CHECK(
      note_texts(prediction).front() ==
      "199 parameter tensors: a host usually needs 22.6 to 74.2 ms to launch such a step, and the "
      "costs of the smallest batch, below all that were timed, come to 9.72 ms: it is priced at "
      "49.8 ms, and the interval holds faster and slower hosts; time a step of that batch, or "
      "say what a launch takes (host.launch)");
}

TEST_CASE("the host's floor leaves alone what was timed, measured or computed by the host") {
  Profile launches = gpu_profile(8192);
  launches.recorded->launch_seconds = 1e-9;
  Profile of_cpu = gpu_profile(8192);
  of_cpu.host_is_device = true;
  const Profile timed = gpu_profile(1024);
  for (const Profile& profile : {launches, of_cpu, timed}) {
    const Prediction prediction = small_step(profile);
    CHECK(prediction.summary.step_time_ms.mean == Approx(9.216 + 0.6).epsilon(1e-3));
    CHECK(prediction.summary.step_time_ms.high90 < 10.5);
    CHECK_FALSE(is_below_floor(prediction));
  }
  const Prediction stated = small_step(gpu_profile(8192), {"host.launch=\"1 ns\""});
  CHECK(stated.summary.step_time_ms.mean == Approx(9.216 + 0.6).epsilon(1e-3));
  CHECK_FALSE(is_below_floor(stated));
}

TEST_CASE("the host's floor: a faster GPU, micro-batches, several fits") {
  // A GPU of ten times the speed has the same host.
  const Prediction faster = small_step(gpu_profile(8192), {"cluster.compute_speed=10"});
  CHECK(faster.summary.forward_ms + faster.summary.backward_ms ==
        Approx(kTensors * HostFloor::kOfTensor * 1e3 - 0.5));
  CHECK(is_below_floor(faster));
  // A batch as small as the smallest that was timed takes what that took, and is below a floor
  // on a faster GPU only.
  CHECK(is_below_floor(small_step(gpu_profile(1024), {"cluster.compute_speed=10"})));
  // Each micro-batch is launched.
  const Prediction twice = small_step(gpu_profile(8192), {"ddp.accumulation_steps=2"});
  const Prediction once = small_step(gpu_profile(8192));
  CHECK(twice.summary.forward_ms == Approx(2 * once.summary.forward_ms));
  // In each draw the floor is at most what that fit says of the smallest timed batch: batches that
  // were timed keep their interval.
  Profile drawn = gpu_profile(1024);
  drawn.recorded->forward.draws = {{0, 2.7e-6}, {0, 3.3e-6}};
  drawn.recorded->backward.draws = {{0, 5.4e-6}, {0, 6.6e-6}};
  const StepTimeSummary step = small_step(drawn).summary.step_time_ms;
  CHECK(step.low90 == Approx(0.9 * 9.216 + 0.6).epsilon(0.04));
  CHECK(step.high90 == Approx(1.1 * 9.216 + 0.6).epsilon(0.04));
}

TEST_CASE("recorded passes are for their own model only, unless the profile prices ops") {
  const Scenario other = two_ranks({"model.preset=\"bert-base\""});
  Profile profile = recorded_profile();
  CHECK(test::error_of([&] { (void)predict(other, other.policies[0], profile, {}); }) ==
        "profile 'lab' was recorded from another model (tiny-classifier) than the scenario's, and "
        "holds no costs of single ops; record steps of this one");
  CHECK(prices_recorded_model(two_ranks(), profile));
  profile.ops.resize(1);
  CHECK_FALSE(prices_recorded_model(other, profile));
  profile.recorded.reset();
  CHECK_FALSE(prices_recorded_model(two_ranks(), profile));
}

TEST_CASE("the interval of the mean holds what other fits to the recorded steps say") {
  Profile profile = recorded_profile();
  const auto scaled = [](const PassCost& cost, double factor) {
    std::vector<double> draw = cost.coefficients;
    for (double& coefficient : draw) {
      coefficient *= factor;
    }
    return draw;
  };
  RecordedModel& recorded = *profile.recorded;
  recorded.forward.draws = {scaled(recorded.forward, 0.9), scaled(recorded.forward, 1.1)};
  recorded.backward.draws = {scaled(recorded.backward, 0.9), scaled(recorded.backward, 1.1)};
  StepTimeSummary step = uniform_step(profile);
  CHECK(step.mean == Approx(kBeside + kPasses));
  // Half of the draws are of either fit, so that a tenth of its half lies outside. (A hundred
  // draws.)
  const double tenth = std::exp(1.2816 * kOfPolicy);
  CHECK(step.low90 == Approx((kBeside + 0.9 * kPasses) / tenth).epsilon(0.01));
  CHECK(step.high90 == Approx((kBeside + 1.1 * kPasses) * tenth).epsilon(0.01));
  // One draw for both passes: a third down and two thirds up, or the other way round.
  std::swap(recorded.backward.draws[0], recorded.backward.draws[1]);
  step = uniform_step(profile);
  CHECK(step.low90 == Approx((kBeside + kPasses * (1.1 + 2 * 0.9) / 3) / tenth).epsilon(0.01));
  CHECK(step.high90 == Approx((kBeside + kPasses * (0.9 + 2 * 1.1) / 3) * tenth).epsilon(0.01));
}

TEST_CASE("a machine's drift is in the interval of any hour, not in that of the same one") {
  Profile profile = recorded_profile();
  const StepTimeSummary still = uniform_step(profile);
  CHECK(still.same_hour_low90 == Approx(still.low90));
  CHECK(still.same_hour_high90 == Approx(still.high90));
  profile.noise.drift = 0.1;
  const StepTimeSummary step = uniform_step(profile);
  CHECK(step.same_hour_low90 == Approx(still.low90).epsilon(0.001));
  CHECK(step.same_hour_high90 == Approx(still.high90).epsilon(0.001));
  CHECK(step.high90 - step.low90 > 3 * (step.same_hour_high90 - step.same_hour_low90));
}

TEST_CASE("other programs of the recording: an idle machine to twice as many, in any hour") {
  Profile profile = recorded_profile();
  const StepTimeSummary alone = uniform_step(profile);
  profile.noise.crowded = {1.5, 0};
  const StepTimeSummary step = uniform_step(profile);
  CHECK(step.same_hour_low90 == Approx(alone.low90).epsilon(0.001));
  CHECK(step.same_hour_high90 == Approx(alone.high90).epsilon(0.001));
  CHECK(step.low90 < alone.mean / 1.5);
  CHECK(step.high90 > alone.mean * 1.5);
  profile.noise.crowded = {1.5, 0.1};
  const StepTimeSummary uneven = uniform_step(profile);
  CHECK(uneven.same_hour_high90 - uneven.same_hour_low90 > 4 * (alone.high90 - alone.low90));
}

TEST_CASE("errors of the passes widen the interval, those of all sizes together") {
  Profile profile = recorded_profile();
  const double of_policy = 1.645 * kOfPolicy * (kBeside + kPasses);
  CHECK(uniform_step(profile).high90 == Approx(kBeside + kPasses + of_policy).epsilon(0.005));
  profile.recorded->forward.errors.block = 0.05;
  profile.recorded->backward.errors.block = 0.05;
  const StepTimeSummary step = uniform_step(profile);
  // Two thirds and a third that err by 5 % independently: 3.7 %, 1.645 times that on both sides.
  const double half = std::hypot(1.645 * 0.0373 * kPasses, of_policy);
  CHECK(step.low90 == Approx(kBeside + kPasses - half).epsilon(0.02));
  CHECK(step.high90 == Approx(kBeside + kPasses + half).epsilon(0.02));
}

TEST_CASE("an error of single sizes is mixed between octaves") {
  CostFactors factors;
  factors.collective = 2;
  CHECK(factors.of_collective(1e6) == 2);
  factors.collective_sizes = {1, 4, 1};
  CHECK(factors.of_collective(1) == Approx(2));
  CHECK(factors.of_collective(2) == Approx(8));
  CHECK(factors.of_collective(std::sqrt(8.0)) == Approx(4));
  CHECK(factors.of_collective(1e9) == Approx(2));
}

TEST_CASE("errors of single all-reduce sizes do not cancel between two bucket caps") {
  const auto width = [](double error) {
    Profile profile = recorded_profile();
    profile.recorded->model = model_preset("distilbert");
    // In proportion to the bytes, so that an error of all sizes alike would hardly change a ratio.
    constexpr double kMost = 1 << 28;
    profile.collectives.front().knots = {{1024, 1024e-8}, {kMost, kMost * 1e-8}};
    profile.collectives.front().errors.random = error;
    PredictOptions paired;
    paired.paired_draws = true;
    const auto at = [&](const char* cap) {
      const Scenario scenario = two_ranks({"model.preset=\"distilbert\"",
                                           "scenario.steps=4",
                                           std::string("ddp.bucket_cap=") + cap});
      return predict(scenario, find_policy(scenario, "uniform"), profile, paired);
    };
    const Gain gain = paired_gain(at("2 MiB"), at("50 MiB"));
    return gain.interval.second - gain.interval.first;
  };
  CHECK(width(0) < 1e-6);
  CHECK(width(0.1) > 0.02);
}

TEST_CASE("quantiles of the profile's steps are the jitter, unless the scenario states its own") {
  Profile profile = recorded_profile();
  profile.noise.step_jitter = 0.3;
  profile.noise.step_quantiles = {1, 1};
  CHECK(uniform_step(profile).mean == Approx(kBeside + kPasses));
  profile.noise.step_quantiles = {0.5, 1.5};
  // The slower of two ranks, each uniform in 0.5 to 1.5 of all but the all-reduce: 7/6 of it.
  CHECK(uniform_step(profile).mean == Approx(1 + (kPasses + 0.6) * 7 / 6).epsilon(0.01));
  CHECK(uniform_step(profile).p99 < 1 + (kPasses + 0.6) * 1.5);
  CHECK(uniform_step(profile, {"cluster.jitter=1e-6"}).mean ==
        Approx(kBeside + kPasses).epsilon(1e-4));
  CHECK(uniform_step(profile, {"noise.step_quantiles=[1.0, 1.0]"}).mean ==
        Approx(kBeside + kPasses));
}

TEST_CASE("stalls move mean and interval by what they take, and are seen in the tail") {
  Profile profile = recorded_profile();
  profile.noise.drift = 0.05;
  const StepTimeSummary without = uniform_step(profile);
  profile.noise.stalls = {0.1, {0.010, 0.030}};  // 2 ms a step.
  const StepTimeSummary with = uniform_step(profile);
  CHECK(with.mean == Approx(without.mean + 2));
  CHECK(with.low90 == Approx(without.low90 + 2));
  CHECK(with.high90 == Approx(without.high90 + 2));
  CHECK(with.p50 == Approx(without.p50));
  CHECK(with.p95 >= without.p50 + 10);  // One step in ten has one, half of them the longer one.
  CHECK(with.p99 == Approx(without.p50 + 30));
  const Scenario scenario = two_ranks();
  const double has_any = 1 - std::pow(0.9, scenario.steps - scenario.warmup_steps);
  CHECK(with.max == Approx(without.p50 + 30 * has_any).epsilon(0.05));
  CHECK(predict(scenario, find_policy(scenario, "uniform"), profile, {.noise_runs = 0})
            .summary.step_time_ms.mean == Approx(without.mean));
}

TEST_CASE("short stalls of a processor come by the clock, beside quiet steps; long ones do not") {
  Profile profile = recorded_profile();
  const StepTimeSummary without = uniform_step(profile);
  constexpr double kRecordedStep = (kBeside + kPasses) / 2 * 1e-3;  // Half as long as the run's.
  // Ten of 2 ms in 100 steps, as if 200 had been recorded, and steps twice as long: 0.2 ms a step.
  profile.noise.stalls = {0.1, {0.002}, kRecordedStep, 100};
  const StepTimeSummary with = uniform_step(profile);
  CHECK(with.mean == Approx(without.mean + 0.2));
  // Ten steps meet one of them or so: none, or two.
  CHECK(with.low90 < without.low90 + 0.15);
  CHECK(with.high90 > without.high90 + 0.25);
  CHECK(with.high90 < without.high90 + 0.9);
  // A checkpoint is the training's own.
  profile.noise.stalls.seconds = {0.1};
  const StepTimeSummary longer = uniform_step(profile);
  CHECK(longer.mean == Approx(without.mean + 10));
  CHECK(longer.low90 == Approx(without.low90 + 10));
  // One of each: half as many of both.
  profile.noise.stalls.seconds = {0.002, 0.1};
  CHECK(uniform_step(profile).mean == Approx(without.mean + 0.1 + 5));
  // No step has more than one.
  profile.noise.stalls = {1, {0.002}, kRecordedStep / 2, 1'000'000};
  CHECK(uniform_step(profile).mean == Approx(without.mean + 2));
}

TEST_CASE("an error larger than the pass itself is no exponent") {
  Profile profile = recorded_profile();
  profile.recorded->data.errors.block = 4.5;  // Of 0.1 ms.
  const StepTimeSummary step = uniform_step(profile);
  // 1.645 deviations of 4.5 / 0.8: e^2 (9.3 - 1) = 61 times 0.1 ms. As an exponent: a second.
  CHECK(step.high90 == Approx(step.mean + 6).epsilon(0.2));
}

TEST_CASE("policies that plan by time plan by the recorded passes") {
  const Scenario scenario = two_ranks();
  const StepCost cost = step_cost(scenario, recorded_profile());
  const std::vector<std::int64_t> lengths(8, 128);
  CHECK(static_cast<double>(cost(batch_shape(lengths))) == Approx(kPasses * 1e6));
}

TEST_CASE("batches beyond the recorded ones and all-reduces inside the passes are warned about") {
  const Scenario scenario = two_ranks();
  Profile profile = recorded_profile();
  const auto warnings = [&] {
    std::string all;
    for (const auto& text :
         note_texts(predict(scenario, find_policy(scenario, "uniform"), profile, {}))) {
      all += text + "\n";
    }
    return all;
  };
  CHECK(warnings().empty());
  profile.recorded->forward.tokens.second = 512;
  CHECK(warnings().find("forward pass: up to 2 times the largest size that was measured") !=
        std::string::npos);
  profile.recorded->forward.tokens = {1000, 1000};  // The batches have 1024.
  CHECK(warnings().find("forward pass: just beyond the largest size") != std::string::npos);
  profile.recorded->forward.tokens = {7680, 9000};
  CHECK(warnings().find("forward pass: down to 1/7.5 of the smallest size") != std::string::npos);
  profile.recorded->forward.tokens = {1, 512};
  profile.recorded->whole_steps = true;
  CHECK(warnings().find("all-reduces are inside its passes") != std::string::npos);
  profile.recorded->forward.tokens.second = 250;
  CHECK_THROWS_AS(warnings(), InputError);
}

TEST_CASE(
    "the host's time for units is the profile's where it was measured, and then not assumed") {
  const std::string fsdp2 = "parallel.kind=fsdp2";
  Profile profile = recorded_profile();
  for (const CollectiveKind kind : {CollectiveKind::AllGather, CollectiveKind::ReduceScatter}) {
    CollectiveCost cost = profile.collectives.front();
    cost.kind = name_of(kind);
    profile.collectives.push_back(cost);
  }
  const auto is_assumed = [&] {
    const Scenario scenario = two_ranks({fsdp2});
    const Prediction found = predict(scenario, find_policy(scenario, "uniform"), profile, {});
    return std::ranges::any_of(found.notes, [](const Note& note) {
      return std::holds_alternative<UnitHostAssumed>(note);
    });
  };
  const double assumed = uniform_step(profile, {fsdp2}).mean;
  CHECK(is_assumed());
  profile.unit_host = UnitHostTimes{};
  const double free = uniform_step(profile, {fsdp2}).mean;
  CHECK_FALSE(is_assumed());
  CHECK(free < assumed);
  profile.unit_host->optimizer_tensor = 1e-3;
  const double tensors = uniform_step(profile, {fsdp2}).mean - free;
  CHECK(tensors > 1);
  CHECK(tensors == Approx(std::round(tensors)));  // As many as the model has.
  CHECK(uniform_step(profile, {fsdp2, "host.sharded_tensor=0 s"}).mean == Approx(free));
  CHECK(uniform_step(profile, {fsdp2, "host.sharded_tensor=2 ms"}).mean ==
        Approx(free + 2 * tensors));
  profile.unit_host = UnitHostTimes{};
  profile.unit_host->byte = 1e-9;  // Of copies, which a recorded model has no other price for.
  const double bytes = uniform_step(profile, {fsdp2}).mean - free;
  CHECK(bytes > 0);
  profile.unit_host->byte = 2e-9;
  CHECK(uniform_step(profile, {fsdp2}).mean - free == Approx(2 * bytes));
  CHECK(uniform_step(profile, {}).mean == Approx(uniform_step(recorded_profile(), {}).mean));
  profile.unit_host = UnitHostTimes{1e-3, 0, 0, 0, 0};
  const double units = uniform_step(profile, {fsdp2}).mean - free;
  CHECK(units > 1);
  CHECK(units < tensors);
  // Other programs that slowed the recorded steps slow the hooks as well.
  profile.noise.crowded.slowed = 3;
  CHECK(uniform_step(profile, {fsdp2}).mean - free == Approx(3 * units));
  // So do ranks that share a core.
  profile.noise.crowded.slowed = 1;
  profile.cores = 1;
  const double shared = uniform_step(profile, {fsdp2}).mean;
  profile.unit_host = UnitHostTimes{};
  CHECK(shared - uniform_step(profile, {fsdp2}).mean == Approx(2 * units));
}
