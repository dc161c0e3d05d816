#pragma once

#include <span>
#include <string>

#include "sim/report/columns.h"
#include "sim/study/recommendation.h"
#include "sim/study/sweep.h"

namespace stepsim {

/// One row of a sweep: a point, how far it is from the best one, and a word about that.
struct SweepRow {
  SweepPoint point;
  Gain of_best;            ///< What the best point gains over this one; 0 for the best itself.
  std::string remark;      ///< "best", "too close to tell", or why the point is not the best.
  bool over_caps = false;  ///< Bucket caps are the only key swept.
};

/// In the order of JSON and CSV.
[[nodiscard]] std::span<const Column<SweepRow>> sweep_columns();

}  // namespace stepsim
