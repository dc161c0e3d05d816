#include "costmodel/records/profile.h"

#include <algorithm>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "costmodel/compute/op_cost.h"
#include "costmodel/io/json_file.h"
#include "costmodel/model/model_presets.h"
#include "costmodel/records/profile_cost_model.h"
#include "tests/approx.h"
#include "tests/costmodel/helpers.h"

using namespace stepsim;
using namespace stepsim::test;

namespace {

std::optional<double> maybe(RandomValues& draw) {
  return draw.coin() ? std::optional(draw.real()) : std::nullopt;
}

/// A time as a profile may hold it: up to 1000 s.
double random_seconds(RandomValues& draw) {
  return draw.real() * 1e-3;
}

std::vector<std::pair<double, double>> random_knots(RandomValues& draw) {
  std::vector<std::pair<double, double>> knots;
  double x = draw.real();
  for (int i = draw.whole(5); i >= 0; --i) {
    knots.emplace_back(x, random_seconds(draw));
    x = std::nextafter(x, 1e300) + draw.real();
  }
  return knots;
}

GemmRatio random_gemm_ratio(RandomValues& draw) {
  GemmRatio ratio;
  for (int left = 1 + draw.whole(3); left > 0; --left) {
    ratio.processors.push_back(1 + draw.whole(200));
  }
  for (std::size_t i = 0; i < ratio.processors.size() * gemm_ratio_width(); ++i) {
    ratio.weights.push_back(draw.real() - draw.real());
  }
  for (auto* range : {&ratio.m, &ratio.n, &ratio.k}) {
    range->first = 1 + draw.whole(100);
    range->second = range->first + draw.whole(100);
  }
  return ratio;
}

OpCost random_cost(int number, RandomValues& draw) {
  OpCost cost;
  cost.op_class = static_cast<OpClass>(draw.whole(15));
  cost.pass = static_cast<Pass>(draw.whole(3));
  cost.dtype = static_cast<Dtype>(draw.whole(4));
  cost.n = number;  // Keeps the entries apart.
  cost.k = draw.whole(5000);
  cost.heads = draw.whole(64);
  cost.head_dim = draw.whole(128);
  cost.form = static_cast<CostForm>(draw.whole(5));
  if (cost.form == CostForm::Table || cost.form == CostForm::PerSampleTable) {
    cost.knots = random_knots(draw);
  } else if (cost.form == CostForm::FeaturesRatio) {
    cost.features = {"1", "waves:128x256", "row_tiles:64"};
    cost.coefficients = {draw.real(), draw.real(), draw.real()};
    cost.processors = 1 + draw.whole(200);
    cost.knots = random_knots(draw);
  } else if (cost.form == CostForm::RooflineRatio) {
    cost.op_class = OpClass::Gemm;
    cost.features = {"1", "flops", "bytes"};
    cost.coefficients = {draw.real(), draw.real(), draw.real()};
    cost.gemm_ratio = random_gemm_ratio(draw);
  } else if (cost.form == CostForm::Roofline) {
    cost.features = {"1", "flops", "bytes"};
    cost.coefficients = {draw.real(), draw.real(), draw.real()};
  } else {
    cost.features = {"samples", "tokens*length"};
    cost.coefficients = {draw.real(), -draw.real()};
  }
  cost.range_lo = draw.real();
  cost.range_hi = cost.range_lo + draw.real();
  cost.samples = draw.whole(1000);
  cost.errors = {maybe(draw), maybe(draw), maybe(draw), maybe(draw)};
  return cost;
}

ShapeCost random_shape_cost(RandomValues& draw) {
  ShapeCost cost;
  cost.mechanism = draw.text();
  cost.key = static_cast<ShapeKey>(draw.whole(4));
  cost.shared = draw.coin();
  cost.mask_in_key = draw.coin();
  cost.round_to = 1 + draw.whole(64);
  cost.to_power_of_two = draw.coin();
  cost.entries = draw.whole(9);
  cost.eviction = cost.entries > 0 ? static_cast<Eviction>(draw.whole(2)) : Eviction::LeastRecent;
  cost.forward_seconds = random_seconds(draw);
  cost.backward_seconds = random_seconds(draw);
  cost.forward_device_seconds = random_seconds(draw);
  cost.backward_device_seconds = random_seconds(draw);
  cost.relative_error = draw.real();
  return cost;
}

Profile random_profile(std::uint64_t seed) {
  RandomValues draw(seed);
  Profile profile;
  profile.name = draw.text();
  profile.device = draw.text();
  profile.backend = draw.coin() ? "cpu" : "cuda";
  *profile.provenance = {{"date", "2025-01-02"}, {"clock_mhz", draw.real()}, {"note", draw.text()}};
  profile.memory_capacity = Bytes(draw.whole(1 << 30));
  for (int i = draw.whole(8); i > 0; --i) {
    profile.ops.push_back(random_cost(i, draw));
  }
  for (int i = draw.whole(3); i > 0; --i) {
    CollectiveCost cost;
    cost.ranks = i + 1;
    cost.nodes = 1 + draw.whole(1);
    cost.dtype = static_cast<Dtype>(draw.whole(4));
    cost.knots = random_knots(draw);
    cost.errors.random = maybe(draw);
    if (draw.coin()) {
      cost.spread = {0.5, 0.5 + draw.real(), 2 + draw.real()};
      std::sort(cost.spread.begin(), cost.spread.end());
    }
    cost.tail_seconds_per_byte = maybe(draw);
    profile.collectives.push_back(cost);
  }
  profile.launch_seconds = random_seconds(draw);
  profile.host_is_device = draw.coin();
  profile.noise = {draw.real(), draw.real(), draw.real()};
  profile.noise.other_models = draw.real();
  for (int i = draw.whole(2); i > 0; --i) {
    profile.new_shapes.push_back(random_shape_cost(draw));
  }
  if (draw.coin()) {
    InterferenceProfile& interference = profile.interference.emplace();
    interference.value.compute = 1 / (1 + draw.real());
    interference.value.transfer = 1 / (1 + draw.real());
    interference.value.memory_share = 0.25;
    interference.value.multiprocessors = draw.whole(200);
    interference.value.max_channels = 1 + draw.whole(60);
    interference.value.limit = 1 / (1 + draw.real());
    interference.transfer = {0, draw.real()};
    interference.samples = draw.whole(100);
    interference.errors.random = maybe(draw);
  }
  return profile;
}

const std::string kSmall = R"({
  "format": "stepsim-profile/1",
  "name": "lab", "device": "CPU", "backend": "cpu",
  "host": {"launch_s": 0, "host_is_device": true},
  "ops": [
    {"op": "gemm", "pass": "forward", "dtype": "f32", "n": 144, "k": 48, "form": "table",
     "knots_s": [[64, 1e-5], [128, 2e-5]],
     "range": [64, 128]},
    {"op": "optimizer", "pass": "forward", "dtype": "f32", "form": "features",
     "features": ["1", "elements"], "coefficients_s": [1e-6, 1e-9], "range": [1, 1000]}
  ],
  "collectives": [
    {"kind": "all_reduce", "ranks": 2, "dtype": "f32", "knots_s": [[1024, 1e-5], [4096, 3e-5]]}
  ]
})";

