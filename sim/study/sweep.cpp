#include "sim/study/sweep.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include <fmt/core.h>

#include "costmodel/base/input_error.h"
#include "costmodel/base/mapped.h"
#include "costmodel/base/parse_number.h"
#include "costmodel/base/parse_units.h"
#include "costmodel/base/trimmed.h"
#include "costmodel/records/profile.h"
#include "costmodel/records/profile_cost_model.h"
#include "sim/points/setting_members.h"
#include "sim/predict/bucket_lists.h"
#include "sim/predict/predict.h"
#include "sim/predict/run/jobs.h"
#include "sim/predict/scenario_profile.h"
#include "sim/study/price_source.h"
#include "sim/study/sweep_members.h"

namespace stepsim {

namespace {

constexpr std::size_t kMaxValues = 10000;

[[noreturn]] void fail_axis(const std::string& text, const std::string& message) {
  throw InputError(SourcePlace{"--over " + text}, message);
}

/// The unit of a range's numbers.
struct RangeUnit {
  bool bytes = false;  ///< Each number has its own.
  std::string name;    ///< Of all others, as "ms"; empty: plain numbers.
};

/// "4 MiB", but not "4 GB/s".
bool has_byte_unit(const std::string& text) {
  return text.find('B') != std::string::npos && text.find('/') == std::string::npos;
}

NumberWithUnit number_of(const std::string& axis, const std::string& text) {
  const auto value = parse_number_with_unit(text);
  if (!value) {
    fail_axis(axis, "'" + printable(text) + "' is not a number");
  }
  return *value;
}

RangeUnit range_unit(const std::string& axis, const std::string& low, const std::string& high) {
  if (has_byte_unit(low) || has_byte_unit(high)) {
    return {true, ""};
  }
  const std::string of_low = number_of(axis, low).unit;
  const std::string of_high = number_of(axis, high).unit;
  if (!of_low.empty() && of_low != of_high) {
    fail_axis(axis,
              fmt::format("give both ends in one unit, not {} and {}",
                          printable(of_low),
                          of_high.empty() ? "none" : printable(of_high)));
  }
  return {false, of_high};
}

double value_of(const std::string& axis, const std::string& text, const RangeUnit& unit) {
  if (!unit.bytes) {
    const NumberWithUnit value = number_of(axis, text);
    if (!value.unit.empty() && value.unit != unit.name) {
      fail_axis(
          axis,
          unit.name.empty()
              ? "'" + printable(text) + "' is not a number"
              : fmt::format("'{}' is not in {}, as the range is", printable(text), unit.name));
    }
    return value.number;
  }
  try {
    return static_cast<double>(parse_bytes(text).value());
  } catch (const InputError& error) {
    fail_axis(axis, error.what());
  }
}

void add_value(SweepAxis& axis, const std::string& text, double value, const RangeUnit& unit) {
  if (axis.values.size() == kMaxValues) {
    fail_axis(text, "more than 10000 values");
  }
  if (unit.bytes) {
    const auto whole = static_cast<std::int64_t>(std::llround(value));
    axis.values.emplace_back(axis.key, Bytes(whole));
  } else {
    axis.values.emplace_back(axis.key,
                             fmt::format("{}{}{}", value, unit.name.empty() ? "" : " ", unit.name));
  }
}

void add_range(SweepAxis& axis, const std::string& text, const std::string& spec) {
  const std::size_t dots = spec.find("..");
  const std::size_t colon = spec.rfind(':');
  if (colon == std::string::npos || colon < dots || colon + 2 >= spec.size()) {
    fail_axis(text, "a range ends in its step: LOW..HIGH:x2 (times 2) or LOW..HIGH:+8 (plus 8)");
  }
  const std::string low_text = spec.substr(0, dots);
  const std::string high_text = spec.substr(dots + 2, colon - dots - 2);
  const RangeUnit unit = range_unit(text, low_text, high_text);
  const double low = value_of(text, low_text, unit);
  const double high = value_of(text, high_text, unit);
  const char kind = spec[colon + 1];
  const std::string step_text = spec.substr(colon + 2);
  if (kind != 'x' && kind != '+') {
    fail_axis(text, "a step is x2 (times 2) or +8 (plus 8)");
  }
  const double step = value_of(text, step_text, kind == '+' ? unit : RangeUnit());
  if (low > high) {
    fail_axis(text, "the range starts above its end");
  }
  if (kind == 'x' ? step <= 1 || low <= 0 : step <= 0) {
    fail_axis(text, "the step must make the value grow");
  }
  // The relative slack lets 0.1..0.5:+0.1 reach 0.5.
  const double last = high * (1 + 1e-12);
  double value = low;
  for (std::size_t i = 1; value <= last; ++i) {
    add_value(axis, text, value, unit);
    value = kind == 'x' ? value * step : low + step * static_cast<double>(i);
  }
}

/// The values of a list; commas inside of brackets and quotes belong to a value.
std::vector<std::string> listed_values(const std::string& text) {
  std::vector<std::string> values(1);
  int depth = 0;
  char quote = '\0';
  for (const char c : text) {
    if (c == ',' && depth == 0 && quote == '\0') {
      values.emplace_back();
      continue;
    }
    values.back() += c;
    if (quote != '\0') {
      quote = c == quote ? '\0' : quote;
    } else if (c == '"' || c == '\'') {
      quote = c;
    } else {
      depth += (c == '[' || c == '{' ? 1 : 0) - (c == ']' || c == '}' ? 1 : 0);
    }
  }
  return values;
}

/// What a point is computed from: all that differs between the points of one runner.
struct SweepTask {
  std::string policy;
  int noise_runs = 0;
  std::vector<Setting> set;
};

STEPSIM_MEMBERS(SweepTask, policy, noise_runs, set)

SweepPoint predict_point(Jobs& jobs, const SweepOptions& options, const SweepTask& task) {
  SweepPoint point;
  const Job job = jobs.job(task.policy, task.set);
  const Scenario& scenario = job.scenario();
  const Profile& profile = *job.profile();
  PredictOptions predict_options;
  predict_options.noise_runs = task.noise_runs;
  predict_options.paired_draws = true;
  predict_options.threads = 1;  // The points have the threads.
  predict_options.rows = options.picture_of_step ? KeptRows::Rows : KeptRows::None;
  if (options.picture_of_step) {
    predict_options.timeline_of_step = std::min(*options.picture_of_step, scenario.steps - 1);
  }
  point.prediction = predict(job, predict_options);
  point.ranks = scenario.ranks;
  point.op_source = op_source(scenario, profile, point.prediction);
  point.collective_source = collective_source(scenario, profile, point.prediction);
  const auto parameters = bucket_parameters(scenario.model);
  const BucketLists lists = bucket_lists(scenario);
  point.buckets = lists.rebuilt.size();
  const CollectivePricer pricer = scenario_pricer(scenario, profile);
  point.last_bucket_ms = pricer
                             .price(CollectiveKind::AllReduce,
                                    Bytes(bucket_bytes(lists.rebuilt.back(), parameters)),
                                    scenario.ranks,
                                    scenario.placement.nodes())
                             .cost.seconds *
                         1e3;
  if (const auto step = predict_options.timeline_of_step) {
    point.picture = step_picture(scenario, point.prediction, *step);
    point.prediction.timelines.clear();
    point.prediction.steps = std::vector<RankStepResult>();
  }
  return point;
}

SweepPoint point_or_reason(Jobs& jobs, const SweepOptions& options, const SweepTask& task) {
  try {
    return predict_point(jobs, options, task);
  } catch (const InputError& error) {
    if (!options.skips_unpriced) {
      throw;
    }
    SweepPoint point;
    point.not_priced = error.what();
    return point;
  }
}

/// Where the point of a number is on the axes.
std::vector<std::size_t> place_of(const std::vector<SweepAxis>& axes, std::size_t number) {
  std::vector<std::size_t> place(axes.size());
  for (std::size_t i = axes.size(); i-- > 0;) {
    place[i] = number % axes[i].values.size();
    number /= axes[i].values.size();
  }
  return place;
}

/// "ddp.bucket_cap = 4 MiB, cluster.ranks = 8"
std::string place_text(const std::vector<SweepAxis>& axes, const SweepPoint& point) {
  std::string text;
  for (std::size_t i = 0; i < axes.size(); ++i) {
    text += fmt::format(
        "{}{} = {}", i > 0 ? ", " : "", axes[i].key, axes[i].values[point.place[i]].value_text());
  }
  return text;
}

/// The task of a point; the last axis is set first.
SweepTask task_of(const std::vector<SweepAxis>& axes,
                  const SweepOptions& options,
                  const std::vector<std::size_t>& place) {
  SweepTask task{options.policy, options.noise_runs, options.settings};
  for (std::size_t i = axes.size(); i-- > 0;) {
    task.set.push_back(axes[i].values[place[i]]);
  }
  return task;
}

/// The tasks of all points of the axes.
std::vector<SweepTask> tasks_of(const Scenario& scenario,
                                const std::vector<SweepAxis>& axes,
                                const SweepOptions& options) {
  std::set<std::string> keys;
  for (const SweepAxis& axis : axes) {
    if (!keys.insert(axis.key).second) {
      throw InputError(SourcePlace{"--over " + printable(axis.key)},
                       "the key is given twice; list all of its values in one --over");
    }
    const bool one_cap = axis.key == "ddp.bucket_cap" || axis.key == "ddp.first_bucket_cap";
    if (one_cap && !scenario.ddp.bucket_caps.empty()) {
      throw InputError("{} has no effect beside ddp.bucket_caps; take the list out", axis.key);
    }
  }
  std::size_t count = 1;
  for (const SweepAxis& axis : axes) {
    count *= axis.values.size();
    if (count > kMaxValues) {
      throw InputError("a sweep of more than 10000 points; use fewer values");
    }
  }
  std::vector<SweepTask> tasks;
  for (std::size_t i = 0; i < count; ++i) {
    tasks.push_back(task_of(axes, options, place_of(axes, i)));
  }
  return tasks;
}

/// The tasks of all points, and last that of the scenario without the axes' values.
std::vector<SweepTask> tasks_with_reference(const Scenario& scenario,
                                            const std::vector<SweepAxis>& axes,
                                            const SweepOptions& options) {
  std::vector<SweepTask> tasks = tasks_of(scenario, axes, options);
  tasks.push_back({options.policy, options.noise_runs, options.settings});
  return tasks;
}

std::function<SweepPoint(const SweepTask&)> sweep_work(Jobs& jobs, const SweepOptions& options) {
  return [&](const SweepTask& task) { return point_or_reason(jobs, options, task); };
}

void set_places(const std::vector<SweepAxis>& axes, std::vector<SweepPoint>& points) {
  for (std::size_t i = 0; i < points.size(); ++i) {
    points[i].place = place_of(axes, i);
  }
}

}  // namespace

SweepAxis parse_sweep_axis(const std::string& text) {
  const std::size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0 || equals + 1 == text.size()) {
    fail_axis(text, "expected key=LOW..HIGH:x2 or key=value,value,…");
  }
  SweepAxis axis;
  axis.key = text.substr(0, equals);
  const std::string spec = text.substr(equals + 1);
  if (spec.find("..") != std::string::npos) {
    add_range(axis, text, spec);
    return axis;
  }
  for (const std::string& value : listed_values(spec)) {
    if (value.empty()) {
      fail_axis(text, "an empty value in the list");
    }
    if (axis.values.size() == kMaxValues) {
      fail_axis(text, "more than 10000 values");
    }
    axis.values.emplace_back(axis.key, std::string(trimmed(value)));
  }
  return axis;
}

