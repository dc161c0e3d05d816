#pragma once

#include <span>
#include <string>
#include <vector>

#include "sim/report/columns.h"
#include "sim/study/recommendation.h"
#include "sim/study/sweep.h"

namespace stepsim {

/// One row of a sweep: a point, how far it is from the best one, and a word about that.
struct SweepRow {
  SweepPoint point;
  Gain of_best;              ///< What the best point gains over this one; 0 for the best itself.
  std::string remark;        ///< "best", "too close to tell", or why the point is not the best.
  bool compares = true;      ///< The best point fits into memory, so that it is one to gain by.
  bool over_caps = false;    ///< Bucket caps are the only key swept.
  bool over_shards = false;  ///< Ways of sharding are swept, beside other keys or alone.

  /// The point was refused: the row holds its values and why, and no figure.
  [[nodiscard]] bool is_blank() const { return !point.not_priced.empty(); }
};

/// In the order of JSON and CSV.
[[nodiscard]] std::span<const Column<SweepRow>> sweep_columns();

/// [axis] The values of a point, as they would be set.
[[nodiscard]] std::vector<std::string> labels_of(const std::vector<SweepAxis>& axes,
                                                 const SweepPoint& point);
/// "ddp.bucket_cap = 128 MiB, cluster.ranks = 8"
[[nodiscard]] std::string place_of(const std::vector<SweepAxis>& axes, const SweepPoint& point);

}  // namespace stepsim
