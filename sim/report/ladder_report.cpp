#include "sim/report/ladder_report.h"

#include <utility>

#include <fmt/core.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "costmodel/base/mapped.h"
#include "costmodel/base/parse_units.h"
#include "costmodel/terminal/table.h"
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

Table ladder_table(const LadderStudy& study) {
  Table table({"padding",
               "lengths",
               "shapes a rank",
               "shapes",
               "padded",
               "compute s",
               "new shapes s",
               "slowest rank ms",
               "steady step ms",
               "step ms",
               ""});
  for (std::size_t i = 0; i < study.rows.size(); ++i) {
    const PaddedEpoch& row = study.rows[i];
    if (!row.refused.empty()) {
      table.add({padding_words(row), "-", "-", "-", "-", "-", "-", "-", "-", "-", ""});
      continue;
    }
    const bool best = study.best == i;
    table.add({padding_words(row),
               std::to_string(row.lengths),
               fmt::format("{:.1f}", row.shapes_per_rank),
               std::to_string(row.shapes),
               percent(row.padding_ratio),
               fmt::format("{:.3f}", row.compute_seconds),
               fmt::format("{:.3f}", row.shape_seconds),
               fmt::format("{:.3f}", slowest_rank_ms(study, row)),
               fmt::format("{:.3f}", row.steady_step_ms),
               fmt::format("{:.3f}", row.step_ms),
               best ? "best" : ""},
              best ? Paint::Good : Paint::Plain);
  }
  return table;
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
                     ladder_table(study).text(screen);
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

Json padding_json(const LadderStudy& study, const PaddedEpoch& row) {
  Json json = {{"padding", name_of(row.rule)}};
  if (row.number > 0) {
    json["number"] = row.number;
  }
  if (!row.refused.empty()) {
    json["refused"] = row.refused;
    return json;
  }
  json["lengths"] = row.lengths;
  json["shapes_per_rank"] = row.shapes_per_rank;
  json["shapes"] = row.shapes;
  json["padding_ratio"] = row.padding_ratio;
  json["compute_s"] = row.compute_seconds;
  json["new_shapes_s"] = row.shape_seconds;
  json["slowest_rank_ms"] = slowest_rank_ms(study, row);
  json["steady_step_ms"] = row.steady_step_ms;
  json["step_ms"] = row.step_ms;
  if (const std::string line = padding_line(row); !line.empty()) {
    json["toml"] = line;
  }
  return json;
}

Json study_json(const LadderStudy& study) {
  if (!study.skipped.empty()) {
    return {{"policy", study.policy}, {"skipped", study.skipped}};
  }
  Json rows = mapped(study.rows, [&](const PaddedEpoch& row) { return padding_json(study, row); });
  Json json = {{"policy", study.policy},
               {"steps", study.steps},
               {"batch_sizes", study.batch_sizes},
               {"rows", std::move(rows)}};
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
      "One epoch from a cold start: each rank pays for each shape that it meets first, and a step\n"
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
  std::string text =
      "policy,padding,number,lengths,shapes_per_rank,shapes,padding_ratio,compute_s,new_shapes_s,"
      "slowest_rank_ms,steady_step_ms,step_ms,best\n";
  for (const LadderStudy& study : studies) {
    for (std::size_t i = 0; i < study.rows.size(); ++i) {
      const PaddedEpoch& row = study.rows[i];
      const std::string what = fmt::format("{},{},{}",
                                           csv_field(study.policy),
                                           name_of(row.rule),
                                           row.number > 0 ? std::to_string(row.number) : "");
      text += row.refused.empty() ? fmt::format("{},{},{},{},{},{},{},{},{},{},{}\n",
                                                what,
                                                row.lengths,
                                                row.shapes_per_rank,
                                                row.shapes,
                                                row.padding_ratio,
                                                row.compute_seconds,
                                                row.shape_seconds,
                                                slowest_rank_ms(study, row),
                                                row.steady_step_ms,
                                                row.step_ms,
                                                study.best == i ? 1 : 0)
                                  : what + ",,,,,,,,,,0\n";
    }
  }
  return text;
}

}  // namespace stepsim
