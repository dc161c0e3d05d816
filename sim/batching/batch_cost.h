#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "costmodel/model/batch_shape.h"

namespace stepsim {

/// What a padded batch costs one rank, for policies that plan by cost: a table over samples and
/// longest length, linear between its points, never falling in either direction.
class BatchCost {
 public:
  /// samples * longest, exactly: what is known without a calibration.
  BatchCost() = default;
  /// Prices a grid with `seconds`, which may raise InputError for batches that it refuses: those
  /// cost infinity. At most 24 x 24 calls.
  /// Raises InputError: it refuses the smallest batch.
  BatchCost(const std::function<double(const BatchShape&)>& seconds,
            std::int64_t most_samples,
            std::int64_t longest);

  /// Seconds (or padded tokens) of `samples` >= 0 padded to `longest` >= 1; 0 for no samples.
  /// Beyond the grid in proportion to the padded tokens.
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
