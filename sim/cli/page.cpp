#include "sim/cli/page.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <set>
#include <utility>

#include <nlohmann/json.hpp>

#include "costmodel/base/mapped.h"
#include "costmodel/base/parse_units.h"
#include "costmodel/base/utc_time.h"
#include "sim/predict/predict.h"
#include "sim/predict/run/run.h"
#include "sim/predict/scenario_profile.h"
#include "sim/predict/step_picture.h"
#include "sim/report/html/page.h"
#include "sim/report/html/timeline_data.h"
#include "sim/report/json.h"
#include "sim/report/notes.h"
#include "sim/report/text.h"
#include "sim/study/bucket_cap_sweep.h"
#include "sim/study/recommendation.h"

namespace stepsim {

namespace {

std::string made_at() {
  // https://reproducible-builds.org/specs/source-date-epoch/
  const char* epoch = std::getenv("SOURCE_DATE_EPOCH");
  const std::int64_t now =
      std::chrono::floor<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch())
          .count();
  return utc_text(epoch != nullptr ? std::strtoll(epoch, nullptr, 10) : now);
}

/// How a policy's median step is drawn under settings.
SweepOptions picture_options(Jobs& jobs,
                             const std::string& policy,
                             const std::vector<Setting>& settings,
                             const Prediction& prediction) {
  SweepOptions options;
  options.policy = policy;
  options.settings = settings;
  const int warmup_steps = jobs.base().warmup_steps;
  if (!prediction.steps.empty()) {
    options.picture_of_step = median_step(prediction, warmup_steps);
    return options;
  }
  PredictOptions with_rows;  // Those of a sweep's points were not kept.
  with_rows.noise_runs = 0;
  with_rows.rows = KeptRows::Rows;
  options.picture_of_step =
      median_step(predict(jobs.job(policy, settings), with_rows), warmup_steps);
  return options;
}

void add(const std::vector<CapPoint>& caps, Bytes memory_capacity, PageContent& content) {
  for (Json& timeline : cap_timelines_json(caps, memory_capacity, content.warnings)) {
    content.timelines.push_back(std::move(timeline));
  }
}

/// Whether draws of a policy are played all at once, and no op is drawn by itself. Else a page
/// shows its times without noise.
bool draws_are_quick(Jobs& jobs, const std::string& policy) {
  Run run(jobs.job(policy, {}));
  return run.reduced().plain() ||
         (run.reduced().draws_in_lockstep() && jobs.base().noise.op_jitter == 0);
}

/// Timelines of a sweep; the best one may come on top.
constexpr std::size_t kMaxTimelines = 24;

/// The numbers of the points whose timelines are drawn: evenly spaced ones and the best.
std::vector<std::size_t> drawn_points(std::size_t count, std::size_t best) {
  std::set<std::size_t> drawn = {best};
  for (std::size_t i = 0; i < std::min(count, kMaxTimelines); ++i) {
    drawn.insert(count <= kMaxTimelines ? i : i * (count - 1) / (kMaxTimelines - 1));
  }
  return {drawn.begin(), drawn.end()};
}

/// Draws the scenario as it stands among bucket caps that are swept without its own.
void add_own_cap(Jobs& jobs,
                 const SweepReport& report,
                 const SweepOptions& options,
                 PageContent& content) {
  const SweepPoint point = sweep(jobs, {}, options).front();
  if (!point.picture || !report.reference.not_priced.empty()) {
    return;
  }
  const Bytes own = jobs.base().ddp.bucket_cap;
  const auto larger = std::ranges::find_if(
      content.timelines, [&](const Json& timeline) { return timeline["cap_bytes"] > own.value(); });
  TimelineLabel label =
      labelled(report.reference.prediction, format_bytes(own), report.memory_capacity);
  label.is_own = true;
  content.timelines.insert(larger, timeline_json(label, *point.picture));
}

}  // namespace

PageContent page_content(const Request& request, const Scenario& scenario) {
  PageContent content;
  content.kind = request.command.substr(request.command.find(' ') + 1);
  content.version = STEPSIM_VERSION;
  content.made = made_at();
  content.command = request.command_line({"threads", "resume", "shard"});
  content.profile_path = request.scenario.profile.value_or(scenario.profile);
  for (const BatchingPolicy& policy : scenario.policies) {
    if (policy.is_reference()) {
      content.references.push_back(policy.name());
    }
  }
  return content;
}