Profile bare_profile() {
  Profile profile;
  profile.name = profile.device = profile.backend = "x";
  return profile;
}

/// The text of the profile's file, which reads back as it.
std::string text_of(const Profile& profile) {
  const std::string path = fresh_folder() + "/profile.json";
  write_profile(path, profile);
  CHECK(read_profile(path) == profile);
  return content(path);
}

/// The first op of kSmall.
Op small_gemm() {
  Op op;
  op.n = 144;
  op.k = 48;
  return op;
}

std::string profile_error_after(const std::string& from, const std::string& to) {
  return error_of_file("profile.json", replaced(kSmall, from, to), read_profile);
}

}  // namespace

TEST_CASE("a profile reads back as it was written, to the last bit") {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    CAPTURE(seed);
    (void)text_of(random_profile(seed));
  }
}

TEST_CASE("a profile holds one entry a line") {
  CHECK(text_of(read_profile(written("small.json", kSmall))) == R"({
  "format": "stepsim-profile/1",
  "name": "lab",
  "device": "CPU",
  "backend": "cpu",
  "provenance": null,
  "memory_capacity_bytes": 0,
  "host": {"launch_s":0.0,"host_is_device":true},
  "noise": {"step_jitter":0.0,"drift":0.0,"sentinel_s":0.0},
  "ops": [
    {"op":"gemm","pass":"forward","dtype":"f32","n":144,"k":48,"heads":0,"head_dim":0,"form":"table","variable":"rows","knots_s":[[64.0,1e-05],[128.0,2e-05]],"range":[64.0,128.0],"samples":0,"errors":{}},
    {"op":"optimizer","pass":"forward","dtype":"f32","n":0,"k":0,"heads":0,"head_dim":0,"form":"features","features":["1","elements"],"coefficients_s":[1e-06,1e-09],"range":[1.0,1000.0],"samples":0,"errors":{}}
  ],
  "collectives": [
    {"kind":"all_reduce","ranks":2,"nodes":1,"dtype":"f32","variable":"bytes","knots_s":[[1024.0,1e-05],[4096.0,3e-05]],"errors":{}}
  ]
}
)");
}

