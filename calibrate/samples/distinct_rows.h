#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

namespace stepsim {

/// Rows of features of which equal ones are kept once: a long training meets its batches again and
/// again, and fits then go by the sums of equal rows.
class DistinctRows {
 public:
  /// `most`: how many rows will be added. Few rows all count as different, as a fit takes them
  /// one by one in no time.
  DistinctRows(std::size_t features, std::size_t most);

  void add(std::span<const double> row);

  [[nodiscard]] std::size_t features() const { return features_; }
  /// The number of rows that were added.
  [[nodiscard]] std::size_t size() const { return numbers_.size(); }
  /// The number of different ones, which are in the order in which they first came.
  [[nodiscard]] std::size_t distinct() const { return distinct_; }
  /// The number, among the different rows, of the row that was added at this place.
  [[nodiscard]] std::size_t number(std::size_t place) const { return numbers_[place]; }
  /// [feature] The different row of this number.
  [[nodiscard]] std::span<const double> row(std::size_t number) const {
    return std::span(values_).subspan(number * features_, features_);
  }
  /// [number] The sum of coefficient * feature.
  [[nodiscard]] std::vector<double> times(std::span<const double> coefficients) const;

 private:
  std::size_t features_;
  bool few_;
  std::size_t distinct_ = 0;
  std::vector<double> values_;                          ///< [number][feature]
  std::vector<std::size_t> numbers_;                    ///< [place]
  std::string bytes_;                                   ///< Of the row that is being added.
  std::unordered_map<std::string, std::size_t> known_;  ///< [bytes of a row] Its number.
};

}  // namespace stepsim
