#include "sim/cli/validate_step_times.h"

#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "costmodel/base/mapped.h"
#include "costmodel/terminal/progress.h"
#include "costmodel/terminal/table.h"
#include "sim/study/step_time_check.h"

namespace stepsim {
namespace {

constexpr double kPerCent = 100;
constexpr double kMs = 1e3;

double mean_error(const std::vector<StepTimeCheckRow>& rows) {
  double sum = 0;
  for (const StepTimeCheckRow& row : rows) {
    sum += std::abs(row.error());
  }
  return sum / static_cast<double>(rows.size());
}

std::string rows_text(const StepTimeTable& table,
                      const std::vector<StepTimeCheckRow>& rows,
                      const Screen& screen) {
  Table text({"row", "measured ms", "predicted ms", "90 % interval", "error", "in interval"});
  for (const StepTimeCheckRow& row : rows) {
    text.add({configuration_of(row.measured, table.has_lengths),
              fmt::format("{:.2f}", kMs * row.measured.step_s),
              fmt::format("{:.2f}", kMs * row.step_s),
              fmt::format("{:.1f} to {:.1f}", kMs * row.low90_s, kMs * row.high90_s),
              fmt::format("{:+.1f} %", kPerCent * row.error()),
              row.covered() ? "yes" : "no"},
             row.covered() ? Paint::Plain : Paint::Bad);
  }
  return text.text(screen);
}

std::string groups_text(const std::vector<StepTimeCheckRow>& rows, const Screen& screen) {
  Table text({"rows on", "rows", "mean |error|", "bias", "in interval", "exposed ms", "off by ms"});
  for (const StepTimeGroup& group : step_time_groups(rows)) {
    const bool states = group.exposed_s != 0;
    text.add({group.name,
              fmt::format("{}", group.rows),
              fmt::format("{:.1f} %", kPerCent * group.error),
              fmt::format("{:+.1f} %", kPerCent * group.bias),
              fmt::format("{:.0f} %", kPerCent * group.covered),
              states ? fmt::format("{:.1f}", kMs * group.exposed_s) : "-",
              states ? fmt::format("{:.1f}", kMs * group.exposed_error_s) : "-"});
  }
  return text.text(screen);
}

Json check_json(const std::vector<StepTimeCheckRow>& rows) {
  Json points = Json::array();
  for (const StepTimeCheckRow& row : rows) {
    Json point = {{"line", row.measured.line},
                  {"placement", text_of(row.measured.placement)},
                  {"batch", row.measured.batch},
                  {"length", row.measured.length},
                  {"micro_batches", row.measured.micro_batches},
                  {"measured_s", row.measured.step_s},
                  {"predicted_s", row.step_s},
                  {"interval90_s", {row.low90_s, row.high90_s}}};
    for (const MeanInterval& one : row.intervals) {
      point[fmt::format("interval{}_s", one.percent)] = {one.low / kMs, one.high / kMs};
    }
    point["error"] = row.error();
    point["covered"] = row.covered();
    point["exposed_s"] = row.exposed_s;
    points.push_back(std::move(point));
  }
  Json groups = Json::array();
  for (const StepTimeGroup& group : step_time_groups(rows)) {
    groups.push_back({{"name", group.name},
                      {"rows", group.rows},
                      {"mean_absolute_error", group.error},
                      {"bias", group.bias},
                      {"covered", group.covered},
                      {"exposed_s", group.exposed_s},
                      {"exposed_error_s", group.exposed_error_s}});
  }
  return {{"format", "stepsim-step-times/1"},
          {"mean_absolute_error", mean_error(rows)},
          {"groups", std::move(groups)},
          {"rows", std::move(points)}};
}

std::string check_csv(const std::vector<StepTimeCheckRow>& rows) {
  std::string text =
      "placement,batch,length,measured_s,predicted_s,low90_s,high90_s,error,covered,exposed_s";
  for (const MeanInterval& one : rows.front().intervals) {
    if (one.percent != 90) {
      text += fmt::format(",low{0}_s,high{0}_s", one.percent);
    }
  }
  text += ",micro_batches\n";
  for (const StepTimeCheckRow& row : rows) {
    text += fmt::format("{},{},{},{},{},{},{},{},{},{}",
                        text_of(row.measured.placement),
                        row.measured.batch,
                        row.measured.length,
                        row.measured.step_s,
                        row.step_s,
                        row.low90_s,
                        row.high90_s,
                        row.error(),
                        row.covered() ? 1 : 0,
                        row.exposed_s);
    for (const MeanInterval& one : row.intervals) {
      if (one.percent != 90) {
        text += fmt::format(",{},{}", one.low / kMs, one.high / kMs);
      }
    }
    text += fmt::format(",{}\n", row.measured.micro_batches);
  }
  return text;
}

}  // namespace

Answer validate_step_times(const Scenario& scenario, const std::string& step_times, double bound) {
  const StepTimeTable table = read_step_times(step_times);
  Progress progress("predicting");
  const auto rows = check_step_times(scenario, table, progress.callback());
  progress.done();
  const double error = mean_error(rows);
  constexpr std::size_t kMostShown = 60;
  Answer answer;
  answer.status = error <= bound ? kDone : kAnswerIsNo;
  answer.text = [=](const Screen& screen) {
    const std::string listed = rows.size() > kMostShown
                                   ? fmt::format("{} rows; --csv FILE has them all\n", rows.size())
                                   : rows_text(table, rows, screen);
    return fmt::format("{}\n{}\nmean |error| {:.1f} %, {} the bound of {:g} %\n",
                       listed,
                       groups_text(rows, screen),
                       kPerCent * error,
                       error <= bound ? "within" : "above",
                       kPerCent * bound);
  };
  answer.json = [=] { return check_json(rows); };
  answer.csv = [=] { return check_csv(rows); };
  return answer;
}

}  // namespace stepsim