TEST_CASE("costs of new shapes are for programs that know them") {
  Profile profile = bare_profile();
  RandomValues draw(3);
  profile.new_shapes = {random_shape_cost(draw)};
  CHECK(text_of(profile).find("stepsim-profile/4") != std::string::npos);
}

TEST_CASE("the version of a profile is 2 only where a form needs it") {
  Profile profile = bare_profile();
  OpCost cost;
  cost.n = cost.k = 1;
  cost.knots = {{1, 1}};
  profile.ops = {cost};
  CHECK(text_of(profile).find("stepsim-profile/1") != std::string::npos);
  cost.form = CostForm::FeaturesRatio;
  cost.features = {"1"};
  cost.coefficients = {2};
  profile.ops = {cost};
  CHECK(text_of(profile).find("stepsim-profile/2") != std::string::npos);
}

TEST_CASE("a profile of version 2 is checked: tiles, processors, weights") {
  Profile profile = bare_profile();
  OpCost cost;
  cost.form = CostForm::FeaturesRatio;
  cost.features = {"1", "waves:128x64"};
  cost.coefficients = {1, 2};
  cost.processors = 108;
  cost.knots = {{1, 1}};
  profile.ops = {cost};
  const auto error_with = [&](const std::string& from, const std::string& to) {
    const std::string path = fresh_folder() + "/profile.json";
    write_profile(path, profile);
    const std::string text = replaced(content(path), from, to);
    return error_of([&] { (void)read_profile(written("profile.json", text)); });
  };
  CHECK(error_with("waves:128x64", "waves:128x").find("unknown feature 'waves:128x'") !=
        std::string::npos);
  CHECK(error_with("waves:128x64", "row_tiles:0").find("unknown feature") != std::string::npos);
  CHECK(error_with("\"processors\":108", "\"processors\":0").find("ops[0].processors") !=
        std::string::npos);
  CHECK(error_with("ratio_knots", "knots_s").find("no place in the form") != std::string::npos);
  profile.ops[0].form = CostForm::RooflineRatio;
  profile.ops[0].features = {"1", "flops"};
  profile.ops[0].gemm_ratio = {{108}, {1, 2}, {1, 2}, {1, 2}, {1, 2}};
  CHECK(error_with("x", "x").find("2 weights for 135 features") != std::string::npos);
  profile.ops[0].gemm_ratio.processors = {108, 54};
  CHECK(error_with("x", "x").find("2 weights for 270 features") != std::string::npos);
  profile.ops[0].gemm_ratio.processors = {108, 0};
  CHECK(error_with("x", "x").find("processors[1]: 0 is not from 1") != std::string::npos);
  profile.ops[0].gemm_ratio.processors = {};
  CHECK(error_with("x", "x").find("expected at least one number") != std::string::npos);
}

