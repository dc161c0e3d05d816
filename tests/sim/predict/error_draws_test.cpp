// What the draws behind an interval promise.
#include "sim/predict/draws/error_draws.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <fmt/core.h>

#include "costmodel/base/input_error.h"
#include "sim/predict/predict.h"
#include "sim/report/notes.h"
#include "tests/approx.h"

using namespace stepsim;
using stepsim::test::Approx;

namespace {

constexpr int kDraws = 100;

std::vector<double> normals(ErrorDraws draws, const std::string& kind) {
  std::vector<double> values;
  for (int i = 0; i < kDraws; ++i, draws.next()) {
    values.push_back(draws.normal(kind));
  }
  return values;
}

/// A decoder of two small layers on GPUs, by the times of one micro-batch.
Prediction by_times(const std::vector<std::string>& overrides,
                    const std::string& interference = "[interference]\n") {
  const Scenario scenario = parse_scenario(R"([scenario]
name = "times"
steps = 6
warmup_steps = 2
[cluster]
ranks = 2
all_reduce = { sizes = ["1 KiB", "1 GiB"], times = ["0.1 ms", "100 ms"], error = 0 }
[times]
forward = "10 ms"
backward = "20 ms"
tokens = 128
)" + interference + R"([model]
kind = "gpt2"
layers = 2
hidden = 64
heads = 4
vocab = 100
max_length = 128
[data]
samples = 64
lengths = { constant = 32 }
[[policy]]
name = "fixed"
kind = "fixed"
batch_size = 4
)",
                                           "s.toml",
                                           overrides);
  return predict(scenario, scenario.policies.front(), scenario_profile(scenario), {});
}

/// Half of the 90 % interval over the mean.
double half_width(const std::vector<std::string>& overrides) {
  const StepTimeSummary step = by_times(overrides).summary.step_time_ms;
  return (step.high90 - step.low90) / 2 / step.mean;
}

bool has_note(const Prediction& prediction, const std::string& text) {
  const std::vector<std::string> notes = note_texts(prediction);
  return std::ranges::any_of(
      notes, [&](const std::string& note) { return note.find(text) != std::string::npos; });
}

}  // namespace

TEST_CASE("all draws of a kind have mean 0, variance 1 and evenly spaced places") {
  ErrorDraws draws(7, kDraws);
  double sum = 0;
  double squares = 0;
  std::vector<double> places;
  for (int i = 0; i < kDraws; ++i, draws.next()) {
    sum += draws.normal("drift");
    squares += draws.normal("drift") * draws.normal("drift");
    places.push_back(draws.place("passes"));
    CHECK(draws.factor("drift", 0) == 1);
    CHECK(draws.factor("drift", 0.5) == Approx(std::exp(0.5 * draws.normal("drift"))));
  }
  CHECK(std::abs(sum) < 1e-9);
  CHECK(squares == Approx(kDraws));
  CHECK_FALSE(std::ranges::is_sorted(places));
  std::ranges::sort(places);
  for (int i = 0; i < kDraws; ++i) {
    CHECK(places[static_cast<std::size_t>(i)] == Approx((i + 0.5) / kDraws));
  }
}

TEST_CASE("kinds of errors do not depend on each other, seeds differ") {
  const std::vector<double> alone = normals(ErrorDraws(7, kDraws), "drift");
  ErrorDraws others(7, kDraws);
  CHECK(others.normal("collectives") != alone.front());
  CHECK(normals(others, "drift") == alone);
  CHECK(normals(ErrorDraws(8, kDraws), "drift") != alone);
}

TEST_CASE("factors are log-normal up to e squared and grow as a line beyond") {
  ErrorDraws errors(3, kDraws);
  bool beyond = false;
  for (int i = 0; i < kDraws; ++i, errors.next()) {
    const double score = 2 * errors.normal("data");
    const double factor = errors.factor("data", 2);
    beyond = beyond || score > 2;
    CHECK(factor == Approx(score > 2 ? 7.389056099 * (score - 1) : std::exp(score)));
  }
  CHECK(beyond);
}

TEST_CASE("stated times are as uncertain as the scenario says") {
  constexpr double kDeviations = 1.645;
  CHECK(half_width({"times.error=0"}) == Approx(0).epsilon(1e-9));
  // Forward and backward, a third and two thirds of the step, are off independently.
  const double of_both = std::hypot(1.0 / 3, 2.0 / 3);
  CHECK(half_width({"times.error=0.1"}) == Approx(0.1 * kDeviations * of_both).epsilon(0.15));
  CHECK(half_width({}) == Approx(0.03 * kDeviations * of_both).epsilon(0.15));
  // Batches of twice the tokens are priced in proportion, which may be wrong by 15 %.
  CHECK(half_width({"policy.fixed.batch_size=8"}) ==
        Approx(std::hypot(0.03, 0.15) * kDeviations * of_both).epsilon(0.15));
  CHECK(has_note(by_times({}), "[times] by 3 % (times.error)"));
}

TEST_CASE("interference that nobody states counts as none, from which the interval reaches on") {
  const Prediction prediction = by_times({"times.error=0", "ddp.bucket_rule=per_parameter"}, "");
  const StepTimeSummary& step = prediction.summary.step_time_ms;
  CHECK(step.low90 == step.mean);
  CHECK(step.high90 > 1.05 * step.mean);
}

TEST_CASE("interference that nobody measured widens the interval by what it could cost") {
  const auto width = [](const std::string& error) {
    // A bucket a tensor, most of whose all-reduces run beside the backward.
    return half_width({"times.error=0",
                       "ddp.bucket_rule=per_parameter",
                       "interference.strength=0.5",
                       "interference.error=" + error});
  };
  CHECK(width("0") < 0.01);
  CHECK(width("0.2") > 0.02);
  CHECK(width("0.4") == Approx(2 * width("0.2")).epsilon(0.15));
}
