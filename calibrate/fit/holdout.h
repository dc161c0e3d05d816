#pragma once

#include <functional>
#include <span>
#include <vector>

#include "calibrate/fit/form_fits.h"

namespace stepsim {

/// Errors of a form on points that its fit did not see.
///
/// Points are put in order and grouped by order_variable(); the outermost values are always fitted,
/// so that `random` (every fifth value left out) and `block` (an eighth of the values, neighbours,
/// left out) are errors inside the range. `beyond` predicts the values above half the largest from
/// the others. `bias` is over the points of `random` and `block`. Absent with fewer than 4 values.
[[nodiscard]] FitErrors held_out_errors(const Candidate& candidate, const Series& series);

/// Mean of `random` and `block`, by which forms are chosen; the error on the fitted points
/// themselves when both are absent.
[[nodiscard]] double choice_score(const Candidate& candidate,
                                  const Series& series,
                                  const FitErrors& errors);

/// The best of these forms for all series together: the first among those whose mean score is
/// within 2 % of the lowest (list them simplest first). Neither is empty.
[[nodiscard]] std::size_t choose_form(const std::vector<Candidate>& candidates,
                                      std::span<const Series> all);

/// The best form of a series, by choose_form(), with its errors.
///
/// Args:
///     processors: As candidates_for().
///     monotone: Only forms whose cost never falls with the size; tables are made so.
[[nodiscard]] OpCost fit_best(const Series& series,
                              std::int64_t processors = 0,
                              bool monotone = false);

/// Collects predictions of held-out points.
class ErrorSum {
 public:
  void add(double predicted, double measured);
  [[nodiscard]] std::optional<double> mean()
      const;  ///< Of |relative error|; absent without points.
  [[nodiscard]] std::optional<double> bias() const;  ///< Relative error of the sum.

 private:
  int count_ = 0;
  double relative_ = 0;
  double predicted_ = 0;
  double measured_ = 0;
};

}  // namespace stepsim
