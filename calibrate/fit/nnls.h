#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "calibrate/samples/distinct_rows.h"

namespace stepsim {

/// What rows of equal features add up to in a RelativeRows.
struct EqualRows {
  std::size_t count = 0;
  double y = 0;  ///< Of the last one, as is the weight.
  double weight = 0;
  double inverse_squares = 0;  ///< Of weight / y.
  double products = 0;         ///< Of weight / y and weight.
  double weight_squares = 0;

  void add(double own_y, double own_weight = 1);
};

/// A least-squares problem of relative residuals, the sum over rows of
/// (weight (sum_j c[j] row[j] / y - 1))^2, for coefficients c >= 0.
///
/// It keeps few of many rows: those of the R of a QR decomposition, which have the same sum of
/// squares for every c, and so for every choice of features.
class RelativeRows {
 public:
  explicit RelativeRows(std::size_t features);

  /// `row`: [feature], finite and not negative; `y` positive; `weight` not negative.
  void add(std::span<const double> row, double y, double weight = 1);
  /// Adds rows of equal features: one as it is, more as two with the same sum of squares.
  void add(std::span<const double> row, const EqualRows& equal);
  /// Adds the rows of another problem of the same features.
  void add(const RelativeRows& other);
  /// Keeps as few rows as have the same sum of squares, but for rounding. Sums of many problems
  /// call it by themselves.
  void reduce();

  /// Returns the c >= 0 of least squares: [feature]. Those that `used` leaves out get 0, as do
  /// features that are zero everywhere; empty: all are used.
  /// Method: columns scaled to maximum 1, then the active sets of Lawson and Hanson, "Solving Least
  /// Squares Problems" (1974), chapter 23.
  [[nodiscard]] std::vector<double> solve(const std::vector<bool>& used = {}) const;
  /// The sum of squares for these coefficients.
  [[nodiscard]] double squares(const std::vector<double>& coefficients) const;

 private:
  bool is_reduced_ = false;
  std::size_t width_;         ///< Features, then the constant of each residual.
  std::vector<double> rows_;  ///< [row][width_]
};

/// Solves a RelativeRows of all features once.
///
/// Args:
///     rows: [point][feature], finite and non-negative, the same width everywhere.
///     y: [point], positive.
///     weights: [point], not negative; empty: 1 everywhere.
/// Returns: [feature]; a feature that is zero everywhere gets 0.
[[nodiscard]] std::vector<double> relative_nnls(const std::vector<std::vector<double>>& rows,
                                                const std::vector<double>& y,
                                                const std::vector<double>& weights = {});

/// This fits the same with equal rows put together.
[[nodiscard]] std::vector<double> relative_nnls(const DistinctRows& rows,
                                                const std::vector<double>& y,
                                                const std::vector<double>& weights = {});

/// The sum of coefficient * feature.
[[nodiscard]] double dot(std::span<const double> coefficients, std::span<const double> row);

/// How much longer each time is than a fit of the features says that long ones do not move: by
/// least absolute deviations, coefficients not negative.
///
/// Args:
///     features: [time]
///     times: Milliseconds.
/// Returns: [time] milliseconds, negative where the time is shorter.
[[nodiscard]] std::vector<double> robust_excess(const DistinctRows& features,
                                                std::vector<double> times);

}  // namespace stepsim
