#include "sim/report/html/page.h"

#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "costmodel/base/input_error.h"
#include "sim/predict/predict.h"
#include "sim/predict/run/run.h"
#include "sim/report/html/page_data.h"
#include "sim/report/html/page_source.h"
#include "sim/report/html/timeline_data.h"
#include "tests/sim/scenario/scenario_text.h"

using namespace stepsim;

namespace {

/// Two blocks with a bucket each on two ranks, the second of them 1.5 times slower.
const std::string kPageBlocks =
    test::replaced(test::kBucketBlocks,
                   {{"ranks = 2\n", "ranks = 2\nslow_ranks = [{ rank = 1, factor = 1.5 }]\n"},
                    {"layers = 4", "layers = 2"}});

Json picture(const std::vector<std::string>& overrides) {
  const Scenario scenario = parse_scenario(kPageBlocks, "blocks.toml", overrides);
  const Prediction prediction = predict(scenario,
                                        find_policy(scenario, "fixed"),
                                        scenario_profile(scenario),
                                        {.noise_runs = 0, .timeline_of_step = 2});
  REQUIRE(prediction.timelines.size() == 1);
  return timeline_json({"fixed", "1 MiB", 54, true, true, {}},
                       step_picture(scenario, prediction, 2));
}

Json parsed(const std::string& text) {
  return Json::parse(text);
}

}  // namespace

TEST_CASE("text of any kind stays text in a script element") {
  const std::string hostile =
      "<script>alert(1)</script><!--\"'&\x01\x7f\n\xe2\x80\xa8\xe2\x80\xa9 \xc3\xa9" +
      std::string(10000, '<');
  const std::string json = script_json({{hostile, {hostile, 1.5}}});
  CHECK(json.find('<') == std::string::npos);
  for (const char c : json) {
    REQUIRE((c >= ' ' && c <= '~'));
  }
  CHECK(Json::parse(json) == Json{{hostile, {hostile, 1.5}}});
}

TEST_CASE("what is not UTF-8 becomes a replacement character") {
  CHECK(script_json(Json("a\xff\xc3")) == R"("a\ufffd\ufffd")");
}

TEST_CASE("a page holds its data once, or a build without d3 says what to install") {
  const Json data = {{"name", "</script><b>"}};
  if (page_source() == nullptr) {
    CHECK_THROWS_WITH_AS(require_page(), doctest::Contains("node-d3"), EnvironmentFault);
    CHECK_THROWS_AS((void)page_text(data), EnvironmentFault);
    return;
  }
  const std::string text = page_text(data);
  const std::string element =
      R"(<script type="application/json" id="stepsim-data">{"name":"\u003c/script>\u003cb>"}</script>)";
  const auto place = text.find(element);
  REQUIRE(place != std::string::npos);
  CHECK(text.find(element, place + 1) == std::string::npos);
  CHECK(text.rfind("<!DOCTYPE html>", 0) == 0);
}

// ms        0        10    15   20        30       39    45      54
// rank 0    | forward | backward          | exposed | wait| exposed|
// rank 1    | forward      | backward                     | exposed|
// bucket 0                       ready 0   [ 30..39 ]
// bucket 1                                 ready 0        [45..54 ]
TEST_CASE("a timeline shows compute, transfers, what is exposed and who waits for whom") {
  for (const char* override : {"host.step_sync=false", "host.step_sync=true"}) {
    CAPTURE(override);  // By the closed form, by the engine.
    const Json json = picture({override});
    CHECK(json["policy"] == "fixed");
    CHECK(json["cap_bytes"] == 1048576);
    CHECK(json["default"] == false);
    CHECK(json["step"] == 2);
    CHECK(json["shown_us"] == 54000.0);
    CHECK(json["buckets"] == parsed("[[1048576, 1], [1048576, 1]]"));
    const Json& first = json["ranks"][0];
    CHECK(first["useful"] == 16);
    CHECK(first["compute"] == parsed("[[0.0, 10000.0, 1], [10000.0, 20000.0, 2]]"));
    CHECK(first["buckets"] ==
          parsed("[[20000.0, 30000.0, 39000.0, 0], [30000.0, 45000.0, 54000.0, 1]]"));
    CHECK(first["exposed"] == parsed("[[30000.0, 9000.0], [45000.0, 9000.0]]"));
    CHECK(first["waiting"] == parsed("[[39000.0, 6000.0]]"));
    const Json& second = json["ranks"][1];
    CHECK(second["compute"] == parsed("[[0.0, 15000.0, 1], [15000.0, 30000.0, 2]]"));
    CHECK(second["exposed"] == parsed("[[45000.0, 9000.0]]"));
    CHECK(second["waiting"] == Json::array());
  }
}