TEST_CASE("the interference of a profile is checked") {
  const std::string good =
      R"("interference": {"compute": 0.1, "transfer": 0.2, "memory_share": 0.3,
      "compute_interval90": [0.05, 0.15],
      "multiprocessors": 132, "max_channels": 24, "limit": 0.4},
      "ops": [)";
  const Profile profile =
      read_profile(written("profile.json", replaced(kSmall, "\"ops\": [", good)));
  REQUIRE(profile.interference);
  CHECK(profile.interference->value.memory_share == 0.3);
  CHECK(profile.interference->compute == std::pair(0.05, 0.15));
  CHECK_FALSE(profile.interference->transfer);
  const auto error_with = [&](const std::string& from, const std::string& to) {
    return profile_error_after("\"ops\": [", replaced(good, from, to));
  };
  CHECK(error_with("0.3", "1") ==
        "profile.json:5: error: interference.memory_share: expected less than 1");
  CHECK(error_with("0.1,", "-0.1,") ==
        "profile.json:5: error: interference.compute: -0.1 is negative");
  CHECK(error_with("0.2,", "200,") ==
        "profile.json:5: error: interference.transfer: 200 is out of range; expected 0 .. 100");
  CHECK(error_with("[0.05, 0.15]", "[0.15, 0.05]") ==
        "profile.json:6: error: interference.compute_interval90: expected [lo, hi] with 0 <= lo <= "
        "hi");
  CHECK(error_with("24", "65").find("interference.max_channels") != std::string::npos);
}

TEST_CASE("unequal ranks are written and read, by programs that know them") {
  Profile profile = read_profile(written("small.json", kSmall));
  profile.rank_factors = {1, 1.25};
  const std::string text = text_of(profile);
  CHECK(text.find("\"stepsim-profile/6\"") != std::string::npos);
  for (const char* wrong : {"[]", "[1, 0]", "[1, -1]", "[1, 1e7]"}) {
    CAPTURE(wrong);
    const std::string path = written("wrong.json", replaced(text, "[1.0,1.25]", wrong));
    CHECK(error_of([&] {
            (void)read_profile(path);
          }).find("host.rank_factors: expected a factor of each rank, more than 0") !=
          std::string::npos);
  }
}

TEST_CASE("stalls are written and read, by programs that know them") {
  Profile profile = read_profile(written("small.json", kSmall));
  profile.noise.stalls = {0.25, {0.5, 1.5}};
  CHECK(profile.noise.stalls.seconds_per_step() == 0.25);
  const std::string text = text_of(profile);
  CHECK(text.find("\"stepsim-profile/7\"") != std::string::npos);
  for (const char* wrong : {"[]", "[1.5, 0.5]", "[-1, 0.5]"}) {
    CAPTURE(wrong);
    const std::string path = written("wrong.json", replaced(text, "[0.5,1.5]", wrong));
    CHECK(error_of([&] { (void)read_profile(path); }).find("noise.stalls.seconds: expected") !=
          std::string::npos);
  }
  const std::string path = written("often.json", replaced(text, "0.25", "1.25"));
  CHECK(error_of([&] {
          (void)read_profile(path);
        }).find("noise.stalls.per_step: expected 0 .. 1") != std::string::npos);
}

TEST_CASE("what other programs took is written and read, by programs that know it") {
  Profile profile = read_profile(written("small.json", kSmall));
  CHECK(text_of(profile).find("crowded") == std::string::npos);
  profile.noise.crowded = {2.5, 0.125};
  const std::string text = text_of(profile);
  CHECK(text.find("\"stepsim-profile/10\"") != std::string::npos);
  CHECK(read_profile(written("crowded.json", text)).noise == profile.noise);
  const std::string faster = written("faster.json", replaced(text, "2.5", "0.5"));
  CHECK(error_of([&] { (void)read_profile(faster); }).find("noise.crowded.slowed: expected 1 to") !=
        std::string::npos);
}

