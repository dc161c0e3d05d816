#pragma once

#include <array>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "calibrate/import/step_times/step_time_fit.h"

namespace stepsim::test {

/// One of the published tables of step times on 1 to 64 T4, with its model.
struct ScalingTable {
  std::string name;
  StepTimeTable all;
  TransformerConfig model;
};

/// Reads "bert", "cifar10" or "imagenet"; nothing, and a printed skip, where the data are absent.
[[nodiscard]] std::optional<ScalingTable> scaling_table(const std::string& name);

/// Placements that a user would have timed: 1, 2, 4 and 1+1; with 1+1+1+1; only 1.
[[nodiscard]] const std::set<std::string>& few_placements();
[[nodiscard]] const std::set<std::string>& five_placements();
[[nodiscard]] const std::set<std::string>& alone_placement();

/// The rows on these placements.
[[nodiscard]] StepTimeTable rows_on(const StepTimeTable& table,
                                    const std::set<std::string>& placements);

/// The fit of some rows of the table, with DDP's default buckets.
[[nodiscard]] StepTimeFit fit_of(const ScalingTable& table,
                                 const StepTimeTable& rows,
                                 const std::optional<FittedLinks>& known = std::nullopt,
                                 std::optional<StepTimeForm> form = std::nullopt);

/// Errors of the rows of a table that a fit has not seen, on one group of nodes.
struct GroupError {
  double step = 0;     ///< Mean |error| of the step, as a fraction.
  double exposed = 0;  ///< Mean |error| of the exposed communication over its mean.
  double covered = 0;  ///< Share of steps inside their 90 % interval.
  double width = 0;    ///< Mean half width of the intervals, as a fraction.
  int rows = 0;
};

/// 1 node, 2, 3 to 4, 6 to 16 nodes.
inline constexpr std::size_t kNodeGroups = 4;
[[nodiscard]] std::array<GroupError, kNodeGroups> group_errors(const ScalingTable& table,
                                                               const StepTimeFit& fit,
                                                               const std::set<std::string>& seen);

}  // namespace stepsim::test
