#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "calibrate/fit/posterior.h"
#include "calibrate/import/step_times/step_time_prior.h"
#include "costmodel/records/step_time_table.h"

namespace stepsim {

/// A row with several ranks, and how many standard deviations a unit of its residuals is.
struct FittedRow {
  const StepTimeRow* row = nullptr;
  std::size_t point = 0;     ///< In StepTimeJob::points.
  double log_step = 0;       ///< Without waiting for data.
  double log_compute = 0;    ///< And without exposed communication;
  bool has_compute = false;  ///< where the table has that.
  double step_scale = 1;
  double independent = 1;    ///< How much of a run of its own it counts as.
  double compute_scale = 1;  ///< Of the step without its exposed communication.
};

/// What a fit says of a point: logarithms of its step, and of that without exposed communication.
struct PointLogarithms {
  double step = 0;
  double compute = 0;
};

/// The squared residuals of rows and priors. Rows of one point differ in nothing but their times,
/// so that all those whose residuals are no outliers have one derivative: a table of many rows
/// costs little more than one of its points.
class StepTimeResiduals {
 public:
  /// [point] What these coefficients say.
  using Points = std::function<std::vector<PointLogarithms>(std::span<const double>)>;

  StepTimeResiduals(const std::vector<FittedRow>& rows,
                    std::vector<StepTimePrior> priors,
                    Points points);

  [[nodiscard]] double squares(std::span<const double> vector) const;
  [[nodiscard]] NormalEquations normal_equations(std::span<const double> vector) const;

 private:
  /// One kind of times of a point's rows, steps or compute.
  struct Series {
    std::size_t point = 0;
    double PointLogarithms::*value = nullptr;
    std::vector<double> logarithms;  ///< [row]
    std::vector<double> scales;      ///< [row]
  };

  std::vector<Series> series_;
  std::vector<StepTimePrior> priors_;
  Points points_;
};

}  // namespace stepsim