TEST_CASE("what a host takes for sharded units is written and read, by programs that know it") {
  Profile profile = read_profile(written("small.json", kSmall));
  CHECK_FALSE(profile.unit_host);
  profile.unit_host = UnitHostTimes{0.5, 0.25, 0.75, 0.125, 2};
  const std::string text = text_of(profile);
  CHECK(text.find("\"stepsim-profile/12\"") != std::string::npos);
  CHECK(read_profile(written("units.json", text)).unit_host == profile.unit_host);
  const std::string negative =
      written("negative.json", replaced(text, "\"forward_s\":0.5", "\"forward_s\":-0.5"));
  CHECK(error_of([&] { (void)read_profile(negative); }).find("host.units.forward_s") !=
        std::string::npos);
  const std::string hours =
      written("hours.json", replaced(text, "\"forward_s\":0.5", "\"forward_s\":5000"));
  CHECK(error_of([&] { (void)read_profile(hours); }).find("expected at most 1 hour") !=
        std::string::npos);
}

TEST_CASE("the share of copies in the launches is written and read, by programs that know it") {
  Profile profile = read_profile(written("small.json", kSmall));
  profile.launched_copies = 0.25;
  const std::string text = text_of(profile);
  CHECK(text.find("\"stepsim-profile/13\"") != std::string::npos);
  CHECK(read_profile(written("copies.json", text)).launched_copies == 0.25);
  const std::string all = written("all.json", replaced(text, "copies\":0.25", "copies\":1.0"));
  CHECK(error_of([&] { (void)read_profile(all); }).find("expected a share from 0 to below 1") !=
        std::string::npos);
}

TEST_CASE("which shapes a compiler's graphs serve is written and read, by programs that know it") {
  Profile profile = read_profile(written("small.json", kSmall));
  ShapeCost cost;
  cost.mechanism = "compile";
  cost.forward_seconds = 2;
  profile.new_shapes = {cost};
  CHECK(text_of(profile).find("\"stepsim-profile/14\"") == std::string::npos);
  cost.compile = CompileMode::Automatic;
  cost.recompile_limit = 5;
  cost.uncompiled_factor = 1.5;
  profile.new_shapes = {cost};
  const std::string text = text_of(profile);
  CHECK(text.find("\"stepsim-profile/14\"") != std::string::npos);
  CHECK(read_profile(written("compiler.json", text)).new_shapes == profile.new_shapes);
  const std::string unknown = written("mode.json", replaced(text, "automatic", "sometimes"));
  CHECK(error_of([&] { (void)read_profile(unknown); }).find("sometimes") != std::string::npos);
}

TEST_CASE("compute that grows with a node's ranks is for programs that know it") {
  Profile profile = read_profile(written("small.json", kSmall));
  RecordedModel& recorded = profile.recorded.emplace();
  recorded.model = model_preset("tiny-classifier");
  for (PassCost* pass : {&recorded.forward, &recorded.backward, &recorded.data}) {
    pass->features = {"1"};
    pass->coefficients = {1e-3};
    pass->tokens = pass->length = {64, 128};
  }
  recorded.several_ranks = SeveralRanks{1.1, 0.02};
  CHECK(text_of(profile).find("\"stepsim-profile/5\"") != std::string::npos);
  recorded.several_ranks_draws = {{1.1, 0.02}, {1.1, 0.01, 0.03}};
  for (PassCost* pass : {&recorded.forward, &recorded.backward}) {
    pass->draws = {{1e-3}, {2e-3}};
  }
  CHECK(text_of(profile).find("\"stepsim-profile/11\"") != std::string::npos);
}

