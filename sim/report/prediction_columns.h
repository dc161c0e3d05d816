#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "sim/predict/prediction.h"

namespace stepsim {

/// How a table writes a figure. The page has a function for each
/// (sim/report/html/script/format.js).
enum class FigureFormat {
  Milliseconds,          ///< "12.345"
  Whole,                 ///< "12345"
  Tenths,                ///< "12.3"
  Percent,               ///< "12.3 %"
  SignedPercent,         ///< "+12.3 %"
  Interval,              ///< "12.1-13.4": the lower and the upper end.
  SignedPercentInterval  ///< "+1.2 to +3.4 %", also of two ends.
};

/// "milliseconds", "whole", …
[[nodiscard]] const char* name_of(FigureFormat format);

/// One figure of a prediction's summary and all the places where it is written. JSON, CSV, the
/// table of `stepsim compare` and that of the page are made from the list of these, so that a new
/// figure is one more row.
struct SummaryColumn {
  const char* key;  ///< In JSON: "a/b" is member b of object a, "a/0" the first element of list a.
  const char* csv;  ///< Header in CSV.
  double (*value)(const PredictionSummary&);
  const char* heading = nullptr;  ///< In tables; null: tables do not show the figure.
  FigureFormat format = FigureFormat::Milliseconds;
  int place = 0;              ///< Tables show their columns by rising place.
  bool only_on_page = false;  ///< The table in the terminal does not show the figure.
  double (*upper)(const PredictionSummary&) = nullptr;  ///< Of an interval; this is its lower end.
};

/// In the order of JSON and CSV.
[[nodiscard]] std::span<const SummaryColumn> summary_columns();

/// The columns of the tables, by place.
[[nodiscard]] std::vector<const SummaryColumn*> shown_columns(bool on_page);

/// How the terminal's tables write a figure; `high` is the upper end of an interval.
[[nodiscard]] std::string figure_text(FigureFormat format, double value, double high = 0);

/// What the terminal's table shows of a column.
[[nodiscard]] std::string figure_text(const SummaryColumn& column,
                                      const PredictionSummary& summary);

/// One figure of the row of a rank and step: its name in JSON and CSV, and where it is kept.
struct StepColumn {
  const char* name;
  std::variant<int RankStepResult::*, std::int64_t RankStepResult::*, double RankStepResult::*>
      member;
};

/// In the order of JSON and CSV.
[[nodiscard]] std::span<const StepColumn> step_columns();

}  // namespace stepsim
