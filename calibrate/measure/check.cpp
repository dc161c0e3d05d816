#include "calibrate/measure/check.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "calibrate/measure/clock.h"
#include "calibrate/measure/measure_rank.h"
#include "calibrate/samples/sample_log.h"
#include "calibrate/samples/statistics.h"
#include "costmodel/base/input_error.h"
#include "costmodel/base/mapped.h"
#include "costmodel/base/parse_units.h"
#include "costmodel/records/profile_cost_model.h"
#include "costmodel/terminal/table.h"

namespace stepsim {
namespace {

constexpr std::size_t kPoints = 6;
constexpr int kCheckRepetitions = 5;

/// What the points take now, and on which device.
struct Now {
  SampleSet samples;
  std::string device;
};

/// Measures the points on all ranks; nothing is written.
Now measure_now(const MeasurePlan& plan,
                const BackendFactory& factory,
                const ProgressCallback& on_progress) {
  RankPass task;
  task.ranks = plan.ranks;
  task.repetitions = kCheckRepetitions;
  task.points = check_points(plan, kPoints);
  task.padded = plan.box.padded;
  task.sentinel = sentinel_lengths(plan.model);
  task.clock_offset = -clock_seconds();
  const auto steps =
      static_cast<double>(plan.ranks) * static_cast<double>(task.points.size()) * kCheckRepetitions;
  Now now;
  std::vector<Json> lines;
  run_ranks(
      plan.ranks,
      [&](const RankContext& context) {
        const std::unique_ptr<Backend> backend = factory(context, plan.model, plan.buckets);
        RankPass mine = task;
        mine.rank = context.rank();
        if (context.rank() == 0) {
          const std::string device = backend->description().value("device", std::string());
          context.send(Json{{"kind", "device"}, {"device", device}}.dump());
        }
        measure_rank_pass(
            *backend, mine, [&context](const std::string& line) { context.send(line); });
      },
      [&](int /*rank*/, const std::string& line) {
        Json message = parse_json(line, "a rank's measurement");
        if (message.at("kind") == "device") {
          now.device = message.at("device").get<std::string>();
          return;
        }
        lines.push_back(std::move(message));
        if (on_progress) {  // A line a step; those of sentinels are few.
          on_progress(std::min(1.0, static_cast<double>(lines.size()) / steps));
        }
      });
  // The list of ops first: the ranks' lines arrive in any order.
  std::stable_partition(
      lines.begin(), lines.end(), [](const Json& line) { return line.at("kind") == "pass"; });
  SampleLog log;
  for (const Json& line : lines) {
    log.add(line, "a rank's measurement", 0);
  }
  now.samples = combine_samples(log);
  return now;
}

}  // namespace

bool CheckResult::fits() const {
  return std::abs(ratio() - 1) <= tolerance;
}

MeasurePlan plan_of_profile(const Profile& profile) {
  if (!profile.provenance->is_object() || !profile.provenance->contains("plan")) {
    const bool is_recorded = profile.recorded.has_value();
    throw InputError(
        "profile '{}' {}, so there is no plan to measure again. To check it, {}",
        printable(profile.name),
        is_recorded ? "was made of recorded training steps, not by stepcal measure"
                    : "was not made by stepcal measure or stepcal calibrate",
        is_recorded
            ? "record some steps anew and compare: stepsim validate SCENARIO.toml --profile "
              "PROFILE --live RECORD"
            : "import new measurements and compare the two profiles' predictions: stepsim "
              "compare SCENARIO.toml --profile PROFILE");
  }
  const Json versions = profile.provenance->value("versions", Json::object());
  if (!versions.is_object() || versions.contains("measured_by") ||
      versions.value("backend", Json()) != "cuda") {
    throw InputError(
        "the ops of profile '{}' are PyTorch's or a CPU's, which stepcal does not time. To check "
        "it, measure again with python3 -m stepsim.torch.measure, and compare the two profiles' "
        "predictions: stepsim compare SCENARIO.toml --profile PROFILE",
        printable(profile.name));
  }
  return measure_plan_from_json(profile.provenance->at("plan"), "provenance", 0);
}

std::vector<GridPoint> check_points(const MeasurePlan& plan, std::size_t count) {
  std::vector<GridPoint> sorted = plan.points;
  std::ranges::stable_sort(sorted, {}, &GridPoint::tokens);
  std::vector<GridPoint> chosen;
  for (std::size_t i = 0; i < std::min(count, sorted.size()); ++i) {
    // The middle of each of `count` equal parts.
    chosen.push_back(sorted[(2 * i + 1) * sorted.size() / (2 * std::min(count, sorted.size()))]);
  }
  return chosen;
}

CheckResult check_profile(const Profile& profile,
                          const BackendFactory& factory,
                          const ProgressCallback& on_progress) {
  const MeasurePlan plan = plan_of_profile(profile);
  const ProfileCostModel costs(profile);
  const Now measured = measure_now(plan, factory, on_progress);
  const SampleSet& now = measured.samples;
  CheckResult result;
  result.device = measured.device;
  std::map<OpClass, CheckRow> rows;
  for (const OpSample& sample : now.ops) {
    CheckRow& row = rows[sample.op.op_class];
    const double predicted = costs.op(sample.op, sample.batch).seconds * sample.per_step;
    row.op_class = sample.op.op_class;
    row.predicted += predicted;
    row.measured += sample.seconds * sample.per_step;
    result.predicted_steps += predicted;
  }
  result.rows = mapped(rows, [](const auto& row) { return row.second; });
  for (const JitterSample& point : now.jitter) {
    result.measured_steps += median(point.step_seconds);
  }
  const std::vector<double> sentinels = mapped(now.sentinels, &SentinelSample::seconds);
  result.sentinel_seconds = median(sentinels);
  result.profile_sentinel_seconds = profile.noise.sentinel_seconds;
  const double noise = std::max(profile.noise.step_jitter, profile.noise.drift);
  result.tolerance = std::max(0.05, 2 * noise);
  result.points = static_cast<int>(now.jitter.size());
  return result;
}

std::string check_report(const Profile& profile, const CheckResult& result, const Screen& screen) {
  Table table({"op", "profile", "now", "ratio"});
  const auto add = [&table](std::string_view name, double predicted, double measured) {
    table.add({std::string(name),
               format_duration(predicted),
               format_duration(measured),
               fmt::format("{:.3f}", predicted > 0 ? measured / predicted : 0.0)});
  };
  for (const CheckRow& row : result.rows) {
    add(name_of(row.op_class), row.predicted, row.measured);
  }
  add(fmt::format("{} steps", result.points), result.predicted_steps, result.measured_steps);
  if (result.profile_sentinel_seconds > 0) {
    add("sentinel step", result.profile_sentinel_seconds, result.sentinel_seconds);
  }
  std::string text = table.text(screen);
  fmt::format_to(std::back_inserter(text),
                 "\nprofile {} {}: steps take {:+.1f} % (allowed: {:.1f} %)\n",
                 profile.name,
                 result.fits() ? "fits" : "does not fit: recalibrate",
                 (result.ratio() - 1) * 100,
                 result.tolerance * 100);
  if (result.device != profile.device) {
    fmt::format_to(std::back_inserter(text),
                   "it was measured on another device: {}; this is: {}\n",
                   printable(profile.device),
                   printable(result.device));
  }
  return text;
}

}  // namespace stepsim
