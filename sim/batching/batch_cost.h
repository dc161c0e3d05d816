#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "costmodel/model/batch_shape.h"

namespace stepsim {

/// The cost of a padded batch on one rank, for policies that plan by cost. It is a table over the
/// number of samples and the longest length, linear between its points, and it never falls in
/// either direction.
class BatchCost {
 public:
  /// Costs are samples * longest, which is all that is known without a calibration.
  BatchCost() = default;
  /// Prices a grid by at most 24 x 24 calls of `seconds`. A batch for which it raises InputError
  /// costs infinity.
  /// Raises InputError: `seconds` refuses the smallest batch.
  BatchCost(const std::function<double(const BatchShape&)>& seconds,
            std::int64_t most_samples,
            std::int64_t longest);

  /// The seconds (or padded tokens) of `samples` >= 0 padded to `longest` >= 1; 0 for no samples.
  /// Beyond the grid costs grow in proportion to the padded tokens.
  [[nodiscard]] double operator()(std::int64_t samples, std::int64_t longest) const;

 private:
  [[nodiscard]] double at(std::size_t row, std::size_t column) const {
    return seconds_[row * lengths_.size() + column];
  }

  std::vector<double> samples_;
  std::vector<double> lengths_;
  std::vector<double> seconds_;  ///< [samples][length]
};

}  // namespace stepsim
