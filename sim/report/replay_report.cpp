#include "sim/report/replay_report.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include <fmt/core.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "costmodel/base/mapped.h"
#include "costmodel/io/json_optional.h"
#include "costmodel/terminal/table.h"

namespace stepsim {

namespace {

constexpr std::size_t kWorstSteps = 5;

double us(Duration duration) {
  return static_cast<double>(duration.count()) * 1e-3;
}

std::string us_text(Duration duration) {
  return fmt::format("{:.1f}", us(duration));
}

std::string ms_text(double ms) {
  return fmt::format("{:.2f}", ms);
}

/// Replayed times are exact to a hundredth of a percent2, so these keep one more place.
std::string percent2(double fraction) {
  return fmt::format("{:.2f} %", 100 * fraction);
}

std::string signed_percent2(double fraction) {
  return fmt::format("{:+.2f} %", 100 * fraction);
}

double error_of(Duration replayed, Duration measured) {
  return to_ms(replayed) / to_ms(measured) - 1;
}

std::optional<double> error_of(const ReplayedRank& rank) {
  return rank.measured ? std::optional(error_of(rank.step, *rank.measured)) : std::nullopt;
}

double error_of(const ReplayedStep& step) {
  return error_of(step.replayed, step.measured);
}

ReplayError summary_of(const std::vector<double>& errors) {
  ReplayError result;
  for (const double error : errors) {
    result.mean_absolute += std::abs(error) / static_cast<double>(errors.size());
    result.bias += error / static_cast<double>(errors.size());
    result.worst = std::max(result.worst, std::abs(error));
  }
  return result;
}

std::string error_text(const ReplayError& error) {
  const char* direction = error.bias < 0 ? "early" : "late";
  return fmt::format("mean |error| {}, worst {}, bias {} ({})",
                     percent2(error.mean_absolute),
                     percent2(error.worst),
                     signed_percent2(error.bias),
                     direction);
}

Json error_json(const ReplayError& error) {
  return {{"mean_absolute", error.mean_absolute}, {"worst", error.worst}, {"bias", error.bias}};
}

bool any_measured(const LaunchReplay& replay) {
  return std::ranges::any_of(replay.ranks,
                             [](const ReplayedRank& rank) { return rank.measured.has_value(); });
}

/// Whether the error of some rank counts.
bool any_counts(const LaunchReplay& replay) {
  return std::ranges::any_of(replay.ranks, [](const ReplayedRank& rank) {
    return rank.measured.has_value() && !rank.cut;
  });
}

bool any_cut(const LaunchReplay& replay) {
  return std::ranges::any_of(replay.ranks, &ReplayedRank::cut);
}

/// Says which steps were left out, with a reason.
std::string cut_text(const std::vector<CutStep>& cut) {
  if (cut.empty()) {
    return "";
  }
  const std::string numbers = fmt::format(
      "{}", fmt::join(mapped(cut, [](const CutStep& step) { return step.number; }), ", "));
  return fmt::format("cut        {} not replayed and not in any mean: {}. Step {}: {}\n",
                     cut.size() == 1 ? "1 step" : fmt::format("{} steps", cut.size()),
                     numbers,
                     cut.front().number,
                     printable(cut.front().why));
}

std::string ranks_text(const LaunchReplay& replay, const Screen& screen) {
  if (!any_measured(replay)) {
    Table table({"rank", "replayed us"});
    for (std::size_t r = 0; r < replay.ranks.size(); ++r) {
      table.add({std::to_string(r), us_text(replay.ranks[r].step)});
    }
    return table.text(screen);
  }
  Table table({"rank", "measured us", "replayed us", "error"});
  for (std::size_t r = 0; r < replay.ranks.size(); ++r) {
    const ReplayedRank& rank = replay.ranks[r];
    const auto error = error_of(rank);
    table.add({std::to_string(r),
               rank.measured ? us_text(*rank.measured) : "",
               us_text(rank.step),
               error ? signed_percent2(*error) + (rank.cut ? " (cut)" : "") : ""});
  }
  const std::string cut =
      any_cut(replay) ? "cut: the recording lacks a part of the step; not in the mean\n" : "";
  return table.text(screen) + "\n" +
         (any_counts(replay) ? error_text(replay_error(replay)) + "\n" : "") + cut;
}

std::string collectives_text(const std::vector<ReplayedCollective>& collectives,
                             const Screen& screen) {
  if (collectives.empty()) {
    return "";
  }
  std::vector<std::string> header = {
      "collective", "op", "bytes", "skew us", "transfer us", "end us"};
  const bool measured = collectives.front().measured.has_value();
  if (measured) {
    header.insert(header.end(),
                  {"measured skew us", "measured transfer us", "end error us", "worst rank us"});
  }
  Table table(std::move(header));
  for (const ReplayedCollective& collective : collectives) {
    std::vector<std::string> row = {std::to_string(collective.number),
                                    printable(collective.op),
                                    collective.bytes ? std::to_string(*collective.bytes) : "",
                                    us_text(collective.replayed.skew),
                                    us_text(collective.replayed.transfer),
                                    us_text(collective.replayed.end)};
    if (collective.measured) {
      const Duration error = collective.replayed.end - collective.measured->end;
      row.insert(row.end(),
                 {us_text(collective.measured->skew),
                  us_text(collective.measured->transfer),
                  fmt::format("{:+.1f}", us(error)),
                  fmt::format("{:+.1f}", us(collective.worst_end_error))});
    }
    table.add(std::move(row));
  }
  return "\ncollectives: skew from the first to the last rank's arrival, transfer from there to "
         "the end\n" +
         table.text(screen);
}

Json figures_json(const ReplayedCollective::Figures& figures) {
  return {{"skew_us", us(figures.skew)},
          {"transfer_us", us(figures.transfer)},
          {"end_us", us(figures.end)}};
}

Json collective_json(const ReplayedCollective& collective) {
  Json result = {{"collective", collective.number},
                 {"op", collective.op},
                 {"bytes", or_null(collective.bytes)},
                 {"replayed", figures_json(collective.replayed)}};
  if (collective.measured) {
    result["measured"] = figures_json(*collective.measured);
    result["end_error_us"] = us(collective.replayed.end - collective.measured->end);
    result["worst_end_error_us"] = us(collective.worst_end_error);
  }
  return result;
}

/// Means over the steps, in milliseconds.
struct MeanStep {
  double measured = 0;
  double replayed = 0;
  double balanced = 0;

