#include "calibrate/import/recorded/recorded_run.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <random>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "calibrate/fit/fit.h"
#include "costmodel/compute/shared_cores.h"
#include "costmodel/model/model_presets.h"
#include "tests/approx.h"
#include "tests/calibrate/import/recorded_training.h"
#include "tests/costmodel/helpers.h"

using namespace stepsim;
using namespace stepsim::test;

namespace {

RecordedCosts fitted(const MadeTraining& training) {
  return fit_recorded_runs(std::vector{made_run(training)});
}

std::string error_with(const std::vector<RecordedRun>& runs) {
  return error_of([&] { (void)fit_recorded_runs(runs); });
}

bool holds(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

bool any_holds(const std::vector<std::string>& texts, const std::string& part) {
  return std::any_of(
      texts.begin(), texts.end(), [&](const std::string& text) { return holds(text, part); });
}

/// Batches that no made training runs.
const std::vector<BatchShape> kUnseen = {
    {5, 77, 300, 0}, {8, 128, 1024, 0}, {11, 201, 2000, 0}, {16, 240, 3840, 0}};

double seconds(const PassCost& cost, const BatchShape& batch) {
  return pass_seconds(cost, cost.coefficients, batch, false);
}

/// `data`: seconds of a micro-batch.
void check_passes(const RecordedModel& model, double tolerance, double data = 2e-4) {
  for (const BatchShape& batch : kUnseen) {
    CAPTURE(batch.samples);
    CHECK(seconds(model.forward, batch) == Approx(made_forward(batch)).epsilon(tolerance));
    CHECK(seconds(model.backward, batch) == Approx(made_backward(batch)).epsilon(tolerance));
    CHECK(seconds(model.data, batch) == Approx(data).epsilon(tolerance));
  }
  CHECK(model.optimizer_seconds == Approx(6e-4));
}

}  // namespace

TEST_CASE("a backward is told from waiting by its buckets, by processor time, or on one rank") {
  for (const Recorded recorded : {Recorded::Buckets, Recorded::ProcessorTimes, Recorded::Nothing}) {
    MadeTraining training;
    training.steps = 200;  // Enough that each of the fits has seen the sizes asked for.
    training.recorded = recorded;
    training.ranks = recorded == Recorded::Nothing ? 1 : 2;
    const RecordedCosts costs = fitted(training);
    check_passes(costs.model, 1e-6);
    CHECK(costs.ranks == training.ranks);
    CHECK(costs.steps == 198);
    CHECK_FALSE(costs.whole);
    CHECK_FALSE(costs.on_gpu);
    CHECK(costs.all_reduces.empty() == (recorded != Recorded::Buckets));
    CHECK(any_holds(costs.warnings, "no bucket times") == (recorded == Recorded::ProcessorTimes));
  }
}

TEST_CASE("the buckets of a rank alone tell nothing of all-reduces") {
  MadeTraining training;
  training.ranks = 1;
  training.recorded = Recorded::Buckets;
  CHECK(fitted(training).all_reduces.empty());
}

TEST_CASE("micro-batches of one step are told apart by their shapes") {
  MadeTraining training;
  training.micro_batches = 3;
  check_passes(fitted(training).model, 1e-6, 2e-4 / 3);
}

TEST_CASE("an all-reduce took from its last launch to its last end, queued ones left out") {
  MadeTraining training;
  training.recorded = Recorded::Buckets;
  RecordedRun run = made_run(training);
  run.record.backend = "nccl";
  for (StepRecord& row : run.record.steps) {  // A rank that hears of the end later.
    row.buckets[0].end_ms += row.rank * 0.05;
  }
  const RecordedCosts costs = fit_recorded_runs(std::vector{run});
  REQUIRE(costs.all_reduces.size() == 2);
  const auto& small = costs.all_reduces[0];
  const auto& large = costs.all_reduces[1];
  CHECK(small.bytes + large.bytes == 4 * parameter_count(run.plan.model));
  CHECK(small.bytes < large.bytes);
  CHECK(small.seconds == Approx(3.5e-4));
  CHECK(large.seconds == Approx(5e-4));
  CHECK(small.noise == Approx(0).epsilon(1e-9));
  CHECK(small.repetitions == 38);
  CHECK(small.ranks == 2);

  training.first_reduce = 12e-3;  // Until after the second launch in short backwards only.
  RecordedRun behind = made_run(training);
  behind.record.backend = "nccl";
  const RecordedCosts queued = fit_recorded_runs(std::vector{behind});
  CHECK(queued.all_reduces[0].repetitions == 38);
  CHECK(queued.all_reduces[1].repetitions > 3);
  CHECK(queued.all_reduces[1].repetitions < 35);
  for (const double time : queued.all_reduces[1].all_seconds) {
    CHECK(time == Approx(5e-4));
  }
}

TEST_CASE("of gloo's two all-reduces on their way each counts for its part of the time") {
  MadeTraining training;
  training.recorded = Recorded::Buckets;
  RecordedRun run = made_run(training);
  for (StepRecord& row : run.record.steps) {
    // 1 ms alone, 4 ms beside the second bucket, which then has 3 ms alone: 3 and 5 ms of link.
    row.buckets[0].launch_ms = row.forward_ms;
    row.buckets[0].end_ms = row.forward_ms + 5;
    row.buckets[1].launch_ms = row.forward_ms + 1;
    row.buckets[1].end_ms = row.forward_ms + 8;
    row.start_ms = 1e3 * row.step;
  }
  for (StepRecord& row : run.record.steps) {  // All-reduces start with the last rank.
    const double late = run.record.steps[static_cast<std::size_t>(row.step * 2)].forward_ms;
    for (BucketRecord& bucket : row.buckets) {
      bucket.launch_ms += late - row.forward_ms;
      bucket.end_ms += late - row.forward_ms;
    }
  }
  const auto reduces = fit_recorded_runs(std::vector{run}).all_reduces;
  REQUIRE(reduces.size() == 2);
  CHECK(reduces[0].seconds == Approx(3e-3));
  CHECK(reduces[1].seconds == Approx(5e-3));
}

TEST_CASE("shares of the backward are those that the launches show") {
  for (const double weight : {0.0, 4.0, 64.0}) {
    MadeTraining training;
    training.recorded = Recorded::Buckets;
    training.operations_per_byte = weight;
    CHECK(fitted(training).model.operations_per_byte == weight);
  }
  MadeTraining training;
  training.operations_per_byte = 64;
  CHECK(fitted(training).model.operations_per_byte == 8);  // No launch was recorded.
}

TEST_CASE("runs without buckets give the passes, those with them the all-reduces") {
  MadeTraining training;
  const RecordedRun plain = made_run(training);
  training.recorded = Recorded::Buckets;
  RecordedRun watched = made_run(training);
  for (StepRecord& row : watched.record.steps) {  // Recording buckets costs time.
    row.forward_ms *= 1.5;
  }
  const RecordedCosts costs = fit_recorded_runs(std::vector{watched, plain});
  check_passes(costs.model, 1e-6);
  CHECK(costs.all_reduces.size() == 2);
  CHECK(any_holds(costs.notes, "processor time"));
}

TEST_CASE("jitter has mean 1 and the spread of the steps") {
  MadeTraining training;
  training.steps = 200;
  training.noise = 0.1;
  const NoiseProfile noise = fitted(training).noise;
  const auto& quantiles = noise.step_quantiles;
  REQUIRE(quantiles.size() == 41);
  double mean = 0;
  for (std::size_t i = 0; i + 1 < quantiles.size(); ++i) {
    mean += (quantiles[i] + quantiles[i + 1]) / 80;
  }
  CHECK(mean == Approx(1).epsilon(1e-12));
  CHECK(quantiles.front() == Approx(0.9).epsilon(0.02));
  CHECK(quantiles[10] == Approx(0.95).epsilon(0.02));
  CHECK(quantiles[30] == Approx(1.05).epsilon(0.02));
  CHECK(quantiles.back() == Approx(1.1).epsilon(0.02));
  CHECK(noise.drift < 0.02);
}

TEST_CASE("what slows all ranks of a step alike is told from what slows one") {
  const auto correlation = [](double common) {
    RecordedRun run = made_run({.steps = 200});
    std::mt19937_64 generator(11);
    const auto draw = [&] { return static_cast<double>(generator() % 1000) / 1000 - 0.5; };
    std::map<int, double> of_step;
    for (StepRecord& row : run.record.steps) {
      const auto found = of_step.try_emplace(row.step, 0.0).first;
      found->second = found->second == 0 ? draw() : found->second;
      const double factor = 1 + 0.2 * (common * found->second + (1 - common) * draw());
      for (double* time :
           {&row.forward_ms, &row.backward_ms, &row.forward_cpu_ms, &row.backward_cpu_ms}) {
        *time *= factor;
      }
    }
    return fit_recorded_runs(std::vector{run}).noise.rank_correlation;
  };
  CHECK(correlation(0) < 0.12);
  CHECK(correlation(0.5) == Approx(0.5).epsilon(0.25));  // As much variance in common as own.
  CHECK(correlation(1) > 0.97);
}

TEST_CASE("of ranks that shared cores the costs are those of a rank alone") {
  RecordedRun run = made_run({.ranks = 4, .steps = 60});
  run.record.cores = 2;
  // Processor times are 0.8 of what the costs say; the wall times of sharing two cores.
  for (std::size_t first = 0; first < run.record.steps.size(); first += 4) {
    std::vector<double> alone;
    for (std::size_t i = first; i < first + 4; ++i) {
      alone.push_back(run.record.steps[i].forward_cpu_ms + run.record.steps[i].backward_cpu_ms);
    }
    const auto factors = shared_core_factors(alone, 2);
    for (std::size_t i = 0; i < 4; ++i) {
      run.record.steps[first + i].forward_ms *= factors[i];
    }
  }
  const RecordedCosts costs = fit_recorded_runs(std::vector{run});
  CHECK(costs.cores == 2);
  check_passes(costs.model, 1e-6);
  CHECK(any_holds(costs.notes, "4 ranks shared 2 processor cores"));
  CHECK(recorded_profile(costs, std::vector{run}, nullptr).cores == 2);
}

/// Two ranks on a machine that has a core for each and gives `cores`: processor times as the costs
/// say, wall times of sharing, and an all-reduce of 0.5 ms after the slower backward.
RecordedRun run_on_shared_cores(double cores) {
  RecordedRun run = made_run({.steps = 80});
  run.record.cores = 2;
  for (std::size_t first = 0; first < run.record.steps.size(); first += 2) {
    const std::span<StepRecord> ranks(&run.record.steps[first], 2);
    std::vector<double> alone;
    for (StepRecord& row : ranks) {
      const MicroBatch& batch = run.plan.micro_batches[first + static_cast<std::size_t>(row.rank)];
      row.forward_cpu_ms = 1e3 * made_forward(batch.shape());
      row.backward_cpu_ms = 1e3 * made_backward(batch.shape());
      alone.push_back(row.forward_cpu_ms + row.backward_cpu_ms);
    }
    const auto factors = shared_core_factors(alone, cores);
    const double end = std::max(factors[0] * alone[0], factors[1] * alone[1]) + 0.5;
    for (StepRecord& row : ranks) {
      row.forward_ms = row.forward_cpu_ms * 2 / cores;  // All forwards run beside one another.
      row.backward_ms = end - row.forward_ms;
    }
  }
  return run;
}

TEST_CASE("a machine that gives fewer cores than it has is told by the steps' waits") {
  const RecordedRun run = run_on_shared_cores(1.25);
  const RecordedCosts costs = fit_recorded_runs(std::vector{run});
  CHECK(costs.cores == Approx(1.25));
  check_passes(costs.model, 1e-6);
  CHECK(any_holds(costs.notes, "2 ranks shared 1.25 processor cores"));
  for (const RecordedExposure& step : costs.exposures) {
    CHECK(step.exposed_seconds == Approx(5e-4));
  }
  // A rank's core of its own, slowed all the time, is no sharing.
  RecordedRun slowed = run_on_shared_cores(2);
  for (StepRecord& row : slowed.record.steps) {
    row.forward_ms *= 1.6;
    row.backward_ms = 1.6 * row.backward_ms;
  }
  CHECK(fit_recorded_runs(std::vector{slowed}).cores == 0);
  CHECK(fit_recorded_runs(std::vector{run_on_shared_cores(2)}).cores == 0);
}

TEST_CASE("a machine that grows slower while it is recorded drifts") {
  RecordedRun run = made_run({.steps = 200});
  for (StepRecord& row : run.record.steps) {
    const double factor = row.step < 100 ? 0.9 : 1.1;
    for (double* time :
         {&row.forward_ms, &row.backward_ms, &row.forward_cpu_ms, &row.backward_cpu_ms}) {
      *time *= factor;
    }
  }
  CHECK(fit_recorded_runs(std::vector{run}).noise.drift == Approx(0.2).epsilon(0.1));
}

TEST_CASE("steps of one rank that are slower than their size explains are told apart") {
  RecordedRun run = made_run({.steps = 100});
  CHECK(fit_recorded_runs(std::vector{run}).notes.size() == 1);
  for (StepRecord& row : run.record.steps) {
    if (row.rank == 1 && row.step % 4 == 0) {
      for (double* time :
           {&row.forward_ms, &row.backward_ms, &row.forward_cpu_ms, &row.backward_cpu_ms}) {
        *time *= 1.6;
      }
    }
  }
  const std::vector<std::string> notes = fit_recorded_runs(std::vector{run}).notes;
  const auto slow = std::ranges::find_if(notes, [](const std::string& note) {
    return note.find("times what others of their size take") != std::string::npos;
  });
  REQUIRE(slow != notes.end());
  CAPTURE(*slow);
  CHECK(slow->starts_with("12."));
  CHECK(slow->find("(rank 0 0 %, rank 1 24 %)") != std::string::npos);
  CHECK(slow->find("MALLOC_TRIM_THRESHOLD_") != std::string::npos);
}

TEST_CASE("all-reduces of a base are scaled by what the recorded ones took") {
  MadeTraining training;
  training.recorded = Recorded::Buckets;
  const std::vector<RecordedRun> runs = {made_run(training)};
  const RecordedCosts costs = fit_recorded_runs(runs);
  const Profile alone = recorded_profile(costs, runs, nullptr);
  CHECK(alone.device == "lab");
  CHECK(alone.backend == "cpu");
  CHECK(alone.host_is_device);
  REQUIRE(alone.collectives.size() == 1);
  CHECK(alone.collectives[0].knots.front().second == Approx(3e-4));
  CHECK(alone.recorded == costs.model);
  CHECK(alone.noise.step_quantiles == costs.noise.step_quantiles);

  Profile base;
  base.device = "base";
  base.collectives.resize(1);
  base.collectives[0].ranks = 2;
  base.collectives[0].knots = {{1, 1.5e-4}, {1e9, 1.5e-4}};
  const Profile scaled = recorded_profile(costs, runs, &base);
  REQUIRE(scaled.collectives.size() == 1);
  // The two buckets of a step took 3e-4 and 5e-4 s.
  CHECK(scaled.collectives[0].knots[0].second == Approx(4e-4));
  CHECK(scaled.collectives[0].knots[1].second == Approx(4e-4));
  CHECK(recorded_profile(costs, runs, &base).device == "lab");  // Where the passes ran, too.
  CHECK(recorded_profile(costs, runs, &base).backend == "cpu");
  base.collectives[0].ranks = 4;
  CHECK(recorded_profile(costs, runs, &base).collectives.size() == 2);
}

TEST_CASE("a profile takes the host's time for sharded units of the record, else the base's") {
  std::vector<RecordedRun> runs = {made_run({}), made_run({})};
  const RecordedCosts costs = fit_recorded_runs(runs);
  CHECK_FALSE(recorded_profile(costs, runs, nullptr).unit_host);
  Profile base;
  base.unit_host = UnitHostTimes{1, 2, 3, 4, 5};
  CHECK(recorded_profile(costs, runs, &base).unit_host == base.unit_host);
  Json& measured = (*runs[1].record.training)["unit_host"];
  measured = {{"forward_s", 0.5},
              {"forward_tensor_s", 0.25},
              {"backward_s", 1},
              {"backward_tensor_s", 0.125},
              {"optimizer_tensor_s", 2}};
  CHECK(recorded_profile(costs, runs, &base).unit_host == UnitHostTimes{0.5, 0.25, 1, 0.125, 2});
  measured.erase("backward_s");
  runs[1].file = "run.jsonl";
  CHECK(error_of([&] {
          (void)recorded_profile(costs, runs, nullptr);
        }).find("run.jsonl:1: error: unit_host.backward_s") != std::string::npos);
}

TEST_CASE("whole steps are fitted on request, also where passes can be told apart") {
  const std::vector<RecordedRun> runs = {made_run({})};
  const RecordedCosts costs = fit_recorded_runs(runs, RecordedForm::WholeSteps);
  CHECK(costs.whole.has_value());
  CHECK(costs.exposures.empty());
  CHECK(recorded_report(costs).find("--fit whole") != std::string::npos);
  CHECK_FALSE(fit_recorded_runs(runs).whole.has_value());
}

TEST_CASE("without buckets and processor times whole steps are fitted, all-reduces inside") {
  MadeTraining training;
  training.steps = 200;
  training.recorded = Recorded::Nothing;
  training.first_reduce = 0;  // Hidden behind the backward in all steps.
  const std::vector<RecordedRun> runs = {made_run(training)};
  const RecordedCosts costs = fit_recorded_runs(runs);
  REQUIRE(costs.whole);
  CHECK(costs.whole->samples == 198);
  CHECK(costs.model.whole_steps);
  for (const BatchShape& batch : kUnseen) {
    const double all = made_forward(batch) + made_backward(batch) + training.second_reduce;
    CHECK(seconds(*costs.whole, batch) == Approx(all).epsilon(1e-6));
    CHECK(seconds(costs.model.forward, batch) == Approx(all / 3).epsilon(1e-6));
    CHECK(seconds(costs.model.backward, batch) == Approx(all * 2 / 3).epsilon(1e-6));
  }
  CHECK(costs.model.optimizer_seconds == Approx(6e-4));
  CHECK(any_holds(costs.notes, "whole steps are fitted"));
  CHECK(any_holds(costs.warnings, "bucket caps"));
  CHECK_FALSE(any_holds(costs.warnings, "--base"));
  CHECK(holds(recorded_report(costs), "\nboth "));

  Profile base;  // Its all-reduce would count a second time.
  base.collectives.resize(2);
  base.collectives[0].ranks = 2;
  base.collectives[0].knots = {{1, 7}, {2, 8}};
  base.collectives[1].ranks = 4;
  base.collectives[1].knots = {{1, 7}, {2, 8}};
  const Profile profile = recorded_profile(costs, runs, &base);
  REQUIRE(profile.collectives.size() == 2);
  CHECK(profile.collectives[0] == base.collectives[1]);
  CHECK(profile.collectives[1].ranks == 2);
  CHECK(table_cost(profile.collectives[1], Bytes(1 << 30), 4, "lab").seconds == 0);
}

TEST_CASE("the spread of whole steps is in the drift, for a run as long as the recorded one") {
  MadeTraining training;
  training.recorded = Recorded::Nothing;
  training.steps = 102;
  training.noise = 0.2;
  const RecordedCosts costs = fitted(training);
  CHECK(costs.noise.step_jitter == 0);
  CHECK(costs.noise.step_quantiles.empty());
  // One rank's 11.5 % over the root of 100 steps, less for the slower of two, beside a drift that
  // eighths of such steps leave open by 11.5 % / sqrt(100 / 8) / sqrt(8), twice.
  CHECK(costs.noise.drift > 0.005);
  CHECK(costs.noise.drift < 0.035);
  // Two parts that err independently err together as the whole.
  const double part = *costs.model.forward.errors.random;
  CHECK(std::hypot(part / 3, part * 2 / 3) == Approx(*costs.whole->errors.random));
}

TEST_CASE("an error of many times is said in words, not as a percentage of many digits") {
  CHECK(error_text(std::nullopt) == "-");
  CHECK(error_text(0.1234) == "12.3");
  CHECK(error_text(-0.1234, true) == "-12.3");
  CHECK(error_text(10.0) == "1000.0");
  CHECK(error_text(55320.215) == "> 10 times");
  RecordedCosts costs = fitted(MadeTraining{});
  costs.model.data.errors.random = 0.05;
  costs.model.data.errors.block = 55320.215;
  CHECK(holds(recorded_report(costs), "\ndata           5.0 %  > 10 times    "));
}

TEST_CASE("runs that do not belong together are refused") {
  const RecordedRun good = made_run({});
  RecordedRun other = good;
  other.file = "other.jsonl";
  CHECK(error_with({}) == "no run record given");
  ++other.plan.model.layers;
  CHECK(error_with({good, other}) ==
        "other.jsonl: error: its plan is of another model than that of run.jsonl");
  other = made_run({.ranks = 4});
  other.file = "other.jsonl";
  CHECK(error_with({good, other}) ==
        "other.jsonl: error: recorded on 4 ranks, its plan has 4, run.jsonl has 2");
  other = good;
  other.file = "other.jsonl";
  other.record.device = "b";
  CHECK(error_with({good, other}) ==
        "other.jsonl: error: recorded on 'b' with 'gloo', run.jsonl on 'lab' with 'gloo'");
}

TEST_CASE("a rank that lost its last step does not spoil the record") {
  RecordedRun killed = made_run({});
  killed.record.steps.pop_back();
  CHECK(error_with({killed}) == "no error");
}

TEST_CASE("a repeat beyond all reason is refused, and does not index anything") {
  RecordedRun bad = made_run({});
  for (const int repeat : {20'000'000, 2'147'483'647}) {
    bad.record.steps[9].repeat = repeat;
    const std::string error = error_with({bad});
    CAPTURE(error);
    CHECK(error.find("step 4, rank 1: repeat " + std::to_string(repeat) + " of a plan of") !=
          std::string::npos);
    CHECK(error.find("expected fewer than 10000000 steps") != std::string::npos);
  }
}

TEST_CASE("a record that its plan does not explain is refused by step and rank") {
  const RecordedRun good = made_run({});
  RecordedRun bad = good;
  ++bad.record.steps[9].useful_tokens;
  const auto useful = bad.record.steps[9].useful_tokens;
  CHECK(error_with({bad}) == "run.jsonl: error: step 4, rank 1: the record ran " +
                                 std::to_string(useful) + " useful tokens, the plan has " +
                                 std::to_string(useful - 1));
  bad = good;
  bad.record.steps.back().step = 40;
  CHECK(error_with({bad}) == "run.jsonl: error: step 40, rank 1: the plan does not have it");
  bad = good;
  bad.record.steps[9].backward_cpu_ms = 0;
  CHECK(error_with({bad}) ==
        "run.jsonl: error: step 4, rank 1: its backward holds the wait for other ranks; record "
        "with recorder.watch(ddp), which tells them apart");
  bad = good;
  bad.record.world_size = 3;
  CHECK(holds(error_with({bad}), "recorded on 3 ranks, its plan has 2"));
  bad = good;
  bad.record.warmup_steps = 40;
  CHECK(
      error_with({bad}) ==
      "run.jsonl: error: 0 steps of ranks are left for a fit, which takes at least 10: record more "
      "(the first 40 of each repeat are the record's warm-up and do not count)");
}

TEST_CASE("batches that are all alike are warned about") {
  RecordedRun run = made_run({});
  // One is about other programs (passes take 1.25 times their processor time), one about bucket
  // times, and one about shapes that are all new.
  CHECK(fit_recorded_runs(std::vector{run}).warnings.size() == 3);
  for (std::size_t i = 0; i < run.plan.micro_batches.size(); ++i) {
    MicroBatch& batch = run.plan.micro_batches[i];
    batch.lengths.assign(8, 128);
    run.record.steps[i].useful_tokens = 1024;
    batch.samples.resize(8);
  }
  const auto warnings = fit_recorded_runs(std::vector{run}).warnings;
  CHECK(any_holds(warnings, "have 1024 to 1024 tokens"));
  CHECK(any_holds(warnings, "padded to 128 to 128 tokens"));
}
