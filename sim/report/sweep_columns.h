#pragma once

#include <span>
#include <string>
#include <variant>
#include <vector>

#include "costmodel/io/json_file.h"
#include "sim/report/prediction_columns.h"
#include "sim/study/recommendation.h"
#include "sim/study/sweep.h"

namespace stepsim {

/// One row of a sweep: a point, how far it is from the best one, and a word about that.
struct SweepRow {
  SweepPoint point;
  Gain of_best;        ///< What the best point gains over this one; 0 for the best itself.
  std::string remark;  ///< "best", "too close to tell", or why the point is not the best.
};

/// One figure or word of a sweep's row. JSON, CSV, the terminal's table and the page's are made
/// from the list of these, so that a new figure is one more row.
struct SweepColumn {
  const char* key;  ///< In JSON and CSV; in JSON "a/0" is the first element of list a.
  const char* csv;
  std::variant<double (*)(const SweepRow&),
               std::size_t (*)(const SweepRow&),
               std::string (*)(const SweepRow&)>
      value;
  const char* heading = nullptr;                     ///< In tables; null: tables do not show it.
  FigureFormat format = FigureFormat::Milliseconds;  ///< Of figures; words stand as they are.
  int place = 0;                                     ///< Tables show their columns by rising place.
  bool only_caps = false;                            ///< Shown only when bucket caps are swept.
  double (*upper)(const SweepRow&) = nullptr;        ///< Of an interval; this is its lower end.
};

/// In the order of JSON and CSV.
[[nodiscard]] std::span<const SweepColumn> sweep_columns();
/// The columns of the tables, by place.
[[nodiscard]] std::vector<const SweepColumn*> shown_sweep_columns(bool over_caps);
/// What the terminal's table shows of a column.
[[nodiscard]] std::string sweep_cell(const SweepColumn& column, const SweepRow& row);
/// The columns as the page reads them: [{"key", "heading", "format"}, …]; words have no format.
[[nodiscard]] Json page_sweep_columns(bool over_caps);

}  // namespace stepsim
