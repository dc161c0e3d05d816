#include "sim/report/shape_report.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "costmodel/base/mapped.h"
#include "costmodel/terminal/table.h"
#include "sim/report/number_text.h"
#include "sim/study/shape_payback.h"

namespace stepsim {
namespace {

/// A part of the building that is hidden and worth a word.
constexpr double kHiddenToTell = 0.2;

std::string payback_text(const ShapePayback& payback, std::size_t steps) {
  if (payback.is_reference) {
    return "-";
  }
  if (payback.steps) {
    return *payback.steps == 1 ? "from the first step" : fmt::format("{} steps", *payback.steps);
  }
  return payback.slower_warm ? "never: slower anyway" : fmt::format("more than {} steps", steps);
}

std::vector<std::string> row_of(const Prediction& prediction, const ShapePayback& payback) {
  const ShapeSummary& shapes = *prediction.shapes;
  const double lost = sum_of(shapes.lost_ms);
  const double run = sum_of(shapes.step_ms);
  return {prediction.policy,
          std::to_string(shapes.distinct.empty() ? 0 : shapes.distinct.back()),
          std::to_string(shapes.builds),
          std::to_string(shapes.stalled_steps),
          fmt::format("{:.3f}", lost / 1e3),
          percent(run > 0 ? lost / run : 0),
          fmt::format("{:.3f}", shapes.warm_ms),
          fmt::format("{:.3f}", shapes.run_ms),
          shapes.epoch ? fmt::format("{:.3f}", shapes.epoch->step_ms) : "-",
          shapes.epoch ? std::to_string(shapes.epoch->steps) : "-",
          fmt::format("{:.3f}", shapes.warm_up_seconds),
          payback_text(payback, shapes.step_ms.size())};
}

}  // namespace

std::string shape_text(std::span<const Prediction> predictions, const Screen& screen) {
  const std::vector<ShapePayback> paybacks = shape_paybacks(predictions);
  if (paybacks.empty()) {
    return "";
  }
  const auto reference = std::ranges::find_if(paybacks, &ShapePayback::is_reference);
  const std::string& name =
      predictions[static_cast<std::size_t>(reference - paybacks.begin())].policy;
  const ShapeSummary& any = *predictions.front().shapes;
  Table table({"policy",
               "shapes",
               "first meetings",
               "stalled steps",
               "lost s",
               "of the run",
               "warm step ms",
               fmt::format("first {} steps ms", any.step_ms.size()),
               "epoch's step ms",
               "steps",
               "warm-up s",
               "as fast as " + name + " after"});
  for (std::size_t i = 0; i < predictions.size(); ++i) {
    table.add(row_of(predictions[i], paybacks[i]));
  }
  std::string text = fmt::format(
      "\nnew shapes ({}): what the first meeting of a shape costs, from step 0 on; the step with "
      "all shapes known, over the first {} steps and over an epoch\n\n{}",
      fmt::join(any.mechanisms, ", "),
      any.step_ms.size(),
      table.text(screen));
  if (any.warmed_up) {
    text +=
        "Every rank meets its shapes before the first step, which takes the seconds of "
        "\"warm-up s\" and the passes themselves.\n";
  }
  const double hidden = max_of(
      predictions, [](const Prediction& prediction) { return prediction.shapes->hidden; }, 0.0);
  if (hidden > kHiddenToTell) {
    text += fmt::format(
        "warning: up to {} of the building is hidden, because the host runs ahead of the device; "
        "where training reads the loss every step, say host.step_sync = true, and say "
        "host.launch, what one kernel launch takes\n",
        percent(hidden));
  }
  for (const Prediction& prediction : predictions) {
    if (prediction.shapes->gave_up) {
      text += fmt::format(
          "warning: with {} the compiler meets its limit of graphs and runs uncompiled from "
          "there\n",
          prediction.policy);
    }
  }
  return text;
}

std::string cures_text(const std::vector<Prediction>& predictions,
                       const std::vector<ShapeCure>& cures) {
  if (cures.empty()) {
    return "";
  }
  std::string text = "\nthe cheapest cure over an epoch from a cold start\n\n";
  Table table({"policy", "step ms", "cured ms", "key"});
  for (std::size_t i = 0; i < cures.size(); ++i) {
    const ShapeCure& cure = cures[i];
    table.add({predictions[i].policy,
               fmt::format("{:.3f}", cure.now_ms),
               fmt::format("{:.3f}", cure.cured_ms),
               cure.key.empty() ? "none is better" : cure.key});
  }
  return text + table.text() + "All ways to pad: stepsim ladder\n";
}

Json cures_json(const std::vector<Prediction>& predictions, const std::vector<ShapeCure>& cures) {
  Json json = Json::array();
  for (std::size_t i = 0; i < cures.size(); ++i) {
    json.push_back({{"policy", predictions[i].policy},
                    {"epoch_step_ms", cures[i].now_ms},
                    {"cured_step_ms", cures[i].cured_ms},
                    {"key", cures[i].key}});
  }
  return json;
}

Json shape_json(const ShapeSummary& summary) {
  Json json = {{"mechanisms", summary.mechanisms},
               {"shapes", summary.distinct.empty() ? 0 : summary.distinct.back()},
               {"first_meetings", summary.builds},
               {"stalled_steps", summary.stalled_steps},
               {"lost_ms", sum_of(summary.lost_ms)},
               {"warm_step_ms", summary.warm_ms},
               {"run_step_ms", summary.run_ms},
               {"warm_up_s", summary.warm_up_seconds},
               {"hidden", summary.hidden},
               {"warmed_up", summary.warmed_up}};
  if (summary.epoch) {
    json["epoch"] = {{"steps", summary.epoch->steps},
                     {"first_meetings", summary.epoch->builds},
                     {"stalled_steps", summary.epoch->stalled_steps},
                     {"step_ms", summary.epoch->step_ms}};
  }
  json["lost_ms_by_step"] = summary.lost_ms;
  json["shapes_by_step"] = summary.distinct;
  return json;
}

}  // namespace stepsim
