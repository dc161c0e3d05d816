#include "sim/report/ladder_report.h"

#include <type_traits>
#include <utility>

#include <fmt/core.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "costmodel/base/mapped.h"
#include "costmodel/base/parse_units.h"
#include "costmodel/terminal/table.h"
#include "sim/report/columns.h"
#include "sim/report/csv.h"
#include "sim/report/notes.h"
#include "sim/report/number_text.h"
#include "sim/scenario/stepsim_command.h"

namespace stepsim {

namespace {

/// From so many numbers of samples on it is worth saying that they make shapes, too.
constexpr std::int64_t kManyBatchSizes = 4;

/// "multiple of 64"
std::string padding_words(const PaddedEpoch& row) {
  switch (row.rule) {
    case PaddingRule::Longest:
      return "to the longest sample";
    case PaddingRule::Own:
      return "as in the scenario";
    case PaddingRule::Multiple:
      return fmt::format("multiple of {}", row.number);
    case PaddingRule::Rungs:
      return fmt::format("ladder, {} at most", row.number);
    case PaddingRule::Optimum:
      break;
  }
  return "ladder, as many as pay";
}

const char* name_of(PaddingRule rule) {
  switch (rule) {
    case PaddingRule::Longest:
      return "longest";
    case PaddingRule::Own:
      return "own";
    case PaddingRule::Multiple:
      return "multiple";
    case PaddingRule::Rungs:
      return "rungs";
    case PaddingRule::Optimum:
      break;
  }
  return "optimum";
}

const char* key_name(ShapeKey key) {
  return key == ShapeKey::Length ? "length" : "samples-length";
}

double slowest_rank_ms(const LadderStudy& study, const PaddedEpoch& row) {
  return row.compute_seconds * 1e3 / static_cast<double>(study.steps);
}

/// A way to pad, in the study that it is of.
struct LadderRow {
  const LadderStudy* study;
  const PaddedEpoch* epoch;
};

std::vector<LadderRow> rows_of(const LadderStudy& study) {
  return mapped(study.rows, [&](const PaddedEpoch& epoch) { return LadderRow{&study, &epoch}; });
}

bool is_best(const LadderRow& row) {
  return row.study->best && &row.study->rows[*row.study->best] == row.epoch;
}

/// A figure of a way to pad that is not refused.
template <auto figure>
Cell figure_of(const LadderRow& row) {
  if (!row.epoch->refused.empty()) {
    return {};
  }
  if constexpr (std::is_member_object_pointer_v<decltype(figure)>) {
    return row.epoch->*figure;
  } else {
    return figure(*row.study, *row.epoch);
  }
}

// clang-format off
const Column<LadderRow> kLadderColumns[] = {
    {"padding", "padding", [](const LadderRow& r) -> Cell { return name_of(r.epoch->rule); }},
    {nullptr, nullptr, [](const LadderRow& r) -> Cell { return padding_words(*r.epoch); },
     "padding", FigureFormat::Words, 10},
    {"number", "number",
     [](const LadderRow& r) -> Cell { return r.epoch->number > 0 ? Cell(r.epoch->number) : Cell(); }},
    {"lengths", "lengths", figure_of<&PaddedEpoch::lengths>, "lengths", FigureFormat::Whole, 20},
    {"shapes_per_rank", "shapes_per_rank", figure_of<&PaddedEpoch::shapes_per_rank>,
     "shapes a rank", FigureFormat::Tenths, 30},
    {"shapes", "shapes", figure_of<&PaddedEpoch::shapes>, "shapes", FigureFormat::Whole, 40},
    {"padding_ratio", "padding_ratio", figure_of<&PaddedEpoch::padding_ratio>,
     "padded", FigureFormat::Percent, 50},
    {"compute_s", "compute_s", figure_of<&PaddedEpoch::compute_seconds>,
     "compute s", FigureFormat::Milliseconds, 60},
    {"new_shapes_s", "new_shapes_s", figure_of<&PaddedEpoch::shape_seconds>,
     "new shapes s", FigureFormat::Milliseconds, 70},
    {"slowest_rank_ms", "slowest_rank_ms", figure_of<slowest_rank_ms>,
     "slowest rank ms", FigureFormat::Milliseconds, 80},
    {"steady_step_ms", "steady_step_ms", figure_of<&PaddedEpoch::steady_step_ms>,
     "steady step ms", FigureFormat::Milliseconds, 90},
    {"step_ms", "step_ms", figure_of<&PaddedEpoch::step_ms>,
     "step ms", FigureFormat::Milliseconds, 100},
    {nullptr, "best", [](const LadderRow& r) -> Cell { return std::int64_t{is_best(r)}; }},
    {nullptr, nullptr, [](const LadderRow& r) -> Cell { return std::string(is_best(r) ? "best" : ""); },
     "", FigureFormat::Words, 110},
};
// clang-format on

Table ladder_table(const LadderStudy& study, const Screen& screen) {
  const std::vector<LadderRow> rows = rows_of(study);
  return table_of<LadderRow>(kLadderColumns, rows, screen, mapped(rows, [](const LadderRow& row) {
                               return is_best(row) ? Paint::Good : Paint::Plain;
                             }));
}

/// The line that makes a policy of a scenario pad so; empty where none is needed.
std::string padding_line(const PaddedEpoch& row) {
  switch (row.rule) {
    case PaddingRule::Longest:
    case PaddingRule::Own:
      return "";
    case PaddingRule::Multiple:
      return fmt::format("pad_to_multiple_of = {}", row.number);
    case PaddingRule::Rungs:
    case PaddingRule::Optimum:
      break;
  }
  return fmt::format("pad_to_lengths = [{}]", fmt::join(row.rungs, ", "));
}

bool has_own_padding(const LadderStudy& study) {
  return study.rows.size() > 1 && study.rows[1].rule == PaddingRule::Own;
}

/// What to try next, with the line in place.
std::string command_with(const Scenario& scenario,
                         const LadderStudy& study,
                         const std::string& line) {
  if (line.empty() || has_own_padding(study)) {
    return stepsim_command("compare", scenario);
  }
  const std::string between = " = ";
  const std::size_t end = line.find(between);
  return stepsim_command("run",
                         scenario,
                         study.policy,
                         {{fmt::format("policy.{}.{}", study.policy, line.substr(0, end)),
                           line.substr(end + between.size())}});
}

std::string advice_text(const Scenario& scenario, const LadderStudy& study) {
  if (!study.best) {
    return "No way to pad fits.\n";
  }
  const PaddedEpoch& best = study.rows[*study.best];
  const PaddedEpoch& longest = study.rows.front();
  const std::string line = padding_line(best);
  const std::string next = "Next: " + command_with(scenario, study, line) + "\n";
  if (best.rule == PaddingRule::Longest) {
    return "No padding beyond the longest sample pays.\n" + next;
  }
  if (best.rule == PaddingRule::Own) {
    return "The scenario's own padding is best.\n" + next;
  }
  return fmt::format(
      "Best: {}, {:.3f} ms a step in place of {:.3f} ms ({}). In the policy{}:\n\n"
      "{}\n\n{}",
      padding_words(best),
      best.step_ms,
      longest.step_ms,
      signed_percent(best.step_ms / longest.step_ms - 1),
      has_own_padding(study) ? ", in place of its padding" : "",
      line,
      next);
}

std::string study_text(const Scenario& scenario,
                       ShapeKey key,
                       const LadderStudy& study,
                       const Screen& screen) {
  if (!study.skipped.empty()) {
    return fmt::format("{}: left out: {}\n", study.policy, study.skipped);
  }
  std::string text = fmt::format("{}: an epoch of {} steps\n\n", study.policy, study.steps) +
                     ladder_table(study, screen).text(screen);
  for (const PaddedEpoch& row : study.rows) {
    if (!row.refused.empty()) {
      text += fmt::format("warning: {}: {}\n", padding_words(row), row.refused);
    }
  }
  if (key == ShapeKey::SamplesAndLength && study.batch_sizes >= kManyBatchSizes) {
    text += fmt::format(
        "Batches have {} different numbers of samples: no padding of lengths makes fewer shapes.\n",
        study.batch_sizes);
  }
  return text + "\n" + advice_text(scenario, study);
}

/// Predictions of the rows, with nothing but their notes.
std::vector<Prediction> noted_rows(const std::vector<LadderStudy>& studies) {
  std::vector<Prediction> predictions;
  for (const LadderStudy& study : studies) {
    for (const PaddedEpoch& row : study.rows) {
      predictions.push_back(noted(row.notes).front());
    }
  }
  return predictions;
}

Json padding_json(const LadderRow& row) {
  Json json = row_json<LadderRow>(kLadderColumns, row);
  if (!row.epoch->refused.empty()) {
    json["refused"] = row.epoch->refused;
  } else if (const std::string line = padding_line(*row.epoch); !line.empty()) {
    json["toml"] = line;
  }
  return json;
}

Json study_json(const LadderStudy& study) {
  if (!study.skipped.empty()) {
    return {{"policy", study.policy}, {"skipped", study.skipped}};
  }
  Json json = {{"policy", study.policy},
               {"steps", study.steps},
               {"batch_sizes", study.batch_sizes},
               {"rows", mapped(rows_of(study), padding_json)}};
  if (study.best) {
    json["best"] = *study.best;
  }
  return json;
}

}  // namespace

std::string ladder_text(const Scenario& scenario,
                        const LadderOptions& options,
                        const std::vector<LadderStudy>& studies,
                        const Screen& screen) {
  std::string text = fmt::format(
      "{}: {} ranks; a shape is {}, and a new one costs a rank {}\n"
      "One epoch from a cold start: each rank pays for each shape that it meets first, and a step "
      "waits for the rank with most new ones. Later epochs meet few new shapes.\n",
      scenario.name,
      scenario.ranks,
      options.key == ShapeKey::Length ? "a padded length" : "(samples, padded length)",
      format_duration(options.shape_seconds));
  for (const LadderStudy& study : studies) {
    text += "\n" + study_text(scenario, options.key, study, screen);
  }
  const std::string warnings = warnings_text(noted_rows(studies));
  return text + (warnings.empty() ? "" : "\n") + warnings;
}

Json ladder_json(const Scenario& scenario,
                 const LadderOptions& options,
                 const std::vector<LadderStudy>& studies) {
  return {{"format", "stepsim-ladder/1"},
          {"scenario", scenario.name},
          {"ranks", scenario.ranks},
          {"shape_cost_ms", options.shape_seconds * 1e3},
          {"key", key_name(options.key)},
          {"rungs_are_multiples_of", options.step},
          {"policies", mapped(studies, study_json)},
          {"warnings", note_texts(noted_rows(studies))}};
}

std::string ladder_csv(const std::vector<LadderStudy>& studies) {
  std::string text = csv_header<LadderRow>(kLadderColumns, "policy");
  for (const LadderStudy& study : studies) {
    for (const LadderRow& row : rows_of(study)) {
      text += csv_line<LadderRow>(kLadderColumns, row, csv_field(study.policy));
    }
  }
  return text;
}

}  // namespace stepsim