std::string studied_policy(const Scenario& scenario,
                           const std::string& option,
                           const std::vector<std::string>& keys,
                           const std::string& named) {
  std::string studied = named;
  for (const std::string& key : keys) {
    const std::string owner = policy_of_key(scenario, key);
    if (owner.empty() || owner == studied) {
      continue;
    }
    if (!studied.empty()) {
      throw InputError(
          SourcePlace{option + " " + printable(key)},
          fmt::format("it has no effect on policy '{}', which is predicted; one policy "
                      "is predicted at a time",
                      printable(studied)));
    }
    studied = owner;
  }
  return find_policy(scenario, studied).name();
}

std::vector<SweepPoint> sweep(const Scenario& scenario,
                              const std::vector<SweepAxis>& axes,
                              const SweepOptions& options) {
  Jobs jobs(scenario, "--over");
  return sweep(jobs, axes, options);
}

std::vector<SweepPoint> sweep(Jobs& jobs,
                              const std::vector<SweepAxis>& axes,
                              const SweepOptions& options) {
  PointRunner runner({options.threads});
  std::vector<SweepPoint> points = runner.evaluate(
      tasks_of(jobs.base(), axes, options), sweep_work(jobs, options), options.on_progress);
  set_places(axes, points);
  return points;
}

void fail_all_refused(Jobs& jobs,
                      std::vector<SweepAxis> axes,
                      SweepOptions options,
                      const std::vector<SweepPoint>& points) {
  const auto is_first = [&](const SweepPoint& point) {
    return point.not_priced == points.front().not_priced;
  };
  if (std::ranges::all_of(points, is_first)) {
    options.skips_unpriced = false;
    for (SweepAxis& axis : axes) {
      axis.values.resize(1);
    }
    (void)sweep(jobs, axes, options);  // Says it with its place.
  }
  constexpr std::size_t kShown = 10;
  std::string text = fmt::format("all {} points are refused:", points.size());
  for (std::size_t i = 0; i < std::min(kShown, points.size()); ++i) {
    text += fmt::format("\n{}: {}", printable(place_text(axes, points[i])), points[i].not_priced);
  }
  throw InputError(text + (points.size() > kShown ? "\n…" : ""));
}

ReferencedSweep sweep_with_reference(Jobs& jobs,
                                     const std::vector<SweepAxis>& axes,
                                     const SweepOptions& options,
                                     PointRunner& runner) {
  ReferencedSweep swept;
  swept.points = runner.evaluate(tasks_with_reference(jobs.base(), axes, options),
                                 sweep_work(jobs, options),
                                 options.on_progress);
  swept.reference = std::move(swept.points.back());
  swept.points.pop_back();
  set_places(axes, swept.points);
  return swept;
}

std::size_t keep_sweep(Jobs& jobs,
                       const std::vector<SweepAxis>& axes,
                       const SweepOptions& options,
                       PointRunner& runner) {
  return runner.keep(tasks_with_reference(jobs.base(), axes, options),
                     sweep_work(jobs, options),
                     options.on_progress);
}

}  // namespace stepsim