TEST_CASE("stalls by the clock are written and read, by programs that know them") {
  Profile profile = read_profile(written("small.json", kSmall));
  profile.noise.stalls = {0.25, {0.5, 1.5}, 0.75, 40};
  const std::string text = text_of(profile);
  CHECK(text.find("\"stepsim-profile/9\"") != std::string::npos);
  CHECK(read_profile(written("clock.json", text)).noise.stalls == profile.noise.stalls);
  const std::string path = written("none.json", replaced(text, "\"steps\":40", "\"steps\":0"));
  CHECK(error_of([&] {
          (void)read_profile(path);
        }).find("noise.stalls.steps: expected at least 1") != std::string::npos);
}

TEST_CASE("a bad profile is refused by line and key") {
  CHECK(profile_error_after("", "") == "");
  CHECK(profile_error_after("profile/1", "profile/5") == "");
  CHECK(profile_error_after("profile/1", "profile/15") ==
        "profile.json:2: error: format: wrong version: expected stepsim-profile/1, got "
        "'stepsim-profile/15'");
  CHECK(profile_error_after("[128, 2e-5]", "[64, 2e-5]") ==
        "profile.json:7: error: ops[0].knots_s[1]: knots must ascend, 64 follows 64");
  CHECK(profile_error_after("[128, 2e-5]", "[128, -1]") ==
        "profile.json:7: error: ops[0].knots_s[1]: [128, -1] is negative");
  CHECK(profile_error_after("[128, 2e-5]", "[128, 3600]") == "");
  CHECK(profile_error_after("[128, 2e-5]", "[128, 3601]") ==
        "profile.json:7: error: ops[0].knots_s[1]: 3601 s is too long; expected at most 1 hour");
  CHECK(profile_error_after("[[64, 1e-5], [128, 2e-5]]", "[]") ==
        "profile.json:7: error: ops[0].knots_s: expected an array of at least one knot [x, "
        "seconds]");
  CHECK(profile_error_after("\"range\": [64, 128]", "\"range\": [128, 64]") ==
        "profile.json:8: error: ops[0].range: expected [lo, hi] with 0 <= lo <= hi");
  CHECK(profile_error_after("\"form\": \"table\"", "\"form\": \"tabel\"") ==
        "profile.json:6: error: ops[0].form: unknown form 'tabel'; did you mean 'table'? known: "
        "table, per_sample_table, features, roofline, features_ratio, roofline_ratio");
  CHECK(profile_error_after("\"form\": \"table\"", "\"form\": \"features\"") ==
        "profile.json:7: error: ops[0].knots_s: has no place in the form 'features'");
  CHECK(profile_error_after("\"form\": \"features\"", "\"form\": \"table\"") ==
        "profile.json:10: error: ops[1].features: has no place in the form 'table'");
  CHECK(profile_error_after("[\"1\", \"elements\"]", "[\"1\"]") ==
        "profile.json:10: error: ops[1].coefficients_s: 2 coefficients for 1 features");
  CHECK(
      profile_error_after("\"elements\"]", "\"element\"]")
          .find(
              "profile.json:10: error: ops[1].features[1]: unknown feature 'element'; did you mean "
              "'elements'?") == 0);
  CHECK(profile_error_after("\"host_is_device\": true", "\"host_is_device\": 1") ==
        "profile.json:4: error: host.host_is_device: expected true or false, found 1");
  CHECK(profile_error_after("\"op\": \"optimizer\"", "\"op\": \"gemm\", \"n\": 144, \"k\": 48") ==
        "profile.json:9: error: ops[1]: a second entry for gemm forward of these sizes");
}

TEST_CASE("an op that would take more than an hour is refused") {
  Profile profile = read_profile(written("long.json", kSmall));
  profile.ops[0].knots = {{64, 1e-5}, {128, 3600}};
  const Op op = small_gemm();
  CHECK(ProfileCostModel(profile).op(op, {1, 128, 128, 16384}).seconds == Approx(3600));
  CHECK_THROWS_WITH_AS((void)ProfileCostModel(profile).op(op, {1, 256, 256, 65536}),
                       doctest::Contains("more than 1 hour is refused"),
                       InputError);
}

