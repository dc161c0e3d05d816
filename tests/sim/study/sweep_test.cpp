#include "sim/study/sweep.h"

#include <algorithm>

#include <doctest/doctest.h>

#include "costmodel/base/input_error.h"
#include "costmodel/base/mapped.h"
#include "sim/predict/predict.h"
#include "sim/predict/scenario_profile.h"
#include "sim/report/sweep/sweep_report.h"
#include "sim/study/blame.h"
#include "sim/study/bucket_cap_sweep.h"
#include "sim/study/swept_effect.h"
#include "tests/approx.h"
#include "tests/sim/scenario/scenario_text.h"
#include "tests/source_root.h"

using namespace stepsim;
using stepsim::test::Approx;

namespace {

std::string message(const std::string& text) {
  return test::error_of([&] { (void)parse_sweep_axis(text); });
}

std::vector<std::string> values_of(const SweepAxis& axis) {
  return mapped(axis.values, &Setting::value_text);
}

}  // namespace

TEST_CASE("a geometric range of sizes doubles from end to end") {
  const SweepAxis axis = parse_sweep_axis("ddp.bucket_cap=1MiB..8MiB:x2");
  CHECK(axis.key == "ddp.bucket_cap");
  CHECK(values_of(axis) == std::vector<std::string>{"1 MiB", "2 MiB", "4 MiB", "8 MiB"});
}

TEST_CASE("an arithmetic range reaches its end in spite of rounding") {
  CHECK(values_of(parse_sweep_axis("cluster.ranks=2..8:+2")) ==
        std::vector<std::string>{"2", "4", "6", "8"});
  CHECK(parse_sweep_axis("cluster.jitter=0.1..0.5:+0.1").values.size() == 5);
}

TEST_CASE("units by name have other separators than the values of an axis") {
  CHECK(values_of(parse_sweep_axis("parallel.units=blocks,h.*; norm + head,[a-c].?")) ==
        std::vector<std::string>{"blocks", "h.*; norm + head", "[a-c].?"});
}

TEST_CASE("a range has the unit of its ends, whatever it is") {
  using Values = std::vector<std::string>;
  CHECK(values_of(parse_sweep_axis("times.forward=12ms..24ms:+6ms")) ==
        Values{"12 ms", "18 ms", "24 ms"});
  CHECK(values_of(parse_sweep_axis("times.forward=12..24 ms:+6")) ==
        Values{"12 ms", "18 ms", "24 ms"});
  CHECK(values_of(parse_sweep_axis("cluster.topology.inter_bandwidth=1 GB/s..4 GB/s:x2")) ==
        Values{"1 GB/s", "2 GB/s", "4 GB/s"});
  CHECK(message("t=1ms..2us:x2") ==
        "--over t=1ms..2us:x2: error: give both ends in one unit, not ms and us");
  CHECK(message("t=1ms..2:x2").ends_with("give both ends in one unit, not ms and none"));
  CHECK(message("t=1ms..4ms:+1us").ends_with("'1us' is not in ms, as the range is"));
  CHECK(message("t=1ms..4ms:x2ms").ends_with("'2ms' is not a number"));
}

TEST_CASE("a list keeps its values as written") {
  CHECK(values_of(parse_sweep_axis("ddp.bucket_cap=1 MiB, 25MiB")) ==
        std::vector<std::string>{"1 MiB", "25MiB"});
}

TEST_CASE("a size that no unit divides is swept to the byte") {
  CHECK(values_of(parse_sweep_axis("ddp.bucket_cap=400001B..800002B:x2")) ==
        std::vector<std::string>{"400001 B", "800002 B"});
}

TEST_CASE("an axis that makes no sense is refused with the reason") {
  CHECK(message("ddp.bucket_cap") ==
        "--over ddp.bucket_cap: error: expected key=LOW..HIGH:x2 or key=value,value,…");
  CHECK(message("a=1..8") ==
        "--over a=1..8: error: a range ends in its step: LOW..HIGH:x2 (times 2) or LOW..HIGH:+8 "
        "(plus 8)");
  CHECK(message("a=8..1:x2") == "--over a=8..1:x2: error: the range starts above its end");
  CHECK(message("a=1..8:x1") == "--over a=1..8:x1: error: the step must make the value grow");
  CHECK(message("a=0..8:x2") == "--over a=0..8:x2: error: the step must make the value grow");
  CHECK(message("a=1..8:+0") == "--over a=1..8:+0: error: the step must make the value grow");
  CHECK(message("a=1..z:+1") == "--over a=1..z:+1: error: 'z' is not a number");
  CHECK(message("a=1,,2") == "--over a=1,,2: error: an empty value in the list");
  CHECK(message("a=1..1000000:+1") == "--over a=1..1000000:+1: error: more than 10000 values");
  CHECK(message("a=1..25MiB:x2") ==
        "--over a=1..25MiB:x2: error: 1 without a unit counts bytes; did you mean \"1 MiB\"? Write "
        "\"1 B\" if it is bytes");
  CHECK(message("a=1MB..2MB:x2").find("unknown unit 'MB'") != std::string::npos);
}

