#pragma once

#include <functional>
#include <span>

#include "calibrate/fit/forms.h"
#include "costmodel/profile.h"

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

/// The best form of a series with its errors: the first among those within 2 % of the lowest score
/// (forms are listed simplest first).
[[nodiscard]] OpCost fit_best(const Series& series);

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