TEST_CASE("a timeline of many ranks shows some, from the least compute to the most") {
  const Json json =
      picture({"cluster.ranks=40",
               "cluster.all_reduce={sizes=[\"1 KiB\",\"4 MiB\"],times=[\"9 ms\",\"9 ms\"]}",
               "cluster.slow_ranks=[]",
               "cluster.skew=0.5",
               "data.samples=400"});
  REQUIRE(json["ranks"].size() == kMaxDrawnRanks);
  CHECK(json["ranks"].front()["rank"] == 0);
  CHECK(json["ranks"].back()["rank"] == 39);
}

TEST_CASE("bucket caps that no price covers are left out with the reason") {
  const Scenario scenario = parse_scenario(kPageBlocks, "blocks.toml");
  SweepOptions options;
  options.picture_of_step = 2;
  Jobs jobs(scenario);
  std::vector<CapPoint> caps = bucket_cap_sweep(jobs, options);
  REQUIRE(caps.size() == 13);
  CHECK(caps[0].own);
  CHECK(caps[5].cap == Bytes(kDefaultBucketCapBytes));
  caps[12].point.not_priced = "too large";
  std::vector<std::string> warnings;
  caps[11].point.prediction.out_of_memory = OutOfMemory{};
  caps[11].point.prediction.largest_memory_mib = 3000;
  caps[0].point.prediction.summary.step_time_ms.low90 = 40;
  caps[0].point.prediction.summary.step_time_ms.high90 = 60;
  const Json json = cap_timelines_json(caps, Bytes(2048 * (std::int64_t{1} << 20)), warnings);
  CHECK(json.size() == 12);
  CHECK(json[0]["interval90"] == parsed("[40.0, 60.0]"));
  CHECK(json[1]["interval90"].is_null());  // Nothing was drawn.
  CHECK(json[11]["out_of_memory"] == true);
  CHECK(json[11]["memory_mib"] == 3000);
  CHECK(json[11]["memory_capacity_mib"] == 2048);
  CHECK(warnings == std::vector<std::string>{"no timeline of bucket cap 2 GiB: too large"});
}

TEST_CASE("caps are not varied where they change nothing") {
  SweepOptions options;
  const std::vector<std::string> single = {"ddp.bucket_rule=single"};
  const Scenario scenario = parse_scenario(kPageBlocks, "blocks.toml", single);
  options.picture_of_step = 2;
  Jobs jobs(scenario);
  const auto caps = bucket_cap_sweep(jobs, options);
  REQUIRE(caps.size() == 1);
  std::vector<std::string> warnings;
  const Json json = cap_timelines_json(caps, Bytes(0), warnings);
  CHECK(json[0]["label"] == "as it stands");
  CHECK(json[0]["cap_bytes"].is_null());
  CHECK(json[0]["memory_capacity_mib"].is_null());
  // Nor where parallelism has units of its own.
  const std::vector<std::string> by_layer = {"ddp.zero_stage=3"};
  Jobs sharded(parse_scenario(kPageBlocks, "blocks.toml", by_layer));
  CHECK(bucket_cap_sweep(sharded, options).size() == 1);
}

TEST_CASE("a series holds every step, by rank where ranks differ") {
  Prediction prediction;
  prediction.policy = "p";
  for (int step = 0; step < 2; ++step) {
    for (int rank = 0; rank < 2; ++rank) {
      RankStepResult row;
      row.step = step;
      row.rank = rank;
      row.useful_tokens = 10 * step + rank;
      row.padded_tokens = 20;
      row.start_ms = 5 * step;
      row.step_ms = 4 + rank;
      row.peak_memory_mib = 1 + rank;
      prediction.steps.push_back(row);
    }
  }
  CHECK(series_json(prediction, 1) ==
        parsed(R"({"policy": "p", "warmup_steps": 1, "step_ms": [5.0, 5.0],
                   "useful": [[0, 10], [1, 11]], "padded": [[20, 20], [20, 20]],
                   "memory_bytes": [2097152, 2097152]})"));
}
