// Samples of two lengths: where the second come from, and which policies look at them.
#include "sim/batching/targets.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include <doctest/doctest.h>

#include "costmodel/base/input_error.h"
#include "costmodel/io/json_file.h"
#include "sim/batching/policies/nemo.h"
#include "sim/batching/training_effects.h"
#include "tests/approx.h"
#include "tests/sim/batching/fixtures.h"
#include "tests/sim/batching/make_policy.h"
#include "tests/sim/predict/plan_of.h"
#include "tests/sim/scenario/scenario_text.h"

using namespace stepsim;
using namespace stepsim::test;

namespace {

TargetSource file_targets(const std::string& path) {
  TargetSource targets;
  targets.source.emplace();
  targets.source->kind = LengthSource::Kind::File;
  targets.source->file = path;
  return targets;
}

EpochBatches planned_targets(const std::string& kind,
                             const PolicyParameters& parameters,
                             const Ids& lengths,
                             const Ids& targets) {
  PolicySpec spec;
  spec.kind = kind;
  spec.parameters = parameters;
  PolicyInput input;
  input.lengths = lengths;
  input.targets = targets;
  input.sampler.shuffle = false;
  return make_policy(spec).epoch(input).batches;
}

}  // namespace

TEST_CASE("targets are a ratio of the first length, at least 1, with scatter around it") {
  TargetSource targets;
  targets.ratio = 0.5;
  CHECK(generate_targets(targets, Ids{1, 3, 10, 20}, true) == Ids{1, 2, 5, 10});
  targets.cap = 4;
  CHECK(generate_targets(targets, Ids{1, 3, 10, 20}, true) == Ids{1, 2, 4, 4});
  targets.cap = 0;
  targets.ratio = 0.9;
  targets.sigma = 0.1;
  const Ids drawn = generate_targets(targets, Ids(20'000, 1000), true);
  // Of 20,000 logarithms the mean scatters by sigma / 141, the deviation by sigma / 200.
  double mean = 0;
  double squares = 0;
  for (const auto target : drawn) {
    const double log = std::log(static_cast<double>(target) / 900);
    mean += log / 20'000;
    squares += log * log / 20'000;
  }
  CHECK(std::abs(mean) < 5 * 0.1 / 141);
  CHECK(std::abs(std::sqrt(squares - mean * mean) - 0.1) < 5 * 0.1 / 200);
  CHECK(generate_targets(targets, Ids(20'000, 1000), true) == drawn);
}

TEST_CASE("targets that do not fit the samples are bad input") {
  const Ids lengths = {5, 6, 7};
  const std::string two = written("two.txt", "1\n2\n");
  CHECK(error_of([&] { (void)generate_targets(file_targets(two), lengths, true); }) ==
        "data.targets: 2 target lengths for 3 samples; expected one each");
  CHECK(error_of([&] { (void)generate_targets(file_targets(two), lengths, false); }) ==
        two + ": error: 2 lengths, but 3 samples are asked for");
  const std::string four = written("four.txt", "1\n2\n3\n4\n");
  CHECK(error_of([&] { (void)generate_targets(file_targets(four), lengths, true); }) ==
        "data.targets: 4 target lengths for 3 samples; expected one each");
  // Of a given number of samples both files give their first.
  CHECK(generate_targets(file_targets(four), lengths, false) == Ids{1, 2, 3});
  const std::string zero = written("zero.txt", "1\n0\n3\n");
  CHECK(error_of([&] {
          (void)generate_targets(file_targets(zero), lengths, true);
        }).starts_with(zero + ":2:1: error: length 0 is outside 1 .. "));
  TargetSource targets;
  targets.ratio = 0;
  CHECK_THROWS_AS((void)generate_targets(targets, lengths, true), InputError);
  targets.ratio = 1e18;
  CHECK_THROWS_AS((void)generate_targets(targets, lengths, true), InputError);
}

// By target, then by length: (2,1) (3,1) (3,4) (4,9); the longer counts: 2, 3, 4, 9. Budget 9:
// 2 x 3 and 3 x 3 fit, 3 x 4 does not, so the third starts a batch, and 2 x 9 does not fit.
TEST_CASE("fairseq sorts by target inside equal lengths and sizes by the longer of the two") {
  const Ids lengths = {3, 4, 2, 3};
  const Ids targets = {4, 9, 1, 1};
  const PolicyParameters parameters = {{"max_tokens", std::int64_t{9}},
                                       {"required_batch_size_multiple", std::int64_t{1}}};
  CHECK(planned_targets("fairseq_max_tokens", parameters, lengths, targets) ==
        EpochBatches{{{2, 3}, {0}, {1}}});
  CHECK(planned_targets("fairseq_max_tokens", parameters, lengths, {}) ==
        EpochBatches{{{2, 0, 3}, {1}}});
  CHECK(error_of([&] {
          (void)planned_targets("fairseq_max_tokens", parameters, lengths, Ids{4, 10, 1, 1});
        }) == "sample 1 is 10 tokens long, above max_tokens 9");
}

TEST_CASE("a policy for torch takes no notice of targets") {
  const Ids lengths = {3, 4, 2, 3};
  const PolicyParameters parameters = {{"batch_size", std::int64_t{2}}};
  CHECK(planned_targets("bucketed", parameters, lengths, Ids{4, 9, 1, 1}) ==
        planned_targets("bucketed", parameters, lengths, {}));
}

TEST_CASE("a bucket by two lengths: strictly that of the first length, or the next that fits") {
  const std::vector<NemoBin> bins = {{10, 5}, {10, 10}, {20, 12}, {20, 18}};
  using Bucket = std::optional<std::size_t>;
  for (const bool strict : {true, false}) {
    CHECK(nemo_bucket(bins, 8, 5, strict) == Bucket(0));
    CHECK(nemo_bucket(bins, 10, 6, strict) == Bucket(1));
    CHECK(nemo_bucket(bins, 11, 1, strict) == Bucket(2));
    CHECK(nemo_bucket(bins, 20, 18, strict) == Bucket(3));
    CHECK(nemo_bucket(bins, 20, 19, strict) == Bucket());
    CHECK(nemo_bucket(bins, 21, 1, strict) == Bucket());
  }
  CHECK(nemo_bucket(bins, 8, 11, true) == Bucket());
  CHECK(nemo_bucket(bins, 8, 11, false) == Bucket(2));
}

TEST_CASE("buckets by two lengths hold their batch size, and outliers are lost when strict") {
  const Ids lengths = {8, 8, 8, 15, 15, 8};
  const Ids targets = {4, 5, 3, 12, 11, 11};
  PolicyParameters parameters = {{"bucket_duration_bins", Ids{10, 20}},
                                 {"bucket_token_bins", Ids{5, 12}},
                                 {"bucket_batch_size", Ids{3, 2}}};
  auto sorted = [&] {
    auto batches = planned_targets("nemo_bucketing", parameters, lengths, targets).front();
    std::sort(batches.begin(), batches.end());
    return batches;
  };
  CHECK(sorted() == Batches{{0, 1, 2}, {3, 4}});  // Sample 5 is (8, 11).
  parameters.set("bucketing_2d_strict_mode", false);
  CHECK(sorted() == Batches{{0, 1, 2}, {3, 4}, {5}});
  // 45 tokens: 3 samples of 10 + 5, 1 of 20 + 12.
  parameters = {{"bucket_duration_bins", Ids{10, 20}},
                {"bucket_token_bins", Ids{5, 12}},
                {"max_tokens", std::int64_t{45}}};
  CHECK(sorted() == Batches{{0, 1, 2}, {3}, {4}});
}

TEST_CASE("buckets by two lengths that cannot be are bad input") {
  const Ids lengths = {1, 2};
  const auto message = [&](const PolicyParameters& parameters) {
    return error_of([&] { (void)planned_targets("nemo_bucketing", parameters, lengths, {}); });
  };
  const Ids durations = {10, 10};
  CHECK(message({{"bucket_duration_bins", durations}, {"bucket_batch_size", Ids{1, 1}}}) ==
        "bucket_duration_bins: expected lengths that ascend");
  CHECK(message({{"bucket_duration_bins", durations},
                 {"bucket_token_bins", Ids{5, 5}},
                 {"bucket_batch_size", Ids{1, 1}}}) ==
        "bucket_duration_bins: expected pairs with bucket_token_bins that ascend, by duration, "
        "then by tokens");
  CHECK(message({{"bucket_duration_bins", durations},
                 {"bucket_token_bins", Ids{5}},
                 {"bucket_batch_size", Ids{1, 1}}}) ==
        "bucket_token_bins: 1 entries for 2 bins; expected one each");
  const PolicyParameters bins = {{"bucket_duration_bins", durations},
                                 {"bucket_token_bins", Ids{5, 8}}};
  CHECK(message(bins) == "expected one of bucket_batch_size and max_tokens");
  PolicyParameters small = bins;
  small.set("max_tokens", std::int64_t{17});
  CHECK(message(small) == "max_tokens = 17 holds no sample of the bin of 10 + 8 tokens");
  PolicyParameters good = bins;
  good.set("max_tokens", std::int64_t{18});
  CHECK(message(good) == "bucket_token_bins needs second lengths; write targets in [data]");
}

// Two batches: (4, 9) of 2 samples padded to 18, (1) alone.
TEST_CASE("training effects count target tokens where there are targets") {
  const Ids lengths = {3, 4, 2};
  const Ids targets = {4, 9, 1};
  PolicyInput input;
  input.lengths = lengths;
  CHECK_FALSE(training_effects({{{{0, 1}, {2}}}, {}}, input).target_padding_ratio());
  input.targets = targets;
  const TrainingEffects effects = training_effects({{{{0, 1}, {2}}}, {}}, input);
  CHECK(effects.useful_target_tokens == 14);
  CHECK(effects.padded_target_tokens == 19);
  CHECK(*effects.target_padding_ratio() == Approx(5.0 / 19));
}

TEST_CASE("a plan carries the targets of its samples, and gives them back as a source") {
  const std::string key = "samples = 3072\n";
  const Scenario plain = parse_scenario(kScenarioText, "s.toml");
  const Scenario scenario =
      parse_scenario(replaced(kScenarioText, key, key + "targets = { ratio = 2 }\n"), "s.toml");
  Plan plan = plan_of(scenario, scenario.policies.front());
  for (const MicroBatch& batch : plan.micro_batches) {
    CHECK(batch.targets.size() == batch.lengths.size());
    for (std::size_t i = 0; i < batch.targets.size(); ++i) {
      CHECK(batch.targets[i] == 2 * batch.lengths[i]);
    }
  }
  const std::string path = fresh_folder() + "/plan.jsonl";
  write_plan(path, plan);
  TargetSource targets;
  targets.source.emplace();
  targets.source->kind = LengthSource::Kind::Plan;
  targets.source->file = path;
  const Ids lengths = generate_lengths(*targets.source, 0);
  const Ids doubled = generate_targets(targets, lengths, true);
  REQUIRE(doubled.size() == lengths.size());
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    CHECK(doubled[i] == 2 * lengths[i]);
  }
  // The batches are those without targets, and such a plan gives none.
  const Plan without = plan_of(plain, plain.policies.front());
  for (MicroBatch& batch : plan.micro_batches) {
    batch.targets.clear();
  }
  CHECK(plan == without);
  write_plan(path, without);
  CHECK(error_of([&] { (void)generate_targets(targets, lengths, true); }) ==
        path + ": error: the plan has no target_lengths");
}

TEST_CASE("broken targets of a scenario are shown at their place") {
  const auto message = [](const std::string& targets) {
    return error_of([&] {
      const std::string key = "samples = 3072\n";
      (void)parse_scenario(replaced(kScenarioText, key, key + "targets = " + targets + "\n"),
                           "s.toml");
    });
  };
  CHECK(message("{ ratio = 0 }") ==
        "s.toml:21:11: error: data.targets: ratio: expected a number above 0\n"
        "targets = { ratio = 0 }\n          ^");
  CHECK(message("{ ratio = 1, constant = 5 }")
            .starts_with("s.toml:21:35: error: data.targets.constant: two sources of target "
                         "lengths, ratio and constant; give one"));
  CHECK(message("{ constant = 5, sigma = 0.1 }")
            .starts_with("s.toml:21:35: error: data.targets.sigma: applies to ratio only"));
  CHECK(message("{ ratoi = 1 }")
            .starts_with("s.toml:21:13: error: data.targets: unknown key 'ratoi'; "
                         "did you mean 'ratio'?"));
  // They may exceed what the model takes: the step costs by the first length alone.
  CHECK(message("{ constant = 100000 }") == "no error");
}
