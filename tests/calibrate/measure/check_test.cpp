#include "calibrate/measure/check.h"

#include <algorithm>
#include <fstream>

#include <doctest/doctest.h>
#include <fmt/core.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "calibrate/fit/fit.h"
#include "calibrate/measure/measure.h"
#include "calibrate/measure/measure_probe.h"
#include "calibrate/samples/sample_log.h"
#include "calibrate/samples/samples.h"
#include "costmodel/base/input_error.h"
#include "costmodel/base/parse_units.h"
#include "costmodel/network/collective_pricer.h"
#include "costmodel/records/profile_cost_model.h"
#include "tests/approx.h"
#include "tests/calibrate/measure/fake_backend.h"
#include "tests/test_data.h"

using stepsim::test::Approx;

namespace stepsim {
namespace {

Profile fitted(const std::string& samples) {
  return fit_profile(read_samples(samples, nullptr), {"fake", samples, "fit", "2024-01-01"})
      .profile;
}

std::vector<std::string> lines_of(const std::string& path) {
  std::ifstream file(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) {
    lines.push_back(line);
  }
  return lines;
}

}  // namespace

TEST_CASE("measured and fitted, the profile prices every step as the machine charges it") {
  const std::string samples = test::fresh_folder() + "/samples.jsonl";
  const MeasureRequest request = test::small_request(samples);
  CHECK(measure(request, test::fake_factory({}), {}) > 100);
  const ProfileCostModel costs(fitted(samples));
  const StepOps step = step_ops(request.model);
  // 2048 is the largest budget; none of these shapes is a point of the grid.
  for (const auto& [count, length] :
       std::vector<std::pair<std::int64_t, std::int64_t>>{{7, 53}, {19, 107}, {3, 201}}) {
    const BatchShape batch =
        batch_shape(std::vector<std::int64_t>(static_cast<std::size_t>(count), length));
    for (const std::vector<Op>* ops : {&step.forward, &step.backward}) {
      for (const Op& op : *ops) {
        CAPTURE(op.name);
        const Cost cost = costs.op(op, batch);
        CHECK_FALSE(cost.unseen_shape);
        CHECK(cost.extrapolation == 1);
        CHECK(cost.seconds == Approx(test::planted_seconds(op, batch)).epsilon(0.02));
      }
    }
  }
  const Op copy = elements_op(OpClass::GradientCopyOut, 33333, Dtype::F32);
  CHECK(costs.op(copy, {}).seconds == Approx(test::planted_seconds(copy, {})).epsilon(0.01));
  const CollectivePricer pricer = collective_pricer(costs.profile());
  CHECK(pricer.price(CollectiveKind::AllReduce, Bytes(300000), 2, 1).cost.seconds ==
        Approx(test::planted_collective_seconds(CollectiveKind::AllReduce, 300000, false))
            .epsilon(1e-3));
  CHECK(costs.profile().noise.step_jitter == Approx(0).epsilon(1e-3));
  CHECK(costs.profile().device == "fake");
}

TEST_CASE("every kind of collective that the backend has is measured and fitted") {
  MeasureRequest request = test::small_request(test::fresh_folder() + "/samples.jsonl");
  request.budget_seconds = 2;
  test::FakeMachine machine;
  machine.collectives = {CollectiveKind::AllReduce, CollectiveKind::AllGather};
  measure(request, test::fake_factory(machine), {});
  const FitResult result = fit_profile(read_samples(request.out, nullptr), {});
  REQUIRE(result.collectives.size() == 2);
  for (const CollectiveFit& fit : result.collectives) {
    CAPTURE(fit.cost.kind);
    const CollectiveKind kind = parse_collective_kind(fit.cost.kind);
    CHECK(fit.floor == Approx(test::planted_collective_seconds(kind, 1024, false)).epsilon(1e-4));
    REQUIRE(fit.pipelined_floor);
    CHECK(*fit.pipelined_floor ==
          Approx(test::planted_collective_seconds(kind, 1024, true)).epsilon(1e-3));
  }
  const std::string floors = fmt::format("\n  floor: {} by itself, {} back to back\n",
                                         format_duration(result.collectives[0].floor),
                                         format_duration(*result.collectives[0].pipelined_floor));
  CHECK(fit_report(result).find(floors) != std::string::npos);
}

TEST_CASE("a backend without ops is measured for its collectives, which make a profile") {
  MeasureRequest request = test::small_request(test::fresh_folder() + "/samples.jsonl");
  request.budget_seconds = 2;
  test::FakeMachine machine;
  machine.times_ops = false;
  CHECK(measure(request, test::fake_factory(machine), {}) > 10);
  const SampleSet samples = read_samples(request.out, nullptr);
  CHECK(samples.plan.points.empty());
  CHECK(samples.ops.empty());
  CHECK(samples.sentinels.empty());
  const Profile profile = fitted(request.out);
  CHECK(profile.ops.empty());
  REQUIRE(profile.collectives.size() == 1);
  CHECK(collective_pricer(profile)
            .price(CollectiveKind::AllReduce, Bytes(300000), 2, 1)
            .cost.seconds ==
        Approx(test::planted_collective_seconds(CollectiveKind::AllReduce, 300000, false))
            .epsilon(1e-3));
  // All passes are there, since no point tells that it is enough.
  const int all = read_sample_file(request.out, nullptr).log.measurements();
  CHECK(measure(request, test::fake_factory(machine), {}) == all);
  request.ranks = 1;
  request.out += ".one";
  CHECK_THROWS_WITH_AS(measure(request, test::fake_factory(machine), {}),
                       "one rank has no collectives to measure; use --ranks 2 or more",
                       InputError);
}

TEST_CASE("ops that no batch changes are timed apart, once for all batches of a round") {
  MeasureRequest request = test::small_request(test::fresh_folder() + "/samples.jsonl");
  request.budget_seconds = 2;
  request.ranks = 1;
  measure(request, test::fake_factory({0.05, 1, "fake"}), {});
  const SampleFile file = read_sample_file(request.out, nullptr);
  const std::vector<Op>& ops = file.log.ops();
  const auto first = [&](OpClass op_class) {
    const auto found = std::ranges::find(ops, op_class, &Op::op_class);
    REQUIRE(found != ops.end());
    return static_cast<std::size_t>(found - ops.begin());
  };
  const std::vector<PointLog>& points = file.log.points();
  REQUIRE(points.size() > 2);
  const std::size_t optimizer = first(OpClass::Optimizer);
  const std::vector<double>& times = points[0].op_seconds.at(optimizer);
  CHECK(points[1].op_seconds.at(optimizer) == times);
  CHECK(times[0] != times[1]);
  const std::size_t gemm = first(OpClass::Gemm);
  CHECK(points[0].op_seconds.at(gemm)[0] != points[1].op_seconds.at(gemm)[0]);
}

TEST_CASE("a profile survives its file") {
  const std::string folder = test::fresh_folder();
  MeasureRequest request = test::small_request(folder + "/samples.jsonl");
  request.budget_seconds = 2;
  measure(request, test::fake_factory({0.02, 1, "fake"}), {});
  const Profile profile = fitted(request.out);
  write_profile(folder + "/p.json", profile);
  const Profile read = read_profile(folder + "/p.json");
  CHECK(read.ops.size() == profile.ops.size());
  CHECK(plan_of_profile(read) == plan_of_profile(profile));
}

TEST_CASE("a measurement cut short goes on where it stopped, with the same plan") {
  MeasureRequest request = test::small_request(test::fresh_folder() + "/samples.jsonl");
  request.budget_seconds = 2;
  measure(request, test::fake_factory({}), {});
  const std::vector<std::string> whole = lines_of(request.out);
  // Killed in the middle of the first collective's line: all steps of pass 0 are there.
  const auto first_collective =
      std::find_if(whole.begin(), whole.end(), [](const std::string& line) {
        return line.find(R"("kind":"collective")") != std::string::npos;
      });
  REQUIRE(first_collective != whole.end());
  const auto kept = static_cast<std::size_t>(first_collective - whole.begin());
  {
    std::ofstream file(request.out, std::ios::trunc);
    for (std::size_t i = 0; i < kept; ++i) {
      file << whole[i] << "\n";
    }
    file << whole[kept].substr(0, whole[kept].size() / 2);
  }
  bool resumed = false;
  std::vector<std::string> warnings;
  MeasureHooks hooks;
  hooks.on_plan = [&](const MeasurePlan&, double, bool again) { resumed = again; };
  hooks.on_warning = [&](const std::string& warning) { warnings.push_back(warning); };
  measure(request, test::fake_factory({}), hooks);
  CHECK(resumed);
  CHECK(warnings.size() == 1);
  const std::vector<std::string> now = lines_of(request.out);
  for (std::size_t i = 0; i < kept; ++i) {
    CHECK(now[i] == whole[i]);
  }
  const SampleFile file = read_sample_file(request.out, nullptr);
  for (const GridPoint& point : file.plan.points) {
    CHECK(file.log.has_all_ranks(point, 0, 2));
    CHECK(file.log.find(point)->ranks_of_pass.at(0).size() == 2);
  }
  CHECK(file.log.pass_ended(0));
  // Nothing is measured twice.
  const auto steps = std::count_if(now.begin(), now.end(), [](const std::string& line) {
    return line.find(R"("kind":"step","pass":0)") != std::string::npos;
  });
  const std::size_t lines =
      2 * file.plan.points.size() * static_cast<std::size_t>(file.plan.repetitions);
  CHECK(steps == static_cast<std::ptrdiff_t>(lines));
  const int finished = measure(request, test::fake_factory({}), {});
  CHECK(finished == file.log.measurements());
}

TEST_CASE("measuring ends a tenth past its budget, on a machine slower than its probe too") {
  MeasureRequest request = test::small_request(test::fresh_folder() + "/samples.jsonl");
  request.budget_seconds = 2.5;
  test::FakeMachine machine;
  machine.delay = 6e-3;
  measure(request, test::fake_factory(machine), {});
  const SampleFile file = read_sample_file(request.out, nullptr);
  CHECK(file.log.pass_ended(0));
  CHECK(file.log.last_at_seconds() < 1.5 * request.budget_seconds);  // The host may be busy.
}

TEST_CASE("overlaps are measured once a file, and go on behind the last whole line") {
  MeasureRequest request = test::small_request(test::fresh_folder() + "/samples.jsonl");
  request.budget_seconds = 2;
  test::FakeMachine machine;
  machine.overlaps = 5;
  measure(request, test::fake_factory(machine), {});
  const std::vector<std::string> whole = lines_of(request.out);
  const auto overlaps = [](const std::vector<std::string>& lines) {
    std::vector<std::string> found;
    for (const std::string& line : lines) {
      if (line.find(R"("kind":"overlap")") != std::string::npos) {
        found.push_back(line);
      }
    }
    return found;
  };
  REQUIRE(overlaps(whole).size() == 5);
  const auto third = std::find(whole.begin(), whole.end(), overlaps(whole)[2]);
  {
    std::ofstream file(request.out, std::ios::trunc);
    for (auto line = whole.begin(); line != third; ++line) {
      file << *line << "\n";
    }
    file << third->substr(0, 30);
  }
  measure(request, test::fake_factory(machine), {});
  CHECK(overlaps(lines_of(request.out)) == overlaps(whole));
  measure(request, test::fake_factory(machine), {});
  CHECK(overlaps(lines_of(request.out)) == overlaps(whole));
}

TEST_CASE("one rank says by name what it cannot measure") {
  MeasureRequest request = test::small_request(test::fresh_folder() + "/samples.jsonl");
  request.budget_seconds = 1;
  request.ranks = 1;
  measure(request, test::fake_factory({}), {});
  const Json lacks =
      fit_profile(read_samples(request.out, nullptr), {}).profile.provenance->at("not_measured");
  CHECK(
      lacks ==
      Json({"times of collectives", "stretch of a transfer beside compute", "skew between ranks"}));
  CHECK(not_measured(2).empty());
}

TEST_CASE("measurements of another request or device are not mixed") {
  MeasureRequest request = test::small_request(test::fresh_folder() + "/samples.jsonl");
  request.budget_seconds = 1;
  measure(request, test::fake_factory({}), {});
  CHECK_THROWS_WITH_AS(
      measure(request, test::fake_factory({0, 1, "another"}), {}),
      (request.out +
       ": error: holds measurements of another request (different: device); choose another file "
       "with --out, or remove this one")
          .c_str(),
      InputError);
  request.model.layers = 2;
  CHECK_THROWS_AS(measure(request, test::fake_factory({}), {}), InputError);
}

TEST_CASE("check says yes to the machine that was measured and no to a slower one") {
  MeasureRequest request = test::small_request(test::fresh_folder() + "/samples.jsonl");
  request.budget_seconds = 2;
  measure(request, test::fake_factory({0.01, 1, "fake"}), {});
  const Profile profile = fitted(request.out);
  const CheckResult same = check_profile(profile, test::fake_factory({0.01, 1, "fake"}));
  CHECK(same.fits());
  CHECK(same.ratio() == Approx(1).epsilon(0.02));
  const CheckResult slower = check_profile(profile, test::fake_factory({0.01, 1.2, "fake"}));
  CHECK_FALSE(slower.fits());
  CHECK(slower.ratio() == Approx(1.2).epsilon(0.02));
  for (const CheckRow& row : slower.rows) {
    CHECK(row.ratio() == Approx(1.2).epsilon(0.06));
  }
  CHECK(check_report(profile, slower).find("does not fit: recalibrate") != std::string::npos);
  CHECK(check_report(profile, same).find("device") == std::string::npos);
  const CheckResult other = check_profile(profile, test::fake_factory({0.01, 1, "another card"}));
  CHECK(check_report(profile, other)
            .ends_with("it was measured on another device: fake; this is: another card\n"));
}

TEST_CASE("a profile of PyTorch's ops cannot be checked, and says what to do") {
  MeasureRequest request = test::small_request(test::fresh_folder() + "/samples.jsonl");
  request.budget_seconds = 1;
  measure(request, test::fake_factory({}), {});
  Profile profile = fitted(request.out);
  const std::string advice =
      "the ops of profile 'fake' are PyTorch's or a CPU's, which stepcal does not time. To check "
      "it, measure again with python3 -m stepsim.torch.measure, and compare the two profiles' "
      "predictions: stepsim compare SCENARIO.toml --profile PROFILE";
  Json& versions = (*profile.provenance)["versions"];
  versions["measured_by"] = "pytorch";
  CHECK_THROWS_WITH_AS((void)plan_of_profile(profile), advice.c_str(), InputError);
  versions.erase("measured_by");
  CHECK(plan_of_profile(profile).ranks == 2);
  versions["backend"] = "cpu";
  CHECK_THROWS_WITH_AS((void)plan_of_profile(profile), advice.c_str(), InputError);
}

TEST_CASE("a profile that was not measured here cannot be checked, and says why") {
  Profile profile;
  profile.name = "published";
  profile.provenance = Json::object();
  CHECK_THROWS_WITH_AS(
      (void)check_profile(profile, test::fake_factory({})),
      "profile 'published' was not made by stepcal measure or stepcal calibrate, so there is no "
      "plan to measure again. To check it, import new measurements and compare the two profiles' "
      "predictions: stepsim compare SCENARIO.toml --profile PROFILE",
      InputError);
  profile.recorded.emplace();
  CHECK_THROWS_WITH_AS(
      (void)plan_of_profile(profile),
      "profile 'published' was made of recorded training steps, not by stepcal measure, so there "
      "is "
      "no plan to measure again. To check it, record some steps anew and compare: stepsim validate "
      "SCENARIO.toml --profile PROFILE --live RECORD",
      InputError);
}

}  // namespace stepsim
