#include "sim/report/training_plan_report.h"

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "costmodel/base/mapped.h"
#include "costmodel/io/json_optional.h"
#include "costmodel/terminal/table.h"
#include "sim/report/number_text.h"

namespace stepsim {

namespace {

constexpr double kTera = 1e12;
constexpr double kGiga = 1e9;

/// The unit in which the fastest of them has a digit before the point.
bool is_in_giga(const std::vector<TrainingPlan>& plans) {
  return std::ranges::all_of(
      plans, [](const TrainingPlan& plan) { return plan.rank_flops.value_or(0) < kTera; });
}

}  // namespace

std::string training_plans_text(const std::vector<TrainingPlan>& plans,
                                const EpochGoal& goal,
                                const Screen& screen) {
  const bool has_flops = std::ranges::any_of(
      plans, [](const TrainingPlan& plan) { return plan.rank_flops.has_value(); });
  const bool has_mfu =
      std::ranges::any_of(plans, [](const TrainingPlan& plan) { return plan.mfu.has_value(); });
  if (!has_flops && !goal.is_given()) {
    return "";
  }
  const bool giga = is_in_giga(plans);
  const char* const unit = giga ? "GFLOP/s" : "TFLOP/s";
  std::vector<std::string> header = {"policy"};
  if (has_flops) {
    header.emplace_back(unit);
  }
  if (has_mfu) {
    header.emplace_back("MFU");
  }
  if (goal.is_given()) {
    header.insert(header.end(), {"training", "GPU-hours"});
  }
  if (goal.gpu_hour) {
    header.emplace_back("cost");
  }
  Table table(std::move(header));
  std::vector<TrainingPlan> fastest_first = plans;
  std::ranges::stable_sort(fastest_first, [](const TrainingPlan& a, const TrainingPlan& b) {
    return a.hours > 0 && (!(b.hours > 0) || a.hours < b.hours);
  });
  for (const TrainingPlan& plan : fastest_first) {
    std::vector<std::string> row = {plan.policy};
    if (has_flops) {
      row.push_back(plan.rank_flops ? figure_text(*plan.rank_flops / (giga ? kGiga : kTera), 3)
                                    : "-");
    }
    if (has_mfu) {
      row.push_back(plan.mfu ? fmt::format("{:.1f} %", *plan.mfu * 100) : "-");
    }
    if (goal.is_given()) {
      row.push_back(plan.hours > 0 ? hours_text(plan.hours) : "-");
      row.push_back(plan.hours > 0 ? figure_text(plan.gpu_hours, 4) : "-");
    }
    if (goal.gpu_hour) {
      row.push_back(plan.money ? fmt::format("{:.2f}", *plan.money) : "-");
    }
    table.add(std::move(row));
  }
  std::string title;
  if (has_flops) {
    title += fmt::format("{} of each rank: the model's, without padding and recomputation", unit);
  }
  if (goal.is_given()) {
    title += fmt::format("{}training of {:g} epoch{}",
                         title.empty() ? "" : "; ",
                         plans.front().epochs,
                         plans.front().epochs == 1 ? "" : "s");
  }
  return fmt::format("\n{}\n\n{}", title, table.text(screen));
}

Json training_plans_json(const std::vector<TrainingPlan>& plans) {
  return mapped(plans, [](const TrainingPlan& plan) -> Json {
    const bool runs = plan.hours > 0;
    return {{"policy", plan.policy},
            {"tflops_per_rank", plan.rank_flops ? Json(*plan.rank_flops / kTera) : Json()},
            {"mfu", or_null(plan.mfu)},
            {"epochs", plan.epochs},
            {"hours", runs ? Json(plan.hours) : Json()},
            {"gpu_hours", runs ? Json(plan.gpu_hours) : Json()},
            {"money", or_null(plan.money)}};
  });
}

}  // namespace stepsim
