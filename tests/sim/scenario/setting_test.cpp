// What a key is set to: as somebody wrote it, or as a value of a program.
#include "sim/scenario/setting.h"

#include <memory>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "costmodel/base/input_error.h"
#include "sim/predict/batch_plan.h"
#include "sim/report/setting_json.h"
#include "sim/scenario/scenario.h"
#include "tests/costmodel/helpers.h"
#include "tests/sim/scenario/scenario_text.h"

using namespace stepsim;

namespace {

TomlValue text_value(const std::string& text) {
  TomlValue value;
  value.kind = TomlValue::Kind::Text;
  value.text = text;
  return value;
}

std::vector<std::int64_t> lengths_of(const Scenario& scenario) {
  return data_lengths(scenario, scenario.policies.front());
}

}  // namespace

TEST_CASE("a setting says its value as --set reads it back") {
  CHECK(Setting("ddp.bucket_cap", Bytes(25 << 20)).text() == "ddp.bucket_cap=25 MiB");
  CHECK(Setting("ddp.bucket_cap", Bytes(400001)).text() == "ddp.bucket_cap=400001 B");
  for (const char* text : {"plain words", "4", "true", "2026-01-01", "[1, 2]", " blank", ""}) {
    CAPTURE(text);
    const Setting written("scenario.name", text_value(text));
    const Setting read("scenario.name", written.value_text());
    CHECK(read.value().kind == TomlValue::Kind::Text);
    CHECK(read.value().text == text);
  }
}

TEST_CASE("settings as data are numbers in bytes and seconds, and texts where these are meant") {
  const auto json = [](const std::string& key, const std::string& text) {
    return setting_json({key, text}).dump();
  };
  CHECK(json("ddp.bucket_cap", "1 MiB") == "1048576");
  CHECK(json("ddp.bucket_cap", "2000000") == "2000000");
  CHECK(json("ddp.bucket_caps", "[\"1 MiB\", 2000000]") == "[1048576,2000000]");
  CHECK(json("host.launch", "5 ms") == "0.005");
  CHECK(json("cluster.topology.inter_bandwidth", "12.5 GB/s") == "12500000000.0");
  CHECK(json("ddp.torch", "1.13") == "\"1.13\"");
  CHECK(json("ddp.gradient_as_bucket_view", "true") == "true");
  CHECK(json("cluster.ranks", "8") == "8");
  CHECK(json("cluster.placement", "2x8") == "\"2x8\"");
  CHECK(json("policy.fixed 8.batch_size", "16") == "16");
  CHECK(unit_text("ddp.bucket_cap") == "B");
  CHECK(unit_text("host.launch") == "s");
  CHECK(unit_text("cluster.ranks").empty());
}

TEST_CASE("lengths stand in a file, or come as they are") {
  const Scenario before = parse_scenario(test::kScenarioText, "s.toml");
  const std::string same = "data.lengths={values=[3, 1, 2, 7]}";
  const Scenario written = parse_scenario(
      test::kScenarioText, "s.toml", std::vector<std::string>{same, "data.samples=4"});
  CHECK(lengths_of(written) == std::vector<std::int64_t>{3, 1, 2, 7});
  const auto lengths =
      std::make_shared<const std::vector<std::int64_t>>(std::vector<std::int64_t>{3, 1, 2, 7, 9});
  const Scenario given =
      with_settings(before, {{Setting("data.lengths", lengths), Setting("data.samples", "4")}});
  CHECK(lengths_of(given) == lengths_of(written));
  CHECK(lengths_of(parse_scenario(scenario_text(given), "t.toml")) == lengths_of(written));
  const auto error = [&](const std::string& values, const std::string& samples) {
    return test::error_of([&] {
      (void)lengths_of(with_settings(
          before, {{Setting("data.lengths", values), Setting("data.samples", samples)}}));
    });
  };
  CHECK(error("{values=[3, 1]}", "4").find("2 lengths, but 4 samples") != std::string::npos);
  CHECK(error("{values=[3, 0, 1, 1]}", "4").find("at least 1 token") != std::string::npos);
  CHECK(error("{values=[]}", "4").find("there are no lengths") != std::string::npos);
  CHECK(error("{values=[3, 1.5]}", "4").find("expected whole numbers, got a") != std::string::npos);
}