void add_bucket_cap_sweep(Jobs& jobs, const Prediction& prediction, PageContent& content) {
  SweepOptions options = picture_options(jobs, prediction.policy, {}, prediction);
  if (draws_are_quick(jobs, prediction.policy)) {
    options.noise_runs = PredictOptions().noise_runs;  // For the interval of each point.
  }
  add(bucket_cap_sweep(jobs, options), jobs.profile(jobs.base())->memory_capacity, content);
}

void add_timeline(Jobs& jobs,
                  const std::vector<Setting>& settings,
                  const Prediction& prediction,
                  PageContent& content) {
  SweepPoint point =
      sweep(jobs, {}, picture_options(jobs, prediction.policy, settings, prediction)).front();
  if (draws_are_quick(jobs, prediction.policy)) {
    point.prediction.summary = prediction.summary;  // As the table has it, with noise.
  }
  add({{jobs.scenario(settings).ddp.bucket_cap, true, std::move(point)}}, Bytes(0), content);
}

void add_sweep(Jobs& jobs, const SweepAxis& axis, const SweepReport& report, PageContent& content) {
  const std::vector<std::size_t> drawn = drawn_points(axis.values.size(), report.best);
  // The step that is drawn is the reference's median one, or the best point's where that is
  // refused.
  const bool has_reference = report.reference.not_priced.empty();
  const Prediction& shown =
      has_reference ? report.reference.prediction : report.rows[report.best].point.prediction;
  const std::vector<Setting> of_shown =
      has_reference ? std::vector<Setting>() : std::vector<Setting>{axis.values[report.best]};
  SweepOptions of_drawn = picture_options(jobs, shown.policy, of_shown, shown);
  of_drawn.skips_unpriced = true;
  const std::vector<SweepPoint> points = sweep(
      jobs, {{axis.key, mapped(drawn, [&](std::size_t i) { return axis.values[i]; })}}, of_drawn);
  const bool over_caps = axis.key == "ddp.bucket_cap";
  bool has_own = false;
  for (std::size_t i = 0; i < points.size(); ++i) {
    const std::optional<StepPicture>& picture = points[i].picture;
    if (!picture || report.rows[drawn[i]].is_blank()) {
      continue;  // It cannot be priced.
    }
    const SweepPoint& stated = report.rows[drawn[i]].point;
    TimelineLabel label =
        labelled(stated.prediction, axis.values[drawn[i]].value_text(), report.memory_capacity);
    label.is_best = drawn[i] == report.best && any_fits(report);
    label.is_own = over_caps && picture->bucket_cap == jobs.base().ddp.bucket_cap;
    label.point = drawn[i];
    has_own = has_own || label.is_own;
    content.timelines.push_back(timeline_json(label, *picture));
  }
  if (over_caps && !has_own) {
    add_own_cap(jobs, report, of_drawn, content);
  }
}

void add_blame(const Job& job, PageContent& content) {
  constexpr int kMaxBlameRanks = 8;
  content.blame.push_back(page_blame_json(blame(job, kMaxBlameRanks)));
}

Json page_result(const std::vector<Prediction>& predictions) {
  constexpr std::size_t kMaxRows = 2000;
  const std::size_t rows =
      sum_of(predictions, [](const Prediction& prediction) { return prediction.steps.size(); });
  return prediction_json(predictions, rows <= kMaxRows ? StepRows::All : StepRows::None);
}

std::string compare_page(PageContent content,
                         Jobs& jobs,
                         const std::vector<Prediction>& predictions,
                         const Json& answers,
                         const std::string& kept,
                         const std::string& headline) {
  const Scenario& scenario = jobs.base();
  content.result = page_result(predictions);
  content.result.update(answers);
  content.headline = headline.empty() ? recommendation_text(scenario, predictions) : headline;
  content.warnings = note_texts(predictions);
  const Prediction* best = recommended(scenario, predictions, kept);
  content.recommended = best != nullptr ? best->policy : "";
  for (const Prediction& prediction : predictions) {
    content.series.push_back(series_json(prediction, scenario.warmup_steps));
    if (&prediction == best) {
      add_bucket_cap_sweep(jobs, prediction, content);
      add_blame(jobs.job(prediction.policy, {}), content);
    } else {
      add_timeline(jobs, {}, prediction, content);
    }
  }
  return page_text(page_data(scenario, *jobs.profile(scenario), std::move(content)));
}

}  // namespace stepsim
