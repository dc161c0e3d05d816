#pragma once

#include <span>
#include <vector>

#include "calibrate/fit/form_fits.h"

namespace stepsim {

/// The errors of a form on points that its fit did not see.
///
/// Points are ordered and grouped by order_variable(). For `random` every fifth value is left out,
/// for `block` an eighth of the values that are neighbours; the outermost values are always fitted,
/// so that these are errors inside the range. `beyond` predicts the values above half the largest
/// from the others. `bias` is over the points of `random` and `block`. With fewer than 4 values all
/// errors are absent.
[[nodiscard]] FitErrors held_out_errors(const FormCandidate& candidate, const Series& series);

/// The score by which forms are chosen: the mean of `random` and `block`, or the error on the
/// fitted points themselves when these are absent.
[[nodiscard]] double choice_score(const FormCandidate& candidate,
                                  const Series& series,
                                  const FitErrors& errors);

/// Chooses the best of these forms for all series together: the first one whose mean score is
/// within 2 % of the lowest, so list them simplest first. Neither list is empty.
[[nodiscard]] std::size_t choose_form(const std::vector<FormCandidate>& candidates,
                                      std::span<const Series> all);

/// Fits the best form of a series, which choose_form() picks among candidates_for(), and adds its
/// errors. With `monotone` only forms are tried whose cost never falls when the batch grows.
[[nodiscard]] OpCost fit_best(const Series& series,
                              std::int64_t processors = 0,
                              bool monotone = false);

/// Collects predictions of held-out points.
class ErrorSum {
 public:
  void add(double predicted, double measured);
  /// The mean |relative error|; absent without points.
  [[nodiscard]] std::optional<double> mean() const;
  /// The relative error of the sum; absent without points.
  [[nodiscard]] std::optional<double> bias() const;

 private:
  int count_ = 0;
  double relative_ = 0;
  double predicted_ = 0;
  double measured_ = 0;
};

}  // namespace stepsim
