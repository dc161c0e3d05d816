#include "sim/report/html/page_data.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include <nlohmann/json.hpp>

#include "costmodel/base/mapped.h"
#include "sim/predict/metrics.h"
#include "sim/report/blame_report.h"
#include "sim/report/glossary.h"
#include "sim/report/html/page_number.h"
#include "sim/report/prediction_columns.h"

namespace stepsim {

namespace {

/// [step] times of all steps without noise.
Json all_step_times(const Prediction& prediction) {
  return mapped(step_times(prediction.steps, 0),
                [](const auto& step) { return page_ms(step.second); });
}

/// [rank][step]
Json by_rank(const Prediction& prediction, std::int64_t RankStepResult::*member) {
  Json ranks = Json::array();
  for (const RankStepResult& row : prediction.steps) {
    while (ranks.size() <= static_cast<std::size_t>(row.rank)) {
      ranks.push_back(Json::array());
    }
    ranks[static_cast<std::size_t>(row.rank)].push_back(row.*member);
  }
  return ranks;
}

/// [step] bytes; empty when no row states its memory.
Json largest_memory(const Prediction& prediction) {
  std::map<int, double> mib;
  bool any = false;
  for (const RankStepResult& row : prediction.steps) {
    double& largest = mib[row.step];
    largest = std::max(largest, row.peak_memory_mib);
    any = any || row.peak_memory_mib > 0;
  }
  Json bytes = Json::array();
  if (any) {
    for (const auto& [step, largest] : mib) {
      bytes.push_back(static_cast<std::int64_t>(std::llround(largest * 0x1p20)));
    }
  }
  return bytes;
}

/// Formats an object as "gcc: 12.2, threads: 1" and other values as JSON; long ones are cut.
std::string provenance_text(const Json& value) {
  constexpr std::size_t kMax = 1000;
  std::string text;
  if (value.is_string()) {
    text = value.get<std::string>();
  } else if (value.is_object()) {
    for (const auto& [key, member] : value.items()) {
      text += (text.empty() ? "" : ", ") + key + ": ";
      text += member.is_string() ? member.get<std::string>() : member.dump();
    }
  } else {
    text = value.dump();
  }
  return text.size() > kMax ? text.substr(0, kMax) + "…" : text;
}

Json profile_rows(const Profile& profile, const std::string& path) {
  Json rows = Json::array();
  const auto add = [&rows](const std::string& name, const std::string& text) {
    if (!text.empty()) {
      // A braced list of two texts would become an object with one member.
      rows.push_back(Json::array({name, text}));
    }
  };
  add("profile", profile.name);
  add("file", path);
  add("device", profile.device);
  add("backend", profile.backend);
  if (profile.provenance->is_object()) {
    for (const auto& [name, value] : profile.provenance->items()) {
      add(name, provenance_text(value));
    }
  }
  return rows;
}

}  // namespace

Json page_data(const Scenario& scenario, const Profile& profile, PageContent content) {
  return {{"format", "stepsim-page/2"},
          {"version", std::move(content.version)},
          {"made", std::move(content.made)},
          {"kind", std::move(content.kind)},
          {"command", std::move(content.command)},
          {"question", scenario.question},
          {"headline", std::move(content.headline)},
          {"recommended", std::move(content.recommended)},
          {"references", std::move(content.references)},
          {"glossary", glossary_json()},
          {"columns", page_columns<PredictionSummary>(summary_columns(), {})},
          {"sweep_columns", std::move(content.sweep_columns)},
          {"scenario",
           {{"file", scenario.path},
            {"name", scenario.name},
            {"text", scenario.text},
            {"model", scenario.model.name},
            {"ranks", scenario.ranks},
            {"steps", scenario.steps},
            {"warmup_steps", scenario.warmup_steps}}},
          {"profile", profile_rows(profile, content.profile_path)},
          {"warnings", std::move(content.warnings)},
          {"result", std::move(content.result)},
          {"timelines", std::move(content.timelines)},
          {"series", std::move(content.series)},
          {"blame", std::move(content.blame)}};
}

Json series_json(const Prediction& prediction, int warmup_steps) {
  Json series = {{"policy", prediction.policy},
                 {"warmup_steps", warmup_steps},
                 {"step_ms", all_step_times(prediction)},
                 {"useful", by_rank(prediction, &RankStepResult::useful_tokens)},
                 {"padded", by_rank(prediction, &RankStepResult::padded_tokens)}};
  if (prediction.shapes) {
    series["lost_ms"] = mapped(prediction.shapes->lost_ms, page_ms);
    series["shapes"] = prediction.shapes->distinct;
  }
  Json memory = largest_memory(prediction);
  if (!memory.empty()) {
    series["memory_bytes"] = std::move(memory);
  }
  return series;
}

Json measured_series_json(const Prediction& prediction,
                          const PolicyValidation& measured,
                          int warmup_steps) {
  Json series = series_json(prediction, warmup_steps);
  Json times = Json::array();
  const int steps = static_cast<int>(series["step_ms"].size());
  for (int step = 0; step < steps; ++step) {
    const auto found = measured.measured_by_step.find(step);
    times.push_back(found == measured.measured_by_step.end() ? Json(nullptr)
                                                             : Json(page_ms(found->second)));
  }
  series["measured_ms"] = std::move(times);
  return series;
}

Json page_blame_json(const Blame& blame) {
  Json rows = Json::array();
  for (const Saving& saving : shown_savings(blame)) {
    Json row = Json::array({saving_words(saving)});
    if (saving.not_priced.empty()) {
      row.push_back(page_ms(saving.saves_ms));
    } else {
      row.push_back(nullptr);
      row.push_back(saving.not_priced);
    }
    rows.push_back(std::move(row));
  }
  return {{"policy", blame.policy}, {"step_ms", page_ms(blame.step_ms)}, {"rows", std::move(rows)}};
}

}  // namespace stepsim