  [[nodiscard]] double imbalance() const { return measured / balanced - 1; }
};

MeanStep mean_step(const PipelineReplay& replay) {
  MeanStep mean;
  for (const ReplayedStep& step : replay.steps) {
    mean.measured += to_ms(step.measured) / static_cast<double>(replay.steps.size());
    mean.replayed += to_ms(step.replayed) / static_cast<double>(replay.steps.size());
    mean.balanced += to_ms(step.balanced) / static_cast<double>(replay.steps.size());
  }
  return mean;
}

std::string steps_text(std::vector<ReplayedStep> steps,
                       const StepColumns& columns,
                       const Screen& screen) {
  std::string title = "every step\n";
  if (!columns.all_steps && steps.size() > kWorstSteps) {
    std::ranges::stable_sort(steps, [](const ReplayedStep& a, const ReplayedStep& b) {
      return std::abs(error_of(a)) > std::abs(error_of(b));
    });
    steps.resize(kWorstSteps);
    title = fmt::format("the {} steps with the largest errors (--steps-table: all)\n", kWorstSteps);
  }
  std::vector<std::string> header = {"step", "measured ms", "replayed ms", "error"};
  if (columns.balanced) {
    header.insert(header.end(), {"balanced ms", "imbalance"});
  }
  Table table(std::move(header));
  for (const ReplayedStep& step : steps) {
    std::vector<std::string> row = {std::to_string(step.number),
                                    ms_text(to_ms(step.measured)),
                                    ms_text(to_ms(step.replayed)),
                                    signed_percent2(error_of(step))};
    if (columns.balanced) {
      row.push_back(ms_text(to_ms(step.balanced)));
      row.push_back(signed_percent2(error_of(step.measured, step.balanced)));
    }
    table.add(std::move(row));
  }
  return title + table.text(screen);
}

}  // namespace

ReplayError replay_error(const LaunchReplay& replay) {
  std::vector<double> errors;
  for (const ReplayedRank& rank : replay.ranks) {
    if (const auto error = error_of(rank); error && !rank.cut) {
      errors.push_back(*error);
    }
  }
  return summary_of(errors);
}

ReplayError replay_error(const PipelineReplay& replay) {
  const std::vector<double> errors =
      mapped(replay.steps, [&](const ReplayedStep& step) { return error_of(step); });
  return summary_of(errors);
}

std::string replay_text(const LaunchReplay& replay, const Screen& screen) {
  return fmt::format("{}: one step of {} ranks\n\n", printable(replay.path), replay.ranks.size()) +
         ranks_text(replay, screen) + collectives_text(replay.collectives, screen);
}

std::string replay_text(const PipelineReplay& replay,
                        const StepColumns& columns,
                        const Screen& screen) {
  const MeanStep mean = mean_step(replay);
  return fmt::format(
             "{}: {} steps of {} replicas with {} pipeline stages, {} rows\n\n"
             "mean step  measured {} ms, replayed {} ms\n"
             "error      {}\n"
             "balanced   {} ms with every micro-batch at its stage's mean: imbalance costs "
             "{:.1f} % (measured / balanced)\n{}\n",
             printable(replay.path),
             replay.steps.size(),
             replay.replicas,
             replay.stages,
             replay.rows,
             ms_text(mean.measured),
             ms_text(mean.replayed),
             error_text(replay_error(replay)),
             ms_text(mean.balanced),
             100 * mean.imbalance(),
             cut_text(replay.cut)) +
         steps_text(replay.steps, columns, screen);
}

Json replay_json(const LaunchReplay& replay) {
  Json ranks = Json::array();
  for (std::size_t r = 0; r < replay.ranks.size(); ++r) {
    const ReplayedRank& rank = replay.ranks[r];
    const auto error = error_of(rank);
    ranks.push_back({{"rank", r},
                     {"measured_us", rank.measured ? Json(us(*rank.measured)) : Json()},
                     {"replayed_us", us(rank.step)},
                     {"error", or_null(error)},
                     {"cut", rank.cut}});
  }
  Json collectives = mapped(replay.collectives, collective_json);
  return {{"format", "stepsim-replay/1"},
          {"program", replay.path},
          {"ranks", std::move(ranks)},
          {"error", any_counts(replay) ? error_json(replay_error(replay)) : Json()},
          {"collectives", std::move(collectives)}};
}

Json replay_json(const PipelineReplay& replay) {
  Json steps = mapped(replay.steps, [](const ReplayedStep& step) -> Json {
    return {{"step", step.number},
            {"measured_ms", to_ms(step.measured)},
            {"replayed_ms", to_ms(step.replayed)},
            {"error", error_of(step)},
            {"balanced_ms", to_ms(step.balanced)}};
  });
  const MeanStep mean = mean_step(replay);
  return {{"format", "stepsim-replay/1"},
          {"program", replay.path},
          {"replicas", replay.replicas},
          {"stages", replay.stages},
          {"mean_ms",
           {{"measured", mean.measured}, {"replayed", mean.replayed}, {"balanced", mean.balanced}}},
          {"imbalance_cost", mean.imbalance()},
          {"error", error_json(replay_error(replay))},
          {"steps", std::move(steps)},
          {"cut", mapped(replay.cut, [](const CutStep& step) -> Json {
             return {{"step", step.number}, {"why", step.why}};
           })}};
}

std::string replay_csv(const LaunchReplay& replay) {
  std::string text = "rank,measured_us,replayed_us,error,cut\n";
  for (std::size_t r = 0; r < replay.ranks.size(); ++r) {
    const ReplayedRank& rank = replay.ranks[r];
    const auto error = error_of(rank);
    text += fmt::format("{},{},{},{},{}\n",
                        r,
                        rank.measured ? fmt::format("{}", us(*rank.measured)) : "",
                        us(rank.step),
                        error ? fmt::format("{}", *error) : "",
                        rank.cut ? 1 : 0);
  }
  return text;
}

std::string replay_csv(const PipelineReplay& replay) {
  std::string text = "step,measured_ms,replayed_ms,error,balanced_ms\n";
  for (const ReplayedStep& step : replay.steps) {
    text += fmt::format("{},{},{},{},{}\n",
                        step.number,
                        to_ms(step.measured),
                        to_ms(step.replayed),
                        error_of(step),
                        to_ms(step.balanced));
  }
  return text;
}

}  // namespace stepsim