TEST_CASE("an op is priced by its exact entry, else by its class, else not at all") {
  Profile profile = read_profile(written("small.json", kSmall));
  Op op = small_gemm();
  const BatchShape batch{1, 96, 96, 9216};
  const Cost exact = ProfileCostModel(profile).op(op, batch);
  CHECK(exact.seconds == Approx(1.5e-5));
  CHECK_FALSE(exact.unseen_shape);
  CHECK(exact.relative_error == 0);

  op.n = 145;
  CHECK(error_of([&] { (void)ProfileCostModel(profile).op(op, batch); }) ==
        "profile lab has no cost for gemm forward (n=145, k=48, f32): measure it with: python3 "
        "-m stepsim.torch.measure …");
  OpCost general;
  general.form = CostForm::Roofline;
  general.features = {"1", "flops"};
  general.coefficients = {1e-6, 1e-12};
  profile.ops.push_back(general);
  const Cost unseen = ProfileCostModel(profile).op(op, batch);
  CHECK(unseen.seconds == Approx(1e-6 + 1e-12 * 2 * 96 * 145 * 48));
  CHECK(unseen.unseen_shape);
  CHECK(unseen.relative_error == kUnseenShapeError);

  op.dtype = Dtype::Bf16;
  CHECK(error_of([&] { (void)ProfileCostModel(profile).op(op, batch); }) ==
        "profile lab has no cost for gemm forward (n=145, k=48, bf16), but of f32: write "
        "model.dtype = \"f32\", or measure it with: python3 -m stepsim.torch.measure …");
  op.dtype = Dtype::F32;
  op.pass = Pass::InputGradient;
  CHECK_THROWS_AS((void)ProfileCostModel(profile).op(op, batch), InputError);
}

TEST_CASE("attention falls back to its head size before its class") {
  Profile profile;
  profile.name = "p";
  OpCost cost;
  cost.op_class = OpClass::Attention;
  cost.form = CostForm::Features;
  cost.features = {"1"};
  cost.coefficients = {3};
  profile.ops.push_back(cost);
  cost.head_dim = 64;
  cost.coefficients = {2};
  profile.ops.push_back(cost);
  cost.heads = 8;
  cost.coefficients = {1};
  profile.ops.push_back(cost);
  const ProfileCostModel model(profile);
  const BatchShape batch{1, 10, 10, 100};
  Op op;
  op.op_class = OpClass::Attention;
  op.head_dim = 64;
  op.heads = 8;
  CHECK(model.op(op, batch).seconds == 1);
  CHECK_FALSE(model.op(op, batch).unseen_shape);
  op.heads = 12;
  CHECK(model.op(op, batch).seconds == 2);
  CHECK(model.op(op, batch).unseen_shape);
  op.head_dim = 128;
  CHECK(model.op(op, batch).seconds == 3);
  CHECK(model.op(op, batch).unseen_shape);
}

TEST_CASE("the number of elements is a variable and no unseen shape") {
  const ProfileCostModel model(read_profile(written("small.json", kSmall)));
  const Cost cost = model.op(elements_op(OpClass::Optimizer, 500, Dtype::F32), BatchShape{});
  CHECK(cost.seconds == Approx(1e-6 + 500e-9));
  CHECK_FALSE(cost.unseen_shape);
  CHECK(error_of([&] {
          (void)model.op(elements_op(OpClass::GradientCopyOut, 5, Dtype::F32), BatchShape{});
        }) ==
        "profile lab has no cost for gradient_copy_out forward (n=5, f32): measure it with: "
        "python3 -m stepsim.torch.measure …");
}

TEST_CASE("an empty batch costs nothing") {
  const ProfileCostModel model(read_profile(written("small.json", kSmall)));
  const Op op = small_gemm();
  CHECK(model.op(op, BatchShape{}).seconds == 0);
}

