#include "sim/report/sweep/sweep_training.h"

#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "costmodel/base/mapped.h"
#include "costmodel/terminal/paint.h"
#include "costmodel/terminal/table.h"
#include "sim/report/columns.h"
#include "sim/report/number_text.h"
#include "sim/report/sweep/sweep_columns.h"
#include "sim/report/sweep/sweep_report.h"
#include "sim/study/training/training_cost.h"

namespace stepsim {

namespace {

/// A cluster, and what is to be trained there.
struct TrainingRow {
  const TrainingCost* cost;
  const TrainingGoal* goal;
};

Cell known(const std::optional<double>& value) {
  return value ? Cell(*value) : Cell();
}

std::string shown(const std::optional<double>& value) {
  constexpr int kDigits = 4;
  return value ? figure_text(*value, kDigits) : "";
}

bool has_goal(std::span<const TrainingRow> rows) {
  return !rows.empty() && (rows.front().goal->samples || rows.front().goal->tokens);
}

bool has_price(std::span<const TrainingRow> rows) {
  return has_goal(rows) && rows.front().goal->price;
}

// clang-format off
const Column<TrainingRow> kTrainingColumns[] = {
    {"ranks", nullptr, [](const TrainingRow& r) -> Cell { return std::int64_t{r.cost->ranks}; },
     "ranks", FigureFormat::Whole, 10},
    {"samples_per_s", nullptr, [](const TrainingRow& r) -> Cell { return r.cost->samples_per_s; },
     "samples/s", FigureFormat::Tenths, 20},
    {"samples_per_s_interval90/0", nullptr,
     [](const TrainingRow& r) -> Cell { return r.cost->samples_per_s_low90; },
     "90 % interval", FigureFormat::TenthsInterval, 30,
     [](const TrainingRow& r) -> Cell { return r.cost->samples_per_s_high90; }, true, nullptr, false, if_wide<TrainingRow>},
    {"samples_per_s_interval90/1", nullptr,
     [](const TrainingRow& r) -> Cell { return r.cost->samples_per_s_high90; }},
    {"samples_per_s_per_rank", nullptr, [](const TrainingRow& r) -> Cell { return r.cost->per_rank; },
     "per rank", FigureFormat::Hundredths, 40, nullptr, true, nullptr, false, if_wide<TrainingRow>},
    {"efficiency", nullptr, [](const TrainingRow& r) -> Cell { return r.cost->efficiency; },
     "efficiency", FigureFormat::WholePercent, 50},
    {"efficient", nullptr,
     [](const TrainingRow& r) -> Cell { return std::string(r.cost->efficient ? "efficient" : ""); },
     "frontier", FigureFormat::Words, 90},
    {"hours", nullptr, [](const TrainingRow& r) -> Cell { return known(r.cost->hours); }},
    {nullptr, nullptr, [](const TrainingRow& r) -> Cell { return r.cost->hours ? hours_text(*r.cost->hours) : ""; },
     "training", FigureFormat::Words, 60, nullptr, true, has_goal},
    {"rank_hours", nullptr, [](const TrainingRow& r) -> Cell { return known(r.cost->rank_hours); }},
    {nullptr, nullptr, [](const TrainingRow& r) -> Cell { return shown(r.cost->rank_hours); },
     "GPU-hours", FigureFormat::Words, 70, nullptr, true, has_goal},
    {"money", nullptr, [](const TrainingRow& r) -> Cell { return known(r.cost->money); }},
    {nullptr, nullptr, [](const TrainingRow& r) -> Cell { return r.cost->money ? fmt::format("{:.2f}", *r.cost->money) : ""; },
     "cost", FigureFormat::Words, 80, nullptr, true, has_price},
};
// clang-format on

/// "within what others reach"
std::string scaling_verdict(const ScalingComparison& scaling, double least, double most) {
  const bool is_less = scaling.efficiency < least;
  if (!is_less && scaling.efficiency <= most) {
    return "within what others reach";
  }
  const bool is_sure = is_less ? scaling.high90 < least : scaling.low90 > most;
  return fmt::format("{} than others reach{}",
                     is_less ? "less" : "more",
                     is_sure ? "" : ", though its interval holds that, too");
}

/// How the job scales beside published ones; empty where there are none.
std::string scaling_text(const ScalingComparison& scaling, const Screen& screen) {
  if (scaling.published.empty()) {
    return "";
  }
  Table table({"published job", "GPUs", "efficiency", "source"});
  for (const PublishedScaling& row : scaling.published) {
    table.add({fmt::format("{}, {}", row.job, row.sharding),
               fmt::format("{} -> {} {}", row.from_gpus, row.gpus, row.gpu),
               fmt::format("{:.0f} %", 100 * row.efficiency),
               row.source.substr(0, row.source.find('@'))});
  }
  const auto [least, most] =
      std::ranges::minmax(scaling.published, {}, &PublishedScaling::efficiency);
  const std::string sentence = fmt::format(
      "Is that normal? From {} to {} ranks this job keeps {:.0f} % of its samples/s a rank (90 % "
      "interval {:.0f} to {:.0f} %), the published jobs nearest to it {:.0f} to {:.0f} %: {}. They "
      "are nearest in model size, GPUs and growth; models and machines are others.",
      scaling.job.from_ranks,
      scaling.job.ranks,
      100 * scaling.efficiency,
      100 * scaling.low90,
      100 * scaling.high90,
      100 * least.efficiency,
      100 * most.efficiency,
      scaling_verdict(scaling, least.efficiency, most.efficiency));
  return fmt::format("\n{}\n\n{}", sentence, table.text(screen));
}

Json scaling_json(const ScalingComparison& scaling) {
  return {{"from_ranks", scaling.job.from_ranks},
          {"ranks", scaling.job.ranks},
          {"efficiency", scaling.efficiency},
          {"efficiency_interval90", {scaling.low90, scaling.high90}},
          {"published", mapped(scaling.published, [](const PublishedScaling& row) -> Json {
             return {{"job", row.job},
                     {"parameters", row.parameters},
                     {"gpu", row.gpu},
                     {"sharding", row.sharding},
                     {"from_gpus", row.from_gpus},
                     {"gpus", row.gpus},
                     {"efficiency", row.efficiency},
                     {"source", row.source},
                     {"date", row.date}};
           })}};
}

}  // namespace

std::string training_text(const std::vector<SweepAxis>& axes,
                          const SweepReport& report,
                          const Screen& screen) {
  std::vector<TrainingRow> rows;  // Of points that were predicted and fit into memory.
  std::vector<std::vector<std::string>> labels;
  for (std::size_t i = 0; i < report.training.size(); ++i) {
    if (report.training[i].per_rank > 0) {
      rows.push_back({&report.training[i], &report.goal});
      labels.push_back(labels_of(axes, report.rows[i].point));
    }
  }
  if (rows.empty()) {
    return "";
  }
  const Table table = table_of<TrainingRow>(
      kTrainingColumns, rows, screen, {}, mapped(axes, &SweepAxis::key), labels);
  const auto worth = largest_worth(report.training, report.goal);
  const std::string sentence =
      worth
          ? fmt::format("Largest cluster with an efficiency of {:.0f} %: {}, {:.1f} samples/s.",
                        100 * report.goal.efficiency,
                        place_of(axes, report.rows[*worth].point),
                        report.training[*worth].samples_per_s)
          : fmt::format("No cluster has an efficiency of {:.0f} %.", 100 * report.goal.efficiency);
  return fmt::format("{}\n{}\n{}",
                     table.text(screen),
                     painted(sentence, Paint::Strong, screen),
                     scaling_text(report.scaling, screen));
}

Json training_json(const std::vector<SweepAxis>& axes, const SweepReport& report) {
  const auto optional_number = [](const std::optional<double>& value) {
    return value ? Json(*value) : Json();
  };
  Json rows = mapped(report.training, [&](const TrainingCost& cost) {
    Json row = row_json<TrainingRow>(kTrainingColumns, {&cost, &report.goal});
    row["efficient"] = cost.efficient;
    for (const char* name : {"hours", "rank_hours", "money"}) {
      row[name] = row.value(name, Json());  // Null where it is not known.
    }
    return row;
  });
  const auto worth = largest_worth(report.training, report.goal);
  return {{"goal",
           {{"samples", optional_number(report.goal.samples)},
            {"tokens", optional_number(report.goal.tokens)},
            {"price_per_rank_hour", optional_number(report.goal.price)},
            {"efficiency", report.goal.efficiency}}},
          {"points", std::move(rows)},
          {"largest_worth", worth ? Json(place_of(axes, report.rows[*worth].point)) : Json()},
          {"scaling", report.scaling.published.empty() ? Json() : scaling_json(report.scaling)}};
}

}  // namespace stepsim