TEST_CASE("one cap is not swept beside a list of caps, which would hide it") {
  const Scenario listed =
      parse_scenario(test::replaced(test::kScenarioText,
                                    "\"25 MiB\"",
                                    "\"25 MiB\"\ntorch = \"newest\"\nbucket_caps = [\"1 MiB\"]"),
                     "s.toml",
                     {});
  for (const std::string key : {"ddp.bucket_cap", "ddp.first_bucket_cap"}) {
    CHECK_THROWS_WITH_AS((void)sweep(listed, {parse_sweep_axis(key + "=1MiB..4MiB:x2")}, {}),
                         (key + " has no effect beside ddp.bucket_caps; take the list out").c_str(),
                         InputError);
  }
}

TEST_CASE("sweep: the policy whose keys are swept is predicted") {
  const Scenario scenario = parse_scenario(test::kBlocksText, "blocks.toml", {});
  const auto studied = [&](const std::vector<std::string>& keys, const std::string& named) {
    return studied_policy(scenario, "--over", keys, named);
  };
  CHECK(studied({"ddp.bucket_cap"}, "") == "fixed");
  CHECK(studied({"ddp.bucket_cap"}, "fixed.two") == "fixed.two");
  CHECK(studied({"policy.fixed.batch_size"}, "") == "fixed");
  CHECK(studied({"ddp.bucket_cap", "policy.fixed.two.batch_size"}, "") == "fixed.two");
  CHECK(studied({"policy.fixed.two.batch_size", "policy.fixed.two.weighting"}, "") == "fixed.two");
  CHECK_THROWS_WITH_AS((void)studied({"policy.fixed.two.batch_size"}, "fixed"),
                       "--over policy.fixed.two.batch_size: error: it has no effect on policy "
                       "'fixed', which is predicted; one policy is predicted at a time",
                       InputError);
  CHECK_THROWS_AS((void)studied({"policy.fixed.two.batch_size", "policy.fixed.batch_size"}, ""),
                  InputError);
  CHECK_THROWS_AS((void)studied({}, "nobody"), InputError);
}

TEST_CASE("sweep: caps are told against the scenario's own, or DDP's default as it is") {
  // Gradients of 12 MB: the newest DDP makes a first bucket of 1 MiB from 2 MB of them. With a
  // stated cap of 25 MiB the first bucket has that limit, too, and holds all.
  const std::string newest =
      test::replaced(test::kBlocksText, "[ddp]\n", "[ddp]\ntorch = \"newest\"\n");
  const auto step_ms = [](const Scenario& scenario) {
    return predict(scenario, scenario.policies.front(), scenario_profile(scenario), {})
        .summary.step_time_ms.mean;
  };
  const std::vector<SweepAxis> axes = {parse_sweep_axis("ddp.bucket_cap=25 MiB,50 MiB")};
  const std::pair<std::string, std::string> owns[] = {
      {"", "DDP's default of 25 MiB after a first bucket of 1 MiB"},
      {"bucket_cap = \"2 MiB\"\n", "the scenario's 2 MiB"},
      {"bucket_cap = \"25 MiB\"\n", "the scenario's 25 MiB"}};
  for (const auto& [cap, name] : owns) {
    CAPTURE(cap);
    const Scenario scenario =
        parse_scenario(test::replaced(newest, "[ddp]\n", "[ddp]\n" + cap), "blocks.toml", {});
    PointRunner runner;
    SweepOptions options;
    options.noise_runs = PredictOptions().noise_runs;
    Jobs jobs(scenario, "--over");
    const SweepReport report = sweep_report(jobs, axes, options, runner);
    CHECK(report.rows[0].point.buckets == 1);
    CHECK(report.reference.buckets == sweep(scenario, {}, {}).front().buckets);
    CHECK(report.reference.prediction.summary.step_time_ms.mean == step_ms(scenario));
    CHECK(report.reference_name == name);
    CHECK(report.reference_cap == scenario.ddp.bucket_cap);
    const std::vector<CapPoint> caps = bucket_cap_sweep(jobs, {});
    const auto standard = std::ranges::find(caps, Bytes(25 << 20), &CapPoint::cap);
    REQUIRE(standard != caps.end());
    CHECK(standard->point.buckets == (standard->own && !cap.empty() ? 1 : 2));
  }
  const std::string stated = "[ddp]\nfirst_bucket_cap = \"4 MiB\"\n";
  CHECK(default_cap_settings(
            parse_scenario(test::replaced(newest, "[ddp]\n", stated), "blocks.toml", {})) ==
        std::vector<Setting>{{"ddp.bucket_cap", Bytes(25 << 20)}});
}