TEST_CASE("beyond the allowed factor of its range a cost is refused") {
  const Profile profile = read_profile(written("small.json", kSmall));
  const Op op = small_gemm();
  const BatchShape fourfold{4, 128, 512, 0};
  const BatchShape more{4, 129, 516, 0};
  CHECK(ProfileCostModel(profile).op(op, fourfold).extrapolation == 4);
  CHECK(error_of([&] { (void)ProfileCostModel(profile).op(op, more); }) ==
        "profile lab: gemm forward (n=144, k=48, f32) was measured for tokens from 64 to 128; this "
        "is 4.03 times beyond, and more than 4 times is refused: measure larger batches");
  CHECK(ProfileCostModel(profile, 5).op(op, more).extrapolation == Approx(516.0 / 128));
}

TEST_CASE("a refusal of a size says what can be done about it") {
  Profile profile = read_profile(written("small.json", kSmall));
  const auto refused = [&](const Op& op, std::int64_t tokens) {
    const std::string message = error_of([&] {
      (void)ProfileCostModel(profile).op(op, BatchShape{4, tokens / 4, tokens, 0});
    });
    return message.substr(message.find("is refused: "));
  };
  const Op optimizer = elements_op(OpClass::Optimizer, 1'000'000'000, Dtype::F32);
  CHECK(refused(small_gemm(), 516) == "is refused: measure larger batches");
  // No batch makes the model smaller.
  CHECK(refused(optimizer, 64) ==
        "is refused: they are the model's own, so measure a model as large with: python3 -m "
        "stepsim.torch.measure …, or take a profile of one");
  profile.provenance = JsonValue(Json{{"method", "composed from published figures"}});
  CHECK(refused(small_gemm(), 516)
            .starts_with("is refused: these are no measurements but published figures; take "
                         "smaller batches, or "));
  CHECK(refused(optimizer, 64).find("take a smaller model, or") != std::string::npos);
}

TEST_CASE("an all-reduce is read off its table, and on from it with the last slope") {
  Profile profile = read_profile(written("small.json", kSmall));
  CollectiveCost& table = profile.collectives[0];
  table.errors.random = 0.02;
  table.errors.beyond = 0.1;
  const auto cost = [&](std::int64_t bytes) { return table_cost(table, Bytes(bytes), 4, "lab"); };
  CHECK(cost(1).seconds == Approx(1e-5));
  CHECK(cost(2560).seconds == Approx(2e-5));
  CHECK(cost(2560).relative_error == 0.02);
  const Cost beyond = cost(8192);
  CHECK(beyond.seconds == Approx(3e-5 + 4096 * 2e-5 / 3072));
  CHECK(beyond.extrapolation == 2);
  CHECK(beyond.relative_error == Approx(0.2));
  CHECK(error_of([&] { (void)cost(32768); }) ==
        "profile lab: the all_reduce of 2 ranks was measured from 1 KiB to 4 KiB; 32 KiB is 8.00 "
        "times beyond, and more than 4 times is refused: measure larger messages");
  table.knots = {{512, 9e-5}, {1024, 1e-5}, {2048, 3e-5}, {4096, 3.5e-5}};
  CHECK(cost(8192).seconds ==
        Approx(3.5e-5 + 4096 * relative_slope(std::span(table.knots).subspan(1))));
  // Dense sizes: the last octave, here 1e-5 s + bytes * 5e-9 s, not what the last three happen to
  // be.
  table.knots = {{1024, 9e-5}};
  for (double bytes = 2048; bytes < 4096; bytes += 128) {
    table.knots.emplace_back(bytes, 1e-5 + bytes * 5e-9);
  }
  table.knots.emplace_back(4096, 3.2e-5);
  CHECK(cost(8192).seconds == Approx(3.2e-5 + 4096 * 5e-9).epsilon(0.02));
  table.tail_seconds_per_byte = 1e-9;
  CHECK(cost(8192).seconds == Approx(3.2e-5 + 4096 * 1e-9));
  CHECK(cost(4096).seconds == 3.2e-5);
  const std::string tail = "\"dtype\": \"f32\", \"tail_s_per_byte\": -1, \"knots_s\": [[1024";
  CHECK(profile_error_after("\"dtype\": \"f32\", \"knots_s\": [[1024", tail) ==
        "profile.json:13: error: collectives[0].tail_s_per_byte: -1 is negative");
}