TEST_CASE("sweep: values that differ in what fits into memory alone make a difference") {
  const std::vector<SweepAxis> axes = {parse_sweep_axis("data.samples=1000,2000")};
  std::vector<SweepPoint> points(2);
  CHECK(keys_without_effect(axes, points) == std::vector<std::string>{"data.samples"});
  points[1].prediction.largest_memory_mib = 1;
  CHECK(keys_without_effect(axes, points).empty());
  points[1].prediction.largest_memory_mib = 0;
  points[1].prediction.out_of_memory.emplace();
  CHECK(keys_without_effect(axes, points).empty());
}

TEST_CASE("sweep: the last bucket is priced as the run's own collectives are") {
  // More ranks than the profile measured: the stated links price all collectives.
  const std::vector<std::string> links = {
      "cluster.ranks=64",
      "data.samples=10000",
      "cluster.topology={algorithm=\"ring\",intra_latency=\"5 us\",intra_bandwidth=\"100 GB/s\"}"};
  const Scenario scenario =
      read_scenario(test::source_root() + "/scenarios/batching_libraries.toml", links);
  const Profile profile = scenario_profile(scenario);
  const Prediction prediction = predict(scenario,
                                        find_policy(scenario, "fairseq"),
                                        profile,
                                        {.noise_runs = 0, .timeline_of_step = scenario.steps - 1});
  const StepTimeline& step = prediction.timelines.front();
  const double last_ms = to_ms(step.reduce_end.back() - step.reduce_start.back());
  SweepOptions sweep_options;
  sweep_options.policy = "fairseq";
  const std::vector<SweepPoint> points =
      sweep(scenario, {parse_sweep_axis("ddp.bucket_cap=25 MiB")}, sweep_options);
  CHECK(points.front().last_bucket_ms == Approx(last_ms).epsilon(1e-6));
}

TEST_CASE("sweep: values may be lists, tables and texts with commas inside") {
  const SweepAxis axis =
      parse_sweep_axis("a.b=[],[{rank=1, factor=1.5},{rank=2,factor=2}],{constant=32},\"x,y\",z");
  CHECK(values_of(axis) ==
        std::vector<std::string>{
            "[]", "[{rank=1, factor=1.5},{rank=2,factor=2}]", "{constant=32}", "\"x,y\"", "z"});
  CHECK_THROWS_AS((void)parse_sweep_axis("a.b=1,,2"), InputError);
}

TEST_CASE("sweep: 40 bucket caps plan and price once, and a page of them nothing more") {
  const Scenario scenario = read_scenario(test::source_root() + "/scenarios/bucket_valley.toml");
  Jobs jobs(scenario, "--over");
  const auto made = [planned = runs_planned(), priced = batches_priced()] {
    return std::pair(runs_planned() - planned, batches_priced() - priced);
  };
  SweepOptions options;
  CHECK(sweep(jobs, {parse_sweep_axis("ddp.bucket_cap=1MiB..40MiB:+1MiB")}, options).size() == 40);
  CHECK(made() == std::pair(std::int64_t{1}, std::int64_t{1}));
  options.picture_of_step = 2;
  CHECK(sweep(jobs, {parse_sweep_axis("ddp.bucket_cap=1MiB..40MiB:+1MiB")}, options).size() == 40);
  CHECK(bucket_cap_sweep(jobs, options).size() > 10);
  (void)blame(jobs.job("", {}));  // It prices once more, for a host that launches in no time.
  CHECK(made() == std::pair(std::int64_t{1}, std::int64_t{2}));
  CHECK(sweep(jobs, {parse_sweep_axis("ddp.set_to_none=true,false")}, options).size() == 2);
  CHECK(made() == std::pair(std::int64_t{1}, std::int64_t{4}));
}
